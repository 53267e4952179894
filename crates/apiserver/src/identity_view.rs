//! What identity sees of the cluster's objects (the cache) and how it writes them (the server's own verbs).

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::{
    ApiServer, Inner,
    authorization::node::bound::{self, Bound},
    cache::{Cache, Resource, following::Following, place},
    identity::{Directory, MASTERS, Objects, User, WriteError},
    request::{Query, ResourceRequest, Verb},
    respond::Warnings,
    rest::{Call, update::Part, write::Written},
    status::ApiError,
};

pub struct CachedDirectory {
    cache: Arc<Cache>,
    bound: Following<Bound>,
}

impl CachedDirectory {
    pub fn new(cache: Arc<Cache>) -> Self {
        CachedDirectory { cache, bound: Following::new(bound::GROUP, bound::INSTANCES, Bound::read) }
    }
}

impl Directory for CachedDirectory {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let object = self.cache.get(&Resource::new(group, resource), &place(namespace, name))?;
        Some(Arc::new(object.to_value()))
    }

    fn objects(&self, group: &str, resource: &str) -> Vec<Arc<Value>> {
        let (snapshot, _) = self.cache.snapshot(&Resource::new(group, resource));
        snapshot.values().map(|object| Arc::new(object.to_value())).collect()
    }

    fn revision_of(&self, group: &str, resource: &str) -> u64 {
        self.cache.table(&Resource::new(group, resource)).changed()
    }

    fn is_needed_on(&self, node: &str, namespace: &str, secret: &str) -> bool {
        let inside = |place: &str| place.split_once('/').is_some_and(|(of, _)| of == namespace);
        self.bound.ask(&self.cache, |all| {
            all.iter().any(|(place, bound)| inside(place) && bound.needs(node, secret))
        })
    }
}

/// Writes as the API server itself. Holds the server weakly: the server holds it.
pub struct ServerObjects(Weak<Inner>);

impl ServerObjects {
    pub fn new(server: &ApiServer) -> Self {
        ServerObjects(Arc::downgrade(&server.0))
    }

    async fn write(
        &self,
        verb: Verb,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, WriteError> {
        let name = name_of(&object);
        let Some(server) = self.0.upgrade().map(ApiServer) else {
            let reason = "the server is stopping".into();
            return Err(WriteError::Failed { resource: resource.into(), name, reason });
        };
        let written = server.write_as_server(verb, group, resource, namespace, object).await;
        written.map_err(|why| told(resource, name, why))
    }
}

#[async_trait]
impl Objects for ServerObjects {
    async fn create(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, WriteError> {
        self.write(Verb::Create, group, resource, namespace, object).await
    }

    async fn update(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, WriteError> {
        self.write(Verb::Update, group, resource, namespace, object).await
    }
}

impl ApiServer {
    /// A write of the server's own, through the same checks as anybody's but those of rights.
    pub(crate) async fn write_as_server(
        &self,
        verb: Verb,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Value, ApiError> {
        let catalogue = self.registry.catalogue();
        let stored = Resource::new(group, resource);
        let served = catalogue
            .stored(&stored)
            .ok_or_else(|| ApiError::internal(format!("{resource}.{group} is not served")))?;
        let request = ResourceRequest {
            verb,
            group: group.into(),
            version: served.kind.version.clone(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: namespace.into(),
            name: name_of(&object),
        };
        let user = Arc::new(User {
            name: "system:apiserver".into(),
            groups: vec![MASTERS.into()],
            ..User::default()
        });
        let (query, headers) = (Query::default(), HeaderMap::new());
        let call = Call {
            served,
            request: &request,
            query: &query,
            headers: &headers,
            body: Bytes::new(),
            user: &user,
            seat: None,
            warnings: &Warnings::default(),
        };
        let decoded = crate::rest::decode::accept(
            &call,
            object,
            Vec::new(),
            crate::rest::options::FieldValidation::Strict,
        )?;
        let written = match verb {
            Verb::Create => self.create_object(&call, decoded, false).await?,
            _ => self.modify(&call, Part::Main, false, |_| Ok(decoded.clone())).await?,
        };
        match written {
            Written::Stored(object) => {
                // Whoever wrote through the server reads through its cache next.
                let _ = self.cache.wait_for(object.revision).await;
                Ok(object.to_value())
            }
            Written::Imagined(object) => Ok(object),
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_string()
}

fn told(resource: &str, name: String, why: ApiError) -> WriteError {
    let resource = resource.to_string();
    if why.is_already_exists() {
        WriteError::AlreadyExists { resource, name }
    } else if why.is_conflict() {
        WriteError::Conflict { resource, name }
    } else if why.is_not_found() {
        WriteError::NotFound { resource, name }
    } else {
        WriteError::Failed { resource, name, reason: why.to_string() }
    }
}
