//! Work on disks that no machine uses, done by QEMUs without a machine.
//!
//! What a layer holds is a guest's, and may be made to harm whoever reads it. So it is read by a process that has no
//! rights, no files but those it is handed, and nobody's memory, as a machine's own QEMU is. One that a killed node left
//! behind is ended by the next.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use serde_json::Value;
use sheaf_hypervisor::{
    Descriptors, Machine, MachineId, Monitor, QmpError, command_line,
    machine::{Aio, Bus, Cache, DeviceName, Disk, DiskKind, Format, Layer, LayerStorage},
    qmp::layers::Job,
};
use sheaf_storage::OpenLayer;
use tokio::time::{sleep, timeout};

use crate::{
    virtual_machine_instance::{Hands, Trouble, with_causes},
    volume_layers::described,
};

/// How often work is looked at.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// How long one may take to end in good order.
const QUIT_PATIENCE: Duration = Duration::from_secs(10);
/// What the ids of workshops begin with; no machine's does.
const PREFIX: &str = "workshop-";
/// What is filled in one.
const TARGET: &str = "target";

/// Whether a machine of this id is none.
pub(crate) fn is_workshop(id: &MachineId) -> bool {
    id.as_str().starts_with(PREFIX)
}

/// A QEMU without a machine.
pub(crate) struct Workshop<'a> {
    hands: &'a Hands,
    id: MachineId,
    pub(crate) monitor: Monitor,
}

