//! Claims, images and storage classes: which class holds where none is named, and what may not go while it is used.

use serde_json::{Value, json};
use sheaf_planner::volume_room;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        persistent_volume::IMAGE_UID_ATTRIBUTE,
        persistent_volume_claim, setting, storage_class,
        virtual_machine::admission::Overcommit,
        virtual_machine_image::{self, DATA_FINALIZER, NODE_ANNOTATION},
        volume_snapshot,
    },
    object_meta, quantity, rbac,
};

use super::machines;
use crate::{
    ApiServer,
    cache::{Resource, place},
    request::Verb,
    rest::{Call, options::Freshness},
    status::ApiError,
};

const STORAGE: &str = "storage.k8s.io";
const HARVESTER: &str = "harvesterhci.io";

impl ApiServer {
    pub(super) fn complete_claim(&self, claim: &mut Value) {
        persistent_volume_claim::complete(claim, &self.classes());
    }

    /// Which class a snapshot has that names none.
    pub(super) fn complete_snapshot(&self, snapshot: &mut Value) {
        volume_snapshot::complete(snapshot, &self.all(volume_snapshot::GROUP, "volumesnapshotclasses"));
    }

    /// A volume grows where its node's disk has room. What counts in the end is what the provisioner finds, which knows of
    /// all that is being promised; here whoever asks hears it at once.
    ///
    /// Controllers are not refused: what they grow is one disk of many, and the claim itself says what became of it.
    pub(super) fn admit_promise(&self, call: &Call<'_>, new: &Value, old: &Value) -> Result<(), ApiError> {
        let asked = persistent_volume_claim::requested(new).unwrap_or(0);
        let is_controller = call.user.name.starts_with(&rbac::controller_user(""));
        if is_controller || Some(asked) <= persistent_volume_claim::requested(old) {
            return Ok(());
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let percent = Overcommit::parse(&self.setting(setting::OVERCOMMIT_CONFIG)).storage_percent;
        let (nodes, volumes) = (self.all("", "nodes"), self.all("", "persistentvolumes"));
        volume_room::check_growth(nodes, volumes, percent, &text(&old["spec"]["volumeName"]), asked).map_err(
            |why| {
                let claim = place(&call.request.namespace, &text(&old["metadata"]["name"]));
                ApiError::unprocessable(format!("pvc {claim} cannot grow: {why}"))
            },
        )
    }

    /// Under a machine that is on, a volume grows only where the setting says that its driver can do that.
    pub(super) fn admit_growth(&self, call: &Call<'_>, new: &Value, old: &Value) -> Result<(), ApiError> {
        let bytes = |claim: &Value| {
            quantity::value(claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or_default())
        };
        if bytes(new) <= bytes(old) {
            return Ok(());
        }
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        let claim = place(&call.request.namespace, name);
        let is_on = |machine: &str| {
            let machine = self.cache.get(&Resource::new(machines::GROUP, machines::MACHINES), machine);
            // An instance without a machine is there while it is on.
            machine.is_none_or(|machine| machine.to_value()["status"]["printableStatus"] != "Stopped")
        };
        let users = self.machines.that(&self.cache, "", |used| used.claims.contains(&claim));
        if !users.iter().any(|machine| is_on(machine)) {
            return Ok(());
        }
        let class = new["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class = self.cache.get(&Resource::new(STORAGE, "storageclasses"), &place("", class));
        let provisioner = class.map(|class| class.to_value()["provisioner"].clone()).unwrap_or_default();
        let allowed: Value =
            serde_json::from_str(&self.setting(setting::CSI_ONLINE_EXPAND_VALIDATION)).unwrap_or_default();
        if allowed[provisioner.as_str().unwrap_or_default()] == true {
            return Ok(());
        }
        Err(ApiError::unprocessable(format!(
            "pvc {claim} is not online expandable with its provider: stop the machines that use it, or allow it in the \
             setting {}",
            setting::CSI_ONLINE_EXPAND_VALIDATION
        )))
    }

    /// No two images of a namespace are shown to people by one name.
    pub(super) async fn admit_image(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        keep_data(call, new, old)?;
        if old.is_none() {
            let classes = self.classes();
            let default = classes.iter().find(|(_, is_default)| *is_default).map(|(name, _)| name.as_str());
            virtual_machine_image::complete(new, default, &|class| {
                let class = self.cache.get(&Resource::new(STORAGE, "storageclasses"), &place("", class))?;
                Some(class.to_value()["parameters"].clone())
            });
        }
        let shown = &new["spec"]["displayName"];
        if shown.is_null() || old.is_some_and(|old| old["spec"]["displayName"] == *shown) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let same = |image: &Value| {
            image["metadata"]["namespace"] == call.request.namespace
                && image["metadata"]["name"] != new["metadata"]["name"]
                && image["spec"]["displayName"] == *shown
        };
        if !self.all(HARVESTER, "virtualmachineimages").iter().any(same) {
            return Ok(());
        }
        let error = FieldError::duplicate(&FieldPath::new("spec").child("displayName"), shown.clone());
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        Err(ApiError::invalid(&call.served.kind.group, &call.served.kind.kind, name, &[error]))
    }

    /// One default at most: with two, which one a claim gets would be an accident of their age.
    pub(super) async fn admit_class(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let is_default = persistent_volume_claim::is_default_class;
        if !is_default(new) || old.is_some_and(is_default) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let other = self.classes().into_iter().find(|(other, is_default)| *is_default && other != name);
        let Some((other, _)) = other else { return Ok(()) };
        let at = FieldPath::new("metadata").child("annotations").key(storage_class::DEFAULT_CLASS);
        let why = format!(
            "default storage class {other} already exists, please reset it first before set {name} as default"
        );
        let errors = [FieldError::invalid(&at, "true", why)];
        Err(ApiError::invalid(&call.served.kind.group, &call.served.kind.kind, name, &errors))
    }

    pub(super) async fn admit_claim_deletion(&self, call: &Call<'_>, name: &str) -> Result<(), ApiError> {
        let collected = call.user.name == rbac::controller_user("garbage-collection");
        if collected || self.is_being_emptied(call) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let claim = place(&call.request.namespace, name);
        let users = self.machines.that(&self.cache, "", |used| !used.going && used.claims.contains(&claim));
        if users.is_empty() {
            return Ok(());
        }
        Err(ApiError::unprocessable(format!(
            "can not delete the volume {name} which is currently attached to VMs: {}",
            users.join(", ")
        )))
    }

    /// Disks are made of an image as long as there are any: they read what they never wrote from it.
    pub(super) async fn admit_image_deletion(&self, image: &Value) -> Result<(), ApiError> {
        self.reach(Freshness::Latest).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&image["metadata"]["namespace"]), text(&image["metadata"]["name"]));
        let (class, id) = (&image["status"]["storageClassName"], place(&namespace, &name));
        let of_it = |claim: &&Value| {
            let named = &claim["metadata"]["annotations"][persistent_volume_claim::IMAGE_ANNOTATION];
            // A claim that names an image is a copy of that one, whatever its class: a class is for anybody to name.
            match named.as_str().unwrap_or_default() {
                "" => !class.is_null() && claim["spec"]["storageClassName"] == *class,
                named => named == id.as_str(),
            }
        };
        let claims = self.all("", "persistentvolumeclaims");
        let copy_of_it = |volume: &&Value| {
            let attributes = &volume["spec"]["csi"]["volumeAttributes"];
            attributes[IMAGE_UID_ATTRIBUTE].is_string()
                && attributes[IMAGE_UID_ATTRIBUTE] == image["metadata"]["uid"]
        };
        let volumes = self.all("", "persistentvolumes");
        // Whoever destroys a plan deletes the image as soon as the claims are gone, and asks once. What is left of their
        // volumes then is on its way out, and has the image's file under a name of its own until it is.
        let stays = |volume: &&Value| {
            let claim = &volume["spec"]["claimRef"]["uid"];
            let is_claimed = claims.iter().any(|one| one["metadata"]["uid"] == *claim);
            let goes_with_its_claim =
                claim.is_string() && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
            is_claimed || !(goes_with_its_claim || volume["metadata"]["deletionTimestamp"].is_string())
        };
        let volume = volumes.iter().filter(stays).find(copy_of_it);
        let user = match (claims.iter().find(of_it), volume) {
            (Some(claim), _) => {
                place(&text(&claim["metadata"]["namespace"]), &text(&claim["metadata"]["name"]))
            }
            (None, Some(volume)) => text(&volume["metadata"]["name"]),
            (None, None) => return Ok(()),
        };
        let shown = text(&image["spec"]["displayName"]);
        Err(ApiError::unprocessable(format!(
            "Cannot delete image {namespace}/{shown}: being used by volume {user}"
        )))
    }

