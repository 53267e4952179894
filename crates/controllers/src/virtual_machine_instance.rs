//! Binds instances to nodes: waits until all an instance needs is there, chooses its node, and says in its status what is
//! in the way until then.
//!
//! The decisions are [`sheaf_planner::placement`] and [`sheaf_planner::virtual_machine_instance::binding`]. The
//! volumes of an instance are put on its node first, then the instance itself, in one write; from then on its status
//! is the node's agent's. One that is deleted before it had a node is let go here. Interrupted in between, a volume
//! is on a node already and the instance follows it there. A node is chosen only if its disk has room for the
//! volumes that come with the instance.
//!
//! Deliberately absent: taking an instance off a node that is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, NodeSelector, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::{
    network_config,
    placement::{self, Neighbour, Wanted},
    topology,
    virtual_machine_instance::binding::{self, Finding},
    volume_room::{Rooms, size_of},
};
use sheaf_resources::kinds::{
    network_attachment_definition::NetworkAttachmentDefinition,
    setting::{OVERCOMMIT_CONFIG, Setting},
    virtual_machine_instance::{
        FOREGROUND_FINALIZER, NODE_NAME_LABEL, VirtualMachineInstance, demand::Demand,
    },
    virtual_machine_network_config::VirtualMachineNetworkConfig,
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    persistent_volume_claim::{is_of, no_room_condition, on_node},
    references::References,
    telling::{How, tell},
    virtual_machine_network_config::{DefaultNetwork, definitions},
    volume_room::{self, LOOK_FOR_ROOM_EVERY},
};

pub const NAME: &str = "virtual-machine-instance";
const COMPONENT: &str = "virtualmachine-controller";
/// An instance that is younger than this does not say yet what it waits for.
const SAYS_THAT_IT_WAITS_AFTER: std::time::Duration = std::time::Duration::from_secs(2);

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let placing =
        Placing { context, references: References::default(), waiting: BTreeSet::new(), neighbours: None };
    reconciling::run(placing, client).await;
}

/// What an instance waits for, beside a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Claim(Place),
    /// `namespace/name`.
    Network(String),
}

struct Placing {
    context: Context,
    references: References<Place, Thing>,
    /// Instances that fit nowhere.
    waiting: BTreeSet<Place>,
    /// Who is where. Read once, and kept by looking at every instance that changes.
    neighbours: Option<BTreeMap<Place, Neighbour>>,
}

impl Reconciler for Placing {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachineInstance>(),
            memory.of::<PersistentVolumeClaim>(),
            memory.of::<VirtualMachineNetworkConfig>(),
            memory.of::<NetworkAttachmentDefinition>(),
            memory.of::<Node>(),
            memory.of::<PersistentVolume>(),
            memory.of::<Setting>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let place = place_of(metadata);
        match (watch, place) {
            // One that goes makes room.
            (0, Some(place)) if metadata.deletion_timestamp.is_some() => {
                self.waiting.iter().cloned().chain([place]).collect()
            }
            // A config has the name of its machine.
            (0 | 2, place) => place.into_iter().collect(),
            (1, Some(claim)) => self.references.to(&Thing::Claim(claim)),
            (3, Some((namespace, name))) => {
                self.references.to(&Thing::Network(format!("{namespace}/{name}")))
            }
            // Only one that goes makes room.
            (5, _) if metadata.deletion_timestamp.is_none() => Vec::new(),
            (6, _) if metadata.name.as_deref() != Some(OVERCOMMIT_CONFIG) => Vec::new(),
            (_, _) => self.waiting.iter().cloned().collect(),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        self.waiting.remove(place);
        let eyes = self.context.eyes();
        let instance: Option<Object<VirtualMachineInstance>> = eyes.find(&place.0, &place.1).await?;
        self.take_note(place, instance.as_ref().map(|instance| &*instance.typed));
        let Some(instance) = instance else {
            self.references.set(place, BTreeSet::new());
            return Ok(Next::rest());
        };
        if !instance.typed.status.node_name.is_empty() {
            return self.place_late_volumes(&eyes, place, &instance).await;
        }
        if instance.is_being_deleted() {
            self.let_go(&instance).await?;
            return Ok(Next::rest());
        }
        if instance.typed.status.phase.is_final() {
            return Ok(Next::rest());
        }
        let (mut finding, mut volumes) = self.find_node(&eyes, place, &instance).await?;
        // Nobody is told that something is missing before the API itself says so: it may only be late.
        if !matches!(finding, Finding::Node(_) | Finding::NotReady(_)) || instance.is_written_over() {
            (finding, volumes) = self.find_node(&eyes.fresh(), place, &instance).await?;
        }
        // Most wait for a moment only, which is nobody's business.
        if matches!(finding, Finding::NotReady(_)) && self.is_new(&instance) {
            return Ok(Next::again_after(SAYS_THAT_IT_WAITS_AFTER));
        }
        let node = match &finding {
            Finding::Node(name) => eyes.fresh().find::<Node>("", name).await?,
            _ => None,
        };
        if let Some(node) = &node {
            let unplaced: Vec<_> = volumes.iter().filter(|volume| !is_placed(&volume.typed)).collect();
            // Somebody may have taken the room since it was looked for.
            if !self.promise(&eyes, node.name(), &unplaced).await? {
                return Ok(Next::again_after(crate::LOOK_AGAIN));
            }
        }
        self.write(place, &instance, &finding, node.as_ref()).await?;
        if matches!(finding, Finding::Unschedulable(_)) {
            self.waiting.insert(place.clone());
            return Ok(Next::again_after(LOOK_FOR_ROOM_EVERY));
        }
        Ok(Next::rest())
    }
}

