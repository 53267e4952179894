//! Holds the addresses of this node's load balancers, and has connections to them go to machines that are well.
//!
//! ```text
//!   API --watch--> balancers of this node --+
//!   probes --how connecting went------------+--> look (host) -> decide (planner) -> act (network) -> status
//!   the clock ------------------------------+
//! ```
//!
//! All of them are looked at together, since the host's rules are swapped as a whole. Before the first list of the API is
//! complete nothing is touched: what an earlier process set goes on. An address is said in the status before the host holds
//! it, and until the host let go, so that whoever gives addresses away knows. What is on the host is found there; which
//! machines are well is said in the status, where a restart goes on from. One balancer that cannot be read or written holds
//! up no other.
//!
//! A node whose machines have no taps forwards nothing, and lets go of what it held when they had.

mod probing;
mod telling;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sheaf_client::{
    api,
    objects::Objects,
    watching::{self, NOTICES, Noticed, Watched},
};
use sheaf_network::{Balanced, BalancingError, HostAddresses, Listener, Protocol, Reach};
use sheaf_planner::load_balancer::{
    forwarding::{self, Host, Outcome, Wish},
    health::Health,
};
use sheaf_resources::kinds::{ip_pool::Cidr, load_balancer::LoadBalancer};
use tokio::sync::mpsc;

use self::{
    probing::{Probes, Told},
    telling::Telling,
};
use crate::{
    step::Step,
    virtual_machine_instance::{Hands, with_causes},
};

/// How often the host is looked at when nothing happens.
const MEND_EVERY: Duration = Duration::from_secs(60);
/// How soon what went wrong is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// So many rounds of status written over by others mean that somebody undoes them.
const MOST_ROUNDS: usize = 8;

type Place = (String, String);

/// Runs until dropped, which leaves everything on the host as it is.
pub async fn run(hands: Arc<Hands>) {
    let (tell, mut notices) = mpsc::channel(NOTICES);
    let kind = api::built_in("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer", "loadbalancers");
    let own = Watched::only(kind, &format!("status.nodeName={}", hands.node));
    let mut following = std::pin::pin!(watching::follow(hands.client.clone(), own, 0, tell));
    let (outcomes, mut told) = mpsc::channel(NOTICES);
    let mut keeper = Keeper::new(hands, outcomes);
    let mut again = tokio::time::interval(MEND_EVERY);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Some(notice) = notices.recv() => {
                keeper.hear(notice.noticed);
                // What comes together is looked at together.
                while let Ok(notice) = notices.try_recv() {
                    keeper.hear(notice.noticed);
                }
            }
            Some(outcome) = told.recv() => {
                let mut is_other = keeper.learn(outcome).await;
                // However many servers come or go at once, the rules are swapped once.
                while let Ok(outcome) = told.try_recv() {
                    is_other |= keeper.learn(outcome).await;
                }
                if !is_other {
                    continue;
                }
            }
            _ = again.tick() => {
                keeper.applied = None;
                keeper.telling.catch_up(&keeper.hands, &keeper.balancers).await;
            }
            () = &mut following => return,
        }
        if !keeper.pass().await {
            again.reset_after(TRY_AGAIN);
        }
    }
}

struct Keeper {
    hands: Arc<Hands>,
    /// Those of this node, as last read.
    balancers: BTreeMap<Place, LoadBalancer>,
    /// Those to be read again.
    changed: BTreeSet<Place>,
    /// Those that could not be read or written, and are tried again after a while.
    late: BTreeSet<Place>,
    /// Those of the list that is under way.
    listing: Option<BTreeSet<Place>>,
    /// Whether all of them were heard of.
    is_complete: bool,
    probes: Probes,
    /// Those whose servers this process has begun to look at.
    begun: BTreeSet<Place>,
    telling: Telling,
    /// What the network was told last; none if it is to be told again.
    applied: Option<Vec<Balanced>>,
    reach: BTreeMap<Ipv4Addr, Reach>,
}

impl Keeper {
    fn new(hands: Arc<Hands>, outcomes: mpsc::Sender<Told>) -> Keeper {
        Keeper {
            hands,
            balancers: BTreeMap::new(),
            changed: BTreeSet::new(),
            late: BTreeSet::new(),
            listing: None,
            is_complete: false,
            probes: Probes::new(outcomes),
            begun: BTreeSet::new(),
            telling: Telling::default(),
            applied: None,
            reach: BTreeMap::new(),
        }
    }

