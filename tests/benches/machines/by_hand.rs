//! The same machines without Sheaf: what a person would put into a shell script.
//!
//! The command line is read off a machine that Sheaf runs, so the two QEMUs have the same devices and
//! settings. Only what Sheaf hands over as open descriptors (disks, tap, sockets) is named by path here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use crate::qmp;

const DIRECTORY: &str = "@directory@";
const TAP: &str = "@tap@";

/// As a plain script does it: an overlay, a tap, and QEMU in the shell's place.
const SCRIPT: &str = r#"set -e
    qemu-img create -q -f qcow2 -F raw -b "$1" "$2/overlay" 64M
    ip tuntap add dev "$3" mode tap
    ip link set dev "$3" master "$4" up
    shift 4
    exec qemu-system-x86_64 "$@""#;

/// How to make a machine by hand, as often as one likes.
pub struct Recipe {
    arguments: Vec<String>,
    image: PathBuf,
    seed: Vec<u8>,
    /// Where overlays and sockets go.
    directory: PathBuf,
    bridge: String,
}

/// A machine made by hand. Gone with its tap and overlay when dropped.
pub struct ByHand {
    qemu: Child,
    tap: String,
    directory: PathBuf,
}

impl Recipe {
    /// From the QEMU that Sheaf started. `image` is what its disk is made of.
    pub fn of_process(pid: i32, image: &Path, directory: PathBuf) -> Recipe {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let line: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let mut arguments = Vec::new();
        let mut sets: BTreeMap<String, String> = BTreeMap::new();
        // The first word is QEMU itself, the last is empty.
        let mut words = line[1..line.len() - 1].iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                // It says which set of descriptors is which file: `fd=11,set=11,opaque=disk-root-0`.
                "-add-fd" => {
                    let said: Vec<&str> = words.next().unwrap().split([',', '=']).collect();
                    sets.insert(format!("/dev/fdset/{}", said[3]), said[5].to_owned());
                }
                "-blockdev" => {
                    let mut node: Value = serde_json::from_str(words.next().unwrap()).unwrap();
                    let set = node["filename"].as_str().and_then(|name| sets.get(name));
                    match set.map(String::as_str) {
                        None => {}
                        Some("disk-root-0") => node["filename"] = image.to_str().unwrap().into(),
                        Some("disk-root-1") => node["filename"] = format!("{DIRECTORY}/overlay").into(),
                        Some("disk-seed-0") => node["filename"] = format!("{DIRECTORY}/seed").into(),
                        Some(other) => panic!("what is {other}?"),
                    }
                    arguments.extend(["-blockdev".to_owned(), node.to_string()]);
                }
                "-chardev" => {
                    let socket = words.next().unwrap();
                    let id = socket.split([',', '=']).nth(2).unwrap();
                    let listening = format!("socket,id={id},path={DIRECTORY}/{id},server=on,wait=off");
                    arguments.extend(["-chardev".to_owned(), listening]);
                }
                "-netdev" => {
                    let mut netdev: Value = serde_json::from_str(words.next().unwrap()).unwrap();
                    netdev.as_object_mut().unwrap().remove("fd");
                    (netdev["ifname"], netdev["script"], netdev["downscript"]) =
                        (TAP.into(), "no".into(), "no".into());
                    arguments.extend(["-netdev".to_owned(), netdev.to_string()]);
                }
                _ => arguments.push(word.clone()),
            }
        }
        let bridge = format!("hand{}", std::process::id() % 100_000);
        run("ip", &["link", "add", &bridge, "type", "bridge"]);
        run("ip", &["link", "set", &bridge, "up"]);
        Recipe { arguments, image: image.to_owned(), seed: seed_of(pid), directory, bridge }
    }

    /// Begins the `number`th machine. The seed is there already: nobody makes one each time by hand.
    pub fn start(&self, number: usize) -> ByHand {
        let directory = self.directory.join(format!("by-hand-{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("seed"), &self.seed).unwrap();
        let tap = format!("{}-{number}", self.bridge);
        let arguments = self
            .arguments
            .iter()
            .map(|argument| argument.replace(DIRECTORY, directory.to_str().unwrap()).replace(TAP, &tap));
        let qemu = Command::new("sh")
            .args(["-c", SCRIPT, "by-hand"])
            .args([&self.image, &directory])
            .args([&tap, &self.bridge])
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        ByHand { qemu, tap, directory }
    }
}

impl ByHand {
    /// Waits until its guest runs; answers when it did.
    pub fn until_running(&self) -> Instant {
        qmp::until_running(&self.directory.join("tools"))
    }
}

impl Drop for Recipe {
    fn drop(&mut self) {
        run("ip", &["link", "delete", &self.bridge]);
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.qemu.kill();
        _ = self.qemu.wait();
        run("ip", &["link", "delete", &self.tap]);
        _ = fs::remove_dir_all(&self.directory);
    }
}

/// The seed that a machine of Sheaf's has open.
fn seed_of(pid: i32) -> Vec<u8> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let is_seed = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|opened| opened.components().any(|part| part.as_os_str() == "seeds"))
    };
    fs::read(open.into_iter().find(is_seed).unwrap()).unwrap()
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success() || std::thread::panicking(), "{program} {arguments:?}: {status}");
}
