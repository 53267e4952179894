//! What the query of a request says about how it is to be done.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    object_meta::{LONGEST_MANAGER, is_printable, manager_problems},
};

use crate::{
    request::{Query, Verb},
    status::ApiError,
};

/// Which state a read shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Everything acknowledged before the request.
    Latest,
    /// Whatever is at hand.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

/// What to do with fields the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    /// Applying takes what others own.
    pub force: bool,
}

impl WriteOptions {
    pub fn parse(query: &Query, verb: Verb) -> Result<Self, ApiError> {
        let kind = match verb {
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => "CreateOptions",
        };
        if verb == Verb::Patch && query.all("force").next().is_some() {
            let path = FieldPath::new("force");
            let error = FieldError::forbidden(&path, "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]));
        }
        Self::read(query, kind)
    }

    /// Of an apply, which must say who applies.
    pub fn parse_apply(query: &Query) -> Result<Self, ApiError> {
        if query.get("fieldManager").is_none() {
            let error = FieldError::required(&FieldPath::new("fieldManager"), "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        Ok(WriteOptions { force: query.flag("force"), ..Self::read(query, "PatchOptions")? })
    }

    fn read(query: &Query, kind: &str) -> Result<Self, ApiError> {
        let dry_run = dry_run(query.all("dryRun"), kind)?;
        let field_validation = match query.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let error = FieldError::not_supported(
                    &FieldPath::new("fieldValidation"),
                    other,
                    ["Ignore", "Strict", "Warn"],
                );
                return Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]));
            }
        };
        let errors =
            manager_problems(query.get("fieldManager").unwrap_or_default(), &FieldPath::new("fieldManager"));
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", kind, "", &errors));
        }
        Ok(WriteOptions { dry_run, field_validation, force: false })
    }
}

/// Who writes, by the name of the program that sent the request: `kubectl` of `kubectl/v1.34.1 (linux/amd64)`.
pub fn manager_of_agent(agent: &str) -> String {
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printable(*c)) {
        if name.len() + letter.len_utf8() > LONGEST_MANAGER {
            break;
        }
        name.push(letter);
    }
    name
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, kind: &str) -> Result<bool, ApiError> {
    let mut dry = false;
    for value in values {
        match value {
            "All" => dry = true,
            "" => {}
            other => {
                let error = FieldError::not_supported(&FieldPath::new("dryRun"), other, ["All"]);
                return Err(ApiError::invalid("meta.k8s.io", kind, "", &[error]));
            }
        }
    }
    Ok(dry)
}

/// `resourceVersion` of a get.
pub fn get_freshness(query: &Query) -> Result<Freshness, ApiError> {
    match query.get("resourceVersion") {
        None => Ok(Freshness::Latest),
        Some("0") => Ok(Freshness::Any),
        Some(text) => parse_version(text).map(Freshness::NotOlderThan),
    }
}

/// `resourceVersion`, `resourceVersionMatch`, `limit` and `continue` of a list.
pub fn list_freshness(query: &Query) -> Result<Freshness, ApiError> {
    let version = query.get("resourceVersion");
    let matching = query.get("resourceVersionMatch");
    if let Some(matching) = matching {
        let path = FieldPath::new("resourceVersionMatch");
        let forbidden = |why: &str| {
            Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[FieldError::forbidden(&path, why)]))
        };
        if version.is_none() {
            return forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if query.get("continue").is_some() {
            return forbidden("resourceVersionMatch is forbidden when continue is provided");
        }
        match (matching, version) {
            ("Exact", Some("0")) => {
                return forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            ("Exact" | "NotOlderThan", _) => {}
            (other, _) => {
                let error = FieldError::not_supported(&path, other, ["Exact", "NotOlderThan", ""]);
                return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
            }
        }
    }
    if query.get("sendInitialEvents").is_some() {
        let path = FieldPath::new("sendInitialEvents");
        let error = FieldError::forbidden(&path, "sendInitialEvents is forbidden for list");
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
    }
    match (version, matching) {
        (None, _) => Ok(Freshness::Latest),
        (Some("0"), _) => Ok(Freshness::Any),
        (Some(text), Some("Exact")) => parse_version(text).map(Freshness::Exactly),
        (Some(text), Some(_)) => parse_version(text).map(Freshness::NotOlderThan),
        // Clients of the first hour page with a version and no match: they mean exactly that one.
        (Some(text), None) if query.get("limit").is_some_and(|limit| limit != "0") => {
            parse_version(text).map(Freshness::Exactly)
        }
        (Some(text), None) => parse_version(text).map(Freshness::NotOlderThan),
    }
}