    fn hear(&mut self, noticed: Noticed) {
        match noticed {
            Noticed::Began => self.listing = Some(BTreeSet::new()),
            Noticed::Seen(metadata) => {
                let place = place_of(&metadata);
                if let Some(listing) = &mut self.listing {
                    listing.insert(place.clone());
                }
                self.changed.insert(place);
            }
            Noticed::Gone(metadata) => {
                let place = place_of(&metadata);
                self.changed.remove(&place);
                self.late.remove(&place);
                self.balancers.remove(&place);
            }
            Noticed::Listed => {
                if let Some(listed) = self.listing.take() {
                    self.balancers.retain(|place, _| listed.contains(place));
                    self.late.retain(|place| listed.contains(place));
                    self.is_complete = true;
                }
            }
            Noticed::Failed => self.listing = None,
        }
    }

    /// Takes note of how a probe went; whether that changes anything.
    async fn learn(&mut self, told: Told) -> bool {
        let Some((place, address, is_well)) = self.probes.learn(&told) else { return false };
        if let Some(balancer) = self.balancers.get(&place) {
            self.telling.tell(&self.hands, balancer, (place, address, is_well)).await;
        }
        true
    }

    /// Looks at everything and acts until nothing is left to do; whether it came to that.
    async fn pass(&mut self) -> bool {
        self.changed.append(&mut self.late);
        for _ in 0..MOST_ROUNDS {
            if !self.read_changed().await {
                return false;
            }
            if !self.is_complete {
                return self.late.is_empty();
            }
            if self.balancers.is_empty() && !self.hands.abilities.taps {
                // What is not there is not let go of, nor is it looked for where it may not be seen.
                return self.late.is_empty();
            }
            match self.round().await {
                Ok(()) if self.changed.is_empty() => return self.late.is_empty(),
                Ok(()) => {}
                Err(why) => {
                    tracing::warn!(why = with_causes(&why), "load balancers are not as they should be");
                    self.applied = None;
                    self.report_failure(&with_causes(&why)).await;
                    return false;
                }
            }
        }
        false
    }

    /// Whether all that is to be known is. One that was read before goes on as it was, and one that nobody could read has
    /// nothing; but as long as it may only be that nobody answers, it may be what the host holds.
    async fn read_changed(&mut self) -> bool {
        while let Some(place) = self.changed.pop_first() {
            let balancers: Objects<LoadBalancer> = Objects::namespaced(self.hands.client.clone(), &place.0);
            match balancers.get(&place.1).await {
                Ok(balancer) => {
                    self.balancers.insert(place, balancer);
                }
                // One that went to another node may not be read any more.
                Err(kube::Error::Api(why)) if why.code == 404 || why.code == 403 => {
                    self.balancers.remove(&place);
                }
                Err(why) => {
                    tracing::warn!(%why, namespace = place.0, name = place.1, "a load balancer cannot be read");
                    let is_nonsense = matches!(why, kube::Error::SerdeError(_));
                    let is_known = is_nonsense || self.balancers.contains_key(&place);
                    self.late.insert(place);
                    if !is_known {
                        return false;
                    }
                }
            }
        }
        true
    }

    async fn round(&mut self) -> Result<(), BalancingError> {
        let wishes = self.wishes().await?;
        // First everything is let go of that is not to be held, then it is said what will be, then it is. Of what could not
        // be said somebody else may have taken the address away: not this time.
        self.set(&forwarding::said(&wishes, &self.balancers)).await?;
        for (place, wish) in &wishes {
            if let Wish::Hold(address) = wish {
                self.report(place, &Outcome::Taking(*address)).await;
            }
        }
        let held = forwarding::said(&wishes, &self.balancers);
        self.set(&held).await?;
        for (place, wish) in &wishes {
            let outcome = match wish {
                Wish::Nothing => Outcome::NotHeld("the address is not held".to_owned()),
                Wish::Refuse(why) => Outcome::NotHeld(why.clone()),
                Wish::Hold(address) if held.contains_key(place) => self.held(place, *address).await?,
                Wish::Hold(_) => continue,
            };
            self.report(place, &outcome).await;
        }
        Ok(())
    }

    async fn wishes(&self) -> Result<BTreeMap<Place, Wish>, BalancingError> {
        let (addresses, guests) = (self.hands.ports.network().addresses().await?, self.guests());
        let host = self.host(&addresses, &guests);
        let mut taken = BTreeSet::new();
        let each = self.balancers.iter().map(|(place, balancer)| {
            let wish = match forwarding::wish(balancer, &host) {
                Wish::Hold(address) if !self.hands.abilities.taps => Wish::Refuse(format!(
                    "node {} does not hold {address}: its machines have no taps",
                    self.hands.node
                )),
                Wish::Hold(address) if !taken.insert(address) => {
                    Wish::Refuse(format!("{address} is that of another load balancer"))
                }
                wish => wish,
            };
            (place.clone(), wish)
        });
        Ok(each.collect())
    }

    fn guests(&self) -> BTreeSet<Ipv4Addr> {
        self.hands.ports.all_addresses().into_iter().collect()
    }

