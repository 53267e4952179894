//! An object as it was read, beside its type: decisions read the type, and a write gives back all that was
//! read, also what the type does not know. Every write names the version that was read, and what it answers is
//! remembered, so that the next look sees it.

use std::{any::TypeId, collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{DynamicObject, ListParams, Patch, PostParams},
    core::ApiResource,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_client::{
    api::{self, FIELD_MANAGER, objects, patching},
    memory::{Kind, Known, Memory},
    objects::Objects,
    reconciling::ReconcileError,
};

pub(crate) use sheaf_client::memory::Place;

/// Objects asked for at a time.
const PAGE: u32 = 500;

/// Where an object is; `None` for what has no namespace.
pub(crate) fn place_of(metadata: &ObjectMeta) -> Option<Place> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// What looks, and as whom it acts.
#[derive(Clone)]
pub(crate) struct Eyes {
    client: Client,
    memory: Arc<Memory>,
    /// What fresh eyes have asked for: `None` for eyes that do not ask.
    asked: Option<Arc<Mutex<Asked>>>,
}

type Asked = BTreeSet<(TypeId, Place)>;

impl Eyes {
    /// Eyes that see what is remembered, which may be a moment old.
    pub fn remembering(client: Client, memory: Arc<Memory>) -> Self {
        Eyes { client, memory, asked: None }
    }

    /// Eyes that ask the API for every object they see the first time. For what is done because something is absent, or
    /// cannot be undone: kinds are not remembered as of one moment, so what one of them lacks may only be late.
    ///
    /// What was asked for once is remembered no older than that, so one pass asks once.
    pub fn fresh(&self) -> Self {
        Eyes { asked: Some(Arc::default()), ..self.clone() }
    }

    /// The same eyes that do not ask, for what wakes whoever looks when it turns out to be otherwise.
    pub fn remembered(&self) -> Self {
        Eyes { asked: None, ..self.clone() }
    }

    pub fn are_fresh(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether what is remembered of this object will do.
    fn need_not_ask<T: Kind>(&self, namespace: &str, name: &str) -> bool {
        let place = (namespace.to_owned(), name.to_owned());
        self.asked.as_ref().is_none_or(|asked| asked.lock().contains(&(TypeId::of::<T>(), place)))
    }

    /// The API said how this object stands, and that is remembered.
    fn mark_asked<T: Kind>(&self, namespace: &str, name: &str) {
        if let Some(asked) = &self.asked {
            asked.lock().insert((TypeId::of::<T>(), (namespace.to_owned(), name.to_owned())));
        }
    }

    /// `None` when there is no such object.
    pub async fn find<T: Kind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object<T>>, ReconcileError> {
        let remembered = self.memory.of::<T>();
        if self.need_not_ask::<T>(namespace, name) && remembered.is_listed() {
            return Ok(remembered.find(namespace, name)?.map(|known| Object::new(known, self)));
        }
        let before = remembered.find(namespace, name).ok().flatten();
        match all_of::<T>(&self.client, namespace).get_text(name).await {
            Ok(text) => {
                let known = Known::read(&text)?;
                // So that the next look, which may be at what is remembered, does not go back behind this one.
                remembered.note(known.clone());
                self.mark_asked::<T>(namespace, name);
                Ok(Some(Object::new(known, self)))
            }
            Err(why) if api::is_not_found(&why) => {
                // An object that went never comes back; another of its name is another one.
                if let Some(before) = before {
                    remembered.forget(before.metadata());
                }
                self.mark_asked::<T>(namespace, name);
                Ok(None)
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Everything there is of a kind; an empty namespace stands for all of them.
    pub async fn list<T: Kind>(&self, namespace: &str) -> Result<Vec<Arc<T>>, ReconcileError> {
        let remembered = self.memory.of::<T>();
        if !self.are_fresh() && remembered.is_listed() {
            return Ok(remembered.list(namespace)?);
        }
        let objects = all_of::<T>(&self.client, namespace);
        let mut params = ListParams::default().limit(PAGE);
        let mut found = Vec::new();
        loop {
            let page = objects.list(&params).await?;
            for item in page.items {
                found.push(Known::read_item(&serde_json::to_string(&item)?)?.typed);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Makes an object, unless somebody was faster or its namespace is on its way out; answers whether it was made.
    pub async fn create<T: Kind>(&self, namespace: &str, mut object: Value) -> Result<bool, kube::Error> {
        object["apiVersion"] = T::api_version(&()).as_ref().into();
        object["kind"] = T::kind(&()).as_ref().into();
        let body = serde_json::to_vec(&object).map_err(kube::Error::SerdeError)?;
        match all_of::<T>(&self.client, namespace).create_text(&writing(), body).await {
            Ok(text) => {
                self.learn::<T>(&text);
                Ok(true)
            }
            Err(why) if crate::namespace::needs_none(&why) => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// What cannot be read is left to the watch, which says so.
    fn learn<T: Kind>(&self, text: &str) {
        if let Ok(known) = Known::<T>::read(text) {
            let metadata = known.metadata().clone();
            self.memory.of::<T>().learn(known);
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            self.mark_asked::<T>(namespace, metadata.name.as_deref().unwrap_or_default());
        }
    }
}

pub(crate) struct Object<T> {
    pub typed: Arc<T>,
    known: Known<T>,
    eyes: Eyes,
}

fn all_of<T: Kind>(client: &Client, namespace: &str) -> Objects<DynamicObject> {
    objects(client, &ApiResource::erase::<T>(&()), namespace)
}

impl<T: Kind> Object<T> {
    fn new(known: Known<T>, eyes: &Eyes) -> Self {
        Object { typed: known.typed.clone(), known, eyes: eyes.clone() }
    }

    pub fn metadata(&self) -> &ObjectMeta {
        self.known.metadata()
    }

    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.metadata().finalizers.iter().flatten().any(|held| held == finalizer)
    }

    pub fn annotation(&self, key: &str) -> &str {
        self.metadata().annotations.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str)
    }

    /// Whether somebody else wrote it after we did: another set of controllers, whose news may be newer than what is
    /// remembered here. Whoever answers such a write with another looks with fresh eyes first, or the two would undo each
    /// other's writes for as long as one of them is late.
    pub fn is_written_over(&self) -> bool {
        self.eyes.memory.of::<T>().is_written_over(&self.known)
    }

    /// All that was read, to be changed and [written](Self::write).
    pub fn whole(&self) -> Result<DynamicObject, ReconcileError> {
        Ok(self.known.whole()?)
    }

    /// Writes `changed` in its place.
    pub async fn write(&self, changed: &DynamicObject) -> Result<(), ReconcileError> {
        let body = serde_json::to_vec(changed)?;
        self.learn(self.objects().replace_text(self.name(), None, &writing(), body).await)
    }

    /// `status` becomes `status`.
    pub async fn write_status(&self, status: Value) -> Result<(), ReconcileError> {
        let mut changed = self.whole()?;
        changed.data["status"] = status;
        let body = serde_json::to_vec(&changed)?;
        self.learn(self.objects().replace_text(self.name(), Some("status"), &writing(), body).await)
    }

    /// Changes what `change` says; its `metadata` is completed.
    pub async fn merge(&self, change: Value) -> Result<(), ReconcileError> {
        let change = Patch::Merge(self.as_read(change));
        self.learn(self.objects().patch_text(self.name(), None, &patching(), &change).await)
    }

    pub async fn merge_status(&self, status: Value) -> Result<(), ReconcileError> {
        let change = Patch::Merge(self.as_read(json!({"status": status})));
        self.learn(self.objects().patch_text(self.name(), Some("status"), &patching(), &change).await)
    }

    pub async fn remove_finalizer(&self, finalizer: &str) -> Result<(), ReconcileError> {
        self.merge(api::without_finalizer(self.metadata(), finalizer)).await
    }

    /// Deletes this very object as it was read.
    pub async fn delete(&self) -> Result<(), ReconcileError> {
        let propagation = kube::api::PropagationPolicy::Background;
        match api::delete_as_seen(&self.objects(), self.metadata(), propagation).await? {
            Some(held) => self.eyes.learn::<T>(&serde_json::to_string(&held)?),
            None => self.eyes.memory.of::<T>().forget(self.metadata()),
        }
        Ok(())
    }

    fn objects(&self) -> Objects<DynamicObject> {
        all_of::<T>(&self.eyes.client, self.metadata().namespace.as_deref().unwrap_or_default())
    }

    /// Takes what a write answered into the memory.
    fn learn(&self, answer: Result<String, kube::Error>) -> Result<(), ReconcileError> {
        self.eyes.learn::<T>(&answer?);
        Ok(())
    }

    fn as_read(&self, mut change: Value) -> Value {
        change["metadata"]["uid"] = json!(self.metadata().uid);
        change["metadata"]["resourceVersion"] = json!(self.metadata().resource_version);
        change
    }
}

fn writing() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
