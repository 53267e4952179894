//! Shows which links this node has, and makes the uplinks that cluster networks are to have here.
//!
//! ```text
//!   API --watch--> monitors, configurations --+
//!   the kernel --a link changed---------------+--> look (kernel) -> monitors' status
//!   the clock --------------------------------+                  -> decide (planner) -> act (network) -> status, labels
//! ```
//!
//! Everything is looked at together: there are few of each. What is on the host is found there; all that is kept in memory
//! is when something last went wrong, so that it is not tried without end, and what the kernel can do. By which NICs the node
//! is reached, or was, is written on the Node before any of them could be taken for something else.
//! Stopped at any point, the next pass carries on with what it finds.

mod monitors;
mod uplinks;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Client,
    api::{ListParams, Patch},
};
use serde_json::{Value, json};
use sheaf_client::{
    api,
    objects::Objects,
    watching::{self, NOTICES, Watched},
};
use sheaf_network::{
    NetworkNames,
    interfaces::{self, Changes, Interface},
    uplinks::{KernelAbilities, Uplinks},
};
use sheaf_planner::{
    link::{Bond, Link, own_links},
    uplink::{OWN_NICS_ANNOTATION, Wish},
};
use sheaf_resources::kinds::{
    link_monitor::{LINK_MONITORS, LinkMonitor},
    vlan_config::{GROUP, VLAN_CONFIGS, VlanConfig},
    vlan_status::{NODE_LABEL, VLAN_STATUSES, VlanStatus},
};
use sheaf_world::World;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use crate::virtual_machine_instance::with_causes;

/// How often everything is looked at when nothing happens.
const MEND_EVERY: Duration = Duration::from_secs(60);
/// How soon what the API would not do is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Links change in bursts; so long one is waited for.
const GATHER: Duration = Duration::from_millis(300);

#[derive(Debug, thiserror::Error)]
enum LinksError {
    #[error("the API refused or failed")]
    Api(#[from] kube::Error),
    #[error("the links of this node cannot be looked at")]
    Look(#[from] sheaf_network::LinkError),
    #[error(
        "the annotation {OWN_NICS_ANNOTATION} of this node cannot be read, so nobody knows which NICs are its own: mend it or \
         remove it; no uplink is touched meanwhile"
    )]
    OwnNics(#[source] serde_json::Error),
}

/// Runs until dropped, which leaves everything on the host as it is.
pub async fn run(client: Client, world: World, node: String, names: NetworkNames) {
    let (tell, mut notices) = mpsc::channel(NOTICES);
    let mut watches = JoinSet::new();
    let of_network = |kind: &str, plural: &str| Watched::all(api::built_in(GROUP, "v1beta1", kind, plural));
    let own_node = Watched::only(api::built_in("", "v1", "Node", "nodes"), &format!("metadata.name={node}"));
    let followed = [
        of_network("VlanConfig", VLAN_CONFIGS),
        of_network("VlanStatus", VLAN_STATUSES),
        of_network("LinkMonitor", LINK_MONITORS),
        own_node,
    ];
    for (number, watched) in followed.into_iter().enumerate() {
        watches.spawn(watching::follow(client.clone(), watched, number, tell.clone()));
    }
    let mut keeper = Keeper::new(client, world, node, &names);
    let mut changes = None;
    let mut again = tokio::time::interval(MEND_EVERY);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if changes.is_none() {
            changes = follow_changes();
        }
        tokio::select! {
            biased;
            Some(_) = notices.recv() => {}
            told = next_change(&mut changes) => {
                if !told {
                    changes = None;
                }
            }
            _ = again.tick() => keeper.forget_troubles(),
        }
        // What comes together is looked at together.
        tokio::time::sleep(GATHER).await;
        while notices.try_recv().is_ok() {}
        if let Err(why) = keeper.pass().await {
            let is_race =
                matches!(&why, LinksError::Api(why) if api::is_conflict(why) || api::is_not_found(why));
            if !is_race {
                tracing::warn!(why = with_causes(&why), "what is said of this node's links may be old");
            }
            again.reset_after(TRY_AGAIN);
        }
    }
}

/// Without it the clock still tells.
fn follow_changes() -> Option<Changes> {
    Changes::follow()
        .inspect_err(|why| {
            tracing::warn!(why = with_causes(why), "the kernel does not tell when links change")
        })
        .ok()
}

