//! As much of the qcow2 format as it takes to make an empty layer, to let it grow and to
//! read what a header says.
//!
//! An empty layer is a few numbers in a file of holes, so it is written here: starting `qemu-img` for it
//! takes longer than all the rest of making a volume:
//!
//! ```text
//!   cluster   0 header   1 refcount table   2 refcount block   3 first table, all zero
//! ```
//!
//! Neither names a backing file; whoever opens a layer says what lies below. There are two [`Shape`]s:
//!
//! - A layer of a volume. Its first table is as large as the largest disk needs ([`MOST_BYTES`]), so growing is one
//!   number in the header, written at once or not at all. Clusters have 128 KiB and are divided into 32 parts that are
//!   allocated one by one. A guest's write of 4 KiB to what still lies in the layer below then copies nothing and takes
//!   4 KiB, where QEMU's default copies and takes 64: at random places that is twice the speed and a fifteenth of the
//!   space. QEMU knows this since version 5.2.
//! - A disk that stands alone and that people take elsewhere: as `qemu-img create` makes it, which every program reads.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::MOST_BYTES;

pub const MAGIC: &[u8; 4] = b"QFI\xfb";
const HEADER_BYTES: usize = 104;
const SIZE_AT: u64 = 24;

/// In the incompatible features: entries of the second table are twice as long, and say which parts of a
/// cluster are there.
pub const EXTENDED_ENTRIES: u64 = 1 << 4;

/// What an empty file of this format is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// To lie on others, and to grow.
    Layer,
    /// To stand alone.
    Disk,
}

impl Shape {
    const fn cluster_bits(self) -> u32 {
        match self {
            Shape::Layer => 17,
            Shape::Disk => 16,
        }
    }

    const fn cluster(self) -> u64 {
        1 << self.cluster_bits()
    }

    const fn features(self) -> u64 {
        match self {
            Shape::Layer => EXTENDED_ENTRIES,
            Shape::Disk => 0,
        }
    }

    /// A cluster of the second table holds an entry for each of so many clusters of data.
    const fn bytes_per_first_entry(self) -> u64 {
        let entry = if self.features() & EXTENDED_ENTRIES == 0 { 8 } else { 16 };
        self.cluster() * (self.cluster() / entry)
    }

    const fn first_table_entries(self, virtual_size: u64) -> u64 {
        let most = match self {
            Shape::Layer => MOST_BYTES,
            Shape::Disk => virtual_size,
        };
        most.div_ceil(self.bytes_per_first_entry())
    }
}

/// What a header says; nothing of it is checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub backing_file_offset: u64,
    pub cluster_bits: u32,
    pub virtual_size: u64,
    pub encryption: u32,
    pub first_table_entries: u32,
    pub first_table_offset: u64,
    pub refcount_table_offset: u64,
    pub refcount_table_clusters: u32,
    pub snapshots: u32,
    pub snapshots_offset: u64,
    pub incompatible: u64,
    pub refcount_order: u32,
    pub header_length: u32,
}

impl Header {
    /// None if the file is not of this format at all.
    pub fn read(file: &File) -> io::Result<Option<Header>> {
        let mut bytes = [0; HEADER_BYTES];
        let mut length = 0;
        while length < bytes.len() {
            match file.read_at(&mut bytes[length..], length as u64)? {
                0 => break,
                read => length += read,
            }
        }
        // An older header may end earlier; what is not there reads as zero.
        if length < 72 || bytes[..4] != *MAGIC {
            return Ok(None);
        }
        Ok(Some(Header::parse(&bytes)))
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let number = |at: usize, length: usize| {
            bytes[at..at + length].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let short = |at| number(at, 4) as u32;
        let version = short(4);
        let mut header = Header {
            version,
            backing_file_offset: number(8, 8),
            cluster_bits: short(20),
            virtual_size: number(SIZE_AT as usize, 8),
            encryption: short(32),
            first_table_entries: short(36),
            first_table_offset: number(40, 8),
            refcount_table_offset: number(48, 8),
            refcount_table_clusters: short(56),
            snapshots: short(60),
            snapshots_offset: number(64, 8),
            ..Header::default()
        };
        // What version 2 has at these places is not of the header.
        if version >= 3 {
            header.incompatible = number(72, 8);
            header.refcount_order = short(96);
            header.header_length = short(100);
        }
        header
    }
}

/// Makes an empty file a disk of `virtual_size` bytes with nothing in it.
pub fn write_empty(file: &File, shape: Shape, virtual_size: u64) -> io::Result<()> {
    let cluster = shape.cluster();
    let entries = shape.first_table_entries(virtual_size);
    let clusters = clusters_when_empty(entries, cluster);
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&3u32.to_be_bytes()); // version
    header.extend_from_slice(&[0; 12]); // no backing file
    header.extend_from_slice(&shape.cluster_bits().to_be_bytes());
    header.extend_from_slice(&virtual_size.to_be_bytes());
    header.extend_from_slice(&[0; 4]); // not encrypted
    header.extend_from_slice(&(entries as u32).to_be_bytes());
    header.extend_from_slice(&(3 * cluster).to_be_bytes()); // where the first table is
    header.extend_from_slice(&cluster.to_be_bytes()); // where the refcount table is
    header.extend_from_slice(&1u32.to_be_bytes()); // and its clusters
    header.extend_from_slice(&[0; 12]); // no snapshots inside
    header.extend_from_slice(&shape.features().to_be_bytes());
    header.extend_from_slice(&[0; 16]); // no other features
    header.extend_from_slice(&4u32.to_be_bytes()); // refcounts of 16 bits
    header.extend_from_slice(&(HEADER_BYTES as u32).to_be_bytes());