impl Placing {
    /// Where the instance can go, and its volumes.
    async fn find_node(
        &mut self,
        eyes: &Eyes,
        place: &Place,
        instance: &Object<VirtualMachineInstance>,
    ) -> Result<(Finding, Vec<Object<PersistentVolume>>), ReconcileError> {
        let spec = &instance.typed.spec;
        let (claims, networks) = (spec.claim_names(), definitions(spec, &place.0));
        let claims: BTreeSet<Place> = claims.map(|name| (place.0.clone(), name.to_owned())).collect();
        let things = claims.iter().cloned().map(Thing::Claim);
        self.references.set(place, things.chain(networks.iter().cloned().map(Thing::Network)).collect());
        let found = |finding| Ok((finding, Vec::new()));
        let mut volumes = Vec::new();
        let mut waits = None;
        for (namespace, name) in &claims {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(namespace, name).await?;
            let Some(claim) = claim else {
                return found(Finding::MissingClaim(format!("{namespace}/{name}")));
            };
            let phase = claim.typed.status.as_ref().and_then(|status| status.phase.as_deref());
            let volume = claim.typed.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            // It may be late, and nothing would wake us when it comes.
            let mut found_volume = eyes.find::<PersistentVolume>("", volume.unwrap_or_default()).await?;
            if found_volume.is_none() && phase == Some("Bound") && !eyes.are_fresh() {
                found_volume = eyes.fresh().find("", volume.unwrap_or_default()).await?;
            }
            match found_volume {
                Some(volume) if phase == Some("Bound") && is_of(&volume, &claim) => volumes.push(volume),
                None if phase == Some("Bound") => {
                    let volume = volume.unwrap_or_default();
                    waits = Some(format!("volume {volume} of claim {namespace}/{name} is gone"));
                }
                _ => {
                    // It will not come by waiting a moment: somebody has to make room.
                    if let Some(short) = no_room_condition(&claim.typed).filter(|_| phase != Some("Bound")) {
                        let why = short.message.clone().unwrap_or_default();
                        return found(Finding::Unschedulable(format!("claim {namespace}/{name}: {why}")));
                    }
                    waits =
                        Some(format!("waiting for claim {namespace}/{name} to be bound; its events say more"))
                }
            }
        }
        let network = DefaultNetwork::without_pool(eyes, &networks).await?;
        if let Some(missing) = networks.iter().find(|name| !network.exists(name)) {
            return found(Finding::MissingNetwork(missing.clone()));
        }
        if waits.is_none() {
            waits = self.waits_for_address(eyes, place, instance, &network).await?;
        }
        if let Some(why) = waits {
            return found(Finding::NotReady(why));
        }
        let nodes: Vec<Arc<Node>> = eyes.list("").await?;
        let neighbours: Vec<Neighbour> = self.neighbours(eyes, place).await?;
        let labels = instance.metadata().labels.clone().unwrap_or_default();
        let places: Vec<NodeSelector> = volumes
            .iter()
            .filter_map(|volume| volume.typed.spec.as_ref()?.node_affinity.as_ref()?.required.clone())
            .collect();
        let unplaced = volumes.iter().filter(|volume| !is_placed(&volume.typed));
        let unplaced_bytes = unplaced.filter_map(|volume| size_of(&volume.typed)).sum();
        let rooms = match unplaced_bytes {
            0 => Rooms::default(),
            _ => volume_room::look(eyes).await?,
        };
        let wanted = Wanted { spec, namespace: &place.0, labels: &labels, volumes: &places, unplaced_bytes };
        Ok(match placement::choose_node(&wanted, &nodes, &neighbours, &rooms) {
            Ok(node) => (Finding::Node(node), volumes),
            Err(why) => (Finding::Unschedulable(why.to_string()), Vec::new()),
        })
    }

