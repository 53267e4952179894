//! A node that runs machines, and its host as seen from outside: which processes, taps, files and control groups
//! there are, whatever the API says.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sheaf_testbed::guests;

use crate::{addresses, http::Connection, node::Node, origin, patience};

/// Where machines live in the API.
pub const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
pub const NETWORKS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A node with a network of its own for its machines.
pub struct Farm {
    pub node: Node,
    network: String,
}

impl Farm {
    pub fn start() -> Farm {
        let network = addresses::next_network();
        let node = Node::start_with(&["--vm-cidr", &network, "--allow-local-images"]);
        Farm { node, network }
    }

    /// The same on a disk of its own, so large.
    pub fn start_on_disk(bytes: u64) -> Farm {
        let network = addresses::next_network();
        let node = Node::start_on_disk(bytes, &["--vm-cidr", &network, "--allow-local-images"]);
        Farm { node, network }
    }

    /// Dies without a word, and comes back.
    pub fn is_killed_and_started_again(self) -> Farm {
        let mut farm = self;
        farm.node.kill();
        farm.is_started_again()
    }

    /// Comes back after it died.
    pub fn is_started_again(self) -> Farm {
        let Farm { node, network } = self;
        let node = node.start_again_with(&["--vm-cidr", &network, "--allow-local-images"]);
        Farm { node, network }
    }

    /// One with the image `tiny`, whose guest boots within seconds; none where that cannot be built.
    pub fn with_tiny_guest() -> Option<Farm> {
        let guest = guests::tiny()?;
        let farm = Farm::start();
        farm.image("tiny", &guest.disk);
        Some(farm)
    }

    /// The image `every-bus`: the same guest with disks and network cards that are not virtio.
    pub fn bring_guest_with_every_bus(&self) -> Option<()> {
        self.image("every-bus", &guests::with_every_bus()?.disk);
        Some(())
    }

    /// A new SSH key: where its private half lies, and the other one.
    pub fn ssh_key(&self, name: &str) -> (PathBuf, String) {
        let private = self.node.scratch().join(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&private)
            .status()
            .unwrap();
        assert!(made.success());
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        let public = fs::read_to_string(private.with_extension("pub")).unwrap();
        (private, public.trim().to_owned())
    }

    /// A farm whose node was started by somebody else.
    pub fn with_node(node: Node, network: &str) -> Farm {
        Farm { node, network: network.to_owned() }
    }

    /// What `sheaf up` is given each time.
    pub fn arguments(&self) -> [&str; 3] {
        ["--vm-cidr", &self.network, "--allow-local-images"]
    }

    pub fn api(&self) -> Connection {
        self.node.admin().connect(&self.node)
    }

