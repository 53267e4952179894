//! This cluster, the only one there is: `local`. And a kubeconfig of it for whoever asks.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};
use sheaf_resources::kinds::setting::{KUBECONFIG_TOKEN_TTL, Setting, kubeconfig_token_ttl};

use super::{Asked, Tongue, not_here, shapes};
use crate::{
    ApiServer, KUBERNETES_VERSION,
    cache::{Resource, place},
    identity::api_tokens::Purpose,
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

    /// 0 is for ever.
    fn kubeconfig_token_millis(&self) -> i64 {
        let there = place("", KUBECONFIG_TOKEN_TTL);
        let setting = self.cache.get(&Resource::new("harvesterhci.io", "settings"), &there);
        let setting = setting.and_then(|setting| serde_json::from_value::<Setting>(setting.to_value()).ok());
        let lasts = setting.and_then(|setting| kubeconfig_token_ttl(setting.effective()));
        lasts.map_or(0, |lasts| i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX))
    }
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
