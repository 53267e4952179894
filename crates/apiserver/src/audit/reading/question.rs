//! What is asked of the log, and which lines answer it.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;
use sheaf_world::{Clock, Timestamp};

use super::place::Place;
use crate::{request::Query, status::ApiError};

const LIMIT: usize = 100;
const MOST: usize = 500;
/// Alternatives in one filter.
const MOST_WORDS: usize = 32;
/// As lines write the time: such texts are in the order of what they say.
const TIME: &str = "%Y-%m-%dT%H:%M:%S.%6fZ";
/// Lines are written in about the order of their times. By this much one may be older than the one before it.
const DISORDER: Duration = Duration::from_secs(60);

const KNOWN: [&str; 14] = [
    "limit",
    "continue",
    "watch",
    "resourceVersion",
    "timeoutSeconds",
    "id",
    "user",
    "verb",
    "resource",
    "namespace",
    "name",
    "code",
    "since",
    "pretty",
];

#[derive(Clone, Debug, Default)]
pub struct Question {
    pub limit: usize,
    /// Where the lines end that are asked for.
    pub before: Option<Place>,
    pub watch: bool,
    /// After which a watch begins; now if it is not said.
    pub after: Option<Place>,
    wanted: Wanted,
}

/// Each of them empty for any.
#[derive(Clone, Debug, Default)]
struct Wanted {
    ids: Vec<String>,
    users: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    names: Vec<String>,
    codes: Vec<Code>,
    since: String,
    /// Nothing is looked for before this.
    beginning: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    One(u16),
    /// `4xx`
    Hundred(u16),
}

/// What a line answers to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Wanted,
    Not,
    /// Nor does any line before it.
    TooOld,
}

impl Question {
    pub fn read(query: &Query, clock: &Clock) -> Result<Self, ApiError> {
        if let Some(unknown) = query.names().find(|name| !KNOWN.contains(name)) {
            let known = KNOWN.join(", ");
            return Err(ApiError::bad_request(format!(
                "{unknown:?} is nothing the audit log can be asked with; what there is: {known}"
            )));
        }
        let limit = match query.get("limit") {
            None => LIMIT,
            Some(text) => match text.parse::<usize>() {
                Ok(limit) if (1..=MOST).contains(&limit) => limit,
                _ => return Err(wrong("limit", text, &format!("a number from 1 to {MOST}"))),
            },
        };
        let place = |key: &str| match query.get(key) {
            None => Ok(None),
            Some(text) => Place::parse(text)
                .map(Some)
                .ok_or_else(|| wrong(key, text, "what an earlier answer of the audit log gave")),
        };
        let (before, after, watch) = (place("continue")?, place("resourceVersion")?, query.flag("watch"));
        if watch && before.is_some() {
            return Err(ApiError::bad_request(
                "continue goes back in the log and watch goes on; ask for one of them",
            ));
        }
        if !watch && after.is_some() {
            return Err(ApiError::bad_request(
                "resourceVersion says where a watch begins; ask with watch=true",
            ));
        }
        Ok(Question { limit, before, watch, after, wanted: Wanted::read(query, clock)? })
    }

    /// Whether a line answers it. What is no line of ours answers nothing.
    pub fn judge(&self, line: &[u8]) -> Verdict {
        let Ok(seen) = serde_json::from_slice::<Seen<'_>>(line) else { return Verdict::Not };
        let wanted = &self.wanted;
        if *seen.time < *wanted.beginning {
            return Verdict::TooOld;
        }
        let object = seen.object.unwrap_or_default();
        let users = [Some(&seen.user), seen.impersonated.as_ref()];
        let is_wanted = *seen.time >= *wanted.since
            && fits_either(
                &wanted.users,
                |name| seen.user.name == name,
                |name| users.into_iter().flatten().any(|user| user.name == name),
            )
            && fits(&wanted.ids, |id| seen.id == id)
            && fits(&wanted.verbs, |verb| seen.verb == verb)
            && fits(&wanted.resources, |resource| object.is(resource))
            && fits(&wanted.namespaces, |namespace| object.namespace == namespace)
            && fits(&wanted.names, |name| object.name == name)
            && (wanted.codes.is_empty()
                || seen.status.is_some_and(|status| wanted.codes.iter().any(|code| code.is(status.code))));
        if is_wanted { Verdict::Wanted } else { Verdict::Not }
    }
}

