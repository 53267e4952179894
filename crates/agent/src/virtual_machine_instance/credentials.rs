//! Brings keys and passwords into a running guest, through the agent in it.
//!
//! What was brought is remembered only as long as the keeper lives: a second time does no harm.

use std::collections::BTreeMap;

use sheaf_hypervisor::GuestAgent;
use sheaf_resources::kinds::virtual_machine_instance::VirtualMachineInstance;

use super::{
    Hands,
    guest::short,
    preparation::{Trouble, with_causes},
    seed::{Secrets, lines_of},
};

/// What is to be in the guest: the keys of each user, and the passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    keys: BTreeMap<String, Vec<String>>,
    passwords: BTreeMap<String, String>,
}

impl Credentials {
    /// The Secrets that hold what the guest's agent is to bring in.
    pub fn secret_names(instance: &VirtualMachineInstance) -> Vec<String> {
        let credentials = instance.spec.access_credentials.iter();
        let secrets = credentials.flat_map(|credential| {
            let key = credential.ssh_public_key.as_ref();
            let key = key.filter(|key| key.propagation_method.qemu_guest_agent.is_some());
            let password = credential.user_password.as_ref();
            [
                key.and_then(|key| key.source.secret.as_ref()),
                password.and_then(|password| password.source.secret.as_ref()),
            ]
        });
        let mut names: Vec<String> = secrets.flatten().map(|secret| secret.secret_name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn of(instance: &VirtualMachineInstance, secrets: &Secrets) -> Credentials {
        let mut wanted = Credentials::default();
        for credential in &instance.spec.access_credentials {
            if let Some(key) = &credential.ssh_public_key
                && let Some(agent) = &key.propagation_method.qemu_guest_agent
                && let Some(secret) = key.source.secret.as_ref().and_then(|s| secrets.get(&s.secret_name))
            {
                for user in &agent.users {
                    wanted.keys.entry(user.clone()).or_default().extend(lines_of(secret));
                }
            }
            if let Some(password) = &credential.user_password
                && let Some(secret) =
                    password.source.secret.as_ref().and_then(|s| secrets.get(&s.secret_name))
            {
                let texts = secret.iter().filter_map(|(user, value)| {
                    Some((user.clone(), std::str::from_utf8(value).ok()?.trim_end().to_owned()))
                });
                wanted.passwords.extend(texts);
            }
        }
        wanted
    }
}

impl Hands {
    /// Brings in what changed since `before`; answers what is there now.
    pub(super) async fn bring_credentials(
        &self,
        instance: &VirtualMachineInstance,
        agent: &GuestAgent,
        before: &Credentials,
    ) -> Result<Credentials, String> {
        let names = Credentials::secret_names(instance);
        let secrets = self.named_secrets(instance, &names).await.map_err(|why: Trouble| why.to_string())?;
        if let Some(missing) = names.iter().find(|name| !secrets.contains_key(*name)) {
            return Err(format!("waiting for Secret {missing}"));
        }
        let wanted = Credentials::of(instance, &secrets);
        for (user, keys) in &wanted.keys {
            if before.keys.get(user) != Some(keys) {
                // What a guest says of it is shown, and shortened: it may be anything.
                agent.add_ssh_keys(user, keys, true).await.map_err(|why| {
                    format!("the keys of {user} could not be brought in: {}", short(with_causes(&why)))
                })?;
            }
        }
        for (user, password) in &wanted.passwords {
            if before.passwords.get(user) != Some(password) {
                // The reason may repeat what was asked; a password has no place in a status.
                agent
                    .set_password(user, password)
                    .await
                    .map_err(|_| format!("the password of {user} could not be set"))?;
            }
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_agent_is_to_bring_in_is_read() {
        let instance: VirtualMachineInstance = serde_json::from_value(json!({"spec": {"domain": {"devices": {}},
            "accessCredentials": [
                {"sshPublicKey": {"source": {"secret": {"secretName": "boot"}}, "propagationMethod": {"noCloud": {}}}},
                {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}},
                    "propagationMethod": {"qemuGuestAgent": {"users": ["debian"]}}}},
                {"userPassword": {"source": {"secret": {"secretName": "words"}},
                    "propagationMethod": {"qemuGuestAgent": {}}}}]}}))
        .unwrap();
        assert_eq!(Credentials::secret_names(&instance), ["keys", "words"]);
        let secret = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
        let secrets = Secrets::from([
            ("keys".to_owned(), secret("a", "ssh-ed25519 A\n")),
            ("words".to_owned(), secret("debian", "hunter2\n")),
        ]);
        let wanted = Credentials::of(&instance, &secrets);
        assert_eq!(wanted.keys["debian"], ["ssh-ed25519 A"]);
        assert_eq!(wanted.passwords["debian"], "hunter2");
    }
}
