//! What may be a name: of an object, a label, an annotation, a finalizer.
//!
//! Every check answers with the list of what is wrong, empty when nothing is. The
//! sentences are those of the original API server (v1.34), word for word, because people
//! and scripts search for them; the regular expressions they quote are shown, never run.
//!
//! Deliberately absent: which field a complaint belongs to. The caller knows the path.

use md5::{Digest, Md5};

const DNS_LABEL_MAX: usize = 63;
const DNS_SUBDOMAIN_MAX: usize = 253;
const QUALIFIED_NAME_PART_MAX: usize = 63;
const LABEL_VALUE_MAX: usize = 63;

/// All keys and values of an object's annotations together, in bytes.
pub const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// A generated name is a label's length, its last five characters drawn by chance.
const GENERATED_BASE_MAX: usize = 58;
pub const GENERATED_SUFFIX_LEN: usize = 5;

/// What the suffix of a generated name is drawn from: no vowels and no look-alikes, so
/// that chance spells neither words nor riddles.
pub const GENERATED_SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const DNS_LABEL_RE: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN_RE: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_1035_LABEL_RE: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_NAME_RE: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE_RE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const CONFIG_KEY_RE: &str = "[-._a-zA-Z0-9]+";

/// Which rule the names of a kind follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Most kinds.
    DnsSubdomain,
    /// Namespaces.
    DnsLabel,
    /// Services.
    Dns1035Label,
    /// RBAC kinds: anything that can be one segment of a URL.
    PathSegment,
}

impl NameRule {
    pub fn problems(self, name: &str) -> Vec<String> {
        match self {
            NameRule::DnsSubdomain => dns_subdomain_problems(name),
            NameRule::DnsLabel => dns_label_problems(name),
            NameRule::Dns1035Label => dns_1035_label_problems(name),
            NameRule::PathSegment => path_segment_problems(name),
        }
    }

    /// Judges a `generateName`: it will be continued, so it may end in a dash.
    pub fn prefix_problems(self, prefix: &str) -> Vec<String> {
        match self {
            NameRule::PathSegment => path_segment_problems(prefix),
            NameRule::DnsSubdomain | NameRule::DnsLabel | NameRule::Dns1035Label => {
                match prefix.strip_suffix('-') {
                    // The dash and the character before it become one harmless letter: the
                    // original's way, kept because it decides which prefixes pass.
                    Some(rest) if !rest.is_empty() => {
                        let mut masked: String = rest.to_owned();
                        masked.pop();
                        masked.push('a');
                        self.problems(&masked)
                    }
                    _ => self.problems(prefix),
                }
            }
        }
    }
}

/// The name that `generateName: base` and five characters of chance make.
pub fn generated_name(base: &str, suffix: &str) -> String {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &base[..end])
}

/// A short mark that stands for a text, where its whole would make a name too long: always the same, and hardly ever that
/// of another.
pub fn short_mark(text: &str, length: usize) -> String {
    let mark: String = Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    mark.chars().take(length).collect()
}

/// A lowercase RFC 1123 label: `my-name`.
pub fn dns_label_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        problems.push(too_long(DNS_LABEL_MAX));
    }
    if !is_dns_label(value) {
        if is_dns_subdomain(value) {
            problems.push("must not contain dots".to_owned());
        } else {
            problems.push(mismatch(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                &["my-name", "123-abc"],
                DNS_LABEL_RE,
            ));
        }
    }
    problems
}

/// A lowercase RFC 1123 subdomain: `example.com`.
pub fn dns_subdomain_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        problems.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if !is_dns_subdomain(value) {
        problems.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
             '.', and must start and end with an alphanumeric character",
            &["example.com"],
            DNS_SUBDOMAIN_RE,
        ));
    }
    problems
}

/// A DNS-1035 label: as an RFC 1123 label, but it begins with a letter.
pub fn dns_1035_label_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        problems.push(too_long(DNS_LABEL_MAX));
    }
    if !is_dns_label(value) || !value.starts_with(|first: char| first.is_ascii_lowercase()) {
        problems.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character",
            &["my-name", "abc-123"],
            DNS_1035_LABEL_RE,
        ));
    }
    problems
}

