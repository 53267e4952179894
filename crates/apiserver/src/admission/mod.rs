//! What may happen to an object, beyond what its kind says: what looks at other objects, at settings or at who is
//! asking, and completes an object or refuses it.
//!
//! # The order of a write
//!
//! 1. Who asks, may they ([`crate::dispatch`]); the body becomes an object of its kind, in the version it is stored in,
//!    with its defaults ([`crate::rest::decode`]). **Conversion webhooks** have their place there, as another sort of
//!    `Kind::conversion`.
//! 2. [`ApiServer::admit`], before validation, so that what is completed here is validated like anything else:
//!    1. its namespace is there and stays ([`namespace`]);
//!    2. nobody grants what they do not hold, no username stands for two, no node touches what is another's;
//!    3. what the kind is given from its surroundings, and must not be because of them (`admit_kind`);
//!    4. **webhooks that change objects** have their place here. What one of them changed goes through 2 and 3 again, and
//!       through 5, so that nobody gets past a check by way of a webhook;
//!    5. images are used by who may read them ([`image_use`]).
//! 3. The kind's own validation, and the rules of its definition (`ApiServer::validate`).
//! 4. **Webhooks that only judge** have their place here, all at once: they see the object as it will be stored.
//! 5. Quotas ([`crate::quota`]), last, since whatever comes after them could refuse what was counted; then the transaction.
//!
//! A deletion is admitted in 2 alone, and judged in 4. A dry run goes the same way up to the transaction.
//!
//! No webhook is asked yet. So that nobody believes one is, their configurations are not served, a definition that would
//! make them look served is refused, and so is one that asks for conversion by webhook. What a webhook waits for must hold
//! no seat (`Seat::without`), and no turn of a quota.
//!
//! The decisions that need no look around are pure functions of the kinds in `resources`; here is where their surroundings
//! come from.

mod backup;
mod cloud_config;
mod image_use;
mod limit_range;
mod load_balancer;
mod machines;
mod made_of;
mod namespace;
mod network;
mod setting;
mod snapshot_quota;
mod storage;
mod support_bundle;
mod template;
mod token;
mod virtual_machine;
mod vlan_config;

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kind::Kind,
    kinds::{addon, key_pair, namespace as namespaces},
    object_meta, rbac,
};

pub(crate) use self::machines::Machines;
use crate::{
    ApiServer,
    authorization::{escalation, node},
    identity::{MASTERS, User, api_tokens, users},
    identity_view::CachedDirectory,
    rest::{Call, options::Freshness, update::Part},
    status::ApiError,
    subresources::refused,
};

/// Kinds that have no `status` subresource, as in the original, and whose status is not for everybody who writes them.
const STATUS_OF_OTHERS: [(&str, &str); 10] = [
    (machines::GROUP, machines::INSTANCES),
    ("harvesterhci.io", "settings"),
    ("harvesterhci.io", "virtualmachineimages"),
    ("harvesterhci.io", "virtualmachinebackups"),
    ("harvesterhci.io", "virtualmachinerestores"),
    ("harvesterhci.io", "virtualmachinetemplateversions"),
    ("harvesterhci.io", "supportbundles"),
    (load_balancer::GROUP, load_balancer::POOLS),
    ("network.harvesterhci.io", "clusternetworks"),
    ("network.harvesterhci.io", "linkmonitors"),
];

