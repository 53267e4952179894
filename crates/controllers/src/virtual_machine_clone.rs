//! Clones machines: makes the machine, which brings its disks along, and copies of its Secrets.
//!
//! The decisions are [`sheaf_planner::virtual_machine_clone`]. What the API refuses ends the clone, in its words.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use parking_lot::Mutex;
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::virtual_machine_clone::{self, Seen, Step};
use sheaf_resources::kinds::{virtual_machine::VirtualMachine, virtual_machine_clone::VirtualMachineClone};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
    secret_copy,
};

pub const NAME: &str = "virtual-machine-clone";
/// More than any clone takes.
const MOST_STEPS: usize = 12;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let clones = Clones { context, references: Arc::default() };
    reconciling::run_side_by_side(clones, client, crate::SIDE_BY_SIDE).await;
}

/// What a clone depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Machine(Place),
    Claim(Place),
}

#[derive(Clone)]
struct Clones {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
}

impl Reconciler for Clones {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachineClone>(),
            memory.of::<VirtualMachine>(),
            memory.of::<PersistentVolumeClaim>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let Some(place) = place_of(metadata) else { return Vec::new() };
        match watch {
            0 => vec![place],
            1 => self.references.lock().to(&Thing::Machine(place)),
            _ => self.references.lock().to(&Thing::Claim(place)),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let clone: Option<Object<VirtualMachineClone>> = eyes.find(&place.0, &place.1).await?;
            let Some(clone) = clone else {
                self.references.lock().set(place, BTreeSet::new());
                return Ok(Next::rest());
            };
            let look = self.look(&eyes, place, &clone).await?;
            let seen = Seen {
                clone: &clone.typed,
                source: look.source.as_ref().map(|vm| &*vm.typed),
                target: look.target.as_ref().map(|vm| &*vm.typed),
                claims: &look.claims,
                now_secs: self.context.world.clock.now().as_second(),
            };
            match virtual_machine_clone::next_step(&seen) {
                Step::Rest => return Ok(Next::rest()),
                // They rest on what is absent, which may only be late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                Step::CreateMachine(vm) => match eyes.create::<VirtualMachine>(&place.0, json!(vm)).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(Next::again_after(crate::LOOK_AGAIN)),
                    Err(kube::Error::Api(why))
                        if why.is_invalid() || why.is_forbidden() || why.code == 400 =>
                    {
                        if let Some(status) = virtual_machine_clone::refused(&seen, &why.message) {
                            clone.write_status(json!(status)).await?;
                        }
                    }
                    Err(why) => return Err(why.into()),
                },
                Step::CopySecrets { secrets, status } => {
                    let Some(target) = &look.target else { continue };
                    let owner = OwnerReference {
                        api_version: "kubevirt.io/v1".into(),
                        kind: "VirtualMachine".into(),
                        name: target.name().to_owned(),
                        uid: target.uid().to_owned(),
                        ..OwnerReference::default()
                    };
                    for (from, to) in &secrets {
                        secret_copy::copy(&self.context.client, &place.0, (from, to), &owner).await?;
                    }
                    clone.write_status(json!(status)).await?;
                }
                Step::WriteStatus(status) => clone.write_status(json!(status)).await?,
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

struct Look {
    source: Option<Object<VirtualMachine>>,
    target: Option<Object<VirtualMachine>>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
}

impl Clones {
    async fn look(
        &self,
        eyes: &Eyes,
        place: &Place,
        clone: &Object<VirtualMachineClone>,
    ) -> Result<Look, ReconcileError> {
        let target = virtual_machine_clone::target_name(&clone.typed);
        let machines = [clone.typed.spec.source.name.clone(), target];
        let mut things: BTreeSet<Thing> =
            machines.iter().map(|name| Thing::Machine((place.0.clone(), name.clone()))).collect();
        self.references.lock().set(place, things.clone());
        let source: Option<Object<VirtualMachine>> = eyes.find(&place.0, &machines[0]).await?;
        let target: Option<Object<VirtualMachine>> = eyes.find(&place.0, &machines[1]).await?;
        let templates =
            [&source, &target].into_iter().flatten().filter_map(|vm| vm.typed.spec.template.as_ref());
        let names: BTreeSet<String> =
            templates.flat_map(|template| template.spec.claim_names()).map(str::to_owned).collect();
        things.extend(names.iter().map(|name| Thing::Claim((place.0.clone(), name.clone()))));
        self.references.lock().set(place, things);
        let mut claims = BTreeMap::new();
        for name in names {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, &name).await?;
            claims.extend(claim.map(|claim| (name, (*claim.typed).clone())));
        }
        Ok(Look { source, target, claims })
    }
}