    file.set_len(clusters * cluster)?;
    file.write_all_at(&header, 0)?;
    file.write_all_at(&(2 * cluster).to_be_bytes(), cluster)?;
    let refcounts = 1u16.to_be_bytes().repeat(clusters as usize);
    file.write_all_at(&refcounts, 2 * cluster)
}

/// Header, refcount table, refcounts, first table.
fn clusters_when_empty(first_table_entries: u64, cluster: u64) -> u64 {
    3 + (first_table_entries * 8).div_ceil(cluster)
}

/// Whether nothing was ever written to a layer made by [`write_empty`]: whatever is, is put behind what was there.
pub fn is_untouched(file: &File) -> io::Result<bool> {
    let Some(header) = Header::read(file)? else { return Ok(false) };
    if header.cluster_bits != Shape::Layer.cluster_bits() {
        return Ok(false);
    }
    let cluster = Shape::Layer.cluster();
    let clusters = clusters_when_empty(header.first_table_entries.into(), cluster);
    Ok(file.metadata()?.len() == clusters * cluster)
}

/// Gives a layer made by [`write_empty`] a new size, which is there for good once somebody synced it. Nobody else may have
/// it open.
pub fn set_virtual_size(file: &File, virtual_size: u64) -> io::Result<()> {
    let bad = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let header = Header::read(file)?.ok_or_else(|| bad("it is said to be qcow2 and is not"))?;
    // The file was in a guest's hands since it was made.
    let ours = header.version == 3
        && header.cluster_bits == Shape::Layer.cluster_bits()
        && header.incompatible & EXTENDED_ENTRIES != 0;
    let entries = virtual_size.div_ceil(Shape::Layer.bytes_per_first_entry());
    if !ours || u64::from(header.first_table_entries) < entries {
        return Err(bad("its header is not the one that was written"));
    }
    file.write_all_at(&virtual_size.to_be_bytes(), SIZE_AT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(virtual_size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        write_empty(&file, Shape::Layer, virtual_size).unwrap();
        file
    }

    #[test]
    fn what_is_written_reads_back() {
        let header = Header::read(&empty(5 << 30)).unwrap().unwrap();
        assert_eq!(header.version, 3);
        assert_eq!(header.virtual_size, 5 << 30);
        assert_eq!((header.backing_file_offset, header.encryption), (0, 0));
        assert_eq!(header.incompatible, EXTENDED_ENTRIES);
        assert_eq!(header.header_length as usize, HEADER_BYTES);
    }

    #[test]
    fn an_empty_layer_can_grow_to_the_largest_disk_and_no_further() {
        let file = empty(1 << 20);
        set_virtual_size(&file, MOST_BYTES).unwrap();
        assert_eq!(Header::read(&file).unwrap().unwrap().virtual_size, MOST_BYTES);
        set_virtual_size(&file, MOST_BYTES + 512).unwrap_err();
    }

    #[test]
    fn a_header_that_a_guest_replaced_is_not_written_to() {
        let file = empty(1 << 20);
        file.write_all_at(&9u32.to_be_bytes(), 20).unwrap();
        set_virtual_size(&file, 1 << 30).unwrap_err();
        file.write_all_at(b"RAW!", 0).unwrap();
        set_virtual_size(&file, 1 << 30).unwrap_err();
    }

    #[test]
    fn a_short_or_other_file_has_no_header() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Header::read(&file).unwrap(), None);
        file.write_all_at(MAGIC, 0).unwrap();
        assert_eq!(Header::read(&file).unwrap(), None);
        file.write_all_at(&[1; 200], 0).unwrap();
        assert_eq!(Header::read(&file).unwrap(), None);
    }
}
