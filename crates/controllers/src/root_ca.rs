//! Publishes the cluster's CA to every namespace, in the ConfigMap `kube-root-ca.crt`, so that whatever runs
//! there can tell the API server from an impostor.
//!
//! It is made again when somebody removes it and put right when somebody changes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use serde_json::json;
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};

use crate::{Context, namespace};

pub const NAME: &str = "root-ca";
const CONFIG_MAP: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: &str = "The certificate authority of this cluster's API server, kept up to date.";

fn resource() -> ApiResource {
    built_in("", "v1", "ConfigMap", "configmaps")
}

pub(crate) async fn run(context: Context) {
    reconciling::run(RootCa { context: context.clone() }, context.client).await;
}

struct RootCa {
    context: Context,
}

impl Reconciler for RootCa {
    /// The namespace.
    type Key = String;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(namespace::resource()), Watched::only(resource(), "metadata.name=kube-root-ca.crt")]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        namespace::named_by(watch, metadata)
    }

    async fn reconcile(&mut self, namespace: &String) -> Result<Next<String>, ReconcileError> {
        let client = &self.context.client;
        if !namespace::is_active(client, namespace).await? {
            return Ok(Next::rest());
        }
        let wanted = json!({KEY: self.context.settings.ca_pem});
        let config_maps = objects(client, &resource(), namespace);
        let Some(found) = config_maps.get_opt(CONFIG_MAP).await? else {
            let mut config_map =
                DynamicObject::new(CONFIG_MAP, &resource()).within(namespace).data(json!({"data": wanted}));
            config_map.metadata.annotations =
                Some([("kubernetes.io/description".to_owned(), DESCRIPTION.to_owned())].into());
            return match config_maps.create(&PostParams::default(), &config_map).await {
                Err(why) if !namespace::needs_none(&why) => Err(why.into()),
                _ => Ok(Next::rest()),
            };
        };
        if found.data["data"] != wanted || !found.data["binaryData"].is_null() {
            // Null for all else that is there: nobody but us has anything to say in it.
            let mut data = found.data["data"].as_object().cloned().unwrap_or_default();
            data.values_mut().for_each(|value| *value = json!(null));
            data.insert(KEY.to_owned(), self.context.settings.ca_pem.clone().into());
            let change = json!({
                "metadata": {"resourceVersion": found.metadata.resource_version},
                "data": data, "binaryData": null,
            });
            api::merge(&config_maps, CONFIG_MAP, &change).await?;
        }
        Ok(Next::rest())
    }
}
