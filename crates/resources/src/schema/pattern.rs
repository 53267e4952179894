//! Regular expressions written for Go's RE2, run by the `regex` crate.
//!
//! The two dialects are close, and where they differ a pattern must mean what it means in
//! Go: `\d`, `\w` and `\s` are ASCII, a `{` that counts nothing is a brace, `[`, `&&`, `--`
//! and `~~` inside a class are plain characters. [`translate`] rewrites those. A pattern is
//! not anchored.
//!
//! The program is compiled on first use and kept: most patterns of most schemas are never
//! met.

use std::sync::{Arc, OnceLock};

use regex::{Regex, RegexBuilder};

/// A pattern and, once used, its program.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    program: Arc<OnceLock<Result<Regex, Box<str>>>>,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), program: Arc::default() }
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern occurs in `input`; an error when it is not a pattern at all.
    pub fn matches(&self, input: &str) -> Result<bool, &str> {
        let program =
            self.program.get_or_init(|| compile(&self.text, MAX_PROGRAM).map_err(String::into_boxed_str));
        match program {
            Ok(regex) => Ok(regex.is_match(input)),
            Err(why) => Err(why),
        }
    }

    /// Why this is not a regular expression, if it is not.
    pub fn fault(&self) -> Option<&str> {
        self.matches("").err()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The largest program of a schema's pattern, in bytes.
pub(super) const MAX_PROGRAM: usize = 10 * 1024 * 1024;

/// The program of a pattern in Go's dialect, if it is no larger than `limit`.
pub(super) fn compile(pattern: &str, limit: usize) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern)).size_limit(limit).build().map_err(|why| why.to_string())
}

/// Rewrites RE2 syntax into that of the `regex` crate.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                rest = escape(after, class, &mut out);
                continue;
            }
            '[' if class => match named_class(after) {
                Some(end) => {
                    out.push('[');
                    out.push_str(&after[..end]);
                    rest = &after[end..];
                    continue;
                }
                None => out.push_str("\\["),
            },
            '[' => {
                class = true;
                out.push('[');
                rest = after;
                if let Some(negated) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = negated;
                }
                // A bracket that comes first is a member, not the end.
                if let Some(member) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = member;
                }
                continue;
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            '-' if class && (after.starts_with('-') || out.ends_with('-')) => out.push_str("\\-"),
            '{' if !class && !counts(after) => out.push_str("\\{"),
            '}' if !class && !closes_count(&out) => out.push_str("\\}"),
            _ => out.push(c),
        }
        rest = after;
    }
    out
}

/// Handles what follows a backslash; gives back what is left.
fn escape<'a>(after: &'a str, class: bool, out: &mut String) -> &'a str {
    let Some(c) = after.chars().next() else {
        // A trailing backslash is an error in both dialects; let the compiler say so.
        out.push('\\');
        return after;
    };
    let rest = &after[c.len_utf8()..];
    let set = match c {
        'd' => Some(("0-9", false)),
        'D' => Some(("0-9", true)),
        'w' => Some(("0-9A-Za-z_", false)),
        'W' => Some(("0-9A-Za-z_", true)),
        's' => Some(("\\t\\n\\f\\r ", false)),
        'S' => Some(("\\t\\n\\f\\r ", true)),
        _ => None,
    };
    match (c, set) {
        (_, Some((members, negated))) => {
            if class && !negated {
                out.push_str(members);
            } else {
                out.push('[');
                out.push_str(if negated { "^" } else { "" });
                out.push_str(members);
                out.push(']');
            }
            rest
        }
        ('Q', None) => {
            let (literal, left) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(literal));
            left
        }
        ('b', None) if !class => {
            out.push_str("(?-u:\\b)");
            rest
        }
        (c, None) if c.is_ascii() && !c.is_ascii_alphanumeric() => {
            // Go lets any punctuation be escaped; here some escapes mean something else.
            if class && matches!(c, '-' | '[' | ']' | '^' | '\\' | '&' | '~') {
                out.push('\\');
                out.push(c);
            } else {
                out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
            }
            rest
        }
        ('0', None) => {
            let digits = rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let code = u32::from_str_radix(&rest[..digits], 8).unwrap_or(0);
            out.push_str(&format!("\\x{{{code:x}}}"));
            &rest[digits..]
        }
        (c, None) => {
            out.push('\\');
            out.push(c);
            // The braces of \p{..} and \x{..} are not counts.
            match (
                c,
                rest.strip_prefix('{')
                    .and_then(|inner| inner.bytes().take(LONGEST_NAME).position(|c| c == b'}')),
            ) {
                ('p' | 'P' | 'x', Some(end)) => {
                    out.push_str(&rest[..end + 2]);
                    &rest[end + 2..]
                }
                _ => rest,
            }
        }
    }
}

