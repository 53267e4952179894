//! VirtualMachines and the instances that people make without one: what they are given, and what of it must be
//! theirs alone.

use serde_json::{Value, json};
use sheaf_planner::virtual_machine::own_secrets;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        network_attachment_definition::CLUSTER_NETWORK_LABEL,
        setting,
        virtual_machine::{
            EJECTED_CLAIMS_ANNOTATION, REMOVED_CLAIMS_ANNOTATION,
            admission::{MachineDefaults, Overcommit, Surroundings, complete, reserved_by_ratio},
            names_in, noted_claims,
        },
        virtual_machine_template::made_of::{TO_COPY_ANNOTATION, ToCopy},
    },
    mac_address,
    rbac::{self, Attributes},
};

use super::machines::Uses;
use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::{Call, options::Freshness},
    status::ApiError,
};

/// What the cluster's nodes are: what this server runs on.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

impl ApiServer {
    pub(super) async fn admit_machine(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        self.complete_machine(new, old).map_err(|why| invalid(call, new, &[why]))?;
        self.admit_ejection(call, new, old).await?;
        self.admit_secrets(call, new, old).await?;
        let before = old.map(Uses::of_machine).unwrap_or_default();
        self.check_alone(call, new, "/spec/template/spec", &Uses::of_machine(new), &before).await
    }

    /// What a machine says is to be deleted, a controller deletes that may do everything: whoever says so must be allowed to.
    /// What is meant is the claim that is there now, and not another that will be called so.
    async fn admit_ejection(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let namespace = call.request.namespace.as_str();
        let mut is_noted = false;
        for annotation in [EJECTED_CLAIMS_ANNOTATION, REMOVED_CLAIMS_ANNOTATION] {
            let noted = |vm: &Value| {
                vm["metadata"]["annotations"][annotation].as_str().unwrap_or_default().to_owned()
            };
            let (now, before) = (noted(new), old.map(noted).unwrap_or_default());
            for name in names_in(&now).filter(|name| !names_in(&before).any(|known| known == *name)) {
                is_noted = true;
                let (verb, resource) = ("delete", "persistentvolumeclaims");
                let asked = Attributes { verb, resource, namespace, name, ..Attributes::default() };
                if !self.authorizer.authorize(call.user, &asked).is_allowed() {
                    let why = format!("user {:?} may not have the claim {name} deleted", call.user.name);
                    return Err(ApiError::refused(call.named(), &call.request.name, why));
                }
            }
        }
        if is_noted {
            self.reach(Freshness::Latest).await?;
        }
        let uid_of = |name: &str| {
            let claim = self.find("", "persistentvolumeclaims", namespace, name)?;
            claim["metadata"]["uid"].as_str().map(str::to_owned)
        };
        let by_controller = call.user.name.starts_with(&rbac::controller_user(""));
        noted_claims::bind(new, old, by_controller, &uid_of);
        Ok(())
    }

    /// What belongs to a template stays the template's: the machine gets a copy, from whoever may read it.
    async fn admit_secrets(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let namespace = call.request.namespace.as_str();
        let spec = |vm: &Value| vm["spec"]["template"].clone();
        if old.is_none_or(|old| spec(old) != spec(new)) {
            self.reach(Freshness::Latest).await?;
        }
        let by_controller = call.user.name.starts_with(&rbac::controller_user(""));
        let copied =
            own_secrets::take(new, old, by_controller, &|secret| self.is_of_template(namespace, secret));
        if super::speaks_for_the_cluster(call.user) {
            return Ok(());
        }
        for secret in &copied {
            self.check_takes(call, new, "make a machine of that template", ("get", "", "secrets", secret))?;
        }
        Ok(())
    }

    /// Whether a Secret is, or is about to be, a version's own.
    fn is_of_template(&self, namespace: &str, secret: &str) -> bool {
        let kind = "VirtualMachineTemplateVersion";
        if let Some(found) = self.find("", "secrets", namespace, secret) {
            let owners = found["metadata"]["ownerReferences"].as_array();
            return owners.into_iter().flatten().any(|owner| owner["kind"] == kind);
        }
        self.all("harvesterhci.io", "virtualmachinetemplateversions").iter().any(|version| {
            let note = version["metadata"]["annotations"][TO_COPY_ANNOTATION].as_str();
            let note = note.and_then(|note| serde_json::from_str::<ToCopy>(note).ok()).unwrap_or_default();
            version["metadata"]["namespace"] == namespace && note.secrets.contains_key(secret)
        })
    }

