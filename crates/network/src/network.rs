//! The front: one host's network, in whole verbs.
//!
//! Everything it does is idempotent and looks at the host first, so each call can be
//! repeated, by the clock or after a crash. What it keeps in memory is what it was told
//! ([`Network::set_ports`], [`Network::set_names`]); what it did is in the kernel.
//!
//! A fresh start knows no ports yet, but machines may be running. So until the first
//! `set_ports` the rules that are in the kernel stay as they are, and guests go on
//! talking; only if there are none are all taps shut.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::Future,
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::Arc,
};

use tokio::sync::{Mutex, watch};

use crate::{
    balancing::{self, Balanced, BalancingError, Reach},
    bridge::{self, BridgeError},
    config::{ConfigError, NetworkConfig},
    dhcp::{self, Leases},
    dns::{self, Zone},
    firewall::{self, PortRules, SegmentRules},
    forwarding::{self, SysctlError},
    links::{LinkError, Links},
    names::InterfaceName,
    nft::{self, NftError},
    port::{self, NicId, Port, RefusedPort},
    step::{AfterStep, Step},
    tap::{self, FoundTap, TapError},
};

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    #[error(transparent)]
    Rules(#[from] NftError),
    #[error(transparent)]
    Balancing(#[from] BalancingError),
}

/// The addresses of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    pub own: BTreeSet<Ipv4Addr>,
    /// Those of load balancers.
    pub held: BTreeSet<Ipv4Addr>,
}

/// The network of the virtual machines on this host.
#[derive(Debug)]
pub struct Network {
    config: NetworkConfig,
    after: AfterStep,
    /// What was asked for; none until it was. Held while rules are swapped, so that an
    /// older set never replaces a newer one.
    ports: Mutex<Option<Vec<Port>>>,
    /// Held while load balancers are set, so that an older set never replaces a newer one.
    balancing: Mutex<()>,
    leases: watch::Sender<Arc<Leases>>,
    zone: watch::Sender<Arc<Zone>>,
    /// The bridge's index, by which servers notice that it was replaced.
    bridge: watch::Sender<Option<u32>>,
}

impl Network {
    /// Touches nothing yet.
    pub fn new(config: NetworkConfig) -> Result<Network, ConfigError> {
        config.check()?;
        let zone = Zone::new(&config.domain, config.cidr)
            .ok_or_else(|| ConfigError::NotADomain { domain: config.domain.clone() })?;
        Ok(Network {
            config,
            after: AfterStep::default(),
            ports: Mutex::new(None),
            balancing: Mutex::default(),
            leases: watch::Sender::default(),
            zone: watch::Sender::new(Arc::new(zone)),
            bridge: watch::Sender::new(None),
        })
    }

    /// The same network, calling `hook` after each step it takes.
    pub fn after_step(mut self, hook: AfterStep) -> Network {
        self.after = hook;
        self
    }

    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// Brings the host to the shape it should have, whatever shape it is in: forwarding,
    /// bridge, rules, and taps on their bridge. Meant to be called again by the clock.
    pub async fn ensure(&self) -> Result<(), NetworkError> {
        let ports = self.ports.lock().await;
        // Rules first: at no moment is there a way out that is not watched.
        match &*ports {
            Some(ports) => self.swap_rules(ports).await?,
            None if nft::has(&self.config.names.table).await? => (),
            None => self.swap_rules(&[]).await?,
        }
        if forwarding::allow()? {
            self.after.took(Step::AllowForwarding);
        }
        let links = Links::open()?;
        let index = bridge::ensure(&links, &self.config, &self.after).await?;
        tap::reattach(&links, &self.config, index, &self.after).await?;
        self.bridge.send_if_modified(|known| known.replace(index) != Some(index));
        Ok(())
    }

    /// Says which NICs there are: their rules and leases, all in one go, in place of
    /// those before. A port that cannot be is left out and comes back with the reason.
    pub async fn set_ports(&self, wanted: &[Port]) -> Result<Vec<RefusedPort>, NetworkError> {
        let (admitted, refused) = port::admit(&self.config, wanted);
        let mut ports = self.ports.lock().await;
        // Kept even if the rules cannot be swapped now: `ensure` tries again.
        let ports = ports.insert(admitted);
        self.swap_rules(ports).await?;
        // After the rules, so that nobody is given an address it may not use yet.
        self.leases.send_replace(Arc::new(Leases::of(ports)));
        Ok(refused)
    }

