//! Which resources the API serves at this moment.
//!
//! Read anew by whoever needs it, since custom resources come and go. A group version that
//! could not be asked is named, never taken for empty: what lives there is unknown, not absent.

use std::collections::BTreeMap;

use kube::{Client, core::ApiResource, core::discovery::v2::APIGroupDiscovery};

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

impl Served {
    /// Asks the API.
    pub async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let mut served = Served::default();
        let core = client.list_core_api_versions_aggregated().await?;
        let named = client.list_api_groups_aggregated().await?;
        for group in core.items.into_iter().chain(named.items) {
            served.add(group);
        }
        Ok(served)
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
