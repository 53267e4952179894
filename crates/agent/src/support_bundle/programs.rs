//! Programs of the host that know something about it: run without anybody's environment, for a while, as far as they have
//! something to say.

use std::{path::PathBuf, process::Stdio, time::Duration};

use tokio::{io::AsyncReadExt, process::Command, time::timeout};

const PATIENCE: Duration = Duration::from_secs(20);
/// More is cut off.
const MOST_SAID: u64 = 8 << 20;
/// Where programs of the system are. What somebody put before them in a path is not asked.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// What a program says, or why it does not.
pub async fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let place = PLACES.iter().map(|place| PathBuf::from(place).join(program)).find(|path| path.exists());
    let Some(path) = place else { return Err(format!("{program} is not installed")) };
    let mut command = Command::new(path);
    command.args(arguments).env_clear().env("PATH", PLACES.join(":")).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|why| format!("{program} cannot be started: {why}"))?;
    let Some(stdout) = child.stdout.take() else { return Err(format!("{program} says nothing")) };
    let mut said = Vec::new();
    let listening = async {
        stdout.take(MOST_SAID).read_to_end(&mut said).await?;
        // Who has more to say hears that nobody listens.
        child.wait().await
    };
    match timeout(PATIENCE, listening).await {
        Ok(Ok(code)) if code.success() || !said.is_empty() => Ok(String::from_utf8_lossy(&said).into_owned()),
        Ok(Ok(code)) => Err(format!("{program} {}: {code}", arguments.join(" "))),
        Ok(Err(why)) => Err(format!("{program} {}: {why}", arguments.join(" "))),
        Err(_) => Err(format!("{program} {} did not end in time", arguments.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_is_heard_and_one_that_is_not_there_is_named() {
        assert_eq!(said("echo", &["a", "b"]).await.unwrap(), "a b\n");
        assert!(said("no-such-program", &[]).await.unwrap_err().contains("is not installed"));
        assert!(said("false", &[]).await.unwrap_err().contains("false"));
        assert_eq!(said("env", &[]).await.unwrap().lines().count(), 2, "nobody's environment");
    }
}
