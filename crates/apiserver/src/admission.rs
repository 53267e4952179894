//! What may happen to an object, beyond what its kind says: checks that look at other objects or
//! at who is asking.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::namespace,
};
use sheaf_store::{Expect, Revision};

use crate::{
    ApiServer,
    authorization::{escalation, node},
    cache::{Resource, place},
    identity::{api_tokens, users},
    identity_view::CachedDirectory,
    rest::{Call, update::Part},
    status::{ApiError, Named},
    subresources::refused,
};

/// What is about to happen.
pub enum Operation<'a> {
    Create { new: &'a mut Value },
    Update { new: &'a mut Value, old: &'a Value, part: Part },
    Delete { old: &'a Value },
}

impl ApiServer {
    /// Lets the operation pass, completes it, or says why not.
    pub(crate) async fn admit(&self, call: &Call<'_>, operation: Operation<'_>) -> Result<(), ApiError> {
        match operation {
            Operation::Create { new } => {
                self.admit_into_namespace(call, new).await?;
                self.admit_rights(call, new, None)?;
                self.admit_username(call, new, None).await?;
                self.admit_node(call, Some(new), None)
            }
            Operation::Update { new, old, part } => {
                if part == Part::Main {
                    self.admit_rights(call, new, Some(old))?;
                    self.admit_username(call, new, Some(old)).await?;
                }
                self.admit_node(call, Some(new), Some(old))
            }
            Operation::Delete { old } => {
                admit_namespace_deletion(call, old)?;
                self.admit_node(call, None, Some(old))
            }
        }
    }

    /// That the namespace of a request still is as the cache has it, and open: for the transaction that writes
    /// into it.
    pub(crate) fn namespace_as_seen(&self, call: &Call<'_>) -> Option<Expect> {
        if call.request.namespace.is_empty() {
            return None;
        }
        let namespaces = Resource::new("", "namespaces");
        let place = place("", &call.request.namespace);
        let key = namespaces.store_key(&place);
        Some(match self.cache.get(&namespaces, &place) {
            Some(seen) if !is_terminating(&seen.to_value()) => {
                Expect::ModifiedAt { key, revision: Revision(seen.revision) }
            }
            // It went, or began to, after it was looked at: the write fails, and the next look says why.
            _ => Expect::ModifiedAt { key, revision: Revision(u64::MAX) },
        })
    }

    /// Objects live in namespaces that exist and are not on their way out.
    async fn admit_into_namespace(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        let namespace = &call.request.namespace;
        if namespace.is_empty() {
            return Ok(());
        }
        let resource = Resource::new("", "namespaces");
        let place = place("", namespace);
        let mut found = self.cache.get(&resource, &place);
        if found.is_none() {
            // Perhaps it was made a moment ago, through another server.
            self.reach(crate::rest::options::Freshness::Latest).await?;
            found = self.cache.get(&resource, &place);
        }
        let Some(found) = found else {
            return Err(ApiError::not_found(Named { group: "", resource: "namespaces" }, namespace));
        };
        if is_terminating(&found.to_value()) {
            let name = new["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::namespace_terminating(call.named(), name, namespace));
        }
        Ok(())
    }
}

impl ApiServer {
    /// Nobody grants what they do not hold.
    fn admit_rights(&self, call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let written = escalation::Written {
            group: &call.request.group,
            resource: &call.request.resource,
            namespace: &call.request.namespace,
            old,
            new,
        };
        escalation::check(&self.authorizer, call.user, &written).map_err(refused)
    }

    /// A username stands for one person. Two writers at the same moment may both find one free; the login settles
    /// that, see [`users::holder`].
    async fn admit_username(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        let is_settled = old.is_some_and(|old| old["username"] == new["username"]);
        if kind.group != api_tokens::GROUP || kind.plural != api_tokens::USERS || is_settled {
            return Ok(());
        }
        // It may have been given a moment ago, through another server.
        self.reach(crate::rest::options::Freshness::Latest).await?;
        let directory = CachedDirectory::new(self.cache.clone());
        let username = new["username"].as_str().unwrap_or_default();
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        match users::holder(&directory, username) {
            // One of the same name is that very user: it exists already, and that is what is said of it.
            Some(holder) if holder["metadata"]["name"] != name => {
                let duplicate = FieldError::duplicate(&FieldPath::new("username"), username);
                Err(ApiError::invalid(&kind.group, &kind.kind, name, &[duplicate]))
            }
            _ => Ok(()),
        }
    }

    /// A node touches its own objects only, whatever roles it was given.
    fn admit_node(&self, call: &Call<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
        let written = node::Written {
            operation: match (new, old) {
                (Some(_), None) => node::Operation::Create,
                (Some(_), Some(_)) => node::Operation::Update,
                (None, _) => node::Operation::Delete,
            },
            group: &call.request.group,
            resource: &call.request.resource,
            subresource: &call.request.subresource,
            namespace: &call.request.namespace,
            name: node::written_name(&call.request.name, new),
            old,
            new,
        };
        node::admit(call.user, &written).map_err(refused)
    }
}

fn is_terminating(namespace: &Value) -> bool {
    namespace["status"]["phase"] == "Terminating"
}

fn admit_namespace_deletion(call: &Call<'_>, old: &Value) -> Result<(), ApiError> {
    let kind = &call.served.kind;
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    if kind.group.is_empty() && kind.plural == "namespaces" && namespace::IMMORTAL.contains(&name) {
        return Err(ApiError::refused(call.named(), name, "this namespace may not be deleted"));
    }
    Ok(())
}
