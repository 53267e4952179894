//! The kinds that commands name, and where their objects are.

use std::borrow::Cow;

use kube::core::{ApiResource, gvk::GroupVersionKind};
use serde_json::Value;
use sheaf_resources::path::{self, encoded};

/// One kind, as the API has it and as people call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    pub is_namespaced: bool,
    /// One of them, in a sentence.
    pub called: Cow<'static, str>,
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    called: &'static str,
) -> Resource {
    one(true, group, version, plural, kind, called)
}

const fn of_the_cluster(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    called: &'static str,
) -> Resource {
    one(false, group, version, plural, kind, called)
}

const fn one(
    is_namespaced: bool,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    called: &'static str,
) -> Resource {
    Resource {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed(version),
        plural: Cow::Borrowed(plural),
        kind: Cow::Borrowed(kind),
        is_namespaced,
        called: Cow::Borrowed(called),
    }
}

const HARVESTER: &str = "harvesterhci.io";

pub static MACHINES: Resource =
    namespaced("kubevirt.io", "v1", "virtualmachines", "VirtualMachine", "virtual machine");
pub static INSTANCES: Resource = namespaced(
    "kubevirt.io",
    "v1",
    "virtualmachineinstances",
    "VirtualMachineInstance",
    "running virtual machine",
);
pub static IMAGES: Resource =
    namespaced(HARVESTER, "v1beta1", "virtualmachineimages", "VirtualMachineImage", "image");
pub static KEYS: Resource = namespaced(HARVESTER, "v1beta1", "keypairs", "KeyPair", "key");
pub static TEMPLATES: Resource =
    namespaced(HARVESTER, "v1beta1", "virtualmachinetemplates", "VirtualMachineTemplate", "template");
pub static TEMPLATE_VERSIONS: Resource = namespaced(
    HARVESTER,
    "v1beta1",
    "virtualmachinetemplateversions",
    "VirtualMachineTemplateVersion",
    "version of a template",
);
pub static SNAPSHOTS: Resource =
    namespaced(HARVESTER, "v1beta1", "virtualmachinebackups", "VirtualMachineBackup", "snapshot");
pub static RESTORES: Resource =
    namespaced(HARVESTER, "v1beta1", "virtualmachinerestores", "VirtualMachineRestore", "restore");
pub static SETTINGS: Resource = of_the_cluster(HARVESTER, "v1beta1", "settings", "Setting", "setting");
pub static VOLUMES: Resource =
    namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "volume");
pub static SECRETS: Resource = namespaced("", "v1", "secrets", "Secret", "secret");
pub static EVENTS: Resource = namespaced("", "v1", "events", "Event", "event");
pub static NODES: Resource = of_the_cluster("", "v1", "nodes", "Node", "host");
pub static NAMESPACES: Resource = of_the_cluster("", "v1", "namespaces", "Namespace", "namespace");
pub static CLUSTER_ROLES: Resource =
    of_the_cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", "role");
pub static STORAGE_CLASSES: Resource =
    of_the_cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass", "storage class");
pub static NETWORKS: Resource = namespaced(
    "k8s.cni.cncf.io",
    "v1",
    "network-attachment-definitions",
    "NetworkAttachmentDefinition",
    "network",
);

/// What KubeVirt does to a machine or its instance: `start`, `console`, `portforward/22/tcp`.
pub fn machine_subresource(resource: &str, (namespace, name): (&str, &str), subresource: &str) -> String {
    let root = path::root("subresources.kubevirt.io", "v1");
    format!("{root}/namespaces/{}/{resource}/{}/{subresource}", encoded(namespace), encoded(name))
}

impl Resource {
    pub fn api_version(&self) -> String {
        match self.group.as_ref() {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Where all of them are, or those of one namespace. An empty namespace stands for all.
    pub fn collection(&self, namespace: &str) -> String {
        let root = path::root(&self.group, &self.version);
        match self.is_namespaced && !namespace.is_empty() {
            true => format!("{root}/namespaces/{}/{}", encoded(namespace), self.plural),
            false => format!("{root}/{}", self.plural),
        }
    }

    pub fn path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), encoded(name))
    }

    /// Where Harvester's console does things to it.
    pub fn action(&self, namespace: &str, name: &str, action: &str) -> String {
        format!("{}?action={action}", self.steve(namespace, name))
    }

    pub fn steve(&self, namespace: &str, name: &str) -> String {
        let kind = match self.group.as_ref() {
            "" => self.plural.to_string(),
            group => format!("{group}.{}", self.plural),
        };
        match (self.is_namespaced, encoded(name).as_str()) {
            (_, "") => format!("/v1/harvester/{kind}"),
            (true, name) => format!("/v1/harvester/{kind}/{}/{name}", encoded(namespace)),
            (false, name) => format!("/v1/harvester/{kind}/{name}"),
        }
    }

    /// `virtualmachine.kubevirt.io/web`, as kubectl names it.
    pub fn name_of(&self, object: &Value) -> String {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let kind = self.kind.to_lowercase();
        match self.group.as_ref() {
            "" => format!("{kind}/{name}"),
            group => format!("{kind}.{group}/{name}"),
        }
    }

    /// `virtual machine default/web`: what a sentence is about.
    pub fn about(&self, namespace: &str, name: &str) -> String {
        match self.is_namespaced && !namespace.is_empty() {
            true => format!("{} {namespace}/{name}", self.called),
            false => format!("{} {name}", self.called),
        }
    }

    pub fn for_kube(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_where_the_api_has_them() {
        assert_eq!(MACHINES.path("team", "web"), "/apis/kubevirt.io/v1/namespaces/team/virtualmachines/web");
        assert_eq!(MACHINES.collection(""), "/apis/kubevirt.io/v1/virtualmachines");
        assert_eq!(VOLUMES.path("a", "b"), "/api/v1/namespaces/a/persistentvolumeclaims/b");
        assert_eq!(NODES.path("ignored", "n1"), "/api/v1/nodes/n1");
        assert_eq!(
            MACHINES.action("team", "web", "clone"),
            "/v1/harvester/kubevirt.io.virtualmachines/team/web?action=clone"
        );
        assert_eq!(NODES.action("", "n1", "cordon"), "/v1/harvester/nodes/n1?action=cordon");
    }

    #[test]
    fn a_sentence_says_what_it_is_about() {
        assert_eq!(MACHINES.about("team", "web"), "virtual machine team/web");
        assert_eq!(NODES.about("", "n1"), "host n1");
        assert_eq!(MACHINES.name_of(&json!({"metadata": {"name": "web"}})), "virtualmachine.kubevirt.io/web");
    }
}
