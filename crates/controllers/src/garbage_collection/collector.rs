//! Looks at one object and its owners, asks the planner, and acts.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DynamicObject, ListParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};
use sheaf_client::{
    api::{self, built_in},
    objects::Objects,
    reconciling::{Next, ReconcileError},
    served::{ResourceName, Served, ServedResource},
};
use sheaf_planner::garbage::{self, Found, Item, Live, Owner, Propagation, Reference, Scope, Step};
use sheaf_resources::selector::escaped;

use super::{
    absent::AbsentOwners,
    graph::{Graph, Uid},
};
use crate::Context;

/// A kind that is not served may be one day; its objects' dependents are looked at again after this.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// An owner that waits is woken by what happens to its dependents, and after this in any case.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Warnings remembered as given; past this all are forgotten and may be given again.
const MOST_TOLD: usize = 1000;

pub struct Collector {
    context: Context,
    pub graph: Graph,
    pub served: Arc<Served>,
    absent: AbsentOwners,
    /// Pairs of dependent and owner that were warned about.
    told: BTreeSet<(String, String)>,
}

impl Collector {
    pub fn new(context: Context) -> Self {
        Collector {
            context,
            graph: Graph::default(),
            served: Arc::default(),
            absent: AbsentOwners::default(),
            told: BTreeSet::new(),
        }
    }

    /// An object is no more; answers who should be looked at because of it.
    pub fn gone(&mut self, uid: &str) -> Vec<Uid> {
        self.absent.note(uid);
        let mut woken = self.graph.dependents(uid);
        woken.extend(self.graph.forget(uid));
        woken
    }

    /// A resource is no longer served, so its objects are no more.
    pub fn forget_resource(&mut self, resource: &ResourceName) -> Vec<Uid> {
        // No list has this number.
        let all = self.graph.unseen_since(resource, 0);
        all.into_iter().flat_map(|uid| self.gone(&uid)).collect()
    }

    /// Does the next thing that is to be done about an object.
    pub async fn look(&mut self, uid: &Uid) -> Result<Next<Uid>, ReconcileError> {
        let Some(node) = self.graph.node(uid) else { return Ok(Next::rest()) };
        if !self.served.resources.contains_key(&*node.resource) {
            // Not served any more, or not at this moment: nothing can be done about it.
            return Ok(Next::again_after(ASK_AGAIN));
        }
        let Some((place, metadata)) = self.read(uid).await? else {
            return Ok(Next::wake(self.gone(uid)));
        };
        let item = self.item(&place, &metadata).await?;
        match garbage::next_step(&item) {
            Step::Nothing => Ok(Next::rest()),
            Step::AskAgain => Ok(Next::again_after(ASK_AGAIN)),
            Step::Delete { propagation, .. } => {
                // The metadata is what the decision rests on, so its uid and version are the step's.
                api::delete_as_seen(&place.objects, &metadata, in_wire_words(propagation)).await?;
                Ok(Next::rest())
            }
            Step::RemoveOwnerReferences { uids } => {
                let owners = metadata.owner_references.iter().flatten();
                let kept: Vec<_> = owners.filter(|owner| !uids.contains(&owner.uid)).collect();
                self.write(&place, &metadata, json!({"ownerReferences": kept})).await
            }
            Step::UnblockOwnerReferences => {
                let mut owners = metadata.owner_references.clone().unwrap_or_default();
                owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
                self.write(&place, &metadata, json!({"ownerReferences": owners})).await
            }
            Step::OrphanDependents { uids } => {
                for dependent in &uids {
                    self.orphan(dependent, uid).await?;
                }
                Ok(Next::wake(vec![uid.clone()]))
            }
            Step::WaitForDependents { uids } => {
                let wake = uids.iter().map(|uid| uid.as_str().into()).collect();
                Ok(Next { again_after: Some(LOOK_AGAIN), wake })
            }
            Step::RemoveFinalizer { finalizer } => {
                let held = metadata.finalizers.iter().flatten();
                let kept: Vec<_> = held.filter(|held| *held != finalizer).collect();
                self.write(&place, &metadata, json!({"finalizers": kept})).await
            }
        }
    }

