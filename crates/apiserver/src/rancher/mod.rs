//! What Rancher has beside the Kubernetes API, and Harvester's clients ask for: signing in, users, tokens, settings of
//! the dashboard, kubeconfigs.
//!
//! ```text
//!   /v3-public/localProviders/local?action=login   a name and a password for a token or a session  (login)
//!   /v3/users, /v3/tokens, /v3/principals          people and what they hold                       (users, tokens)
//!   /v3/clusters/local, /v1/management.cattle.io.clusters/local          this cluster              (clusters)
//!   /v3/settings, /v1/management.cattle.io.settings                      what the dashboard reads  (settings)
//!   /v1/userpreferences                                                  what it remembers         (preferences)
//!   /v1/harvester/kubeconfig                                 for the clients of a guest cluster    (guest_kubeconfig)
//! ```
//!
//! There is no second set of rights behind it. Who asks for something here is let through as far as roles let them do
//! it by hand: what they ask for becomes requests of theirs ([`Errands`]), with the same authorization, admission, seats and
//! audit. Beside that, everybody may see and end what is their own, and nobody else's. Answers and errors have the shapes
//! of Rancher's API ([`shapes`]).
//!
//! Deliberately absent: providers other than local users, projects, global roles.

mod clusters;
mod guest_kubeconfig;
mod login;
mod preferences;
mod principals;
mod settings;
mod shapes;
mod tokens;
mod users;

use std::{fmt, net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{Method, request::Parts};
use serde_json::{Map, Value};
use sheaf_resources::rbac::Attributes;

pub(crate) use self::{
    login::{is_login, is_public},
    preferences::NAMESPACE as PREFERENCES_NAMESPACE,
    shapes::{answers, error},
};
use crate::{
    ApiServer,
    audit::Trail,
    authorization::must_change_password,
    dispatch::{Peer, no_such_page},
    fairness::queues::Seat,
    identity::{ANONYMOUS, User, origin},
    request::{Query, percent_decode},
    respond::ApiResponse,
    status::ApiError,
    steve::errand::Errands,
};

/// Whatever is sent here is small: names, passwords, what a dashboard remembers.
const MOST_BYTES: usize = 256 * 1024;

/// Which of the two APIs somebody speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tongue {
    /// `/v3`
    Norman,
    /// `/v1`
    Steve,
}

/// What a path stands for. The name is empty for all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    what: What,
    tongue: Tongue,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Users,
    Tokens,
    Principals,
    Clusters,
    Settings,
    Preferences,
    GuestKubeconfig,
}

/// What is asked for at this path, if it is one of these.
pub(crate) fn place(path: &str) -> Option<Place> {
    let segments: Vec<&str> = path.trim_end_matches('/').split('/').skip(1).collect();
    let (what, tongue, name) = match segments.as_slice() {
        ["v3", "users" | "user", name @ ..] => (What::Users, Tongue::Norman, name),
        ["v3", "tokens" | "token", name @ ..] => (What::Tokens, Tongue::Norman, name),
        ["v3", "principals" | "principal", name @ ..] => (What::Principals, Tongue::Norman, name),
        ["v3", "clusters" | "cluster", name @ ..] => (What::Clusters, Tongue::Norman, name),
        ["v3", "settings" | "setting", name @ ..] => (What::Settings, Tongue::Norman, name),
        ["v1", "management.cattle.io.clusters" | "management.cattle.io.cluster", name @ ..] => {
            (What::Clusters, Tongue::Steve, name)
        }
        ["v1", "management.cattle.io.settings" | "management.cattle.io.setting", name @ ..] => {
            (What::Settings, Tongue::Steve, name)
        }
        ["v1", "userpreferences" | "userpreference", name @ ..] => (What::Preferences, Tongue::Steve, name),
        ["v1", "harvester", "kubeconfig"] => (What::GuestKubeconfig, Tongue::Steve, &[][..]),
        _ => return None,
    };
    let name = match name {
        [] => String::new(),
        [name] => percent_decode(name).filter(|name| !name.is_empty())?,
        _ => return None,
    };
    Some(Place { what, tongue, name })
}

/// Whether who has not said who they are is answered, too.
pub(crate) fn is_for_everybody(method: &Method, path: &str) -> bool {
    let is_reading = matches!(*method, Method::GET | Method::HEAD);
    is_reading && place(path).is_some_and(|place| place.what == What::Settings)
}

/// One request of somebody who is known.
struct Asked<'a> {
    parts: &'a Parts,
    query: &'a Query,
    place: &'a Place,
    user: &'a Arc<User>,
    address: Option<IpAddr>,
    in_process: bool,
    /// What follows from it, as they would do it.
    errands: &'a Errands,
    body: &'a Value,
}

impl Asked<'_> {
    fn action(&self) -> Option<&str> {
        self.query.get("action")
    }

    fn is_reading(&self) -> bool {
        matches!(self.parts.method, Method::GET | Method::HEAD)
    }

    /// Where a page of this server is, as whoever asks reaches it.
    fn link(&self, path: &str) -> String {
        link(self.parts, path)
    }

    fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }
}

fn link(parts: &Parts, path: &str) -> String {
    match origin::host_for_links(parts) {
        Some(host) => format!("https://{host}{path}"),
        None => path.to_owned(),
    }
}

