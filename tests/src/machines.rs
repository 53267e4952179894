//! A node that runs machines, and its host as seen from outside: which processes, taps, files and control groups
//! there are, whatever the API says.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{http::Connection, node::Node, patience};

/// Where machines live in the API.
pub const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";

/// A node with a network of its own for its machines.
pub struct Farm {
    pub node: Node,
    network: String,
}

impl Farm {
    pub fn start() -> Farm {
        // Nodes that share a kernel must not share their machines' addresses.
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let third = NEXT.fetch_add(1, Ordering::Relaxed);
        let second = 64 + std::process::id() % 128;
        let network = format!("10.{second}.{third}.0/24");
        let node = Node::start_with(&["--vm-cidr", &network, "--allow-local-images"]);
        Farm { node, network }
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
        let url = serve(file);
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
        let gateway = self.network.replace(".0/24", ".1/24");
        let addresses = output("ip", &["-4", "-brief", "address"]);
        let bridge = addresses.lines().find(|line| line.split_whitespace().any(|word| word == gateway));
        let Some(bridge) = bridge.and_then(|line| line.split_whitespace().next()) else { return Vec::new() };
        let ports = fs::read_dir(format!("/sys/class/net/{bridge}/brif")).into_iter().flatten().flatten();
        ports.map(|port| format!("tap {}", port.file_name().to_string_lossy())).collect()
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

    /// Reads until `text` came by; answers everything before it.
    #[track_caller]
    pub fn hears(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some(at) = self.heard.find(text) {
                let before = self.heard[..at].to_owned();
                self.heard.drain(..at + text.len());
                return before;
            }
            assert!(
                began.elapsed() < patience::TOO_LONG_FOR_A_GUEST,
                "never heard {text:?}, but {:?}",
                self.heard
            );
            let mut piece = [0; 4096];
            if let Ok(length) = self.stream.read(&mut piece) {
                self.heard += &String::from_utf8_lossy(&piece[..length]);
            }
        }
    }

    /// Has the guest run a command; answers what it printed, without what was typed.
    pub fn runs(&mut self, command: &str) -> String {
        self.types(&format!("run {command}"));
        self.hears("\n");
        let printed = self.hears("ran ");
        self.hears("\n");
        printed
    }
}

/// Files of these names in the control groups of an instance, with what they say.
pub fn control_group_files(uid: &str, names: &[&str]) -> Vec<(String, String)> {
    let groups = directories_of_control_groups(&[uid.to_owned()]);
    let files = groups.iter().flat_map(|group| names.iter().map(move |name| format!("{group}/{name}")));
    files.filter_map(|file| fs::read_to_string(&file).ok().map(|text| (file, text))).collect()
}

fn directories_of_control_groups(uids: &[String]) -> Vec<String> {
    let found = output("find", &["/sys/fs/cgroup", "-type", "d"]);
    let of_ours = found.lines().filter(|line| uids.iter().any(|uid| line.contains(uid.as_str())));
    of_ours.map(str::to_owned).collect()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Serves one file to whoever asks for anything, until the process ends.
fn serve(file: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/image", listener.local_addr().unwrap());
    let file: PathBuf = file.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 4096];
            _ = stream.read(&mut request);
            let Ok(mut content) = fs::File::open(&file) else { continue };
            let length = content.metadata().map_or(0, |metadata| metadata.len());
            _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            _ = std::io::copy(&mut content, &mut stream);
        }
    });
    url
}
