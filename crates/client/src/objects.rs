//! The objects of one resource: every request of controllers and agents about objects is made here.
//!
//! Names and namespaces come from specs and annotations that tenants write, so each becomes part of a path through
//! [`sheaf_resources::path`]. A name that cannot be part of one is answered as the API answers for an object that is not
//! there: such an object cannot exist.
//!
//! Every request has a [`DEADLINE`], so that an answer that never ends holds nobody up. Deliberately absent: watches, which
//! have none (see `following.rs`).

use std::{fmt::Debug, marker::PhantomData, time::Duration};

use kube::{
    Api, Client, Resource,
    api::{
        DeleteParams, DynamicObject, GetParams, ListParams, ObjectList, PartialObjectMeta, Patch,
        PatchParams, PostParams,
    },
    core::{ApiResource, Request, Status, request},
};
use serde::{Serialize, de::DeserializeOwned};
use sheaf_resources::path::{self, InvalidSegment};

/// A request that was not answered in full by then has failed. The longest ones list thousands of objects or wait for a slow disk,
/// and take a few seconds.
pub const DEADLINE: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, kube::Error>;
type Built = std::result::Result<http::Request<Vec<u8>>, request::Error>;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[error("the API did not answer within {} s", DEADLINE.as_secs())]
pub struct DeadlineExceeded;

/// Those of one namespace, of all of them, or of a resource without namespaces.
pub struct Objects<K> {
    client: Client,
    resource: ApiResource,
    collection: std::result::Result<String, InvalidSegment>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Objects<K> {
    /// Of all namespaces, or of a resource without namespaces.
    pub fn all(client: Client) -> Self {
        Objects::new(client, ApiResource::erase::<K>(&()), "")
    }

    pub fn namespaced(client: Client, namespace: &str) -> Self {
        Objects::new(client, ApiResource::erase::<K>(&()), namespace)
    }
}

impl Objects<DynamicObject> {
    /// Of a resource that is known at run time alone. An empty namespace stands for none, or all.
    pub fn of(client: &Client, resource: &ApiResource, namespace: &str) -> Self {
        Objects::new(client.clone(), resource.clone(), namespace)
    }
}

impl<K> Objects<K> {
    fn new(client: Client, resource: ApiResource, namespace: &str) -> Self {
        let ApiResource { group, version, plural, .. } = &resource;
        let collection = path::collection(group, version, plural, namespace);
        Objects { client, resource, collection, kind: PhantomData }
    }

    fn request(&self) -> Result<Request> {
        let collection = self.collection.clone().map_err(|why| self.not_found(&why))?;
        Ok(Request::new(collection))
    }

    /// The same, with a name that can be pasted into its path.
    fn request_for(&self, name: &str) -> Result<(Request, String)> {
        let request = self.request()?;
        let name = path::segment(name).map_err(|why| self.not_found(&why))?;
        Ok((request, name))
    }

    /// What the API would answer, had it been asked for such an object.
    fn not_found(&self, why: &InvalidSegment) -> kube::Error {
        let message = format!("{}: {why}", self.resource.plural);
        kube::Error::Api(Box::new(Status::failure(&message, "NotFound").with_code(404)))
    }

    /// The text of an object as the API has it.
    pub async fn get_text(&self, name: &str) -> Result<String> {
        let (request, name) = self.request_for(name)?;
        self.text(request.get(&name, &GetParams::default())).await
    }

    /// Creates an object of its text; answers the text of what was created.
    pub async fn create_text(&self, params: &PostParams, object: Vec<u8>) -> Result<String> {
        self.text(self.request()?.create(params, object)).await
    }

    /// Writes an object, or its status, in the place of the one of this name.
    pub async fn replace_text(
        &self,
        name: &str,
        subresource: Option<&str>,
        params: &PostParams,
        object: Vec<u8>,
    ) -> Result<String> {
        let (request, name) = self.request_for(name)?;
        let request = match subresource {
            None => request.replace(&name, params, object),
            Some(subresource) => request.replace_subresource(subresource, &name, params, object),
        };
        self.text(request).await
    }

