//! The ways that Harvester's clients go, gone by a stand-in for them: a program of ours on Harvester's own types, clientsets
//! and builder of machines (`tests/clients/harvester`, which also says what that can prove). The stories are told and
//! judged there; here a node and a guest are brought, and what only the guest can say is looked at.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use std::sync::OnceLock;

use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{Farm, NETWORKS, Serial, network},
    patience::TOO_LONG_FOR_A_GUEST,
    program::{Conversation, Program},
};

const IMAGE: &str = "default/tiny";
const NETWORK: &str = "default/plain";

/// One node for all ways: each has a namespace of its own.
fn farm() -> Option<&'static Farm> {
    static FARM: OnceLock<Option<Farm>> = OnceLock::new();
    let start = || {
        let farm = Farm::with_tiny_guest()?;
        farm.api().post(NETWORKS, &network("plain", serde_json::json!({}))).object();
        // A guest that is asked to stop while it boots hears nothing, and is waited for in vain.
        let grace = "/apis/harvesterhci.io/v1beta1/settings/default-vm-termination-grace-period-seconds";
        farm.api().patch(grace, "merge", r#"{"value": "5"}"#).object();
        Some(farm)
    };
    FARM.get_or_init(start).as_ref()
}

fn stand_in(farm: &Farm, way: &str) -> Program {
    // Guests boot several times on some ways, under emulation, beside each other.
    let program = Program::of_admin("harvester", "SHEAF_HARVESTER_CLIENTS", &farm.node, way);
    program.within(3 * TOO_LONG_FOR_A_GUEST)
}

#[test]
#[ignore = "needs the stand-in for Harvester's clients: make test builds it"]
fn the_way_the_node_driver_goes_from_its_checks_to_the_last_claim() {
    let Some(farm) = farm() else { return };
    stand_in(farm, "node-driver").says(&["node-driver", IMAGE, NETWORK]);
}

#[test]
#[ignore = "needs the stand-in for Harvester's clients: make test builds it"]
fn the_way_the_terraform_provider_goes_through_a_plan_and_back() {
    let Some(farm) = farm() else { return };
    let disk = guests::tiny().unwrap().disk;
    stand_in(farm, "terraform").says(&["terraform", disk.to_str().unwrap()]);
}

#[test]
#[ignore = "needs the stand-in for Harvester's clients: make test builds it"]
fn the_way_the_cloud_provider_goes_to_find_out_which_machine_a_node_is() {
    let Some(farm) = farm() else { return };
    stand_in(farm, "cloud-provider").says(&["cloud-provider", IMAGE, NETWORK]);
}

/// The cloud provider takes a load balancer whose `status.address` is empty for one that is not there, and never deletes it.
#[test]
#[ignore = "needs the stand-in for Harvester's clients: make test builds it"]
fn the_way_a_service_of_a_guest_cluster_gets_an_address_that_sticks_and_gives_it_back() {
    let Some(farm) = farm() else { return };
    stand_in(farm, "load-balancer").says(&["load-balancer"]);
}

#[test]
#[ignore = "needs the stand-in for Harvester's clients: make test builds it"]
fn the_way_the_csi_driver_goes_with_a_volume_that_the_guest_finds_by_its_claims_name() {
    let Some(farm) = farm() else { return };
    let mut story = stand_in(farm, "csi").converse(&["csi", IMAGE]);
    let said = story.hears_within(" boots\n", TOO_LONG_FOR_A_GUEST);
    let namespace = said.rsplit_once("look: ").unwrap().1.trim_end_matches(" boots\n").to_owned();
    let path = format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/csi-node");
    let mut serial = farm.serial(&farm.api().get(&path).object());
    serial.hears("tiny guest is up");
    story.types("\n");

    let (claim, bytes) = is_plugged_in(&mut story);
    assert_eq!(disk_of(&mut serial, &claim, &bytes), "sda");
    story.types("\n");

    let (grown, more) = is_plugged_in(&mut story);
    assert_eq!(grown, claim);
    assert_ne!(more, bytes);
    disk_of(&mut serial, &claim, &more);
    story.types("\n");

    story.hears_within(" is gone\n", TOO_LONG_FOR_A_GUEST);
    serial.runs("while [ -e /sys/block/sda ]; do sleep 0.1; done");
    story.types("\n");
    story.hears_within("the claim is deleted\nand is gone\n", TOO_LONG_FOR_A_GUEST);
    let (code, said) = story.hangs_up();
    assert_eq!(code, 0, "{said}");
}

/// The story's claim, and how large the guest should find the disk.
fn is_plugged_in(story: &mut Conversation) -> (String, String) {
    let said = story.hears_within(" bytes\n", 2 * TOO_LONG_FOR_A_GUEST);
    let line = said.lines().last().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], "look:", "{said}");
    (words[2].to_owned(), words[words.len() - 2].to_owned())
}

/// The disk whose SCSI identification has the whole of a claim's name in it, once it is this large: what udev makes the
/// link of that the driver looks for.
fn disk_of(serial: &mut Serial, claim: &str, bytes: &str) -> String {
    let sectors = bytes.parse::<u64>().unwrap() / 512;
    let found = serial.runs(&format!(
        "found=; until [ -n \"$found\" ]; do for disk in /sys/block/sd*; do \
         grep -q {claim} $disk/device/vpd_pg83 && [ $(cat $disk/size) = {sectors} ] && found=${{disk##*/}}; \
         done; sleep 0.1; done; echo $found"
    ));
    found.trim().to_owned()
}