    /// An image of this file, fetched from a server that ends with the test process.
    pub fn image(&self, name: &str, file: &Path) {
        let url = origin::serving(file);
        let image = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": name},
            "spec": {"displayName": name, "sourceType": "download", "url": url},
        });
        let mut api = self.api();
        api.post(IMAGES, &image).object();
        patience::until("an image to arrive", || {
            let image = api.get(&format!("{IMAGES}/{name}")).object();
            let conditions = image["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Imported" && one["status"] == "True").then_some(())
        });
    }

    /// Makes what every [`rich_machine`] needs beside itself: an image, a network, a Secret.
    pub fn furnish(&self) {
        let file = self.node.scratch().join("small.raw");
        fs::write(&file, vec![7; 1 << 20]).unwrap();
        self.image("small", &file);
        let mut api = self.api();
        api.post(NETWORKS, &network("second", json!({}))).object();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed"},
            "stringData": {"userdata": "#cloud-config\n", "networkdata": "version: 2\n"}});
        api.post(SECRETS, &secret).object();
    }

    /// The instance of a machine, as the API has it.
    pub fn instance(&self, name: &str) -> Option<Value> {
        let answer = self.api().get(&format!("{INSTANCES}/{name}"));
        (answer.code != 404).then(|| answer.object())
    }

    /// Waits until a machine runs; answers its instance.
    pub fn running(&self, name: &str) -> Value {
        patience::until(format!("machine {name} to run; {}", self.says(name)), || {
            self.instance(name).filter(|instance| instance["status"]["phase"] == "Running")
        })
    }

    /// Waits until a machine has no instance, and its status says so.
    pub fn stopped(&self, name: &str) {
        patience::until(format!("machine {name} to be stopped"), || {
            let machine = self.api().get(&format!("{MACHINES}/{name}")).object();
            let is_stopped = machine["status"]["printableStatus"] == "Stopped";
            (is_stopped && self.instance(name).is_none()).then_some(())
        });
    }

    fn says(&self, name: &str) -> String {
        self.instance(name)
            .map_or_else(|| "no instance".to_owned(), |instance| instance["status"].to_string())
    }

    pub fn set_run_strategy(&self, name: &str, strategy: &str) {
        let change = json!({"spec": {"runStrategy": strategy}}).to_string();
        self.api().patch(&format!("{MACHINES}/{name}"), "merge", &change).object();
    }

    /// A machine's serial console, directly at its socket on the host.
    pub fn serial(&self, instance: &Value) -> Serial {
        let uid = instance["metadata"]["uid"].as_str().unwrap();
        Serial::at(&self.node.data_dir().join("machines").join(uid).join("serial"))
    }

    /// The QEMUs that are the machine of this uuid.
    pub fn processes(&self, uuid: &str) -> Vec<i32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line);
            if line.contains("qemu-system") && line.contains(uuid) {
                found.push(pid);
            }
        }
        found
    }

    /// Everything that machines left on the host: files, taps, control groups. Empty when nothing is.
    pub fn leftovers(&self, uids: &[String]) -> Vec<String> {
        let data_dir = self.node.data_dir();
        let mut left = Vec::new();
        for folder in ["machines", "instances", "seeds", "volumes"] {
            let entries = fs::read_dir(data_dir.join(folder)).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        left.extend(self.taps());
        let groups = directories_of_control_groups(uids);
        left.extend(groups.into_iter().map(|group| format!("control group {group}")));
        left
    }

    /// The interfaces on this node's bridge.
    pub fn taps(&self) -> Vec<String> {
        self.links().iter().map(|link| format!("tap {}", link["ifname"].as_str().unwrap())).collect()
    }

    /// The same as `ip` describes them. Not from /sys: what that shows is the network namespace in which it was mounted, and not
    /// the one that this process is in.
    pub fn links(&self) -> Vec<Value> {
        let Some(bridge) = self.bridge() else { return Vec::new() };
        let links = output("ip", &["-json", "link", "show", "master", &bridge]);
        serde_json::from_str(&links).unwrap_or_default()
    }

    /// The bridge of this node, which is the one that has the gateway's address.
    pub fn bridge(&self) -> Option<String> {
        bridge_of(&self.network)
    }

    /// The power goes: the node and all its machines end, and with them everything that a kernel keeps and a disk does
    /// not.
    pub fn loses_power(&mut self) {
        let bridge = self.bridge().expect("there are machines, and so there is a bridge");
        let (taps, tables) = (self.taps(), tables_of(&bridge));
        assert!(!taps.is_empty() && !tables.is_empty(), "{taps:?} {tables:?}");
        let machines = self.node.data_dir().join("machines");
        let uids = uids_in(&self.node.data_dir());
        let mut groups: Vec<PathBuf> =
            directories_of_control_groups(&uids).into_iter().map(PathBuf::from).collect();
        // The group of all machines goes after its last one.
        let parents: BTreeSet<PathBuf> =
            groups.iter().filter_map(|group| group.parent()).map(Path::to_owned).collect();
        groups.extend(parents);
        groups.extend(places_of(self.node.pid()).into_iter().map(PathBuf::from));

        self.node.kill();
        for uid in &uids {
            let Ok(process) = fs::read(machines.join(uid).join("process")) else { continue };
            let pid = serde_json::from_slice::<Value>(&process).unwrap()["pid"].as_i64().unwrap();
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // It may have ended by itself.
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        for interface in taps.iter().map(|tap| tap.trim_start_matches("tap ")).chain([bridge.as_str()]) {
            output("ip", &["link", "delete", interface]);
        }
        for (family, table) in &tables {
            output("nft", &["delete", "table", family, table]);
        }
        for group in &groups {
            patience::until(format!("{} to be left by all its processes", group.display()), || {
                (fs::remove_dir(group).is_ok() || !group.exists()).then_some(())
            });
        }
        assert_eq!((self.bridge(), tables_of(&bridge)), (None, Vec::new()));
    }
}

/// A machine to be created: small, on the default network, with a disk of its own and a seed.
pub fn machine(name: &str, uuid: &str, image: Option<&str>) -> Value {
    let claim = claim(name, image, if image.is_some() { "64Mi" } else { "16Mi" });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "annotations": {
            "harvesterhci.io/volumeClaimTemplates": json!([claim]).to_string(),
            "harvesterhci.io/removedPersistentVolumeClaims": name}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "terminationGracePeriodSeconds": 1,
            "domain": {
                "cpu": {"cores": 1}, "memory": {"guest": "128Mi"}, "firmware": {"uuid": uuid},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "bridge": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": name}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}]}}},
    })
}

