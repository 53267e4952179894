//! A place for the node itself beside its machines, on a host where nobody else gave it one.
//!
//! In the root of a tree the kernel counts a node to whatever was started in the same session, and guests that boot leave it
//! next to nothing: the more there are, the later the next one starts. As much as all machines together is a node's
//! when it needs it, which is seldom and never for long. A service has a place of its own already, and keeps it.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use super::{Cgroups, MOST_SHARES, MOST_WEIGHT, SHARES, Tree, WEIGHT, offers, weight_of_all, write};

/// This process has a place. It goes back to where it was when this is dropped.
#[derive(Debug, Default)]
pub struct NodeShelter {
    /// Each with the root of its tree.
    places: Vec<(PathBuf, PathBuf)>,
}

impl Cgroups {
    /// Gives this process a place in every tree that shares out processors and in whose root it is. Says in words what
    /// could not be done.
    pub fn shelter_node(&self) -> (NodeShelter, Vec<String>) {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut shelter = NodeShelter::default();
        let mut missing = Vec::new();
        for tree in self.trees.iter().filter(|tree| is_in_root(tree, &own)) {
            let place = self.place_of_node(tree);
            let entered = NodeShelter { places: vec![(tree.root().to_owned(), place.clone())] };
            match enter(tree, &place) {
                Ok(true) => shelter.places.extend(entered.keep()),
                Ok(false) => drop(entered.keep()),
                // Back out of what was entered halfway.
                Err(why) => missing.push(why),
            }
        }
        (shelter, missing)
    }

    /// Removes what a node left that was killed.
    pub fn clear_shelter(&self) {
        for tree in &self.trees {
            // Somebody may be in it again by now.
            let _ = fs::remove_dir(self.place_of_node(tree));
        }
    }

    fn place_of_node(&self, tree: &Tree) -> PathBuf {
        tree.root().join(format!("{}-node", self.parent))
    }
}

impl NodeShelter {
    fn keep(mut self) -> Vec<(PathBuf, PathBuf)> {
        std::mem::take(&mut self.places)
    }
}

impl Drop for NodeShelter {
    fn drop(&mut self) {
        for (root, place) in &self.places {
            // What is left of it is found by the next node, or taken away with the machines.
            let _ = write(&root.join("cgroup.procs"), process::id());
            let _ = fs::remove_dir(place);
        }
    }
}

/// Whether this process is in the root of a tree, by the text of `/proc/self/cgroup`.
fn is_in_root(tree: &Tree, own: &str) -> bool {
    let is_trees = |controllers: &str| match tree {
        Tree::V2 { .. } => controllers.is_empty(),
        Tree::Cpu { .. } => controllers.split(',').any(|name| name == "cpu"),
        Tree::Memory { .. } => false,
    };
    own.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        parts.next().is_some_and(is_trees) && parts.next() == Some("/")
    })
}

/// Answers whether there is a place to be in.
fn enter(tree: &Tree, place: &Path) -> Result<bool, String> {
    let (file, weight) = match tree {
        Tree::Memory { .. } => return Ok(false),
        Tree::Cpu { .. } => ("cpu.shares", weight_of_all(SHARES).min(MOST_SHARES)),
        Tree::V2 { root } => {
            if !offers(root, "cpu") {
                return Ok(false);
            }
            ("cpu.weight", weight_of_all(WEIGHT).min(MOST_WEIGHT))
        }
    };
    fs::create_dir_all(place).map_err(|why| format!("cannot make {}: {why}", place.display()))?;
    // First of all out of the root: in a container it may not have both processes and controllers to hand down.
    write(&place.join("cgroup.procs"), process::id())?;
    if let Tree::V2 { root } = tree {
        write(&root.join("cgroup.subtree_control"), "+cpu")?;
    }
    write(&place.join(file), weight)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_in_the_root_has_no_place() {
        let (cpu, v2) = (Tree::Cpu { root: "/a".into() }, Tree::V2 { root: "/b".into() });
        let memory = Tree::Memory { root: "/c".into() };
        let bare = "3:memory:/\n2:cpu,cpuacct:/\n0::/\n";
        assert!(is_in_root(&cpu, bare) && is_in_root(&v2, bare) && !is_in_root(&memory, bare));
        let service = "2:cpu,cpuacct:/system.slice/sheaf.service\n0::/system.slice/sheaf.service\n";
        assert!(!is_in_root(&cpu, service) && !is_in_root(&v2, service));
        assert!(!is_in_root(&cpu, "2:cpuset:/\n") && !is_in_root(&cpu, ""));
    }

    #[test]
    fn a_node_weighs_as_much_as_its_machines_and_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let (one, two, bare) = (root.path().join("v1"), root.path().join("v2"), root.path().join("bare"));
        for root in [&one, &two, &bare] {
            fs::create_dir_all(root).unwrap();
        }
        fs::write(two.join("cgroup.controllers"), "cpu memory").unwrap();
        fs::write(bare.join("cgroup.controllers"), "").unwrap();
        let place = one.join("p-node");
        assert_eq!(enter(&Tree::Cpu { root: one.clone() }, &place), Ok(true));
        let read = |file: PathBuf| fs::read_to_string(file).unwrap();
        assert_eq!(read(place.join("cpu.shares")), weight_of_all(SHARES).to_string());
        assert_eq!(read(place.join("cgroup.procs")), process::id().to_string());
        assert_eq!(enter(&Tree::V2 { root: two.clone() }, &two.join("p-node")), Ok(true));
        assert_eq!(read(two.join("p-node/cpu.weight")), weight_of_all(WEIGHT).to_string());
        assert_eq!(read(two.join("cgroup.subtree_control")), "+cpu");
        assert_eq!(enter(&Tree::V2 { root: bare.clone() }, &bare.join("p-node")), Ok(false));
        assert!(!bare.join("p-node").exists());

        // The kernel's files go with their directory; these do not.
        fs::remove_file(place.join("cpu.shares")).unwrap();
        fs::remove_file(place.join("cgroup.procs")).unwrap();
        drop(NodeShelter { places: vec![(one.clone(), place.clone())] });
        assert!(!place.exists());
        assert_eq!(read(one.join("cgroup.procs")), process::id().to_string());
    }
}
