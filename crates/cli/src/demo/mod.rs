//! `sheaf demo`: a virtual machine that shows what there is, made through the API as anybody would.
//!
//! ```text
//!   image (built, uploaded or fetched) -> key -> machine -> runs -> has an address -> SSH answers
//! ```
//!
//! Every step looks first: what an earlier run made is used, also one that was interrupted. Nothing is removed.

mod guest;
mod key;
mod objects;

use std::{
    fmt::Write as _,
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt;
use kube::api::PostParams;
use serde_json::{Value, json};
use sheaf_client::{
    api,
    objects::Objects,
    streams::{StreamError, Streams},
};
use sheaf_resources::kinds::{
    virtual_machine::VirtualMachine,
    virtual_machine_image::VirtualMachineImage,
    virtual_machine_instance::{VirtualMachineInstance, status::Phase},
};
use sheaf_world::World;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use tokio_tungstenite::tungstenite::Message;

use self::{
    guest::GuestError,
    key::KeyError,
    objects::{USER, Wanted},
};
use crate::{
    DemoConfig, DemoImage,
    asking::{Access, resource::machine_subresource},
    cluster::{Cluster, ClusterError},
    nouns::image::upload::{self as image, ImageError, Place, Source},
    nouns::vm::console::PLAIN,
    progress::Progress,
};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// An emulated processor on a busy host boots slowly; longer than this is no boot.
const BOOT_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How long SSH may take to say its name.
const SSH_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than a guest on a bridge of this host takes.
const NEXT_DOOR_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the cluster did not do it")]
    Refused(#[from] kube::Error),
    #[error("the machine {name} cannot be started")]
    Start {
        name: String,
        #[source]
        source: StreamError,
    },
    #[error("the machine {name} was deleted meanwhile")]
    Deleted { name: String },
    #[error("the machine {name} is not there after {} minutes: {seen}. See `sheaf vm show {name}`", BOOT_PATIENCE.as_secs() / 60)]
    TooSlow { name: String, seen: String },
}

/// What came of it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub namespace: String,
    pub name: String,
    pub address: String,
    /// The private key, for SSH.
    pub key: PathBuf,
    pub kubeconfig: PathBuf,
    /// Where the API and the console are.
    pub server: String,
    /// Whether the machine's address can be reached from this computer.
    pub here: bool,
}

/// Makes it, or finds it, and waits until it can be entered.
pub async fn run(config: &DemoConfig, world: &World) -> Result<Shown, DemoError> {
    let mut progress = Progress::on_stderr();
    let waiting = || eprintln!("  waiting for the node to answer");
    let cluster = Cluster::awake(&Access::of(&config.kubeconfig), waiting).await?;
    let image = ensure_image(&cluster, config, &mut progress).await?;

    let beside = config.kubeconfig.parent().unwrap_or(Path::new("/"));
    let key = beside.join(format!("{}_ed25519", config.name));
    let public_key = key::ensure(&key, &format!("{USER}@{}", config.name), &world.chance)?;
    let wanted = Wanted {
        namespace: &config.namespace,
        name: &config.name,
        public_key: &public_key,
        storage_class: &image.status.storage_class_name,
        image_size: image.status.virtual_size,
    };
    ensure_machine(&cluster, wanted, &mut progress).await?;
    let address = wait_until_it_can_be_entered(&cluster, config, world, &mut progress).await?;
    progress.done(&format!("the machine {} is up at {address}", config.name));
    let here = is_this_host(&cluster.streams) && is_next_door(&address).await;
    Ok(Shown {
        namespace: config.namespace.clone(),
        name: config.name.clone(),
        address,
        key,
        kubeconfig: config.kubeconfig.clone(),
        server: cluster.streams.server().to_string().trim_end_matches('/').to_owned(),
        here,
    })
}

async fn ensure_image(
    cluster: &Cluster,
    config: &DemoConfig,
    progress: &mut Progress,
) -> Result<VirtualMachineImage, DemoError> {
    let place = Place { namespace: &config.namespace, name: &config.name };
    let found = image::find(cluster, place).await?;
    if let Some(image) = found.as_ref().filter(|image| image.is_imported()) {
        progress.say(&format!("the image {} is there already", config.name));
        return Ok(image.clone());
    }
    match &config.image {
        DemoImage::Url(url) => {
            let spec = json!({"displayName": config.name, "sourceType": "download", "url": url});
            image::ensure(cluster, place, spec).await?;
        }
        // One that is being fetched is waited for.
        _ if found.is_some_and(|image| image.spec.source_type == "download") => {}
        DemoImage::File(path) => {
            image::bring(cluster, place, Source::open(path).await?, progress).await?;
        }
        DemoImage::Debian => {
            progress.done("making a small Debian from Debian's packages; later runs find it in the cache");
            let path = guest::build().await?;
            image::bring(cluster, place, Source::open(&path).await?, progress).await?;
        }
    }
    Ok(image::imported(cluster, place, progress).await?)
}

