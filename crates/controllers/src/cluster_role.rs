//! Keeps the rules of cluster roles that gather those of others. The decision is
//! [`sheaf_planner::role_aggregation`].
//!
//! Any change of any cluster role is a reason to look at all of them: there are few, and a role that gathers may
//! itself be gathered.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{api::ListParams, core::ApiResource};
use serde_json::{Value, json};
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_planner::role_aggregation::{self, Step};
use sheaf_resources::rbac::{self, Role};

use crate::Context;

pub const NAME: &str = "cluster-role";

fn resource() -> ApiResource {
    built_in(rbac::GROUP, "v1", "ClusterRole", "clusterroles")
}

pub(crate) async fn run(context: Context) {
    reconciling::run(Aggregation { context: context.clone() }, context.client).await;
}

struct Aggregation {
    context: Context,
}

impl Reconciler for Aggregation {
    /// All roles.
    type Key = ();

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _watch: usize, _metadata: &ObjectMeta) -> Vec<()> {
        vec![()]
    }

    async fn reconcile(&mut self, (): &()) -> Result<Next<()>, ReconcileError> {
        let cluster_roles = objects(&self.context.client, &resource(), "");
        let found = cluster_roles.list(&ListParams::default()).await?;
        let mut roles = Vec::new();
        for object in found.items {
            let version = object.metadata.resource_version.clone();
            let role: Role = serde_json::from_value(serde_json::to_value(&object)?)?;
            roles.push((version, role));
        }
        for (version, role) in &roles {
            let name = &role.metadata.name;
            match role_aggregation::next_step(role, roles.iter().map(|(_, role)| role)) {
                Ok(Step::Nothing) => {}
                Ok(Step::SetRules(rules)) => {
                    let rules: Value = rules.iter().map(|rule| json!(rule)).collect();
                    let change = json!({"metadata": {"resourceVersion": version}, "rules": rules});
                    api::merge(&cluster_roles, name, &change).await?;
                }
                // Only its author can put that right; the next change of it is looked at again.
                Err(why) => tracing::warn!(name, %why, "a cluster role gathers by a selector that is none"),
            }
        }
        Ok(Next::rest())
    }
}
