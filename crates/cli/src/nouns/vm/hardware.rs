//! What is plugged into a machine, and how large it is: while it runs where that is possible, else from its next start on.

use clap::{ArgGroup, Args as ClapArgs};
use http::Method;
use serde_json::{Value, json};

use super::{
    NameArgs,
    create::{gibibytes, memory},
    standing,
};
use crate::{
    asking::{
        Refusal, Session,
        facts::{list, text},
        names,
        resource::{INSTANCES, MACHINES, NETWORKS, VOLUMES},
        waiting::{Standing, WaitArgs, until},
    },
    completing,
    nearest_name::nearest,
};

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("size").args(["cpus", "memory"]).required(true).multiple(true))]
pub struct ResizeArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// Processors
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Option<u32>,
    /// Memory, such as 4Gi
    #[arg(short, long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<String>,
}

#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("what").args(["new_disk", "volume", "network"]).required(true))]
pub struct AttachArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// A new, empty disk of this size, such as 20Gi
    #[arg(long, value_name = "SIZE", value_parser = gibibytes)]
    pub new_disk: Option<i64>,
    /// A volume that is there already
    #[arg(long, value_name = "VOLUME", value_parser = names::segment, add = completing::names_of(&VOLUMES))]
    pub volume: Option<String>,
    /// An interface on this network: NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NETWORK", value_parser = names::reference, add = completing::names_of(&NETWORKS))]
    pub network: Option<String>,
    /// What the disk or interface is called in the machine [default: one that is free]
    #[arg(long = "as", value_name = "NAME", value_parser = names::object)]
    pub called: Option<String>,
    /// Hardware address of the interface [default: one is drawn]
    #[arg(long, value_name = "ADDRESS", requires = "network")]
    pub mac: Option<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct DetachArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// The disk or interface, as `sheaf vm show` calls it, or the volume of a disk
    #[arg(value_parser = names::segment)]
    pub what: String,
    #[command(flatten)]
    pub wait: WaitArgs,
}

pub async fn resize(session: &Session, args: &ResizeArgs) -> Result<(), Refusal> {
    let (namespace, name) = (&session.namespace, &args.machine.name);
    let about = MACHINES.about(namespace, name);
    let doing = format!("resize the {about}");
    let vm = session.get(&MACHINES, namespace, name).await?;
    let runs = session.find(&INSTANCES, namespace, name).await?.is_some();
    let offered = session.ask(Method::GET, &MACHINES.steve(namespace, name), None, &doing).await?;
    let live = runs && offered["actions"]["cpuAndMemoryHotplug"].is_string();
    if let (true, Some(input)) = (live, hot_plug(&vm, args)) {
        session.act(&MACHINES, (namespace, name), "cpuAndMemoryHotplug", &input, &doing).await?;
        return session.out.print(&format!("{about} grows while it runs\n"));
    }
    session.change(&MACHINES, namespace, name, &resized(args)).await?;
    let when = match runs {
        true => format!(" from its next start on: `sheaf vm restart {name}`"),
        false => String::new(),
    };
    session.out.print(&format!("{about} is resized{when}\n"))
}

/// What can be plugged in: whole sockets, and never less than there is.
fn hot_plug(vm: &Value, args: &ResizeArgs) -> Option<Value> {
    let cpu = &vm["spec"]["template"]["spec"]["domain"]["cpu"];
    let part = |name: &str| cpu[name].as_u64().unwrap_or(1).max(1);
    let mut input = json!({});
    if let Some(cpus) = args.cpus {
        let in_socket = part("cores") * part("threads");
        let sockets = u64::from(cpus) / in_socket;
        if !u64::from(cpus).is_multiple_of(in_socket) || sockets < part("sockets") {
            return None;
        }
        input["sockets"] = sockets.into();
    }
    if let Some(memory) = &args.memory {
        let bytes = |text: &str| sheaf_resources::quantity::value(text).unwrap_or(0);
        if bytes(memory) < bytes(standing::memory(vm)) {
            return None;
        }
        input["memory"] = memory.as_str().into();
    }
    Some(input)
}

