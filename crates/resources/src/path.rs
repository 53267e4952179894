//! Paths of the API: the one place in which names become parts of one.
//!
//! A name may come from a spec or an annotation that a tenant wrote. Pasted into a path as it is, `x?watch=true` is no longer
//! a name: the request reads something else, or never ends. Here every part is encoded, and what cannot be one segment of a
//! path is an error.
//!
//! Deliberately absent: whether a name suits its kind. That is for [`crate::names`].

use crate::names::path_segment_problems;

/// A text that cannot be one segment of a path, so that no object can have it as its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} cannot be the name of an object: it must not be empty, too long, `.` or `..`, nor contain `/` or `%`"
)]
pub struct InvalidSegment {
    pub text: String,
}

/// A text as it stands in a path or a query.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}

/// The longest name that fits a path; a request with a longer one could not be sent.
const MAX_SEGMENT: usize = 4096;

/// A name as one segment of a path.
pub fn segment(name: &str) -> Result<String, InvalidSegment> {
    match name.is_empty() || name.len() > MAX_SEGMENT || !path_segment_problems(name).is_empty() {
        true => Err(InvalidSegment { text: name.to_owned() }),
        false => Ok(encoded(name)),
    }
}

/// Where the versions of a group have their resources: `/api/v1`, `/apis/kubevirt.io/v1`.
pub fn root(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

/// The objects of a resource in a namespace; an empty one stands for none, or all.
pub fn collection(
    group: &str,
    version: &str,
    plural: &str,
    namespace: &str,
) -> Result<String, InvalidSegment> {
    let root = root(group, version);
    match namespace {
        "" => Ok(format!("{root}/{plural}")),
        namespace => Ok(format!("{root}/namespaces/{}/{plural}", segment(namespace)?)),
    }
}

/// One object, or a subresource of it.
pub fn object(collection: &str, name: &str, subresource: Option<&str>) -> Result<String, InvalidSegment> {
    let name = segment(name)?;
    Ok(match subresource {
        None => format!("{collection}/{name}"),
        Some(subresource) => format!("{collection}/{name}/{subresource}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

    use super::*;

    #[test]
    fn an_object_is_below_its_collection() {
        let core = collection("", "v1", "configmaps", "default").unwrap();
        assert_eq!(object(&core, "a", None).unwrap(), "/api/v1/namespaces/default/configmaps/a");
        let named = collection("kubevirt.io", "v1", "virtualmachines", "").unwrap();
        assert_eq!(
            object(&named, "a", Some("status")).unwrap(),
            "/apis/kubevirt.io/v1/virtualmachines/a/status"
        );
    }

    #[test]
    fn a_name_never_becomes_more_than_one_segment() {
        for hostile in ["", ".", "..", "a/b", "../../secrets", "%2f", "a%3Fwatch=true"] {
            assert_eq!(segment(hostile), Err(InvalidSegment { text: hostile.to_owned() }));
            assert!(collection("", "v1", "pods", hostile).is_err() || hostile.is_empty());
        }
        assert!(segment(&"x".repeat(70_000)).is_err());
        assert_eq!(segment("x?watch=true&a=").unwrap(), "x%3Fwatch%3Dtrue%26a%3D");
        assert_eq!(segment("system:masters#1 ü").unwrap(), "system%3Amasters%231%20%C3%BC");
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_name_is_the_path_has_the_same_shape(name in ".{1,40}") {
            if let Ok(path) = object("/api/v1/pods", &name, None) {
                proptest::prop_assert_eq!(path.split('/').count(), 5);
                proptest::prop_assert!(!path.contains(['?', '#', ' ']) && path.is_ascii());
            }
        }
    }
}
