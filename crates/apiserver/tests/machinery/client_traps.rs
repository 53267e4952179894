//! What Harvester's clients stumble over without a word when it is otherwise. Most such traps are shown where the thing
//! itself is tested; here are those that are nobody else's.

use serde_json::json;

use crate::{
    house::House,
    machine::{CLAIMS, claim},
};

/// The scripts that make a guest cluster's kubeconfig compare these as numbers: `33+` is none.
#[tokio::test(start_paused = true)]
async fn the_version_is_told_in_plain_numbers() {
    let house = House::new().await;
    let version = house.get("/version").await.ok();
    for part in ["major", "minor"] {
        let told = version[part].as_str().unwrap();
        assert!(told.parse::<u32>().is_ok(), "{part} is {told:?}");
    }
}

/// The CSI driver takes the class of a claim apart as soon as it made one, of whatever mode.
#[tokio::test(start_paused = true)]
async fn a_claim_of_no_class_is_answered_with_the_default_one() {
    let house = House::new().await;
    for mode in ["Block", "Filesystem"] {
        let mut wanted = claim(&mode.to_lowercase());
        wanted["spec"]["volumeMode"] = json!(mode);
        let made = house.post(CLAIMS, wanted).await.ok();
        assert_eq!(made["spec"]["storageClassName"], "harvester-longhorn", "{mode}");
        assert_eq!(made["spec"]["volumeMode"], mode);
    }
}