/// Anything that can stand between two slashes of a URL.
pub fn path_segment_problems(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|banned| value.contains(banned))
        .map(|banned| format!("may not contain '{banned}'"))
        .collect()
}

/// `[prefix.example.com/]Name`: label keys, annotation keys, finalizers.
pub fn qualified_name_problems(value: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                        with an alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut problems = Vec::new();
    let mut parts = value.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                mismatch(RULE, EXAMPLES, QUALIFIED_NAME_RE)
            )];
        }
    };
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            problems
                .extend(dns_subdomain_problems(prefix).into_iter().map(|why| format!("prefix part {why}")));
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > QUALIFIED_NAME_PART_MAX {
        problems.push(format!("name part {}", too_long(QUALIFIED_NAME_PART_MAX)));
    }
    if !is_qualified_name_part(name) {
        problems.push(format!("name part {}", mismatch(RULE, EXAMPLES, QUALIFIED_NAME_RE)));
    }
    problems
}

pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_VALUE_MAX {
        problems.push(too_long(LABEL_VALUE_MAX));
    }
    if !value.is_empty() && !is_qualified_name_part(value) {
        problems.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
             '.', and must start and end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            LABEL_VALUE_RE,
        ));
    }
    problems
}

/// As a label key, but capitals are allowed in the prefix too.
pub fn annotation_key_problems(key: &str) -> Vec<String> {
    qualified_name_problems(&key.to_lowercase())
}

/// Whether keys and values together fit; the complaint is `Too long: may not be more than
/// 262144 bytes`, which is the field error's own wording.
pub fn annotations_fit<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    annotations.into_iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
        <= ANNOTATIONS_MAX_BYTES
}

/// A finalizer in metadata: a qualified name.
pub fn finalizer_problems(name: &str) -> Vec<String> {
    qualified_name_problems(name)
}

/// The one rule about finalizers together.
pub fn finalizers_conflict<'a>(finalizers: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (mut orphan, mut foreground) = (false, false);
    for name in finalizers {
        orphan |= name == "orphan";
        foreground |= name == "foregroundDeletion";
    }
    (orphan && foreground).then(|| "finalizer orphan and foregroundDeletion cannot be both set".to_owned())
}

/// A key in the data of a ConfigMap or a Secret: it may become a file's name.
pub fn config_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > DNS_SUBDOMAIN_MAX {
        problems.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if key.is_empty() || !key.bytes().all(is_name_byte) {
        problems.push(mismatch(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            &["key.name", "KEY_NAME", "key-name"],
            CONFIG_KEY_RE,
        ));
    }
    if key == "." {
        problems.push("must not be '.'".to_owned());
    } else if key == ".." {
        problems.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".to_owned());
    }
    problems
}

fn is_dns_label(value: &str) -> bool {
    let bytes = value.as_bytes();
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|byte| edge(byte) || *byte == b'-')
}

fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

