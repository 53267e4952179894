//! `sheaf vm ssh`: the computer's own SSH, led to the guest through the API.
//!
//! So it works wherever the API can be reached, whether the guest's address can be or not. The guest's key is remembered
//! under the machine's name, since addresses are handed out again.

use std::{env, path::PathBuf, process::Command};

use clap::Args as ClapArgs;

use crate::{
    asking::{Refusal, Session, names, resource::MACHINES},
    completing,
};

#[derive(Debug, ClapArgs)]
pub struct SshArgs {
    /// The virtual machine, with a user before it or not: NAME or USER@NAME
    #[arg(value_name = "[USER@]NAME", add = completing::names_of(&MACHINES))]
    pub target: String,
    /// File with the private key [default: as SSH itself chooses]
    #[arg(short, long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Port that the guest's SSH listens on
    #[arg(short, long, default_value_t = 22)]
    pub port: u16,
    /// Command to run there
    #[arg(last = true)]
    pub command: Vec<String>,
}

pub async fn run(session: &Session, args: &SshArgs) -> Result<(), Refusal> {
    let (user, name) = match args.target.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, args.target.as_str()),
    };
    let name = names::segment(name).map_err(|why| Refusal::Wrong(format!("{name:?}: {why}")))?;
    if user.is_some_and(|user| user.is_empty() || user.starts_with('-')) {
        return Err(Refusal::Wrong(format!("{:?}: what fits is NAME or USER@NAME", args.target)));
    }
    super::must_run(session, &name, "enter").await?;
    let this = env::current_exe().map_err(|why| Refusal::cannot("find this program", why))?;
    let mut ssh = Command::new("ssh");
    ssh.args(options(session, &this.to_string_lossy(), &name, args.port));
    // What the proxy is to ask is what this command asks.
    let kubeconfigs = env::join_paths(&session.access.kubeconfigs)
        .map_err(|why| Refusal::cannot("name the kubeconfig", why))?;
    ssh.env("KUBECONFIG", kubeconfigs);
    if let Some(identity) = &args.identity {
        ssh.arg("-i").arg(identity);
    }
    if let Some(user) = user {
        ssh.args(["-l", user]);
    }
    ssh.arg("--").arg(&name).args(&args.command);
    let status = ssh.status().map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => {
            let why = "there is no ssh on this computer: install openssh-client, or use `sheaf vm console`";
            Refusal::Wrong(why.to_owned())
        }
        _ => Refusal::cannot("start ssh", why),
    })?;
    match status.code() {
        Some(0) => Ok(()),
        code => Err(Refusal::Ended(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255))),
    }
}

fn options(session: &Session, program: &str, name: &str, port: u16) -> Vec<String> {
    let namespace = &session.namespace;
    let mut proxy = vec![program, "vm", "port-forward", name];
    let port = port.to_string();
    proxy.extend([port.as_str(), "--stdio", "--namespace", namespace]);
    if let Some(context) = &session.access.context {
        proxy.extend(["--context", context]);
    }
    let proxy: Vec<String> = proxy.into_iter().map(quoted).collect();
    let alias = format!("{name}.{namespace}.vm.sheaf");
    [
        format!("ProxyCommand={}", proxy.join(" ")),
        format!("HostKeyAlias={alias}"),
        "CheckHostIP=no".to_owned(),
        "StrictHostKeyChecking=accept-new".to_owned(),
    ]
    .into_iter()
    .flat_map(|option| ["-o".to_owned(), option])
    .collect()
}

/// For a shell, and for SSH, to which `%` means something.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''")).replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_reads_is_what_was_meant() {
        assert_eq!(quoted("/usr/bin/sheaf"), "'/usr/bin/sheaf'");
        assert_eq!(quoted("it's 100%"), r"'it'\''s 100%%'");
    }
}