/// The longest name of a class in braces that is looked for.
const LONGEST_NAME: usize = 64;

// Each of these looks no further than what could belong to it: patterns may be long, and looking to the end of one
// for every bracket in it would take forever.

/// Where `:alpha:]`, which follows a bracket inside a class, ends; nothing if something else follows.
fn named_class(after: &str) -> Option<usize> {
    let is_name = |c: &u8| *c == b'^' || *c == b':' || c.is_ascii_alphabetic();
    let end = after.bytes().take(LONGEST_NAME).take_while(|c| is_name(c)).count();
    let (name, rest) = after.split_at(end);
    (end >= 2 && name.starts_with(':') && name.ends_with(':') && rest.starts_with(']')).then_some(end + 1)
}

/// Whether what follows a `{` makes it a repetition: `3}`, `3,}` or `3,5}`.
fn counts(after: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let low = digits(after);
    let mut rest = &after[low..];
    if let Some(high) = rest.strip_prefix(',') {
        rest = &high[digits(high)..];
    }
    low > 0 && rest.starts_with('}')
}

/// Whether a `}` met now ends a repetition that was let through.
fn closes_count(out: &str) -> bool {
    let count = out.bytes().rev().take_while(|c| c.is_ascii_digit() || *c == b',').count();
    let before = &out[..out.len() - count];
    count > 0 && before.ends_with('{') && !before.ends_with("\\{")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, input: &str) -> bool {
        Pattern::new(pattern).matches(input).unwrap()
    }

    #[test]
    fn a_pattern_is_not_anchored() {
        assert!(found("b+", "abbc"));
        assert!(!found("^b+$", "abbc"));
    }

    #[test]
    fn shorthand_classes_are_ascii_as_in_go() {
        assert!(found(r"^\d+$", "42"));
        assert!(!found(r"^\d+$", "٤٢"));
        assert!(!found(r"^\w+$", "é"));
        assert!(found(r"^[\w.-]+$", "a-b.c_1"));
        assert!(!found(r"^\s$", "\u{a0}"));
        assert!(found(r"^[\D]+$", "abc"));
    }

    #[test]
    fn braces_that_count_nothing_are_braces() {
        assert!(found(r"^\${[a-z]+}$", "${abc}"));
        assert!(found(r"^a{2}$", "aa"));
        assert!(found(r"^a{2,}b{1,3}$", "aaab"));
        assert!(found(r"^{}$", "{}"));
    }

    #[test]
    fn set_operators_inside_classes_are_plain_characters() {
        assert!(found(r"^[a&&b]+$", "a&b"));
        assert!(found(r"^[[a]+$", "[a"));
        assert!(found(r"^[a~~b]+$", "~"));
        assert!(found(r"^[]a]+$", "]a"));
        assert!(found(r"^[[:alpha:]]+$", "abc"));
    }

    #[test]
    fn literal_spans_and_escaped_punctuation_work() {
        assert!(found(r"^\Qa.b\E$", "a.b"));
        assert!(!found(r"^\Qa.b\E$", "axb"));
        assert!(found(r"^\/\_\<\ $", "/_< "));
        assert!(found(r"^\p{Greek}$", "α"));
        assert!(found(r"^\x{41}$", "A"));
    }

    #[test]
    fn patterns_met_in_the_field_compile() {
        for pattern in [
            r"^(/[^/\0]+)+$",
            r"^(\d+|0x[0-9a-fA-F]{4})$",
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            r"^(([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])$",
            r"^[\w-]+(\.[\w-]+)*$",
        ] {
            assert_eq!(Pattern::new(pattern).fault(), None, "{pattern} became {}", translate(pattern));
        }
    }

    #[test]
    fn a_long_pattern_takes_no_longer_than_its_length() {
        for part in ["}", "{", "{1", "1}", "[[", "[[:a", r"\x{", r"\p{"] {
            // Class or no class, it is gone through once.
            for begin in ["", "["] {
                let long = format!("{begin}{}", part.repeat(1_000_000));
                assert!(translate(&long).len() >= long.len() / 2);
            }
        }
        assert!(Pattern::new("[[:]").fault().is_none());
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        assert!(Pattern::new("a(").fault().is_some());
        assert!(Pattern::new("a\\").fault().is_some());
    }
}
