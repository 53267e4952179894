//! Makes the support bundles that are bound to this node, and keeps their files until the bundles are gone.
//!
//! ```text
//!   bound, generating --> begin --> the cluster's objects --> this host --> synced, renamed --> ready
//!                           |            (from the API)                                    |
//!                           +-- it fails: the bundle says why                              +-- the bundle goes: removed
//! ```
//!
//! One at a time, beside the loop. What was made is found on the disk and never remembered: a node that is killed while
//! it makes one begins anew, and one that is killed between the file's name and the bundle's status finds the file.
//! There is no finalizer: a file whose bundle is gone is worth nothing, and goes at the next look.

mod archive;
mod cluster;
mod host;
mod machines;
mod programs;
mod shelf;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{ListParams, Patch},
};
use serde_json::json;
use sheaf_client::{
    api,
    objects::Objects,
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_planner::support_bundle::{failed, ready};
use sheaf_resources::{
    kinds::{
        setting::Setting,
        support_bundle::{NAMESPACE, NODE_TIMEOUT_SETTING, READY, SupportBundle, SupportBundleStatus},
    },
    redaction::text::scrubbed,
};
use sheaf_world::World;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

pub use self::shelf::{BundleShelf, ShelfError};
use self::{archive::Archive, host::HostLook};
use crate::{
    merge::merge_patch,
    step::{AfterStep, Step},
    virtual_machine_instance::{Tools, found, with_causes},
};

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether one is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked for files that no bundle stands for.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// So many hundredths are the cluster's part.
const CLUSTER_SHARE: i64 = 70;
/// All but the sync and the name.
const MADE: i64 = 99;

/// Runs until dropped, which leaves files as they are.
pub async fn run(client: Client, world: World, settings: &crate::Settings, tools: &Tools) {
    let host = HostLook {
        node: settings.name.clone(),
        version: settings.version.clone(),
        data_dir: tools.bundles.data_dir().to_owned(),
        hypervisor: tools.hypervisor.clone(),
        notes: tools.notes.clone(),
        metrics: tools.metrics.clone(),
    };
    let maker = Arc::new(Maker {
        client: client.clone(),
        shelf: tools.bundles.clone(),
        host,
        after: tools.after_step.clone(),
    });
    let sweeping = sweep_by_the_clock(client.clone(), tools.bundles.clone());
    let keeper = BundleKeeper { maker, world, node: settings.name.clone(), making: None };
    tokio::select! {
        biased;
        () = sweeping => {}
        () = reconciling::run(keeper, client) => {}
    }
}

/// What a bundle is made with.
struct Maker {
    client: Client,
    shelf: Arc<BundleShelf>,
    host: HostLook,
    after: AfterStep,
}

struct BundleKeeper {
    maker: Arc<Maker>,
    world: World,
    node: String,
    making: Option<Making>,
}

/// A bundle that is being made.
struct Making {
    uid: String,
    work: JoinHandle<Result<(), String>>,
    /// Hundredths that are done.
    progress: Arc<AtomicI64>,
    shown: Instant,
}

impl Drop for Making {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// Name and uid.
type Key = (String, String);

impl Reconciler for BundleKeeper {
    type Key = Key;

    const NAME: &'static str = "support-bundle-keeper";

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(api::built_in("harvesterhci.io", "v1beta1", "SupportBundle", "supportbundles"))]
    }

    fn keys(&self, _: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let (Some(name), Some(uid)) = (&metadata.name, &metadata.uid) else { return Vec::new() };
        let is_meant = metadata.namespace.as_deref() == Some(NAMESPACE);
        is_meant.then(|| (name.clone(), uid.clone())).into_iter().collect()
    }

    async fn reconcile(&mut self, (name, uid): &Key) -> Result<Next<Key>, ReconcileError> {
        let bundle = found(bundles(&self.maker.client).get(name).await)?;
        let wanted = bundle.filter(|bundle| {
            bundle.metadata.uid.as_ref() == Some(uid)
                && bundle.metadata.deletion_timestamp.is_none()
                && bundle.status.node_name == self.node
        });
        let Some(bundle) = wanted else {
            self.give_up(uid);
            self.remove(uid)?;
            return Ok(Next::rest());
        };
        if !bundle.is_being_made() {
            // Ready, or ended by somebody else, who found that it takes too long.
            if self.give_up(uid) || bundle.status.state != READY {
                self.remove(uid)?;
            }
            return Ok(Next::rest());
        }
        self.bring(uid, bundle).await
    }
}

