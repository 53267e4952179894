//! What becomes of what was typed.

use super::*;

fn debian() -> Image {
    Image {
        id: "default/debian".into(),
        storage_class: "longhorn-debian".into(),
        virtual_size: 12 * GIB,
        is_disc: false,
    }
}

fn made(wanted: &Wanted) -> Made {
    let mut draft = fresh("team");
    dress(&mut draft, wanted).unwrap();
    named(&draft, "web", "x7k2p")
}

fn spec(made: &Made) -> &Value {
    &made.vm["spec"]["template"]["spec"]
}

#[test]
fn a_machine_of_an_image_has_a_disk_that_holds_it() {
    let made = made(&Wanted { image: Some(debian()), ..Wanted::default() });
    let claims = claims_of(&made.vm);
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0]["metadata"]["name"], "web-disk-0");
    assert_eq!(claims[0]["metadata"]["annotations"][IMAGE_ID], "default/debian");
    assert_eq!(claims[0]["spec"]["resources"]["requests"]["storage"], "12Gi");
    assert_eq!(spec(&made)["volumes"][0]["persistentVolumeClaim"]["claimName"], "web-disk-0");
    assert_eq!(spec(&made)["hostname"], "web");
    assert_eq!(made.secret, None);
}

#[test]
fn a_disk_smaller_than_its_image_is_refused_before_anybody_is_asked() {
    let wanted = Wanted { image: Some(debian()), disk_gib: Some(5), ..Wanted::default() };
    let why = dress(&mut fresh("team"), &wanted).unwrap_err();
    assert!(why.contains("5Gi") && why.contains("12Gi"), "{why}");
}

#[test]
fn a_disc_is_put_into_a_drive_beside_an_empty_disk() {
    let image = Image { is_disc: true, virtual_size: GIB, ..debian() };
    let made = made(&Wanted { image: Some(image), disk_gib: Some(20), ..Wanted::default() });
    let disks = &spec(&made)["domain"]["devices"]["disks"];
    assert_eq!((&disks[0]["disk"]["bus"], &disks[0]["bootOrder"]), (&json!("virtio"), &json!(1)));
    assert_eq!((&disks[1]["cdrom"]["bus"], &disks[1]["bootOrder"]), (&json!("sata"), &json!(2)));
    let claims = claims_of(&made.vm);
    assert!(claims[0]["metadata"]["annotations"].is_null());
    assert_eq!(claims[1]["metadata"]["annotations"][IMAGE_ID], "default/debian");
}

#[test]
fn more_disks_have_names_of_their_own() {
    let wanted = Wanted {
        image: Some(debian()),
        data_disks_gib: vec![5, 6],
        volumes: vec!["old-data".into()],
        ..Wanted::default()
    };
    let made = made(&wanted);
    let names: Vec<String> =
        claims_of(&made.vm).iter().map(|one| text(one, "/metadata/name").to_owned()).collect();
    assert_eq!(names, ["web-disk-0", "web-disk-1", "web-disk-2"]);
    let volumes = spec(&made)["volumes"].as_array().unwrap();
    assert_eq!(volumes[3]["persistentVolumeClaim"]["claimName"], "old-data");
}

