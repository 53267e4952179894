//! What a guest says about itself, in KubeVirt's words.
//!
//! Nothing of it is believed: it is passed on to whoever asked, and each part that the guest's agent does not know
//! is left out.

use serde_json::{Map, Value, json};
use sheaf_hypervisor::{
    GuestAgent, GuestAgentError,
    guest_agent::{Filesystem, OsInfo, Timezone, User},
};

const API_VERSION: &str = "subresources.kubevirt.io/v1";

/// VirtualMachineInstanceGuestAgentInfo.
pub async fn guest_os_info(agent: &GuestAgent) -> Result<Value, GuestAgentError> {
    let info = agent.info().await?;
    let commands: Vec<Value> = info
        .supported_commands
        .iter()
        .map(|command| json!({"name": command.name, "enabled": command.enabled}))
        .collect();
    let mut answer = json!({
        "kind": "VirtualMachineInstanceGuestAgentInfo", "apiVersion": API_VERSION,
        "guestAgentVersion": info.version, "supportedCommands": commands,
    });
    if let Some(hostname) = known(agent.host_name().await)? {
        answer["hostname"] = hostname.into();
    }
    if let Some(os) = known(agent.os_info().await)? {
        answer["os"] = os_in_kubevirts_words(&os);
    }
    if let Some(timezone) = known(agent.timezone().await)? {
        answer["timezone"] = timezone_in_kubevirts_words(&timezone).into();
    }
    if let Some(users) = known(agent.users().await)? {
        answer["userList"] = users.iter().map(user).collect();
    }
    if let Some(filesystems) = known(agent.filesystems().await)? {
        answer["fsInfo"] = json!({"disks": filesystems.iter().map(filesystem).collect::<Value>()});
    }
    if let Some(status) = known(agent.freeze_status().await)?
        && status == "frozen"
    {
        answer["fsFreezeStatus"] = status.into();
    }
    Ok(answer)
}

/// VirtualMachineInstanceGuestOSUserList.
pub async fn user_list(agent: &GuestAgent) -> Result<Value, GuestAgentError> {
    let items: Value = agent.users().await?.iter().map(user).collect();
    Ok(list("VirtualMachineInstanceGuestOSUserList", items))
}

/// VirtualMachineInstanceFileSystemList.
pub async fn filesystem_list(agent: &GuestAgent) -> Result<Value, GuestAgentError> {
    let items: Value = agent.filesystems().await?.iter().map(filesystem).collect();
    Ok(list("VirtualMachineInstanceFileSystemList", items))
}

fn list(kind: &str, items: Value) -> Value {
    json!({"kind": kind, "apiVersion": API_VERSION, "metadata": {}, "items": items})
}

/// What the agent will not tell is left out; one that does not answer ends the question.
fn known<T>(answer: Result<T, GuestAgentError>) -> Result<Option<T>, GuestAgentError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(GuestAgentError::Refused { .. } | GuestAgentError::NotUnderstood { .. }) => Ok(None),
        Err(why) => Err(why),
    }
}

fn os_in_kubevirts_words(os: &OsInfo) -> Value {
    let fields = [
        ("name", &os.name),
        ("kernelRelease", &os.kernel_release),
        ("version", &os.version),
        ("prettyName", &os.pretty_name),
        ("versionId", &os.version_id),
        ("kernelVersion", &os.kernel_version),
        ("machine", &os.machine),
        ("id", &os.id),
    ];
    let said = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
    Value::Object(said.collect::<Map<String, Value>>())
}

fn timezone_in_kubevirts_words(timezone: &Timezone) -> String {
    format!("{}, {}", timezone.zone.as_deref().unwrap_or_default(), timezone.offset)
}

fn user(user: &User) -> Value {
    let mut answer = json!({"userName": user.user, "loginTime": user.login_time});
    if let Some(domain) = &user.domain {
        answer["domain"] = domain.clone().into();
    }
    answer
}

