//! Volumes and snapshots in memory, for simulated nodes: the same contract, and nothing to clean up.
//!
//! A volume is one raw file that has no name. There are no layers, so a snapshot is a copy, taken while nobody writes
//! ([`Begun::HoldStill`]): the other of the two ways in which backends take them. That makes it slow with large disks
//! that are full, and no simulation has any.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt, unix::fs::MetadataExt},
    path::Path,
};

use async_trait::async_trait;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, Mode, OFlags, SeekFrom};

use crate::{
    Backend, Begun, DiskError, Format, ImageId, Layer, MOST_BYTES, Merge, OpenLayer, OpenMerge, Origin,
    Snapshot, SnapshotId, Space, Volume, VolumeError, VolumeId,
};

const SIZE_STEP: u64 = 4096;
/// As much as anybody simulates.
const TOTAL_BYTES: u64 = 1 << 40;
const COPY_PIECE: usize = 1 << 20;

type Result<T> = std::result::Result<T, VolumeError>;

#[derive(Debug, Default)]
pub struct MemoryBackend {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    volumes: BTreeMap<VolumeId, File>,
    snapshots: BTreeMap<SnapshotId, (VolumeId, File)>,
    images: BTreeMap<ImageId, File>,
    begun: BTreeSet<(VolumeId, SnapshotId)>,
}

