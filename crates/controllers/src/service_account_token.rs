//! Fills in Secrets of type `kubernetes.io/service-account-token`, and removes those whose account is gone.
//!
//! Such a Secret speaks for the account it names: it gets a token, the CA and the namespace, and it dies with
//! that very account, so that a later one of the same name does not inherit it. A token that is there is never
//! replaced, whatever else is put right.

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    api::{DynamicObject, ListParams, PropagationPolicy},
    core::ApiResource,
};
use serde_json::{Map, Value, json};
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_resources::kinds::secret::{SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN, SERVICE_ACCOUNT_UID};

use crate::{Context, service_account};

pub const NAME: &str = "service-account-token";
const TYPE_IS_TOKEN: &str = "type=kubernetes.io/service-account-token";

fn resource() -> ApiResource {
    built_in("", "v1", "Secret", "secrets")
}

pub(crate) async fn run(context: Context) {
    reconciling::run(Tokens { context: context.clone() }, context.client).await;
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// An account came, changed or went: its Secrets may be concerned.
    Account {
        namespace: String,
        name: String,
    },
    Secret {
        namespace: String,
        name: String,
    },
}

struct Tokens {
    context: Context,
}

impl Reconciler for Tokens {
    type Key = Key;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::only(resource(), TYPE_IS_TOKEN), Watched::all(service_account::resource())]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let (Some(namespace), Some(name)) = (metadata.namespace.clone(), metadata.name.clone()) else {
            return Vec::new();
        };
        vec![if watch == 0 { Key::Secret { namespace, name } } else { Key::Account { namespace, name } }]
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Next<Key>, ReconcileError> {
        match key {
            Key::Account { namespace, name } => self.secrets_of(namespace, name).await.map(Next::wake),
            Key::Secret { namespace, name } => self.reconcile_secret(namespace, name).await,
        }
    }
}

impl Tokens {
    async fn secrets_of(&self, namespace: &str, account: &str) -> Result<Vec<Key>, ReconcileError> {
        let secrets = objects(&self.context.client, &resource(), namespace);
        let found = secrets.list_metadata(&ListParams::default().fields(TYPE_IS_TOKEN)).await?;
        let of_account = found
            .items
            .into_iter()
            .filter(|secret| annotation(&secret.metadata, SERVICE_ACCOUNT_NAME) == account);
        let keys = of_account.filter_map(|secret| secret.metadata.name);
        Ok(keys.map(|name| Key::Secret { namespace: namespace.to_owned(), name }).collect())
    }

    async fn reconcile_secret(&self, namespace: &str, name: &str) -> Result<Next<Key>, ReconcileError> {
        let client = &self.context.client;
        let secrets = objects(client, &resource(), namespace);
        let Some(secret) = secrets.get_opt(name).await? else { return Ok(Next::rest()) };
        if secret.data["type"] != SERVICE_ACCOUNT_TOKEN || secret.metadata.deletion_timestamp.is_some() {
            return Ok(Next::rest());
        }
        let account = annotation(&secret.metadata, SERVICE_ACCOUNT_NAME);
        let bound_to = annotation(&secret.metadata, SERVICE_ACCOUNT_UID);
        let accounts = objects(client, &service_account::resource(), namespace);
        let uid = accounts.get_metadata_opt(account).await?.and_then(|found| found.metadata.uid);
        match uid {
            Some(uid) if bound_to.is_empty() || bound_to == uid => {
                if let Some(change) = self.filled_in(&secret, namespace, name, account, &uid) {
                    api::merge(&secrets, name, &change).await?;
                }
            }
            _ => {
                api::delete_as_seen(&secrets, &secret.metadata, PropagationPolicy::Background).await?;
            }
        }
        Ok(Next::rest())
    }

    /// What is to be changed, if anything is.
    fn filled_in(
        &self,
        secret: &DynamicObject,
        namespace: &str,
        name: &str,
        account: &str,
        uid: &str,
    ) -> Option<Value> {
        let found = |key: &str| secret.data["data"][key].as_str().unwrap_or_default();
        let mut data = Map::new();
        for (key, wanted) in [("ca.crt", self.context.settings.ca_pem.as_str()), ("namespace", namespace)] {
            let wanted = encoded(wanted);
            if wanted != found(key) {
                data.insert(key.to_owned(), wanted);
            }
        }
        let bound = annotation(&secret.metadata, SERVICE_ACCOUNT_UID) == uid;
        if found("token").is_empty() {
            let token = (self.context.settings.legacy_token)(namespace, account, uid, name);
            data.insert("token".to_owned(), encoded(&token));
        }
        if data.is_empty() && bound {
            return None;
        }
        Some(json!({
            "metadata": {
                "uid": secret.metadata.uid,
                "resourceVersion": secret.metadata.resource_version,
                "annotations": {SERVICE_ACCOUNT_UID: uid},
            },
            "data": data,
        }))
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> &'a str {
    metadata.annotations.as_ref().and_then(|all| all.get(name)).map_or("", String::as_str)
}

/// As `data` of a Secret holds it.
fn encoded(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}
