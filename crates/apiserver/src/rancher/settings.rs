//! The settings of a dashboard: `/v1/management.cattle.io.settings`, and `/v3/settings` for older clients.
//!
//! `cacerts` is among them as Rancher has it, and is what the node's certificates say: nobody stored it.
//!
//! Who has not signed in, or must choose a password first, sees what the page to sign in on is made of and nothing else.
//! Everybody else reads and writes them as roles say.

use http::Method;
use serde_json::{Value, json};
use sheaf_resources::kinds::management_setting::{
    ALL, FIRST_LOGIN, GROUP, PLURAL, SERVER_URL, effective, known,
};

use super::{Asked, Tongue, shapes};
use crate::{
    ApiServer,
    cache::{Resource, place},
    identity::{ANONYMOUS, objects::text},
    negotiate::Format,
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
    steve::errand::{Errand, JSON},
};

const KIND: &str = "management.cattle.io.setting";
const STEVE_PLURAL: &str = "management.cattle.io.settings";
const NAMED: Named<'static> = Named { group: GROUP, resource: PLURAL };
/// The certificate authority that clients of this server trust.
const CA_CERTS: &str = "cacerts";
const OBJECTS: (&str, &str, &str) = (GROUP, "v3", PLURAL);

impl ApiServer {
    pub(super) async fn answer_settings(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        match (&asked.parts.method, name) {
            (&Method::GET | &Method::HEAD, "") => {
                let data =
                    self.readable_settings(asked).await?.into_iter().map(|s| self.shown(asked, s)).collect();
                let page = match asked.place.tongue {
                    Tongue::Norman => shapes::collection(asked, "setting", "/v3/settings", data, &[]),
                    Tongue::Steve => shapes::steve_collection(asked, KIND, STEVE_PLURAL, data),
                };
                Ok(respond::value(success::OK, Format::Json, &page))
            }
            (&Method::GET | &Method::HEAD, name) => {
                let setting = match is_limited(asked) {
                    _ if name == CA_CERTS => {
                        let _seat = self.seat_of(asked).await?;
                        Some(self.authority())
                    }
                    // What is not shown to them is not there.
                    true => {
                        let _seat = self.seat_of(asked).await?;
                        self.public_settings().into_iter().find(|s| text(s, "/metadata/name") == name)
                    }
                    false => Some(asked.errands.ask(&Errand::new(Verb::Get, OBJECTS, "", name)).await?),
                };
                match setting {
                    Some(setting) => {
                        Ok(respond::value(success::OK, Format::Json, &self.shown(asked, setting)))
                    }
                    None if asked.user.name == ANONYMOUS => Err(ApiError::unauthorized()),
                    None => Err(ApiError::not_found(NAMED, name)),
                }
            }
            (&Method::PUT, CA_CERTS) => {
                Err(ApiError::refused(NAMED, CA_CERTS, "it is settled by the server"))
            }
            (&Method::PUT, name) if !name.is_empty() => self.write_setting(asked, name).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    async fn readable_settings(&self, asked: &Asked<'_>) -> Result<Vec<Value>, ApiError> {
        self.reach(Freshness::Latest).await?;
        if is_limited(asked) {
            let _seat = self.seat_of(asked).await?;
            return Ok(self.public_settings());
        }
        let list = asked.errands.ask(&Errand::new(Verb::List, OBJECTS, "", "")).await?;
        let mut settings = list["items"].as_array().cloned().unwrap_or_default();
        settings.push(self.authority());
        settings.sort_by(|one, other| text(one, "/metadata/name").cmp(text(other, "/metadata/name")));
        Ok(settings)
    }

    fn public_settings(&self) -> Vec<Value> {
        let public = ALL.iter().filter(|known| known.public);
        let public = public.filter_map(|known| self.management_setting(known.name));
        [self.authority()].into_iter().chain(public).collect()
    }

    fn authority(&self) -> Value {
        json!({"metadata": {"name": CA_CERTS}, "default": "", "value": self.config.ca_pem})
    }

    fn management_setting(&self, name: &str) -> Option<Value> {
        let object = self.cache.get(&Resource::new(GROUP, PLURAL), &place("", name))?;
        Some(object.to_value())
    }

    /// `value` is taken; the rest of a setting is the server's.
    async fn write_setting(&self, asked: &Asked<'_>, name: &str) -> Result<ApiResponse, ApiError> {
        let mut setting = asked.errands.ask(&Errand::new(Verb::Get, OBJECTS, "", name)).await?;
        let Some(value) = asked.body["value"].as_str() else {
            return Err(ApiError::unprocessable("value must be a text"));
        };
        setting["value"] = value.into();
        if let Some(version) = asked.body["metadata"]["resourceVersion"].as_str() {
            // Who says which version they mean is told when it is no longer that one.
            setting["metadata"]["resourceVersion"] = version.into();
        }
        let update = Errand::new(Verb::Update, OBJECTS, "", name).with(JSON, setting);
        let written = asked.errands.ask(&update).await?;
        Ok(respond::value(success::OK, Format::Json, &self.shown(asked, written)))
    }

    fn shown(&self, asked: &Asked<'_>, mut setting: Value) -> Value {
        let name = text(&setting, "/metadata/name").to_owned();
        let is_public = name == CA_CERTS || known(&name).is_some_and(|known| known.public);
        let is_custom = !text(&setting, "/value").is_empty();
        let may_update =
            name != CA_CERTS && !is_limited(asked) && self.may(asked.user, "update", GROUP, PLURAL, &name);
        let links: &[&str] = match may_update {
            true => &["self", "update"],
            false => &["self"],
        };
        match asked.place.tongue {
            Tongue::Norman => {
                let fields = json!({
                    "name": name, "value": effective(&setting), "default": setting["default"],
                    "customized": is_custom, "source": if is_custom { "db" } else { "default" },
                });
                shapes::resource(
                    asked,
                    "setting",
                    &format!("/v3/settings/{name}"),
                    &setting,
                    fields,
                    links,
                    &[],
                )
            }
            Tongue::Steve => {
                setting["apiVersion"] = "management.cattle.io/v3".into();
                setting["kind"] = "Setting".into();
                setting["customized"] = is_custom.into();
                if is_public && is_limited(asked) {
                    // Who wrote it and when is nothing for strangers.
                    setting["metadata"] = json!({"name": name});
                }
                shapes::steve_resource(asked, KIND, STEVE_PLURAL, setting, links, &[])
            }
        }
    }

    /// Somebody has chosen a password. That it is not written down does no harm but to ask once more.
    pub async fn first_login_is_over(&self) {
        let Some(mut setting) = self.management_setting(FIRST_LOGIN) else { return };
        if effective(&setting) == "false" {
            return;
        }
        setting["value"] = "false".into();
        if let Err(why) = self.write_as_server(Verb::Update, GROUP, PLURAL, "", setting).await {
            tracing::warn!(%why, "it could not be written down that the first password was changed");
        }
    }

    /// Where people reach this cluster.
    pub(super) fn server_url(&self) -> String {
        let setting = self.management_setting(SERVER_URL).unwrap_or_default();
        match effective(&setting) {
            "" => format!("https://{}", self.config.address),
            url => url.trim_end_matches('/').to_owned(),
        }
    }
}

/// Whether only what the page to sign in on shows is theirs to see.
fn is_limited(asked: &Asked<'_>) -> bool {
    asked.user.name == ANONYMOUS || asked.user.must_change_password()
}