    /// A remembered object as it is now; `None` when it is no more.
    async fn read(&self, uid: &str) -> Result<Option<(Place, ObjectMeta)>, kube::Error> {
        let Some(node) = self.graph.node(uid) else { return Ok(None) };
        let Some(served) = self.served.resources.get(&*node.resource) else { return Ok(None) };
        let place = Place {
            objects: api::objects(&self.context.client, &served.resource, &node.namespace),
            served: served.clone(),
            resource: node.resource.clone(),
        };
        let found = place.objects.get_metadata_opt(&node.name).await?;
        let found = found.map(|found| found.metadata).filter(|found| found.uid.as_deref() == Some(uid));
        Ok(found.map(|metadata| (place, metadata)))
    }

    /// All that the decision depends on.
    async fn item(&mut self, place: &Place, metadata: &ObjectMeta) -> Result<Item, ReconcileError> {
        let being_deleted = metadata.deletion_timestamp.is_some();
        let mut owners = Vec::new();
        // Going is a one-way trip: who owns it does not matter any more.
        if !being_deleted {
            for reference in metadata.owner_references.iter().flatten() {
                owners.push(Owner {
                    uid: reference.uid.clone(),
                    blocks_deletion: reference.block_owner_deletion.unwrap_or(false),
                    found: self.find(place, metadata, reference).await?,
                });
            }
        }
        let uid = metadata.uid.clone().unwrap_or_default();
        Ok(Item {
            dependents: self.graph.in_planner_words(&uid),
            uid,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            being_deleted,
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            owners,
        })
    }

    /// What there is of an owner.
    async fn find(
        &mut self,
        place: &Place,
        dependent: &ObjectMeta,
        reference: &OwnerReference,
    ) -> Result<Found, ReconcileError> {
        let namespace = dependent.namespace.as_deref().unwrap_or_default();
        let named = in_planner_words(reference);
        let Some(owner) = self.served.kind(&reference.api_version, &reference.kind).cloned() else {
            // Its kind may be gone because it is.
            let gone = self.absent.contains(&reference.uid);
            return Ok(if gone { Found::Absent } else { Found::UnknownKind });
        };
        let scope = if owner.namespaced { Scope::Namespaced } else { Scope::Cluster };
        if scope == Scope::Namespaced && namespace.is_empty() {
            self.warn(place, dependent, &named).await?;
            return Ok(Found::Impossible);
        }
        if self.absent.contains(&reference.uid) {
            return Ok(Found::Absent);
        }
        let inside = if owner.namespaced { namespace } else { "" };
        let owners = api::objects(&self.context.client, &owner.resource, inside);
        let live = owners.get_metadata_opt(&reference.name).await?.map(|live| live.metadata);
        let live = live.as_ref().map(|live| Live {
            uid: live.uid.as_deref().unwrap_or_default(),
            being_deleted: live.deletion_timestamp.is_some(),
            finalizers: live.finalizers.as_deref().unwrap_or_default(),
        });
        let found = garbage::classify(&named, scope, namespace, live);
        if found == Found::Absent {
            if owner.namespaced && self.is_elsewhere(&owner, reference).await? {
                self.warn(place, dependent, &named).await?;
            } else {
                self.absent.note(&reference.uid);
            }
        }
        Ok(found)
    }

    /// Whether an owner that is not where its dependent is lives in another namespace.
    async fn is_elsewhere(
        &self,
        owner: &ServedResource,
        reference: &OwnerReference,
    ) -> Result<bool, kube::Error> {
        let everywhere = api::objects(&self.context.client, &owner.resource, "");
        let params = ListParams::default().fields(&format!("metadata.name={}", escaped(&reference.name)));
        let found = everywhere.list_metadata(&params).await?;
        Ok(found.items.iter().any(|found| found.metadata.uid.as_deref() == Some(&reference.uid)))
    }

