//! A node that dies after every single step of what it does with snapshots, while the guest writes and reads: taking
//! one of all disks, deleting one in the middle of a chain, copying a disk, restoring to a new machine.
//!
//! The guest numbers blocks of both disks in turn, so that every block says what it must hold, and what is of one instant
//! can be told from what is not. It is one machine that lives through all of the deaths: a death costs a start of
//! the node, not of the guest. After each, the guest has all it wrote, QEMU has the layers that the storage has, and
//! nothing is left behind.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sheaf_testbed::guests;
use sheaf_tests::{
    dying::{Death, after_every_step, die_after, is_every_step_wanted, restart_mortal},
    machines::{
        CLAIMS, Farm, MACHINES, Serial, ask_monitor, claim, control_group_files,
        directories_of_control_groups, machine,
    },
    patience,
};

const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const VOLUMES: &str = "/api/v1/persistentvolumes";
/// What lies beside the layers of a volume.
const MANIFESTS: [&str; 2] = ["manifest.copy.json", "manifest.json"];
const NAME: &str = "vm";
const DATA: &str = "vm-data";

/// Numbers blocks of both disks in turn, from 50 MiB on, behind all that it boots from, and keeps what they must hold.
const COUNT: &str = "(n=0; dd if=/dev/zero of=/run/expected bs=512 count=1; while [ ! -e /run/stop ]; do n=$((n+1)); \
     printf '%511d\\n' $n >/run/block; cat /run/block >>/run/expected; for d in vda sda; do \
     dd if=/run/block of=/dev/$d bs=512 seek=$((102400+n)) conv=notrunc,fsync; done; \
     echo $n >/run/new; mv /run/new /run/written; usleep 50000; done; echo >/run/stopped) >/dev/null 2>&1 &";
/// Reads from the disks all that was written so far, and keeps where it is not there.
const COMPARE: &str = "n=$(cat /run/written); b=$(((n+1)*512)); echo 3 >/proc/sys/vm/drop_caches; \
     e=$(head -c $b /run/expected | md5sum); for d in vda sda; do \
     f=$(dd if=/dev/$d bs=64k skip=800 2>/dev/null | head -c $b | md5sum); \
     [ \"$e\" = \"$f\" ] || echo $d $n $e $f >>/run/odd; done";
/// The same again and again.
const KEEP_COMPARING: &str =
    "(while [ ! -e /run/stop ]; do sh /run/compare; sleep 1; done) >/dev/null 2>&1 &";

/// One that was taken, and the last block of each disk in it.
#[derive(Clone, Debug)]
struct Backup {
    name: String,
    last: [u64; 2],
}

struct Story {
    farm: Option<Farm>,
    serial: Serial,
    uid: String,
    /// As the kernel lists them for its control groups, whatever else runs on this host.
    processes: BTreeSet<String>,
    backups: Vec<Backup>,
    /// How many there ever were.
    taken: usize,
}

impl Story {
    fn begin(uuid: &'static str) -> Option<Story> {
        let guest = guests::tiny()?;
        let farm = Farm::start();
        farm.image("tiny", &guest.disk);
        let mut vm = machine(NAME, uuid, Some("tiny"));
        let claims = json!([claim(NAME, Some("tiny"), "64Mi"), claim(DATA, None, "64Mi")]);
        vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
        // What is restored of it does not start by itself.
        vm["spec"]["runStrategy"] = "Manual".into();
        let spec = &mut vm["spec"]["template"]["spec"];
        let disks = spec["domain"]["devices"]["disks"].as_array_mut().unwrap();
        disks.push(json!({"name": "data", "disk": {"bus": "scsi"}}));
        let volumes = spec["volumes"].as_array_mut().unwrap();
        volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": DATA}}));
        farm.api().post(MACHINES, &vm).object();
        let start =
            format!("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{NAME}/start");
        let started = farm.api().put(&start, &json!({}));
        assert_eq!(started.code, 202, "{}", started.text());
        let instance = farm.running(NAME);
        let mut serial = farm.serial(&instance);
        serial.hears("tiny guest is up\r\n");
        serial.runs(&format!("echo '{COMPARE}' >/run/compare"));
        serial.runs(COUNT);
        serial.runs("until [ -e /run/written ]; do usleep 10000; done");
        serial.runs(KEEP_COMPARING);
        let uid = instance["metadata"]["uid"].as_str().unwrap().to_owned();
        let mut story = Story {
            farm: Some(farm),
            serial,
            processes: processes_of(&uid),
            uid,
            backups: Vec::new(),
            taken: 0,
        };
        // What dies is started anew; the one that was not told of deaths is not needed.
        story.restart();
        Some(story)
    }

