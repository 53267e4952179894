//! Sees to it that every namespace has its `default` service account.
//!
//! It is made again when somebody removes it, and never changed: what people add to it is theirs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use sheaf_client::{
    api::{built_in, objects},
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};

use crate::{Context, namespace};

pub const NAME: &str = "service-account";
const DEFAULT: &str = "default";

pub(crate) fn resource() -> ApiResource {
    built_in("", "v1", "ServiceAccount", "serviceaccounts")
}

pub(crate) async fn run(context: Context) {
    reconciling::run(DefaultAccounts { context: context.clone() }, context.client).await;
}

struct DefaultAccounts {
    context: Context,
}

impl Reconciler for DefaultAccounts {
    /// The namespace.
    type Key = String;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(namespace::resource()), Watched::only(resource(), "metadata.name=default")]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        namespace::named_by(watch, metadata)
    }

    async fn reconcile(&mut self, namespace: &String) -> Result<Next<String>, ReconcileError> {
        let client = &self.context.client;
        if !namespace::is_active(client, namespace).await? {
            return Ok(Next::rest());
        }
        let accounts = objects(client, &resource(), namespace);
        if accounts.get_metadata_opt(DEFAULT).await?.is_some() {
            return Ok(Next::rest());
        }
        let account = DynamicObject::new(DEFAULT, &resource()).within(namespace);
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => Ok(Next::rest()),
            Err(why) if namespace::needs_none(&why) => Ok(Next::rest()),
            Err(why) => Err(why.into()),
        }
    }
}
