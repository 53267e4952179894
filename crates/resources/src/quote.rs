//! Text between quotes, as the original's messages show it.
//!
//! Messages that clients search for quote what they complain about, and the original
//! quotes in Go's manner: `\x00` and `\u200b`, where Rust would write `\0` and `\u{200b}`.

use std::fmt::Write;

/// One string: `"it"`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            ' '..='~' => out.push(letter),
            _ if letter < ' ' || letter == '\x7f' => _ = write!(out, "\\x{:02x}", letter as u32),
            _ if is_printable(letter) => out.push(letter),
            _ if (letter as u32) < 0x10000 => _ = write!(out, "\\u{:04x}", letter as u32),
            _ => _ = write!(out, "\\U{:08x}", letter as u32),
        }
    }
    out.push('"');
    out
}

/// A list of strings: `["a" "b"]`, separated by spaces.
pub fn quoted_list<S: AsRef<str>>(texts: &[S]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Asks the standard library's own table. A letter goes before, since a combining mark
/// counts as printable only when it has something to combine with.
fn is_printable(letter: char) -> bool {
    let pair: String = ['a', letter].into_iter().collect();
    pair.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_go() {
        assert_eq!(quoted("plain é"), "\"plain é\"");
        assert_eq!(quoted("a\"b\\c\n\0\x7f"), r#""a\"b\\c\n\x00\x7f""#);
        assert_eq!(quoted("\u{200b}\u{e0001}"), r#""\u200b\U000e0001""#);
        assert_eq!(quoted("e\u{301}"), "\"e\u{301}\"");
        assert_eq!(quoted_list(&["a", "b c"]), r#"["a" "b c"]"#);
        assert_eq!(quoted_list::<&str>(&[]), "[]");
    }
}
