//! An object as it was read, beside its type: decisions read the type, and a write gives back all that was
//! read, also what the type does not know. Every write names the version that was read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams, PostParams},
    core::ApiResource,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sheaf_client::{
    api::{self, FIELD_MANAGER, objects},
    reconciling::ReconcileError,
};

/// Objects asked for at a time.
const PAGE: u32 = 500;

/// Namespace and name.
pub(crate) type Place = (String, String);

/// Where an object is; `None` for what has no namespace.
pub(crate) fn place_of(metadata: &ObjectMeta) -> Option<Place> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

pub(crate) struct Object<T> {
    pub read: DynamicObject,
    pub typed: T,
    objects: Api<DynamicObject>,
}

/// A kind that the cluster serves by itself.
pub(crate) fn resource_of<T: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<T>(&())
}

pub(crate) fn all_of<T: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(client, &resource_of::<T>(), namespace)
}

/// `None` when there is no such object.
pub(crate) async fn find<T>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Object<T>>, ReconcileError>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    // An empty name would ask for the whole collection.
    if name.is_empty() {
        return Ok(None);
    }
    let objects = all_of::<T>(client, namespace);
    let Some(read) = objects.get_opt(name).await? else { return Ok(None) };
    let typed = serde_json::from_value(serde_json::to_value(&read)?)?;
    Ok(Some(Object { read, typed, objects }))
}

/// Everything there is of a kind; an empty namespace stands for all of them.
pub(crate) async fn list<T>(client: &Client, namespace: &str) -> Result<Vec<T>, ReconcileError>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    let objects = all_of::<T>(client, namespace);
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = objects.list(&params).await?;
        for item in page.items {
            let mut item = serde_json::to_value(&item)?;
            // Items of a list need not say what they are, and some types insist.
            item["apiVersion"] = T::api_version(&()).as_ref().into();
            item["kind"] = T::kind(&()).as_ref().into();
            found.push(serde_json::from_value(item)?);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

impl<T> Object<T> {
    pub fn metadata(&self) -> &ObjectMeta {
        &self.read.metadata
    }

    pub fn name(&self) -> &str {
        self.read.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.read.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.read.metadata.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.read.metadata.finalizers.iter().flatten().any(|held| held == finalizer)
    }

    pub fn annotation(&self, key: &str) -> &str {
        self.read.metadata.annotations.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str)
    }

    /// Writes what was read back, as it has been changed since.
    pub async fn write(&self) -> Result<(), ReconcileError> {
        self.write_as(&self.read).await
    }

    /// Writes `changed` in its place.
    pub async fn write_as(&self, changed: &DynamicObject) -> Result<(), ReconcileError> {
        self.objects.replace(self.name(), &writing(), changed).await?;
        Ok(())
    }

    /// The same for `status`, which becomes `status`.
    pub async fn write_status(&mut self, status: Value) -> Result<(), ReconcileError> {
        self.read.data["status"] = status;
        self.objects.replace_status(self.name(), &writing(), &self.read).await?;
        Ok(())
    }

    /// Changes what `change` says; its `metadata` is completed.
    pub async fn merge(&self, change: Value) -> Result<(), ReconcileError> {
        api::merge(&self.objects, self.name(), &self.as_read(change)).await?;
        Ok(())
    }

    pub async fn merge_status(&self, status: Value) -> Result<(), ReconcileError> {
        api::merge_status(&self.objects, self.name(), &self.as_read(json!({"status": status}))).await?;
        Ok(())
    }

    pub async fn remove_finalizer(&self, finalizer: &str) -> Result<(), ReconcileError> {
        self.merge(api::without_finalizer(self.metadata(), finalizer)).await
    }

    /// Deletes this very object as it was read.
    pub async fn delete(&self) -> Result<(), ReconcileError> {
        let propagation = kube::api::PropagationPolicy::Background;
        Ok(api::delete_as_seen(&self.objects, self.metadata(), propagation).await?)
    }

    fn as_read(&self, mut change: Value) -> Value {
        change["metadata"]["uid"] = json!(self.metadata().uid);
        change["metadata"]["resourceVersion"] = json!(self.metadata().resource_version);
        change
    }
}

/// Makes an object, unless somebody was faster or its namespace is on its way out; answers whether it was made.
pub(crate) async fn create<T: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    mut object: Value,
) -> Result<bool, kube::Error> {
    object["apiVersion"] = T::api_version(&()).as_ref().into();
    object["kind"] = T::kind(&()).as_ref().into();
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    match all_of::<T>(client, namespace).create(&writing(), &object).await {
        Ok(_) => Ok(true),
        Err(why) if crate::namespace::needs_none(&why) => Ok(false),
        Err(why) => Err(why),
    }
}

fn writing() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
