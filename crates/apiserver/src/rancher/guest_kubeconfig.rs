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

use super::{Asked, clusters::kubeconfig};
use crate::{
    ApiServer,
    cache::{Resource, place},
    identity::objects::{text, uid},
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
    steve::errand::{Errand, JSON},
};

const RBAC: &str = "rbac.authorization.k8s.io";
const CLOUD_PROVIDER: &str = "harvesterhci.io:cloudprovider";
const CSI_DRIVER: &str = "harvesterhci.io:csi-driver";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// A controller fills the Secret.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
const SECRETS: Named<'static> = Named { group: "", resource: "secrets" };
const ACCOUNTS: (&str, &str, &str) = ("", "v1", "serviceaccounts");
const TOKENS: (&str, &str, &str) = ("", "v1", "secrets");
const BINDINGS: (&str, &str, &str) = (RBAC, "v1", "rolebindings");
const CLUSTER_BINDINGS: (&str, &str, &str) = (RBAC, "v1", "clusterrolebindings");

/// Whom it is for.
struct Guest<'a> {
    namespace: &'a str,
    account: &'a str,
    secret: String,
    /// Of both bindings.
    binding: String,
}

/// One object of all that it takes.
struct Wanted<'a> {
    kind: (&'static str, &'static str, &'static str),
    /// Empty for what has none.
    namespace: &'a str,
    name: &'a str,
    body: Value,
}

impl Wanted<'_> {
    fn create(&self) -> Errand {
        Errand::new(Verb::Create, self.kind, self.namespace, "").with(JSON, self.body.clone())
    }

    fn get(&self) -> Errand {
        Errand::new(Verb::Get, self.kind, self.namespace, self.name)
    }
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
        let wanted = wanted(guest, None);
        for one in &wanted {
            self.would_be_made(asked, one).await?;
        }
        // Whoever makes a kubeconfig reads the Secret in it.
        match self.guest_secret(asked, guest).await {
            Err(why) if why.is_not_found() => {}
            secret => {
                let account = self.guest_account(asked, guest).await?;
                is_of_account(guest, &account, &secret?)?;
            }
        }

        self.make(asked, &wanted[0]).await?;
        let account = self.guest_account(asked, guest).await?;
        for one in self::wanted(guest, Some(&account)).iter().skip(1) {
            self.make(asked, one).await?;
        }

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

    /// Whether whoever asks may make it and nothing else is in its place. Nothing is made, and nobody learns of it what
    /// they could not learn by themselves.
    async fn would_be_made(&self, asked: &Asked<'_>, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        let tried = asked.errands.ask(&wanted.create().asking("dryRun=All".into())).await;
        let already = match tried {
            Err(why) if why.is_already_exists() => why,
            tried => return tried.map(drop),
        };
        if wanted.body.get("roleRef").is_none() {
            return Ok(());
        }
        // What it binds is for who may read it.
        let found = match asked.errands.ask(&wanted.get()).await {
            Err(why) if why.reason() == "Forbidden" => return Err(already),
            found => found?,
        };
        match is_another_binding(&found, &wanted.body) {
            false => Ok(()),
            true => {
                let named = Named { group: wanted.kind.0, resource: wanted.kind.2 };
                Err(ApiError::conflict(named, wanted.name, "it is there and binds something else"))
            }
        }
    }

    async fn make(&self, asked: &Asked<'_>, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        match asked.errands.ask(&wanted.create()).await {
            Err(why) if why.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    }

    async fn guest_account(&self, asked: &Asked<'_>, guest: &Guest<'_>) -> Result<Value, ApiError> {
        asked.errands.ask(&Errand::new(Verb::Get, ACCOUNTS, guest.namespace, guest.account)).await
    }

    async fn guest_secret(&self, asked: &Asked<'_>, guest: &Guest<'_>) -> Result<Value, ApiError> {
        asked.errands.ask(&Errand::new(Verb::Get, TOKENS, guest.namespace, &guest.secret)).await
    }

    /// Where guest clusters find the API.
    fn guest_server(&self) -> Result<String, ApiError> {
        let vip = self.cache.get(&Resource::new("", "configmaps"), &place(HARVESTER_SYSTEM, "vip"));
        let vip = vip.map(|vip| vip.to_value()).unwrap_or_default();
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

/// All that it takes, the account first: the others are its own, once it is there.
fn wanted<'a>(guest: &'a Guest<'_>, account: Option<&Value>) -> [Wanted<'a>; 4] {
    let (role, cluster_role) = bindings(guest, account);
    let named = Value::Null;
    let secret = token_secret(guest, account.unwrap_or(&named));
    let (namespace, name) = (guest.namespace, guest.account);
    let body = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
    });
    [
        Wanted { kind: ACCOUNTS, namespace, name, body },
        Wanted { kind: TOKENS, namespace, name: &guest.secret, body: secret },
        Wanted { kind: BINDINGS, namespace, name: &guest.binding, body: role },
        Wanted { kind: CLUSTER_BINDINGS, namespace: "", name: &guest.binding, body: cluster_role },
    ]
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
    what(found) != what(wanted)
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