impl Workshop<'_> {
    /// Starts one for this purpose; what an earlier process left of it is ended.
    pub(crate) async fn open<'a>(hands: &'a Hands, purpose: &str) -> Result<Workshop<'a>, Trouble> {
        let id = id_for(purpose)?;
        Workshop::clear_all(hands).await?;
        Workshop::clear(hands, &id).await?;
        match Workshop::launch(hands, &id).await {
            Ok(monitor) => Ok(Workshop { hands, id, monitor }),
            Err(why) => {
                if let Err(why) = Workshop::clear(hands, &id).await {
                    tracing::warn!(
                        why = with_causes(&why),
                        "a workshop that did not open does not close either"
                    );
                }
                Err(why)
            }
        }
    }

    async fn launch(hands: &Hands, id: &MachineId) -> Result<Monitor, Trouble> {
        hands.hypervisor.define(&Machine::workshop(id.clone())).await?;
        Ok(hands.hypervisor.launch(id, Descriptors::new()).await?)
    }

    /// Ends what there is of a workshop.
    async fn clear(hands: &Hands, id: &MachineId) -> Result<(), Trouble> {
        hands.hypervisor.kill(id).await?;
        hands.hypervisor.forget(id).await?;
        Ok(())
    }

    /// Ends all that an earlier process left, once, before there is any of this process.
    pub(crate) async fn clear_all(hands: &Hands) -> Result<(), Trouble> {
        let clear = || async {
            for found in hands.hypervisor.found()?.iter().filter(|found| is_workshop(&found.id)) {
                Workshop::clear(hands, &found.id).await?;
            }
            Ok::<_, Trouble>(())
        };
        hands.workshops.get_or_try_init(clear).await?;
        Ok(())
    }

    pub(crate) async fn close(self) -> Result<(), Trouble> {
        // Disks are flushed and closed in good order; what takes longer is cut short.
        if self.monitor.quit().await.is_ok() {
            _ = timeout(QUIT_PATIENCE, self.monitor.closed()).await;
        }
        Workshop::clear(self.hands, &self.id).await
    }

    pub(crate) fn failed(&self, source: QmpError) -> Trouble {
        self.hands.monitor_failed(&self.id, source)
    }

    /// Puts layers on each other, bottom first. Answers the name of the top one.
    pub(crate) async fn stack(&self, layers: &[OpenLayer]) -> Result<String, Trouble> {
        let disk = disk()?;
        let mut below = Value::Null;
        let mut top = String::new();
        for layer in layers {
            top = node_name(layer.number);
            let file = format!("{top}-file");
            let described = described(layer.layer(), layer.read_only);
            sheaf_hypervisor::check_image(&layer.file, described.format).map_err(|why| Trouble::Odd {
                what: format!("layer {}", layer.number),
                why: why.to_string(),
            })?;
            let added = async {
                let set = self.monitor.add_descriptor(layer.file.as_fd()).await?;
                let mut node = command_line::file_node(&file, &disk, &described, set);
                // Machines that read these files have locked them against writers that they do not know to be harmless.
                node["locking"] = "off".into();
                self.monitor.add_block_node(node).await?;
                let node = command_line::format_node(&top, &disk, &described, &file, &below);
                self.monitor.add_block_node(node).await
            };
            added.await.map_err(|why| self.failed(why))?;
            below = top.clone().into();
        }
        Ok(top)
    }

    /// Adds an empty qcow2 that is to be filled. Answers its name.
    pub(crate) async fn add_target(&self, file: BorrowedFd<'_>) -> Result<String, Trouble> {
        let disk = disk()?;
        let layer =
            Layer { number: None, format: Format::Qcow2, storage: LayerStorage::File, read_only: false };
        let added = async {
            let set = self.monitor.add_descriptor(file).await?;
            let file = format!("{TARGET}-file");
            self.monitor.add_block_node(command_line::file_node(&file, &disk, &layer, set)).await?;
            let mut node = command_line::format_node(TARGET, &disk, &layer, &file, &Value::Null);
            // What a guest zeroed is left out, as what it never wrote is.
            node["detect-zeroes"] = "unmap".into();
            self.monitor.add_block_node(node).await
        };
        added.await.map_err(|why| self.failed(why))?;
        Ok(TARGET.to_owned())
    }

    /// Waits for a job to be over, telling how far it is; answers what went wrong.
    pub(crate) async fn wait_for(&self, job: &str, mut tell: impl FnMut(&Job)) -> Result<(), Trouble> {
        loop {
            let jobs = self.monitor.jobs().await.map_err(|why| self.failed(why))?;
            // Nobody but us dismisses it: one that is gone did not succeed.
            let Some(found) = jobs.into_iter().find(|found| found.id == job) else {
                return Err(Trouble::Odd { what: format!("the job {job}"), why: "it is gone".into() });
            };
            tell(&found);
            match (found.status.as_str(), found.error) {
                ("concluded", Some(why)) => return Err(Trouble::Odd { what: format!("the job {job}"), why }),
                ("concluded", None) => {
                    return self.monitor.dismiss_job(job).await.map_err(|why| self.failed(why));
                }
                ("ready", _) => {
                    let completed = self.monitor.complete_job(job).await;
                    completed.map_err(|why| self.failed(why))?;
                }
                _ => sleep(LOOK_SOON).await,
            }
        }
    }
}

fn id_for(purpose: &str) -> Result<MachineId, Trouble> {
    let id = format!("{PREFIX}{purpose}");
    id.parse().map_err(|why: sheaf_hypervisor::machine::InvalidName| Trouble::Odd {
        what: format!("the workshop for {purpose}"),
        why: why.to_string(),
    })
}

pub(crate) fn node_name(number: u32) -> String {
    format!("layer-{number}")
}

/// How a workshop uses what it is handed: nobody waits for it, so the page cache may help.
fn disk() -> Result<Disk, Trouble> {
    let name: DeviceName = "work".parse().map_err(|why: sheaf_hypervisor::machine::InvalidName| {
        Trouble::Odd { what: "the workshop".into(), why: why.to_string() }
    })?;
    Ok(Disk {
        name,
        bus: Bus::Scsi,
        kind: DiskKind::Disk,
        layers: Vec::new(),
        boot_index: None,
        serial: None,
        device_id: None,
        cache: Cache::WriteBack,
        aio: Aio::Threads,
        source: None,
        io_thread: false,
    })
}
