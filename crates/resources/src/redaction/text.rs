//! Texts without the secrets in them: messages, lines of logs, command lines, addresses.
//!
//! Nobody can tell a password that stands alone from a word. What is found is what says of itself that it is one: a value
//! behind a name (`password=`, or `name: PASSWORD, value: `), what stands behind a scheme of authorization or before the `@` of an address, tokens and
//! keys by their form.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

use super::REDACTED;

/// What names of secrets end in.
const SECRET_NAME: &str = r"(?:passw(?:or)?d|passphrase|secret|token|credentials?|authorization|(?:api|access|secret|private)[_.-]?key)";
/// A value, in quotes or up to where it ends without.
const VALUE: &str = r#"\\?"(?:[^"\\]|\\.)*\\?"|'[^']*'|[^\s,;&}\]]+"#;

struct Forms {
    keys: Regex,
    schemes: Regex,
    named: Regex,
    pairs: Regex,
    pairs_backwards: Regex,
    web_tokens: Regex,
    api_tokens: Regex,
    addresses: Regex,
    queries: Regex,
}

static FORMS: LazyLock<Forms> = LazyLock::new(|| {
    let form = |pattern: &str| Regex::new(pattern).expect("a pattern of our own can be read");
    // `name: ..._PASSWORD`, and a value beside it, as JSON, YAML or Go write them, escaped or not.
    let key = |word: &str| format!(r#"\b{word}\\?["']?\s*[=:]\s*"#);
    let name = format!(r#"{}\\?["']?[\w.-]*{SECRET_NAME}(?:data|hash)?\\?["']?"#, key("(?:name|key)"));
    let between = r"(?:\s*[,;]\s*|\s+)\\?[\x22']?";
    Forms {
        // Also one that was cut off.
        keys: form(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)"),
        schemes: form(r"(?i)\b(bearer|basic)\s+[^\s,;'\x22]+"),
        named: form(&format!(r#"(?i)([\w.-]*{SECRET_NAME}(?:data|hash)?)(\\?["']?\s*[=:]\s*)({VALUE})"#)),
        pairs: form(&format!(r"(?i)({name}{between}{})({VALUE})", key("value"))),
        pairs_backwards: form(&format!(r"(?i)({})({VALUE})({between}{name})", key("value"))),
        web_tokens: form(r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)?"),
        api_tokens: form(r"[A-Za-z0-9-]+:[a-z0-9]{40,}"),
        // Up to the last `@` before the path: it is the host that has none in it, and not the password.
        addresses: form(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#'\x22]*@"),
        queries: form(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s?#'\x22]*)[?#][^\s'\x22]*"),
    }
});

/// The text, with every secret in it that says it is one replaced.
pub fn scrubbed(text: &str) -> Cow<'_, str> {
    let forms = &*FORMS;
    let hidden = || REDACTED.to_owned();
    let replaced = |text: Cow<'_, str>, form: &Regex, by: String| match form.replace_all(&text, by) {
        // Nothing was found, so it is what it was.
        Cow::Borrowed(_) => None,
        Cow::Owned(new) => Some(new),
    };
    let mut text = Cow::Borrowed(text);
    for (form, by) in [
        (&forms.keys, hidden()),
        (&forms.schemes, format!("${{1}} {REDACTED}")),
        (&forms.addresses, "${1}".to_owned()),
        (&forms.queries, "${1}".to_owned()),
        (&forms.pairs, format!("${{1}}{REDACTED}")),
        (&forms.pairs_backwards, format!("${{1}}{REDACTED}${{3}}")),
        (&forms.named, format!("${{1}}${{2}}{REDACTED}")),
        (&forms.web_tokens, hidden()),
        (&forms.api_tokens, hidden()),
    ] {
        if let Some(new) = replaced(Cow::Borrowed(&text), form, by) {
            text = Cow::Owned(new);
        }
    }
    text
}

/// An address without who may enter and with what.
pub fn shown_url(url: &str) -> String {
    let (before, rest) = url.split_once("://").unwrap_or(("", url));
    let path_at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host_at = rest[..path_at].rfind('@').map_or(0, |at| at + 1);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let scheme = if before.is_empty() { String::new() } else { format!("{before}://") };
    format!("{scheme}{}", &rest[host_at..end.max(host_at)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_shows_neither_user_nor_query() {
        assert_eq!(shown_url("https://jo:hunter2@host:1/a.img?sig=x#y"), "https://host:1/a.img");
        assert_eq!(shown_url("https://host/a@b"), "https://host/a@b");
        assert_eq!(shown_url("host?x"), "host");
        assert_eq!(shown_url(""), "");
    }

    #[test]
    fn what_says_that_it_is_a_secret_is_not_said() {
        for text in [
            "login failed: password=hunter2 for jo",
            "MYSQL_ROOT_PASSWORD: hunter2",
            r#"{"passwordHash":"hunter2","a":1}"#,
            r#"said {\"token\": \"hunter2 with words\"} to it"#,
            "Authorization: Bearer hunter2",
            "authorization: Basic hunter2==",
            "cannot fetch https://jo:hunter2@host/a.img",
            "cannot fetch https://jo:p@hunter2@host/a.img",
            "cannot fetch https://jo:hunter2@p@host/a.img",
            r#"env [{"name":"MYSQL_PASSWORD","value":"hunter2"}]"#,
            r#"env [{\"name\":\"MYSQL_PASSWORD\",\"value\":\"hunter2\"}]"#,
            "env {name: PASSWORD, value: hunter2}",
            "env:\n  - name: API_TOKEN\n    value: hunter2\n",
            "env {value: hunter2, name: PASSWORD}",
            "cannot fetch https://host/a.img?X-Amz-Signature=hunter2&x=1",
            "-object secret,id=a,api_key=hunter2",
            "x\n-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n-----END OPENSSH PRIVATE KEY-----\ny",
            "x\n-----BEGIN RSA PRIVATE KEY-----\nhunter2",
            "aws_secret_access_key = 'hunter2'",
        ] {
            let shown = scrubbed(text);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains(REDACTED) || shown.contains("host/a.img"), "{shown}");
        }
        for token in [
            "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJzIn0.c2ln",
            "token-x:bcdfghjklmnpqrstvwxz2456789bcdfghjklmnpqrstvwxz245",
        ] {
            assert!(!scrubbed(&format!("got {token} from it")).contains(token));
        }
    }

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for text in [
            "the node n1 is ready",
            "secretName kept, nothing behind it",
            "GET /api/v1/namespaces?limit=500 took 3 ms",
            "{name: TZ, value: UTC}",
            "see https://example.com/a@b for more",
            "failed to fetch https://example.com/debian.qcow2: 404",
            "",
        ] {
            assert_eq!(scrubbed(text), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}") {
            let _ = (scrubbed(&text), shown_url(&text));
        }

        #[test]
        fn a_named_value_is_never_said(
            before in "[a-z ]{0,10}",
            name in prop::sample::select(vec!["password", "passwd", "token", "clientSecret", "API_KEY", "credentials"]),
            between in prop::sample::select(vec!["=", ": ", ":", "\": \"", " = "]),
            value in "[A-Z0-9]{12,40}",
            after in "[ ,;\"}]{1}[a-z ]{0,10}",
        ) {
            let text = format!("{before}{name}{between}{value}{after}");
            let shown = scrubbed(&text);
            prop_assert!(!shown.contains(&value), "{} became {}", text, shown);
        }
    }
}
