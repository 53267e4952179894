//! Keeps the condition `configured` of every setting true to what is in force: see
//! [`sheaf_resources::kinds::setting::configured`].
//!
//! Most settings are looked at by who acts on them, each time. The level of the log is put in force from here, in this very
//! process; a process that starts puts it in force anew.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_resources::kinds::setting::{self, LOG_LEVEL, Setting, configured};

use crate::{Context, object::Object};

pub const NAME: &str = "setting";

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Settings { context }, client).await;
}

struct Settings {
    context: Context,
}

impl Reconciler for Settings {
    /// The setting's name.
    type Key = String;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        vec![self.context.memory.of::<Setting>()]
    }

    fn keys(&self, _watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        metadata.name.clone().into_iter().collect()
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let found: Option<Object<Setting>> = self.context.eyes().find("", name).await?;
        let (Some(found), Some(known)) = (found, setting::find(name)) else { return Ok(Next::rest()) };
        let applied = match known.name {
            LOG_LEVEL => self.apply_log_level(&found.typed),
            _ => Ok(()),
        };
        let now = self.context.world.clock.rfc3339();
        let status = configured::status_of(known, &found.typed, applied, &now);
        if status != found.typed.status {
            found.merge(json!({"status": status})).await?;
        }
        Ok(Next::rest())
    }
}

impl Settings {
    fn apply_log_level(&self, setting: &Setting) -> Result<(), String> {
        match (self.context.settings.set_log_level)(setting.effective()) {
            // What nobody asked for is not missing.
            Err(_) if setting.value.is_empty() => Ok(()),
            applied => applied,
        }
    }
}