    fn farm(&self) -> &Farm {
        self.farm.as_ref().unwrap()
    }

    /// Kills the node if it is not dead, and starts it again.
    fn restart(&mut self) {
        self.farm = self.farm.take().map(restart_mortal);
    }

    /// Has the node die after step `last` from here on, asks it, and waits for that or for `done`. A new node runs
    /// afterwards.
    fn dies(&mut self, last: &str, ask: impl Fn(&Farm), done: impl Fn(&Farm) -> bool) -> Death {
        let (farm, death) = die_after(self.farm.take().unwrap(), last, ask, done);
        self.farm = Some(farm);
        death
    }

    /// What the guest has written to both disks. All of it is there, and was whenever the guest looked.
    fn written(&mut self) -> u64 {
        let said = self.serial.runs("sh /run/compare; cat /run/odd 2>/dev/null; echo is $(cat /run/written)");
        let number = said.trim().strip_prefix("is ").unwrap_or_else(|| panic!("blocks are lost: {said}"));
        number.trim().parse().unwrap()
    }

    /// Waits until nothing is odd. The machine never stopped.
    fn settles(&mut self, what: &str, layers: Option<usize>) {
        let began = Instant::now();
        loop {
            let odd = odd(self.farm(), &self.uid, layers);
            if odd.is_empty() {
                break;
            }
            if began.elapsed() > patience::TOO_LONG {
                let log = self.farm().node.log();
                let lines: Vec<&str> = log.lines().collect();
                panic!("{what}: {odd:?}; the log ends with {:#?}", &lines[lines.len().saturating_sub(40)..]);
            }
            thread::sleep(Duration::from_millis(50));
        }
        let farm = self.farm();
        assert_eq!(processes_of(&self.uid), self.processes, "{what}: it is the same QEMU, and no second one");
        let instance = farm.running(NAME);
        assert_eq!(instance["metadata"]["uid"], self.uid.as_str(), "{what}: it is the same instance");
    }

    /// Takes a backup with a death after step `last`, and looks at it.
    fn backs_up(&mut self, last: &str) -> Death {
        let (name, before) = (self.next_name(), self.written());
        let death = self.dies(last, |farm| back_up(farm, &name), |farm| is_ready(farm, &name));
        back_up(self.farm(), &name);
        self.has_backup(&format!("a backup, step {last}, {:?}", death.steps.last()), name, before);
        death
    }

    fn next_name(&mut self) -> String {
        self.taken += 1;
        format!("backup-{}", self.taken)
    }

    /// A backup becomes ready that was asked for when the guest had written so much: one instant of both disks.
    fn has_backup(&mut self, what: &str, name: String, before: u64) {
        patience::until(format!("{what} to be ready"), || is_ready(self.farm(), &name).then_some(()));
        self.settles(what, Some(self.backups.len() + 2));
        let last = last_numbers(self.farm(), &name);
        let ([root, data], now) = (last, self.written());
        assert!(root == data || root == data + 1, "{what}: of different instants: {root} and {data}");
        assert!(before <= data && root <= now + 1, "{what}: {before} <= {data}, {root} <= {now}");
        self.backups.push(Backup { name, last });
    }

    /// Deletes the last backup but one with a death after step `last`.
    fn deletes_in_the_middle(&mut self, last: &str) -> Death {
        while self.backups.len() < 3 {
            let (name, before) = (self.next_name(), self.written());
            back_up(self.farm(), &name);
            self.has_backup("one more backup", name, before);
        }
        let gone = self.backups.remove(self.backups.len() - 2);
        let path = format!("{BACKUPS}/{}", gone.name);
        let layers = Some(self.backups.len() + 1);
        let delete = |farm: &Farm| {
            let code = farm.api().delete(&path).code;
            assert!(code < 300 || code == 404, "{code}");
        };
        let uid = self.uid.clone();
        let death = self.dies(last, delete, |farm| odd(farm, &uid, layers).is_empty());
        delete(self.farm());
        let what = format!("a deletion, step {last}, {:?}", death.steps.last());
        self.settles(&what, layers);
        for kept in [&self.backups[0], &self.backups[self.backups.len() - 1]] {
            assert_eq!(last_numbers(self.farm(), &kept.name), kept.last, "{what}: {kept:?} is what it was");
        }
        self.written();
        death
    }

