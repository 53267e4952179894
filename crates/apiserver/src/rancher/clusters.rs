//! This cluster, the only one there is: `local`. And a kubeconfig of it for whoever asks.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};

use super::{Asked, Tongue, not_here, shapes};
use crate::{
    ApiServer, KUBERNETES_VERSION,
    cache::{Resource, place},
    identity::{api_tokens::Purpose, objects::text},
    negotiate::Format,
    request::CLUSTER_PREFIX,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
};

const LOCAL: &str = "local";
const KIND: &str = "management.cattle.io.cluster";
const STEVE_PLURAL: &str = "management.cattle.io.clusters";
const NAMED: Named<'static> = Named { group: "management.cattle.io", resource: "clusters" };
const ACTIONS: &[&str] = &["generateKubeconfig"];
/// How long the tokens in kubeconfigs last; 0 is for ever.
const TOKEN_TTL: &str = "kubeconfig-default-token-ttl-minutes";

impl ApiServer {
    pub(super) async fn answer_clusters(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let name = asked.place.name.as_str();
        match (&asked.parts.method, name, asked.action()) {
            (_, name, _) if !name.is_empty() && name != LOCAL => Err(ApiError::not_found(NAMED, name)),
            (&Method::POST, LOCAL, Some("generateKubeconfig")) => self.generate_kubeconfig(asked).await,
            (&Method::POST, _, Some(_)) => Ok(not_here()),
            (&Method::GET | &Method::HEAD, "", None) => {
                let data = vec![self.shown_cluster(asked)];
                let page = match asked.place.tongue {
                    Tongue::Norman => shapes::collection(asked, "cluster", "/v3/clusters", data, &[]),
                    Tongue::Steve => shapes::steve_collection(asked, KIND, STEVE_PLURAL, data),
                };
                Ok(respond::value(success::OK, Format::Json, &page))
            }
            (&Method::GET | &Method::HEAD, LOCAL, None) => {
                Ok(respond::value(success::OK, Format::Json, &self.shown_cluster(asked)))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn shown_cluster(&self, asked: &Asked<'_>) -> Value {
        // The cluster began when its first namespace did.
        let first = self.cache.get(&Resource::new("", "namespaces"), &place("", "kube-system"));
        let first = first.map(|first| first.to_value()).unwrap_or_default();
        let metadata = json!({
            "name": LOCAL, "uid": first["metadata"]["uid"],
            "creationTimestamp": first["metadata"]["creationTimestamp"],
        });
        let version = json!({"gitVersion": KUBERNETES_VERSION});
        match asked.place.tongue {
            Tongue::Norman => {
                let fields = json!({
                    "name": LOCAL, "state": "active", "internal": true, "provider": "harvester", "version": version,
                    "transitioning": "no", "transitioningMessage": "",
                });
                let object = json!({"metadata": metadata});
                shapes::resource(asked, "cluster", "/v3/clusters/local", &object, fields, &["self"], ACTIONS)
            }
            Tongue::Steve => {
                let object = json!({
                    "apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": metadata,
                    "spec": {"displayName": LOCAL, "internal": true},
                    "status": {
                        "provider": "harvester", "version": version,
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                });
                shapes::steve_resource(asked, KIND, STEVE_PLURAL, object, &["self", "view"], ACTIONS)
            }
        }
    }

    /// A kubeconfig with a token of whoever asks. It may do what they may, and ends when they choose a new password.
    async fn generate_kubeconfig(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        self.reach(Freshness::Latest).await?;
        let ttl_millis = self.kubeconfig_token_millis();
        let (_, bearer) =
            self.mint_own(asked, ttl_millis, "Kubeconfig token".into(), Purpose::Kubeconfig).await?;
        let server = format!("{}{CLUSTER_PREFIX}", self.server_url());
        let config = kubeconfig(LOCAL, &server, &self.config.ca_pem, &bearer, "")?;
        let answer = json!({"type": "generateKubeconfigOutput", "baseType": "generateKubeconfigOutput", "config": config});
        Ok(respond::value(success::OK, Format::Json, &answer))
    }

    fn kubeconfig_token_millis(&self) -> i64 {
        let setting = self.cache.get(&Resource::new("harvesterhci.io", "settings"), &place("", TOKEN_TTL));
        let minutes = setting.map(|setting| minutes(&setting.to_value())).unwrap_or_default();
        minutes.saturating_mul(60 * 1000)
    }
}

/// What cannot be read is as if it were not set.
fn minutes(setting: &Value) -> i64 {
    let read = |field: &str| text(setting, field).parse::<i64>().ok().filter(|minutes| *minutes >= 0);
    read("/value").or_else(|| read("/default")).unwrap_or_default()
}

/// A kubeconfig in which everything has one name.
pub(super) fn kubeconfig(
    name: &str,
    server: &str,
    ca_pem: &str,
    token: &str,
    namespace: &str,
) -> Result<String, ApiError> {
    let mut config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": server, "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        "preferences": {},
    });
    if !namespace.is_empty() {
        config["contexts"][0]["context"]["namespace"] = namespace.into();
    }
    serde_yaml_ng::to_string(&config).map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_what_is_set_or_else_the_default_or_else_none() {
        for (value, default, expected) in
            [("", "0", 0), ("30", "0", 30), ("", "90", 90), ("soon", "90", 90), ("-1", "5", 5), ("", "", 0)]
        {
            assert_eq!(minutes(&json!({"value": value, "default": default})), expected, "{value} {default}");
        }
        assert_eq!(minutes(&json!({})), 0);
    }
}
