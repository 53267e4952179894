//! Settings that are JSON of a certain shape. What is not known in one is refused: it would be ignored.
//!
//! Several of them could hold credentials. Nothing acts on those settings yet, so a value that has some is refused: a
//! Setting is no Secret, and a secret is not kept for nobody.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::values::certificates as pem;
use crate::names;

type Checked = Result<(), String>;

/// Nothing where nothing is said: that leaves the default.
fn read<T: DeserializeOwned>(value: &str) -> Result<Option<T>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(value).map(Some).map_err(|why| unreadable(&why))
}

/// Without what was found there, which may be a secret that slipped into another field.
pub(super) fn unreadable(why: &serde_json::Error) -> String {
    let text = why.to_string();
    let names_fields_alone = ["unknown field", "missing field"].iter().any(|words| text.starts_with(words));
    match (why.is_data(), names_fields_alone) {
        (false, _) => format!("is not JSON: {text}"),
        (true, true) => format!("cannot be read: {text}"),
        (true, false) => {
            format!("has a field of the wrong type at line {} column {}", why.line(), why.column())
        }
    }
}

fn require(holds: bool, words: &str) -> Checked {
    holds.then_some(()).ok_or_else(|| words.to_owned())
}

/// Nobody would use them.
fn refuse_credentials(is_there: bool, what: &str) -> Checked {
    match is_there {
        true => Err(format!("{what} is a secret, and Sheaf does not use this setting yet: leave it out")),
        false => Ok(()),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CertificateRotation {
    enable: bool,
    expiring_in_hours: i64,
}

pub(super) fn certificate_rotation(value: &str) -> Checked {
    let Some(rotation) = read::<CertificateRotation>(value)? else { return Ok(()) };
    require((1..=8759).contains(&rotation.expiring_in_hours), "expiringInHours must be from 1 to 8759")
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct BackupTarget {
    #[serde(rename = "type")]
    sort: String,
    endpoint: String,
    access_key_id: String,
    secret_access_key: String,
    bucket_name: String,
    bucket_region: String,
    cert: String,
    virtual_hosted_style: bool,
    refresh_interval_in_seconds: i64,
}

pub(super) fn backup_target(value: &str) -> Checked {
    let target: BackupTarget = read(value)?.unwrap_or_default();
    refuse_credentials(!target.access_key_id.is_empty(), "accessKeyId")?;
    refuse_credentials(!target.secret_access_key.is_empty(), "secretAccessKey")?;
    require(target.refresh_interval_in_seconds >= 0, "refreshIntervalInSeconds must not be below 0")?;
    if target == BackupTarget::default() {
        return Ok(());
    }
    pem(&target.cert)?;
    match target.sort.as_str() {
        "s3" => Err(
            "type s3 needs accessKeyId and secretAccessKey, which are secrets, and Sheaf does not use this \
                     setting yet"
                .into(),
        ),
        "nfs" => {
            require(target.endpoint.starts_with("nfs://"), "endpoint must begin with nfs://")?;
            require(
                target.bucket_name.is_empty() && target.bucket_region.is_empty(),
                "NFS backup target should not have bucket name or region",
            )
        }
        _ => Err("type must be s3 or nfs".into()),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct PodSecurity {
    enabled: bool,
    whitelisted_namespaces_list: String,
    privileged_namespaces_list: String,
    restricted_namespaces_list: String,
}

pub(super) fn pod_security(value: &str) -> Checked {
    let Some(standard) = read::<PodSecurity>(value)? else { return Ok(()) };
    let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
    for list in [
        &standard.whitelisted_namespaces_list,
        &standard.privileged_namespaces_list,
        &standard.restricted_namespaces_list,
    ] {
        super::values::namespaces(list)?;
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            require(
                seen.insert(name, ()).is_none(),
                &format!("namespace {name} is named in more than one list"),
            )?;
        }
    }
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Registration {
    url: String,
    #[serde(rename = "insecureSkipTLSVerify")]
    insecure_skip_tls_verify: bool,
}

pub(super) fn registration(value: &str) -> Checked {
    let registration: Registration = read(value)?.unwrap_or_default();
    refuse_credentials(!registration.url.is_empty(), "the url to join a Rancher, which has a token in it,")
}

pub(super) fn registry(value: &str) -> Checked {
    let Some(registry) = read::<Value>(value)? else { return Ok(()) };
    let Some(parts) = registry.as_object() else { return Err("must be a JSON object".into()) };
    for (part, entries) in parts {
        require(["Mirrors", "Configs"].contains(&part.as_str()), "there are only Mirrors and Configs")?;
        let is_map = entries.is_null()
            || entries.as_object().is_some_and(|entries| entries.values().all(Value::is_object));
        require(is_map, &format!("{part} must have an object for each host"))?;
    }
    for (host, config) in registry["Configs"].as_object().into_iter().flatten() {
        let auth = config["Auth"].as_object();
        let said = auth
            .into_iter()
            .flat_map(|auth| auth.values())
            .any(|one| one.as_str().is_some_and(|text| !text.is_empty()));
        refuse_credentials(said, &format!("Auth of {host}"))?;
    }
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct InstanceManager {
    cpu: BTreeMap<String, String>,
}

pub(super) fn instance_manager(value: &str) -> Checked {
    let manager: InstanceManager = read(value)?.unwrap_or_default();
    for (engine, percent) in &manager.cpu {
        require(["v1", "v2"].contains(&engine.as_str()), "cpu has v1 and v2 alone")?;
        let fits = percent.parse::<u32>().is_ok_and(|percent| percent <= 40);
        require(fits, &format!("cpu.{engine} must be a whole number from \"0\" to \"40\", as a text"))?;
    }
    Ok(())
}

/// Two fields of the original belong to other settings, and are refused there as here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Migration {
    parallel_outbound_migrations_per_node: Option<u32>,
    parallel_migrations_per_cluster: Option<u32>,
    allow_auto_converge: Option<bool>,
    bandwidth_per_migration: Value,
    #[serde(rename = "completionTimeoutPerGiB")]
    completion_timeout_per_gib: Option<i64>,
    progress_timeout: Option<i64>,
    unsafe_migration_override: Option<bool>,
    allow_post_copy: Option<bool>,
    allow_workload_disruption: Option<bool>,
    #[serde(rename = "disableTLS")]
    disable_tls: Option<bool>,
    #[serde(rename = "matchSELinuxLevelOnMigration")]
    match_selinux_level_on_migration: Option<bool>,
}

pub(super) fn migration(value: &str) -> Checked {
    let Some(migration) = read::<Migration>(value)? else { return Ok(()) };
    let bandwidth = match &migration.bandwidth_per_migration {
        Value::Null => Some(0),
        Value::String(text) => crate::quantity::value(text),
        number => number.as_i64(),
    };
    require(
        bandwidth.is_some_and(|bytes| bytes >= 0),
        "bandwidthPerMigration must be a quantity, not below 0",
    )?;
    for (field, secs) in [
        ("completionTimeoutPerGiB", migration.completion_timeout_per_gib),
        ("progressTimeout", migration.progress_timeout),
    ] {
        require(secs.is_none_or(|secs| secs >= 0), &format!("{field} must not be below 0"))?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TimeServers {
    ntp_servers: Vec<String>,
}

pub(super) fn time_servers(value: &str) -> Checked {
    let Some(servers) = read::<TimeServers>(value)? else { return Ok(()) };
    let servers = servers.ntp_servers;
    for (n, server) in servers.iter().enumerate() {
        let is_url = server.starts_with("http://") || server.starts_with("https://");
        require(!is_url, &format!("ntp server {server} should not start with http:// or https://"))?;
        let is_host = server.parse::<IpAddr>().is_ok()
            || names::dns_subdomain_problems(&server.to_lowercase()).is_empty();
        require(server.is_empty() || is_host, &format!("invalid NTP server: {server}"))?;
        require(!servers[..n].contains(server), &format!("duplicate NTP server: {server}"))?;
    }
    Ok(())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct RancherCluster {
    remove_upstream_cluster_when_namespace_is_deleted: bool,
}

pub(super) fn rancher_cluster(value: &str) -> Checked {
    let cluster: RancherCluster = read(value)?.unwrap_or_default();
    require(
        !cluster.remove_upstream_cluster_when_namespace_is_deleted,
        "removeUpstreamClusterWhenNamespaceIsDeleted is not supported by Sheaf yet",
    )
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Certificates {
    ca: String,
    public_certificate: String,
    private_key: String,
}

pub(super) fn certificates(value: &str) -> Checked {
    let bundle: Certificates = read(value)?.unwrap_or_default();
    refuse_credentials(!bundle.private_key.is_empty(), "privateKey")?;
    pem(&bundle.ca).map_err(|why| format!("ca {why}"))?;
    pem(&bundle.public_certificate).map_err(|why| format!("publicCertificate {why}"))?;
    let is_empty = bundle.ca.is_empty() && bundle.public_certificate.is_empty();
    require(
        is_empty,
        "certificates without a privateKey are of no use, and Sheaf does not use this setting yet",
    )
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TlsParameters {
    protocols: String,
    ciphers: String,
}

pub(super) fn tls_parameters(value: &str) -> Checked {
    const KNOWN: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    let parameters: TlsParameters = read(value)?.unwrap_or_default();
    let mut protocols = parameters.protocols.split_whitespace();
    match protocols.find(|protocol| !KNOWN.contains(protocol)) {
        Some(other) => Err(format!("unsupported SSL protocol: {other}")),
        None => Ok(()),
    }
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ContainerImage {
    repository: String,
    tag: String,
    image_pull_policy: String,
}

pub(super) fn container_image(value: &str) -> Checked {
    let image: ContainerImage = read(value)?.unwrap_or_default();
    if image == ContainerImage::default() {
        return Ok(());
    }
    let is_whole = !image.repository.is_empty() && !image.tag.is_empty();
    require(is_whole, "image field can't be blank")?;
    let policies = ["IfNotPresent", "Always", "Never"];
    require(
        policies.contains(&image.image_pull_policy.as_str()),
        "imagePullPolicy must be IfNotPresent, Always or Never",
    )
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Upgrade {
    image_preload_option: PreloadOption,
    #[serde(default)]
    node_upgrade_option: NodeUpgradeOption,
    #[expect(dead_code, reason = "only whether it can be read is asked")]
    #[serde(default, rename = "restoreVM")]
    restore_vm: bool,
    #[serde(default)]
    log_ready_timeout: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreloadOption {
    strategy: PreloadStrategy,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreloadStrategy {
    #[serde(rename = "type")]
    sort: String,
    #[serde(default)]
    concurrency: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeUpgradeOption {
    strategy: NodeUpgradeStrategy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct NodeUpgradeStrategy {
    mode: String,
    pause_nodes: Vec<String>,
}

pub(super) fn upgrade(value: &str) -> Checked {
    let Some(upgrade) = read::<Upgrade>(value)? else { return Ok(()) };
    let preload = &upgrade.image_preload_option.strategy;
    let sorts = ["sequential", "skip", "parallel"];
    require(
        sorts.contains(&preload.sort.as_str()),
        &format!("invalid image preload strategy type: {}", preload.sort),
    )?;
    require(
        preload.concurrency >= 0,
        &format!("invalid image preload concurrency: {}", preload.concurrency),
    )?;
    let node = &upgrade.node_upgrade_option.strategy;
    require(
        ["", "auto", "manual"].contains(&node.mode.as_str()),
        &format!("invalid node upgrade strategy mode: {}", node.mode),
    )?;
    let nameless = node.pause_nodes.iter().any(String::is_empty);
    require(!nameless, "pauseNodes must be names of nodes")?;
    let minutes = &upgrade.log_ready_timeout;
    let fits = minutes.is_empty() || minutes.parse::<u32>().is_ok_and(|minutes| (1..=20).contains(&minutes));
    require(fits, "logReadyTimeout must be from \"1\" to \"20\" minutes, as a text")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ForceReset {
    #[expect(dead_code, reason = "only whether it can be read is asked")]
    #[serde(default)]
    enable: bool,
    period: i64,
    #[serde(default = "some_seconds")]
    vm_migration_timeout: i64,
}

fn some_seconds() -> i64 {
    180
}

pub(super) fn force_reset(value: &str) -> Checked {
    let Some(policy) = read::<ForceReset>(value)? else { return Ok(()) };
    require(policy.period > 0, &format!("period value should be greater than 0, value: {}", policy.period))?;
    require(policy.vm_migration_timeout > 0, "vmMigrationTimeout should be greater than 0")
}
