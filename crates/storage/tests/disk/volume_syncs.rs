//! Disks that fail to sync under volumes, snapshots, merges and their manifests, that lie about it, and whose power goes.
//!
//! The life of a volume is lived on a disk that is watched: of each directory and each file it keeps aside what it held
//! when it was last synced, and after a power cut that is all there is. It is lived once for every sync in it, which
//! fails, or is the last before the power goes, or is a lie. What was acknowledged must be there, and nothing else.
//!
//! What a guest writes is a byte far behind a layer's header, and merging is done byte by byte: no layer is ever read by
//! anybody else here. That QEMU understands them is tested elsewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::SystemTime,
};

use sheaf_storage::{
    Backend, Begun, Fate, OpenLayer, Origin, SnapshotId, Storage, StorageConfig, Syncs, VolumeError, VolumeId,
};
use tempfile::TempDir;

use crate::house::{everything_in, pieces};

/// A file or directory, whatever its name is. Numbers are given again, and so the time of birth belongs to it.
type Identity = (u64, Option<SystemTime>);

/// What a disk holds when its power goes.
#[derive(Clone, Debug, Default)]
struct Held {
    directories: BTreeMap<Identity, BTreeMap<String, (Identity, bool)>>,
    files: BTreeMap<Identity, Vec<u8>>,
}

impl Held {
    fn keep(&mut self, path: &Path) {
        let found = fs::metadata(path).unwrap();
        if found.is_file() {
            self.files.insert(identity(&found), fs::read(path).unwrap());
            return;
        }
        let entries = fs::read_dir(path).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            (entry.file_name().into_string().unwrap(), (identity(&found), found.is_dir()))
        });
        self.directories.insert(identity(&found), entries.collect());
    }

    /// The disk as it is found when power is back. What was never synced is as empty as can be.
    fn found_again(&self, root: &Path) -> TempDir {
        let again = directory();
        self.rebuild(identity(&fs::metadata(root).unwrap()), again.path(), &mut BTreeMap::new());
        again
    }

    fn rebuild(&self, directory: Identity, at: &Path, files: &mut BTreeMap<Identity, PathBuf>) {
        for (name, (id, is_directory)) in self.directories.get(&directory).into_iter().flatten() {
            let path = at.join(name);
            if *is_directory {
                fs::create_dir(&path).unwrap();
                self.rebuild(*id, &path, files);
            } else if let Some(same) = files.get(id) {
                fs::hard_link(same, &path).unwrap();
            } else {
                fs::write(&path, self.files.get(id).map_or(&[][..], Vec::as_slice)).unwrap();
                files.insert(*id, path);
            }
        }
    }
}

/// In memory where there is room for it: nothing here is ever synced, and there are thousands of files.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn identity(found: &fs::Metadata) -> Identity {
    (found.ino(), found.created().ok())
}

/// What becomes of the one sync that is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    Fails,
    /// Nothing is kept that is synced from here on.
    PowerGoes,
    /// If it is a manifest's. Of what is synced later all is kept.
    Lies,
}

#[derive(Debug)]
struct Disk {
    held: Held,
    /// Counted from the start of the life.
    syncs: usize,
    number: usize,
    chosen: Chosen,
    /// Whether the chosen one came.
    came: bool,
    is_off: bool,
}

impl Disk {
    /// Really synced is nothing: that would only take time.
    fn sync(&mut self, path: &Path) -> Fate {
        self.syncs += 1;
        if self.number == self.syncs {
            let is_manifest = path.file_name().unwrap().to_string_lossy().contains("manifest");
            self.came = self.chosen != Chosen::Lies || is_manifest;
            match self.chosen {
                Chosen::Fails => return Fate::Failed(io::Error::from_raw_os_error(5)),
                Chosen::PowerGoes => self.is_off = true,
                Chosen::Lies if is_manifest => return Fate::Lied,
                Chosen::Lies => {}
            }
        }
        if !self.is_off {
            self.held.keep(path);
        }
        Fate::Lied
    }
}

