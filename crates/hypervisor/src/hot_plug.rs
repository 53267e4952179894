//! Changes what is plugged into a machine that runs.
//!
//! ```text
//!   plug in:   descriptors -> nodes, from the bottom up -> device
//!   pull out:  device (the guest lets go of it, when it does) -> nodes, from the top down -> descriptors
//! ```
//!
//! - QEMU is handed descriptors here as at a launch: it opens nothing of ours.
//! - Nothing is noted anywhere. [`Monitor::plugged`] tells at any time how far somebody came; what has no device yet is taken
//!   away with [`Hypervisor::drop_disk`] and begun anew.
//! - The definition stays what the machine was launched as.

use std::os::fd::{AsFd, OwnedFd};

use serde_json::{Value, json};

use crate::{
    command_line::{
        block,
        disk::{self as disk_device, Socket},
        nic as nic_device, pci,
    },
    descriptors::{DescriptorName, told_of},
    hypervisor::{Hypervisor, HypervisorError, check_layer},
    machine::{Backend, Bus, DeviceName, Disk, DiskKind, Machine, MachineId, Nic, validate_disk},
    qmp::{Monitor, PluggedDisk, QmpError},
    step::Step,
};

/// The name under which QEMU is handed a tap.
const TAP: &str = "tap";
/// How often a tray is opened that a guest shuts again.
const TRAY_TRIES: u32 = 8;

impl Hypervisor {
    /// Plugs a disk into a running machine. `layers` are its files, from the bottom up.
    pub async fn plug_disk(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        disk: &Disk,
        layers: Vec<OwnedFd>,
    ) -> Result<(), HypervisorError> {
        let socket = self.socket_for(id, monitor, disk).await?;
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        self.hand_in(id, monitor, disk, layers).await?;
        monitor.add_device(disk_device::late_device(disk, &socket)).await.map_err(failed)?;
        self.after(Step::DeviceAdded);
        Ok(())
    }

    async fn socket_for(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        disk: &Disk,
    ) -> Result<Socket, HypervisorError> {
        match disk.bus {
            Bus::Scsi => Ok(Socket::Scsi),
            Bus::Virtio => Ok(Socket::Port(self.free_port(id, monitor).await?)),
            Bus::Sata | Bus::Usb => Err(HypervisorError::NotWhileRunning {
                machine: id.clone(),
                what: format!("disk {}", disk.name),
                why: "only SCSI and virtio disks are plugged in while a machine runs".into(),
            }),
        }
    }

