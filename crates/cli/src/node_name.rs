//! What a node may be called: a DNS-1123 subdomain, as every Kubernetes Node.

const LONGEST: usize = 253;

pub(crate) const FITS: &str = "lower-case letters, digits, `-` and `.`, beginning and ending with a letter or \
                               digit, at most 253 characters, such as `node-1` or `rack2.example.com`";

/// What is wrong with `name`, if anything is.
pub(crate) fn problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("a node needs a name".into());
    }
    if name.len() > LONGEST {
        return Some(format!("the name has {} characters", name.len()));
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if let Some(odd) = name.chars().find(|&c| !is_plain(c) && c != '-' && c != '.') {
        return Some(format!("{odd:?} may not be in the name of a node"));
    }
    for label in name.split('.') {
        if !label.starts_with(is_plain) || !label.ends_with(is_plain) {
            return Some(format!("the part `{label}` does not begin and end with a letter or digit"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_takes_are_taken() {
        for name in ["n", "node-1", "0", "rack2.example.com", &"a".repeat(253)] {
            assert_eq!(problem(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_kubernetes_refuses_are_refused() {
        for name in ["", "Node", "a_b", "-a", "a-", "a..b", ".a", "a.", "a.-b", "ä", "a b", &"a".repeat(254)]
        {
            assert!(problem(name).is_some(), "{name}");
        }
    }
}