/// What is about to happen.
pub enum Operation<'a> {
    Create { new: &'a mut Value },
    Update { new: &'a mut Value, old: &'a Value, part: Part },
    Delete { old: &'a Value },
}

impl ApiServer {
    /// Lets the operation pass, completes it, or says why not.
    pub(crate) async fn admit(&self, call: &Call<'_>, operation: Operation<'_>) -> Result<(), ApiError> {
        match operation {
            Operation::Create { new } => {
                self.admit_into_namespace(call, new).await?;
                self.admit_rights(call, new, None)?;
                self.admit_username(call, new, None).await?;
                self.admit_node(call, Some(new), None)?;
                self.admit_kind(call, new, None).await?;
                self.admit_image_use(call, new, None)
            }
            Operation::Update { new, old, part } => {
                if part == Part::Main {
                    self.admit_rights(call, new, Some(old))?;
                    self.admit_username(call, new, Some(old)).await?;
                }
                self.admit_node(call, Some(new), Some(old))?;
                if part == Part::Main {
                    self.admit_kind(call, new, Some(old)).await?;
                }
                self.admit_stop(call, new, old).await?;
                // With the status of some kinds one writes their annotations too.
                self.admit_image_use(call, new, Some(old))
            }
            Operation::Delete { old } => {
                self.admit_node(call, None, Some(old))?;
                self.admit_deletion(call, old).await
            }
        }
    }

    /// What a kind is given from its surroundings, and what it must not be because of them.
    async fn admit_kind(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        if STATUS_OF_OTHERS.contains(&(&kind.group, &kind.plural)) {
            keep_status(call, new, old);
        }
        match (kind.group.as_str(), kind.plural.as_str()) {
            (machines::GROUP, machines::MACHINES) => self.admit_machine(call, new, old).await,
            (machines::GROUP, machines::INSTANCES) => match old {
                None => {
                    self.complete_size_of_instance(call, new);
                    self.admit_new_instance(call, new).await?;
                    self.admit_size_of_instance(call, new)
                }
                Some(old) => self.admit_changed_instance(call, new, old).await,
            },
            ("", "persistentvolumeclaims") => {
                match old {
                    None => self.complete_claim(new),
                    Some(old) => {
                        self.admit_growth(call, new, old)?;
                        self.admit_promise(call, new, old)?;
                    }
                }
                self.admit_size_of_claim(call, new, old)
            }
            ("", "configmaps") => cloud_config::admit_config_map(call, new, old),
            ("", "secrets") => cloud_config::admit_secret(call, new, old),
            ("storage.k8s.io", "storageclasses") => self.admit_class(call, new, old).await,
            ("snapshot.storage.k8s.io", "volumesnapshots") => {
                if old.is_some() {
                    return Ok(());
                }
                self.complete_snapshot(new);
                self.admit_size_of_snapshot(call, new).await
            }
            ("harvesterhci.io", "virtualmachineimages") => self.admit_image(call, new, old).await,
            ("harvesterhci.io", "virtualmachinebackups") if old.is_none() => {
                self.admit_backup(call, new).await?;
                self.admit_size_of_backup(call, new)
            }
            ("harvesterhci.io", "virtualmachinerestores") if old.is_none() => {
                self.admit_restore(call, new).await
            }
            ("harvesterhci.io", "settings") => self.admit_setting(call, new, old),
            ("harvesterhci.io", "virtualmachinetemplates") => self.admit_template(call, new, old).await,
            ("harvesterhci.io", "virtualmachinetemplateversions") => {
                self.admit_template_version(call, new, old).await
            }
            ("clone.kubevirt.io", "virtualmachineclones") if old.is_none() => {
                self.admit_clone(call, new).await
            }
            ("harvesterhci.io", "supportbundles") => self.admit_bundle(call, new, old).await,
            ("harvesterhci.io", "keypairs") => {
                key_pair::complete(new, &self.world.clock.rfc3339());
                Ok(())
            }
            (api_tokens::GROUP, api_tokens::TOKENS) if old.is_none() => self.complete_token(new).await,
            ("network.harvesterhci.io", "ippools") => self.admit_machine_pool(call, new, old).await,
            ("k8s.cni.cncf.io", "network-attachment-definitions") => self.admit_definition(new, old),
            ("network.harvesterhci.io", "clusternetworks") => self.admit_cluster_network(call, new, old),
            ("network.harvesterhci.io", "vlanconfigs") => self.admit_vlan_config(new, old).await,
            ("network.harvesterhci.io", "vlanstatuses") => vlan_config::admit_vlan_status(call),
            (load_balancer::GROUP, load_balancer::BALANCERS) => self.admit_balancer(call, new, old),
            (load_balancer::GROUP, load_balancer::POOLS) => self.admit_balancer_pool(call, new, old).await,
            _ => Ok(()),
        }
    }

    /// What is used stays, and so does what the cluster cannot do without.
    async fn admit_deletion(&self, call: &Call<'_>, old: &Value) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        match (kind.group.as_str(), kind.plural.as_str()) {
            // It is said of them whatever else is.
            _ if let Some(why) = is_kept(kind, &call.request.namespace, name) => {
                Err(ApiError::refused(call.named(), name, why))
            }
            ("", "namespaces") => Ok(()),
            // It goes already, and asking again changes nothing.
            _ if object_meta::is_being_deleted(old) => Ok(()),
            ("", "persistentvolumeclaims") => self.admit_claim_deletion(call, name).await,
            ("storage.k8s.io", "storageclasses") => self.admit_class_deletion(call, old).await,
            ("harvesterhci.io", "virtualmachineimages") => {
                self.admit_image_deletion(old).await?;
                self.admit_deletion_of_image_in_versions(call, old)
            }
            ("harvesterhci.io", "virtualmachinetemplateversions") => {
                self.admit_template_version_deletion(call, old).await
            }
            ("harvesterhci.io", "virtualmachinebackups") => self.admit_backup_deletion(call, name).await,
            ("k8s.cni.cncf.io", "network-attachment-definitions") => {
                self.admit_definition_deletion(call, name).await
            }
            ("network.harvesterhci.io", "clusternetworks") => {
                self.admit_cluster_network_deletion(call, name).await
            }
            ("network.harvesterhci.io", "vlanconfigs") => self.admit_vlan_config_deletion(old).await,
            ("network.harvesterhci.io", "ippools") => self.admit_pool_deletion(call, old),
            (load_balancer::GROUP, load_balancer::POOLS) => load_balancer::admit_pool_deletion(old),
            _ => Ok(()),
        }
    }

    /// Nobody grants what they do not hold.
    fn admit_rights(&self, call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let written = escalation::Written {
            group: &call.request.group,
            resource: &call.request.resource,
            namespace: &call.request.namespace,
            old,
            new,
        };
        escalation::check(&self.authorizer, call.user, &written).map_err(refused)
    }

    /// A username stands for one person. Two writers at the same moment may both find one free; the login settles
    /// that, see [`users::holder`].
    async fn admit_username(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        let is_settled = old.is_some_and(|old| old["username"] == new["username"]);
        if kind.group != api_tokens::GROUP || kind.plural != api_tokens::USERS || is_settled {
            return Ok(());
        }
        // It may have been given a moment ago, through another server.
        self.reach(Freshness::Latest).await?;
        let directory = CachedDirectory::new(self.cache.clone());
        let username = new["username"].as_str().unwrap_or_default();
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        match users::holder(&directory, username) {
            // One of the same name is that very user: it exists already, and that is what is said of it.
            Some(holder) if holder["metadata"]["name"] != name => {
                let duplicate = FieldError::duplicate(&FieldPath::new("username"), username);
                Err(ApiError::invalid(&kind.group, &kind.kind, name, &[duplicate]))
            }
            _ => Ok(()),
        }
    }

    /// A node touches its own objects only, whatever roles it was given.
    fn admit_node(&self, call: &Call<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
        let written = node::Written {
            operation: match (new, old) {
                (Some(_), None) => node::Operation::Create,
                (Some(_), Some(_)) => node::Operation::Update,
                (None, _) => node::Operation::Delete,
            },
            group: &call.request.group,
            resource: &call.request.resource,
            subresource: &call.request.subresource,
            namespace: &call.request.namespace,
            name: node::written_name(&call.request.name, new),
            old,
            new,
        };
        node::admit(call.user, &written).map_err(refused)
    }
}