    /// Removes the reference to an owner that goes without its dependents.
    async fn orphan(&mut self, dependent: &str, owner: &str) -> Result<(), ReconcileError> {
        let Some((place, metadata)) = self.read(dependent).await? else {
            self.gone(dependent);
            return Ok(());
        };
        let owners = metadata.owner_references.iter().flatten();
        let kept: Vec<_> = owners.filter(|reference| reference.uid != owner).collect();
        self.write(&place, &metadata, json!({"ownerReferences": kept})).await?;
        Ok(())
    }

    /// Changes metadata of an object as it was seen, and takes note of what became of it.
    async fn write(
        &mut self,
        place: &Place,
        seen: &ObjectMeta,
        mut change: Value,
    ) -> Result<Next<Uid>, ReconcileError> {
        change["uid"] = json!(seen.uid);
        change["resourceVersion"] = json!(seen.resource_version);
        let name = seen.name.as_deref().unwrap_or_default();
        match api::merge(&place.objects, name, &json!({"metadata": change})).await {
            Ok(written) => {
                let round =
                    self.graph.node(seen.uid.as_deref().unwrap_or_default()).map_or(0, |node| node.round());
                Ok(Next::wake(self.graph.see(&place.resource, &written.metadata, round)))
            }
            Err(why) if api::is_not_found(&why) => {
                Ok(Next::wake(self.gone(seen.uid.as_deref().unwrap_or_default())))
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Tells whoever looks at the dependent that its owner cannot be where it says, once.
    async fn warn(
        &mut self,
        place: &Place,
        dependent: &ObjectMeta,
        reference: &Reference,
    ) -> Result<(), ReconcileError> {
        let uid = dependent.uid.clone().unwrap_or_default();
        if self.told.contains(&(uid.clone(), reference.uid.clone())) {
            return Ok(());
        }
        let namespace = dependent.namespace.as_deref().unwrap_or_default();
        let (reason, message) = garbage::misplaced_owner_event(reference, namespace);
        let name = dependent.name.as_deref().unwrap_or_default();
        // As long as a name may be, with room for what makes it one of its own.
        let short: String = name.chars().take(230).collect();
        let clock = &self.context.world.clock;
        let event_namespace = if namespace.is_empty() { "default" } else { namespace };
        let resource = built_in("", "v1", "Event", "events");
        let now = clock.rfc3339();
        let event = DynamicObject::new(&format!("{short}.{:x}", clock.since_epoch().as_nanos()), &resource)
            .within(event_namespace)
            .data(json!({
                "involvedObject": {
                    "apiVersion": place.served.resource.api_version, "kind": place.served.resource.kind,
                    "namespace": namespace, "name": name, "uid": uid,
                    "resourceVersion": dependent.resource_version,
                },
                "reason": reason, "message": message, "type": "Warning", "count": 1,
                "firstTimestamp": now, "lastTimestamp": now,
                "source": {"component": "garbage-collector-controller"},
                "reportingComponent": "garbage-collector-controller", "reportingInstance": "",
            }));
        let events = api::objects(&self.context.client, &resource, event_namespace);
        match events.create(&PostParams::default(), &event).await {
            // The namespace is going: nobody will read it.
            Err(why) if !crate::namespace::needs_none(&why) => return Err(why.into()),
            _ => {}
        }
        if self.told.len() >= MOST_TOLD {
            self.told.clear();
        }
        self.told.insert((uid, reference.uid.clone()));
        Ok(())
    }
}

/// Where an object is.
struct Place {
    objects: Objects<DynamicObject>,
    served: ServedResource,
    resource: Arc<ResourceName>,
}

fn in_planner_words(reference: &OwnerReference) -> Reference {
    Reference {
        api_version: reference.api_version.clone(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        uid: reference.uid.clone(),
    }
}

fn in_wire_words(propagation: Propagation) -> PropagationPolicy {
    match propagation {
        Propagation::Background => PropagationPolicy::Background,
        Propagation::Foreground => PropagationPolicy::Foreground,
        Propagation::Orphan => PropagationPolicy::Orphan,
    }
}
