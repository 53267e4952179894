//! What an image that arrived is, and whether it may be used: judged by its first bytes,
//! of which a bounded number is read.
//!
//! A qcow2 image is refused when its header names other files or claims sizes that make no
//! sense. What is not qcow2 is a raw disk or disc, unless it is known to be something that would never
//! boot as one: a compressed file, another format of disk, a web page. Saying so here
//! is worth more than a guest that does nothing.
//!
//! What is inside is deliberately not verified: that means parsing all of a
//! stranger's tables as root, and the QEMU that will do so is locked up.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::{
    Format, MOST_BYTES,
    directory::DiskError,
    qcow2::{EXTENDED_ENTRIES, Header},
};

/// A disk is a number of sectors.
const SECTOR: u64 = 512;

const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
/// QEMU itself refuses tables that are larger.
const MOST_FIRST_TABLE: u64 = 32 << 20;
const MOST_REFCOUNT_TABLE: u64 = 8 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is empty")]
    Empty,
    #[error("it is larger than 16 TiB")]
    TooLarge,
    #[error("it is compressed with {0}; unpack it first")]
    Compressed(&'static str),
    #[error("it is {0}; convert it to qcow2 or raw first, for example with qemu-img convert")]
    OtherFormat(&'static str),
    #[error("it is a web page, not a disk: is the address right, or does it ask for a login?")]
    WebPage,
    #[error("its header names another file below it; flatten it first with qemu-img convert")]
    BackingFile,
    #[error("its header names another file for its data; convert it first with qemu-img convert")]
    ExternalData,
    #[error("it is encrypted, which is not supported")]
    Encrypted,
    #[error("it is marked as corrupt; repair it first with qemu-img check -r all")]
    Corrupt,
    #[error("its header makes no sense: {0}")]
    BadHeader(&'static str),
    #[error("it is cut short: its tables lie beyond its end")]
    CutShort,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Inspected {
    pub format: Format,
    pub virtual_size: u64,
}

/// Looks at a file that arrived, and rounds a raw one up to whole sectors.
pub fn look(file: &File) -> Result<Inspected, super::ImageError> {
    let failed = |why: io::Error| DiskError::new("look at", super::DISK.as_ref(), why);
    let length = file.metadata().map_err(failed)?.len();
    if length == 0 {
        return Err(Refusal::Empty.into());
    }
    if let Some(header) = Header::read(file).map_err(failed)? {
        check_qcow2(&header, length)?;
        return Ok(Inspected { format: Format::Qcow2, virtual_size: header.virtual_size });
    }
    let mut start = [0; 512];
    let read = file.read_at(&mut start, 0).map_err(failed)?;
    if let Some(refusal) = no_raw_disk(&start[..read]) {
        return Err(refusal.into());
    }
    let virtual_size = length.next_multiple_of(SECTOR);
    if virtual_size > MOST_BYTES {
        return Err(Refusal::TooLarge.into());
    }
    if virtual_size != length {
        file.set_len(virtual_size).and_then(|()| file.sync_all()).map_err(failed)?;
    }
    Ok(Inspected { format: Format::Raw, virtual_size })
}

fn check_qcow2(header: &Header, length: u64) -> Result<(), Refusal> {
    match header.version {
        2 => {}
        3 if (104..=512).contains(&header.header_length) => {}
        3 => return Err(Refusal::BadHeader("its own length")),
        1 => return Err(Refusal::OtherFormat("qcow, the predecessor of qcow2")),
        _ => return Err(Refusal::BadHeader("its version")),
    }
    if header.backing_file_offset != 0 {
        return Err(Refusal::BackingFile);
    }
    if header.encryption != 0 {
        return Err(Refusal::Encrypted);
    }
    if header.incompatible & EXTERNAL_DATA != 0 {
        return Err(Refusal::ExternalData);
    }
    if header.incompatible & CORRUPT != 0 {
        return Err(Refusal::Corrupt);
    }
    if header.incompatible & !(DIRTY | COMPRESSION_TYPE | EXTENDED_ENTRIES) != 0 {
        return Err(Refusal::BadHeader("features that nobody knows"));
    }
    if !(9..=21).contains(&header.cluster_bits) {
        return Err(Refusal::BadHeader("the size of its clusters"));
    }
    if header.version == 3 && header.refcount_order > 6 {
        return Err(Refusal::BadHeader("the size of its refcounts"));
    }
    if header.virtual_size == 0 || !header.virtual_size.is_multiple_of(SECTOR) {
        return Err(Refusal::BadHeader("the size of the disk"));
    }
    if header.virtual_size > MOST_BYTES {
        return Err(Refusal::TooLarge);
    }
    check_tables(header, length)
}

fn check_tables(header: &Header, length: u64) -> Result<(), Refusal> {
    let cluster = 1u64 << header.cluster_bits;
    let entry = if header.incompatible & EXTENDED_ENTRIES != 0 { 16 } else { 8 };
    let per_first_entry = cluster * (cluster / entry);
    let first_table = u64::from(header.first_table_entries) * 8;
    let refcount_table = u64::from(header.refcount_table_clusters) * cluster;
    if u64::from(header.first_table_entries) < header.virtual_size.div_ceil(per_first_entry) {
        return Err(Refusal::BadHeader("a first table too small for the disk"));
    }
    if first_table > MOST_FIRST_TABLE || refcount_table == 0 || refcount_table > MOST_REFCOUNT_TABLE {
        return Err(Refusal::BadHeader("the size of its tables"));
    }
    for (offset, size) in
        [(header.first_table_offset, first_table), (header.refcount_table_offset, refcount_table)]
    {
        if offset < cluster || !offset.is_multiple_of(cluster) {
            return Err(Refusal::BadHeader("where its tables are"));
        }
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(Refusal::CutShort);
        }
    }
    Ok(())
}

/// Why these first bytes are not those of a raw disk, if they are known to be others.
fn no_raw_disk(start: &[u8]) -> Option<Refusal> {
    const KNOWN: &[(&[u8], Refusal)] = &[
        (b"\x1f\x8b", Refusal::Compressed("gzip")),
        (b"\xfd7zXZ\0", Refusal::Compressed("xz")),
        (b"\x28\xb5\x2f\xfd", Refusal::Compressed("zstd")),
        (b"BZh", Refusal::Compressed("bzip2")),
        (b"\x04\x22\x4d\x18", Refusal::Compressed("lz4")),
        (b"PK\x03\x04", Refusal::OtherFormat("a zip archive")),
        (b"7z\xbc\xaf\x27\x1c", Refusal::OtherFormat("a 7z archive")),
        (b"KDMV", Refusal::OtherFormat("a VMDK disk")),
        (b"COWD", Refusal::OtherFormat("a VMDK disk")),
        (b"# Disk DescriptorFile", Refusal::OtherFormat("the description of a VMDK disk")),
        (b"vhdxfile", Refusal::OtherFormat("a VHDX disk")),
        (b"conectix", Refusal::OtherFormat("a VHD disk")),
        (b"QED\0", Refusal::OtherFormat("a QED disk")),
        (b"QFI\xfb", Refusal::CutShort),
    ];
    let known = KNOWN.iter().find(|(magic, _)| start.starts_with(magic));
    if let Some((_, refusal)) = known {
        return Some(match refusal {
            Refusal::Compressed(how) => Refusal::Compressed(how),
            Refusal::OtherFormat(what) => Refusal::OtherFormat(what),
            _ => Refusal::CutShort,
        });
    }
    if start.get(64..68) == Some(b"\x7f\x10\xda\xbe") {
        return Some(Refusal::OtherFormat("a VDI disk"));
    }
    if start.get(257..262) == Some(b"ustar") {
        return Some(Refusal::OtherFormat("a tar archive (or an OVA)"));
    }
    let text = start.trim_ascii_start();
    let is_page = |opening: &str| {
        text.get(..opening.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(opening.as_bytes()))
    };
    (is_page("<!doctype html") || is_page("<html")).then_some(Refusal::WebPage)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{image::ImageError, qcow2};

    fn file(content: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    }

    fn empty_qcow2() -> File {
        let file = tempfile::tempfile().unwrap();
        qcow2::write_empty(&file, 1 << 30).unwrap();
        file
    }

    fn refusal(file: &File) -> Refusal {
        match look(file) {
            Err(ImageError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_raw_disk_is_rounded_up_to_whole_sectors() {
        let raw = file(&[7; 1000]);
        assert_eq!(look(&raw).unwrap(), Inspected { format: Format::Raw, virtual_size: 1024 });
        assert_eq!(raw.metadata().unwrap().len(), 1024);
    }

    #[test]
    fn a_plain_qcow2_is_taken_with_the_size_a_guest_sees() {
        let found = look(&empty_qcow2()).unwrap();
        assert_eq!(found, Inspected { format: Format::Qcow2, virtual_size: 1 << 30 });
    }

    #[test]
    fn a_header_that_names_other_files_or_lies_is_refused() {
        let cases: &[(u64, &[u8], Refusal)] = &[
            (8, &512u64.to_be_bytes(), Refusal::BackingFile),
            (32, &2u32.to_be_bytes(), Refusal::Encrypted),
            (72, &4u64.to_be_bytes(), Refusal::ExternalData),
            (72, &2u64.to_be_bytes(), Refusal::Corrupt),
            (72, &(1u64 << 40).to_be_bytes(), Refusal::BadHeader("features that nobody knows")),
            (4, &7u32.to_be_bytes(), Refusal::BadHeader("its version")),
            (4, &1u32.to_be_bytes(), Refusal::OtherFormat("qcow, the predecessor of qcow2")),
            (20, &63u32.to_be_bytes(), Refusal::BadHeader("the size of its clusters")),
            (24, &0u64.to_be_bytes(), Refusal::BadHeader("the size of the disk")),
            (24, &(1u64 << 62).to_be_bytes(), Refusal::TooLarge),
            (36, &0u32.to_be_bytes(), Refusal::BadHeader("a first table too small for the disk")),
            (36, &u32::MAX.to_be_bytes(), Refusal::BadHeader("the size of its tables")),
            (40, &(1u64 << 40).to_be_bytes(), Refusal::CutShort),
            (40, &0u64.to_be_bytes(), Refusal::BadHeader("where its tables are")),
            (48, &u64::MAX.to_be_bytes(), Refusal::BadHeader("where its tables are")),
            (96, &9u32.to_be_bytes(), Refusal::BadHeader("the size of its refcounts")),
            (100, &u32::MAX.to_be_bytes(), Refusal::BadHeader("its own length")),
        ];
        for (at, bytes, expected) in cases {
            let image = empty_qcow2();
            image.write_all_at(bytes, *at).unwrap();
            assert_eq!(&refusal(&image), expected, "{bytes:?} at {at}");
        }
    }

    #[test]
    fn a_qcow2_that_was_cut_off_is_refused() {
        let image = empty_qcow2();
        image.set_len(3 << 17).unwrap();
        assert_eq!(refusal(&image), Refusal::CutShort);
        image.set_len(20).unwrap();
        assert_eq!(refusal(&image), Refusal::CutShort);
    }

    #[test]
    fn what_would_never_boot_is_refused_by_its_name() {
        let mut vdi = [0; 512];
        vdi[64..68].copy_from_slice(b"\x7f\x10\xda\xbe");
        for (content, expected) in [
            (&b""[..], "it is empty"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"\xfd7zXZ\0\0", "xz"),
            (b"\x28\xb5\x2f\xfdxx", "zstd"),
            (b"KDMV\x01", "VMDK"),
            (&vdi, "VDI"),
            (b"\n<!DOCTYPE HTML><p>Sign in", "web page"),
        ] {
            let told = refusal(&file(content)).to_string();
            assert!(told.contains(expected), "{told:?} does not say {expected:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_brings_the_reader_down(noise in proptest::collection::vec(any::<u8>(), 1..600), is_qcow2: bool) {
            let mut content = noise;
            if is_qcow2 && content.len() >= 4 {
                content[..4].copy_from_slice(b"QFI\xfb");
            }
            let _ = look(&file(&content));
        }
    }
}