fn is_qualified_name_part(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().copied().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn mismatch(rule: &str, examples: &[&str], regex: &str) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn a_bad_subdomain_is_refused_in_the_words_of_the_original() {
        assert_eq!(
            dns_subdomain_problems("Bad_Name"),
            vec![
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                 '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                 for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
    }

    #[test]
    fn a_label_with_dots_is_told_about_the_dots() {
        assert_eq!(dns_label_problems("a.b"), vec!["must not contain dots"]);
        assert_eq!(
            dns_label_problems("-"),
            vec![
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                 must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex \
                 used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
    }

    #[test]
    fn lengths_are_limited_to_the_byte() {
        assert!(dns_label_problems(&"a".repeat(63)).is_empty());
        assert_eq!(dns_label_problems(&"a".repeat(64)), vec!["must be no more than 63 characters"]);
        assert!(dns_subdomain_problems(&"a".repeat(253)).is_empty());
        assert_eq!(dns_subdomain_problems(&"a".repeat(254)), vec!["must be no more than 253 characters"]);
        assert_eq!(label_value_problems(&"a".repeat(64)), vec!["must be no more than 63 characters"]);
    }

    #[test]
    fn a_service_name_begins_with_a_letter() {
        assert!(dns_1035_label_problems("web-1").is_empty());
        assert_eq!(dns_1035_label_problems("1-web").len(), 1);
    }

    #[test]
    fn an_rbac_name_may_hold_colons_but_no_slash() {
        assert!(path_segment_problems("system:aggregate-to-view").is_empty());
        assert_eq!(path_segment_problems("a/b%c"), vec!["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment_problems(".."), vec!["may not be '..'"]);
    }

    #[test]
    fn a_qualified_name_has_at_most_one_slash() {
        assert!(qualified_name_problems("example.com/MyName").is_empty());
        assert_eq!(qualified_name_problems("/x"), vec!["prefix part must be non-empty"]);
        assert!(qualified_name_problems("a/b/c")[0].starts_with("a qualified name must consist of"));
        assert!(qualified_name_problems("a/b/c")[0].ends_with("(e.g. 'example.com/MyName')"));
        let empty = qualified_name_problems("");
        assert_eq!(empty[0], "name part must be non-empty");
        assert!(empty[1].starts_with("name part must consist of alphanumeric characters"));
        assert!(annotation_key_problems("Example.COM/Name").is_empty());
        assert!(!qualified_name_problems("Example.COM/Name").is_empty());
    }

    #[test]
    fn annotations_stop_at_256_kib_together() {
        let value = "v".repeat(ANNOTATIONS_MAX_BYTES - 1);
        assert!(annotations_fit([("k", value.as_str())]));
        assert!(!annotations_fit([("kk", value.as_str())]));
    }

    #[test]
    fn orphan_and_foreground_exclude_each_other() {
        assert!(finalizers_conflict(["orphan", "example.com/x"]).is_none());
        assert_eq!(
            finalizers_conflict(["foregroundDeletion", "orphan"]).as_deref(),
            Some("finalizer orphan and foregroundDeletion cannot be both set")
        );
    }

    #[test]
    fn a_generated_name_never_outgrows_a_label() {
        assert_eq!(generated_name("job-", "x7z2b"), "job-x7z2b");
        assert_eq!(generated_name(&"a".repeat(100), "x7z2b").len(), 63);
        assert_eq!(generated_name(&"é".repeat(40), "x7z2b").len(), 63);
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(NameRule::DnsSubdomain.prefix_problems("web-").is_empty());
        assert!(NameRule::DnsLabel.prefix_problems("web-").is_empty());
        assert!(!NameRule::DnsLabel.problems("web-").is_empty());
        assert!(!NameRule::DnsLabel.prefix_problems("-").is_empty());
    }

    #[test]
    fn a_config_key_cannot_climb_out_of_its_directory() {
        assert!(config_key_problems(".hidden").is_empty());
        assert_eq!(config_key_problems("."), vec!["must not be '.'"]);
        assert_eq!(config_key_problems("..x"), vec!["must not start with '..'"]);
        assert_eq!(config_key_problems("a/b").len(), 1);
    }

    fn whole(regex: &str) -> Regex {
        Regex::new(&format!(r"\A(?:{regex})\z")).unwrap()
    }

    proptest! {
        #[test]
        fn the_scans_agree_with_the_expressions_they_quote(text in "[a-zA-Z0-9._-]{0,6}|\\PC{0,4}") {
            prop_assert_eq!(is_dns_label(&text), whole(DNS_LABEL_RE).is_match(&text));
            prop_assert_eq!(is_dns_subdomain(&text), whole(DNS_SUBDOMAIN_RE).is_match(&text));
            prop_assert_eq!(is_qualified_name_part(&text), whole(QUALIFIED_NAME_RE).is_match(&text));
            prop_assert_eq!(label_value_problems(&text).is_empty(), whole(LABEL_VALUE_RE).is_match(&text));
            prop_assert_eq!(dns_1035_label_problems(&text).is_empty(), whole(DNS_1035_LABEL_RE).is_match(&text));
        }

        #[test]
        fn no_text_makes_a_check_panic(text in "\\PC{0,300}") {
            for rule in [NameRule::DnsSubdomain, NameRule::DnsLabel, NameRule::Dns1035Label, NameRule::PathSegment] {
                rule.problems(&text);
                rule.prefix_problems(&text);
            }
            qualified_name_problems(&text);
            config_key_problems(&text);
            generated_name(&text, "abcde");
        }
    }
}