    /// An instance is made as its VirtualMachine says. One without is given what a machine's template would be.
    pub(super) async fn admit_new_instance(&self, call: &Call<'_>, new: &mut Value) -> Result<(), ApiError> {
        let mut machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": new["metadata"],
            "spec": {"template": {"spec": new["spec"]}},
        });
        // Requests follow limits once: what a VirtualMachine has settled is not settled again.
        let settled = is_of_a_machine(new).then(|| machine.clone());
        self.complete_machine(&mut machine, settled.as_ref()).map_err(|why| invalid(call, new, &[why]))?;
        new["spec"] = machine["spec"]["template"]["spec"].take();
        self.check_alone(call, new, "/spec", &Uses::of_instance(new), &Uses::default()).await
    }

    /// What is plugged into an instance while it runs is its alone, as what it began with.
    pub(super) async fn admit_changed_instance(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: &Value,
    ) -> Result<(), ApiError> {
        if new["spec"] == old["spec"] {
            return Ok(());
        }
        self.check_alone(call, new, "/spec", &Uses::of_instance(new), &Uses::of_instance(old)).await
    }

    fn complete_machine(&self, vm: &mut Value, old: Option<&Value>) -> Result<(), FieldError> {
        let defaults = MachineDefaults {
            architecture: ARCHITECTURE.into(),
            termination_grace_period_secs: self
                .setting(setting::TERMINATION_GRACE_PERIOD)
                .parse()
                .unwrap_or(MachineDefaults::default().termination_grace_period_secs),
            overcommit: Overcommit::parse(&self.setting(setting::OVERCOMMIT_CONFIG)),
            reserved_bytes: reserved_by_ratio(&self.setting(setting::GUEST_MEMORY_OVERHEAD_RATIO)),
            hotplug_ratio: self
                .setting(setting::MAX_HOTPLUG_RATIO)
                .parse()
                .unwrap_or(MachineDefaults::default().hotplug_ratio),
        };
        let definitions = Resource::new("k8s.cni.cncf.io", "network-attachment-definitions");
        let cluster_network_of = |namespace: &str, name: &str| {
            let definition = self.cache.get(&definitions, &place(namespace, name))?;
            let labels = &definition.labels;
            let label = labels.iter().find(|(key, _)| &**key == CLUSTER_NETWORK_LABEL)?;
            Some(label.1.to_string())
        };
        let mut surroundings = Surroundings {
            defaults: &defaults,
            cluster_network_of: &cluster_network_of,
            random: &mut |bytes| self.world.chance.fill(bytes),
        };
        complete(vm, old, &mut surroundings)
    }

    /// What holds of a setting; empty when there is none of that name.
    pub(crate) fn setting(&self, name: &str) -> String {
        let found = self.cache.get(&Resource::new("harvesterhci.io", "settings"), &place("", name));
        let setting = found.map(|setting| setting.to_value()).unwrap_or_default();
        let text = |field: &str| setting[field].as_str().unwrap_or_default().to_owned();
        if text("value").is_empty() { text("default") } else { text("value") }
    }

    /// Nobody else may have its hardware addresses and its disks. What it had `before` is not asked about again.
    async fn check_alone(
        &self,
        call: &Call<'_>,
        new: &Value,
        spec: &str,
        uses: &Uses,
        before: &Uses,
    ) -> Result<(), ApiError> {
        let fresh = |now: &[String], before: &[String]| -> Vec<String> {
            now.iter().filter(|one| !before.contains(one)).cloned().collect()
        };
        let addresses = fresh(&uses.addresses, &before.addresses);
        let claims = fresh(&uses.claims, &before.claims);
        if (addresses.is_empty() && claims.is_empty()) || uses.going {
            return Ok(());
        }
        // They may have been taken a moment ago, through another server.
        self.reach(Freshness::Latest).await?;
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let own = place(&call.request.namespace, name);
        let mut errors = Vec::new();
        for address in &addresses {
            let others = self.machines.that(&self.cache, &own, |used| used.addresses.contains(address));
            if let Some(other) = others.first() {
                let why = format!("the MAC address is already used by VM {other}");
                errors.push(FieldError::invalid(&address_path(new, spec, address), address.as_str(), why));
            }
        }
        for claim in &claims {
            let others = self.machines.that(&self.cache, &own, |used| used.claims.contains(claim));
            if let Some(other) = others.first() {
                let name = claim.split_once('/').map_or(claim.as_str(), |(_, name)| name);
                let why = format!("the volume {name} is already used by VM {other}");
                errors.push(FieldError::invalid(&claim_path(new, spec, name), name, why));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(invalid(call, new, &errors)) }
    }
}

/// Where in the object an address stands.
fn address_path(object: &Value, spec: &str, address: &str) -> FieldPath {
    let at = path_of(spec).child("domain").child("devices").child("interfaces");
    let list = object.pointer(&format!("{spec}/domain/devices/interfaces")).and_then(Value::as_array);
    let has = |interface: &Value| {
        interface["macAddress"].as_str().and_then(mac_address::normalised).as_deref() == Some(address)
    };
    match list.and_then(|list| list.iter().position(has)) {
        Some(index) => at.index(index).child("macAddress"),
        None => at,
    }
}

fn claim_path(object: &Value, spec: &str, claim: &str) -> FieldPath {
    let at = path_of(spec).child("volumes");
    let list = object.pointer(&format!("{spec}/volumes")).and_then(Value::as_array);
    let has = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == claim;
    match list.and_then(|list| list.iter().position(has)) {
        Some(index) => at.index(index).child("persistentVolumeClaim").child("claimName"),
        None => at,
    }
}

fn path_of(pointer: &str) -> FieldPath {
    pointer.split('/').filter(|part| !part.is_empty()).fold(FieldPath::root(), |path, part| path.child(part))
}

fn is_of_a_machine(instance: &Value) -> bool {
    let owners = instance["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["kind"] == "VirtualMachine" && owner["controller"] == true)
}

fn invalid(call: &Call<'_>, new: &Value, errors: &[FieldError]) -> ApiError {
    let kind = &call.served.kind;
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    ApiError::invalid(&kind.group, &kind.kind, name, errors)
}
