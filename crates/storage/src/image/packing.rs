//! Images that come packed: gzip, xz and zstd, unpacked while they arrive.
//!
//! A packed image is known by its first bytes, never by a name. One layer is taken off and no more: what is packed
//! inside is refused like anything else that is no disk. The unpackers are plain Rust, since they read what strangers
//! made and run as root, and each is held to a window ([`WINDOW`]), so memory does not grow with the image. How much may
//! come out of how little is bounded in [`most_unpacked`]; how much the disk takes, where it is written.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};
use serde::{Deserialize, Serialize};

/// The largest window that an unpacker may ask for: what `xz -9` and `zstd --ultra -22` make fits.
pub const WINDOW: u64 = 128 << 20;
/// Runs of zeros pack better than anything that is worth sending, and an empty disk is nothing but that.
const MOST_RATIO: u64 = 1000;
/// So much may always come out.
const ALLOWANCE: u64 = 16 << 30;

const SKIPPABLE: u32 = 0x184d_2a50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    Gzip,
    Xz,
    Zstd,
}

/// As many of the first bytes as [`Packing::of`] looks at.
pub const MAGIC: usize = 6;

impl Packing {
    /// None for what is not packed, as far as its first bytes tell.
    pub fn of(start: &[u8]) -> Option<Packing> {
        let zstd = |start: &[u8]| {
            let magic = start.first_chunk().map(|magic| u32::from_le_bytes(*magic));
            magic.is_some_and(|magic| magic == 0xfd2f_b528 || magic & !0xf == SKIPPABLE)
        };
        match start {
            _ if start.starts_with(b"\x1f\x8b") => Some(Packing::Gzip),
            _ if start.starts_with(b"\xfd7zXZ\0") => Some(Packing::Xz),
            _ if zstd(start) => Some(Packing::Zstd),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Zstd => "zstd",
        }
    }

    /// What was packed, as it is read from `packed`.
    pub fn unpack<'a>(self, packed: impl Read + 'a) -> Box<dyn Read + 'a> {
        match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packing::Xz => Box::new(XzReader::new_mem_limit(packed, true, (WINDOW >> 10) as u32)),
            Packing::Zstd => Box::new(Frames::new(packed)),
        }
    }
}

/// How much may have come out of so many packed bytes.
pub fn most_unpacked(packed: u64) -> u64 {
    packed.saturating_mul(MOST_RATIO).saturating_add(ALLOWANCE)
}

/// The frames of a zstd file, one after the other: packers that use several processors make many.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Beginning,
    Inside,
    Between,
    End,
}

impl<R: Read> Frames<R> {
    fn new(source: R) -> Frames<R> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW);
        Frames { source, decoder, at: At::Beginning }
    }

    /// Begins the next frame, if there is one.
    fn enter(&mut self) -> io::Result<()> {
        let mut first = [0];
        if read_some(&mut self.source, &mut first)? == 0 {
            if self.at == At::Beginning {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.at = At::End;
            return Ok(());
        }
        match self.decoder.init((&first[..]).chain(&mut self.source)) {
            Ok(()) => self.at = At::Inside,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                skip(&mut self.source, u64::from(length))?;
                self.at = At::Between;
            }
            Err(why) => return Err(invalid(why)),
        }
        Ok(())
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            match self.at {
                At::Beginning | At::Between => self.enter()?,
                At::End => return Ok(0),
                At::Inside if self.decoder.can_collect() > 0 => return self.decoder.read(into),
                At::Inside if self.decoder.is_finished() => {
                    check(&self.decoder)?;
                    self.at = At::Between;
                }
                At::Inside => {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, one).map_err(invalid)?;
                }
            }
        }
    }
}

/// The decoder computes the checksum and leaves it to others to compare.
fn check(decoder: &FrameDecoder) -> io::Result<()> {
    match decoder.get_checksum_from_data() {
        Some(said) if decoder.get_calculated_checksum() != Some(said) => {
            Err(invalid("a frame has another checksum than it says"))
        }
        _ => Ok(()),
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn skip(source: &mut impl Read, length: u64) -> io::Result<()> {
    let skipped = io::copy(&mut source.take(length), &mut io::sink())?;
    if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn read_some(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(into) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(content).unwrap();
        packer.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        Packing::of(packed).unwrap().unpack(packed).read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn several_frames_and_what_stands_between_them_are_one_file() {
        let skipped = [&0x184d_2a53u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
        let file = [skipped.clone(), zstd(b"one "), skipped, zstd(b""), zstd(b"two")].concat();
        assert_eq!(unpacked(&file).unwrap(), b"one two");
        let members = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(unpacked(&members).unwrap(), b"one two");
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_never_taken_for_whole() {
        let content: Vec<u8> = (0..200_000u32).map(|n| (n * 7 % 251) as u8).collect();
        for packed in [gzip(&content), zstd(&content)] {
            for length in [7, packed.len() / 2, packed.len() - 1] {
                unpacked(&packed[..length]).unwrap_err();
            }
            let mut damaged = packed.clone();
            let last = damaged.len() - 1;
            damaged[last] ^= 1;
            unpacked(&damaged).unwrap_err();
            unpacked(&[packed, b"and more".to_vec()].concat()).unwrap_err();
        }
    }

    #[test]
    fn a_window_larger_than_memory_is_refused_before_it_is_made() {
        // A frame whose header asks for a window of two terabytes.
        let zstd = [&0xfd2f_b528u32.to_le_bytes()[..], &[0x00, 0xf8, 1, 0, 0]].concat();
        let told = unpacked(&zstd).unwrap_err().to_string();
        assert!(told.contains("too big"), "{told}");
    }

    #[test]
    fn what_comes_out_is_bounded_by_what_came_in() {
        assert_eq!(most_unpacked(0), ALLOWANCE);
        assert_eq!(most_unpacked(1 << 30), ALLOWANCE + (1000 << 30));
        assert_eq!(most_unpacked(u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn no_packed_file_brings_an_unpacker_down(noise in proptest::collection::vec(any::<u8>(), 0..400), which in 0..3usize) {
            let magic = [&b"\x1f\x8b\x08"[..], b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"][which];
            let file = [magic, &noise].concat();
            let mut some = vec![0; 1 << 20];
            let _ = Packing::of(&file).unwrap().unpack(&file[..]).read(&mut some);
        }
    }
}
