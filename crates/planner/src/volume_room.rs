//! Decides whether a node's disk has room for another promise.
//!
//! ```text
//!   what a node gives to volumes  x  overcommit-config's storage percent  =  what may be promised there
//!   what may be promised  -  the sizes of the volumes that are on it      =  what is left
//! ```
//!
//! - A volume counts with its whole size, however little of it was ever written, until its object is gone: its bytes are
//!   there for as long.
//! - A volume that nobody has used yet is on no node. It counts against all of them together, and there is a node that it
//!   fits on as a whole; which one is settled when it is placed.
//! - A node that does not say what it gives is promised whatever is asked: nobody is refused on a guess. What stands
//!   behind a promise that was too large is the node itself, which stops its guests before the disk is full.
//! - Deliberately absent: images and snapshots, whose sizes nobody asks for beforehand.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use serde_json::Value;
use sheaf_resources::{
    kinds::{
        node::VOLUME_STORAGE,
        persistent_volume::{BACKEND_ATTRIBUTE, LOCAL_BACKEND, node_of},
        storage_class::PROVISIONER,
    },
    quantity,
};

/// So many nodes are told of by name.
const TOLD_NODES: usize = 4;

/// What every node gives to volumes, and what of it is promised. By default nobody said anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    nodes: BTreeMap<String, Room>,
    /// The sizes of the volumes that are on no node yet.
    nowhere_bytes: i64,
    percent: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Room {
    /// What the node gives, if it says so.
    given_bytes: Option<i64>,
    promised_bytes: i64,
}

/// What somebody wants to be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// Where; `None` while that is open.
    pub node: Option<&'a str>,
    /// The size the volume is to have.
    pub bytes: i64,
    /// What of it was promised before.
    pub held_bytes: i64,
}

/// There is no room; the message is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoRoom(pub String);

impl Rooms {
    /// `percent` is what the setting `overcommit-config` says of storage.
    pub fn of<'a>(
        nodes: impl IntoIterator<Item = &'a Node>,
        volumes: impl IntoIterator<Item = &'a PersistentVolume>,
        percent: i64,
    ) -> Self {
        let given = |node: &Node| {
            let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
            quantity::value(&allocatable.get(VOLUME_STORAGE)?.0)
        };
        let nodes = nodes.into_iter().map(|node| {
            let name = node.metadata.name.clone().unwrap_or_default();
            (name, Room { given_bytes: given(node), promised_bytes: 0 })
        });
        let mut rooms = Rooms { nodes: nodes.collect(), nowhere_bytes: 0, percent };
        for volume in volumes {
            let Some(bytes) = promise_of(volume) else { continue };
            let sum = match node_of(volume) {
                // What is on a node that is gone takes no room from the others.
                Some(node) => match rooms.nodes.get_mut(node) {
                    Some(room) => &mut room.promised_bytes,
                    None => continue,
                },
                None => &mut rooms.nowhere_bytes,
            };
            *sum = sum.saturating_add(bytes);
        }
        rooms
    }

    /// Whether this may be promised, beside all that was.
    pub fn check(&self, wish: &Wish<'_>) -> Result<(), NoRoom> {
        let more = wish.bytes.saturating_sub(wish.held_bytes);
        let fits = match wish.node {
            Some(node) => self.left_on(node).is_none_or(|left| more <= left),
            None => {
                let has_room = |room| self.left_of(room).is_none_or(|left| wish.bytes <= left);
                self.nodes.is_empty() || self.nodes.values().any(has_room)
            }
        };
        // What is on no node yet needs its room, too.
        let together = || self.left().is_none_or(|left| more <= left);
        let is_elsewhere = wish.node.is_some_and(|node| !self.nodes.contains_key(node));
        if more <= 0 || is_elsewhere || (fits && together()) { Ok(()) } else { Err(self.no_room(wish, more)) }
    }

    /// What may still be promised on a node for volumes that are counted as being nowhere; `None` when it does not say.
    pub fn left_on(&self, node: &str) -> Option<i64> {
        self.left_of(self.nodes.get(node)?)
    }

    /// The sizes of all volumes on a node.
    pub fn promised_on(&self, node: &str) -> i64 {
        self.nodes.get(node).map_or(0, |room| room.promised_bytes)
    }

    fn left_of(&self, room: &Room) -> Option<i64> {
        Some(self.limit(room.given_bytes?).saturating_sub(room.promised_bytes))
    }

    fn limit(&self, given_bytes: i64) -> i64 {
        let limit = i128::from(given_bytes) * i128::from(self.percent) / 100;
        i64::try_from(limit).unwrap_or(i64::MAX)
    }

    /// On all nodes together, if all of them say. One that has promised too much takes nothing from the others.
    fn left(&self) -> Option<i64> {
        let each = self.nodes.values().map(|room| Some(self.left_of(room)?.max(0)));
        let left = each.reduce(|sum, left| Some(sum?.saturating_add(left?)))??;
        Some(left.saturating_sub(self.nowhere_bytes))
    }

    fn no_room(&self, wish: &Wish<'_>, more: i64) -> NoRoom {
        let asks = match wish.held_bytes {
            0 => format!("asks for {}", up(wish.bytes)),
            held => format!("asks for {} more than its {}", up(more), down(held)),
        };
        let told = |(name, room): (&String, &Room)| {
            let given = room.given_bytes.unwrap_or(0);
            format!(
                "node {name} has {} for volumes, of which {} % may be promised, that is {}, and {} are promised",
                down(given),
                self.percent,
                down(self.limit(given)),
                up(room.promised_bytes),
            )
        };
        let meant = || self.nodes.iter().filter(|(name, _)| wish.node.is_none_or(|node| node == *name));
        let mut nodes: Vec<String> = meant().take(TOLD_NODES).map(told).collect();
        match meant().count().saturating_sub(TOLD_NODES) {
            0 => {}
            others => nodes.push(format!("{others} other nodes have no room either")),
        }
        let nowhere = match self.nowhere_bytes {
            0 => String::new(),
            bytes => format!("; {} more are promised to volumes that are on no node yet", up(bytes)),
        };
        NoRoom(format!(
            "not enough room: it {asks}, and {}{nowhere}. Delete volumes, raise \"storage\" in the setting \
             overcommit-config, or give the node a larger disk",
            nodes.join("; ")
        ))
    }
}