    /// Says which names there are, in place of those before: each without the domain
    /// (`web.default`), with its address. Machines on other nodes have names too, so
    /// these are not taken from the ports.
    pub fn set_names<'a>(&self, names: impl IntoIterator<Item = (&'a str, Ipv4Addr)>) {
        let zone = self.zone.borrow().with(names);
        self.zone.send_replace(Arc::new(zone));
    }

    /// Says which addresses lead to which guests, in place of those before; how each can be reached. Until it is said, what
    /// is on the host from before stays as it is.
    pub async fn set_balanced(
        &self,
        wanted: &[Balanced],
    ) -> Result<BTreeMap<Ipv4Addr, Reach>, BalancingError> {
        let _turn = self.balancing.lock().await;
        balancing::set(&self.config, wanted, &self.after).await
    }

    /// The addresses of this host that no load balancer brought, and those that one did.
    pub async fn addresses(&self) -> Result<HostAddresses, BalancingError> {
        let links = Links::open()?;
        let held = balancing::holding::held(&links, &self.config).await?;
        let all = links.all_addresses().await?;
        let holder = links.find(self.config.names.holder.as_str()).await?.map(|link| link.index);
        let own = all.into_iter().filter(|(index, _, _)| Some(*index) != holder);
        Ok(HostAddresses { own: own.map(|(_, address, _)| address).collect(), held })
    }

    /// The tap of a port, open: made if it is not there, on its bridge, up. Nothing
    /// passes it until `set_ports` has named the port.
    pub async fn open_tap(&self, port: &Port) -> Result<OwnedFd, TapError> {
        tap::open(&self.config, port, &self.after).await
    }

    /// What the tap of a NIC is called, there or not.
    pub fn tap_name(&self, id: &NicId) -> InterfaceName {
        self.config.names.tap_prefix.tap_of(&id.machine, id.nic)
    }

    /// Every tap of this instance on the host, in order of their names.
    pub async fn found_taps(&self) -> Result<Vec<FoundTap>, NetworkError> {
        Ok(tap::found(&self.config).await?)
    }

    /// Removes a tap; one that is gone is as good.
    pub async fn remove_tap(&self, name: &InterfaceName) -> Result<(), NetworkError> {
        Ok(tap::remove(name, &self.after).await?)
    }

    /// Takes everything of this instance off the host, also under running machines.
    /// Forwarding stays on: somebody else may rely on it by now.
    pub async fn remove_everything(&self) -> Result<(), NetworkError> {
        let mut ports = self.ports.lock().await;
        self.bridge.send_replace(None);
        self.leases.send_replace(Arc::default());
        *ports = None;
        {
            let _turn = self.balancing.lock().await;
            balancing::remove(&self.config, &self.after).await?;
        }
        for tap in tap::found(&self.config).await? {
            tap::remove(&tap.name, &self.after).await?;
        }
        bridge::remove(&Links::open()?, &self.config.names.bridge, &self.after).await?;
        // Last, so that whatever is left when this is cut short is still shut.
        nft::apply(&firewall::render_removal(&self.config.names.table)).await?;
        self.after.took(Step::RemoveRules);
        Ok(())
    }

    /// Answers DHCP for as long as it is polled, from the newest ports.
    pub fn serve_dhcp(&self) -> impl Future<Output = Infallible> + Send + 'static + use<> {
        dhcp::serve(dhcp::Served {
            bridge: self.config.names.bridge.clone(),
            index: self.bridge.subscribe(),
            leases: self.leases.subscribe(),
            facts: dhcp::Facts::of(&self.config),
        })
    }

    /// Answers DNS for as long as it is polled, from the newest names.
    pub fn serve_dns(&self) -> impl Future<Output = Infallible> + Send + 'static + use<> {
        dns::serve(dns::Served {
            bridge: self.config.names.bridge.clone(),
            gateway: self.config.gateway,
            index: self.bridge.subscribe(),
            zone: self.zone.subscribe(),
            resolv_conf: self.config.resolv_conf.clone(),
        })
    }

    async fn swap_rules(&self, ports: &[Port]) -> Result<(), NftError> {
        let segment = SegmentRules {
            names: &self.config.names,
            cidr: self.config.cidr,
            gateway: self.config.gateway,
            guests_may_reach: &self.config.guests_may_reach,
        };
        let rules = |port: &Port| PortRules {
            tap: self.tap_name(&port.id),
            mac: port.mac,
            addresses: port.addresses.clone(),
        };
        let ports: Vec<PortRules> = ports.iter().map(rules).collect();
        nft::apply(&firewall::render(&segment, &ports)).await?;
        self.after.took(Step::SwapRules);
        Ok(())
    }
}
