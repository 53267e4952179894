//! The decisions: what is seen goes in, the next step comes out. Pure: no I/O, no clock, no
//! chance. Whoever asks acts, looks again and asks again, so nothing is remembered here.

pub mod address;
pub mod claim;
pub mod cluster_network;
pub mod garbage;
pub mod image;
pub mod link;
pub mod load_balancer;
pub mod namespace_deletion;
pub mod network_config;
pub mod placement;
pub mod role_aggregation;
pub mod snapshot_usage;
pub mod support_bundle;
pub mod topology;
pub mod uplink;
pub mod user_deletion;
pub mod virtual_machine;
pub mod virtual_machine_backup;
pub mod virtual_machine_clone;
pub mod virtual_machine_instance;
pub mod virtual_machine_restore;
pub mod virtual_machine_template;
pub mod vlan_config;
pub mod volume_room;
pub mod volume_snapshot;
pub mod volume_snapshot_content;
