//! A storage of its own for each test, and the tools that look into it.

use std::{
    convert::Infallible,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use bytes::Bytes;
use futures::{Stream, stream};
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use sheaf_storage::{AfterStep, ImageId, OpenLayer, Storage, StorageConfig, VolumeId};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Removed with everything in it when dropped.
pub struct House {
    pub storage: Storage,
    root: TempDir,
}

impl House {
    pub async fn new() -> House {
        let root = tempfile::tempdir().unwrap();
        House { storage: open(root.path()).await, root }
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// A file outside of the storage, made by `qemu-img`.
    pub fn image_file(&self, format: &str, size: u64, content: &str) -> PathBuf {
        let path = self.path(&format!("made.{format}"));
        run("qemu-img", &["create", "-q", "-f", format, path.to_str().unwrap(), &size.to_string()]);
        if !content.is_empty() {
            qemu_io(&path, format, content);
        }
        path
    }

    /// A complete image with what is in a file.
    pub async fn image(&self, name: &str, path: &Path) -> ImageId {
        let id: ImageId = name.parse().unwrap();
        let content = std::fs::read(path).unwrap();
        self.storage.receive_image(&id, pieces(content), None).await.unwrap();
        id
    }
}

pub async fn open(directory: &Path) -> Storage {
    Storage::open(StorageConfig::in_directory(directory)).await.unwrap()
}

pub async fn open_with(directory: &Path, after_step: AfterStep) -> Storage {
    Storage::open(StorageConfig { after_step, ..StorageConfig::in_directory(directory) }).await.unwrap()
}

pub fn volume_id(name: &str) -> VolumeId {
    name.parse().unwrap()
}

/// As uploads come: in pieces of no particular size.
pub fn pieces(content: Vec<u8>) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let content = Bytes::from(content);
    let pieces: Vec<_> = (0..content.len())
        .step_by(70_001)
        .map(|at| content.slice(at..content.len().min(at + 70_001)))
        .collect();
    stream::iter(pieces.into_iter().map(Ok))
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn qemu_io(path: &Path, format: &str, command: &str) -> String {
    run("qemu-io", &["-f", format, "-c", command, path.to_str().unwrap()])
}

/// What QEMU sees through layers as they were opened: each is told which one lies below
/// it, as a machine's command line does.
pub fn qemu_io_through(layers: &[OpenLayer], command: &str) -> String {
    let mut below = String::from("null");
    for layer in layers {
        let path = descriptor_path(&layer.file);
        let format = format!("{:?}", layer.format).to_lowercase();
        let file = format!(r#"{{"driver":"file","filename":"{path}"}}"#);
        let backing = if format == "qcow2" { format!(r#","backing":{below}"#) } else { String::new() };
        below = format!(r#"{{"driver":"{format}","read-only":{},"file":{file}{backing}}}"#, layer.read_only);
    }
    let read_only = layers.last().unwrap().read_only;
    let mut arguments = vec!["-c", command];
    if read_only {
        arguments.push("-r");
    }
    let image = format!("json:{below}");
    arguments.push(&image);
    run("qemu-io", &arguments)
}

/// Under which other processes find a descriptor of ours.
pub fn descriptor_path(file: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// Locks all of a file as QEMU does, or lets it go; whether nobody else has it.
pub fn set_lock(file: &File, lock: libc::c_int) -> bool {
    let all_of_it = libc::flock {
        l_type: lock as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&all_of_it)).is_ok()
}

pub fn read_at(file: &impl AsFd, at: u64, length: usize) -> Vec<u8> {
    let file = File::from(file.as_fd().try_clone_to_owned().unwrap());
    let mut content = vec![0; length];
    file.read_exact_at(&mut content, at).unwrap();
    content
}

/// Every name below a directory, in order.
pub fn everything_in(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