impl BundleKeeper {
    /// Goes on with a bundle that is to be made.
    async fn bring(&mut self, uid: &str, bundle: SupportBundle) -> Result<Next<Key>, ReconcileError> {
        let now = self.world.clock.rfc3339();
        match &mut self.making {
            Some(making) if making.uid != uid => return Ok(Next::again_after(SHOW_EVERY)),
            Some(making) if making.work.is_finished() => {
                let outcome = (&mut making.work).await.unwrap_or_else(|why| Err(why.to_string()));
                self.making = None;
                if let Err(why) = outcome {
                    self.remove(uid)?;
                    let why = scrubbed(&why).into_owned();
                    self.write(&bundle, &failed(&bundle.status, &why, &now)).await?;
                    return Ok(Next::rest());
                }
            }
            Some(making) => {
                let progress = making.progress.load(Ordering::Relaxed);
                if progress > bundle.status.progress && making.shown.elapsed() >= SHOW_EVERY {
                    making.shown = Instant::now();
                    let status = SupportBundleStatus { progress, ..bundle.status.clone() };
                    self.write(&bundle, &status).await?;
                }
                return Ok(Next::again_after(LOOK_EVERY));
            }
            None => {}
        }
        let whole =
            self.maker.shelf.size(uid).map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
        if let Some(bytes) = whole {
            let file = (bundle.file_name(), i64::try_from(bytes).unwrap_or(i64::MAX));
            self.write(&bundle, &ready(&bundle.status, (&file.0, file.1), &now)).await?;
            self.maker.after.took(Step::WriteStatus);
            return Ok(Next::rest());
        }
        let progress = Arc::new(AtomicI64::new(0));
        let work = self.maker.clone().make(uid.to_owned(), bundle, progress.clone(), now);
        self.making =
            Some(Making { uid: uid.to_owned(), work: tokio::spawn(work), progress, shown: Instant::now() });
        Ok(Next::again_after(LOOK_EVERY))
    }

    /// Stops making this one; answers whether it was being made.
    fn give_up(&mut self, uid: &str) -> bool {
        let ours = self.making.as_ref().is_some_and(|making| making.uid == uid);
        if ours {
            self.making = None;
        }
        ours
    }

    fn remove(&self, uid: &str) -> Result<(), ReconcileError> {
        self.maker.shelf.remove(uid).map_err(|why| ReconcileError::Unreadable(with_causes(&why)))
    }

    async fn write(
        &self,
        bundle: &SupportBundle,
        status: &SupportBundleStatus,
    ) -> Result<(), ReconcileError> {
        let name = bundle.metadata.name.as_deref().unwrap_or_default();
        let (old, new) = (serde_json::to_value(&bundle.status)?, serde_json::to_value(status)?);
        let change = json!({
            "metadata": {"resourceVersion": bundle.metadata.resource_version},
            "status": merge_patch(&old, &new),
        });
        bundles(&self.maker.client).patch(name, &api::patching(), &Patch::Merge(&change)).await?;
        Ok(())
    }
}

fn bundles(client: &Client) -> Objects<SupportBundle> {
    Objects::namespaced(client.clone(), NAMESPACE)
}

