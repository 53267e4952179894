//! One command's conversation with a cluster: requests, and refusals in words.
//!
//! Objects are passed as JSON and not as types: what a newer cluster knows and this program does not is kept as it is.

use std::time::Duration;

use http::{Method, Request, header};
use serde_json::Value;
use sheaf_world::World;
use tokio::time::timeout;

use super::{
    Access, Format, Refusal, Resource,
    format::without_owners,
    names,
    out::Out,
    refusal::{first_cause, sentence},
    resource::NAMESPACES,
    table::Moment,
};
use crate::{cluster::Cluster, nearest_name::nearest};

/// How long somebody at a keyboard waits for an answer.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
pub const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

pub struct Session {
    pub cluster: Cluster,
    /// Where things are that name no other.
    pub namespace: String,
    /// Whether somebody said so, in this very command.
    pub names_a_namespace: bool,
    pub format: Format,
    pub out: Out,
    pub world: World,
    pub access: Access,
}

impl Session {
    pub async fn open(access: &Access, format: Format, out: Out, world: World) -> Result<Session, Refusal> {
        let cluster = Cluster::of(access).await?;
        let namespace = access.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
        // That of a context is whatever somebody wrote into a file, and becomes a part of addresses.
        names::object(&namespace)
            .map_err(|why| Refusal::Wrong(format!("the namespace {namespace:?}: {why}")))?;
        let names_a_namespace = access.namespace.is_some();
        Ok(Session { cluster, namespace, names_a_namespace, format, out, world, access: access.clone() })
    }

    pub fn server(&self) -> String {
        self.cluster.streams.server().to_string().trim_end_matches('/').to_owned()
    }

    pub fn moment(&self) -> Moment {
        Moment { now: self.world.clock.now().as_second() }
    }

    /// One object. Where there is none of that name, the nearest there is is told.
    pub async fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, Refusal> {
        is_a_name(resource, namespace, name)?;
        let doing = format!("read the {}", resource.about(namespace, name));
        match self.ask(Method::GET, &resource.path(namespace, name), None, &doing).await {
            Err(why) if why.is_not_found() => Err(self.missing(resource, namespace, name).await),
            answer => answer.map(without_owners),
        }
    }

    /// The same, or none.
    pub async fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Refusal> {
        is_a_name(resource, namespace, name)?;
        let doing = format!("read the {}", resource.about(namespace, name));
        match self.ask(Method::GET, &resource.path(namespace, name), None, &doing).await {
            Err(why) if why.is_not_found() => Ok(None),
            answer => answer.map(|object| Some(without_owners(object))),
        }
    }

