//! `sheaf vm show`: everything that somebody wants to know about a machine, and what is wrong with it.

use serde_json::Value;

use super::{events, standing};
use crate::asking::{
    Refusal, Session,
    facts::{Facts, amount, list, text},
    resource::{INSTANCES, MACHINES, VOLUMES},
    table::{Cell, Tone},
};

const MOST_EVENTS: usize = 8;

pub async fn run(session: &Session, name: &str) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    let vm = session.get(&MACHINES, namespace, name).await?;
    if let Some(text) = session.format.one(&MACHINES, &vm)? {
        return session.out.print(&text);
    }
    let instance = session.find(&INSTANCES, namespace, name).await.unwrap_or_default().unwrap_or_default();
    let volumes = session.list(&VOLUMES, namespace, "").await.unwrap_or_default();
    let events = events::of(session, name).await.unwrap_or_default();
    session.out.print(&described(session, &vm, &instance, &volumes, &events))
}

fn described(session: &Session, vm: &Value, instance: &Value, volumes: &[Value], events: &[Value]) -> String {
    let (out, now) = (session.out, session.moment().now);
    let mut facts = Facts::default();
    let annotation = |name: &str| vm["metadata"]["annotations"][name].as_str().unwrap_or_default();
    facts
        .say("Name", text(vm, "/metadata/name"))
        .say("Namespace", text(vm, "/metadata/namespace"))
        .say("Description", annotation(standing::DESCRIPTION))
        .say("Status", standing::status(vm))
        .say("Run strategy", text(vm, "/spec/runStrategy"))
        .say("CPUs", standing::cpus(vm).to_string())
        .say("Memory", standing::memory_in_words(vm))
        .say("Firmware", firmware(vm))
        .say("Addresses", standing::addresses(instance).join(", "))
        .say("Host", text(instance, "/status/nodeName"))
        .say("Guest", text(instance, "/status/guestOSInfo/prettyName"))
        .say(
            "Made",
            format!("{} ago", sheaf_resources::age::since(text(vm, "/metadata/creationTimestamp"), now)),
        );
    facts.list("Disks", &["NAME", "BUS", "VOLUME", "SIZE", "IMAGE"], disks(vm, volumes), out);
    facts.list("Interfaces", &["NAME", "NETWORK", "MODEL", "MAC", "ADDRESS"], interfaces(vm, instance), out);
    let conditions = list(vm, "/status/conditions").chain(list(instance, "/status/conditions"));
    let mut troubles: Vec<String> = conditions.filter_map(standing::trouble).collect();
    troubles.dedup();
    facts.text("What is wrong", &troubles.join("\n"));
    let rows = events.iter().skip(events.len().saturating_sub(MOST_EVENTS)).map(|event| {
        let tone = if text(event, "/type") == "Warning" { Tone::Bad } else { Tone::Plain };
        let age = sheaf_resources::age::since(text(event, "/lastTimestamp"), now);
        vec![age.into(), Cell::toned(text(event, "/reason"), tone), text(event, "/message").into()]
    });
    facts.list("What happened", &["AGE", "REASON", "MESSAGE"], rows.collect(), out);
    facts.as_text()
}

fn firmware(vm: &Value) -> String {
    let efi = &vm["spec"]["template"]["spec"]["domain"]["firmware"]["bootloader"]["efi"];
    match (efi.is_object(), efi["secureBoot"] == false) {
        (false, _) => "BIOS",
        (true, true) => "UEFI",
        (true, false) => "UEFI with secure boot",
    }
    .to_owned()
}

fn disks(vm: &Value, volumes: &[Value]) -> Vec<Vec<Cell>> {
    let claims = standing::claims(vm);
    list(vm, "/spec/template/spec/domain/devices/disks")
        .map(|disk| {
            let name = text(disk, "/name");
            let claim = claims.iter().find(|(disk, _)| disk == name).map(|(_, claim)| claim.as_str());
            let volume = volumes.iter().find(|one| Some(text(one, "/metadata/name")) == claim);
            let (kind, bus) = ["disk", "cdrom", "lun"]
                .iter()
                .find_map(|kind| Some((*kind, disk.get(*kind)?)))
                .map_or(("", ""), |(kind, device)| (kind, device["bus"].as_str().unwrap_or_default()));
            let bus = if kind == "cdrom" { format!("{bus} (disc)") } else { bus.to_owned() };
            let size = volume.map(|one| match text(one, "/status/capacity/storage") {
                "" => text(one, "/spec/resources/requests/storage"),
                size => size,
            });
            let image = volume.and_then(|one| one["metadata"]["annotations"][standing::IMAGE_ID].as_str());
            vec![
                name.into(),
                bus.into(),
                claim.unwrap_or("(cloud-init)").into(),
                amount(size.unwrap_or_default()).into(),
                image.unwrap_or_default().into(),
            ]
        })
        .collect()
}

fn interfaces(vm: &Value, instance: &Value) -> Vec<Vec<Cell>> {
    list(vm, "/spec/template/spec/domain/devices/interfaces")
        .map(|interface| {
            let name = text(interface, "/name");
            let network = list(vm, "/spec/template/spec/networks").find(|one| text(one, "/name") == name);
            let network = network.map_or("", |one| match text(one, "/multus/networkName") {
                "" => "(default)",
                named => named,
            });
            let seen = list(instance, "/status/interfaces").find(|one| text(one, "/name") == name);
            let of_seen = |place: &str| seen.map(|one| text(one, place)).unwrap_or_default();
            let mac = match of_seen("/mac") {
                "" => text(interface, "/macAddress"),
                mac => mac,
            };
            let model = match text(interface, "/model") {
                "" => "virtio",
                model => model,
            };
            vec![name.into(), network.into(), model.into(), mac.into(), of_seen("/ipAddress").into()]
        })
        .collect()
}
