//! How names of properties are written in rules: CEL's identifiers allow less than JSON's keys.

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const SEQUENCES: [(&str, &str); 4] = [("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

pub fn is_keyword(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The identifier of a property; nothing for one that cannot be named in a rule.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some((plain, word)) = SEQUENCES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            out.push_str(&format!("__{word}__"));
            rest = &rest[plain.len()..];
        } else if c.is_ascii_alphanumeric() || c == '_' {
            out.push(c);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// The property of an identifier; nothing for one that no property escapes to.
pub fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("__") {
        let inside = &rest[at + 2..];
        // A sequence is a word between double underscores that has none itself.
        let Some(end) = inside.find('_').filter(|end| *end > 0 && inside[*end..].starts_with("__")) else {
            out.push_str(&rest[..at + 1]);
            rest = &rest[at + 1..];
            continue;
        };
        out.push_str(&rest[..at]);
        let word = &inside[..end];
        match SEQUENCES.iter().find(|(_, sequence)| *sequence == word) {
            Some((plain, _)) => out.push_str(plain),
            None if RESERVED.contains(&word) && word.len() + 4 == name.len() => out.push_str(word),
            None => return None,
        }
        rest = &inside[end + 2..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("with-dash", "with__dash__dash"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
            ("_x_", "_x_"),
            ("a___b", "a__underscores___b"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
        }
    }

    #[test]
    fn what_cannot_be_an_identifier_has_none() {
        for name in ["", "1st", "h@t", "ü"] {
            assert_eq!(escape(name), None);
        }
        assert_eq!(unescape("__nonsense__"), None);
    }
}
