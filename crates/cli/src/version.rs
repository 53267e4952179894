//! Which Sheaf this is.

use serde::Serialize;

use crate::PRODUCT;

/// What `version` prints. The field names are a promise to scripts.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub version: &'static str,
    /// What git called the source this was built from, where there was a git to ask.
    pub commit: Option<&'static str>,
    /// The version of Kubernetes whose API is served.
    pub kubernetes: &'static str,
}

impl Version {
    pub fn as_text(&self) -> String {
        let commit = self.commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
        format!("{PRODUCT} {}{commit}, serving Kubernetes {}", self.version, self.kubernetes)
    }

    pub fn as_json(&self) -> String {
        let mut tree = serde_json::json!(self);
        tree["product"] = PRODUCT.into();
        format!("{tree:#}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_git_still_has_a_version() {
        let version = Version { version: "1.2.3", commit: None, kubernetes: "v1.34.1" };
        assert_eq!(version.as_text(), "Sheaf 1.2.3, serving Kubernetes v1.34.1");
        let json: serde_json::Value = serde_json::from_str(&version.as_json()).unwrap();
        let wanted = serde_json::json!({
            "product": "Sheaf", "version": "1.2.3", "commit": null, "kubernetes": "v1.34.1"
        });
        assert_eq!(json, wanted);
    }
}
