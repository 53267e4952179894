//! Takes a user's name out of all bindings before the user goes. The decision is [`sheaf_planner::user_deletion`].
//!
//! A finalizer holds the user for so long, who is locked out already; only then can somebody else be given the name. Killed
//! in between, what is left of the bindings is taken by the next pass.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{ListParams, PropagationPolicy},
    core::ApiResource,
};
use serde_json::json;
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_planner::user_deletion::{Step, next_step};
use sheaf_resources::{kinds::user::BINDINGS_FINALIZER, rbac};

use crate::Context;

pub const NAME: &str = "user";
/// Bindings asked for at a time.
const PAGE: u32 = 500;

fn resource() -> ApiResource {
    built_in("management.cattle.io", "v3", "User", "users")
}

pub(crate) async fn run(context: Context) {
    reconciling::run(Users { context: context.clone() }, context.client).await;
}

struct Users {
    context: Context,
}

impl Reconciler for Users {
    /// The user's name.
    type Key = String;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        metadata.name.clone().into_iter().collect()
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let users = objects(&self.context.client, &resource(), "");
        let Some(user) = users.get_metadata_opt(name).await? else { return Ok(Next::rest()) };
        let metadata = user.metadata;
        let is_held = metadata.finalizers.iter().flatten().any(|held| held == BINDINGS_FINALIZER);
        if metadata.deletion_timestamp.is_none() || !is_held {
            return Ok(Next::rest());
        }
        for (kind, plural) in [("RoleBinding", "rolebindings"), ("ClusterRoleBinding", "clusterrolebindings")]
        {
            self.unbind(&built_in(rbac::GROUP, "v1", kind, plural), name).await?;
        }
        match api::merge(&users, name, &api::without_finalizer(&metadata, BINDINGS_FINALIZER)).await {
            // Somebody else was faster.
            Err(why) if api::is_not_found(&why) => Ok(Next::rest()),
            done => done.map(|_| Next::rest()).map_err(ReconcileError::from),
        }
    }
}

impl Users {
    async fn unbind(&self, resource: &ApiResource, user: &str) -> Result<(), ReconcileError> {
        let all = objects(&self.context.client, resource, "");
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = all.list(&params).await?;
            for binding in page.items {
                let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
                let there = objects(&self.context.client, resource, namespace);
                let subjects = binding.data["subjects"].as_array().cloned().unwrap_or_default();
                match next_step(&subjects, user) {
                    Step::Leave => {}
                    Step::KeepOthers(subjects) => {
                        let version = &binding.metadata.resource_version;
                        let change = json!({"metadata": {"resourceVersion": version}, "subjects": subjects});
                        let name = binding.metadata.name.as_deref().unwrap_or_default();
                        match api::merge(&there, name, &change).await {
                            Err(why) if api::is_not_found(&why) => {}
                            done => drop(done?),
                        }
                    }
                    Step::Delete => {
                        api::delete_as_seen(&there, &binding.metadata, PropagationPolicy::Background).await?;
                    }
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }
}