fn resized(args: &ResizeArgs) -> Value {
    let mut domain = json!({});
    if let Some(cpus) = args.cpus {
        domain["cpu"] = json!({"cores": cpus, "sockets": 1, "threads": 1, "maxSockets": null});
        domain["resources"]["limits"]["cpu"] = cpus.to_string().into();
        domain["resources"]["requests"]["cpu"] = Value::Null;
    }
    if let Some(memory) = &args.memory {
        domain["memory"] = json!({"guest": null, "maxGuest": null});
        domain["resources"]["limits"]["memory"] = memory.as_str().into();
        domain["resources"]["requests"]["memory"] = Value::Null;
    }
    json!({"spec": {"template": {"spec": {"domain": domain}}}})
}

pub async fn attach(session: &Session, args: &AttachArgs) -> Result<(), Refusal> {
    let (namespace, machine) = (&session.namespace, &args.machine.name);
    let vm = session.get(&MACHINES, namespace, machine).await?;
    let about = MACHINES.about(namespace, machine);
    if let Some(network) = &args.network {
        let (network_namespace, network) = names::split(network, namespace);
        session.get(&NETWORKS, network_namespace, network).await?;
        let called = args.called.clone().unwrap_or_else(|| free(&vm, "nic"));
        let input = json!({
            "interfaceName": called, "networkName": format!("{network_namespace}/{network}"),
            "macAddress": args.mac.as_deref().unwrap_or_default(),
        });
        let doing = format!("plug an interface into the {about}");
        session.act(&MACHINES, (namespace, machine), "addNic", &input, &doing).await?;
        if args.wait.wait {
            wired(session, machine, &called, true, args.wait).await?;
        }
        return session.out.print(&format!("the interface {called} is plugged into the {about}\n"));
    }
    let called = args.called.clone().unwrap_or_else(|| free(&vm, "disk"));
    let (claim, is_new) = match (&args.volume, args.new_disk) {
        (Some(volume), _) => {
            session.get(&VOLUMES, namespace, volume).await?;
            (volume.clone(), false)
        }
        (None, size) => {
            let claim = format!("{machine}-{called}");
            let object = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": namespace},
                "spec": {
                    "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
                    "resources": {"requests": {"storage": format!("{}Gi", size.unwrap_or(1))}},
                },
            });
            session.create(&VOLUMES, &object).await?;
            (claim, true)
        }
    };
    let doing = format!("plug a disk into the {about}");
    let input = json!({"diskName": called, "volumeSourceName": claim});
    if let Err(why) = session.act(&MACHINES, (namespace, machine), "addVolume", &input, &doing).await {
        if is_new {
            // What was made for it goes with it; why it was not plugged in is what is told.
            _ = session.delete(&VOLUMES, namespace, &claim).await;
        }
        return Err(why);
    }
    if args.wait.wait {
        plugged(session, machine, &called, true, args.wait).await?;
    }
    session.out.print(&format!("the disk {called} (volume {claim}) is plugged into the {about}\n"))
}

/// Until the guest can see the disk, or sees it no longer.
async fn plugged(
    session: &Session,
    machine: &str,
    disk: &str,
    wanted: bool,
    wait: WaitArgs,
) -> Result<(), Refusal> {
    let what = match wanted {
        true => format!("the disk {disk} to be there for the guest"),
        false => format!("the disk {disk} to be out"),
    };
    until(session, &INSTANCES, (&session.namespace, machine), &what, wait.timeout, |instance| {
        let Some(instance) = instance else { return Standing::There(()) };
        let seen = list(instance, "/status/volumeStatus").find(|one| text(one, "/name") == disk);
        match (seen, wanted) {
            (None, false) => Standing::There(()),
            (Some(one), true) if text(one, "/phase") == "Ready" => Standing::There(()),
            (Some(one), _) => Standing::OnItsWay(match text(one, "/message") {
                "" => text(one, "/phase").to_owned(),
                message => message.to_owned(),
            }),
            (None, true) => Standing::OnItsWay("its host has not begun".to_owned()),
        }
    })
    .await
}