impl Wanted {
    fn read(query: &Query, clock: &Clock) -> Result<Self, ApiError> {
        let words = |key: &str| -> Result<Vec<String>, ApiError> {
            let words: Vec<String> =
                query.get(key).into_iter().flat_map(|text| text.split(',')).map(str::to_owned).collect();
            match words.len() > MOST_WORDS || words.iter().any(String::is_empty) {
                true => {
                    let fits = format!("one word, or up to {MOST_WORDS} with commas between");
                    Err(wrong(key, query.get(key).unwrap_or_default(), &fits))
                }
                false => Ok(words),
            }
        };
        let codes = words("code")?.iter().map(|text| Code::read(text)).collect::<Result<_, _>>()?;
        let since = query.get("since").map(|text| since(text, clock)).transpose()?;
        let beginning = since.map(|time| time.checked_sub(DISORDER).unwrap_or(time));
        let written =
            |time: Option<Timestamp>| time.map(|time| time.strftime(TIME).to_string()).unwrap_or_default();
        Ok(Wanted {
            ids: words("id")?,
            users: words("user")?,
            verbs: words("verb")?,
            resources: words("resource")?,
            namespaces: words("namespace")?,
            names: words("name")?,
            codes,
            since: written(since),
            beginning: written(beginning),
        })
    }
}

impl Code {
    fn read(text: &str) -> Result<Self, ApiError> {
        let code = match text.strip_suffix("xx") {
            Some(hundred) => hundred.parse().ok().filter(|n| (1..=5).contains(n)).map(Code::Hundred),
            None => text.parse().ok().filter(|n| (100..=599).contains(n)).map(Code::One),
        };
        code.ok_or_else(|| wrong("code", text, "a code such as 403, or 4xx for all that begin with a 4"))
    }

    fn is(self, code: u16) -> bool {
        match self {
            Code::One(wanted) => code == wanted,
            Code::Hundred(wanted) => code / 100 == wanted,
        }
    }
}

/// A time, or how long ago: `90s`, `15m`, `2h`, `7d`.
fn since(text: &str, clock: &Clock) -> Result<Timestamp, ApiError> {
    let fits = "a time such as 2030-01-01T00:00:00Z, or how long ago: 90s, 15m, 2h, 7d";
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let unit_secs = match text.as_bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3600,
        Some(b'd') => 24 * 3600,
        _ => return Err(wrong("since", text, fits)),
    };
    let ago = text[..text.len() - 1].parse::<u32>().map_err(|_| wrong("since", text, fits))?;
    let ago = Duration::from_secs(u64::from(ago) * unit_secs);
    clock.now().checked_sub(ago).map_err(|_| wrong("since", text, fits))
}

/// One of the words, if there are any, and none of those with a `!` before it.
fn fits(wanted: &[String], is: impl Fn(&str) -> bool) -> bool {
    fits_either(wanted, &is, &is)
}

/// The same where less is left out than is found: who acts as somebody else is found under both names, and does not get out of
/// sight by the other's.
fn fits_either(
    wanted: &[String],
    is_left_out: impl Fn(&str) -> bool,
    is_found_by: impl Fn(&str) -> bool,
) -> bool {
    let (mut is_asked, mut is_found) = (false, false);
    for word in wanted {
        match word.strip_prefix('!') {
            Some(unwanted) if is_left_out(unwanted) => return false,
            Some(_) => {}
            None => {
                is_asked = true;
                is_found |= is_found_by(word);
            }
        }
    }
    is_found || !is_asked
}

fn wrong(key: &str, text: &str, fits: &str) -> ApiError {
    let text: String = text.chars().take(100).collect();
    ApiError::bad_request(format!("{key}={text:?} is not {fits}"))
}

/// What of a line can be asked for; the rest is passed over.
#[derive(Deserialize)]
struct Seen<'a> {
    #[serde(borrow, default, rename = "auditID")]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    verb: Cow<'a, str>,
    #[serde(borrow, default)]
    user: User<'a>,
    #[serde(borrow, default, rename = "impersonatedUser")]
    impersonated: Option<User<'a>>,
    #[serde(borrow, default, rename = "objectRef")]
    object: Option<Object<'a>>,
    #[serde(default, rename = "responseStatus")]
    status: Option<Status>,
    #[serde(borrow, rename = "stageTimestamp")]
    time: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
struct User<'a> {
    #[serde(borrow, default, rename = "username")]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    resource: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

impl Object<'_> {
    /// `virtualmachines/start` is one part of a resource alone.
    fn is(&self, wanted: &str) -> bool {
        self.resource == wanted || wanted.split_once('/') == Some((&*self.resource, &*self.subresource))
    }
}

#[derive(Clone, Copy, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}
