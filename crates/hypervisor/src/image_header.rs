//! What the first bytes of a disk image say, as far as it concerns safety.
//!
//! A qcow2 image can name a second file that holds its data, and QEMU opens it without
//! being asked. There is no option that forbids it, so an image that has one is refused
//! here. Backing files need no look: the command line names those itself.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use crate::machine::Format;

const QCOW2_MAGIC: &[u8; 4] = b"QFI\xfb";
/// In the incompatible features: the data lies in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("its header cannot be read")]
    Unreadable(#[from] io::Error),
    #[error("it is said to be qcow2 and is not")]
    NotQcow2,
    #[error("its header names another file for its data")]
    ExternalData,
}

/// The same for an image that is open elsewhere.
pub fn check_descriptor(image: &OwnedFd, format: Format) -> Result<(), HeaderError> {
    check(&image.try_clone()?.into(), format)
}

/// Whether an image may be given to QEMU as `format`.
pub fn check(image: &File, format: Format) -> Result<(), HeaderError> {
    if format == Format::Raw {
        return Ok(());
    }
    let mut header = [0; 80];
    image.read_exact_at(&mut header, 0).map_err(|why| match why.kind() {
        io::ErrorKind::UnexpectedEof => HeaderError::NotQcow2,
        _ => HeaderError::Unreadable(why),
    })?;
    let (magic, rest) = header.split_at(4);
    if magic != QCOW2_MAGIC {
        return Err(HeaderError::NotQcow2);
    }
    let version = rest[3];
    let features = header[72..80].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Version 2 ends before the features and cannot name a file for its data.
    if version >= 3 && features & EXTERNAL_DATA != 0 { Err(HeaderError::ExternalData) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn image(version: u8, features: u64) -> File {
        let mut header = vec![0; 512];
        header[..4].copy_from_slice(QCOW2_MAGIC);
        header[7] = version;
        header[72..80].copy_from_slice(&features.to_be_bytes());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&header).unwrap();
        file
    }

    #[test]
    fn an_image_whose_data_is_elsewhere_is_refused() {
        assert!(matches!(check(&image(3, EXTERNAL_DATA), Format::Qcow2), Err(HeaderError::ExternalData)));
        assert!(check(&image(3, 1), Format::Qcow2).is_ok(), "a dirty image is an ordinary one");
        assert!(check(&image(2, EXTERNAL_DATA), Format::Qcow2).is_ok(), "version 2 has no features there");
    }

    #[test]
    fn what_is_not_qcow2_is_not_opened_as_qcow2() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(matches!(check(&file, Format::Qcow2), Err(HeaderError::NotQcow2)));
        file.write_all(&[0; 512]).unwrap();
        assert!(matches!(check(&file, Format::Qcow2), Err(HeaderError::NotQcow2)));
        assert!(check(&file, Format::Raw).is_ok());
    }
}