/// Whether the volume of this name may come to have so many bytes, for who has all objects as the API keeps them. What cannot
/// be read is nothing to go by.
pub fn check_growth(
    nodes: Vec<Value>,
    volumes: Vec<Value>,
    percent: i64,
    volume: &str,
    bytes: i64,
) -> Result<(), NoRoom> {
    let nodes: Vec<Node> = nodes.into_iter().filter_map(|node| serde_json::from_value(node).ok()).collect();
    let volumes: Vec<PersistentVolume> =
        volumes.into_iter().filter_map(|volume| serde_json::from_value(volume).ok()).collect();
    let named = |one: &&PersistentVolume| one.metadata.name.as_deref() == Some(volume);
    let Some(found) = volumes.iter().find(named).filter(|one| promise_of(one).is_some()) else {
        return Ok(());
    };
    let wish = Wish { node: node_of(found), bytes, held_bytes: size_of(found).unwrap_or(0) };
    Rooms::of(&nodes, &volumes, percent).check(&wish)
}

/// The bytes that are promised with a volume of ours on a node's own disk.
fn promise_of(volume: &PersistentVolume) -> Option<i64> {
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == PROVISIONER)?;
    let backend = csi.volume_attributes.as_ref().and_then(|attributes| attributes.get(BACKEND_ATTRIBUTE));
    if backend.is_some_and(|backend| backend != LOCAL_BACKEND) {
        return None;
    }
    size_of(volume)
}

/// The size that a volume has, or is to have.
pub fn size_of(volume: &PersistentVolume) -> Option<i64> {
    quantity::value(&volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?.0)
}

/// Bytes for people, rounded so that what is there never looks like more than it is.
pub(crate) fn down(bytes: i64) -> String {
    in_tenths(bytes, 0)
}

/// Bytes for people, rounded so that what is asked for never looks like less than it is.
pub(crate) fn up(bytes: i64) -> String {
    in_tenths(bytes, 1)
}

