//! Gives service accounts their tokens, and tells the world how to check them (OpenID discovery).

use std::sync::Arc;

use serde_json::{Value, json};
use sheaf_world::{Timestamp, World};

use super::claims::{Claims, Kubernetes, LEGACY_ISSUER, LegacyClaims, Reference};
use crate::identity::{
    Cause, Directory, Refusal, SigningKeys,
    objects::{text, texts, uid},
    user::service_account_name,
};

const DEFAULT_EXPIRATION_SECS: i64 = 3600;
const MIN_EXPIRATION_SECS: i64 = 600;
const GROUP: &str = "authentication.k8s.io";

#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// What `iss` says, and where [`TokenIssuer::discovery`] is served.
    pub issuer: String,
    /// Who the API server is to a token: one of these must be among its audiences. The first are the
    /// audiences of a token that asks for none.
    pub audiences: Vec<String>,
    /// A token that asks for longer gets this.
    pub max_expiration_secs: i64,
}

#[derive(Clone, Debug)]
pub struct ServiceAccount<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// What a token dies with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundObject {
    Secret {
        name: String,
        uid: String,
    },
    /// `node` is where the pod runs, carried along so that those who read the token know.
    Pod {
        name: String,
        uid: String,
        node: Option<(String, String)>,
    },
    Node {
        name: String,
        uid: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    pub jwt: String,
    pub expires: Timestamp,
}

#[derive(Debug)]
pub struct TokenIssuer {
    keys: Arc<SigningKeys>,
    settings: TokenSettings,
    world: World,
}

impl TokenIssuer {
    pub fn new(keys: Arc<SigningKeys>, settings: TokenSettings, world: World) -> Self {
        TokenIssuer { keys, settings, world }
    }

    /// A token that expires. `expiration_secs` below ten minutes is raised, above the setting lowered; whether
    /// the asker should be told so is [`request`](TokenIssuer::request)'s concern.
    pub fn issue(
        &self,
        account: &ServiceAccount<'_>,
        audiences: &[String],
        expiration_secs: Option<i64>,
        bound: Option<&BoundObject>,
    ) -> IssuedToken {
        let longest = self.settings.max_expiration_secs.max(MIN_EXPIRATION_SECS);
        let lifetime = expiration_secs.unwrap_or(DEFAULT_EXPIRATION_SECS).clamp(MIN_EXPIRATION_SECS, longest);
        let now = self.world.clock.now().as_second();
        let reference =
            |name: &str, uid: &str| Some(Reference { name: name.to_owned(), uid: uid.to_owned() });
        let (secret, pod, node) = match bound {
            None => (None, None, None),
            Some(BoundObject::Secret { name, uid }) => (reference(name, uid), None, None),
            Some(BoundObject::Pod { name, uid, node }) => {
                (None, reference(name, uid), node.as_ref().and_then(|(name, uid)| reference(name, uid)))
            }
            Some(BoundObject::Node { name, uid }) => (None, None, reference(name, uid)),
        };
        let audiences = if audiences.is_empty() { &self.settings.audiences } else { audiences };
        let claims = Claims {
            aud: audiences.to_vec(),
            exp: now + lifetime,
            iat: now,
            iss: self.settings.issuer.clone(),
            jti: Some(self.world.chance.uuid()),
            kubernetes: Kubernetes {
                namespace: account.namespace.to_owned(),
                node,
                pod,
                secret,
                serviceaccount: Reference { name: account.name.to_owned(), uid: account.uid.to_owned() },
                warnafter: None,
            },
            nbf: now,
            sub: service_account_name(account.namespace, account.name),
        };
        let expires = Timestamp::from_second(claims.exp).unwrap_or(Timestamp::MAX);
        IssuedToken { jwt: self.keys.sign(&json!(claims)), expires }
    }

    /// The token for a Secret of type `kubernetes.io/service-account-token`: without an end, good only while
    /// that Secret holds it.
    pub fn issue_legacy(&self, account: &ServiceAccount<'_>, secret: &str) -> String {
        self.keys.sign(&json!(LegacyClaims {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: account.namespace.to_owned(),
            secret: secret.to_owned(),
            name: account.name.to_owned(),
            uid: account.uid.to_owned(),
            sub: service_account_name(account.namespace, account.name),
        }))
    }

