//! What a guest's cloud-init finds: user data, network data, who it is and which keys may sign in.
//!
//! Pure: the Secrets that a spec refers to are read by the caller and handed in, so one that
//! is not there yet is a wish to wait, not a failure of the machine.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use sheaf_resources::kinds::virtual_machine_instance::{
    VirtualMachineInstance,
    volume::{CloudInitSource, Volume},
};

/// The keys and bytes of the Secrets that a machine refers to, by name.
pub type Secrets = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// The seed of one volume, before it becomes a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    pub form: Form,
    pub meta_data: String,
    pub user_data: Vec<u8>,
    pub network_data: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    NoCloud,
    ConfigDrive,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    #[error("the {what} of volume {volume} is not base64")]
    NotBase64 { what: &'static str, volume: String },
    #[error("Secret {secret} has no key {key:?} for the {what} of volume {volume}")]
    NoKey { secret: String, key: &'static str, what: &'static str, volume: String },
    #[error("waiting for Secret {secret}, which volume {volume} needs")]
    NoSecret { secret: String, volume: String },
}

/// The names of the Secrets that the seeds of a machine need.
pub fn secret_names(instance: &VirtualMachineInstance) -> Vec<String> {
    let of_volumes = instance.spec.volumes.iter().flat_map(Volume::secret_names);
    let of_keys = instance.spec.access_credentials.iter().filter_map(|credential| {
        let key = credential.ssh_public_key.as_ref()?;
        let at_boot =
            key.propagation_method.no_cloud.is_some() || key.propagation_method.config_drive.is_some();
        key.source.secret.as_ref().filter(|_| at_boot).map(|secret| secret.secret_name.as_str())
    });
    let mut names: Vec<String> = of_volumes.chain(of_keys).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// The seed that a volume describes; none for a volume that is something else.
pub fn seed_of(
    instance: &VirtualMachineInstance,
    volume: &Volume,
    secrets: &Secrets,
) -> Result<Option<Seed>, SeedError> {
    let (form, source) = match (&volume.cloud_init_no_cloud, &volume.cloud_init_config_drive) {
        (Some(source), _) => (Form::NoCloud, source),
        (None, Some(source)) => (Form::ConfigDrive, source),
        (None, None) => return Ok(None),
    };
    let from = Source { volume, secrets };
    let user_data = from.user_data(source)?.unwrap_or_default();
    let network_data = from.network_data(source)?;
    let meta_data = meta_data(instance, form, &keys(instance, form, volume, secrets)?);
    Ok(Some(Seed { form, meta_data, user_data, network_data }))
}

struct Source<'a> {
    volume: &'a Volume,
    secrets: &'a Secrets,
}

impl Source<'_> {
    fn user_data(&self, source: &CloudInitSource) -> Result<Option<Vec<u8>>, SeedError> {
        let secret = source.secret_ref.as_ref().map(|secret| secret.name.as_str());
        self.data("user data", &source.user_data, &source.user_data_base64, secret, &["userdata", "userData"])
    }

    fn network_data(&self, source: &CloudInitSource) -> Result<Option<Vec<u8>>, SeedError> {
        let secret = source.network_data_secret_ref.as_ref().map(|secret| secret.name.as_str());
        let keys = &["networkdata", "networkData"];
        self.data("network data", &source.network_data, &source.network_data_base64, secret, keys)
    }

    fn data(
        &self,
        what: &'static str,
        plain: &str,
        encoded: &str,
        secret: Option<&str>,
        keys: &[&'static str],
    ) -> Result<Option<Vec<u8>>, SeedError> {
        let volume = &self.volume.name;
        if !plain.is_empty() {
            return Ok(Some(plain.as_bytes().to_vec()));
        }
        if !encoded.is_empty() {
            let decoded = BASE64.decode(encoded.trim());
            let bytes = decoded.map_err(|_| SeedError::NotBase64 { what, volume: volume.clone() })?;
            return Ok(Some(bytes));
        }
        let Some(secret) = secret else { return Ok(None) };
        let found = self
            .secrets
            .get(secret)
            .ok_or_else(|| SeedError::NoSecret { secret: secret.to_owned(), volume: volume.clone() })?;
        let data = keys.iter().find_map(|key| found.get(*key));
        let missing =
            || SeedError::NoKey { secret: secret.to_owned(), key: keys[0], what, volume: volume.clone() };
        data.cloned().map(Some).ok_or_else(missing)
    }
}

/// The keys that are to be there at boot, in the order of the Secrets' keys.
fn keys(
    instance: &VirtualMachineInstance,
    form: Form,
    volume: &Volume,
    secrets: &Secrets,
) -> Result<Vec<String>, SeedError> {
    let mut keys = Vec::new();
    for credential in &instance.spec.access_credentials {
        let Some(key) = &credential.ssh_public_key else { continue };
        let method = &key.propagation_method;
        let for_this = match form {
            Form::NoCloud => method.no_cloud.is_some(),
            Form::ConfigDrive => method.config_drive.is_some(),
        };
        let Some(secret) = key.source.secret.as_ref().filter(|_| for_this) else { continue };
        let found = secrets.get(&secret.secret_name).ok_or_else(|| SeedError::NoSecret {
            secret: secret.secret_name.clone(),
            volume: volume.name.clone(),
        })?;
        keys.extend(lines_of(found));
    }
    Ok(keys)
}