    /// Copies the data disk with a death after step `last`.
    fn copies(&mut self, last: &str) -> Death {
        let name = format!("copy-{}", self.next_name());
        let before = self.written();
        let mut copy = claim(&name, None, "64Mi");
        (copy["apiVersion"], copy["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
        copy["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": DATA});
        let ask = |farm: &Farm| {
            let code = farm.api().post(CLAIMS, &copy).code;
            assert!([201, 409].contains(&code), "{code}");
        };
        let path = format!("{CLAIMS}/{name}");
        let is_bound = |farm: &Farm| farm.api().get(&path).json()["status"]["phase"] == "Bound";
        let death = self.dies(last, ask, is_bound);
        ask(self.farm());
        patience::until(format!("step {last}: {name} to be bound"), || is_bound(self.farm()).then_some(()));
        let what = format!("a copy, step {last}, {:?}", death.steps.last());
        self.settles(&what, None);
        let last = last_number(self.farm(), &volume_of(self.farm(), &name));
        let now = self.written();
        assert!(before <= last && last <= now + 1, "{what}: {before} <= {last} <= {now}");
        death
    }

    /// Restores the first backup to a new machine with a death after step `last`.
    fn restores(&mut self, last: &str) -> Death {
        let name = format!("again-{}", self.next_name());
        let restore = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": name}, "spec": {"newVM": true, "virtualMachineBackupName": self.backups[0].name,
                "virtualMachineBackupNamespace": "default",
                "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name}}});
        let ask = |farm: &Farm| {
            let code = farm.api().post(RESTORES, &restore).code;
            assert!([201, 409].contains(&code), "{code}");
        };
        let path = format!("{RESTORES}/{name}");
        let is_complete = |farm: &Farm| farm.api().get(&path).json()["status"]["complete"] == true;
        let death = self.dies(last, ask, is_complete);
        // The machine that it makes is in the way of the same order again.
        if self.farm().api().get(&path).code == 404 {
            ask(self.farm());
        }
        patience::until(format!("step {last}: {name} to be complete"), || {
            is_complete(self.farm()).then_some(())
        });
        let what = format!("a restore, step {last}, {:?}", death.steps.last());
        self.settles(&what, None);
        let farm = self.farm();
        let restored = farm.api().get(&format!("{MACHINES}/{name}")).object();
        let volumes = restored["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
        let of = |disk: &str| {
            let volume = volumes.iter().find(|one| one["name"] == disk).unwrap();
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str().unwrap();
            last_number(farm, &volume_of(farm, claim))
        };
        assert_eq!([of("root"), of("data")], self.backups[0].last, "{what}");
        self.written();
        death
    }

    /// After the guest wrote its last: every block of both disks on the host's own disk holds what it must.
    fn ends(&mut self) {
        self.serial.runs("touch /run/stop; until [ -e /run/stopped ]; do usleep 10000; done");
        let written = self.written();
        let farm = self.farm();
        farm.set_run_strategy(NAME, "Halted");
        farm.stopped(NAME);
        assert_eq!([NAME, DATA].map(|claim| last_number(farm, &volume_of(farm, claim))), [written; 2]);
    }
}

/// What is not as it should be on the host: layers that QEMU has and the storage does not or the other way round, another number of
/// them than is wanted above the image, and what nobody asked for.
fn odd(farm: &Farm, uid: &str, layers: Option<usize>) -> Vec<String> {
    let mut api = farm.api();
    let mut odd = Vec::new();
    let mut compare = |what: &str, found: Vec<String>, wanted: Vec<String>| {
        let (found, wanted) = (BTreeSet::from_iter(found), BTreeSet::from_iter(wanted));
        if found != wanted {
            odd.push(format!("{what}: {found:?}, not {wanted:?}"));
        }
    };
    let data_dir = farm.node.data_dir();
    let uids = |list: &Value, of: &str| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|one| one.pointer(of).unwrap().as_str().unwrap().to_owned()).collect()
    };
    compare(
        "snapshots",
        names(&data_dir.join("snapshots")),
        uids(&api.get(SNAPSHOTS).object(), "/metadata/uid"),
    );
    let volumes = uids(&api.get(VOLUMES).object(), "/spec/csi/volumeHandle");
    let volumes = volumes.iter().map(|handle| handle.trim_start_matches("pvc-").to_owned()).collect();
    compare("volumes", names(&data_dir.join("volumes")), volumes);
    compare("machines", names(&data_dir.join("machines")), vec![uid.to_owned()]);
    for group in directories_of_control_groups(&[uid.to_owned()]) {
        let beside = Path::new(&group).parent().unwrap();
        let groups = names(beside).into_iter().filter(|name| beside.join(name).is_dir()).collect();
        compare(&group, groups, vec![uid.to_owned()]);
    }
    let socket = data_dir.join("machines").join(uid).join("tools");
    let nodes = ask_monitor(&socket, &["query-named-block-nodes"]).remove(0);
    for (disk, claim, of_image) in [("root", NAME, 1), ("data", DATA, 0)] {
        let directory = volume_of(farm, claim);
        let mut found = Vec::new();
        for node in nodes.as_array().unwrap() {
            let rest = node["node-name"].as_str().unwrap().strip_prefix(&format!("disk-{disk}-"));
            if let Some(rest) = rest.filter(|rest| !rest.ends_with("-file")) {
                let digits = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
                found.push(format!("layer-{}", &rest[..digits]));
            }
        }
        let wanted: Vec<String> = chain(&directory).into_iter().map(|(file, _)| file).collect();
        if found.len() != wanted.len() {
            compare(&format!("QEMU's nodes of {disk}"), vec![format!("{found:?}")], wanted.clone());
        }
        let manifest = fs::read_to_string(directory.join("manifest.json")).unwrap();
        let unfinished =
            ["pending", "writtenFrom", "merged"].into_iter().filter(|word| manifest.contains(word));
        compare(&format!("what {disk} waits for"), unfinished.map(str::to_owned).collect(), Vec::new());
        if let Some(layers) = layers {
            compare(disk, vec![wanted.len().to_string()], vec![(layers + of_image).to_string()]);
        }
        compare(
            &format!("files of {disk}"),
            names(&directory),
            [wanted.clone(), MANIFESTS.map(str::to_owned).to_vec()].concat(),
        );
        compare(&format!("QEMU's layers of {disk}"), found, wanted);
    }
    odd
}