fn in_tenths(bytes: i64, round_up: i64) -> String {
    let (unit, name) = match bytes {
        ..0x4000_0000 => (1 << 20, "Mi"),
        0x4000_0000..0x100_0000_0000 => (1 << 30, "Gi"),
        _ => (1_i64 << 40, "Ti"),
    };
    let (whole, rest) = (bytes / unit, bytes % unit);
    let tenths = (rest * 10 + (unit - 1) * round_up) / unit;
    match tenths {
        0 => format!("{whole}{name}"),
        10 => format!("{}{name}", whole + 1),
        tenths => format!("{whole}.{tenths}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const GIB: i64 = 1 << 30;

    fn node(name: &str, given: Option<&str>) -> Node {
        let allocatable = given.map_or(json!({}), |given| json!({VOLUME_STORAGE: given}));
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}}))
            .unwrap()
    }

    fn volume(node: Option<&str>, size: &str) -> PersistentVolume {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let affinity =
            node.map(|_| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}));
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": size}, "nodeAffinity": affinity,
            "csi": {"driver": PROVISIONER, "volumeHandle": "v", "volumeAttributes": {BACKEND_ATTRIBUTE: LOCAL_BACKEND}},
        }}))
        .unwrap()
    }

    fn anywhere(bytes: i64) -> Wish<'static> {
        Wish { node: None, bytes, held_bytes: 0 }
    }

    fn on(node: &str, bytes: i64) -> Wish<'_> {
        Wish { node: Some(node), bytes, held_bytes: 0 }
    }

    #[test]
    fn the_last_byte_may_be_promised_and_not_one_more() {
        let nodes = [node("n1", Some("10Gi"))];
        let volumes = [volume(Some("n1"), "6Gi"), volume(None, "1Gi")];
        let rooms = Rooms::of(&nodes, &volumes, 100);
        for wish in [on("n1", 3 * GIB), anywhere(3 * GIB)] {
            assert_eq!(rooms.check(&wish), Ok(()));
            rooms.check(&Wish { bytes: 3 * GIB + 1, ..wish }).unwrap_err();
        }
        assert_eq!((rooms.promised_on("n1"), rooms.left_on("n1")), (6 * GIB, Some(4 * GIB)));
    }

    #[test]
    fn more_than_there_is_may_be_promised_where_the_setting_says_so() {
        let nodes = [node("n1", Some("10Gi"))];
        let volumes = [volume(Some("n1"), "10Gi")];
        Rooms::of(&nodes, &volumes, 100).check(&anywhere(GIB)).unwrap_err();
        let rooms = Rooms::of(&nodes, &volumes, 150);
        assert_eq!(rooms.check(&anywhere(5 * GIB)), Ok(()));
        rooms.check(&anywhere(6 * GIB)).unwrap_err();
    }

    #[test]
    fn who_is_refused_is_told_the_numbers_and_what_to_do() {
        let rooms = Rooms::of(&[node("n1", Some("10Gi"))], &[volume(Some("n1"), "9.55Gi")], 120);
        let told = rooms.check(&on("n1", 3 * GIB)).unwrap_err().to_string();
        assert_eq!(
            told,
            "not enough room: it asks for 3Gi, and node n1 has 10Gi for volumes, of which 120 % may be promised, that is \
             12Gi, and 9.6Gi are promised. Delete volumes, raise \"storage\" in the setting overcommit-config, or give \
             the node a larger disk"
        );
        let grows = Wish { node: Some("n1"), bytes: 13 * GIB, held_bytes: GIB };
        let told = rooms.check(&grows).unwrap_err().to_string();
        assert!(told.contains("it asks for 12Gi more than its 1Gi"), "{told}");
        let nodes: Vec<Node> = (0..9).map(|n| node(&format!("n{n}"), Some("1Gi"))).collect();
        let told =
            Rooms::of(&nodes, &[volume(None, "1Gi")], 100).check(&anywhere(2 * GIB)).unwrap_err().to_string();
        assert!(told.contains("node n3") && !told.contains("node n4"), "{told}");
        assert!(told.contains("5 other nodes") && told.contains("1Gi more are promised"), "{told}");
    }

    #[test]
    fn a_volume_fits_on_one_node_as_a_whole() {
        let nodes = [node("n1", Some("10Gi")), node("n2", Some("10Gi"))];
        let rooms = Rooms::of(&nodes, &[volume(Some("n1"), "6Gi"), volume(Some("n2"), "5Gi")], 100);
        assert_eq!(rooms.check(&anywhere(5 * GIB)), Ok(()));
        rooms.check(&anywhere(6 * GIB)).unwrap_err();
        rooms.check(&on("n1", 5 * GIB)).unwrap_err();
        // One that is on no node yet grows as a whole, too.
        let rooms = Rooms::of(&nodes, &[volume(None, "9Gi")], 100);
        assert_eq!(rooms.check(&Wish { node: None, bytes: 10 * GIB, held_bytes: 9 * GIB }), Ok(()));
        rooms.check(&Wish { node: None, bytes: 11 * GIB, held_bytes: 9 * GIB }).unwrap_err();
    }

    #[test]
    fn nobody_is_refused_on_a_guess() {
        let volumes = [volume(Some("n1"), "100Gi")];
        for nodes in [vec![], vec![node("n1", None)], vec![node("n1", Some("1Gi")), node("n2", None)]] {
            assert_eq!(Rooms::of(&nodes, &volumes, 100).check(&anywhere(GIB)), Ok(()));
        }
        let gone = Rooms::of(&[node("n2", Some("1Gi"))], &volumes, 100);
        assert_eq!((gone.check(&on("n1", GIB)), gone.check(&anywhere(GIB))), (Ok(()), Ok(())));
        // What another node does not say makes no room on this one.
        let known = Rooms::of(&[node("n1", Some("100Gi")), node("n2", None)], &volumes, 100);
        known.check(&on("n1", GIB)).unwrap_err();
    }

    #[test]
    fn what_was_promised_already_is_never_refused() {
        let rooms = Rooms::of(&[node("n1", Some("1Gi"))], &[volume(Some("n1"), "5Gi")], 100);
        assert_eq!(rooms.check(&Wish { node: Some("n1"), bytes: 5 * GIB, held_bytes: 5 * GIB }), Ok(()));
    }

    #[test]
    fn volumes_of_others_take_no_room() {
        let mut foreign = volume(Some("n1"), "10Gi");
        foreign.spec.as_mut().unwrap().csi.as_mut().unwrap().driver = "nfs.csi.k8s.io".into();
        let mut shared = volume(Some("n1"), "10Gi");
        let csi = shared.spec.as_mut().unwrap().csi.as_mut().unwrap();
        csi.volume_attributes = Some(BTreeMap::from([(BACKEND_ATTRIBUTE.into(), "shared".into())]));
        let rooms = Rooms::of(&[node("n1", Some("10Gi"))], &[foreign, shared], 100);
        assert_eq!(rooms.promised_on("n1"), 0);
    }

    #[test]
    fn bytes_are_told_in_units_that_people_read() {
        assert_eq!((down(GIB - 1), up(GIB - 1)), ("1023.9Mi".into(), "1024Mi".into()));
        assert_eq!((down(3 * GIB / 2), up(GIB + 1)), ("1.5Gi".into(), "1.1Gi".into()));
        assert_eq!((down(0), up(2048 * GIB)), ("0Mi".into(), "2Ti".into()));
        let odd = [i64::MAX, i64::MIN, -1];
        odd.into_iter().for_each(|bytes| assert!(!up(bytes).is_empty()));
    }

    proptest! {
        #[test]
        fn no_order_of_claims_promises_more_than_may_be(
            given in 1_i64..50, percent in 100_i64..300, sizes in prop::collection::vec((1_i64..20, any::<bool>()), 1..20),
        ) {
            let nodes = [node("n1", Some(&format!("{given}Gi")))];
            let mut volumes = Vec::new();
            for (size, placed) in sizes {
                let place = placed.then_some("n1");
                let wish = Wish { node: place, bytes: size * GIB, held_bytes: 0 };
                if Rooms::of(&nodes, &volumes, percent).check(&wish).is_ok() {
                    volumes.push(volume(place, &format!("{size}Gi")));
                }
            }
            let sum: i64 = volumes.iter().filter_map(size_of).sum();
            prop_assert!(sum <= given * GIB * percent / 100);
        }
    }
}