pub fn parse_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!("invalid resource version: {text:?} is not a whole number"))
    })
}

/// `limit`: 0 is none.
pub fn limit(query: &Query) -> Result<usize, ApiError> {
    match query.get("limit") {
        None => Ok(0),
        Some(text) => text
            .parse::<i64>()
            .map(|limit| usize::try_from(limit).unwrap_or(0))
            .map_err(|_| ApiError::bad_request(format!("limit: {text:?} is not a whole number"))),
    }
}

/// Longer than that nothing lasts, and later than that no clock counts.
const LONGEST_TIMEOUT_SECS: u64 = 365 * 86_400;

pub fn timeout_seconds(query: &Query) -> Result<Option<u64>, ApiError> {
    match query.get("timeoutSeconds") {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(|seconds| {
                u64::try_from(seconds).ok().filter(|s| *s > 0).map(|s| s.min(LONGEST_TIMEOUT_SECS))
            })
            .map_err(|_| ApiError::bad_request(format!("timeoutSeconds: {text:?} is not a whole number"))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// How a delete is to be done: from its body, or its query where there is no body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
    pub grace_seconds: Option<i64>,
}

impl DeleteOptions {
    pub fn parse(query: &Query, body: Option<&Value>) -> Result<Self, ApiError> {
        let mut options =
            DeleteOptions { dry_run: dry_run(query.all("dryRun"), "DeleteOptions")?, ..Default::default() };
        let invalid = |path: &str, value: &str, why: &str| {
            let error = FieldError::invalid(&FieldPath::new(path), value, why);
            ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error])
        };
        let null = Value::Null;
        let body = body.unwrap_or(&null);
        match &body["kind"] {
            Value::Null => {}
            Value::String(kind) if kind == "DeleteOptions" || kind.is_empty() => {}
            _ => return Err(ApiError::bad_request("decoded object cannot be converted to DeleteOptions")),
        }
        if let Some(values) = body["dryRun"].as_array() {
            options.dry_run |= dry_run(values.iter().map(|v| v.as_str().unwrap_or("?")), "DeleteOptions")?;
        }
        let text = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_string);
        options.uid = text(&body["preconditions"]["uid"]);
        options.resource_version = text(&body["preconditions"]["resourceVersion"]);
        options.grace_seconds = match (&body["gracePeriodSeconds"], query.get("gracePeriodSeconds")) {
            (Value::Null, None) => None,
            (Value::Null, Some(given)) => Some(
                given
                    .parse()
                    .map_err(|_| ApiError::bad_request("gracePeriodSeconds is not a whole number"))?,
            ),
            (given, _) => Some(
                given
                    .as_i64()
                    .ok_or_else(|| ApiError::bad_request("gracePeriodSeconds is not a whole number"))?,
            ),
        };
        if options.grace_seconds.is_some_and(|seconds| seconds < 0) {
            // The original takes a negative grace period for the shortest one.
            options.grace_seconds = Some(1);
        }
        let orphan =
            body["orphanDependents"].as_bool().or(query.get("orphanDependents").map(|v| v == "true"));
        let policy = text(&body["propagationPolicy"]).or(query.get("propagationPolicy").map(str::to_string));
        options.propagation = match (policy.as_deref(), orphan) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "propagationPolicy",
                    policy.as_deref().unwrap_or_default(),
                    "orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (None, None) => None,
            (Some(other), _) => {
                let error = FieldError::not_supported(
                    &FieldPath::new("propagationPolicy"),
                    other,
                    ["Foreground", "Background", "Orphan", "nil"],
                );
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
            }
        };
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(Some(text))
    }

    #[test]
    fn no_timeout_is_so_long_that_its_end_cannot_be_told() {
        let longest = timeout_seconds(&query("timeoutSeconds=9223372036854775807")).unwrap().unwrap();
        assert!(tokio::time::Instant::now().checked_add(std::time::Duration::from_secs(longest)).is_some());
        assert_eq!(longest, LONGEST_TIMEOUT_SECS);
        assert_eq!(timeout_seconds(&query("timeoutSeconds=30")).unwrap(), Some(30));
        assert_eq!(timeout_seconds(&query("timeoutSeconds=-1")).unwrap(), None);
    }

    #[test]
    fn a_version_means_what_the_original_says_it_means() {
        let read = |text: &str| list_freshness(&query(text)).map_err(|e| e.reason());
        assert_eq!(read(""), Ok(Freshness::Latest));
        assert_eq!(read("resourceVersion=0"), Ok(Freshness::Any));
        assert_eq!(read("resourceVersion=7"), Ok(Freshness::NotOlderThan(7)));
        assert_eq!(read("resourceVersion=7&limit=5"), Ok(Freshness::Exactly(7)));
        assert_eq!(read("resourceVersion=7&resourceVersionMatch=Exact"), Ok(Freshness::Exactly(7)));
        assert_eq!(
            read("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5"),
            Ok(Freshness::NotOlderThan(7))
        );
        assert_eq!(read("resourceVersionMatch=Exact"), Err("Invalid"));
        assert_eq!(read("resourceVersion=0&resourceVersionMatch=Exact"), Err("Invalid"));
        assert_eq!(read("resourceVersion=7&resourceVersionMatch=Perhaps"), Err("Invalid"));
        assert_eq!(read("resourceVersion=x"), Err("BadRequest"));
    }

    #[test]
    fn deletes_say_what_happens_to_dependents_in_one_way_only() {
        let read = |body| {
            DeleteOptions::parse(&query(""), Some(&body)).map(|o| o.propagation).map_err(|e| e.reason())
        };
        assert_eq!(read(json!({})), Ok(None));
        assert_eq!(read(json!({"orphanDependents": true})), Ok(Some(Propagation::Orphan)));
        assert_eq!(
            read(
                json!({"propagationPolicy": "Foreground", "apiVersion": "kubevirt.io/v1", "kind": "DeleteOptions"})
            ),
            Ok(Some(Propagation::Foreground))
        );
        assert_eq!(
            read(json!({"propagationPolicy": "Foreground", "orphanDependents": true})),
            Err("Invalid")
        );
        assert_eq!(read(json!({"propagationPolicy": "Sideways"})), Err("Invalid"));
        assert_eq!(read(json!({"kind": "Secret"})), Err("BadRequest"));
    }

    #[test]
    fn only_all_is_a_dry_run() {
        let read = |text: &str| WriteOptions::parse(&query(text), Verb::Update);
        assert!(read("dryRun=All").unwrap().dry_run);
        assert!(!read("").unwrap().dry_run);
        assert!(read("dryRun=Some").is_err());
        assert!(read("fieldValidation=Sometimes").is_err());
    }

    #[test]
    fn who_applies_must_say_who_it_is_and_nobody_else_may_force() {
        let why = WriteOptions::parse_apply(&query("force=true")).unwrap_err();
        assert_eq!(
            why.message(),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
        assert!(WriteOptions::parse_apply(&query("fieldManager=me&force=true")).unwrap().force);
        assert!(!WriteOptions::parse_apply(&query("fieldManager=me&force=false")).unwrap().force);
        let why = WriteOptions::parse(&query("force=false"), Verb::Patch).unwrap_err();
        assert_eq!(
            why.message(),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
        let why = WriteOptions::parse(&query("fieldManager=a%09b"), Verb::Update).unwrap_err();
        assert!(why.message().ends_with("invalid character U+0009 (at position 1)"), "{}", why.message());
        let long = format!("fieldManager={}", "x".repeat(129));
        assert!(WriteOptions::parse(&query(&long), Verb::Update).is_err());
    }

    #[test]
    fn a_program_is_known_by_the_first_part_of_its_agent() {
        assert_eq!(manager_of_agent("kubectl/v1.34.1 (linux/amd64)"), "kubectl");
        assert_eq!(manager_of_agent("a\u{7}b c"), "ab c");
        assert_eq!(manager_of_agent(&"é".repeat(100)).len(), 128);
        assert_eq!(manager_of_agent(""), "");
    }
}