    /// A port that nothing is behind.
    async fn free_port(&self, id: &MachineId, monitor: &Monitor) -> Result<String, HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        let taken = monitor.taken_ports().await.map_err(failed)?;
        let mut spares = (0..pci::SPARE_PORTS).map(pci::spare_port);
        spares.find(|port| !taken.contains(port)).ok_or_else(|| HypervisorError::NotWhileRunning {
            machine: id.clone(),
            what: "one more device".into(),
            why: format!("all {} spare ports are taken: restart it to have more", pci::SPARE_PORTS),
        })
    }

    /// Gives QEMU the files of a disk and has it make the nodes of them.
    async fn hand_in(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        disk: &Disk,
        layers: Vec<OwnedFd>,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        validate_disk(disk).map_err(|source| HypervisorError::Invalid { machine: id.clone(), source })?;
        let name = |layer| DescriptorName::Layer { disk: disk.name.clone(), layer };
        if layers.len() != disk.layers.len() {
            return Err(HypervisorError::Missing { machine: id.clone(), missing: name(layers.len()) });
        }
        for (index, (file, layer)) in layers.iter().zip(&disk.layers).enumerate() {
            check_layer(id, file, &name(index), layer.format)?;
        }
        let mut sets = Vec::new();
        for (index, file) in layers.iter().enumerate() {
            let told = told_of(&name(index), disk.source.as_deref());
            sets.push(monitor.add_told_descriptor(file.as_fd(), &told).await.map_err(failed)?);
            self.after(Step::LayerHandedIn);
        }
        for node in block::nodes(disk, |layer| sets[layer]) {
            monitor.add_block_node(node).await.map_err(failed)?;
            self.after(Step::NodeAdded);
        }
        Ok(())
    }

    /// Asks the guest to let go of a device. A SCSI disk is gone when this returns; behind a port of its own it is gone when
    /// the guest says so, if ever.
    pub async fn pull_device(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        device: &str,
    ) -> Result<(), HypervisorError> {
        match monitor.remove_device(device).await {
            Ok(()) => self.after(Step::DeviceAskedOut),
            // It went meanwhile, or is about to.
            Err(QmpError::Refused { class, .. }) if class == "DeviceNotFound" => {}
            Err(QmpError::Refused { desc, .. })
                if ["in the process of unplug", "guest is busy"].iter().any(|so| desc.contains(so)) => {}
            Err(source) => return Err(HypervisorError::Monitor { machine: id.clone(), source }),
        }
        Ok(())
    }

    /// Takes from QEMU what it holds for a disk without a device. Answers false where that has to wait: a device is gone a
    /// moment before its last request is.
    pub async fn drop_disk(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        held: &PluggedDisk,
    ) -> Result<bool, HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        for node in &held.nodes {
            match monitor.remove_block_node(node).await {
                Err(QmpError::Refused { desc, .. }) if desc.contains("in use") => return Ok(false),
                outcome => outcome.map_err(failed)?,
            }
            self.after(Step::NodeRemoved);
        }
        for set in &held.sets {
            match monitor.remove_descriptors(*set).await {
                // A set goes by itself with the last that used it.
                Err(QmpError::Refused { .. }) => {}
                outcome => outcome.map_err(failed)?,
            }
            self.after(Step::DescriptorsTakenBack);
        }
        Ok(true)
    }

    /// Takes the disc out of a drive. With `force` also from a guest that holds the tray; without, it is asked to let go, and
    /// the disc is out when it did.
    pub async fn eject(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        drive: &Disk,
        force: bool,
    ) -> Result<bool, HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        let device = disk_device::device_id(drive);
        let mut tries = 0;
        loop {
            monitor.open_tray(&device, force).await.map_err(failed)?;
            self.after(Step::TrayOpened);
            match monitor.remove_medium(&device).await {
                Ok(()) => break,
                Err(why) if is_tray_closed(&why) && !force => return Ok(false),
                Err(why) if is_tray_closed(&why) && tries < TRAY_TRIES => tries += 1,
                Err(source) => return Err(failed(source)),
            }
        }
        self.after(Step::MediumRemoved);
        reopen_tray(monitor, &device).await.map_err(failed)?;
        Ok(true)
    }

    /// Puts a disc into an empty drive.
    pub async fn insert(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        disc: &Disk,
        layers: Vec<OwnedFd>,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        let Some(node) = block::top_node(disc).filter(|_| disc.kind == DiskKind::Cdrom) else {
            return Err(HypervisorError::NotWhileRunning {
                machine: id.clone(),
                what: format!("disk {}", disc.name),
                why: "it is no disc".into(),
            });
        };
        self.hand_in(id, monitor, disc, layers).await?;
        let device = disk_device::device_id(disc);
        let mut tries = 0;
        loop {
            monitor.open_tray(&device, true).await.map_err(failed)?;
            self.after(Step::TrayOpened);
            match monitor.insert_medium(&device, &node).await {
                Err(why) if is_tray_closed(&why) && tries < TRAY_TRIES => tries += 1,
                inserted => break inserted.map_err(failed)?,
            }
        }
        self.after(Step::MediumInserted);
        reopen_tray(monitor, &device).await.map_err(failed)?;
        self.close_tray(id, monitor, disc).await
    }

    pub async fn close_tray(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        drive: &Disk,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        monitor.close_tray(&disk_device::device_id(drive)).await.map_err(failed)?;
        self.after(Step::TrayClosed);
        Ok(())
    }

    /// Makes the node that a device writes to larger; the guest is told.
    pub async fn grow_node(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        node: &str,
        bytes: u64,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        monitor.resize_node(node, bytes).await.map_err(failed)?;
        self.after(Step::NodeGrown);
        Ok(())
    }

    /// Plugs a NIC into a running machine. `tap` is its end on the host, for one that has one.
    pub async fn plug_nic(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        nic: &Nic,
        tap: Option<OwnedFd>,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        let port = self.free_port(id, monitor).await?;
        let backend = match (&nic.backend, tap) {
            (Backend::Tap { .. }, Some(tap)) => {
                monitor.hand_over(TAP, tap.as_fd()).await.map_err(failed)?;
                nic_device::late_tap(nic, TAP)
            }
            (Backend::Tap { .. }, None) => {
                let missing = DescriptorName::Tap { nic: nic.name.clone() };
                return Err(HypervisorError::Missing { machine: id.clone(), missing });
            }
            (Backend::User { forwards }, _) => nic_device::user_mode(nic, forwards),
        };
        monitor.add_backend(backend).await.map_err(failed)?;
        self.after(Step::BackendAdded);
        monitor.add_device(nic_device::device_at(nic, &port)).await.map_err(failed)?;
        self.after(Step::DeviceAdded);
        Ok(())
    }

    /// Fills sockets until so many processors are there. None is ever taken away.
    pub async fn plug_processors(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        wanted: usize,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        let answer = monitor.hotpluggable_processors().await.map_err(failed)?;
        let (there, free) = free_processors(&answer);
        for processor in free.into_iter().take(wanted.saturating_sub(there)) {
            monitor.add_device(processor).await.map_err(failed)?;
            self.after(Step::ProcessorAdded);
        }
        Ok(())
    }

    /// Asks the guest to have so much memory beside what it began with. More is let in by the cgroup first.
    pub async fn ask_for_memory(
        &self,
        machine: &Machine,
        monitor: &Monitor,
        added_mib: u64,
    ) -> Result<(), HypervisorError> {
        let id = &machine.id;
        self.make_room_beside(machine, monitor, added_mib, 0).await?;
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        monitor.ask_for_memory(added_mib << 20).await.map_err(failed)?;
        self.after(Step::MemoryAsked);
        Ok(())
    }

    /// Takes away the host's end of a NIC that has no device any more.
    pub async fn drop_nic(
        &self,
        id: &MachineId,
        monitor: &Monitor,
        nic: &DeviceName,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        monitor.remove_backend(&nic_device::backend_id_of(nic)).await.map_err(failed)?;
        self.after(Step::BackendRemoved);
        Ok(())
    }
}