#[test]
fn keys_join_what_the_user_data_has() {
    let key = Key { id: "team/anna".into(), public_key: "ssh-ed25519 AAAA anna\n".into() };
    let user_data = "#cloud-config\npackages: [nginx]\nssh_authorized_keys: [ssh-rsa BBBB]\n";
    let wanted = Wanted { keys: vec![key.clone()], user_data: Some(user_data.into()), ..Wanted::default() };
    let made = made(&wanted);
    let text = text(&spec(&made)["volumes"][0], "/cloudInitNoCloud/userData").to_owned();
    let read: Value = serde_yaml_ng::from_str(&text).unwrap();
    assert!(text.starts_with("#cloud-config\n"));
    assert_eq!(read["ssh_authorized_keys"], json!(["ssh-rsa BBBB", "ssh-ed25519 AAAA anna"]));
    assert_eq!(read["packages"], json!(["nginx"]));
    assert_eq!(made.vm["spec"]["template"]["metadata"]["annotations"][SSH_NAMES], r#"["team/anna"]"#);
    let script = Wanted { keys: vec![key], user_data: Some("#!/bin/sh\n".into()), ..Wanted::default() };
    dress(&mut fresh("team"), &script).unwrap_err();
}

#[test]
fn user_data_as_it_was_written_stays_as_it_was_written() {
    let user_data = "#cloud-config\n# a comment\npackages:   [nginx]\n";
    let made = made(&Wanted { user_data: Some(user_data.into()), ..Wanted::default() });
    assert_eq!(spec(&made)["volumes"][0]["cloudInitNoCloud"]["userData"], user_data);
}

#[test]
fn user_data_that_does_not_fit_is_in_a_secret() {
    let long = format!("#cloud-config\n# {}\n", "x".repeat(INLINE_BYTES));
    let made = made(&Wanted { user_data: Some(long.clone()), ..Wanted::default() });
    let secret = made.secret.as_ref().unwrap();
    assert_eq!(secret["metadata"]["name"], "web-cloud-init-x7k2p");
    assert_eq!(secret["stringData"]["userdata"], long);
    let cloud_init = &spec(&made)["volumes"][0]["cloudInitNoCloud"];
    assert_eq!(*cloud_init, json!({"secretRef": {"name": "web-cloud-init-x7k2p"}}));
}

#[test]
fn networks_are_interfaces_in_their_order() {
    let made = made(&Wanted { networks: vec!["default".into(), "team/lan".into()], ..Wanted::default() });
    assert_eq!(
        spec(&made)["networks"],
        json!([{"name": "default", "pod": {}}, {"name": "nic-1", "multus": {"networkName": "team/lan"}}])
    );
    assert_eq!(spec(&made)["domain"]["devices"]["interfaces"][1]["bridge"], json!({}));
}

#[test]
fn secure_boot_brings_what_it_needs() {
    let made = made(&Wanted { firmware: Some(Firmware::SecureBoot), ..Wanted::default() });
    let domain = &spec(&made)["domain"];
    assert_eq!(domain["firmware"]["bootloader"]["efi"]["secureBoot"], true);
    assert_eq!(domain["features"]["smm"]["enabled"], true);
}

#[test]
fn two_machines_of_a_template_have_disks_of_their_own_and_no_address_in_common() {
    let claims = json!([{"metadata": {"name": "old-root", "annotations": {IMAGE_ID: ""}},
        "spec": {"resources": {"requests": {"storage": "10Gi"}}}}]);
    let version = json!({"spec": {"vm": {
        "metadata": {"labels": {"os": "linux"}, "annotations": {
            CLAIM_TEMPLATES: claims.to_string(), "harvesterhci.io/mac-address": "{}"}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "hostname": "old", "domain": {"cpu": {"cores": 4}, "devices": {"interfaces": [{"name": "a", "macAddress": "02:00:00:00:00:01"}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "old-root"}}]}}}}}});
    let mut draft = of_template(&version, "team");
    assert!(asks_for_image(&draft));
    dress(&mut draft, &Wanted { image: Some(debian()), ..Wanted::default() }).unwrap();
    let (one, two) = (named(&draft, "one", "a"), named(&draft, "two", "b"));
    assert_eq!(spec(&one)["volumes"][0]["persistentVolumeClaim"]["claimName"], "one-root");
    assert_eq!(spec(&two)["volumes"][0]["persistentVolumeClaim"]["claimName"], "two-root");
    assert_eq!(spec(&one)["hostname"], "one");
    assert!(spec(&one)["domain"]["devices"]["interfaces"][0]["macAddress"].is_null());
    assert_eq!(one.vm["metadata"]["annotations"]["harvesterhci.io/mac-address"], Value::Null);
    // What nobody typed is the template's.
    assert_eq!(
        (&spec(&one)["domain"]["cpu"]["cores"], &one.vm["spec"]["runStrategy"]),
        (&json!(4), &json!("Halted"))
    );
    assert_eq!(claims_of(&one.vm)[0]["spec"]["resources"]["requests"]["storage"], "12Gi");
}
