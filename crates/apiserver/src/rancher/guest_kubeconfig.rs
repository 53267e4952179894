//! `/v1/harvester/kubeconfig`: what the cloud provider and the CSI driver of a guest cluster sign in with.
//!
//! It makes a service account, a Secret with its token and two bindings, as whoever asks would by hand: what they may not
//! make or bind is refused, and then nothing is made. What is there already is used when it is what would have been made,
//! and otherwise named as what stands in the way: a Secret that somebody else filled must not become a kubeconfig.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};
use sheaf_resources::kinds::namespace::HARVESTER_SYSTEM;
use tokio::time::{Instant, sleep};

use super::{Asked, clusters::kubeconfig, inward::Wanted};
use crate::{
    ApiServer,
    cache::{Resource, place},
    identity::objects::{text, uid},
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
};

const RBAC: &str = "rbac.authorization.k8s.io";
const CLOUD_PROVIDER: &str = "harvesterhci.io:cloudprovider";
const CSI_DRIVER: &str = "harvesterhci.io:csi-driver";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// A controller fills the Secret.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
const SECRETS: Named<'static> = Named { group: "", resource: "secrets" };

/// Whom it is for.
struct Guest<'a> {
    namespace: &'a str,
    account: &'a str,
    secret: String,
    /// Of both bindings.
    binding: String,
}

impl ApiServer {
    pub(super) async fn answer_guest_kubeconfig(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        let (namespace, account, format) = match asked.parts.method {
            Method::POST => {
                for (field, role) in [("clusterRoleName", CLOUD_PROVIDER), ("csiclusterRoleName", CSI_DRIVER)]
                {
                    let said = asked.text(field);
                    if !said.is_empty() && said != role {
                        let why = format!("{field} may be {role:?} or nothing, not {said:?}");
                        return Err(ApiError::unprocessable(why));
                    }
                }
                (asked.text("namespace"), asked.text("serviceAccountName"), asked.text("outputFormat"))
            }
            Method::GET => {
                let said = |key: &str| asked.query.get(key).unwrap_or_default();
                (said("namespace"), said("serviceAccountName"), said("outputFormat"))
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        if namespace.is_empty() || account.is_empty() {
            return Err(ApiError::unprocessable("namespace and serviceAccountName must be said"));
        }
        if !["", "json", "yaml"].contains(&format) {
            return Err(ApiError::unprocessable(format!("outputFormat may be json or yaml, not {format:?}")));
        }
        let guest = Guest {
            namespace,
            account,
            secret: format!("{account}-token"),
            binding: format!("{namespace}-{account}"),
        };
        self.reach(Freshness::Latest).await?;
        let server = self.guest_server()?;
        let secret = match asked.parts.method {
            Method::POST => self.make_guest(asked, &guest).await?,
            _ => {
                let account = self.guest_account(asked, &guest).await?;
                let secret = self.guest_secret(asked, &guest).await?;
                is_of_account(&guest, &account, &secret)?;
                secret
            }
        };
        let (ca, token) = (decoded(&secret, "/data/ca.crt"), decoded(&secret, "/data/token"));
        if ca.is_empty() || token.is_empty() {
            let why = "it has no token yet; is the control plane well?";
            return Err(ApiError::conflict(SECRETS, &guest.secret, why));
        }
        let config = kubeconfig("default", &server, &ca, &token, namespace)?;
        Ok(match format {
            "yaml" => respond::bytes_of_type(success::OK, "application/x-yaml", cloud_init(&config)?),
            _ => respond::json_bytes(success::OK, Value::from(config).to_string()),
        })
    }

    /// Makes what is missing, all or nothing as far as rights go, and answers the Secret once it is filled.
    async fn make_guest(&self, asked: &Asked<'_>, guest: &Guest<'_>) -> Result<Value, ApiError> {
        let (namespace, account) = (guest.namespace, guest.account);
        let account_body = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace},
        });
        let made = |plural: &'static str, group: &'static str| {
            Wanted::new(Verb::Create, group, plural).in_namespace(namespace)
        };
        let (role, cluster_role) = bindings(guest, None);
        let tries = [
            made("serviceaccounts", "").named(account).with(&account_body),
            made("rolebindings", RBAC).named(&guest.binding).with(&role),
            Wanted::new(Verb::Create, RBAC, "clusterrolebindings").named(&guest.binding).with(&cluster_role),
        ];
        for wanted in &tries {
            self.would_be_made(asked, wanted).await?;
        }
        let unbound = token_secret(guest, &json!({}));
        self.would_be_made(asked, &made("secrets", "").named(&guest.secret).with(&unbound)).await?;
        // Whoever makes a kubeconfig reads the Secret in it.
        if let Some(secret) = self.found("", "secrets", namespace, &guest.secret) {
            let account = self.guest_account(asked, guest).await?;
            self.guest_secret(asked, guest).await?;
            is_of_account(guest, &account, &secret)?;
        } else {
            let get = Wanted::new(Verb::Get, "", "secrets").in_namespace(namespace).named(&guest.secret);
            match self.ask_as(asked.user, asked.in_process, &get).await {
                Err(why) if why.is_not_found() => {}
                read => drop(read?),
            }
        }

        self.make(asked, &tries[0]).await?;
        let account = self.guest_account(asked, guest).await?;
        let secret = token_secret(guest, &account);
        self.make(asked, &made("secrets", "").named(&guest.secret).with(&secret)).await?;
        let (role, cluster_role) = bindings(guest, Some(&account));
        self.make(asked, &tries[1].with(&role)).await?;
        self.make(asked, &tries[2].with(&cluster_role)).await?;

