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
const SCRIPTS: [(&str, &str); 3] = [
    (BUILD, include_str!("../../../../scripts/build-debian-guest")),
    ("debian-guest-files", include_str!("../../../../scripts/debian-guest-files")),
    ("cache-dir", include_str!("../../../../scripts/cache-dir")),
];
const BUILD: &str = "build-debian-guest";

#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("cannot lay down the scripts that make the Debian guest")]
    Scripts(#[source] io::Error),
    #[error("cannot run bash, which makes the Debian guest")]
    Bash(#[source] io::Error),
    #[error("the Debian guest could not be made ({0}); what is missing is said above. Another image can be given with --image")]
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
