//! Makes ready what a machine needs on this host: addresses, disks, seeds, its definition; and
//! hands it over to QEMU.
//!
//! Everything here may be done again after being interrupted anywhere. The note is first and
//! the definition last, so that a machine that is defined is ready and one that has a note may
//! have left something.

use std::{collections::BTreeMap, fs::File, net::Ipv4Addr, path::Path};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Secret};
use kube::Client;
use serde_json::json;
use sheaf_client::{
    api::{self, is_not_found},
    objects::Objects,
};
use sheaf_hypervisor::{
    DescriptorName, Descriptors, HypervisorError, Machine, MachineId, Monitor, firmware,
    machine::{self, Backend, Firmware, LayerStorage},
};
use sheaf_network::{Mac, NicId, Port};
use sheaf_resources::{
    kinds::{
        cluster_network::{self, MANAGEMENT},
        network_attachment_definition::{self, Attachment, NetworkAttachmentDefinition, Tagging},
        persistent_volume::{self, GROWN_ANNOTATION},
        virtual_machine_instance::{
            VirtualMachineInstance,
            devices::{Disk, Interface},
            network::Network,
            status::ClaimInfo,
            volume::Volume,
        },
        virtual_machine_network_config::VirtualMachineNetworkConfig,
    },
    mac_address, quantity,
};
use sheaf_storage::{Backend as _, ImageError, SeedId, seed as disc};

use super::{
    Hands,
    hardware::{self, Files, Unbuildable},
    note::{Note, NoteError, NotedPort, NotedVolume},
    seed::{self, Form, Secrets},
};
use crate::{
    persistent_volume::Made,
    ports::{Plugged, PortError},
    step::Step,
    volume_layers::described,
};

/// The bridge of the network that machines are on unless they say otherwise.
pub const DEFAULT_BRIDGE: &str = "mgmt-br";
/// The address every guest has behind QEMU's user-mode network.
pub const USER_MODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// A Secret whose data is larger does not fit into a seed.
const LARGEST_SECRET: usize = 4 << 20;

