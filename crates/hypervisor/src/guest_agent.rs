//! Asks the agent inside a guest, over its channel.
//!
//! The guest is hostile until proven otherwise, and often just silent: no agent, one that
//! hangs, one that answers the question before last. So every question first makes sure that
//! the two sides speak of the same thing (`guest-sync-delimited`), has a deadline, and takes a bounded
//! answer. Nothing here is safe to believe beyond what the guest may claim of itself.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::UnixStream, sync::Mutex, time::timeout};

/// The longest answer taken from a guest.
const MOST_ANSWER_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// A byte that no JSON holds: everything before it is forgotten, by both sides.
const DELIMITER: u8 = 0xff;

#[derive(Debug, thiserror::Error)]
pub enum GuestAgentError {
    #[error("the guest agent did not answer {command} within {patience:?}")]
    Silent { command: &'static str, patience: Duration },
    #[error("the guest agent would not {command}: {desc} ({class})")]
    Refused { command: &'static str, class: String, desc: String },
    #[error("the guest agent answered {command} with what cannot be understood")]
    NotUnderstood {
        command: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("the guest agent's answer to {command} has no end")]
    TooLong { command: &'static str },
    #[error("the guest agent's channel is closed")]
    Closed,
    #[error("the guest agent's channel failed")]
    Io(#[source] io::Error),
}

/// Numbers for synchronisation: never one that an earlier process of ours used lately.
static NEXT_SYNC: AtomicU64 = AtomicU64::new(1);

pub struct GuestAgent {
    channel: Mutex<Channel>,
}

struct Channel {
    stream: UnixStream,
    buffer: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Info {
    pub version: String,
    #[serde(default)]
    pub supported_commands: Vec<SupportedCommand>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SupportedCommand {
    pub name: String,
    pub enabled: bool,
    #[serde(default, rename = "success-response")]
    pub success_response: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interface {
    pub name: String,
    #[serde(default)]
    pub hardware_address: Option<String>,
    #[serde(default)]
    pub ip_addresses: Vec<IpAddress>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct IpAddress {
    pub ip_address: String,
    /// `ipv4` or `ipv6`.
    pub ip_address_type: String,
    pub prefix: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct OsInfo {
    pub id: Option<String>,
    pub name: Option<String>,
    pub pretty_name: Option<String>,
    pub version: Option<String>,
    pub version_id: Option<String>,
    pub kernel_release: Option<String>,
    pub kernel_version: Option<String>,
    pub machine: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct User {
    pub user: String,
    #[serde(default)]
    pub domain: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub login_time: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Filesystem {
    pub name: String,
    pub mountpoint: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub used_bytes: Option<u64>,
    #[serde(default)]
    pub total_bytes: Option<u64>,
    #[serde(default)]
    pub disk: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Timezone {
    #[serde(default)]
    pub zone: Option<String>,
    /// Seconds east of Greenwich.
    pub offset: i64,
}

/// How far a command in the guest has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecStatus {
    pub exited: bool,
    pub exit_code: Option<i64>,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    PowerDown,
    Halt,
    Reboot,
}

impl GuestAgent {
    pub fn new(stream: UnixStream) -> GuestAgent {
        GuestAgent { channel: Mutex::new(Channel { stream, buffer: Vec::new() }) }
    }

    /// Any command, for what has no method here.
    pub async fn execute(&self, command: &'static str, arguments: Value) -> Result<Value, GuestAgentError> {
        let mut channel = self.channel.lock().await;
        let exchange = async {
            channel.synchronise().await?;
            channel.send(command, &arguments, None).await?;
            channel.answer(command).await
        };
        match timeout(PATIENCE, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(GuestAgentError::Silent { command, patience: PATIENCE }),
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        command: &'static str,
        arguments: Value,
    ) -> Result<T, GuestAgentError> {
        let answer = self.execute(command, arguments).await?;
        serde_json::from_value(answer).map_err(|source| GuestAgentError::NotUnderstood { command, source })
    }

    pub async fn ping(&self) -> Result<(), GuestAgentError> {
        self.execute("guest-ping", Value::Null).await.map(drop)
    }

    pub async fn info(&self) -> Result<Info, GuestAgentError> {
        self.ask("guest-info", Value::Null).await
    }

    pub async fn interfaces(&self) -> Result<Vec<Interface>, GuestAgentError> {
        self.ask("guest-network-get-interfaces", Value::Null).await
    }

    pub async fn os_info(&self) -> Result<OsInfo, GuestAgentError> {
        self.ask("guest-get-osinfo", Value::Null).await
    }

    pub async fn users(&self) -> Result<Vec<User>, GuestAgentError> {
        self.ask("guest-get-users", Value::Null).await
    }

    pub async fn filesystems(&self) -> Result<Vec<Filesystem>, GuestAgentError> {
        self.ask("guest-get-fsinfo", Value::Null).await
    }

    pub async fn host_name(&self) -> Result<String, GuestAgentError> {
        #[derive(Deserialize)]
        struct Name {
            #[serde(rename = "host-name")]
            host_name: String,
        }
        Ok(self.ask::<Name>("guest-get-host-name", Value::Null).await?.host_name)
    }

    pub async fn timezone(&self) -> Result<Timezone, GuestAgentError> {
        self.ask("guest-get-timezone", Value::Null).await
    }

    /// Asks for an orderly end. The agent does not answer when it agrees, so this returns
    /// once the question is sent.
    pub async fn shutdown(&self, how: Shutdown) -> Result<(), GuestAgentError> {
        let mode = match how {
            Shutdown::PowerDown => "powerdown",
            Shutdown::Halt => "halt",
            Shutdown::Reboot => "reboot",
        };
        let command = "guest-shutdown";
        let mut channel = self.channel.lock().await;
        let exchange = async {
            channel.synchronise().await?;
            channel.send(command, &json!({ "mode": mode }), None).await
        };
        timeout(PATIENCE, exchange)
            .await
            .unwrap_or(Err(GuestAgentError::Silent { command, patience: PATIENCE }))
    }

    /// Starts a program in the guest; returns its number there.
    pub async fn exec(&self, program: &str, arguments: &[&str]) -> Result<i64, GuestAgentError> {
        #[derive(Deserialize)]
        struct Started {
            pid: i64,
        }
        let order = json!({ "path": program, "arg": arguments, "capture-output": true });
        Ok(self.ask::<Started>("guest-exec", order).await?.pid)
    }

    pub async fn exec_status(&self, pid: i64) -> Result<ExecStatus, GuestAgentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Status {
            exited: bool,
            exitcode: Option<i64>,
            #[serde(default)]
            out_data: String,
            #[serde(default)]
            err_data: String,
        }
        let status: Status = self.ask("guest-exec-status", json!({ "pid": pid })).await?;
        // Output that is not what it should be is the guest's loss.
        let decode = |text: String| BASE64_STANDARD.decode(text).unwrap_or_default();
        Ok(ExecStatus {
            exited: status.exited,
            exit_code: status.exitcode,
            output: decode(status.out_data),
            errors: decode(status.err_data),
        })
    }

    /// Lets the holders of these keys log in as `user`. With `replace`, only them.
    pub async fn add_ssh_keys(
        &self,
        user: &str,
        keys: &[String],
        replace: bool,
    ) -> Result<(), GuestAgentError> {
        let order = json!({ "username": user, "keys": keys, "reset": replace });
        self.execute("guest-ssh-add-authorized-keys", order).await.map(drop)
    }

    pub async fn set_password(&self, user: &str, password: &str) -> Result<(), GuestAgentError> {
        let encoded = BASE64_STANDARD.encode(password);
        let order = json!({ "username": user, "password": encoded, "crypted": false });
        self.execute("guest-set-user-password", order).await.map(drop)
    }

    /// Stops writes to every filesystem; returns how many were frozen.
    pub async fn freeze(&self) -> Result<u64, GuestAgentError> {
        self.ask("guest-fsfreeze-freeze", Value::Null).await
    }

    pub async fn thaw(&self) -> Result<u64, GuestAgentError> {
        self.ask("guest-fsfreeze-thaw", Value::Null).await
    }

    /// `thawed` or `frozen`.
    pub async fn freeze_status(&self) -> Result<String, GuestAgentError> {
        self.ask("guest-fsfreeze-status", Value::Null).await
    }
}

impl Channel {
    /// Throws away whatever either side still has from before, and waits for the echo of a number.
    async fn synchronise(&mut self) -> Result<(), GuestAgentError> {
        const COMMAND: &str = "guest-sync-delimited";
        let process = u64::from(std::process::id()) << 32;
        let id = process | NEXT_SYNC.fetch_add(1, Ordering::Relaxed);
        self.buffer.clear();
        self.send(COMMAND, &json!({ "id": id }), Some(DELIMITER)).await?;
        loop {
            // Echoes of questions that were given up come first.
            self.line(COMMAND, DELIMITER).await?;
            let line = self.line(COMMAND, b'\n').await?;
            let echo: Option<Value> = serde_json::from_slice(&line).ok();
            if echo.is_some_and(|echo| echo["return"].as_u64() == Some(id)) {
                return Ok(());
            }
        }
    }

    async fn send(
        &mut self,
        command: &'static str,
        arguments: &Value,
        before: Option<u8>,
    ) -> Result<(), GuestAgentError> {
        let mut object = json!({ "execute": command });
        if !arguments.is_null() {
            object["arguments"] = arguments.clone();
        }
        let mut line: Vec<u8> = before.into_iter().collect();
        line.extend_from_slice(object.to_string().as_bytes());
        line.push(b'\n');
        self.stream.write_all(&line).await.map_err(GuestAgentError::Io)
    }

    async fn answer(&mut self, command: &'static str) -> Result<Value, GuestAgentError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(rename = "return")]
            value: Option<Value>,
            error: Option<Refusal>,
        }
        #[derive(Deserialize)]
        struct Refusal {
            class: String,
            desc: String,
        }
        let line = self.line(command, b'\n').await?;
        let answer: Answer = serde_json::from_slice(&line)
            .map_err(|source| GuestAgentError::NotUnderstood { command, source })?;
        match answer.error {
            Some(Refusal { class, desc }) => Err(GuestAgentError::Refused { command, class, desc }),
            None => Ok(answer.value.unwrap_or(Value::Null)),
        }
    }

    /// Everything up to `end`, which is taken away too.
    async fn line(&mut self, command: &'static str, end: u8) -> Result<Vec<u8>, GuestAgentError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == end) {
                let rest = self.buffer.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.buffer.len();
            if searched > MOST_ANSWER_BYTES {
                self.buffer.clear();
                return Err(GuestAgentError::TooLong { command });
            }
            self.stream.readable().await.map_err(GuestAgentError::Io)?;
            let mut more = [0; 4096];
            match self.stream.try_read(&mut more) {
                Ok(0) => return Err(GuestAgentError::Closed),
                Ok(number) => self.buffer.extend_from_slice(&more[..number]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(GuestAgentError::Io(why)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
