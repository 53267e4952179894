//! One tap per NIC: made, handed over as a descriptor, found again, removed.
//!
//! A tap is persistent, so it outlives whoever opened it: QEMU keeps its descriptor when
//! Sheaf restarts, and a machine that starts again finds the tap it had. It belongs to
//! the user its machine runs as, and it speaks the virtio header, so that checksums and
//! segmentation are left to the receiving end; QEMU sets the header's size and which
//! offloads the guest can take, each time it starts.
//!
//! A tap's label (`ip link` shows it as `alias`) says in full whose it is. Its name is
//! only a digest of that: a tap whose name fits but whose label names another NIC is
//! refused, never shared. A tap without a label is one whose making was cut short.
//!
//! Only one process at a time holds a tap; opening one that is held says so.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use rtnetlink::LinkUnspec;
use rustix::io::Errno;
use tokio_tun::TunBuilder;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::{
    bridge::{self, BridgeError},
    config::NetworkConfig,
    forwarding::{self, SysctlError},
    links::{Kind, Link, LinkError, Links},
    names::InterfaceName,
    port::{NicId, Port, WhyRefused},
    segment,
    step::{AfterStep, Step},
};

/// A tap of ours on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTap {
    pub name: InterfaceName,
    /// Whose it is; none if its making was cut short, and then nobody uses it.
    pub id: Option<NicId>,
}

const HELD_TRIES: u32 = 30;
const HELD_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum TapError {
    #[error("{id} cannot be on this network")]
    Refused {
        id: NicId,
        #[source]
        source: WhyRefused,
    },
    #[error("the tap {tap} of {id} is held by another process")]
    Held { id: NicId, tap: String },
    #[error("cannot open the tap {tap} of {id}")]
    Open {
        id: NicId,
        tap: String,
        #[source]
        source: io::Error,
    },
    #[error("the interface {tap}, whose name is that of the tap of {id}, is something else: {found}")]
    NameTaken { id: NicId, tap: String, found: String },
    #[error("the bridge {bridge} for {id} is not there yet")]
    NoBridge { id: NicId, bridge: String },
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
}

/// Makes the tap of a port if there is none, puts it on its bridge, and opens it.
pub(crate) async fn open(
    config: &NetworkConfig,
    port: &Port,
    after: &AfterStep,
) -> Result<OwnedFd, TapError> {
    let refused = |source| TapError::Refused { id: port.id.clone(), source };
    crate::port::can_be(config, port).map_err(refused)?;
    let bridge_name = segment::bridge_of(config, &port.bridge)
        .ok_or_else(|| refused(WhyRefused::NoSuchNetwork { bridge: port.bridge.clone() }))?;
    let name = config.names.tap_prefix.tap_of(&port.id.machine, port.id.nic);
    let label = label_of(config, &port.id);

    let links = Links::open()?;
    let Some(bridge) = bridge::find(&links, bridge_name).await? else {
        return Err(TapError::NoBridge { id: port.id.clone(), bridge: bridge_name.to_string() });
    };
    let before = links.find(name.as_str()).await?;
    if let Some(found) = before.as_ref().and_then(|link| not_the_tap(link, &label)) {
        return Err(TapError::NameTaken { id: port.id.clone(), tap: name.to_string(), found });
    }
    let opened = {
        let (name, owner) = (name.to_string(), port.owner_uid);
        tokio::task::spawn_blocking(move || open_patiently(&name, owner)).await
    };
    let failed = |source: io::Error| {
        let (id, tap) = (port.id.clone(), name.to_string());
        match source.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
            true => TapError::Held { id, tap },
            false => TapError::Open { id, tap, source },
        }
    };
    let device = opened.map_err(|why| failed(io::Error::other(why)))?.map_err(failed)?;
    if before.is_none() {
        after.took(Step::CreateTap);
    }
    if forwarding::silence_ipv6(&name)? {
        after.took(Step::SilenceTap);
    }
    let is_as_wanted = before.is_some_and(|link| {
        link.alias.as_ref() == Some(&label)
            && link.controller == Some(bridge.index)
            && link.mtu == u32::from(config.mtu)
            && link.up
    });
    if !is_as_wanted {
        let message = LinkUnspec::new_with_name(name.as_str())
            .alias(label)
            .mtu(u32::from(config.mtu))
            .controller(bridge.index)
            .up()
            .build();
        links.change(name.as_str(), message).await?;
        after.took(Step::AttachTap);
    }
    device.as_fd().try_clone_to_owned().map_err(failed)
}

/// Every tap of this instance on the host.
pub(crate) async fn found(config: &NetworkConfig) -> Result<Vec<FoundTap>, LinkError> {
    let all = Links::open()?.all().await?;
    let mut taps: Vec<_> = all.into_iter().filter_map(|link| recognise(config, link)).collect();
    taps.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(taps)
}

/// Puts every tap of this instance back on the bridge, in case somebody removed the
/// bridge or took a tap off it. What has no label is not in use and waits for `open`.
pub(crate) async fn reattach(
    links: &Links,
    config: &NetworkConfig,
    bridge: u32,
    after: &AfterStep,
) -> Result<(), LinkError> {
    for link in links.all().await? {
        let is_off = link.controller != Some(bridge) || !link.up;
        let labelled = link.alias.is_some();
        let (index, name) = (link.index, link.name.clone());
        if is_off && labelled && recognise(config, link).is_some() {
            let message = LinkUnspec::new_with_index(index).controller(bridge).up().build();
            links.change(&name, message).await?;
            after.took(Step::AttachTap);
        }
    }
    Ok(())
}

