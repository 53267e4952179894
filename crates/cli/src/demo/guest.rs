//! The small Debian that the demo boots, made by the scripts of the project, which this binary carries along.
//!
//! The packages come from where this host's own apt gets them. The image is kept in the user's cache and made once.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use tokio::process::Command;

/// Name and text; they find each other in the directory they are in.
const SCRIPTS: [(&str, &str); 4] = [
    (BUILD, include_str!("../../../../scripts/build-debian-guest")),
    ("debian-guest-files", include_str!("../../../../scripts/debian-guest-files")),
    ("install-bios-loader", include_str!("../../../../scripts/install-bios-loader")),
    ("cache-dir", include_str!("../../../../scripts/cache-dir")),
];
const BUILD: &str = "build-debian-guest";

#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("cannot lay down the scripts that make the Debian guest")]
    Scripts(#[source] io::Error),
    #[error("cannot run bash, which makes the Debian guest")]
    Bash(#[source] io::Error),
    #[error(
        "the Debian guest could not be made ({0}); what is missing is said above. Another image can be given with --image"
    )]
    Failed(ExitStatus),
}

/// The image, made if it is not in the cache. What the scripts have to say goes to standard error.
pub async fn build() -> Result<PathBuf, GuestError> {
    let directory = tempfile::tempdir().map_err(GuestError::Scripts)?;
    for (name, text) in SCRIPTS {
        let path = directory.path().join(name);
        let lay_down = || {
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        };
        lay_down().map_err(GuestError::Scripts)?;
    }
    let built = Command::new("bash")
        .arg(directory.path().join(BUILD))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(GuestError::Bash)?;
    match built.status.success() {
        // The last line is the path; nothing else is printed there.
        true => Ok(String::from_utf8_lossy(&built.stdout).trim().into()),
        false => Err(GuestError::Failed(built.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_that_another_calls_is_carried_along() {
        let calls = |text: &str| {
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-$/{},\"".contains(c)));
            let of_ours = words
                .filter_map(|word| word.strip_prefix("\"$scripts/").or(word.strip_prefix("\"$scripts\"/")));
            of_ours
                .flat_map(|name| name.split([',', '{', '}', '"']).map(str::to_owned).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let called: Vec<String> =
            SCRIPTS.iter().flat_map(|(_, text)| calls(text)).filter(|name| !name.is_empty()).collect();
        assert!(called.contains(&"cache-dir".to_owned()), "{called:?}");
        for name in called {
            assert!(SCRIPTS.iter().any(|(carried, _)| *carried == name), "{name} is not");
        }
    }
}