    /// All of one namespace; an empty one stands for all. `query` begins with `?` or is empty.
    pub async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        query: &str,
    ) -> Result<Vec<Value>, Refusal> {
        let doing = format!("list {}", plural(&resource.called));
        let path = format!("{}{query}", resource.collection(namespace));
        let mut list = self.ask(Method::GET, &path, None, &doing).await?;
        let (api_version, kind) = (resource.api_version(), resource.kind.to_string());
        let items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        // Items of a list do not say what they are; printed alone, they must.
        let dressed = |item: Value| {
            let mut item = without_owners(item);
            item["apiVersion"] = api_version.clone().into();
            item["kind"] = kind.clone().into();
            item
        };
        Ok(items.into_iter().map(dressed).collect())
    }

    /// Where a list of the namespace that somebody typed is empty, whether there is such a namespace at all: who mistyped it
    /// is not to believe that everything is gone.
    pub async fn is_a_place(
        &self,
        resource: &Resource,
        namespace: &str,
        is_empty: bool,
    ) -> Result<(), Refusal> {
        if !is_empty || !resource.is_namespaced || namespace.is_empty() || !self.names_a_namespace {
            return Ok(());
        }
        match self.get(&NAMESPACES, "", namespace).await {
            // Who may not look is told no more than that there is nothing.
            Err(why @ Refusal::NotFound { .. }) => Err(why),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub async fn create(&self, resource: &Resource, object: &Value) -> Result<Value, Refusal> {
        self.create_with(resource, object, "").await
    }

    pub async fn create_with(
        &self,
        resource: &Resource,
        object: &Value,
        query: &str,
    ) -> Result<Value, Refusal> {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let name = if text("name").is_empty() { text("generateName") } else { text("name") };
        let doing = format!("make the {}", resource.about(text("namespace"), name));
        let path = format!("{}{query}", resource.collection(text("namespace")));
        self.ask(Method::POST, &path, Some(object), &doing).await.map(without_owners)
    }

    /// Changes what `change` says, as a merge patch.
    pub async fn change(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        change: &Value,
    ) -> Result<Value, Refusal> {
        let doing = format!("change the {}", resource.about(namespace, name));
        let path = resource.path(namespace, name);
        let body = change.to_string().into_bytes();
        match self.send(Method::PATCH, &path, MERGE_PATCH, body, &doing).await {
            Err(why) if why.is_not_found() => Err(self.missing(resource, namespace, name).await),
            answer => Ok(without_owners(read(&answer?, &doing)?)),
        }
    }

    /// Deletes it, and answers what is left of it for now.
    pub async fn delete(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, Refusal> {
        let doing = format!("delete the {}", resource.about(namespace, name));
        match self.ask(Method::DELETE, &resource.path(namespace, name), None, &doing).await {
            Err(why) if why.is_not_found() => Err(self.missing(resource, namespace, name).await),
            answer => answer,
        }
    }

    /// What Harvester's console would do to it.
    pub async fn act(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        action: &str,
        input: &Value,
        doing: &str,
    ) -> Result<Value, Refusal> {
        match self.ask(Method::POST, &resource.action(namespace, name, action), Some(input), doing).await {
            Err(why) if why.is_not_found() => Err(self.missing(resource, namespace, name).await),
            answer => answer,
        }
    }

    /// Any request; what is answered is JSON, or nothing.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        doing: &str,
    ) -> Result<Value, Refusal> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        read(&self.send(method, path, JSON, body, doing).await?, doing)
    }

    /// The same with a body of any type, answered as text.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
        doing: &str,
    ) -> Result<String, Refusal> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, JSON);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(body).map_err(|why| Refusal::cannot(doing, why))?;
        let answer = timeout(ANSWER_PATIENCE, self.cluster.objects.request_text(request)).await;
        match answer {
            Ok(answer) => answer.map_err(|why| self.refused(why, doing)),
            Err(_) => Err(self.silent()),
        }
    }

    /// Somebody took the connection and says nothing.
    pub fn silent(&self) -> Refusal {
        let why = format!("no answer within {} s", ANSWER_PATIENCE.as_secs());
        Refusal::Unreachable { server: self.server(), why }
    }

    /// What a refusal means to a person.
    pub fn refused(&self, why: kube::Error, doing: &str) -> Refusal {
        let doing = doing.to_owned();
        let status = match why {
            kube::Error::Api(status) => status,
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::HttpError(_) => {
                return Refusal::cannot(&doing, why);
            }
            other => return Refusal::Unreachable { server: self.server(), why: first_cause(&other) },
        };
        let message = sentence(&status.message);
        match status.code {
            401 => Refusal::NotSignedIn { server: self.server(), kubeconfig: self.access.paths() },
            403 => Refusal::Forbidden { doing, message },
            404 => Refusal::Missing { doing, message },
            409 => Refusal::Conflict { doing, message },
            _ => Refusal::Refused { doing, message },
        }
    }

    async fn missing(&self, resource: &Resource, namespace: &str, name: &str) -> Refusal {
        let there = self.list(resource, namespace, "").await.unwrap_or_default();
        let names: Vec<&str> = there.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
        let meant = nearest(name, names.iter().copied()).map(str::to_owned);
        let advice = match (names.len(), resource.is_namespaced) {
            (0, true) => format!("there is none in namespace {namespace}; -n names another"),
            (0, false) => "there is none at all".to_owned(),
            (1..=5, _) => format!("there is {}", names.join(", ")),
            (count, _) => format!("there are {count} others"),
        };
        Refusal::NotFound { about: resource.about(namespace, name), meant, advice }
    }
}

/// Names come from objects, too, which others write.
fn is_a_name(resource: &Resource, namespace: &str, name: &str) -> Result<(), Refusal> {
    let checked = names::segment(name).and_then(|_| match resource.is_namespaced {
        true => names::object(namespace),
        false => Ok(String::new()),
    });
    checked.map(drop).map_err(|why| Refusal::Wrong(format!("{}: {why}", resource.about(namespace, name))))
}

fn read(text: &str, doing: &str) -> Result<Value, Refusal> {
    match text.is_empty() {
        true => Ok(Value::Null),
        false => serde_json::from_str(text).map_err(|why| Refusal::cannot(doing, why)),
    }
}

/// Of what people call a kind.
pub fn plural(called: &str) -> String {
    match called.strip_suffix("class") {
        Some(_) => format!("{called}es"),
        None => format!("{called}s"),
    }
}
