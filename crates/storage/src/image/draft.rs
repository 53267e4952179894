//! An image that somebody else writes: a file with an empty disk in it, handed to a process that may read what guests
//! wrote, and looked at like any other arrival when that process is gone.
//!
//! It is a qcow2, whatever is put into it. A guest can make its disk look like anything, also like the header of
//! another format; inside of a qcow2 that is content, and nobody ever guesses what it is.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
};

use super::{
    DISK, Image, ImageError, Images, MANIFEST_VERSION, Manifest,
    arrival::{self, Arrival, Begun},
    inspect, soundness,
};
use crate::{
    Format, ImageId, Step,
    directory::{Directory, DiskError},
    qcow2::{self, Shape},
    storage::on_a_thread,
};

/// Read at once to be digested.
const PIECE: usize = 1 << 20;

/// Dropped before it is finished, nothing stays of it.
pub struct Draft {
    arrival: Arrival,
    directory: Directory,
    file: File,
    virtual_size: u64,
}

/// Whether there is anything to be written.
pub enum Drafted {
    Already(Image),
    Now(Draft),
}

impl Images {
    pub async fn draft(
        self: Arc<Self>,
        id: ImageId,
        virtual_size: u64,
        bytes: u64,
    ) -> Result<Drafted, ImageError> {
        let mut arrival = match arrival::begin(self.clone(), id.clone()).await? {
            Begun::Already(image) => return Ok(Drafted::Already(image)),
            Begun::Now(arrival) => arrival,
        };
        let progress = arrival.progress.clone();
        let _ = progress.total.set(virtual_size);
        let made = on_a_thread(move || {
            let directory = arrival::prepare(&self, &id, &progress, Some(bytes))?;
            let file = directory.make_file(DISK, 0o400)?;
            qcow2::write_empty(&file, Shape::Disk, virtual_size)
                .map_err(|why| DiskError::new("write", &directory.path_of(DISK), why))?;
            self.after.took(Step::ArrivalMade);
            Ok((directory, file))
        });
        match made.await {
            Ok((directory, file)) => Ok(Drafted::Now(Draft { arrival, directory, file, virtual_size })),
            Err(why) => Err(arrival.failed(why)),
        }
    }
}

impl Draft {
    /// An empty qcow2 without anything below it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How much of the disk is written, for whoever asks meanwhile.
    pub fn is_at(&self, bytes: u64) {
        self.arrival.progress.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes an image of what was written. Whoever wrote has ended.
    pub async fn finish(self) -> Result<Image, ImageError> {
        let Draft { mut arrival, directory, file, virtual_size } = self;
        let (images, id, progress) = (arrival.images.clone(), arrival.id.clone(), arrival.progress.clone());
        let ended = on_a_thread(move || {
            directory.sync_file(&file, DISK)?;
            images.after.took(Step::ArrivalWritten);
            let found = inspect::look(&file, |file| directory.sync_file(file, DISK))?;
            if found.format != Format::Qcow2 || found.virtual_size != virtual_size {
                let what = format!("it was begun as a qcow2 of {virtual_size} bytes and is another");
                return Err(ImageError::Damaged { what });
            }
            let failed = |why| DiskError::new("read", &directory.path_of(DISK), why);
            let manifest = Manifest {
                version: MANIFEST_VERSION,
                format: found.format,
                size: file.metadata().map_err(failed)?.len(),
                virtual_size,
                sha512: None,
                blake3: Some(digest(&file).map_err(failed)?),
                is_disc: Some(false),
                packing: None,
                spots: Some(soundness::spots(&file)?),
            };
            arrival::publish(&images, &id, &progress, &directory, manifest)
        });
        ended.await.map_err(|why| arrival.failed(why))
    }
}

fn digest(file: &File) -> io::Result<String> {
    let mut digest = blake3::Hasher::new();
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return Ok(digest.finalize().to_string()),
            Ok(read) => {
                digest.update(&piece[..read]);
                at += read as u64;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}