/// Has a machine boot from another image than the one it was made with.
pub fn boot_from(vm: &mut Value, image: &str) {
    let name = vm["metadata"]["name"].as_str().unwrap();
    let claims = json!([claim(name, Some(image), "64Mi")]);
    vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = claims.to_string().into();
}

/// A machine with one of everything that a node makes ready for one: a root disk of an image, a data disk on another bus,
/// firmware with variables, NICs on two networks, a seed of a Secret, a limit to what it takes of the
/// processors. [`Farm::furnish`] makes the rest.
pub fn rich_machine(name: &str, uuid: &str) -> Value {
    let mut vm = machine(name, uuid, Some("small"));
    let data = format!("{name}-data");
    let claims = json!([claim(name, Some("small"), "16Mi"), claim(&data, None, "8Mi")]);
    let annotations = &mut vm["metadata"]["annotations"];
    annotations["harvesterhci.io/volumeClaimTemplates"] = claims.to_string().into();
    annotations["harvesterhci.io/removedPersistentVolumeClaims"] = format!("{name},{data}").into();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["firmware"]["bootloader"] = json!({"efi": {"secureBoot": false}});
    // Firmware that finds nothing to boot looks for it all the time, and under emulation that takes a whole processor from
    // whatever else is tested.
    spec["domain"]["resources"] = json!({"limits": {"cpu": "200m"}});
    let add = |list: &mut Value, one: Value| list.as_array_mut().unwrap().push(one);
    add(&mut spec["domain"]["devices"]["disks"], json!({"name": "data", "disk": {"bus": "scsi"}}));
    add(&mut spec["domain"]["devices"]["interfaces"], json!({"name": "second", "bridge": {}}));
    add(&mut spec["networks"], json!({"name": "second", "multus": {"networkName": "default/second"}}));
    spec["volumes"][1] = json!({"name": "seed", "cloudInitConfigDrive": {
        "secretRef": {"name": "seed"}, "networkDataSecretRef": {"name": "seed"}}});
    add(&mut spec["volumes"], json!({"name": "data", "persistentVolumeClaim": {"claimName": data}}));
    vm
}

/// An untagged network on the management network's bridge, with more in its configuration.
pub fn network(name: &str, more: Value) -> Value {
    let mut config = json!({"cniVersion": "0.3.1", "name": name, "type": "bridge", "bridge": "mgmt-br",
        "promiscMode": true, "vlan": 0, "ipam": {}});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name},
        "spec": {"config": config.to_string()}})
}

/// A claim's template, for a machine's annotation: of an image, or empty.
pub fn claim(name: &str, image: Option<&str>, size: &str) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "volumeMode": "Block", "resources": {"requests": {"storage": size}}}});
    if let Some(image) = image {
        claim["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": format!("default/{image}")});
        claim["spec"]["storageClassName"] = format!("longhorn-{image}").into();
    }
    claim
}

/// A conversation with a guest on its serial console.
pub struct Serial {
    stream: UnixStream,
    heard: String,
}

impl Serial {
    /// The console at a socket of QEMU's, once nobody else is at it.
    pub fn at(socket: &Path) -> Serial {
        let stream = patience::until("the serial console to be free", || UnixStream::connect(socket).ok());
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        Serial { stream, heard: String::new() }
    }

