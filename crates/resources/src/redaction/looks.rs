//! What looks like a secret, wherever it stands. The second net: kinds are the first.

/// Names of fields that hold secrets, in lower case and without dashes, dots and underscores.
const NAMES: &[&str] = &[
    "accesskey",
    "accesskeyid",
    "accesstoken",
    "apikey",
    "authorization",
    "awssecretaccesskey",
    "bearertoken",
    "bindpassword",
    "clientkeydata",
    "clientsecret",
    "credential",
    "credentials",
    "dockerconfigjson",
    "idtoken",
    "kernelargs",
    "kubeconfig",
    "networkdata",
    "networkdatabase64",
    "passphrase",
    "passwd",
    "password",
    "passwordhash",
    "privatekey",
    "refreshtoken",
    "secretaccesskey",
    "secretkey",
    "sshprivatekey",
    "stringdata",
    "tlskey",
    "token",
    "userdata",
    "userdatabase64",
];

/// What secrets contain and little else does.
const MARKS: &[&str] = &["PRIVATE KEY-----", "client-key-data", "#cloud-config"];

/// What the name of such a field ends in, whatever it begins with: `rootPassword`, `MYSQL_ROOT_PASSWORD`.
const ENDINGS: &[&str] = &["apikey", "passphrase", "passwd", "password", "privatekey", "secret", "token"];

/// Whether a field of that name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let plain: String =
        name.chars().filter(|c| !matches!(c, '-' | '_' | '.')).map(|c| c.to_ascii_lowercase()).collect();
    NAMES.binary_search(&plain.as_str()).is_ok() || ENDINGS.iter().any(|ending| plain.ends_with(ending))
}

/// Whether a text is one: a key, a token, a kubeconfig, a seed for cloud-init.
pub fn is_secret_text(text: &str) -> bool {
    MARKS.iter().any(|mark| text.contains(mark)) || is_token(text.trim())
}

/// A JSON web token, or an API token (`name:secret`).
fn is_token(text: &str) -> bool {
    let text = text.strip_prefix("Bearer ").unwrap_or(text);
    let is_web = text.starts_with("eyJ") && text.matches('.').count() >= 2;
    let is_api = text.split_once(':').is_some_and(|(_, secret)| {
        secret.len() >= 40 && secret.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    });
    is_web || is_api
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_so_that_they_are_found() {
        assert!(NAMES.windows(2).all(|pair| pair[0] < pair[1]));
        for name in [
            "password",
            "userData",
            "user_data",
            "tls.key",
            "ssh-privatekey",
            ".dockerconfigjson",
            "MYSQL_ROOT_PASSWORD",
            "authToken",
            "clientSecret",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["secretName", "secretRef", "tokenExpiry", "name", ""] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn texts_are_known_by_what_they_contain() {
        for text in ["a\n-----BEGIN RSA PRIVATE KEY-----\n", "#cloud-config\n{}", "eyJhbGciOi.eyJpc3Mi.sig"] {
            assert!(is_secret_text(text), "{text}");
        }
        assert!(!is_secret_text("a plain note"));
    }
}