        let patience = Instant::now() + PATIENCE;
        loop {
            let secret = self.guest_secret(asked, guest).await?;
            is_of_account(guest, &account, &secret)?;
            let is_filled =
                !decoded(&secret, "/data/token").is_empty() && !decoded(&secret, "/data/ca.crt").is_empty();
            if is_filled || Instant::now() >= patience {
                return Ok(secret);
            }
            sleep(LOOK).await;
        }
    }

    /// Whether whoever asks may make it and nothing else is in its place. Nothing is made.
    async fn would_be_made(&self, asked: &Asked<'_>, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        if let Some(found) = self.found(wanted.group, wanted.resource, wanted.namespace, wanted.name)
            && wanted.body.is_some_and(|body| is_another_binding(&found, body))
        {
            let named = Named { group: wanted.group, resource: wanted.resource };
            return Err(ApiError::conflict(named, wanted.name, "it is there and binds something else"));
        }
        // Of what is there already it is asked all the same whether they could have made it.
        match self.try_as(asked.user, asked.in_process, wanted).await {
            Err(why) if why.is_already_exists() => Ok(()),
            tried => tried.map(drop),
        }
    }

    async fn make(&self, asked: &Asked<'_>, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        match self.ask_as(asked.user, asked.in_process, &wanted.named("")).await {
            Err(why) if why.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    }

    async fn guest_account(&self, asked: &Asked<'_>, guest: &Guest<'_>) -> Result<Value, ApiError> {
        let wanted = Wanted::new(Verb::Get, "", "serviceaccounts").in_namespace(guest.namespace);
        self.ask_as(asked.user, asked.in_process, &wanted.named(guest.account)).await
    }

    async fn guest_secret(&self, asked: &Asked<'_>, guest: &Guest<'_>) -> Result<Value, ApiError> {
        let wanted = Wanted::new(Verb::Get, "", "secrets").in_namespace(guest.namespace);
        self.ask_as(asked.user, asked.in_process, &wanted.named(&guest.secret)).await
    }

    fn found(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        Some(self.cache.get(&Resource::new(group, resource), &place(namespace, name))?.to_value())
    }

    /// Where guest clusters find the API.
    fn guest_server(&self) -> Result<String, ApiError> {
        let vip = self.found("", "configmaps", HARVESTER_SYSTEM, "vip").unwrap_or_default();
        let address = text(&vip, "/data/ip");
        let port = self.config.address.rsplit_once(':').map_or("6443", |(_, port)| port);
        match address.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(address)) => Ok(format!("https://{address}:{port}")),
            Ok(std::net::IpAddr::V6(address)) => Ok(format!("https://[{address}]:{port}")),
            Err(_) => Err(ApiError::internal(format!(
                "ConfigMap {HARVESTER_SYSTEM}/vip says no address: {address:?}"
            ))),
        }
    }
}

fn owner(account: &Value) -> Value {
    json!([{"apiVersion": "v1", "kind": "ServiceAccount", "name": text(account, "/metadata/name"), "uid": uid(account)}])
}

fn token_secret(guest: &Guest<'_>, account: &Value) -> Value {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TOKEN_TYPE,
        "metadata": {
            "name": guest.secret, "namespace": guest.namespace,
            "annotations": {"kubernetes.io/service-account.name": guest.account},
        },
    });
    if !uid(account).is_empty() {
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = uid(account).into();
        secret["metadata"]["ownerReferences"] = owner(account);
    }
    secret
}

/// One for its namespace and one for what is the cluster's.
fn bindings(guest: &Guest<'_>, account: Option<&Value>) -> (Value, Value) {
    let binding = |kind: &str, role: &str| {
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": guest.binding},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": guest.account, "namespace": guest.namespace}],
        });
        if let Some(account) = account {
            binding["metadata"]["ownerReferences"] = owner(account);
        }
        binding
    };
    let mut role = binding("RoleBinding", CLOUD_PROVIDER);
    role["metadata"]["namespace"] = guest.namespace.into();
    (role, binding("ClusterRoleBinding", CSI_DRIVER))
}

fn is_another_binding(found: &Value, wanted: &Value) -> bool {
    let what = |binding: &Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let subjects: Vec<String> = subjects
            .map(|subject| {
                let part = |name: &str| text(subject, name);
                format!("{} {} {}", part("/kind"), part("/namespace"), part("/name"))
            })
            .collect();
        (text(binding, "/roleRef/kind").to_owned(), text(binding, "/roleRef/name").to_owned(), subjects)
    };
    wanted.get("roleRef").is_some() && what(found) != what(wanted)
}

/// Whether the Secret was filled by the cluster for this very account.
fn is_of_account(guest: &Guest<'_>, account: &Value, secret: &Value) -> Result<(), ApiError> {
    let annotations = &secret["metadata"]["annotations"];
    let is_of = text(secret, "/type") == TOKEN_TYPE
        && annotations["kubernetes.io/service-account.name"] == guest.account
        && annotations["kubernetes.io/service-account.uid"] == uid(account);
    match is_of {
        true => Ok(()),
        false => {
            let why = format!("it holds no token of the service account {:?}", guest.account);
            Err(ApiError::conflict(SECRETS, &guest.secret, why))
        }
    }
}

fn decoded(secret: &Value, pointer: &str) -> String {
    let bytes = STANDARD.decode(text(secret, pointer)).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// For the user data of machines that become the guest cluster's nodes.
fn cloud_init(config: &str) -> Result<String, ApiError> {
    let file = |path: &str| {
        json!({
            "path": path, "encoding": "b64", "content": STANDARD.encode(config), "owner": "root:root",
            "permissions": "0600",
        })
    };
    let files =
        ["/etc/kubernetes/cloud-config", "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"];
    let files: Vec<Value> = files.iter().map(|path| file(path)).collect();
    serde_yaml_ng::to_string(&json!({"write_files": files})).map_err(ApiError::internal)
}