    /// Changes an object, or a subresource of it.
    pub async fn patch_text<P: Serialize>(
        &self,
        name: &str,
        subresource: Option<&str>,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<String> {
        let (request, name) = self.request_for(name)?;
        let request = match subresource {
            None => request.patch(&name, params, patch),
            Some(subresource) => request.patch_subresource(subresource, &name, params, patch),
        };
        self.text(request).await
    }

    async fn text(&self, request: Built) -> Result<String> {
        within_deadline(self.client.request_text(request.map_err(kube::Error::BuildRequest)?)).await
    }
}

impl<K: Clone + Debug + DeserializeOwned> Objects<K> {
    pub async fn get(&self, name: &str) -> Result<K> {
        let (request, name) = self.request_for(name)?;
        self.send(request.get(&name, &GetParams::default())).await
    }

    /// `None` if there is no such object.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        found(self.get(name).await)
    }

    pub async fn get_metadata_opt(&self, name: &str) -> Result<Option<PartialObjectMeta<K>>> {
        let (request, name) = match self.request_for(name) {
            Ok(request) => request,
            Err(_) => return Ok(None),
        };
        found(self.send(request.get_metadata(&name, &GetParams::default())).await)
    }

    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>> {
        self.send(self.request()?.list(params)).await
    }

    pub async fn list_metadata(&self, params: &ListParams) -> Result<ObjectList<PartialObjectMeta<K>>> {
        self.send(self.request()?.list_metadata(params)).await
    }

    pub async fn create(&self, params: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        let object = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.send(self.request()?.create(params, object)).await
    }

    pub async fn replace(&self, name: &str, params: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        let object = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let (request, name) = self.request_for(name)?;
        self.send(request.replace(&name, params, object)).await
    }

    pub async fn replace_subresource(
        &self,
        subresource: &str,
        name: &str,
        params: &PostParams,
        object: &impl Serialize,
    ) -> Result<K> {
        let object = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let (request, name) = self.request_for(name)?;
        self.send(request.replace_subresource(subresource, &name, params, object)).await
    }

    pub async fn patch<P: Serialize>(&self, name: &str, params: &PatchParams, patch: &Patch<P>) -> Result<K> {
        let (request, name) = self.request_for(name)?;
        self.send(request.patch(&name, params, patch)).await
    }

    pub async fn patch_status<P: Serialize>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        let (request, name) = self.request_for(name)?;
        self.send(request.patch_subresource("status", &name, params, patch)).await
    }

    /// Answers the object while something still holds it.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Option<K>> {
        let (request, name) = self.request_for(name)?;
        let request = request.delete(&name, params).map_err(kube::Error::BuildRequest)?;
        Ok(within_deadline(self.client.request_status(request)).await?.left())
    }

    pub async fn delete_collection(&self, params: &DeleteParams, which: &ListParams) -> Result<()> {
        let request = self.request()?.delete_collection(params, which).map_err(kube::Error::BuildRequest)?;
        within_deadline(self.client.request_status::<ObjectList<K>>(request)).await?;
        Ok(())
    }

    async fn send<T: DeserializeOwned>(&self, request: Built) -> Result<T> {
        within_deadline(self.client.request(request.map_err(kube::Error::BuildRequest)?)).await
    }
}

/// The same objects for kube's own watchers, which write a name into a selector and never into a path.
pub fn for_watcher(client: &Client, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
    match namespace {
        "" => Api::all_with(client.clone(), resource),
        namespace => Api::namespaced_with(client.clone(), &path::encoded(namespace), resource),
    }
}

/// The answer, unless it takes longer than anything should.
pub fn within_deadline<T>(
    answer: impl Future<Output = Result<T>> + Send,
) -> impl Future<Output = Result<T>> + Send {
    // On the heap, or every caller's future would hold it several times over.
    let answer = Box::pin(answer);
    async move {
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(kube::Error::Service(Box::new(DeadlineExceeded))),
        }
    }
}

fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(why) if crate::api::is_not_found(&why) => Ok(None),
        Err(why) => Err(why),
    }
}
