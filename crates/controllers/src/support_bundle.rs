//! Finds a node for each support bundle, ends those that take too long, and deletes those that were kept long enough.
//!
//! The decisions are [`sheaf_planner::support_bundle`]. The file is the node's business: it makes it, says in the status how
//! far it is, and removes it when the bundle is gone.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::support_bundle::{self, Settings, Step};
use sheaf_resources::kinds::{
    setting::Setting,
    support_bundle::{ERROR, EXPIRATION_SETTING, SupportBundle, TIMEOUT_SETTING},
};

use crate::{
    Context,
    object::{Object, Place, place_of},
    telling::{How, tell},
};

pub const NAME: &str = "support-bundle";
const COMPONENT: &str = "harvester-support-bundle-controller";
/// However long there is to wait, it is looked again after this: a setting may have changed.
const LONGEST_WAIT_SECS: i64 = 60;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Bundles { context, waiting: BTreeSet::new() }, client).await;
}

struct Bundles {
    context: Context,
    /// Bundles that no node could be found for.
    waiting: BTreeSet<Place>,
}

impl Reconciler for Bundles {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        vec![self.context.memory.of::<SupportBundle>(), self.context.memory.of::<Node>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        match watch {
            0 => place_of(metadata).into_iter().collect(),
            _ => self.waiting.iter().cloned().collect(),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        self.waiting.remove(place);
        // They are few, and what is deleted does not come back: no look is worth saving.
        let eyes = self.context.eyes().fresh();
        let bundle: Option<Object<SupportBundle>> = eyes.find(&place.0, &place.1).await?;
        let Some(bundle) = bundle.filter(|bundle| !bundle.is_being_deleted()) else {
            return Ok(Next::rest());
        };
        let nodes: Vec<Arc<Node>> = eyes.list("").await?;
        let (timeout, expiration) =
            (self.setting(TIMEOUT_SETTING).await?, self.setting(EXPIRATION_SETTING).await?);
        let settings = Settings { timeout: timeout.as_deref(), expiration: expiration.as_deref() };
        let clock = &self.context.world.clock;
        let now = (clock.now().as_second(), clock.rfc3339());
        match support_bundle::next_step(&bundle.typed, &nodes, settings, (now.0, &now.1)) {
            Step::Rest => Ok(Next::rest()),
            Step::Wait { secs } => {
                if bundle.typed.status.state.is_empty() {
                    self.waiting.insert(place.clone());
                }
                let secs = u64::try_from(secs.clamp(1, LONGEST_WAIT_SECS)).unwrap_or(1);
                Ok(Next::again_after(Duration::from_secs(secs)))
            }
            Step::WriteStatus(status) => {
                let mut changed = bundle.whole()?;
                changed.data["status"] = json!(status);
                bundle.write(&changed).await?;
                if status.state == ERROR {
                    let why = status.conditions.first().map_or("", |condition| condition.message.as_str());
                    let words = ("Warning", "SupportBundleFailed", why);
                    tell(&self.context, COMPONENT, &bundle, words, How::Once).await;
                }
                Ok(Next::wake(vec![place.clone()]))
            }
            Step::Delete => {
                bundle.delete().await?;
                Ok(Next::rest())
            }
        }
    }
}

impl Bundles {
    /// What holds of a setting; none where there is no such setting.
    async fn setting(&self, name: &str) -> Result<Option<String>, ReconcileError> {
        let setting: Option<Object<Setting>> = self.context.eyes().fresh().find("", name).await?;
        Ok(setting.map(|setting| setting.typed.effective().to_owned()))
    }
}