    pub(super) async fn admit_class_deletion(&self, call: &Call<'_>, class: &Value) -> Result<(), ApiError> {
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        if class["metadata"]["annotations"][storage_class::RESERVED_CLASS] == "true" {
            let why = format!("storage class {name} is reserved and can't be deleted");
            return Err(ApiError::refused(call.named(), name, why));
        }
        self.reach(Freshness::Latest).await?;
        let images = self.all(HARVESTER, "virtualmachineimages");
        // The class of an image goes with it, and whoever removes that class does so when the image goes.
        let uses = |image: &&Value| {
            !object_meta::is_being_deleted(image)
                && (image["status"]["storageClassName"] == name
                    || image["metadata"]["annotations"][virtual_machine_image::STORAGE_CLASS_ANNOTATION]
                        == name)
        };
        let users: Vec<String> = images
            .iter()
            .filter(uses)
            .map(|image| {
                let text = |field: &str| image["metadata"][field].as_str().unwrap_or_default();
                place(text("namespace"), text("name"))
            })
            .collect();
        if users.is_empty() {
            return Ok(());
        }
        Err(ApiError::unprocessable(format!(
            "storage class {name} is used by virtual machine images: {}",
            users.join(", ")
        )))
    }

    /// All classes, newest first, and whether each is the default.
    fn classes(&self) -> Vec<(String, bool)> {
        let mut classes = self.all(STORAGE, "storageclasses");
        let made =
            |class: &Value| class["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        classes.sort_by_key(|class| std::cmp::Reverse(made(class)));
        let name = |class: &Value| class["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        classes.iter().map(|class| (name(class), persistent_volume_claim::is_default_class(class))).collect()
    }

    /// Every object of a resource, for questions that are seldom asked.
    pub(super) fn all(&self, group: &str, plural: &str) -> Vec<Value> {
        let (snapshot, _) = self.cache.snapshot(&Resource::new(group, plural));
        snapshot.values().map(|object| object.to_value()).collect()
    }
}

/// Where an image's bytes are, and that they are still there, is said by controllers and that node: without either
/// nobody would find the bytes to remove them. Who writes the whole of an image and leaves these out meant nothing by it.
fn keep_data(call: &Call<'_>, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    if super::speaks_for_the_cluster(call.user) {
        return Ok(());
    }
    let node = |image: &Value| image["metadata"]["annotations"][NODE_ANNOTATION].clone();
    let Some(old) = old else {
        new["metadata"]["annotations"].as_object_mut().map(|all| all.remove(NODE_ANNOTATION));
        return Ok(());
    };
    let has_mark = |image: &Value| object_meta::finalizers(image).contains(&DATA_FINALIZER);
    let is_whole = call.request.verb == Verb::Update;
    if is_whole && node(new).is_null() && !node(old).is_null() {
        new["metadata"]["annotations"][NODE_ANNOTATION] = node(old);
    }
    if is_whole && has_mark(old) && new["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        new["metadata"]["finalizers"] = json!([DATA_FINALIZER]);
    }
    let why = if node(new) != node(old) {
        format!("the annotation {NODE_ANNOTATION} says where the image's bytes are and may not be changed")
    } else if has_mark(old) && !has_mark(new) {
        format!("the finalizer {DATA_FINALIZER} goes with the image's bytes, once the image is deleted")
    } else {
        return Ok(());
    };
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::refused(call.named(), name, why))
}