    /// Puts volumes on a node, all of them or none; answers whether there was room.
    async fn promise(
        &self,
        eyes: &Eyes,
        node: &str,
        volumes: &[&Object<PersistentVolume>],
    ) -> Result<bool, ReconcileError> {
        if volumes.is_empty() {
            return Ok(true);
        }
        let _promising = self.context.promising.lock().await;
        let asked: i64 = volumes.iter().filter_map(|volume| size_of(&volume.typed)).sum();
        if volume_room::look(eyes).await?.left_on(node).is_some_and(|left| asked > left) {
            return Ok(false);
        }
        for volume in volumes {
            volume.merge(json!({"spec": {"nodeAffinity": on_node(node)}})).await?;
        }
        Ok(true)
    }

    /// Puts the volumes on the node of an instance that were plugged into it when it was there already.
    async fn place_late_volumes(
        &mut self,
        eyes: &Eyes,
        place: &Place,
        instance: &Object<VirtualMachineInstance>,
    ) -> Result<Next<Place>, ReconcileError> {
        let status = &instance.typed.status;
        let mut awaited = BTreeSet::new();
        let mut next = Next::rest();
        if !instance.is_being_deleted() && !status.phase.is_final() {
            for name in instance.typed.spec.claim_names() {
                let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, name).await?;
                let spec = claim.as_ref().and_then(|claim| claim.typed.spec.as_ref());
                let volume = spec.and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
                let volume: Option<Object<PersistentVolume>> = eyes.find("", volume).await?;
                let (Some(claim), Some(volume)) = (claim, volume) else {
                    awaited.insert(Thing::Claim((place.0.clone(), name.to_owned())));
                    continue;
                };
                if is_placed(&volume.typed) || !is_of(&volume, &claim) {
                    continue;
                }
                // Somebody else's node may have it by now.
                let fresh: Option<Object<PersistentVolume>> = eyes.fresh().find("", volume.name()).await?;
                let Some(volume) = fresh.filter(|volume| !is_placed(&volume.typed)) else { continue };
                if !self.promise(eyes, &status.node_name, &[&volume]).await? {
                    let message = format!(
                        "volume {} of claim {}/{name} is not plugged in: node {} has no room for it that may be promised. \
                         Delete volumes there, raise \"storage\" in the setting {OVERCOMMIT_CONFIG}, or give the node a \
                         larger disk",
                        volume.name(),
                        place.0,
                        status.node_name
                    );
                    let words = ("Warning", "FailedScheduling", message.as_str());
                    tell(&self.context, COMPONENT, instance, words, How::Once).await;
                    self.waiting.insert(place.clone());
                    next = Next::again_after(LOOK_FOR_ROOM_EVERY);
                }
            }
        }
        self.references.set(place, awaited);
        Ok(next)
    }

    /// What is missing until every interface on the default network has its address, and this machine's config says
    /// so.
    async fn waits_for_address(
        &self,
        eyes: &Eyes,
        place: &Place,
        instance: &Object<VirtualMachineInstance>,
        network: &DefaultNetwork,
    ) -> Result<Option<String>, ReconcileError> {
        let is_default = |name: &str| network.is_default(name);
        let wanted =
            network_config::interfaces_on_default_network(&instance.typed.spec, &place.0, &is_default);
        if wanted.is_empty() {
            return Ok(None);
        }
        let name = format!("{}/{}", place.0, place.1);
        let config: Option<Object<VirtualMachineNetworkConfig>> = eyes.find(&place.0, &place.1).await?;
        let Some(config) = config.filter(|config| !config.is_being_deleted()) else {
            return Ok(Some(format!("waiting for the VirtualMachineNetworkConfig {name} to be made")));
        };
        let owners = instance.metadata().owner_references.iter().flatten().map(|owner| owner.uid.as_str());
        let machines: BTreeSet<&str> = owners.chain([instance.uid()]).collect();
        let mut held = config.metadata().owner_references.iter().flatten();
        if !held.any(|owner| machines.contains(owner.uid.as_str())) {
            return Ok(Some(format!(
                "waiting for the VirtualMachineNetworkConfig {name} of another machine to go"
            )));
        }
        let without = wanted.iter().find(|one| !network_config::has_address(&config.typed, &one.mac_address));
        Ok(without.map(|one| {
            let mac = &one.mac_address;
            format!("interface {mac} waits for an address; the VirtualMachineNetworkConfig {name} says why")
        }))
    }

    /// Everybody else who is on a node.
    async fn neighbours(&mut self, eyes: &Eyes, place: &Place) -> Result<Vec<Neighbour>, ReconcileError> {
        if self.neighbours.is_none() {
            self.neighbours = Some(BTreeMap::new());
            let all: Vec<Arc<VirtualMachineInstance>> = match eyes.list("").await {
                Ok(all) => all,
                Err(why) => {
                    self.neighbours = None;
                    return Err(why);
                }
            };
            for instance in &all {
                if let Some(place) = place_of(&instance.metadata) {
                    self.take_note(&place, Some(instance));
                }
            }
        }
        let all = self.neighbours.iter().flatten();
        Ok(all.filter(|(other, _)| *other != place).map(|(_, neighbour)| neighbour.clone()).collect())
    }

    fn take_note(&mut self, place: &Place, instance: Option<&VirtualMachineInstance>) {
        let Some(neighbours) = &mut self.neighbours else { return };
        let there = |instance: &&VirtualMachineInstance| {
            !instance.status.node_name.is_empty() && !instance.status.phase.is_final()
        };
        match instance.filter(there) {
            None => neighbours.remove(place),
            Some(instance) => {
                let neighbour = Neighbour {
                    namespace: place.0.clone(),
                    labels: instance.metadata.labels.clone().unwrap_or_default(),
                    node: instance.status.node_name.clone(),
                    share: Demand::of(&instance.spec).requested,
                };
                neighbours.insert(place.clone(), neighbour)
            }
        };
    }

    /// Writes what was found, if it is news; with a node, that is the binding.
    async fn write(
        &mut self,
        place: &Place,
        instance: &Object<VirtualMachineInstance>,
        finding: &Finding,
        node: Option<&Object<Node>>,
    ) -> Result<(), ReconcileError> {
        let status = binding::status_of(&instance.typed.status, finding, self.now());
        if status == instance.typed.status && instance.has_finalizer(FOREGROUND_FINALIZER) {
            return Ok(());
        }
        let mut changed = instance.whole()?;
        changed.data["status"] = json!(status);
        if !instance.has_finalizer(FOREGROUND_FINALIZER) {
            changed.metadata.finalizers.get_or_insert_default().push(FOREGROUND_FINALIZER.into());
        }
        if let Some(node) = node {
            let labels = changed.metadata.labels.get_or_insert_default();
            labels.insert(NODE_NAME_LABEL.into(), node.name().to_owned());
            // The machines of guest clusters read their place from their instance.
            if topology::is_told(changed.metadata.labels.as_ref()) {
                let of_node = node.metadata().labels.as_ref();
                let annotations = changed.metadata.annotations.get_or_insert_default();
                for (key, value) in topology::changes(of_node, Some(annotations)) {
                    match value {
                        Some(value) => annotations.insert(key.to_owned(), value),
                        None => annotations.remove(key),
                    };
                }
            }
        }
        instance.write(&changed).await?;
        self.take_note(place, Some(&VirtualMachineInstance { status, ..(*instance.typed).clone() }));
        if let Some((sort, reason, message)) = finding.event() {
            tell(&self.context, COMPONENT, instance, (sort, reason, &message), How::Once).await;
        }
        Ok(())
    }

    /// An instance that is told to go and never had a node has nobody else to let go of it.
    async fn let_go(&self, instance: &Object<VirtualMachineInstance>) -> Result<(), ReconcileError> {
        if !instance.has_finalizer(FOREGROUND_FINALIZER) && instance.typed.status.phase.is_final() {
            return Ok(());
        }
        let mut changed = instance.whole()?;
        if !instance.typed.status.phase.is_final() {
            changed.data["status"] = json!(binding::never_started(&instance.typed.status, self.now()));
        }
        let finalizers = changed.metadata.finalizers.get_or_insert_default();
        finalizers.retain(|finalizer| finalizer != FOREGROUND_FINALIZER);
        instance.write(&changed).await
    }

    fn is_new(&self, instance: &Object<VirtualMachineInstance>) -> bool {
        let made = instance.metadata().creation_timestamp.as_ref().map(|made| made.0.as_second());
        let age = self.context.world.clock.now().as_second() - made.unwrap_or(i64::MIN / 2);
        (0..SAYS_THAT_IT_WAITS_AFTER.as_secs()).contains(&u64::try_from(age).unwrap_or(u64::MAX))
    }

    fn now(&self) -> Option<Time> {
        Timestamp::from_second(self.context.world.clock.now().as_second()).ok().map(Time)
    }
}

fn is_placed(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.node_affinity.is_some())
}