async fn ensure_machine(
    cluster: &Cluster,
    wanted: Wanted<'_>,
    progress: &mut Progress,
) -> Result<(), DemoError> {
    let Wanted { namespace, name, .. } = wanted;
    let key_pairs = api::built_in("harvesterhci.io", "v1beta1", "KeyPair", "keypairs");
    create(cluster, &key_pairs, namespace, objects::key_pair(wanted)).await?;
    let machines: Objects<VirtualMachine> = Objects::namespaced(cluster.objects.clone(), namespace);
    let Some(found) = machines.get_opt(name).await? else {
        progress.say(&format!("creating the machine {name}"));
        let resource = api::built_in("kubevirt.io", "v1", "VirtualMachine", "virtualmachines");
        return create(cluster, &resource, namespace, objects::machine(wanted)).await;
    };
    if found.status.printable_status == "Stopped" {
        progress.say(&format!("starting the machine {name}"));
        start(&cluster.streams, namespace, name).await?;
    }
    Ok(())
}

async fn create(
    cluster: &Cluster,
    resource: &kube::core::ApiResource,
    namespace: &str,
    object: Value,
) -> Result<(), DemoError> {
    let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let created =
        api::objects(&cluster.objects, resource, namespace).create(&PostParams::default(), &object).await;
    match created {
        Err(why) if !api::is_already_exists(&why) => Err(why.into()),
        _ => Ok(()),
    }
}

async fn start(streams: &Streams, namespace: &str, name: &str) -> Result<(), DemoError> {
    let failed = |source| DemoError::Start { name: name.to_owned(), source };
    let path = machine_subresource("virtualmachines", (namespace, name), "start");
    let body = http_body_util::Full::new(bytes::Bytes::from_static(b"{}"));
    let request = http::Request::put(path).body(body).map_err(|why| failed(why.into()))?;
    match streams.send(request).await {
        // Somebody else was faster.
        Err(StreamError::Refused { code: 409, .. }) | Ok(_) => Ok(()),
        Err(why) => Err(failed(why)),
    }
}