/// Removes a tap, also under a machine that uses it. One that is gone is as good.
pub(crate) async fn remove(name: &InterfaceName, after: &AfterStep) -> Result<(), LinkError> {
    let links = Links::open()?;
    if let Some(link) = links.find(name.as_str()).await? {
        links.remove(&link).await?;
        after.took(Step::RemoveTap);
    }
    Ok(())
}

/// A descriptor that was closed a moment ago may live on for an instant, in a process that somebody is starting
/// and that has not begun its own program yet. So a tap counts as held only when it stays so.
fn open_patiently(name: &str, owner: u32) -> io::Result<SyncDevice> {
    let mut tries = 0;
    loop {
        match open_device(name, owner) {
            Err(why) if why.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && tries < HELD_TRIES => {
                tries += 1;
                std::thread::sleep(HELD_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Makes the tap if need be, and opens it. Until it is made persistent, by when it has
/// its owner, it vanishes with its descriptor; a crash in between leaves nothing.
fn open_device(name: &str, owner: u32) -> io::Result<SyncDevice> {
    let owner = i32::from_ne_bytes(owner.to_ne_bytes());
    let made = TunBuilder::new().name(name).tap().owner(owner).persist().close_on_exec().build();
    drop(made.map_err(|why| match why {
        tokio_tun::Error::IoError(source) => source,
        tokio_tun::Error::NixError(errno) => errno.into(),
    })?);
    DeviceBuilder::new().name(name).layer(Layer::L2).offload(true).inherit_enable_state().build_sync()
}

fn label_of(config: &NetworkConfig, id: &NicId) -> String {
    format!("{} {} {}", config.names.bridge, id.machine, id.nic)
}

/// What an interface is, if it is not the tap with this label.
fn not_the_tap(link: &Link, label: &str) -> Option<String> {
    match (&link.alias, link.kind) {
        (_, Kind::Bridge | Kind::Other) => Some("an interface of another kind".to_owned()),
        (Some(alias), Kind::Tap) if alias != label => Some(format!("a tap labelled {alias:?}")),
        (_, Kind::Tap) => None,
    }
}

fn recognise(config: &NetworkConfig, link: Link) -> Option<FoundTap> {
    let is_ours = link.kind == Kind::Tap && config.names.tap_prefix.covers(&link.name);
    let name = InterfaceName::new(link.name).ok().filter(|_| is_ours)?;
    let Some(alias) = link.alias else { return Some(FoundTap { name, id: None }) };
    let mut words = alias.split(' ');
    // Another instance may, against all odds, have the same prefix.
    if words.next() != Some(config.names.bridge.as_str()) {
        return None;
    }
    let (machine, nic) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    Some(FoundTap { name, id: Some(NicId { machine, nic }) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NetworkNames;

    fn config() -> NetworkConfig {
        NetworkConfig::new(NetworkNames::plain(), "10.52.0.0/16".parse().unwrap()).unwrap()
    }

    fn link(name: &str, kind: Kind, alias: Option<&str>) -> Link {
        Link {
            index: 7,
            name: name.to_owned(),
            kind,
            mac: None,
            mtu: 1500,
            up: true,
            controller: None,
            alias: alias.map(str::to_owned),
        }
    }

    #[test]
    fn whose_a_tap_is_can_be_read_off_the_host() {
        let id = NicId { machine: "default/web".to_owned(), nic: 3 };
        let name = config().names.tap_prefix.tap_of(&id.machine, id.nic);
        let label = label_of(&config(), &id);
        let found = recognise(&config(), link(name.as_str(), Kind::Tap, Some(&label))).unwrap();
        assert_eq!(found, FoundTap { name, id: Some(id) });
    }

    #[test]
    fn a_tap_whose_making_was_cut_short_is_found_as_nobodys() {
        let found = recognise(&config(), link("vmnic-abcdefghi", Kind::Tap, None)).unwrap();
        assert_eq!(found.id, None);
    }

    #[test]
    fn what_is_not_a_tap_of_this_instance_is_left_alone() {
        for other in [
            link("vmnic-abcdefghi", Kind::Other, None),
            link("vmnic-abcdefghi", Kind::Tap, Some("sheaf1 default/web 0")),
            link("tap0", Kind::Tap, None),
            link("vother-abcdefgh", Kind::Tap, None),
        ] {
            assert_eq!(recognise(&config(), other.clone()), None, "{other:?}");
        }
    }

    #[test]
    fn a_tap_of_another_nic_is_never_shared() {
        let label = label_of(&config(), &NicId { machine: "default/web".to_owned(), nic: 0 });
        let other = link("vmnic-abcdefghi", Kind::Tap, Some("sheaf0 default/db 0"));
        assert!(not_the_tap(&other, &label).unwrap().contains("default/db"));
        assert_eq!(not_the_tap(&link("vmnic-abcdefghi", Kind::Tap, Some(&label)), &label), None);
        assert_eq!(not_the_tap(&link("vmnic-abcdefghi", Kind::Tap, None), &label), None);
        assert!(not_the_tap(&link("vmnic-abcdefghi", Kind::Other, None), &label).is_some());
    }
}