fn filesystem(filesystem: &Filesystem) -> Value {
    let disks: Vec<Value> = filesystem
        .disk
        .iter()
        .map(|disk| {
            let mut answer = json!({"busType": disk["bus-type"].as_str().unwrap_or_default()});
            if let Some(serial) = disk["serial"].as_str() {
                answer["serial"] = serial.into();
            }
            answer
        })
        .collect();
    let mut answer = json!({
        "diskName": filesystem.name, "mountPoint": filesystem.mountpoint, "fileSystemType": filesystem.kind,
        "usedBytes": filesystem.used_bytes.unwrap_or_default(),
        "totalBytes": filesystem.total_bytes.unwrap_or_default(),
    });
    if !disks.is_empty() {
        answer["disk"] = disks.into();
    }
    answer
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        net::UnixStream,
    };

    use super::*;

    /// A guest agent that knows these answers and no others.
    fn guest(answers: Value) -> GuestAgent {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (from, mut to) = theirs.into_split();
            let mut lines = BufReader::new(from);
            loop {
                let mut line = Vec::new();
                if lines.read_until(b'\n', &mut line).await.unwrap() == 0 {
                    return;
                }
                line.retain(|byte| *byte != 0xff);
                let order: Value = serde_json::from_slice(&line).unwrap();
                let command = order["execute"].as_str().unwrap();
                let mut answer = Vec::new();
                let body = match (command, &answers[command]) {
                    ("guest-sync-delimited", _) => {
                        answer.push(0xff);
                        json!({"return": order["arguments"]["id"]})
                    }
                    (_, Value::Null) => json!({"error": {"class": "CommandNotFound", "desc": "unknown"}}),
                    (_, known) => json!({"return": known}),
                };
                answer.extend(body.to_string().bytes());
                answer.push(b'\n');
                to.write_all(&answer).await.unwrap();
            }
        });
        GuestAgent::new(ours)
    }

    fn debian() -> Value {
        json!({
            "guest-info": {"version": "7.2.0", "supported_commands": [{"name": "guest-ping", "enabled": true}]},
            "guest-get-host-name": {"host-name": "web-1"},
            "guest-get-osinfo": {"id": "debian", "pretty-name": "Debian GNU/Linux 12", "version-id": "12"},
            "guest-get-timezone": {"zone": "CET", "offset": 3600},
            "guest-get-users": [{"user": "debian", "login-time": 1700000000.5}],
            "guest-get-fsinfo": [{
                "name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 10, "total-bytes": 20,
                "disk": [{"bus-type": "virtio", "serial": "abc", "bus": 0}],
            }],
        })
    }

    #[tokio::test]
    async fn a_guest_is_described_in_kubevirts_words() {
        let said = guest_os_info(&guest(debian())).await.unwrap();
        assert_eq!(
            said,
            json!({
                "kind": "VirtualMachineInstanceGuestAgentInfo", "apiVersion": "subresources.kubevirt.io/v1",
                "guestAgentVersion": "7.2.0",
                "supportedCommands": [{"name": "guest-ping", "enabled": true}],
                "hostname": "web-1",
                "os": {"id": "debian", "prettyName": "Debian GNU/Linux 12", "versionId": "12"},
                "timezone": "CET, 3600",
                "userList": [{"userName": "debian", "loginTime": 1700000000.5}],
                "fsInfo": {"disks": [{
                    "diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4",
                    "usedBytes": 10, "totalBytes": 20, "disk": [{"busType": "virtio", "serial": "abc"}],
                }]},
            })
        );
    }

    #[tokio::test]
    async fn lists_are_lists() {
        let users = user_list(&guest(debian())).await.unwrap();
        assert_eq!(users["kind"], "VirtualMachineInstanceGuestOSUserList");
        assert_eq!(users["items"][0]["userName"], "debian");
        let disks = filesystem_list(&guest(debian())).await.unwrap();
        assert_eq!(disks["kind"], "VirtualMachineInstanceFileSystemList");
        assert_eq!(disks["items"][0]["mountPoint"], "/");
    }

    #[tokio::test]
    async fn what_an_agent_does_not_know_is_left_out() {
        let said = guest_os_info(&guest(json!({"guest-info": {"version": "2.0"}}))).await.unwrap();
        assert_eq!(said["guestAgentVersion"], "2.0");
        assert!(said.get("hostname").is_none() && said.get("os").is_none() && said.get("fsInfo").is_none());
        let refused = user_list(&guest(json!({}))).await.unwrap_err();
        assert!(matches!(refused, GuestAgentError::Refused { .. }));
    }
}