/// Its address, once the guest has it and answers there.
async fn wait_until_it_can_be_entered(
    cluster: &Cluster,
    config: &DemoConfig,
    world: &World,
    progress: &mut Progress,
) -> Result<String, DemoError> {
    let (namespace, name) = (&config.namespace, &config.name);
    let machines: Objects<VirtualMachine> = Objects::namespaced(cluster.objects.clone(), namespace);
    let instances: Objects<VirtualMachineInstance> = Objects::namespaced(cluster.objects.clone(), namespace);
    let patience = Instant::now() + BOOT_PATIENCE;
    loop {
        let Some(machine) = machines.get_opt(name).await? else {
            return Err(DemoError::Deleted { name: name.clone() });
        };
        let instance = instances.get_opt(name).await?;
        let seen = match how_it_stands(&machine, instance.as_ref()) {
            Stands::Up { address } => match ssh_answers(&cluster.streams, namespace, name, world).await {
                Ok(()) => return Ok(address),
                Err(why) => {
                    progress
                        .say(&format!("{name}: it boots, and has the address {address}; waiting for SSH"));
                    format!("SSH does not answer at {address} ({why})")
                }
            },
            Stands::NotYet(seen) => {
                progress.say(&format!("{name}: {seen}"));
                seen
            }
        };
        if Instant::now() >= patience {
            return Err(DemoError::TooSlow { name: name.clone(), seen });
        }
        sleep(LOOK_EVERY).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stands {
    /// It runs and has an address.
    Up {
        address: String,
    },
    NotYet(String),
}

/// What is known of a machine, in a few words.
fn how_it_stands(machine: &VirtualMachine, instance: Option<&VirtualMachineInstance>) -> Stands {
    let Some(instance) = instance else {
        let status = &machine.status.printable_status;
        let status = if status.is_empty() { "Starting" } else { status };
        return Stands::NotYet(status.to_owned());
    };
    let address = instance.status.interfaces.first().map(|nic| nic.ip_address.clone()).unwrap_or_default();
    match instance.status.phase {
        Phase::Running if address.is_empty() => Stands::NotYet("Running, without an address yet".into()),
        Phase::Running => Stands::Up { address },
        phase => {
            let mut text = phase.as_str().to_owned();
            // The others say in other words that it does not run yet.
            let trouble = instance.status.conditions.iter().find(|one| {
                let tells = ["Synchronized", "PodScheduled"].contains(&one.condition_type.as_str());
                tells && one.status == "False" && !one.message.is_empty()
            });
            if let Some(trouble) = trouble {
                // Writing to a String cannot fail.
                _ = write!(text, " ({})", trouble.message);
            }
            Stands::NotYet(text)
        }
    }
}

/// Through the API and the node's agent, so that it can be asked from anywhere.
async fn ssh_answers(streams: &Streams, namespace: &str, name: &str, world: &World) -> Result<(), String> {
    let path = machine_subresource("virtualmachineinstances", (namespace, name), "portforward/22/tcp");
    let asking = async {
        let mut socket = streams.open(&path, PLAIN, &world.chance).await.map_err(|why| why.to_string())?;
        let mut heard = Vec::new();
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(bytes) = message {
                heard.extend_from_slice(&bytes);
            }
            if heard.starts_with(b"SSH-") {
                return Ok(());
            }
        }
        Err("it hangs up".to_owned())
    };
    timeout(SSH_PATIENCE, asking).await.unwrap_or_else(|_| Err("it says nothing".into()))
}

/// Whether the machine can be reached at its address, which behind QEMU's user-mode network nobody can.
async fn is_next_door(address: &str) -> bool {
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let reached = timeout(NEXT_DOOR_PATIENCE, TcpStream::connect((address, 22))).await;
    matches!(reached, Ok(Ok(_)))
}

/// Whether the API server's address is one of this computer: then the machines may be next door.
fn is_this_host(streams: &Streams) -> bool {
    let host = streams.server().host().unwrap_or_default().trim_matches(['[', ']']);
    host.parse::<IpAddr>().is_ok_and(|address| UdpSocket::bind((address, 0)).is_ok())
}

impl Shown {
    /// What to type next; `program` is what this one was called by.
    pub fn as_text(&self, program: &str) -> String {
        let Shown { namespace, name, address, key, kubeconfig, server, here } = self;
        let (key, kubeconfig) = (key.display(), kubeconfig.display());
        let flags = if namespace == "default" { String::new() } else { format!(" -n {namespace}") };
        let ssh = match here {
            true => format!("ssh -i {key} -o StrictHostKeyChecking=accept-new {USER}@{address}"),
            false => format!("{program} vm ssh -i {key} {USER}@{name}{flags} --kubeconfig {kubeconfig}"),
        };
        format!(
            "\nThe virtual machine {namespace}/{name} runs at {address}.\n\n  \
               its console   {program} vm console {name}{flags} --kubeconfig {kubeconfig}\n  \
               SSH           {ssh}\n  \
               its screen    {server}/dashboard/vms/{namespace}/{name}/console\n  \
               more          {program} vm show {name}{flags} --kubeconfig {kubeconfig}\n",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(status: &str) -> VirtualMachine {
        serde_json::from_value(json!({"metadata": {"name": "demo"}, "status": {"printableStatus": status}}))
            .unwrap()
    }

    fn instance(status: Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({"metadata": {"name": "demo"}, "status": status})).unwrap()
    }

    #[test]
    fn a_machine_is_up_once_it_runs_and_has_an_address() {
        let not_yet = |text: &str| Stands::NotYet(text.into());
        assert_eq!(how_it_stands(&machine(""), None), not_yet("Starting"));
        assert_eq!(
            how_it_stands(&machine("WaitingForVolumeBinding"), None),
            not_yet("WaitingForVolumeBinding")
        );
        let stands = |status| how_it_stands(&machine("Running"), Some(&instance(status)));
        let why = json!([{"type": "Synchronized", "status": "False", "reason": "x", "message": "no QEMU"}]);
        assert_eq!(stands(json!({"phase": "Scheduled", "conditions": why})), not_yet("Scheduled (no QEMU)"));
        assert_eq!(stands(json!({"phase": "Running"})), not_yet("Running, without an address yet"));
        let nic = json!([{"name": "default", "ipAddress": "10.52.0.2"}]);
        let up = Stands::Up { address: "10.52.0.2".into() };
        assert_eq!(stands(json!({"phase": "Running", "interfaces": nic})), up);
    }

    #[test]
    fn it_says_what_to_type_next() {
        let shown = Shown {
            namespace: "default".into(),
            name: "demo".into(),
            address: "10.52.0.2".into(),
            key: "/data/demo_ed25519".into(),
            kubeconfig: "/data/admin.kubeconfig".into(),
            server: "https://10.0.0.5:6443".into(),
            here: true,
        };
        let wanted = "
The virtual machine default/demo runs at 10.52.0.2.

  its console   target/release/sheaf vm console demo --kubeconfig /data/admin.kubeconfig
  SSH           ssh -i /data/demo_ed25519 -o StrictHostKeyChecking=accept-new demo@10.52.0.2
  its screen    https://10.0.0.5:6443/dashboard/vms/default/demo/console
  more          target/release/sheaf vm show demo --kubeconfig /data/admin.kubeconfig
";
        assert_eq!(shown.as_text("target/release/sheaf"), wanted);
        let far = Shown { here: false, namespace: "team".into(), ..shown }.as_text("sheaf");
        assert!(far.contains("console demo -n team"), "{far}");
        assert!(far.contains("sheaf vm ssh -i /data/demo_ed25519 demo@demo -n team --kubeconfig"), "{far}");
    }
}