/// A guest that looks at its drives shut the tray just after it was opened, or holds it.
fn is_tray_closed(why: &QmpError) -> bool {
    matches!(why, QmpError::Refused { desc, .. } if desc.contains("not open"))
}

/// Has a drive look at what is in it now, with its tray open or, where the guest is quick, closed.
///
/// A guest that looks at its drives shuts an open tray by itself. QEMU then leaves the drive with what it knew of the disc before,
/// so an IDE drive never finds the new one. It looks again when a closed tray is opened from outside.
async fn reopen_tray(monitor: &Monitor, device: &str) -> Result<(), QmpError> {
    monitor.close_tray(device).await?;
    monitor.open_tray(device, true).await
}

/// How many processors are there, and the devices of those that could be, in the order of their sockets.
fn free_processors(answer: &Value) -> (usize, Vec<Value>) {
    let all = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let (there, mut free): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|one| one["qom-path"].is_string());
    let place = |one: &&Value| {
        let of = |id: &str| one["props"][id].as_u64().unwrap_or(0);
        (of("socket-id"), of("die-id"), of("core-id"), of("thread-id"))
    };
    free.sort_by_key(place);
    let devices = free.into_iter().map(|one| {
        let (socket, die, core, thread) = place(&one);
        let mut device =
            json!({ "driver": one["type"], "id": format!("cpu-{socket}-{die}-{core}-{thread}") });
        for (property, value) in one["props"].as_object().into_iter().flatten() {
            device[property] = value.clone();
        }
        device
    });
    (there.len(), devices.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_filled_in_order_and_what_is_there_is_not_plugged_in_again() {
        let slot = |socket: u32, core: u32, there: bool| {
            let mut slot = json!({"type": "max-x86_64-cpu", "vcpus-count": 1,
                "props": {"socket-id": socket, "core-id": core, "thread-id": 0}});
            if there {
                slot["qom-path"] = json!("/machine/unattached/device[0]");
            }
            slot
        };
        // QEMU tells the last first.
        let answer = json!([
            slot(2, 1, false),
            slot(2, 0, false),
            slot(1, 1, false),
            slot(1, 0, true),
            slot(0, 1, true),
            slot(0, 0, true)
        ]);
        let (there, free) = free_processors(&answer);
        let ids: Vec<&str> = free.iter().filter_map(|one| one["id"].as_str()).collect();
        assert_eq!((there, ids), (3, vec!["cpu-1-0-1-0", "cpu-2-0-0-0", "cpu-2-0-1-0"]));
        assert_eq!(free[0]["driver"], "max-x86_64-cpu");
        assert_eq!((&free[0]["socket-id"], &free[0]["core-id"]), (&json!(1), &json!(1)));
    }
}
