//! Acting as somebody else: the `Impersonate-*` headers.
//!
//! Each part of the wanted identity (the user or service account, every group, every extra value, the uid) needs
//! the verb `impersonate` on it. The headers are taken out of the request whatever comes of it, so that nothing
//! behind the door can mistake them.

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use sheaf_resources::rbac::Attributes;

use super::{
    ANONYMOUS, AUTHENTICATED, Refusal, UNAUTHENTICATED, User,
    user::{service_account_groups, split_service_account},
};
use crate::authorization::{Authorizer, Decision, forbidden};

const AUTHENTICATION: &str = "authentication.k8s.io";
const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Who the request is to be treated as: `user`, when it asks for nobody else.
pub fn impersonate(
    authorizer: &Authorizer,
    user: Arc<User>,
    headers: &mut HeaderMap,
) -> Result<Arc<User>, Refusal> {
    let wish = wish(headers);
    strip(headers);
    let Some(wish) = wish? else { return Ok(user) };
    for asked in wish.to_authorize() {
        if let Decision::Deny { reason } = authorizer.authorize(&user, &asked) {
            return Err(forbidden(&user, &asked, &reason));
        }
    }
    Ok(Arc::new(wish.into_user()))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

fn wish(headers: &HeaderMap) -> Result<Option<Wish>, Refusal> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            extra.entry(unescaped(key)).or_default().push(readable(value)?);
        }
    }
    let groups: Vec<String> = headers.get_all(GROUP).iter().map(readable).collect::<Result<_, _>>()?;
    let (user, uid) = (single(headers, &USER)?, single(headers, &UID)?);
    if user.is_empty() {
        if groups.is_empty() && extra.is_empty() && uid.is_empty() {
            return Ok(None);
        }
        let asked: Vec<&str> =
            [("groups", !groups.is_empty()), ("userextras", !extra.is_empty()), ("uids", !uid.is_empty())]
                .into_iter()
                .filter_map(|(what, asked)| asked.then_some(what))
                .collect();
        let message = format!("requested {asked:?} without impersonating a user");
        return Err(Refusal::BadRequest { message });
    }
    Ok(Some(Wish { user, uid, groups, extra }))
}

impl Wish {
    fn to_authorize(&self) -> Vec<Attributes<'_>> {
        let asked = Attributes { verb: "impersonate", ..Attributes::default() };
        let who = match split_service_account(&self.user) {
            Some((namespace, name)) => Attributes { resource: "serviceaccounts", namespace, name, ..asked },
            None => Attributes { resource: "users", name: &self.user, ..asked },
        };
        let groups = self.groups.iter().map(|name| Attributes { resource: "groups", name, ..asked });
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(move |name| Attributes {
                group: AUTHENTICATION,
                resource: "userextras",
                subresource: key,
                name,
                ..asked
            })
        });
        let uid = Some(self.uid.as_str()).filter(|uid| !uid.is_empty()).map(|name| Attributes {
            group: AUTHENTICATION,
            resource: "uids",
            name,
            ..asked
        });
        std::iter::once(who).chain(groups).chain(extra).chain(uid).collect()
    }

    fn into_user(self) -> User {
        let mut groups = self.groups;
        // A service account's groups follow from its name; stated ones replace them, as stated ones always do.
        if groups.is_empty()
            && let Some((namespace, _)) = split_service_account(&self.user)
        {
            groups = service_account_groups(namespace);
        }
        let states = |group: &str| groups.iter().any(|stated| stated == group);
        if self.user == ANONYMOUS {
            if !states(UNAUTHENTICATED) {
                groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !states(AUTHENTICATED) && !states(UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        User { name: self.user, uid: self.uid, groups, extra: self.extra }
    }
}

fn strip(headers: &mut HeaderMap) {
    let ours =
        |name: &HeaderName| [USER, GROUP, UID].contains(name) || name.as_str().starts_with(EXTRA_PREFIX);
    let names: Vec<HeaderName> = headers.keys().filter(|name| ours(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Two values of what can only be one would leave it to chance which counts.
fn single(headers: &HeaderMap, name: &HeaderName) -> Result<String, Refusal> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(readable).transpose()?.unwrap_or_default();
    if values.next().is_some() {
        return Err(Refusal::BadRequest { message: format!("header {name} is given more than once") });
    }
    Ok(value)
}

fn readable(value: &HeaderValue) -> Result<String, Refusal> {
    std::str::from_utf8(value.as_bytes())
        .map(str::to_owned)
        .map_err(|_| Refusal::BadRequest { message: "an impersonation header is not UTF-8".to_owned() })
}

/// Keys may be percent-encoded, since a header's name cannot hold every letter; one that is encoded badly is
/// taken as it stands.
fn unescaped(key: &str) -> String {
    let mut decoded = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            decoded.push(first);
            rest = after;
            continue;
        }
        let byte = after
            .split_at_checked(2)
            .filter(|(digits, _)| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|(digits, after)| {
                Some((u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?, after))
            });
        let Some((byte, after)) = byte else { return key.to_owned() };
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8(decoded).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
#[path = "impersonation_tests.rs"]
mod tests;