/// The lines of all values of a Secret that are text.
pub fn lines_of(secret: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let texts = secret.values().filter_map(|value| std::str::from_utf8(value).ok());
    let lines = texts.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// The name the guest is told it has.
pub fn host_name(instance: &VirtualMachineInstance) -> &str {
    match instance.spec.hostname.as_str() {
        "" => instance.metadata.name.as_deref().unwrap_or_default(),
        name => name,
    }
}

/// Who the guest is. The id stays for as long as the machine does: with another one
/// cloud-init would take a restart for a new machine and do its first boot again.
fn meta_data(instance: &VirtualMachineInstance, form: Form, keys: &[String]) -> String {
    let firmware = instance.spec.domain.firmware.as_ref();
    let uuid = firmware.map(|firmware| firmware.uuid.as_str()).filter(|uuid| !uuid.is_empty());
    let id = uuid.or(instance.metadata.uid.as_deref()).unwrap_or_default();
    let name = host_name(instance);
    let numbered = || {
        let keys = keys.iter().enumerate();
        keys.map(|(number, key)| (number.to_string(), key.as_str().into())).collect::<serde_json::Map<_, _>>()
    };
    let mut data = match form {
        Form::NoCloud => json!({"instance-id": id, "local-hostname": name}),
        Form::ConfigDrive => json!({"instance_id": id, "uuid": id, "hostname": name, "name": name}),
    };
    if !keys.is_empty() {
        let field = if form == Form::NoCloud { "public-keys" } else { "public_keys" };
        data[field] = Value::Object(numbered());
    }
    // JSON is YAML, which is what NoCloud expects.
    data.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(more: Value) -> VirtualMachineInstance {
        let mut object = json!({
            "metadata": {"name": "vm", "uid": "u"},
            "spec": {"domain": {"devices": {}, "firmware": {"uuid": "f"}}},
        });
        for (field, value) in more.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn secrets() -> Secrets {
        let secret = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
        BTreeMap::from([
            ("user".to_owned(), secret("userdata", "#cloud-config")),
            ("net".to_owned(), secret("networkdata", "version: 2")),
            ("keys".to_owned(), secret("key1", "ssh-ed25519 AAAA a\n\nssh-rsa BBBB b\n")),
        ])
    }

    fn only_seed(instance: &VirtualMachineInstance, secrets: &Secrets) -> Result<Seed, SeedError> {
        seed_of(instance, &instance.spec.volumes[0], secrets).map(Option::unwrap)
    }

    #[test]
    fn user_data_comes_inline_in_base64_or_from_a_secret() {
        for source in [
            json!({"userData": "#cloud-config"}),
            json!({"userDataBase64": "I2Nsb3VkLWNvbmZpZw=="}),
            json!({"secretRef": {"name": "user"}}),
        ] {
            let instance = instance(json!({"volumes": [{"name": "seed", "cloudInitNoCloud": source}]}));
            let seed = only_seed(&instance, &secrets()).unwrap();
            assert_eq!(seed.user_data, b"#cloud-config");
            assert_eq!(seed.network_data, None);
            assert_eq!(seed.meta_data, r#"{"instance-id":"f","local-hostname":"vm"}"#);
        }
    }

    #[test]
    fn a_secret_that_is_not_there_yet_is_waited_for_by_name() {
        let instance = instance(json!({"volumes": [
            {"name": "seed", "cloudInitNoCloud": {"networkDataSecretRef": {"name": "net"}}}]}));
        assert_eq!(secret_names(&instance), ["net"]);
        let why = only_seed(&instance, &Secrets::new()).unwrap_err();
        assert_eq!(why.to_string(), "waiting for Secret net, which volume seed needs");
        assert_eq!(only_seed(&instance, &secrets()).unwrap().network_data.unwrap(), b"version: 2");
    }

    #[test]
    fn a_secret_without_the_key_says_which() {
        let instance = instance(json!({"volumes": [
            {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "net"}}}]}));
        let why = only_seed(&instance, &secrets()).unwrap_err();
        assert_eq!(why.to_string(), "Secret net has no key \"userdata\" for the user data of volume seed");
    }

    #[test]
    fn keys_for_boot_are_in_the_seed_of_their_form_only() {
        let credentials = |method: &str| {
            json!([{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}},
                "propagationMethod": {method: {}}}}])
        };
        let drive = json!([{"name": "seed", "cloudInitConfigDrive": {"userData": "x"}}]);
        let with = instance(json!({"volumes": drive, "accessCredentials": credentials("configDrive")}));
        assert_eq!(secret_names(&with), ["keys"]);
        let seed = only_seed(&with, &secrets()).unwrap();
        let meta: Value = serde_json::from_str(&seed.meta_data).unwrap();
        assert_eq!(meta["public_keys"], json!({"0": "ssh-ed25519 AAAA a", "1": "ssh-rsa BBBB b"}));
        let without = instance(json!({"volumes": drive, "accessCredentials": credentials("noCloud")}));
        let seed = only_seed(&without, &secrets()).unwrap();
        assert!(!seed.meta_data.contains("public_keys"));
    }
}
