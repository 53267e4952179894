//! Hands rulesets to the kernel through `nft`, whole and in one transaction.
//!
//! `nft` reads a ruleset, and the kernel takes all of it or none of it. A process killed
//! at any moment therefore leaves either the rules that were or the rules that are to be.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

use crate::names::TableName;

/// Far beyond what a ruleset of thousands of ports takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot run `nft`; is the package nftables installed?")]
    Run {
        #[source]
        source: io::Error,
    },
    #[error("`nft` did not come back within {PATIENCE:?}")]
    Stuck,
    #[error("the kernel did not take the rules: {said}")]
    Refused { said: String },
}

/// Swaps in a ruleset.
pub(crate) async fn apply(ruleset: &str) -> Result<(), NftError> {
    match run(&["-f", "-"], ruleset).await? {
        Outcome { success: true, .. } => Ok(()),
        Outcome { said, .. } => Err(NftError::Refused { said }),
    }
}

/// Whether both tables of this name are in the kernel.
pub(crate) async fn has(table: &TableName) -> Result<bool, NftError> {
    has_in(&["bridge", "inet"], table).await
}

/// Whether there is such a table of IP rules.
pub(crate) async fn has_inet(table: &TableName) -> Result<bool, NftError> {
    has_in(&["inet"], table).await
}

async fn has_in(families: &[&str], table: &TableName) -> Result<bool, NftError> {
    for family in families {
        let outcome = run(&["-t", "list", "table", family, table.as_str()], "").await?;
        match outcome {
            Outcome { success: true, .. } => (),
            Outcome { said, .. } if said.contains("No such file") => return Ok(false),
            Outcome { said, .. } => return Err(NftError::Refused { said }),
        }
    }
    Ok(true)
}

struct Outcome {
    success: bool,
    said: String,
}

async fn run(arguments: &[&str], input: &str) -> Result<Outcome, NftError> {
    let failed = |source| NftError::Run { source };
    // By its whole path: with another `PATH` it would be looked for in a fork of this process.
    let mut child = Command::new(program().unwrap_or_else(|| "nft".into()))
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let stdin = child.stdin.take();
    let talk = async {
        if let Some(mut stdin) = stdin {
            // One that refuses early closes its input; what it says is in its stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(PATIENCE, talk).await.map_err(|_| NftError::Stuck)?.map_err(failed)?;
    let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(2000).collect();
    Ok(Outcome { success: output.status.success(), said })
}

/// Where `nft` is. It lies where only an administrator's shell looks.
pub(crate) fn program() -> Option<PathBuf> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    // Not where this process happens to be.
    let places = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    places.map(|directory| directory.join("nft")).find(|program| can_be_run(program))
}

fn can_be_run(program: &Path) -> bool {
    program.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
