//! Numbers the versions of machine templates, says whether their images are there, and which version is meant.
//!
//! The decisions are [`sheaf_planner::virtual_machine_template`]. A version belongs to its template from the start, so
//! garbage collection takes it away with it; one that was left behind by another template of that name is nobody's.
//! Templates that are made of a machine are [`from_machine`]'s first.

mod from_machine;

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::virtual_machine_template::{Seen, Step, next_step};
use sheaf_resources::kinds::{
    virtual_machine_image::VirtualMachineImage, virtual_machine_template::VirtualMachineTemplate,
    virtual_machine_template_version::VirtualMachineTemplateVersion,
};

use self::from_machine::Came;
use crate::{
    Context,
    object::{Object, Place, place_of},
    references::References,
};

pub const NAME: &str = "virtual-machine-template";
/// More than any template takes at once: one step for each version that is new.
const MOST_STEPS: usize = 64;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let templates = Templates { context, references: Arc::default() };
    reconciling::run(templates, client).await;
}

struct Templates {
    context: Context,
    /// Which templates have versions that name which images.
    references: Arc<Mutex<References<Place, Place>>>,
}

impl Reconciler for Templates {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachineTemplate>(),
            memory.of::<VirtualMachineTemplateVersion>(),
            memory.of::<VirtualMachineImage>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let Some(place) = place_of(metadata) else { return Vec::new() };
        match watch {
            0 => vec![place],
            1 => {
                let owners = metadata.owner_references.iter().flatten();
                let templates = owners.filter(|owner| owner.kind == "VirtualMachineTemplate");
                templates.map(|owner| (place.0.clone(), owner.name.clone())).collect()
            }
            _ => self.references.lock().to(&place),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let template: Option<Object<VirtualMachineTemplate>> = eyes.find(&place.0, &place.1).await?;
            let Some(template) = template else {
                self.references.lock().set(place, BTreeSet::new());
                return Ok(Next::rest());
            };
            let all: Vec<Arc<VirtualMachineTemplateVersion>> = eyes.list(&place.0).await?;
            let versions: Vec<&VirtualMachineTemplateVersion> = all
                .iter()
                .map(|version| &**version)
                .filter(|version| is_of(version, template.uid()))
                .collect();
            let mut came = from_machine::make(&self.context, &eyes, place, &template, &versions).await?;
            for version in &versions {
                if matches!(came, Came::Nothing) {
                    came = from_machine::complete(&self.context, &eyes, place, version).await?;
                }
            }
            match came {
                Came::Nothing => {}
                Came::Something => {
                    eyes = eyes.fresh();
                    continue;
                }
                Came::Waiting => return Ok(Next::again_after(crate::LOOK_AGAIN)),
            }
            let images: BTreeSet<Place> = versions
                .iter()
                .flat_map(|version| version.images())
                .filter_map(|image| {
                    image.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
                })
                .collect();
            self.references.lock().set(place, images.clone());
            let mut imported = BTreeSet::new();
            for image in images {
                let found: Option<Object<VirtualMachineImage>> =
                    eyes.remembered().find(&image.0, &image.1).await?;
                if found.is_some_and(|found| found.typed.is_imported()) {
                    imported.insert(format!("{}/{}", image.0, image.1));
                }
            }
            let now = self.context.world.clock.rfc3339();
            let seen =
                Seen { template: &template.typed, versions: &versions, imported: &imported, now: &now };
            match next_step(&seen) {
                Step::Rest => return Ok(Next::rest()),
                // A number rests on there being no higher one, which may only be late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                Step::WriteVersion { name, status } => {
                    let version: Option<Object<VirtualMachineTemplateVersion>> =
                        eyes.find(&place.0, &name).await?;
                    if let Some(version) = version {
                        version.merge(json!({"status": status})).await?;
                    }
                }
                Step::SetDefault(id) => template.merge(json!({"spec": {"defaultVersionId": id}})).await?,
                Step::WriteStatus(status) => template.write_status(json!(status)).await?,
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

/// Whether a version is this very template's: another one of the same name may have had some.
fn is_of(version: &VirtualMachineTemplateVersion, template: &str) -> bool {
    let mut owners = version.metadata.owner_references.iter().flatten();
    !template.is_empty() && owners.any(|owner| owner.uid == template)
}
