//! The file that lets `kubectl` in: who to trust, where to go, who to be.

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use crate::login::authority::Fingerprint;

/// The name of the context, and of the cluster it points at.
const NAME: &str = "sheaf";

/// What goes into a kubeconfig; certificates and key as PEM.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    pub server: &'a str,
    pub authority: &'a str,
    pub user: &'a str,
    pub certificate: &'a str,
    pub key: &'a str,
}

/// Why a kubeconfig could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("cannot write the kubeconfig as YAML")]
    Encode(#[source] serde_yaml_ng::Error),
    #[error("the kubeconfig is not YAML")]
    Decode(#[source] serde_yaml_ng::Error),
    #[error("the kubeconfig names no cluster whose server could be changed")]
    NoCluster,
    #[error("there is no certificate authority in the kubeconfig")]
    NoAuthority,
}

/// A kubeconfig with everything embedded, so that it can be copied to another machine.
pub fn render(contents: Contents<'_>) -> Result<String, KubeconfigError> {
    let Contents { server, authority, user, certificate, key } = contents;
    encode(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": NAME,
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(authority) },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            },
        }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": user } }],
        "current-context": NAME,
        "preferences": {},
    }))
}

/// The same kubeconfig, for clients that reach the API at `server`.
pub fn with_server(kubeconfig: &str, server: &str) -> Result<String, KubeconfigError> {
    let mut tree: Value = serde_yaml_ng::from_str(kubeconfig).map_err(KubeconfigError::Decode)?;
    let field = tree.pointer_mut("/clusters/0/cluster/server").ok_or(KubeconfigError::NoCluster)?;
    *field = server.into();
    encode(&tree)
}

/// The fingerprint of the authority that the kubeconfig trusts.
pub fn fingerprint(kubeconfig: &str) -> Result<Fingerprint, KubeconfigError> {
    let tree: Value = serde_yaml_ng::from_str(kubeconfig).map_err(KubeconfigError::Decode)?;
    let data = tree.pointer("/clusters/0/cluster/certificate-authority-data").and_then(Value::as_str);
    let pem = data.and_then(|data| STANDARD.decode(data).ok()).ok_or(KubeconfigError::NoAuthority)?;
    let der = CertificateDer::from_pem_slice(&pem).map_err(|_| KubeconfigError::NoAuthority)?;
    Ok(Fingerprint::of(&der))
}

/// What is wrong with `url` as the address of an API, if anything is.
pub(crate) fn server_problem(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Some("it does not begin with https://");
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return Some("it names no host");
    }
    url.contains(|c: char| c.is_whitespace() || c.is_control()).then_some("it has spaces in it")
}

fn encode(tree: &Value) -> Result<String, KubeconfigError> {
    serde_yaml_ng::to_string(tree).map_err(KubeconfigError::Encode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> String {
        render(Contents {
            server: "https://10.0.0.5:6443",
            authority: "CA",
            user: "admin",
            certificate: "CERT",
            key: "KEY",
        })
        .unwrap()
    }

    #[test]
    fn the_current_context_leads_to_the_server_and_the_user() {
        let tree: Value = serde_yaml_ng::from_str(&example()).unwrap();
        assert_eq!(tree["current-context"], "sheaf");
        assert_eq!(tree["contexts"][0]["context"], json!({ "cluster": "sheaf", "user": "admin" }));
        assert_eq!(tree["clusters"][0]["cluster"]["certificate-authority-data"], "Q0E=");
        assert_eq!(tree["users"][0]["user"]["client-key-data"], "S0VZ");
    }

    #[test]
    fn another_server_changes_the_server_and_nothing_else() {
        let (old, new) = ("https://10.0.0.5:6443", "https://cluster.example");
        assert_eq!(with_server(&example(), new).unwrap(), example().replace(old, new));
        with_server("{}", new).unwrap_err();
        with_server("a: [", new).unwrap_err();
    }

    #[test]
    fn a_server_is_an_https_url_with_a_host() {
        for good in ["https://10.0.0.5:6443", "https://[::1]:6443", "https://a.example/k8s/clusters/local"] {
            assert_eq!(server_problem(good), None, "{good}");
        }
        for bad in ["", "10.0.0.5:6443", "http://a", "https://", "https://:6443", "https:///x", "https://a b"]
        {
            assert!(server_problem(bad).is_some(), "{bad}");
        }
    }
}