impl ApiServer {
    #[allow(clippy::too_many_arguments, reason = "it is one request, taken apart by the dispatcher")]
    pub(crate) async fn answer_rancher<B>(
        &self,
        parts: &Parts,
        body: B,
        query: &Query,
        place: &Place,
        user: &Arc<User>,
        peer: &Peer,
        trail: &Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let is_reading = matches!(parts.method, Method::GET | Method::HEAD);
        if user.name == ANONYMOUS && !(is_reading && place.what == What::Settings) {
            // Before anything of theirs is read.
            return Err(ApiError::unauthorized());
        }
        if user.must_change_password() && !is_open_before_a_change(parts, query, place) {
            return Err(must_change_password(user));
        }
        let taken = match is_reading || parts.method == Method::DELETE {
            true => None,
            false => Some(self.intake.take(&user.name, body).await?),
        };
        let body = read(taken.as_ref().map(|taken| &taken.body))?;
        let address = peer.address.map(|address| address.ip());
        let (in_process, errands) = (trail.in_process, &Errands::new(self, user, trail.behind()));
        let asked = Asked { parts, query, place, user, address, in_process, errands, body: &body };
        // Whoever sends an errand has a seat for that, and holds none meanwhile.
        let _seat = match is_reading && place.what.is_read_at_once() {
            true => self.seat_for_path(user, in_process, parts.uri.path()).await?,
            false => None,
        };
        match place.what {
            What::Users => self.answer_users(&asked).await,
            What::Tokens => self.answer_tokens(&asked).await,
            What::Principals => self.answer_principals(&asked),
            What::Clusters => self.answer_clusters(&asked).await,
            What::Settings => self.answer_settings(&asked).await,
            What::Preferences => self.answer_preferences(&asked).await,
            What::GuestKubeconfig => self.answer_guest_kubeconfig(&asked).await,
        }
    }
}

impl What {
    /// Whether it is answered from memory when it is read, by no further request.
    fn is_read_at_once(self) -> bool {
        match self {
            What::Tokens | What::Principals | What::Clusters | What::Preferences => true,
            // Each as it is: one's own, or what everybody sees, is there; the rest is asked for.
            What::Users | What::Settings | What::GuestKubeconfig => false,
        }
    }
}

impl ApiServer {
    /// Whether roles let somebody do it. That a password must be changed first counts here, too.
    fn may(&self, user: &User, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let asked = Attributes { verb, group, resource, name, ..Attributes::default() };
        self.authorizer.authorize(user, &asked).is_allowed()
    }

    /// The seat of a request that sends no errand.
    async fn seat_of(&self, asked: &Asked<'_>) -> Result<Option<Seat>, ApiError> {
        self.seat_for_path(asked.user, asked.in_process, asked.parts.uri.path()).await
    }
}

/// What somebody needs to get as far as choosing a new password, or to leave.
fn is_open_before_a_change(parts: &Parts, query: &Query, place: &Place) -> bool {
    let action = query.get("action");
    match (place.what, &parts.method, action) {
        (What::Users, &Method::POST, Some("changepassword")) => place.name.is_empty(),
        (What::Users, &Method::GET, None) => place.name.is_empty() && query.flag("me"),
        (What::Tokens, &Method::POST, Some("logout" | "logoutAll")) => place.name.is_empty(),
        (What::Principals | What::Settings, &Method::GET, None) => true,
        _ => false,
    }
}

/// Clients send JSON and do not always say so.
fn read(body: Option<&Bytes>) -> Result<Value, ApiError> {
    let Some(body) = body.filter(|body| !body.iter().all(u8::is_ascii_whitespace)) else {
        return Ok(Value::Object(Map::new()));
    };
    if body.len() > MOST_BYTES {
        return Err(ApiError::body_too_large(MOST_BYTES));
    }
    match crate::body::json(body)?.value {
        object @ Value::Object(_) => Ok(object),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => Err(ApiError::bad_request("the body must be a JSON object")),
    }
}

fn not_here() -> ApiResponse {
    no_such_page()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str) -> Option<(What, Tongue, String)> {
        place(path).map(|place| (place.what, place.tongue, place.name))
    }

    #[test]
    fn paths_stand_for_what_clients_mean_by_them() {
        let some = |what, tongue, name: &str| Some((what, tongue, name.to_owned()));
        assert_eq!(named("/v3/users"), some(What::Users, Tongue::Norman, ""));
        assert_eq!(named("/v3/users/user-abcde"), some(What::Users, Tongue::Norman, "user-abcde"));
        assert_eq!(named("/v3/token"), some(What::Tokens, Tongue::Norman, ""));
        assert_eq!(
            named("/v3/principals/local%3A%2F%2Fadmin"),
            some(What::Principals, Tongue::Norman, "local://admin")
        );
        assert_eq!(
            named("/v1/management.cattle.io.setting/server-url"),
            some(What::Settings, Tongue::Steve, "server-url")
        );
        assert_eq!(named("/v1/harvester/kubeconfig"), some(What::GuestKubeconfig, Tongue::Steve, ""));
        for other in [
            "/v3",
            "/v3/",
            "/v3/projects",
            "/v3/users/a/b",
            "/v1/harvester/nodes",
            "/v3/users/%ff",
            "/v1/pods",
            "/v1/harvester/kubeconfig/x",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn a_body_is_an_object_or_nothing_and_not_large() {
        let read = |text: &str| super::read(Some(&Bytes::from(text.to_owned())));
        assert_eq!(read(" \n"), Ok(serde_json::json!({})));
        assert_eq!(read("null"), Ok(serde_json::json!({})));
        assert!(read("[1]").is_err() && read("{").is_err() && read("\"a\"").is_err());
        let large = format!("{{\"a\": \"{}\"}}", "x".repeat(MOST_BYTES));
        assert!(read(&large).unwrap_err().is_too_large());
    }
}
