//! Limits on what a machine's processes may use, and a second way to find them.
//!
//! Version 2 is the target: one tree with all controllers. On version 1 each controller has
//! a tree of its own, and the trees for memory and CPU are used. On a host that has both (a version-2 tree
//! without controllers beside version-1 trees), the machine is in all of them.
//!
//! A missing tree, controller or permission stops no machine: what could not be done is
//! said once in [`Cgroups::limits`] and the machine runs without.

mod shelter;

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

pub use self::shelter::NodeShelter;
use crate::machine::MachineId;

/// What one processor weighs, and the least and the most that the kernel takes: in version 1, and in version 2.
const SHARES: u64 = 1024;
const LEAST_SHARES: u64 = 2;
const MOST_SHARES: u64 = 262_144;
const WEIGHT: u64 = 100;
const LEAST_WEIGHT: u64 = 1;
const MOST_WEIGHT: u64 = 10_000;

/// The trees of this host in which machines of one data directory live.
#[derive(Clone, Debug)]
pub struct Cgroups {
    trees: Vec<Tree>,
    /// The directory in every tree that holds the machines' own.
    parent: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    V2 { root: PathBuf },
    Memory { root: PathBuf },
    Cpu { root: PathBuf },
}

impl Tree {
    fn root(&self) -> &Path {
        match self {
            Tree::V2 { root } | Tree::Memory { root } | Tree::Cpu { root } => root,
        }
    }
}

/// What a machine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: u64,
    pub cpu: CpuLimits,
}

/// What a machine may use of the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimits {
    /// In thousandths of a CPU: when the host is busy, a machine with 400 gets twice what one with 200 gets.
    pub weight_milli: u32,
    /// The ceiling, in thousandths of a CPU; without one a machine uses what is free.
    pub ceiling_milli: Option<u32>,
}

/// Over which a CPU ceiling holds: the kernel's own default.
const PERIOD_MICROS: u64 = 100_000;
/// The kernel takes no less.
const LEAST_QUOTA_MICROS: u64 = 1_000;

impl CpuLimits {
    /// The CPU time that all processes of a machine may use in each period.
    fn quota_micros(&self) -> Option<u64> {
        let milli = u64::from(self.ceiling_milli?);
        Some((milli * PERIOD_MICROS / 1_000).max(LEAST_QUOTA_MICROS))
    }
}

