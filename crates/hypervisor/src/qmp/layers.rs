//! The layers of a running machine's disks: which one is written to, another one put on top, and one taken out.
//!
//! What a disk was launched with is no guide: layers come and go while it runs. QEMU knows, and is asked. It is never
//! handed a descriptor for writing to any but the top one.

use std::os::fd::BorrowedFd;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Monitor, QmpError};
use crate::{
    command_line,
    descriptors::{DescriptorName, told_of},
    machine::{Disk, Layer},
};

/// A node of QEMU's block graph.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockNode {
    pub node_name: String,
    /// What it opened.
    #[serde(default)]
    pub file: String,
    /// What it is read by: a format, or `file`.
    #[serde(default, rename = "drv")]
    pub driver: String,
}

/// One disk that is to be written to another layer from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// What is written to until then.
    pub from: String,
    /// The layer that was added for it.
    pub to: String,
}

/// Work that QEMU does by itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Job {
    pub id: String,
    pub status: String,
    #[serde(default)]
    pub current_progress: u64,
    #[serde(default)]
    pub total_progress: u64,
    #[serde(default)]
    pub error: Option<String>,
}

impl Monitor {
    /// Every node there is, with what it opened.
    pub async fn block_nodes(&self) -> Result<Vec<BlockNode>, QmpError> {
        self.ask("query-named-block-nodes", json!({ "flat": true })).await
    }

    /// Makes a node of a layer, on the node of the layer below it or, for one that is to be switched to, on none. One that an
    /// earlier attempt left is made anew.
    pub async fn add_layer(
        &self,
        disk: &Disk,
        layer: &Layer,
        name: &str,
        below: Option<&str>,
        file: BorrowedFd<'_>,
    ) -> Result<(), QmpError> {
        self.remove_layer(name).await?;
        // As at a launch: what QEMU says of its descriptors says what the disk is.
        let number = layer.number.and_then(|number| usize::try_from(number).ok()).unwrap_or_default();
        let told = told_of(
            &DescriptorName::Layer { disk: disk.name.clone(), layer: number },
            disk.source.as_deref(),
        );
        let set = self.add_told_descriptor(file, &told).await?;
        let file_name = format!("{name}-file");
        self.add_block_node(command_line::file_node(&file_name, disk, layer, set)).await?;
        let node = command_line::format_node(name, disk, layer, &file_name, &below.into());
        self.add_block_node(node).await
    }

    /// From one instant on, all of these disks are written to their new layers.
    pub async fn switch_layers(&self, switches: &[Switch]) -> Result<(), QmpError> {
        let actions: Vec<Value> = switches
            .iter()
            .map(|Switch { from, to }| {
                json!({ "type": "blockdev-snapshot", "data": { "node": from, "overlay": to } })
            })
            .collect();
        self.execute("transaction", json!({ "actions": actions })).await.map(drop)
    }

    /// Puts a layer that is in use on another one, which reads the same.
    pub async fn rebase_layer(
        &self,
        disk: &Disk,
        layer: &Layer,
        name: &str,
        below: &str,
    ) -> Result<(), QmpError> {
        let file = format!("{name}-file");
        let node = command_line::format_node(name, disk, layer, &file, &below.into());
        self.execute("blockdev-reopen", json!({ "options": [node] })).await.map(drop)
    }

    /// Takes a layer out that nothing lies on; whether there was one and nothing did.
    pub async fn remove_layer(&self, name: &str) -> Result<bool, QmpError> {
        let file = format!("{name}-file");
        let nodes = self.block_nodes().await?;
        let opened = nodes.iter().find(|node| node.node_name == file);
        let set = opened.and_then(|node| node.file.strip_prefix("/dev/fdset/")?.parse::<u64>().ok());
        let is_there = nodes.iter().any(|node| node.node_name == name);
        if is_there {
            match self.remove_block_node(name).await {
                Ok(()) => {}
                Err(QmpError::Refused { .. }) => return Ok(false),
                Err(why) => return Err(why),
            }
        }
        if opened.is_some() {
            self.remove_block_node(&file).await?;
        }
        if let Some(set) = set {
            match self.remove_descriptors(set).await {
                // A set goes by itself with the last that used it.
                Ok(()) | Err(QmpError::Refused { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(is_there)
    }

    pub async fn jobs(&self) -> Result<Vec<Job>, QmpError> {
        self.ask("query-jobs", Value::Null).await
    }

    /// Forgets a job that is over.
    pub async fn dismiss_job(&self, job: &str) -> Result<(), QmpError> {
        self.execute("job-dismiss", json!({ "id": job })).await.map(drop)
    }

    /// Tells a job that waits to be told: go over to the result.
    pub async fn complete_job(&self, job: &str) -> Result<(), QmpError> {
        self.execute("job-complete", json!({ "id": job })).await.map(drop)
    }
}