async fn next_change(changes: &mut Option<Changes>) -> bool {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// What went wrong, for which wish, and when.
struct Failed {
    wish: Wish,
    why: String,
    at: Instant,
}

struct Keeper {
    node: String,
    world: World,
    nodes: Objects<Node>,
    monitors: Objects<LinkMonitor>,
    configs: Objects<VlanConfig>,
    statuses: Objects<VlanStatus>,
    uplinks: Uplinks,
    /// None until somebody wants an uplink.
    abilities: Option<KernelAbilities>,
    failed: BTreeMap<String, Failed>,
    /// NICs that did not do what they were told, what went wrong, and when.
    troubles: BTreeMap<String, (String, Instant)>,
    /// NICs by which the node is or was reached, and why that is known.
    own_nics: BTreeMap<String, String>,
}

impl Keeper {
    fn new(client: Client, world: World, node: String, names: &NetworkNames) -> Keeper {
        Keeper {
            node,
            world,
            nodes: Objects::all(client.clone()),
            monitors: Objects::all(client.clone()),
            configs: Objects::all(client.clone()),
            statuses: Objects::all(client),
            uplinks: Uplinks::of(names),
            abilities: None,
            failed: BTreeMap::new(),
            troubles: BTreeMap::new(),
            own_nics: BTreeMap::new(),
        }
    }

    /// Somebody may have loaded a module meanwhile.
    fn forget_troubles(&mut self) {
        self.abilities = self.abilities.filter(|found| found.bonding && found.vlan_filtering);
    }

    /// Looks at everything once and acts.
    async fn pass(&mut self) -> Result<(), LinksError> {
        let node = self.nodes.get(&self.node).await?;
        self.remember_own_nics(&node).await?;
        let labels = node.metadata.labels.unwrap_or_default();
        let everything = ListParams::default();
        let configs = self.configs.list(&everything).await?.items;
        let own = everything.clone().labels(&format!("{NODE_LABEL}={}", self.node));
        let statuses = self.statuses.list(&own).await?.items;
        self.keep_uplinks(&configs, statuses, &labels).await?;
        // Afterwards, so that they show what was just made.
        let links = self.look().await?;
        for monitor in self.monitors.list(&everything).await?.items {
            self.show_links(&monitor, &labels, &links).await?;
        }
        Ok(())
    }

    async fn look(&self) -> Result<Vec<Link>, LinksError> {
        let found = interfaces::look().await?;
        let mut links: Vec<Link> =
            found.into_iter().map(|found| in_planner_words(&self.uplinks, found)).collect();
        for link in &mut links {
            link.own = self.own_nics.get(&link.name).cloned();
            let trouble = self.troubles.get(&link.name).filter(|(_, at)| at.elapsed() < uplinks::LET_BE);
            link.trouble = trouble.map(|(why, _)| why.clone());
        }
        Ok(links)
    }

    /// What a NIC is to the node may not be seen when it counts: a link that flaps has no route, and a lease that ran out leaves
    /// no address. So it is written down when it is seen, and only a person takes it back.
    async fn remember_own_nics(&mut self, node: &Node) -> Result<(), LinksError> {
        let known = node.metadata.annotations.as_ref().and_then(|all| all.get(OWN_NICS_ANNOTATION));
        let mut known: BTreeMap<String, String> = match known {
            Some(text) => serde_json::from_str(text).map_err(LinksError::OwnNics)?,
            None => BTreeMap::new(),
        };
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses: Vec<IpAddr> = addresses.filter_map(|one| one.address.parse().ok()).collect();
        // Without what was remembered, which must not be what it is remembered by.
        self.own_nics.clear();
        let links = self.look().await?;
        let mut is_new = false;
        for (name, why) in own_links(&links, &addresses) {
            let is_nic =
                links.iter().any(|link| link.name == name && link.kind != "bridge" && link.kind != "bond");
            if is_nic && !known.contains_key(&name) {
                tracing::info!(
                    nic = name,
                    why,
                    "this NIC is the node's own, and no uplink will be made of it"
                );
                known.insert(name, why);
                is_new = true;
            }
        }
        if is_new {
            let text = serde_json::to_string(&known).unwrap_or_default();
            let change = Patch::Merge(json!({"metadata": {"annotations": {OWN_NICS_ANNOTATION: text}}}));
            self.nodes.patch(&self.node, &api::patching(), &change).await?;
        }
        self.own_nics = known;
        Ok(())
    }

    /// Writes those labels of this node that differ; a null takes one away.
    async fn write_labels(&self, labels: Value) -> Result<(), LinksError> {
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
            self.nodes.patch(&self.node, &api::patching(), &change).await?;
        }
        Ok(())
    }
}

fn in_planner_words(uplinks: &Uplinks, found: Interface) -> Link {
    Link {
        ours: uplinks.made_for(&found).is_some(),
        index: found.index,
        kind: found.kind,
        mac: found.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        mtu: found.mtu,
        on: found.on,
        running: found.running,
        promiscuous: found.promiscuous,
        loopback: found.loopback,
        controller: found.controller,
        below: found.below,
        addresses: found.addresses,
        default_route: found.default_route,
        own: None,
        trouble: None,
        vlan_filtering: found.vlan_filtering,
        bond: found.bond.map(|(mode, miimon)| Bond { mode, miimon }),
        name: found.name,
    }
}