    fn host<'a>(&'a self, addresses: &'a HostAddresses, guests: &'a BTreeSet<Ipv4Addr>) -> Host<'a> {
        let config = self.hands.ports.network().config();
        Host {
            node: &self.hands.node,
            segment: Cidr { network: config.cidr.network(), prefix: config.cidr.prefix_len() },
            gateway: config.gateway,
            own: &addresses.own,
            guests,
        }
    }

    /// Has the host hold these and lead them to machines that are well.
    async fn set(&mut self, held: &BTreeMap<&Place, Ipv4Addr>) -> Result<(), BalancingError> {
        let addresses = self.hands.ports.network().addresses().await?;
        if !self.hands.abilities.taps && held.is_empty() && addresses.held.is_empty() {
            // Such a host may have nothing to set rules with, either.
            return Ok(());
        }
        let guests = self.guests();
        let mut wanted = Vec::new();
        for (place, address) in held {
            let Some(balancer) = self.balancers.get(*place) else { continue };
            let servers = forwarding::backends(&balancer.status, &self.host(&addresses, &guests));
            let is_first = self.begun.insert((*place).clone());
            let known = |server| match is_first {
                true => forwarding::health_of(&balancer.status, server),
                false => Health::Unknown,
            };
            self.probes.keep(place, balancer.spec.probe(), &servers, known);
            let well = servers.into_iter().filter(|server| self.probes.is_well(place, *server));
            let listeners = balancer.spec.listeners.iter().filter_map(listener_of).collect();
            wanted.push(Balanced { address: *address, listeners, guests: well.collect() });
        }
        self.probes.retain(|place| held.contains_key(place));
        self.begun.retain(|place| held.contains_key(place));
        self.telling.retain(&held.keys().copied().collect());
        if self.applied.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.applied = None;
        self.reach = self.hands.ports.network().set_balanced(&wanted).await?;
        self.applied = Some(wanted);
        Ok(())
    }

    async fn held(&self, place: &Place, address: Ipv4Addr) -> Result<Outcome, BalancingError> {
        let addresses = self.hands.ports.network().addresses().await?;
        let guests = self.guests();
        let status = self.balancers.get(place).map(|balancer| &balancer.status);
        let servers = status.map(|status| forwarding::backends(status, &self.host(&addresses, &guests)));
        let servers = servers.unwrap_or_default();
        let of = servers.len();
        let unwell = servers.into_iter().filter(|server| !self.probes.is_well(place, *server)).collect();
        let announced = self.reach.get(&address) == Some(&Reach::Network);
        Ok(Outcome::Held { address, unwell, of, announced })
    }

    async fn report_failure(&mut self, why: &str) {
        let failed = Outcome::Failed(format!("node {} does not forward: {why}", self.hands.node));
        let places: Vec<Place> = self.balancers.keys().cloned().collect();
        for place in places {
            self.report(&place, &failed).await;
        }
    }

    /// Writes what there is to say; whether it is said. What somebody else wrote meanwhile is read again first.
    async fn report(&mut self, place: &Place, outcome: &Outcome) -> bool {
        let Some(balancer) = self.balancers.get(place) else { return true };
        let status = forwarding::status(balancer, outcome, &self.hands.world.clock.rfc3339());
        if status == balancer.status {
            return true;
        }
        let change = json!({
            "metadata": {"uid": balancer.metadata.uid, "resourceVersion": balancer.metadata.resource_version},
            "status": {
                "address": Some(&status.address).filter(|address| !address.is_empty()),
                "unhealthyServers": Some(&status.unhealthy_servers).filter(|servers| !servers.is_empty()),
                "conditions": status.conditions,
            },
        });
        let balancers: Objects<LoadBalancer> = Objects::namespaced(self.hands.client.clone(), &place.0);
        match balancers.patch(&place.1, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(written) => {
                self.hands.after.took(Step::WriteStatus);
                self.balancers.insert(place.clone(), written);
                true
            }
            Err(why) => {
                match api::is_conflict(&why) || api::is_not_found(&why) {
                    true => self.changed.insert(place.clone()),
                    false => {
                        let (namespace, name) = (&place.0, &place.1);
                        tracing::warn!(%why, namespace, name, "a load balancer's status cannot be written");
                        self.late.insert(place.clone())
                    }
                };
                false
            }
        }
    }
}

fn listener_of(listener: &sheaf_resources::kinds::load_balancer::Listener) -> Option<Listener> {
    let protocol = match listener.protocol.as_str() {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        _ => return None,
    };
    let port = |port: i32| u16::try_from(port).ok().filter(|port| *port != 0);
    Some(Listener { protocol, port: port(listener.port)?, guest_port: port(listener.backend_port)? })
}

fn place_of(metadata: &ObjectMeta) -> Place {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}