/// What keeps a machine from being made ready.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Something that should come by itself.
    #[error("{0}")]
    Waiting(String),
    #[error("{0}")]
    Unbuildable(#[from] Unbuildable),
    #[error("{0}")]
    Seed(seed::SeedError),
    #[error("{}", with_causes(.0))]
    Note(#[from] NoteError),
    #[error("{}", with_causes(.0))]
    Volume(#[from] sheaf_storage::VolumeError),
    #[error("{}", with_causes(.0))]
    Disk(#[from] sheaf_storage::DiskError),
    #[error("{}", with_causes(&**.0))]
    Image(Box<ImageError>),
    #[error("{}", with_causes(&**.0))]
    Port(Box<PortError>),
    #[error("{}", with_causes(&**.0))]
    Hypervisor(Box<HypervisorError>),
    #[error("{}", with_causes(.0))]
    Firmware(#[from] firmware::FirmwareError),
    #[error("cannot open the firmware: {0}")]
    FirmwareFile(std::io::Error),
    #[error("a disk was changed after the machine was made ready")]
    Changed,
    #[error("{what} is not what it should be: {why}")]
    Odd { what: String, why: String },
    #[error("the API refused or failed: {0}")]
    Api(#[source] Box<kube::Error>),
}

/// What is large and seldom goes into a box: a `Trouble` is carried by every answer.
macro_rules! boxed {
    ($($variant:ident: $cause:ty,)*) => {
        $(impl From<$cause> for Trouble {
            fn from(why: $cause) -> Self {
                Trouble::$variant(Box::new(why))
            }
        })*
    };
}

boxed! {
    Image: ImageError,
    Port: PortError,
    Hypervisor: HypervisorError,
    Api: kube::Error,
}

impl From<seed::SeedError> for Trouble {
    fn from(why: seed::SeedError) -> Self {
        match why {
            seed::SeedError::NoSecret { .. } => Trouble::Waiting(why.to_string()),
            why => Trouble::Seed(why),
        }
    }
}

/// An error and what it was caused by, in one line for a person.
pub fn with_causes(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(deeper) = cause {
        let said = deeper.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = deeper.source();
    }
    text
}

/// A claim's volume on this host.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    /// What its object says of its files.
    pub made: Made,
    pub volume_name: String,
    /// Its claim knows of fewer bytes.
    pub grows: bool,
    /// What was said that it has grown to.
    pub grown_bytes: u64,
    /// The node that has its files, or is to have them; none of one that was put nowhere yet.
    pub node: Option<String>,
    pub info: ClaimInfo,
}

impl Hands {
    /// Makes everything ready and writes down what the machine is.
    pub(super) async fn prepare(
        &self,
        instance: &VirtualMachineInstance,
        id: &MachineId,
        start_paused: bool,
    ) -> Result<Machine, Trouble> {
        let mut note = self.note_of(instance).await?;
        let claims = self.all_claimed(instance).await?;
        note.volumes = claims
            .iter()
            .map(|(disk, claimed)| NotedVolume { disk: disk.clone(), volume: claimed.made.id.to_string() })
            .collect();
        self.notes.write(id, &note)?;
        self.after.took(Step::WriteNote);
        let mut files = BTreeMap::new();
        let secrets = self.secrets(instance).await?;
        for (number, volume) in instance.spec.volumes.iter().enumerate() {
            let made = match (seed::seed_of(instance, volume, &secrets)?, claims.get(&volume.name)) {
                (Some(seed), _) => self.write_seed(&seed_id(id, number)?, &seed).await?,
                (None, Some(claimed)) => self.make_volume(instance, volume, claimed).await?,
                (None, None) => return Err(no_source(volume)),
            };
            files.insert(volume.name.clone(), made);
        }
        let machine = hardware::machine_of(instance, id.clone(), &files, start_paused, &self.abilities)?;
        self.hypervisor.define(&machine).await?;
        Ok(machine)
    }

    /// Starts QEMU with everything it needs in hand.
    pub(super) async fn launch(
        &self,
        instance: &VirtualMachineInstance,
        machine: &Machine,
    ) -> Result<Monitor, Trouble> {
        let mut handed_in = Descriptors::new();
        self.open_taps(instance, machine, &mut handed_in).await?;
        self.open_firmware(machine, &mut handed_in)?;
        for (number, volume) in instance.spec.volumes.iter().enumerate() {
            let Some(disk) = machine.disks.iter().find(|disk| disk.name.as_str() == volume.name) else {
                continue;
            };
            let name = |layer| DescriptorName::Layer { disk: disk.name.clone(), layer };
            if volume.cloud_init().is_some() {
                let seed = self.storage.open_seed(&seed_id(&machine.id, number)?).await?;
                let missing = || Trouble::Waiting(format!("the seed of volume {} is gone", volume.name));
                handed_in.insert(name(0), seed.ok_or_else(missing)?);
                continue;
            }
            let claimed = self.claimed(instance, volume).await?;
            let opened = self.storage.open(&claimed.made.id, is_read_only(instance, volume)).await?;
            let numbers = opened.iter().map(|layer| Some(layer.number));
            if !numbers.eq(disk.layers.iter().map(|layer| layer.number)) {
                return Err(Trouble::Changed);
            }
            for (index, layer) in opened.into_iter().enumerate() {
                handed_in.insert(name(index), layer.file);
            }
        }
        Ok(self.hypervisor.launch(&machine.id, handed_in).await?)
    }

    async fn open_taps(
        &self,
        instance: &VirtualMachineInstance,
        machine: &Machine,
        handed_in: &mut Descriptors,
    ) -> Result<(), Trouble> {
        if !machine.nics.iter().any(|nic| matches!(nic.backend, Backend::Tap { .. })) {
            return Ok(());
        }
        let note = self.notes.read(&machine.id)?.unwrap_or_default();
        let plugged = self.plugged(&machine.id, &note, seed::host_name(instance))?;
        self.ports.plug(&machine.id, plugged.clone()).await?;
        for (nic, port) in machine.nics.iter().zip(&plugged.ports) {
            let tap = self.ports.open_tap(port).await?;
            handed_in.insert(DescriptorName::Tap { nic: nic.name.clone() }, tap);
        }
        Ok(())
    }

    fn open_firmware(&self, machine: &Machine, handed_in: &mut Descriptors) -> Result<(), Trouble> {
        let Firmware::Uefi { secure_boot } = machine.firmware else { return Ok(()) };
        let files = firmware::find(Path::new(firmware::CATALOGUE), secure_boot)?;
        let code = File::open(&files.code).map_err(Trouble::FirmwareFile)?;
        let variables = self.notes.fresh_variables(&machine.id, &files.variables_template)?;
        self.after.took(Step::MakeVariables);
        handed_in.insert(DescriptorName::FirmwareCode, code.into());
        handed_in.insert(DescriptorName::FirmwareVariables, variables.into());
        Ok(())
    }

    /// What a note says about NICs, as the network wants to hear it.
    pub(super) fn plugged(&self, id: &MachineId, note: &Note, host_name: &str) -> Result<Plugged, Trouble> {
        let owner_uid = self.hypervisor.user_of(id)?.map_or(0, |identity| identity.uid);
        let mut ports = Vec::new();
        for (number, noted) in note.numbered() {
            let mac: Mac = noted.mac.parse().map_err(|why: sheaf_network::addresses::NotAMac| {
                Trouble::Odd { what: "a NIC's hardware address".into(), why: why.to_string() }
            })?;
            ports.push(Port {
                id: NicId { machine: id.to_string(), nic: number },
                mac,
                addresses: noted.addresses.clone(),
                hostname: Some(host_name.to_owned())
                    .filter(|name| sheaf_network::addresses::is_hostname(name)),
                bridge: noted.bridge.clone(),
                owner_uid,
            });
        }
        Ok(Plugged { ports, name: format!("{}.{}", note.name, note.namespace) })
    }

    /// Where each NIC goes and which addresses it has.
    async fn note_of(&self, instance: &VirtualMachineInstance) -> Result<Note, Trouble> {
        let metadata = &instance.metadata;
        let (namespace, name) =
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        let interfaces = &instance.spec.domain.devices.interfaces;
        let allocated = match interfaces.is_empty() {
            true => BTreeMap::new(),
            false => self.allocated(&namespace, &name).await?,
        };
        let mut ports = Vec::new();
        for (number, interface) in (0_u16..).zip(interfaces) {
            ports.push(self.port_of(instance, interface, number, &allocated).await?);
        }
        Ok(Note { namespace, name, ports, ..Note::default() })
    }

    /// Where one NIC goes, beside those that are there already.
    pub(super) async fn late_port_of(
        &self,
        instance: &VirtualMachineInstance,
        interface: &Interface,
        note: &Note,
    ) -> Result<NotedPort, Trouble> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&instance.metadata.namespace), text(&instance.metadata.name));
        let allocated = self.allocated(&namespace, &name).await?;
        let taken: Vec<u16> = note.numbered().map(|(number, _)| number).collect();
        let number = (0..u16::MAX).find(|number| !taken.contains(number)).unwrap_or(u16::MAX);
        self.port_of(instance, interface, number, &allocated).await
    }

    async fn port_of(
        &self,
        instance: &VirtualMachineInstance,
        interface: &Interface,
        number: u16,
        allocated: &BTreeMap<String, Ipv4Addr>,
    ) -> Result<NotedPort, Trouble> {
        let namespace = instance.metadata.namespace.as_deref().unwrap_or_default();
        let network = instance.spec.networks.iter().find(|network| network.name == interface.name);
        let bridge = self.bridge_of(namespace, network).await?;
        let mac = mac_address::normalised(&interface.mac_address).unwrap_or_default();
        let addresses: Vec<Ipv4Addr> = match self.abilities.taps {
            true => allocated.get(&mac).copied().into_iter().collect(),
            false => vec![USER_MODE_ADDRESS],
        };
        if addresses.is_empty() {
            return Err(Trouble::Waiting(format!(
                "waiting for an address for interface {} ({mac})",
                interface.name
            )));
        }
        let interface = interface.name.clone();
        Ok(NotedPort { mac, addresses, bridge, interface, number: Some(number) })
    }

    /// The addresses the allocator gave a machine, by hardware address.
    async fn allocated(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, Ipv4Addr>, Trouble> {
        let configs: Objects<VirtualMachineNetworkConfig> =
            Objects::namespaced(self.client.clone(), namespace);
        let Some(config) = found(configs.get(name).await)? else { return Ok(BTreeMap::new()) };
        let given = config.status.network_configs.iter();
        Ok(given
            .filter_map(|given| {
                let mac = mac_address::normalised(&given.mac_address)?;
                Some((mac, given.allocated_ip_address.parse().ok()?))
            })
            .collect())
    }

    async fn bridge_of(&self, namespace: &str, network: Option<&Network>) -> Result<String, Trouble> {
        let Some(multus) = network.and_then(|network| network.multus.as_ref()) else {
            return Ok(DEFAULT_BRIDGE.to_owned());
        };
        let odd = |why: String| Trouble::Odd { what: format!("network {}", multus.network_name), why };
        let (namespace, name) =
            multus.definition(namespace).ok_or_else(|| odd("its name is not namespace/name".to_owned()))?;
        let definitions: Objects<NetworkAttachmentDefinition> =
            Objects::namespaced(self.client.clone(), namespace);
        let Some(definition) = found(definitions.get(name).await)? else {
            return Err(Trouble::Waiting(format!("waiting for network {namespace}/{name}")));
        };
        let parsed = network_attachment_definition::parse(&definition.spec.config)
            .map_err(|why| odd(why.to_string()))?;
        bridge_for(&parsed).map_err(odd)
    }

    /// The Secrets that the seeds need, as far as they are there.
    pub(super) async fn secrets(&self, instance: &VirtualMachineInstance) -> Result<Secrets, Trouble> {
        self.named_secrets(instance, &seed::secret_names(instance)).await
    }

    pub(super) async fn named_secrets(
        &self,
        instance: &VirtualMachineInstance,
        names: &[String],
    ) -> Result<Secrets, Trouble> {
        let namespace = instance.metadata.namespace.as_deref().unwrap_or_default();
        let api: Objects<Secret> = Objects::namespaced(self.client.clone(), namespace);
        let mut secrets = Secrets::new();
        for name in names {
            let Some(secret) = found(api.get(name).await)? else { continue };
            let data: BTreeMap<String, Vec<u8>> =
                secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
            if data.values().map(Vec::len).sum::<usize>() > LARGEST_SECRET {
                let why = "it is larger than a seed may be".to_owned();
                return Err(Trouble::Odd { what: format!("Secret {name}"), why });
            }
            secrets.insert(name.clone(), data);
        }
        Ok(secrets)
    }

    async fn write_seed(&self, id: &SeedId, seed: &seed::Seed) -> Result<Files, Trouble> {
        let meta_data = seed.meta_data.clone().into_bytes();
        let (user_data, network_data) = (seed.user_data.clone(), seed.network_data.clone());
        let bytes = match seed.form {
            Form::NoCloud => disc::no_cloud(&disc::NoCloud { meta_data, user_data, network_data }),
            Form::ConfigDrive => {
                disc::config_drive(&disc::ConfigDrive { meta_data, user_data, network_data })
            }
        };
        self.storage.write_seed(id, bytes).await?;
        let raw = machine::Layer {
            number: None,
            format: machine::Format::Raw,
            storage: LayerStorage::File,
            read_only: true,
        };
        Ok(Files { layers: vec![raw], source: None })
    }

    /// So that its claim can say so.
    pub(super) async fn say_it_has_grown(&self, claimed: &Claimed, bytes: u64) -> Result<(), Trouble> {
        let change = json!({"metadata": {"annotations": {GROWN_ANNOTATION: bytes.to_string()}}});
        let volumes =
            api::objects(&self.client, &api::built_in("", "v1", "PersistentVolume", "persistentvolumes"), "");
        api::merge(&volumes, &claimed.volume_name, &change).await?;
        Ok(())
    }

    pub(super) async fn make_volume(
        &self,
        instance: &VirtualMachineInstance,
        volume: &Volume,
        claimed: &Claimed,
    ) -> Result<Files, Trouble> {
        let wanted = &claimed.made;
        if wanted.is_copy() && self.storage.volume(&wanted.id).await?.is_none() {
            return Err(Trouble::Waiting(format!("waiting for volume {} to be copied", volume.name)));
        }
        let made = match self.storage.create(&wanted.id, wanted.bytes, &wanted.origin()).await {
            Err(sheaf_storage::VolumeError::NoSuchImage { .. }) => {
                return Err(Trouble::Waiting(format!("waiting for the image of volume {}", volume.name)));
            }
            made => made?,
        };
        if claimed.grows && made.virtual_size >= wanted.bytes {
            self.say_it_has_grown(claimed, made.virtual_size).await?;
        }
        let last = made.layers.len().saturating_sub(1);
        let read_only = is_read_only(instance, volume);
        let layers = made.layers.iter().enumerate();
        let layers = layers.map(|(index, layer)| described(*layer, index != last || read_only));
        Ok(Files { layers: layers.collect(), source: Some(wanted.id.to_string()) })
    }

    /// What stands behind the claim of a volume.
    pub(super) async fn claimed(
        &self,
        instance: &VirtualMachineInstance,
        volume: &Volume,
    ) -> Result<Claimed, Trouble> {
        let namespace = instance.metadata.namespace.as_deref().unwrap_or_default();
        let source = volume.persistent_volume_claim.as_ref().ok_or_else(|| no_source(volume))?;
        read_claim(&self.client, namespace, &source.claim_name).await
    }

    /// The bytes of the seeds of a machine, by volume, for the status. What cannot be read is left out.
    pub(super) async fn seed_sizes(
        &self,
        instance: &VirtualMachineInstance,
        id: &MachineId,
    ) -> BTreeMap<String, i64> {
        let mut sizes = BTreeMap::new();
        for (number, volume) in instance.spec.volumes.iter().enumerate() {
            let Ok(seed) = seed_id(id, number) else { continue };
            if volume.cloud_init().is_none() {
                continue;
            }
            let opened = self.storage.open_seed(&seed).await.ok().flatten();
            let bytes = opened.and_then(|seed| File::from(seed).metadata().ok()).map(|found| found.len());
            sizes.extend(
                bytes.and_then(|bytes| i64::try_from(bytes).ok()).map(|bytes| (volume.name.clone(), bytes)),
            );
        }
        sizes
    }

    /// What stands behind every claim of a machine, by volume.
    async fn all_claimed(
        &self,
        instance: &VirtualMachineInstance,
    ) -> Result<BTreeMap<String, Claimed>, Trouble> {
        let mut all = BTreeMap::new();
        for volume in instance.spec.volumes.iter().filter(|volume| volume.persistent_volume_claim.is_some()) {
            all.insert(volume.name.clone(), self.claimed(instance, volume).await?);
        }
        Ok(all)
    }
}

/// A claim and its volume, which is the claim's own whatever the claim says.
pub(crate) async fn read_claim(client: &Client, namespace: &str, name: &str) -> Result<Claimed, Trouble> {
    let claims: Objects<PersistentVolumeClaim> = Objects::namespaced(client.clone(), namespace);
    let Some(claim) = found(claims.get(name).await)? else {
        return Err(Trouble::Waiting(format!("waiting for claim {name}")));
    };
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    let Some(volume_name) = bound else {
        return Err(Trouble::Waiting(format!("waiting for claim {name} to be bound")));
    };
    let Some(volume) = found(Objects::<PersistentVolume>::all(client.clone()).get(&volume_name).await)?
    else {
        return Err(Trouble::Waiting(format!("waiting for the volume {volume_name} of claim {name}")));
    };
    let odd = |why: &str| Trouble::Odd { what: format!("volume {volume_name}"), why: why.to_owned() };
    // It would be made anew, empty, under the name of what is about to go.
    if volume.metadata.deletion_timestamp.is_some() {
        return Err(odd("it is being deleted"));
    }
    let grown = volume.metadata.annotations.as_ref().and_then(|all| all.get(GROWN_ANNOTATION));
    let grown_bytes = grown.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let node = persistent_volume::node_of(&volume).map(str::to_owned);
    let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
    if holder.is_none() || holder != claim.metadata.uid.as_ref() {
        return Err(odd(&format!("it is not the volume of claim {name}")));
    }
    let made = Made::of(&volume)?;
    let capacity = claim.status.and_then(|status| status.capacity).unwrap_or_default();
    let known = capacity.get("storage").and_then(|size| quantity::value(&size.0));
    let grows = known.and_then(|known| u64::try_from(known).ok()).is_some_and(|known| known < made.bytes);
    let claim_spec = claim.spec.unwrap_or_default();
    let info = ClaimInfo {
        claim_name: name.to_owned(),
        access_modes: claim_spec.access_modes.unwrap_or_default(),
        volume_mode: claim_spec.volume_mode,
        capacity,
        requests: claim_spec.resources.and_then(|resources| resources.requests).unwrap_or_default(),
        preallocated: false,
    };
    Ok(Claimed { made, volume_name, grows, grown_bytes, node, info })
}

fn no_source(volume: &Volume) -> Trouble {
    Trouble::Odd {
        what: format!("volume {}", volume.name),
        why: "it has no source that this node knows".into(),
    }
}

/// The bridge that leads to a network, or why none does. Machines are on the one of `mgmt`: uplinks of other cluster
/// networks are made, but the rules that keep guests honest know nothing of them yet.
fn bridge_for(network: &Attachment) -> Result<String, String> {
    let cluster_network = &network.cluster_network;
    match network.tagging {
        Tagging::Untagged if cluster_network == MANAGEMENT => Ok(cluster_network::bridge_of(cluster_network)),
        Tagging::Untagged => Err(format!(
            "machines cannot be plugged into the uplink of cluster network {cluster_network} yet, only into the \
             network of {MANAGEMENT}"
        )),
        Tagging::Vlan(_) | Tagging::Trunk(_) => {
            Err("machines cannot be plugged into networks whose frames are tagged yet".to_owned())
        }
    }
}

/// Whether the guest may only read a volume: the claim says so, the disk does, or it is a disc.
pub(super) fn is_read_only(instance: &VirtualMachineInstance, volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only);
    let disk: Option<&Disk> = instance.spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
    let disk_says = disk
        .is_some_and(|disk| disk.cdrom.is_some() || disk.disk.as_ref().is_some_and(|target| target.readonly));
    claim || disk_says
}

/// The seed of the `number`th volume of a machine.
pub fn seed_id(id: &MachineId, number: usize) -> Result<SeedId, Trouble> {
    format!("{id}-{number}")
        .parse()
        .map_err(|why: sheaf_storage::InvalidId| Trouble::Odd { what: "a seed".into(), why: why.to_string() })
}

/// An object, or none where there is none.
pub(crate) fn found<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(why) if is_not_found(&why) => Ok(None),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_no_node_leads_to_is_the_reason_and_not_a_missing_address() {
        let to = |cluster_network: &str, tagging| {
            bridge_for(&Attachment { cluster_network: cluster_network.into(), tagging, mtu: None })
        };
        assert_eq!(to("mgmt", Tagging::Untagged).as_deref(), Ok("mgmt-br"));
        assert!(
            to("lab", Tagging::Untagged).unwrap_err().contains("into the uplink of cluster network lab yet")
        );
        assert!(to("mgmt", Tagging::Vlan(7)).unwrap_err().contains("tagged"));
    }
}
