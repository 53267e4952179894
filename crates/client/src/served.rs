//! Which resources the API serves at this moment.
//!
//! Read anew by whoever needs it, since custom resources come and go. A group version that
//! could not be asked is named, never taken for empty: what lives there is unknown, not absent.

use std::{collections::BTreeMap, sync::Arc};

use http::{Request, header::ACCEPT};
use kube::{
    Client,
    core::{
        ApiResource,
        discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList},
    },
};

use crate::objects::within_deadline;

/// The form of discovery in which two replies tell everything.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One resource in the version the server prefers.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedResource {
    pub resource: ApiResource,
    pub namespaced: bool,
    pub verbs: Vec<String>,
}

impl ServedResource {
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|held| held == verb)
    }
}

/// Group and plural: the name of a resource whatever its version.
pub type ResourceName = (String, String);

#[derive(Clone, Debug, Default)]
pub struct Served {
    pub resources: BTreeMap<ResourceName, ServedResource>,
    /// By apiVersion and kind, in every version served.
    kinds: BTreeMap<(String, String), ResourceName>,
    /// Group versions that could not be asked, and why.
    pub undiscovered: BTreeMap<String, String>,
}

/// Asks the API for what it serves, again and again. A reply that says the same as the one before is not parsed again: it is long,
/// and seldom anything changes.
#[derive(Debug, Default)]
pub struct Discovery {
    replies: Vec<String>,
    served: Arc<Served>,
}

impl Discovery {
    pub async fn ask(&mut self, client: &Client) -> Result<Arc<Served>, kube::Error> {
        let mut replies = Vec::new();
        for path in ["/api", "/apis"] {
            let request = Request::get(path).header(ACCEPT, AGGREGATED).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError)?;
            replies.push(within_deadline(client.request_text(request)).await?);
        }
        if replies != self.replies {
            let mut served = Served::default();
            for reply in &replies {
                let list: APIGroupDiscoveryList =
                    serde_json::from_str(reply).map_err(kube::Error::SerdeError)?;
                list.items.into_iter().for_each(|group| served.add(group));
            }
            (self.replies, self.served) = (replies, Arc::new(served));
        }
        Ok(Arc::clone(&self.served))
    }
}

impl Served {
    /// Asks the API once.
    pub async fn discover(client: &Client) -> Result<Arc<Self>, kube::Error> {
        Discovery::default().ask(client).await
    }

    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&ServedResource> {
        let name = self.kinds.get(&(api_version.to_owned(), kind.to_owned()))?;
        self.resources.get(name)
    }

    /// Versions come best first, so the first to name a resource is the one to use.
    fn add(&mut self, discovered: APIGroupDiscovery) {
        let group = discovered.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for discovered in discovered.versions {
            let version = discovered.version.unwrap_or_default();
            let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
            if discovered.freshness.as_deref() == Some("Stale") {
                let why = "stale GroupVersion discovery".to_owned();
                self.undiscovered.insert(api_version.clone(), why);
            }
            for entry in discovered.resources {
                let plural = entry.resource.unwrap_or_default();
                let kind = entry.response_kind.and_then(|kind| kind.kind).unwrap_or_default();
                if plural.is_empty() || kind.is_empty() {
                    continue;
                }
                let name = (group.clone(), plural.clone());
                self.kinds.insert((api_version.clone(), kind.clone()), name.clone());
                self.resources.entry(name).or_insert_with(|| ServedResource {
                    resource: ApiResource {
                        group: group.clone(),
                        version: version.clone(),
                        api_version: api_version.clone(),
                        kind,
                        plural,
                    },
                    namespaced: entry.scope.as_deref() == Some("Namespaced"),
                    verbs: entry.verbs,
                });
            }
        }
    }
}