/// Does it again and again with a death after another step of those that it takes. These are among them whatever is done at
/// once: the order, and so the numbers, are not always the same.
fn after_these_steps(story: &mut Story, steps: &[&str], mut once: impl FnMut(&mut Story, &str) -> Death) {
    let died_after = match is_every_step_wanted() {
        true => after_every_step(|last| once(story, last)),
        false => Vec::new(),
    };
    for step in steps {
        if !died_after.iter().any(|one| one == step) {
            let death = once(story, step);
            assert!(!death.survived, "nobody took the step {step}, only {:?}", death.steps);
        }
    }
}

pub(super) fn back_up(farm: &Farm, name: &str) {
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": name}, "spec": {"type": "snapshot",
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": NAME}}});
    let code = farm.api().post(BACKUPS, &backup).code;
    assert!([201, 409].contains(&code), "{code}");
}

pub(super) fn is_ready(farm: &Farm, backup: &str) -> bool {
    farm.api().get(&format!("{BACKUPS}/{backup}")).json()["status"]["readyToUse"] == true
}

/// The last block of each disk in a backup.
fn last_numbers(farm: &Farm, backup: &str) -> [u64; 2] {
    [NAME, DATA].map(|claim| last_number(farm, &snapshot_of(farm, backup, claim)))
}

/// Where the storage keeps the snapshot of a claim that a backup took.
pub(super) fn snapshot_of(farm: &Farm, backup: &str, claim: &str) -> PathBuf {
    let snapshot = farm.api().get(&format!("{SNAPSHOTS}/{backup}-volume-{claim}")).object();
    farm.node.data_dir().join("snapshots").join(snapshot["metadata"]["uid"].as_str().unwrap())
}

