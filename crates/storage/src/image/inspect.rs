//! What an image that arrived is, and whether it may be used: judged by its first bytes,
//! of which a bounded number is read.
//!
//! A qcow2 image is refused when its header names other files or claims sizes that make no
//! sense. What is not qcow2 is a raw disk or disc, unless it is known to be something that would never
//! boot as one: a file that is still compressed, another format of disk, a web page. Saying so here
//! is worth more than a guest that does nothing.
//!
//! What is inside is deliberately not verified: that means parsing all of a
//! stranger's tables as root, and the QEMU that will do so is locked up.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::{
    Format, MOST_BYTES,
    directory::DiskError,
    qcow2::{self, EXTENDED_ENTRIES, Header},
};

/// A disk is a number of sectors.
const SECTOR: u64 = 512;
/// What is not qcow2 is known by so many bytes.
const START: usize = 512;
/// The first volume descriptor of ISO 9660, behind sixteen sectors that are left to others.
const DISC: &[u8] = b"\x01CD001";
const DISC_AT: u64 = 16 * 2048;

const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
/// A header extension that names the file with the data. It is without effect unless a feature says so; it has no
/// business here either way.
const DATA_FILE_NAME: u32 = 0x4441_5441;
/// QEMU itself refuses more.
const MOST_SNAPSHOTS: u32 = 65536;
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
    pub is_disc: bool,
}

/// Why something that begins like this will be refused, if that is certain already.
pub fn refusal_at_sight(start: &[u8]) -> Option<Refusal> {
    let start = &start[..start.len().min(START)];
    if start.starts_with(qcow2::MAGIC) { None } else { no_raw_disk(start) }
}

/// Looks at a file that arrived, and rounds a raw one up to whole sectors; `sync` brings that to the disk.
pub fn look(
    file: &File,
    sync: impl FnOnce(&File) -> Result<(), DiskError>,
) -> Result<Inspected, super::ImageError> {
    let failed = |why: io::Error| DiskError::new("look at", super::DISK.as_ref(), why);
    let length = file.metadata().map_err(failed)?.len();
    if length == 0 {
        return Err(Refusal::Empty.into());
    }
    if let Some(header) = Header::read(file).map_err(failed)? {
        check_qcow2(&header, length)?;
        check_extensions(file, &header).map_err(failed)??;
        return Ok(Inspected { format: Format::Qcow2, virtual_size: header.virtual_size, is_disc: false });
    }
    let mut start = [0; START];
    let read = file.read_at(&mut start, 0).map_err(failed)?;
    if let Some(refusal) = no_raw_disk(&start[..read]) {
        return Err(refusal.into());
    }
    let virtual_size = length.next_multiple_of(SECTOR);
    if virtual_size > MOST_BYTES {
        return Err(Refusal::TooLarge.into());
    }
    if virtual_size != length {
        file.set_len(virtual_size).map_err(failed)?;
        sync(file)?;
    }
    Ok(Inspected { format: Format::Raw, virtual_size, is_disc: is_disc(file).map_err(failed)? })
}

/// Whether a raw image is a disc. Many begin like a disk as well, so that they may be written to a stick.
pub fn is_disc(file: &File) -> io::Result<bool> {
    let mut found = [0; DISC.len()];
    let read = file.read_at(&mut found, DISC_AT)?;
    Ok(&found[..read] == DISC)
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
    if header.snapshots > MOST_SNAPSHOTS {
        return Err(Refusal::BadHeader("the number of its snapshots"));
    }
    check_tables(header, length)
}

/// Walks the extensions behind the header, which all lie in the first cluster.
fn check_extensions(file: &File, header: &Header) -> io::Result<Result<(), Refusal>> {
    let end = 1u64 << header.cluster_bits;
    let mut at = if header.version == 2 { 72 } else { u64::from(header.header_length) };
    // Each takes eight bytes at least, so this ends.
    while at + 8 <= end {
        let mut head = [0; 8];
        if file.read_at(&mut head, at)? < head.len() {
            return Ok(Err(Refusal::CutShort));
        }
        let [kind, length] =
            [&head[..4], &head[4..]].map(|word| word.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)));
        match kind {
            0 => return Ok(Ok(())),
            DATA_FILE_NAME => return Ok(Err(Refusal::ExternalData)),
            _ => {}
        }
        at += 8 + u64::from(length).next_multiple_of(8);
        if at > end {
            return Ok(Err(Refusal::BadHeader("an extension that is longer than its place")));
        }
    }
    Ok(Ok(()))
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
    let mut tables =
        vec![(header.first_table_offset, first_table), (header.refcount_table_offset, refcount_table)];
    if header.snapshots > 0 {
        // Each takes forty bytes at least.
        tables.push((header.snapshots_offset, u64::from(header.snapshots) * 40));
    }
    for (offset, size) in &tables {
        if *offset < cluster || !offset.is_multiple_of(cluster) {
            return Err(Refusal::BadHeader("where its tables are"));
        }
        if offset.checked_add(*size).is_none_or(|end| end > length) {
            return Err(Refusal::CutShort);
        }
    }
    for (at, (offset, size)) in tables.iter().enumerate() {
        let overlaps = |(other, length): &(u64, u64)| *other < offset + size && *offset < other + length;
        if tables[..at].iter().any(overlaps) {
            return Err(Refusal::BadHeader("tables that lie on each other"));
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
        qcow2::write_empty(&file, qcow2::Shape::Layer, 1 << 30).unwrap();
        file
    }

    fn look(file: &File) -> Result<Inspected, ImageError> {
        super::look(file, |file| file.sync_all().map_err(|why| DiskError::new("write", "file".as_ref(), why)))
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
        let expected = Inspected { format: Format::Raw, virtual_size: 1024, is_disc: false };
        assert_eq!(look(&raw).unwrap(), expected);
        assert_eq!(raw.metadata().unwrap().len(), 1024);
    }

    #[test]
    fn a_plain_qcow2_is_taken_with_the_size_a_guest_sees() {
        let found = look(&empty_qcow2()).unwrap();
        assert_eq!(found, Inspected { format: Format::Qcow2, virtual_size: 1 << 30, is_disc: false });
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
            (60, &u32::MAX.to_be_bytes(), Refusal::BadHeader("the number of its snapshots")),
            (60, &7u32.to_be_bytes(), Refusal::BadHeader("where its tables are")),
            // The first table and the refcounts point at each other's place.
            (40, &(1u64 << 17).to_be_bytes(), Refusal::BadHeader("tables that lie on each other")),
            (104, b"DATA\0\0\0\x08/etc/pwd", Refusal::ExternalData),
            (
                104,
                b"\x68\x03\xf8\x57\xff\xff\xff\xff",
                Refusal::BadHeader("an extension that is longer than its place"),
            ),
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
    fn extensions_without_end_are_walked_to_the_end_of_their_cluster_and_no_further() {
        let image = empty_qcow2();
        // Nothing but extensions of no length and no meaning, to the end of the cluster and beyond.
        let endless = b"ABCD\0\0\0\0".repeat(40_000);
        image.write_all_at(&endless[..(1 << 17) - 104], 104).unwrap();
        look(&image).unwrap();
    }

    #[test]
    fn a_disc_is_known_also_when_it_begins_like_a_disk() {
        let mut disc = vec![0; 64 << 10];
        disc[510..512].copy_from_slice(b"\x55\xaa");
        disc[16 * 2048..16 * 2048 + 6].copy_from_slice(b"\x01CD001");
        assert!(look(&file(&disc)).unwrap().is_disc);
        disc[16 * 2048] = 0xff;
        assert!(!look(&file(&disc)).unwrap().is_disc);
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