impl Maker {
    /// Makes the file of a bundle, from its beginning to its name.
    async fn make(
        self: Arc<Self>,
        uid: String,
        bundle: SupportBundle,
        progress: Arc<AtomicI64>,
        now: String,
    ) -> Result<(), String> {
        let said = |why: &dyn std::error::Error| with_causes(why);
        let file = self.shelf.begin(&uid).map_err(|why| said(&why))?;
        self.after.took(Step::BeginBundle);
        let name = bundle.metadata.name.clone().unwrap_or_default();
        let root = bundle.file_name().trim_end_matches(".zip").to_owned();
        let archive = Archive::begin(file, &root, &now);
        let whole_cluster = cluster::gather(&self.client, &name, &archive, |done, all| {
            progress.store(CLUSTER_SHARE * done / all.max(1), Ordering::Relaxed);
        });
        let head = match whole_cluster.await {
            Ok(head) => head,
            Err(cluster::Failure::Archive(gone)) => return Err(archive.why(&gone).await),
            Err(why) => return Err(said(&why)),
        };
        self.after.took(Step::GatherBundle);
        let written = async {
            archive.add("README.txt", host::README.to_owned()).await?;
            archive.add("metadata.yaml", metadata(&bundle, &head, &now)).await?;
            let mut missing = Vec::new();
            let patience = self.patience(&bundle).await;
            let looking = self.host.gather(&archive, &mut missing, |done, all| {
                let share = (MADE - CLUSTER_SHARE) * done / all.max(1);
                progress.store(CLUSTER_SHARE + share, Ordering::Relaxed);
            });
            // What is known of a host that hangs is worth having all the same.
            match timeout(patience, looking).await {
                Ok(looked) => looked?,
                Err(_) => {
                    missing.push(format!("the host was looked at for {patience:?}, which was not enough"))
                }
            }
            archive.add("bundleGenerationError.log", missing.join("\n")).await
        };
        if let Err(gone) = written.await {
            return Err(archive.why(&gone).await);
        }
        let file = archive.finish().await.map_err(|why| said(&why))?;
        let shelf = self.shelf.clone();
        let kept = tokio::task::spawn_blocking(move || shelf.keep(file, &uid)).await;
        kept.map_err(|why| said(&why))?.map_err(|why| said(&why))?;
        self.after.took(Step::KeepBundle);
        Ok(())
    }

    /// How long the host may be looked at.
    async fn patience(&self, bundle: &SupportBundle) -> Duration {
        let settings: Objects<Setting> = Objects::all(self.client.clone());
        let setting = settings.get(NODE_TIMEOUT_SETTING).await.ok();
        let minutes = bundle.node_timeout_minutes(setting.as_ref().map(Setting::effective));
        Duration::from_secs(u64::try_from(minutes).unwrap_or(1).saturating_mul(60))
    }
}

/// What the bundle is, under the names that tools for bundles know.
fn metadata(bundle: &SupportBundle, head: &cluster::Head, now: &str) -> String {
    let about = json!({
        "bundleName": bundle.metadata.name,
        "bundleVersion": "0.1.0",
        "kubernetesVersion": head.kubernetes_version,
        "projectNamespaceUUID": head.namespace_uid,
        "bundleCreatedAt": now,
        "issueURL": bundle.spec.issue_url,
        "issueDescription": bundle.spec.description,
        "objects": head.objects,
    });
    serde_yaml_ng::to_string(&about).unwrap_or_default()
}

/// Removes the files that no bundle stands for: of bundles that went while nobody watched.
async fn sweep_by_the_clock(client: Client, shelf: Arc<BundleShelf>) {
    loop {
        let pause = match sweep(&client, &shelf).await {
            Ok(()) => SWEEP_EVERY,
            Err(why) => {
                tracing::warn!(why, "could not look for support bundles that nobody wants any more");
                TRY_AGAIN
            }
        };
        sleep(pause).await;
    }
}

/// What is on the disk is looked at first: a bundle that comes to be meanwhile is in the list, or was not looked at.
async fn sweep(client: &Client, shelf: &BundleShelf) -> Result<(), String> {
    let here = shelf.uids().map_err(|why| with_causes(&why))?;
    if here.is_empty() {
        return Ok(());
    }
    let all = bundles(client).list(&ListParams::default()).await.map_err(|why| with_causes(&why))?;
    for uid in here {
        if !all.items.iter().any(|bundle| bundle.metadata.uid.as_ref() == Some(&uid)) {
            shelf.remove(&uid).map_err(|why| with_causes(&why))?;
            tracing::info!(uid, "removed a support bundle that no object stands for");
        }
    }
    Ok(())
}