/// Where the storage keeps the volume of a claim.
fn volume_of(farm: &Farm, claim: &str) -> PathBuf {
    let claim = farm.api().get(&format!("{CLAIMS}/{claim}")).object();
    let volume = claim["spec"]["volumeName"].as_str().unwrap();
    farm.node.data_dir().join("volumes").join(volume.trim_start_matches("pvc-"))
}

/// Everything that runs for a machine.
fn processes_of(uid: &str) -> BTreeSet<String> {
    let lists = control_group_files(uid, &["cgroup.procs"]);
    lists.iter().flat_map(|(_, list)| list.lines().map(str::to_owned)).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The layers that a manifest names, bottom first, with their formats.
fn chain(directory: &Path) -> Vec<(String, String)> {
    let manifest: Value =
        serde_json::from_slice(&fs::read(directory.join("manifest.json")).unwrap()).unwrap();
    let layers = manifest["layers"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    layers.map(|layer| (text(&layer["file"]), text(&layer["format"]))).collect()
}

/// All layers of a volume or snapshot, as QEMU's tools are told of them.
pub(super) fn image_of(directory: &Path) -> String {
    let mut below = Value::Null;
    for (file, format) in chain(directory) {
        let path = directory.join(file);
        let mut node =
            json!({"driver": format, "file": {"driver": "file", "filename": path, "locking": "off"}});
        if format == "qcow2" {
            node["backing"] = below;
        }
        below = node;
    }
    format!("json:{below}")
}

/// The last of the guest's blocks that a disk has. All before it are there, and nothing comes after it.
fn last_number(farm: &Farm, directory: &Path) -> u64 {
    let copy = farm.node.scratch().join("copy");
    let copied = Command::new("qemu-img")
        .args(["dd", "-U", "-O", "raw", "bs=1M", "skip=50"])
        .arg(format!("if={}", image_of(directory)))
        .arg(format!("of={}", copy.display()))
        .output()
        .unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let content = fs::read(&copy).unwrap();
    // The first block stays empty: the guest counts from one.
    let numbered = content.chunks(512).skip(1).take_while(|block| block[511] == b'\n');
    let mut last = 0;
    for block in numbered {
        last += 1;
        let number = std::str::from_utf8(&block[500..511]).unwrap().trim();
        assert_eq!(number, last.to_string(), "{} lost a block", directory.display());
    }
    let is_empty = |block: &[u8]| block == [0; 512];
    let others = content.chunks(512).take(1).chain(content.chunks(512).skip(last + 1));
    assert!({ others }.all(is_empty), "{} has blocks beyond {last}", directory.display());
    last as u64
}

const BACKING_UP: [&str; 10] = [
    "LayerAdded",
    "SnapshotBegun",
    "AddLayer",
    "SwitchLayers",
    "SnapshotDirectoryMade",
    "SnapshotLinked",
    "SnapshotManifestWritten",
    "SnapshotPublished",
    "SnapshotFinished",
    "WriteStatus",
];

const DELETING: [&str; 9] = [
    "SnapshotWithdrawn",
    "Release",
    "LauncherSpawned",
    "BeginMerge",
    "MergeNoted",
    "LayerDropped",
    "AddLayer",
    "PassOverLayer",
    "DropLayer",
];

const COPYING: [&str; 10] = [
    "SnapshotBegun",
    "SwitchLayers",
    "SnapshotFinished",
    "VolumeDirectoryMade",
    "SnapshotLinkedIn",
    "LayerWritten",
    "VolumeManifestWritten",
    "VolumePublished",
    "SnapshotRemoved",
    "WriteStatus",
];

const RESTORING: [&str; 6] = [
    "VolumeDirectoryMade",
    "SnapshotLinkedIn",
    "LayerWritten",
    "VolumeManifestWritten",
    "VolumePublished",
    "WriteStatus",
];

#[test]
fn snapshots_of_a_machine_that_writes_survive_death_after_every_kind_of_step() {
    let Some(mut story) = Story::begin("11111111-0000-4000-8000-000000000007") else { return };
    after_these_steps(&mut story, &BACKING_UP, Story::backs_up);
    after_these_steps(&mut story, &DELETING, Story::deletes_in_the_middle);
    after_these_steps(&mut story, &COPYING, Story::copies);
    after_these_steps(&mut story, &RESTORING, Story::restores);
    story.ends();
}
