//! Where the host keeps firmware for UEFI guests.
//!
//! Distributions describe their builds in `/usr/share/qemu/firmware/*.json`, best first by file name. Those
//! files are the catalogue; nothing here knows a path of any distribution.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// Where descriptions are, on every distribution that has them.
pub const CATALOGUE: &str = "/usr/share/qemu/firmware";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareFiles {
    /// The code; read-only and shared by all machines.
    pub code: PathBuf,
    /// What a machine's own variables begin as; to be copied.
    pub variables_template: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    #[error("cannot read the firmware catalogue {catalogue}")]
    Catalogue {
        catalogue: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the firmware catalogue {catalogue} has no UEFI for q35 {with} secure boot; is the package ovmf installed?"
    )]
    None { catalogue: PathBuf, with: &'static str },
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Description {
    interface_types: Vec<String>,
    mapping: Mapping,
    targets: Vec<Target>,
    features: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Mapping {
    device: String,
    executable: Option<File>,
    nvram_template: Option<File>,
}

#[derive(Deserialize)]
struct File {
    filename: PathBuf,
    format: String,
}

#[derive(Deserialize)]
struct Target {
    architecture: String,
    machines: Vec<String>,
}

/// The best firmware of the catalogue that has, or has not, secure boot with the usual
/// keys enrolled.
pub fn find(catalogue: &Path, secure_boot: bool) -> Result<FirmwareFiles, FirmwareError> {
    let unreadable = |source| FirmwareError::Catalogue { catalogue: catalogue.to_owned(), source };
    let mut files: Vec<PathBuf> = fs::read_dir(catalogue)
        .map_err(unreadable)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    // A description that cannot be read is somebody else's format; the next may do.
    let descriptions = files.iter().filter_map(|file| fs::read(file).ok());
    descriptions
        .filter_map(|text| serde_json::from_slice::<Description>(&text).ok())
        .find_map(|description| fits(description, secure_boot))
        .ok_or_else(|| FirmwareError::None {
            catalogue: catalogue.to_owned(),
            with: if secure_boot { "with" } else { "without" },
        })
}

fn fits(description: Description, secure_boot: bool) -> Option<FirmwareFiles> {
    let has = |feature: &str| description.features.iter().any(|known| known == feature);
    let for_q35 = description.targets.iter().any(|target| {
        target.architecture == "x86_64" && target.machines.iter().any(|machine| machine.starts_with("pc-q35"))
    });
    let secure = has("secure-boot") && has("enrolled-keys") && has("requires-smm");
    let plain = !has("secure-boot") && !has("requires-smm");
    let fits = for_q35
        && description.mapping.device == "flash"
        && description.interface_types.iter().any(|kind| kind == "uefi")
        && !has("amd-sev-es")
        && if secure_boot { secure } else { plain };
    let (code, template) = (description.mapping.executable?, description.mapping.nvram_template?);
    (fits && code.format == "raw" && template.format == "raw")
        .then_some(FirmwareFiles { code: code.filename, variables_template: template.filename })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_both_kinds() {
        let plain = find(Path::new(CATALOGUE), false).unwrap();
        let secure = find(Path::new(CATALOGUE), true).unwrap();
        assert_ne!(plain, secure);
        for file in [&plain.code, &plain.variables_template, &secure.code, &secure.variables_template] {
            assert!(file.is_file(), "{} is in the catalogue and not there", file.display());
        }
    }

    #[test]
    fn an_empty_catalogue_says_what_to_install() {
        let empty = tempfile::tempdir().unwrap();
        let why = find(empty.path(), false).unwrap_err().to_string();
        assert!(why.contains("ovmf"), "{why}");
    }
}