/// Why an object is never deleted, whoever asks; none for what may be.
pub(crate) fn is_kept(kind: &Kind, namespace: &str, name: &str) -> Option<&'static str> {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("harvesterhci.io" | "management.cattle.io", "settings") => {
            Some("settings may not be deleted: empty the value instead")
        }
        ("harvesterhci.io", "addons") => {
            addon::is_shipped(namespace, name).then_some("the shipped addons may not be deleted")
        }
        ("", "namespaces") if namespaces::IMMORTAL.contains(&name) => {
            Some("this namespace may not be deleted")
        }
        _ => None,
    }
}

/// Nodes, controllers and who may do everything. Of nodes it was asked already whether the object is theirs.
fn speaks_for_the_cluster(user: &User) -> bool {
    user.node_name().is_some() || user.in_group(MASTERS) || user.name.starts_with(&rbac::controller_user(""))
}

/// How these stand is said by their node and by controllers alone. A namespace's editor writes the rest of them, and
/// a node acts on what is bound to it.
fn keep_status(call: &Call<'_>, new: &mut Value, old: Option<&Value>) {
    if speaks_for_the_cluster(call.user) {
        return;
    }
    match old.and_then(|old| old.get("status")) {
        Some(status) => new["status"] = status.clone(),
        None => {
            new.as_object_mut().map(|fields| fields.remove("status"));
        }
    }
}