    pub fn types(&mut self, line: &str) {
        writeln!(self.stream, "{line}").unwrap();
    }

    /// Reads until `text` came by; answers everything before it. Gives up on a guest that says nothing for too long.
    #[track_caller]
    pub fn hears(&mut self, text: &str) -> String {
        let mut last_heard = Instant::now();
        loop {
            if let Some(at) = self.heard.find(text) {
                let before = self.heard[..at].to_owned();
                self.heard.drain(..at + text.len());
                return before;
            }
            assert!(
                last_heard.elapsed() < patience::TOO_LONG_FOR_A_GUEST,
                "never heard {text:?}, but {:?}",
                self.heard
            );
            let mut piece = [0; 4096];
            if let Ok(length) = self.stream.read(&mut piece) {
                if length > 0 {
                    last_heard = Instant::now();
                }
                self.heard += &String::from_utf8_lossy(&piece[..length]);
            }
        }
    }

    /// Has the guest run a command; answers what it printed, without what was typed.
    pub fn runs(&mut self, command: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // What is typed comes back, perhaps in the middle of something else; what the guest works out does not.
        self.types(&format!("run echo begun-$(({number})); {command}"));
        self.hears(&format!("begun-{number}\r\n"));
        let printed = self.hears("ran ");
        self.hears("\n");
        printed
    }
}

/// What QEMU answers to commands without arguments, at a monitor that nobody else is at.
pub fn ask_monitor(socket: &Path, commands: &[&str]) -> Vec<Value> {
    let stream = patience::until("the monitor to be free", || UnixStream::connect(socket).ok());
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut answers = Vec::new();
    for command in ["qmp_capabilities"].iter().chain(commands) {
        writeln!(&stream, "{}", json!({"execute": command})).unwrap();
        let answer = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        answers.extend({ answer }.find_map(|line| line.get("return").cloned()));
    }
    answers.split_off(1)
}

/// The bridge of the node whose machines have these addresses.
pub fn bridge_of(network: &str) -> Option<String> {
    let gateway = network.replace(".0/24", ".1/24");
    let addresses = output("ip", &["-4", "-brief", "address"]);
    let line = addresses.lines().find(|line| line.split_whitespace().any(|word| word == gateway))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// The tables of rules that belong to a bridge, as `nft` names them: family and name.
pub fn tables_of(bridge: &str) -> Vec<(String, String)> {
    let name = bridge.replace('-', "_");
    let all = output("nft", &["list", "tables"]);
    let tables = all.lines().filter_map(|line| line.strip_prefix("table ")?.split_once(' '));
    let of_it = tables.filter(|(_, table)| *table == name);
    of_it.map(|(family, table)| (family.to_owned(), table.to_owned())).collect()
}

/// The machines that a data directory has anything of, by uid.
pub fn uids_in(data_dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(data_dir.join("machines")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Files of these names in the control groups of an instance, with what they say.
pub fn control_group_files(uid: &str, names: &[&str]) -> Vec<(String, String)> {
    let groups = directories_of_control_groups(&[uid.to_owned()]);
    let files = groups.iter().flat_map(|group| names.iter().map(move |name| format!("{group}/{name}")));
    files.filter_map(|file| fs::read_to_string(&file).ok().map(|text| (file, text))).collect()
}

/// The control groups that a node made for itself, where it did.
pub fn places_of(pid: u32) -> Vec<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = groups.lines().filter_map(|line| line.rsplit_once("/sheaf-"));
    let names: Vec<String> =
        own.filter(|(_, name)| name.ends_with("-node")).map(|(_, name)| format!("/sheaf-{name}")).collect();
    let found = output("find", &["/sys/fs/cgroup", "-type", "d"]);
    let of_ours = found.lines().filter(|line| names.iter().any(|name| line.ends_with(name.as_str())));
    of_ours.map(str::to_owned).collect()
}

/// The control groups of these machines.
pub fn directories_of_control_groups(uids: &[String]) -> Vec<String> {
    let found = output("find", &["/sys/fs/cgroup", "-type", "d"]);
    let of_ours = found.lines().filter(|line| uids.iter().any(|uid| line.contains(uid.as_str())));
    of_ours.map(str::to_owned).collect()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