impl MemoryBackend {
    /// An image that volumes can be made of; raw.
    pub fn add_image(&self, id: &ImageId, content: &[u8]) -> Result<()> {
        let file = new_file(content.len() as u64)?;
        file.write_all_at(content, 0).map_err(|why| failed("write", why))?;
        self.kept.lock().images.insert(id.clone(), file);
        Ok(())
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    async fn create(&self, id: &VolumeId, bytes: u64, origin: &Origin) -> Result<Volume> {
        let bytes = whole_sectors(bytes)?;
        let mut kept = self.kept.lock();
        if let Some(volume) = kept.volumes.get(id) {
            grow(id, volume, bytes)?;
            return describe(volume);
        }
        let source = match origin {
            Origin::Empty => None,
            Origin::Image(image) => {
                let missing = || VolumeError::NoSuchImage { volume: id.clone(), image: image.clone() };
                Some(kept.images.get(image).ok_or_else(missing)?)
            }
            Origin::Snapshot(snapshot) => Some(&kept.existing_snapshot(snapshot)?.1),
        };
        let source_bytes = source.map(length).transpose()?.unwrap_or(0);
        if source_bytes > bytes {
            return Err(VolumeError::SmallerThanSource { bytes, source_bytes });
        }
        let volume = new_file(bytes)?;
        if let Some(source) = source {
            copy(source, &volume)?;
        }
        let described = describe(&volume)?;
        kept.volumes.insert(id.clone(), volume);
        Ok(described)
    }

    async fn volume(&self, id: &VolumeId) -> Result<Option<Volume>> {
        self.kept.lock().volumes.get(id).map(describe).transpose()
    }

    async fn volumes(&self) -> Result<Vec<VolumeId>> {
        Ok(self.kept.lock().volumes.keys().cloned().collect())
    }

    async fn grow(&self, id: &VolumeId, bytes: u64) -> Result<Volume> {
        let bytes = whole_sectors(bytes)?;
        let kept = self.kept.lock();
        let volume = kept.existing(id)?;
        grow(id, volume, bytes)?;
        describe(volume)
    }

    async fn delete(&self, id: &VolumeId) -> Result<()> {
        let mut kept = self.kept.lock();
        if let Some(volume) = kept.volumes.get(id) {
            hold(id, volume)?;
            kept.volumes.remove(id);
            kept.begun.retain(|(volume, _)| volume != id);
        }
        Ok(())
    }

    async fn open(&self, id: &VolumeId, read_only: bool) -> Result<Vec<OpenLayer>> {
        let kept = self.kept.lock();
        Ok(vec![opened(kept.existing(id)?, read_only)?])
    }

    async fn begin_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Begun> {
        let mut kept = self.kept.lock();
        if let Some(found) = kept.snapshot_of(volume, id)? {
            return Ok(Begun::Already(found));
        }
        kept.existing(volume)?;
        kept.begun.insert((volume.clone(), id.clone()));
        Ok(Begun::HoldStill)
    }

    async fn begun_layer(&self, _volume: &VolumeId, _id: &SnapshotId) -> Result<Option<u32>> {
        Ok(None)
    }

    async fn finish_snapshot(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Snapshot> {
        let mut kept = self.kept.lock();
        let begun = (volume.clone(), id.clone());
        if let Some(found) = kept.snapshot_of(volume, id)? {
            kept.begun.remove(&begun);
            return Ok(found);
        }
        let source = kept.existing(volume)?;
        if !kept.begun.contains(&begun) {
            return Err(VolumeError::NotBegun { volume: volume.clone(), snapshot: id.clone() });
        }
        let file = new_file(length(source)?)?;
        copy(source, &file)?;
        kept.snapshots.insert(id.clone(), (volume.clone(), file));
        kept.begun.remove(&begun);
        kept.snapshot_of(volume, id)?.ok_or_else(|| VolumeError::NoSuchSnapshot { snapshot: id.clone() })
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        self.kept.lock().snapshots.get(id).map(describe_snapshot).transpose()
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>> {
        Ok(self.kept.lock().snapshots.keys().cloned().collect())
    }

    async fn open_snapshot(&self, id: &SnapshotId) -> Result<Vec<OpenLayer>> {
        let kept = self.kept.lock();
        Ok(vec![opened(&kept.existing_snapshot(id)?.1, true)?])
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<()> {
        let mut kept = self.kept.lock();
        kept.snapshots.remove(id);
        kept.begun.retain(|(_, begun)| begun != id);
        Ok(())
    }

    async fn wanted_merges(&self) -> Result<Vec<Merge>> {
        Ok(Vec::new())
    }

    async fn open_merge(&self, merge: &Merge) -> Result<OpenMerge> {
        Err(VolumeError::NotMergeable { lower: merge.lower, upper: merge.upper })
    }

    async fn finish_merge(&self, merge: &Merge) -> Result<()> {
        Err(VolumeError::NotMergeable { lower: merge.lower, upper: merge.upper })
    }

    async fn space(&self) -> Result<Space> {
        let kept = self.kept.lock();
        let files = kept.volumes.values().chain(kept.snapshots.values().map(|(_, file)| file));
        let mut used = 0;
        for file in files.chain(kept.images.values()) {
            used += used_bytes(file)?;
        }
        Ok(Space { total_bytes: TOTAL_BYTES, free_bytes: TOTAL_BYTES.saturating_sub(used) })
    }
}

impl Kept {
    fn existing(&self, id: &VolumeId) -> Result<&File> {
        self.volumes.get(id).ok_or_else(|| VolumeError::NoSuchVolume { volume: id.clone() })
    }

    fn existing_snapshot(&self, id: &SnapshotId) -> Result<&(VolumeId, File)> {
        self.snapshots.get(id).ok_or_else(|| VolumeError::NoSuchSnapshot { snapshot: id.clone() })
    }

    fn snapshot_of(&self, volume: &VolumeId, id: &SnapshotId) -> Result<Option<Snapshot>> {
        let Some(found) = self.snapshots.get(id) else { return Ok(None) };
        if found.0 != *volume {
            return Err(VolumeError::AnotherVolume { snapshot: id.clone(), volume: found.0.clone() });
        }
        describe_snapshot(found).map(Some)
    }
}

fn failed(doing: &'static str, why: impl Into<io::Error>) -> VolumeError {
    DiskError::new(doing, Path::new("memory"), why).into()
}

fn new_file(bytes: u64) -> Result<File> {
    let file: File = rustix::fs::memfd_create("volume", MemfdFlags::CLOEXEC)
        .map_err(|why| failed("make a file in", why))?
        .into();
    file.set_len(bytes).map_err(|why| failed("make a file in", why))?;
    Ok(file)
}

fn length(file: &File) -> Result<u64> {
    Ok(file.metadata().map_err(|why| failed("look at", why))?.len())
}

fn used_bytes(file: &File) -> Result<u64> {
    Ok(file.metadata().map_err(|why| failed("look at", why))?.blocks() * 512)
}

fn describe(volume: &File) -> Result<Volume> {
    let layers = vec![Layer { number: 0, format: Format::Raw }];
    Ok(Volume { virtual_size: length(volume)?, layers, used_bytes: used_bytes(volume)? })
}

fn describe_snapshot((volume, file): &(VolumeId, File)) -> Result<Snapshot> {
    let (virtual_size, used_bytes) = (length(file)?, used_bytes(file)?);
    Ok(Snapshot { volume: volume.clone(), virtual_size, used_bytes })
}

/// The bytes that are there, hole by hole.
fn copy(from: &File, to: &File) -> Result<()> {
    let copied = || -> io::Result<()> {
        let (mut at, mut piece) = (0, vec![0; COPY_PIECE]);
        loop {
            let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => return Ok(()),
                Err(why) => return Err(why.into()),
            };
            let read = from.read_at(&mut piece, data)?;
            if read == 0 {
                return Ok(());
            }
            to.write_all_at(&piece[..read], data)?;
            at = data + read as u64;
        }
    };
    copied().map_err(|why| failed("copy within", why))
}

/// A descriptor of its own: what one user locks or seeks is not another's.
fn opened(file: &File, read_only: bool) -> Result<OpenLayer> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let opened = rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty());
    let file: OwnedFd = opened.map_err(|why| failed("open a file in", why))?;
    Ok(OpenLayer { number: 0, format: Format::Raw, read_only, file })
}

fn grow(id: &VolumeId, volume: &File, bytes: u64) -> Result<()> {
    if length(volume)? >= bytes {
        return Ok(());
    }
    hold(id, volume)?;
    volume.set_len(bytes).map_err(|why| failed("grow a file in", why))
}

/// Whether nobody has it open for use: QEMU locks what it uses.
fn hold(id: &VolumeId, volume: &File) -> Result<()> {
    let all_of_it = |kind: libc::c_int| libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(volume, FcntlArg::F_OFD_SETLK(&all_of_it(libc::F_WRLCK))) {
        Ok(_) => {
            let let_go = fcntl(volume, FcntlArg::F_OFD_SETLK(&all_of_it(libc::F_UNLCK)));
            let_go.map(drop).map_err(|why| failed("let go of a file in", io::Error::from(why)))
        }
        Err(Errno::EAGAIN | Errno::EACCES) => Err(VolumeError::InUse { volume: id.clone() }),
        Err(why) => Err(failed("lock a file in", io::Error::from(why))),
    }
}

fn whole_sectors(bytes: u64) -> Result<u64> {
    if bytes == 0 || bytes > MOST_BYTES {
        return Err(VolumeError::BadSize { bytes });
    }
    Ok(bytes.next_multiple_of(SIZE_STEP))
}