/// Until an interface is there for the guest, or no longer.
async fn wired(
    session: &Session,
    machine: &str,
    name: &str,
    wanted: bool,
    wait: WaitArgs,
) -> Result<(), Refusal> {
    let what = format!("the interface {name} to be {}", if wanted { "in" } else { "out" });
    until(session, &INSTANCES, (&session.namespace, machine), &what, wait.timeout, |instance| {
        let Some(instance) = instance else { return Standing::There(()) };
        let is_in = list(instance, "/status/interfaces").any(|one| text(one, "/name") == name);
        match is_in == wanted {
            true => Standing::There(()),
            false if wanted => Standing::OnItsWay("its host has not plugged it in yet".to_owned()),
            false => Standing::OnItsWay(
                "the guest has not let go of it; it is out when the machine stops".to_owned(),
            ),
        }
    })
    .await
}

pub async fn detach(session: &Session, args: &DetachArgs) -> Result<(), Refusal> {
    let (namespace, machine, what) = (&session.namespace, &args.machine.name, &args.what);
    let vm = session.get(&MACHINES, namespace, machine).await?;
    let about = MACHINES.about(namespace, machine);
    let claims = standing::claims(&vm);
    let interfaces: Vec<&str> =
        list(&vm, "/spec/template/spec/domain/devices/interfaces").map(|one| text(one, "/name")).collect();
    if let Some((disk, claim)) = claims.iter().find(|(disk, claim)| disk == what || claim == what) {
        let doing = format!("take the disk {disk} out of the {about}");
        session
            .act(&MACHINES, (namespace, machine), "removeVolume", &json!({"diskName": disk}), &doing)
            .await?;
        if args.wait.wait {
            plugged(session, machine, disk, false, args.wait).await?;
        }
        return session
            .out
            .print(&format!("the disk {disk} is taken out of the {about}; its volume {claim} stays\n"));
    }
    if interfaces.contains(&what.as_str()) {
        let doing = format!("take the interface {what} out of the {about}");
        let input = json!({"interfaceName": what});
        session.act(&MACHINES, (namespace, machine), "removeNic", &input, &doing).await?;
        if args.wait.wait {
            wired(session, machine, what, false, args.wait).await?;
        }
        let done = if args.wait.wait { "is" } else { "is being" };
        return session.out.print(&format!("the interface {what} {done} taken out of the {about}\n"));
    }
    let all: Vec<&str> =
        claims.iter().map(|(disk, _)| disk.as_str()).chain(interfaces.iter().copied()).collect();
    Err(Refusal::NotFound {
        about: format!("disk or interface {what} in the {about}"),
        meant: nearest(what, all.iter().copied()).map(str::to_owned),
        advice: format!("there is {}", all.join(", ")),
    })
}

/// `disk-1`, `nic-2`: the first that is free.
fn free(vm: &Value, kind: &str) -> String {
    let taken = |name: &str| {
        let places = ["volumes", "networks", "domain/devices/disks", "domain/devices/interfaces"];
        places.iter().any(|place| {
            list(vm, &format!("/spec/template/spec/{place}")).any(|one| text(one, "/name") == name)
        })
    };
    let mut number = 1;
    loop {
        let name = format!("{kind}-{number}");
        if !taken(&name) {
            return name;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(cpus: Option<u32>, memory: Option<&str>) -> ResizeArgs {
        ResizeArgs { machine: NameArgs { name: "web".into() }, cpus, memory: memory.map(str::to_owned) }
    }

    fn vm() -> Value {
        json!({"spec": {"template": {"spec": {
            "domain": {"cpu": {"cores": 2, "sockets": 1, "threads": 1}, "memory": {"guest": "2Gi"},
                "devices": {"interfaces": [{"name": "nic-1"}]}},
            "volumes": [{"name": "disk-1"}]}}}})
    }

    #[test]
    fn only_whole_sockets_and_more_memory_are_plugged_in() {
        assert_eq!(
            hot_plug(&vm(), &args(Some(4), Some("4Gi"))),
            Some(json!({"sockets": 2, "memory": "4Gi"}))
        );
        assert_eq!(hot_plug(&vm(), &args(Some(3), None)), None);
        assert_eq!(hot_plug(&vm(), &args(Some(1), None)), None);
        assert_eq!(hot_plug(&vm(), &args(None, Some("1Gi"))), None);
    }

    #[test]
    fn what_is_plugged_in_gets_a_name_that_is_free() {
        assert_eq!((free(&vm(), "disk"), free(&vm(), "nic")), ("disk-2".into(), "nic-2".into()));
    }
}