    /// Answers a `TokenRequest` posted to the token subresource of a service account.
    pub fn request(
        &self,
        directory: &dyn Directory,
        namespace: &str,
        name: &str,
        body: &Value,
    ) -> Result<Value, Refusal> {
        let account = directory.object("", "serviceaccounts", namespace, name).ok_or_else(|| {
            Refusal::NotFound { group: String::new(), resource: "serviceaccounts".into(), name: name.into() }
        })?;
        let expiration_secs = requested_expiration(body)?;
        let bound = match body.pointer("/spec/boundObjectRef") {
            None | Some(Value::Null) => None,
            Some(reference) => Some(bound_object(directory, namespace, name, reference)?),
        };
        let audiences = texts(body, "/spec/audiences");
        let account = ServiceAccount { namespace, name, uid: uid(&account) };
        let issued = self.issue(&account, &audiences, Some(expiration_secs), bound.as_ref());

        let mut answer = body.clone();
        answer["apiVersion"] = json!("authentication.k8s.io/v1");
        answer["kind"] = json!("TokenRequest");
        answer["metadata"] =
            json!({ "name": name, "namespace": namespace, "creationTimestamp": self.world.clock.rfc3339() });
        let granted = issued.expires.as_second() - self.world.clock.now().as_second();
        answer["spec"]["audiences"] =
            json!(if audiences.is_empty() { &self.settings.audiences } else { &audiences });
        answer["spec"]["expirationSeconds"] = json!(granted);
        answer["status"] = json!({
            "token": issued.jwt,
            "expirationTimestamp": issued.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        Ok(answer)
    }

    /// What `/.well-known/openid-configuration` answers.
    pub fn discovery(&self) -> Value {
        json!({
            "issuer": self.settings.issuer,
            "jwks_uri": format!("{}/openid/v1/jwks", self.settings.issuer.trim_end_matches('/')),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// What `/openid/v1/jwks` answers, as `application/jwk-set+json`.
    pub fn jwks(&self) -> Value {
        self.keys.jwks()
    }
}

fn requested_expiration(body: &Value) -> Result<i64, Refusal> {
    let asked = body.pointer("/spec/expirationSeconds").unwrap_or(&Value::Null);
    let detail = match asked {
        Value::Null => return Ok(DEFAULT_EXPIRATION_SECS),
        asked => match asked.as_i64() {
            Some(seconds) if seconds < MIN_EXPIRATION_SECS => {
                "may not specify a duration less than 10 minutes"
            }
            Some(seconds) if seconds > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
            Some(seconds) => return Ok(seconds),
            None => "must be a whole number of seconds",
        },
    };
    Err(Refusal::Invalid {
        group: GROUP,
        kind: "TokenRequest",
        name: String::new(),
        causes: vec![Cause::new("spec.expirationSeconds", asked.clone(), detail)],
    })
}

fn bound_object(
    directory: &dyn Directory,
    namespace: &str,
    account: &str,
    reference: &Value,
) -> Result<BoundObject, Refusal> {
    let (api_version, kind) = (text(reference, "/apiVersion"), text(reference, "/kind"));
    let name = text(reference, "/name");
    let (resource, namespace) = match (api_version, kind) {
        ("v1" | "", "Pod") => ("pods", namespace),
        ("v1" | "", "Secret") => ("secrets", namespace),
        ("v1" | "", "Node") => ("nodes", ""),
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Refusal::BadRequest { message });
        }
    };
    let object = directory.object("", resource, namespace, name).ok_or_else(|| Refusal::NotFound {
        group: String::new(),
        resource: resource.into(),
        name: name.into(),
    })?;
    let (found, expected) = (uid(&object), text(reference, "/uid"));
    if !expected.is_empty() && expected != found {
        return Err(Refusal::Conflict {
            group: String::new(),
            resource: kind.into(),
            name: name.into(),
            message: format!(
                "the UID in the bound object reference ({expected}) does not match the UID in record. The \
                 object might have been deleted and then recreated"
            ),
        });
    }
    let (name, uid_found) = (name.to_owned(), found.to_owned());
    Ok(match kind {
        "Secret" => BoundObject::Secret { name, uid: uid_found },
        "Node" => BoundObject::Node { name, uid: uid_found },
        _ => {
            let runs_as = text(&object, "/spec/serviceAccountName");
            if runs_as != account {
                let message = format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different \
                     serviceaccount name."
                );
                return Err(Refusal::BadRequest { message });
            }
            let node_name = text(&object, "/spec/nodeName");
            let node = directory
                .object("", "nodes", "", node_name)
                .map(|node| (node_name.to_owned(), uid(&node).to_owned()));
            BoundObject::Pod { name, uid: uid_found, node }
        }
    })
}
