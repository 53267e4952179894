//! Names as people type them, checked before anybody is asked.

const LONGEST: usize = 63;
const LONGEST_SEGMENT: usize = 253;

/// Of machines, images, volumes and namespaces: they become parts of host names.
pub fn object(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let problem = match text {
        "" => "it is empty",
        text if text.len() > LONGEST => "it is too long",
        text if !text.chars().all(|c| plain(c) || c == '-') => "there are other characters in it than fit",
        text if !text.starts_with(plain) || !text.ends_with(plain) => "it begins or ends with `-`",
        text => return Ok(text.to_owned()),
    };
    Err(format!(
        "{problem}; what fits: at most 63 lower-case letters, digits and `-`, such as `demo` or `web-1`"
    ))
}

/// Of anything: what becomes a part of an address, and nothing more.
pub fn segment(text: &str) -> Result<String, String> {
    let fits = (1..=LONGEST_SEGMENT).contains(&text.len())
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:@+".contains(&b));
    match fits {
        true => Ok(text.to_owned()),
        false => {
            Err("it cannot be part of an address; what fits: letters, digits and . - _ : @ +".to_owned())
        }
    }
}

/// A name, or one in another namespace: `NAME` or `NAMESPACE/NAME`.
pub fn reference(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) => {
            object(namespace)?;
            segment(name)?;
        }
        None => {
            segment(text)?;
        }
    }
    Ok(text.to_owned())
}

/// The two halves of a [`reference`], in `namespace` unless it says another.
pub fn split<'a>(reference: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    reference.split_once('/').unwrap_or((namespace, reference))
}

/// As a part of a query.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused_with_what_fits() {
        for name in ["", "Demo", "a.b", "-a", "a-", "a/b", &"a".repeat(64)] {
            assert!(object(name).unwrap_err().contains("what fits"), "{name}");
        }
        assert_eq!(object("web-1").unwrap(), "web-1");
    }

    #[test]
    fn a_part_of_a_query_says_what_was_typed() {
        assert_eq!(encoded("app=web,tier!=db"), "app%3Dweb%2Ctier%21%3Ddb");
        assert_eq!(encoded("a-b_c.d~"), "a-b_c.d~");
    }

    #[test]
    fn nothing_typed_leads_out_of_its_part_of_an_address() {
        for odd in ["a/b", "..", "", "a b", "a?b", "a%2fb", "a#b", &"a".repeat(254)] {
            segment(odd).unwrap_err();
        }
        assert_eq!(segment("system:node@x").unwrap(), "system:node@x");
        for odd in ["/a", "a/", "a/b/c", "A/b", "a/.."] {
            reference(odd).unwrap_err();
        }
        assert_eq!(split("team/web", "default"), ("team", "web"));
        assert_eq!(split("web", "default"), ("default", "web"));
    }
}
