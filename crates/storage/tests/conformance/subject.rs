//! What a suite runs on: one backend, empty, and a way to give it an image.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_storage::{
    Backend, Begun, Holder, ImageId, MemoryBackend, OpenLayer, Origin, Snapshot, SnapshotId, Storage,
    StorageConfig, VolumeId,
};

use crate::guest::Guest;

pub const MIB: u64 = 1 << 20;

pub struct Subject {
    pub backend: Arc<dyn Backend>,
    kind: Kind,
}

enum Kind {
    Local { storage: Storage, directory: tempfile::TempDir },
    Memory(Arc<MemoryBackend>),
}

impl Subject {
    pub async fn local() -> Subject {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(StorageConfig::in_directory(directory.path())).await.unwrap();
        Subject { backend: Arc::new(storage.clone()), kind: Kind::Local { storage, directory } }
    }

    pub async fn memory() -> Subject {
        let backend = Arc::new(MemoryBackend::default());
        Subject { backend: backend.clone(), kind: Kind::Memory(backend) }
    }

    /// A raw image of a mebibyte of this byte.
    pub async fn image(&self, name: &str, byte: u8) -> ImageId {
        let id: ImageId = name.parse().unwrap();
        let content = vec![byte; MIB as usize];
        match &self.kind {
            Kind::Local { storage, .. } => {
                let stream = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(content))]);
                storage.receive_image(&id, stream, None).await.unwrap();
            }
            Kind::Memory(backend) => backend.add_image(&id, &content).unwrap(),
        }
        id
    }

    /// Forgotten, and found again by another process: what is only in memory stays as it is.
    pub async fn reopened(self) -> Subject {
        match self.kind {
            Kind::Local { storage, directory } => {
                drop((self.backend, storage));
                let storage = Storage::open(StorageConfig::in_directory(directory.path())).await.unwrap();
                Subject { backend: Arc::new(storage.clone()), kind: Kind::Local { storage, directory } }
            }
            Kind::Memory(_) => self,
        }
    }

    pub async fn empty_volume(&self, name: &str, bytes: u64) -> VolumeId {
        let id = volume(name);
        self.backend.create(&id, bytes, &Origin::Empty).await.unwrap();
        id
    }

    pub async fn volume_of(&self, name: &str, origin: Origin) -> VolumeId {
        let id = volume(name);
        self.backend.create(&id, 4 * MIB, &origin).await.unwrap();
        id
    }

    /// Somebody who uses the volume.
    pub async fn guest_on(&self, id: &VolumeId) -> Guest {
        Guest::with(self.backend.open(id, false).await.unwrap())
    }

    /// Writes to a volume that nobody else uses.
    pub async fn write(&self, id: &VolumeId, pattern: u8, at: u64, bytes: u64) {
        self.guest_on(id).await.writes(pattern, at, bytes);
    }

    #[track_caller]
    pub fn must_read(layers: Vec<OpenLayer>, expected: &[(u8, u64, u64)]) {
        let mut reader = Guest::with(layers);
        for (pattern, at, bytes) in expected {
            reader.reads(*pattern, *at, *bytes);
        }
    }

    pub async fn reads(&self, id: &VolumeId, expected: &[(u8, u64, u64)]) {
        Subject::must_read(self.backend.open(id, true).await.unwrap(), expected);
    }

    pub async fn snapshot_reads(&self, id: &SnapshotId, expected: &[(u8, u64, u64)]) {
        Subject::must_read(self.backend.open_snapshot(id).await.unwrap(), expected);
    }

    /// A snapshot of a volume that this guest uses, or that nobody does.
    pub async fn snapshot(&self, of: &VolumeId, name: &str, guest: Option<&mut Guest>) -> SnapshotId {
        let id = snapshot(name);
        match (self.backend.begin_snapshot(of, &id).await.unwrap(), guest) {
            (Begun::Switch(layer), Some(guest)) => guest.switches_to(layer),
            (Begun::Switch(_) | Begun::HoldStill, _) => {}
            (Begun::Already(found), _) => panic!("it is there already: {found:?}"),
        }
        self.backend.finish_snapshot(of, &id).await.unwrap();
        id
    }

    /// Makes one of all layers that can be, while this guest uses the volume.
    pub async fn merge_all(&self, of: &VolumeId, mut guest: Option<&mut Guest>) {
        while let Some(merge) = self.backend.wanted_merges().await.unwrap().into_iter().next() {
            crate::guest::merge(self.backend.open_merge(&merge).await.unwrap().layers, &merge);
            self.backend.finish_merge(&merge).await.unwrap();
            if let Some(guest) = &mut guest
                && merge.holders.contains(&Holder::Volume(of.clone()))
            {
                guest.does_without(&merge, self.backend.open(of, true).await.unwrap());
            }
        }
    }

    pub async fn found(&self, id: &SnapshotId) -> Option<Snapshot> {
        self.backend.snapshot(id).await.unwrap()
    }
}

pub fn volume(name: &str) -> VolumeId {
    name.parse().unwrap()
}

pub fn snapshot(name: &str) -> SnapshotId {
    name.parse().unwrap()
}