impl Cgroups {
    /// The trees this host has. `directory` is the data directory, which names the parent, so that several
    /// nodes can share a kernel.
    pub fn of_host(directory: &Path) -> Cgroups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Cgroups { trees: trees(&mounts), parent: parent(directory) }
    }

    /// No cgroups at all: the way without privileges.
    pub fn none() -> Cgroups {
        Cgroups { trees: Vec::new(), parent: String::new() }
    }

    fn directory(&self, tree: &Tree, machine: &MachineId) -> PathBuf {
        tree.root().join(&self.parent).join(machine.as_str())
    }

    /// Makes a machine's cgroups and limits them. Returns the files in which a process
    /// writes `0` to join, and in words what could not be done.
    pub fn make(&self, machine: &MachineId, limits: Limits) -> (Vec<PathBuf>, Vec<String>) {
        let mut joins = Vec::new();
        let mut missing = Vec::new();
        for tree in &self.trees {
            let directory = self.directory(tree, machine);
            if let Err(why) = fs::create_dir_all(&directory) {
                missing.push(format!("cannot make {}: {why}", directory.display()));
                continue;
            }
            let outcome = match tree {
                Tree::V2 { root } => limit_v2(root, &root.join(&self.parent), &directory, limits),
                Tree::Memory { .. } => write(&directory.join("memory.limit_in_bytes"), limits.memory_bytes),
                Tree::Cpu { root } => limit_cpu_v1(&root.join(&self.parent), &directory, limits.cpu),
            };
            if let Err(why) = outcome {
                missing.push(why);
            }
            joins.push(directory.join("cgroup.procs"));
        }
        (joins, missing)
    }

    /// Changes what a machine may use of the processors from now on. Says in words what could not be done.
    pub fn limit_cpu(&self, machine: &MachineId, cpu: CpuLimits) -> Vec<String> {
        let limit = |tree: &Tree| {
            let (parent, directory) = (tree.root().join(&self.parent), self.directory(tree, machine));
            match tree {
                Tree::Cpu { .. } => limit_cpu_v1(&parent, &directory, cpu),
                Tree::V2 { root } if offers(root, "cpu") => limit_cpu_v2(&parent, &directory, cpu),
                Tree::V2 { .. } | Tree::Memory { .. } => Ok(()),
            }
        };
        self.trees.iter().filter_map(|tree| limit(tree).err()).collect()
    }

    /// Lets a machine use so much memory from now on, or more if it may already: what it had before may still be in its
    /// caches, and the kernel would end it rather than let it give that back. Says in words what could not be done.
    pub fn raise_memory(&self, machine: &MachineId, bytes: u64) -> Vec<String> {
        let raise = |tree: &Tree| {
            let directory = self.directory(tree, machine);
            let file = match tree {
                Tree::Memory { .. } => directory.join("memory.limit_in_bytes"),
                Tree::V2 { root } if offers(root, "memory") => directory.join("memory.max"),
                Tree::V2 { .. } | Tree::Cpu { .. } => return Ok(()),
            };
            let limit = fs::read_to_string(&file).ok().and_then(|limit| limit.trim().parse::<u64>().ok());
            if limit.is_some_and(|limit| limit >= bytes) { Ok(()) } else { write(&file, bytes) }
        };
        self.trees.iter().filter_map(|tree| raise(tree).err()).collect()
    }

    /// Removes a machine's cgroups. There is nothing in them any more when its lock is
    /// free; whatever is there all the same is an error.
    pub fn remove(&self, machine: &MachineId) -> io::Result<()> {
        for tree in &self.trees {
            remove_directory(&self.directory(tree, machine))?;
            // The parent goes with its last machine; while others are in it, it stays.
            let _ = fs::remove_dir(tree.root().join(&self.parent));
        }
        Ok(())
    }

    /// Every process in a machine's cgroups.
    pub fn processes(&self, machine: &MachineId) -> Vec<i32> {
        let mut found: Vec<i32> = self
            .trees
            .iter()
            .filter_map(|tree| fs::read_to_string(self.directory(tree, machine).join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Machines that have a cgroup, whether or not they have anything else.
    pub fn machines(&self) -> Vec<MachineId> {
        let mut found: Vec<MachineId> = self
            .trees
            .iter()
            .filter_map(|tree| fs::read_dir(tree.root().join(&self.parent)).ok())
            .flatten()
            .flatten()
            // Beside the machines are the kernel's own files, some with names like ours.
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// The limits that are in force, as the kernel tells them: for tests and for support.
    pub fn limits(&self, machine: &MachineId) -> Vec<(PathBuf, String)> {
        let files = ["memory.max", "cpu.weight", "memory.limit_in_bytes", "cpu.shares"];
        self.trees
            .iter()
            .flat_map(|tree| files.map(|file| self.directory(tree, machine).join(file)))
            .filter_map(|file| Some((file.clone(), fs::read_to_string(&file).ok()?.trim().to_owned())))
            .collect()
    }
}

fn parent(directory: &Path) -> String {
    let digest = Sha256::digest(directory.as_os_str().as_bytes());
    let hex: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("sheaf-{hex}")
}

/// Reads `/proc/self/mountinfo`.
fn trees(mounts: &str) -> Vec<Tree> {
    let mut trees = Vec::new();
    for line in mounts.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let Some(root) = mount.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut filesystem = filesystem.split(' ');
        let kind = filesystem.next().unwrap_or_default();
        let mut controllers = filesystem.next_back().unwrap_or_default().split(',');
        match kind {
            "cgroup2" => trees.push(Tree::V2 { root }),
            "cgroup" if controllers.clone().any(|name| name == "memory") => {
                trees.push(Tree::Memory { root });
            }
            "cgroup" if controllers.any(|name| name == "cpu") => trees.push(Tree::Cpu { root }),
            _ => {}
        }
    }
    trees
}

/// How much machines weigh together against everything else on the host: as much as its processors. Left alone, all of
/// them together would weigh as much as any one other process.
fn weight_of_all(weight_of_one: u64) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    processors * weight_of_one
}

fn shares(milli: u32) -> u64 {
    (u64::from(milli) * SHARES / 1000).clamp(LEAST_SHARES, MOST_SHARES)
}

fn weight(milli: u32) -> u64 {
    (u64::from(milli) * WEIGHT / 1000).clamp(LEAST_WEIGHT, MOST_WEIGHT)
}

fn limit_cpu_v1(parent: &Path, directory: &Path, cpu: CpuLimits) -> Result<(), String> {
    write(&parent.join("cpu.shares"), weight_of_all(SHARES).min(MOST_SHARES))?;
    write(&directory.join("cpu.shares"), shares(cpu.weight_milli))?;
    // One that was launched before may have had a ceiling.
    if let Some(quota) = cpu.quota_micros() {
        write(&directory.join("cpu.cfs_period_us"), PERIOD_MICROS)?;
        write(&directory.join("cpu.cfs_quota_us"), quota)?;
    } else if directory.join("cpu.cfs_quota_us").exists() {
        write(&directory.join("cpu.cfs_quota_us"), -1)?;
    }
    Ok(())
}

fn limit_cpu_v2(parent: &Path, directory: &Path, cpu: CpuLimits) -> Result<(), String> {
    write(&parent.join("cpu.weight"), weight_of_all(WEIGHT).min(MOST_WEIGHT))?;
    write(&directory.join("cpu.weight"), weight(cpu.weight_milli))?;
    if let Some(quota) = cpu.quota_micros() {
        write(&directory.join("cpu.max"), format!("{quota} {PERIOD_MICROS}"))?;
    } else if directory.join("cpu.max").exists() {
        write(&directory.join("cpu.max"), "max")?;
    }
    Ok(())
}

/// Whether a tree of version 2 has a controller.
fn offers(root: &Path, controller: &str) -> bool {
    let offered = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    offered.split_ascii_whitespace().any(|name| name == controller)
}

/// Each controller on its own: one that cannot be had is no reason to do without the other.
fn limit_v2(root: &Path, parent: &Path, directory: &Path, limits: Limits) -> Result<(), String> {
    // A controller must be handed down level by level.
    let hand_down = |controller: &str| {
        [root, parent]
            .iter()
            .try_for_each(|level| write(&level.join("cgroup.subtree_control"), format!("+{controller}")))
    };
    let memory = || {
        hand_down("memory")?;
        write(&directory.join("memory.max"), limits.memory_bytes)
    };
    let cpu = || {
        hand_down("cpu")?;
        limit_cpu_v2(parent, directory, limits.cpu)
    };
    let outcomes = [offers(root, "memory").then(memory), offers(root, "cpu").then(cpu)];
    let missing: Vec<String> = outcomes.into_iter().flatten().filter_map(Result::err).collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
}

fn write(file: &Path, value: impl ToString) -> Result<(), String> {
    fs::write(file, value.to_string()).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(weight_milli: u32, ceiling_milli: Option<u32>) -> Limits {
        Limits { memory_bytes: 1 << 20, cpu: CpuLimits { weight_milli, ceiling_milli } }
    }

    /// A tree of each version that shares out processors: their roots, and what is in both.
    fn both_versions(root: &Path) -> (PathBuf, PathBuf, Cgroups) {
        let (one, two) = (root.join("v1"), root.join("v2"));
        fs::create_dir_all(&two).unwrap();
        fs::write(two.join("cgroup.controllers"), "cpu").unwrap();
        let trees = vec![Tree::Cpu { root: one.clone() }, Tree::V2 { root: two.clone() }];
        (one, two, Cgroups { trees, parent: "p".into() })
    }

    fn read(file: PathBuf) -> String {
        fs::read_to_string(file).unwrap()
    }

    #[test]
    fn both_versions_and_their_mixture_are_recognised() {
        let v2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot";
        assert_eq!(trees(v2), [Tree::V2 { root: "/sys/fs/cgroup".into() }]);

        let v1 = "\
            30 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            31 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            32 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            33 25 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
            34 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(
            trees(v1),
            [
                Tree::V2 { root: "/sys/fs/cgroup/unified".into() },
                Tree::Cpu { root: "/sys/fs/cgroup/cpu,cpuacct".into() },
                Tree::Memory { root: "/sys/fs/cgroup/memory".into() },
            ]
        );
    }

    #[test]
    fn a_host_without_cgroups_has_no_trees() {
        assert_eq!(trees("22 1 254:1 / / rw - ext4 /dev/vda rw\n"), []);
    }

    #[test]
    fn memory_is_limited_where_processors_cannot_be_shared_out() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::write(root.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let parent = root.join("sheaf-test");
        let machine = parent.join("a");
        fs::create_dir_all(&machine).unwrap();
        // A kernel with realtime threads outside refuses the controller; here a directory stands in the way.
        fs::create_dir(parent.join("cpu.weight")).unwrap();
        let limited = limits(1000, None);
        let why = limit_v2(root, &parent, &machine, limited).unwrap_err();
        assert!(why.contains("cpu.weight"), "{why}");
        assert_eq!(fs::read_to_string(machine.join("memory.max")).unwrap(), (1 << 20).to_string());
    }

    #[test]
    fn what_cannot_be_limited_is_said_and_stops_nothing() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("not-a-directory");
        fs::write(&file, "").unwrap();
        let cgroups = Cgroups { trees: vec![Tree::Memory { root: file }], parent: "sheaf-test".into() };
        let limited = limits(1000, None);
        let (joins, missing) = cgroups.make(&"a".parse().unwrap(), limited);
        assert!(joins.is_empty());
        assert_eq!(missing.len(), 1, "{missing:?}");
    }

    #[test]
    fn what_a_running_machine_may_use_never_becomes_less() {
        let root = tempfile::tempdir().unwrap();
        let (one, two) = (root.path().join("v1"), root.path().join("v2"));
        fs::create_dir_all(&two).unwrap();
        fs::write(two.join("cgroup.controllers"), "memory").unwrap();
        let trees = vec![Tree::Memory { root: one.clone() }, Tree::V2 { root: two.clone() }];
        let cgroups = Cgroups { trees, parent: "p".into() };
        let id = "a".parse().unwrap();
        let (_, missing) = cgroups.make(&id, limits(1000, None));
        assert!(missing.is_empty(), "{missing:?}");
        for (asked, has) in [(1 << 30, 1 << 30), (1 << 20, 1 << 30), (1 << 31, 1_u64 << 31)] {
            assert_eq!(cgroups.raise_memory(&id, asked), [] as [String; 0]);
            assert_eq!(read(one.join("p/a/memory.limit_in_bytes")), has.to_string());
            assert_eq!(read(two.join("p/a/memory.max")), has.to_string());
        }
    }

    #[test]
    fn a_cpu_ceiling_is_set_and_taken_back() {
        let root = tempfile::tempdir().unwrap();
        let (one, two, cgroups) = both_versions(root.path());
        for (ceiling, quota, max) in
            [(Some(1500), "150000", "150000 100000"), (Some(1), "1000", "1000 100000"), (None, "-1", "max")]
        {
            let limited = limits(2000, ceiling);
            let (_, missing) = cgroups.make(&"a".parse().unwrap(), limited);
            assert!(missing.is_empty(), "{missing:?}");
            assert_eq!(read(one.join("p/a/cpu.cfs_quota_us")), quota);
            assert_eq!(read(two.join("p/a/cpu.max")), max);
            assert_eq!(read(one.join("p/a/cpu.shares")), "2048");
        }
    }

    #[test]
    fn a_machine_weighs_what_it_asks_for_and_never_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (one, two, cgroups) = both_versions(root.path());
        let machine: MachineId = "a".parse().unwrap();
        let limited = limits(4000, None);
        assert!(cgroups.make(&machine, limited).1.is_empty());
        for (milli, shares, weight) in
            [(250, "256", "25"), (1, "2", "1"), (0, "2", "1"), (u32::MAX, "262144", "10000")]
        {
            assert!(cgroups.limit_cpu(&machine, limits(milli, Some(500)).cpu).is_empty());
            assert_eq!(read(one.join("p/a/cpu.cfs_quota_us")), "50000");
            assert_eq!(read(one.join("p/a/cpu.shares")), shares);
            assert_eq!(read(two.join("p/a/cpu.weight")), weight);
        }
        fs::write(two.join("cgroup.controllers"), "memory").unwrap();
        fs::remove_dir_all(two.join("p/a")).unwrap();
        let missing = cgroups.limit_cpu(&machine, limits(1000, None).cpu);
        assert!(missing.is_empty(), "where there is no controller nothing is to be done: {missing:?}");
    }
}