#[derive(Clone, Copy, Debug)]
enum Do {
    Create(&'static str, Of, u64),
    Grow(&'static str, u64),
    Begin(&'static str),
    /// The guest writes and flushes, to where it was told to.
    Write(u8),
    Finish(&'static str),
    DeleteSnapshot(&'static str),
    Delete(&'static str),
    Merge,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Nothing,
    Image,
    Snapshot(&'static str),
}

/// Half a mebibyte: room behind a header, and soon read.
const HALF: u64 = 512 << 10;
/// The volume that has a guest.
const DISK: &str = "disk";

const LIFE: [Do; 24] = [
    Do::Create(DISK, Of::Nothing, HALF),
    Do::Write(1),
    Do::Begin("first"),
    Do::Write(2),
    Do::Finish("first"),
    Do::Create("of-image", Of::Image, 2 * HALF),
    Do::Begin("second"),
    Do::Write(3),
    Do::Finish("second"),
    Do::Create("copy", Of::Snapshot("first"), HALF),
    Do::Write(4),
    Do::Begin("third"),
    Do::Finish("third"),
    Do::Write(5),
    Do::Grow("of-image", 3 * HALF),
    Do::DeleteSnapshot("second"),
    Do::Merge,
    Do::Delete("copy"),
    Do::Begin("abandoned"),
    Do::DeleteSnapshot("abandoned"),
    Do::DeleteSnapshot("first"),
    Do::Merge,
    Do::Write(6),
    Do::Delete("of-image"),
];

/// What there must be, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Acknowledged {
    volumes: BTreeMap<&'static str, (u64, BTreeSet<u8>)>,
    snapshots: BTreeMap<&'static str, BTreeSet<u8>>,
    begun: BTreeMap<&'static str, BTreeSet<u8>>,
}

struct Life {
    root: TempDir,
    storage: Storage,
    disk: Arc<Mutex<Disk>>,
    acknowledged: Acknowledged,
    /// The layer that the guest writes to.
    top: u32,
}

impl Life {
    async fn begin(number: usize, chosen: Chosen) -> Life {
        let root = directory();
        let disk = Disk { held: Held::default(), syncs: 0, number: 0, chosen, came: false, is_off: false };
        let disk = Arc::new(Mutex::new(disk));
        let watched = disk.clone();
        let syncs = Syncs::decided_by(move |path| watched.lock().unwrap().sync(path));
        let config = StorageConfig { syncs, ..StorageConfig::in_directory(root.path()) };
        let storage = Storage::open(config).await.unwrap();
        let image = "image".parse().unwrap();
        storage.receive_image(&image, pieces(vec![0; 4096]), None).await.unwrap();
        {
            let mut disk = disk.lock().unwrap();
            (disk.syncs, disk.number) = (0, number);
        }
        Life { root, storage, disk, acknowledged: Acknowledged::default(), top: 0 }
    }

    fn volume(&self, layer: u32) -> PathBuf {
        self.root.path().join(format!("volumes/{DISK}/layer-{layer}"))
    }

    async fn does(&mut self, what: Do) -> Result<(), VolumeError> {
        let storage = &self.storage;
        let disk: VolumeId = DISK.parse().unwrap();
        match what {
            Do::Create(name, of, bytes) => {
                let (origin, content) = match of {
                    Of::Nothing => (Origin::Empty, BTreeSet::new()),
                    Of::Image => (Origin::Image("image".parse().unwrap()), BTreeSet::new()),
                    Of::Snapshot(name) => {
                        (Origin::Snapshot(name.parse().unwrap()), self.acknowledged.snapshots[name].clone())
                    }
                };
                storage.create(&name.parse().unwrap(), bytes, &origin).await?;
                self.acknowledged.volumes.insert(name, (bytes, content));
            }
            Do::Grow(name, bytes) => {
                storage.grow(&name.parse().unwrap(), bytes).await?;
                self.acknowledged.volumes.get_mut(name).unwrap().0 = bytes;
            }
            Do::Begin(name) => {
                let Begun::Switch(layer) = storage.begin_snapshot(&disk, &name.parse().unwrap()).await?
                else {
                    panic!("{name} is there already");
                };
                let content = self.acknowledged.volumes[DISK].1.clone();
                self.acknowledged.begun.insert(name, content);
                self.top = layer.number;
            }
            Do::Write(byte) => {
                let path = self.volume(self.top);
                write(&File::options().write(true).open(&path).unwrap(), byte);
                let mut disk = self.disk.lock().unwrap();
                if !disk.is_off {
                    disk.held.keep(&path);
                    self.acknowledged.volumes.get_mut(DISK).unwrap().1.insert(byte);
                }
            }
            Do::Finish(name) => {
                storage.finish_snapshot(&disk, &name.parse().unwrap()).await?;
                let content = self.acknowledged.begun.remove(name).unwrap();
                self.acknowledged.snapshots.insert(name, content);
            }
            Do::DeleteSnapshot(name) => {
                storage.delete_snapshot(&name.parse().unwrap()).await?;
                self.acknowledged.snapshots.remove(name);
                self.acknowledged.begun.remove(name);
            }
            Do::Delete(name) => {
                storage.delete(&name.parse().unwrap()).await?;
                self.acknowledged.volumes.remove(name);
            }
            Do::Merge => {
                while let Some(merge) = storage.wanted_merges().await?.into_iter().next() {
                    let layers = storage.open_merge(&merge).await?.layers;
                    let [.., lower, upper] = &layers[..] else { panic!("{layers:?}") };
                    for byte in bytes_in(std::slice::from_ref(upper)) {
                        write(&file_of(lower), byte);
                    }
                    storage.finish_merge(&merge).await?;
                }
            }
        }
        Ok(())
    }

    /// What is found after a power cut now is what was acknowledged, but for what `in_doubt` is about.
    async fn survives_a_power_cut(&self, in_doubt: Option<Do>, what: &str) {
        let again = self.disk.lock().unwrap().held.found_again(self.root.path());
        let syncs = Syncs::decided_by(|_| Fate::Lied);
        let config = StorageConfig { syncs, ..StorageConfig::in_directory(again.path()) };
        let storage = Storage::open(config).await.unwrap();
        self.is_all_there(&storage, again.path(), in_doubt, what).await;
    }

    async fn is_all_there(&self, storage: &Storage, root: &Path, in_doubt: Option<Do>, what: &str) {
        let doubted = match in_doubt {
            Some(Do::Create(name, ..) | Do::Delete(name)) => Some(name),
            Some(Do::Finish(name) | Do::DeleteSnapshot(name)) => Some(name),
            _ => None,
        };
        for (name, (bytes, content)) in &self.acknowledged.volumes {
            let id: VolumeId = name.parse().unwrap();
            let Some(found) = storage.volume(&id).await.unwrap() else {
                assert_eq!(doubted, Some(*name), "{what}: volume {name} is gone");
                continue;
            };
            let may_be_larger = matches!(in_doubt, Some(Do::Grow(grown, _)) if grown == *name);
            assert!(
                found.virtual_size == *bytes || may_be_larger && found.virtual_size > *bytes,
                "{what}: {name} {found:?}"
            );
            let layers = storage.open(&id, true).await.unwrap();
            assert_eq!(bytes_in(&layers), *content, "{what}: volume {name}");
        }
        for (name, content) in &self.acknowledged.snapshots {
            let id: SnapshotId = name.parse().unwrap();
            if storage.snapshot(&id).await.unwrap().is_none() {
                assert_eq!(doubted, Some(*name), "{what}: snapshot {name} is gone");
                continue;
            }
            assert_eq!(bytes_in(&storage.open_snapshot(&id).await.unwrap()), *content, "{what}: {name}");
        }
        let known = |name: &str, is_known: bool| {
            assert!(is_known || doubted == Some(name), "{what}: nobody was told of {name}");
        };
        for id in storage.volumes().await.unwrap() {
            known(id.as_str(), self.acknowledged.volumes.contains_key(id.as_str()));
        }
        for id in storage.snapshots().await.unwrap() {
            known(id.as_str(), self.acknowledged.snapshots.contains_key(id.as_str()));
        }
        nothing_is_left_in(root, what);
    }
}

/// Where guests write: behind any header.
const FAR: u64 = 400_000;

fn write(file: &File, byte: u8) {
    file.write_all_at(&[byte], FAR + u64::from(byte)).unwrap();
}

fn file_of(layer: &OpenLayer) -> File {
    layer.file.try_clone().unwrap().into()
}

/// All that guests wrote to any of these.
fn bytes_in(layers: &[OpenLayer]) -> BTreeSet<u8> {
    let mut found = BTreeSet::new();
    for layer in layers {
        let mut bytes = [0; 64];
        // One that ends before was never written to.
        _ = file_of(layer).read_at(&mut bytes, FAR).unwrap();
        found.extend(bytes.into_iter().filter(|byte| *byte != 0));
    }
    found
}

/// Nothing unfinished, and no layer that no manifest names.
fn nothing_is_left_in(root: &Path, what: &str) {
    let everything = everything_in(root);
    for name in &everything {
        assert!(!name.contains("/."), "{what}: {name} was never finished and is still there");
    }
    for manifest in everything.iter().filter(|name| name.ends_with("/manifest.json")) {
        let directory = manifest.trim_end_matches("/manifest.json");
        if directory.starts_with("images/") {
            continue;
        }
        let text = fs::read_to_string(root.join(manifest)).unwrap();
        assert_eq!(text, fs::read_to_string(root.join(directory).join("manifest.copy.json")).unwrap());
        let layers = everything.iter().filter(|name| name.starts_with(&format!("{directory}/layer-")));
        assert_eq!(layers.count(), text.matches("layer-").count(), "{what}: {text}");
    }
}

/// Lives the whole life once with each of its syncs chosen.
async fn with_each_sync(chosen: Chosen, least: usize) {
    let mut number = 0;
    loop {
        number += 1;
        let mut life = Life::begin(number, chosen).await;
        let mut was_done_again = false;
        for (index, step) in LIFE.into_iter().enumerate() {
            let (came_before, before) = (life.disk.lock().unwrap().came, life.acknowledged.clone());
            let done = life.does(step).await;
            let came = life.disk.lock().unwrap().came && !came_before;
            let what = format!("{chosen:?}, sync {number}, at {index}: {step:?}");
            match (chosen, came) {
                (_, false) => {
                    done.unwrap_or_else(|why| panic!("{what}: {why}"));
                    if was_done_again {
                        // What is built on it lasts, too.
                        life.survives_a_power_cut(None, &what).await;
                        was_done_again = false;
                    }
                }
                (Chosen::Fails, true) => {
                    assert!(done.is_err(), "{what}: nobody was told");
                    life.survives_a_power_cut(Some(step), &what).await;
                    life.does(step).await.unwrap_or_else(|why| panic!("{what}, again: {why}"));
                    life.survives_a_power_cut(None, &what).await;
                    was_done_again = true;
                }
                (Chosen::Lies, true) => {
                    done.unwrap_or_else(|why| panic!("{what}: {why}"));
                    life.survives_a_power_cut(None, &what).await;
                }
                (Chosen::PowerGoes, true) => {
                    // Nobody heard what it said.
                    life.acknowledged = before;
                    life.survives_a_power_cut(Some(step), &what).await;
                    break;
                }
            }
            if chosen == Chosen::Lies && life.disk.lock().unwrap().syncs >= number {
                break;
            }
        }
        let what = format!("{chosen:?}, sync {number}, at the end");
        let (came, syncs) = {
            let disk = life.disk.lock().unwrap();
            (disk.came, disk.syncs)
        };
        if number > syncs {
            assert!(number > least, "only {number} syncs");
            life.survives_a_power_cut(None, &what).await;
            nothing_is_left_in(life.root.path(), &what);
            return;
        }
        if came && chosen != Chosen::PowerGoes {
            life.is_all_there(&life.storage, life.root.path(), None, &what).await;
        }
    }
}

#[tokio::test]
async fn whichever_sync_of_a_volumes_life_fails_what_was_acknowledged_is_on_the_disk_and_the_next_try_arrives()
 {
    with_each_sync(Chosen::Fails, 80).await;
}

#[tokio::test]
async fn at_whichever_sync_of_a_volumes_life_the_power_goes_what_was_acknowledged_is_found_and_nothing_else()
{
    with_each_sync(Chosen::PowerGoes, 80).await;
}

#[tokio::test]
async fn a_manifest_that_a_lying_disk_lost_costs_nothing() {
    with_each_sync(Chosen::Lies, 80).await;
}
