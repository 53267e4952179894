//! How the lists of each built-in kind merge: facts, as tables.
//!
//! A field that is not named here follows the rule for all: objects merge member by member,
//! lists and everything else are replaced. That holds for some lists one would expect to
//! merge (a node's taints, a pod's tolerations, a service account's image pull secrets), and
//! clients count on it.
//!
//! The same facts belong into the published schema as `x-kubernetes-patch-strategy` and
//! `x-kubernetes-patch-merge-key`.

/// The fields of one type whose patching is out of the ordinary.
#[derive(Debug)]
pub struct Fields(pub &'static [(&'static str, Field)]);

#[derive(Clone, Copy, Debug)]
pub enum Field {
    /// An object with fields of its own that are out of the ordinary.
    Object(&'static Fields),
    /// A list of objects, told apart by one of their members.
    MergeByKey { key: &'static str, element: &'static Fields, retain_keys: bool },
    /// A list of scalars without repeats.
    MergeSet,
}

impl Fields {
    pub fn field(&self, name: &str) -> Option<Field> {
        self.0.iter().find(|(candidate, _)| *candidate == name).map(|(_, field)| *field)
    }
}

/// The table for a built-in kind; `None` for a kind that strategic merge patch does not
/// know, a custom resource for one.
pub fn for_kind(group: &str, kind: &str) -> Option<&'static Fields> {
    Some(match (group, kind) {
        ("", "Namespace" | "PersistentVolumeClaim") => &STATUS_CONDITIONS,
        ("", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "Node") => &NODE,
        ("", "Pod") => &POD,
        ("", "Service") => &SERVICE,
        ("", "ConfigMap" | "Secret" | "Event" | "PersistentVolume" | "ResourceQuota" | "LimitRange")
        | ("events.k8s.io", "Event")
        | ("coordination.k8s.io", "Lease")
        | ("rbac.authorization.k8s.io", "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding")
        | ("storage.k8s.io", "StorageClass" | "VolumeAttachment" | "CSIDriver")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => &METADATA_ONLY,
        ("storage.k8s.io", "CSINode") => &CSI_NODE,
        _ => return None,
    })
}

const fn by_key(key: &'static str) -> Field {
    Field::MergeByKey { key, element: &PLAIN, retain_keys: false }
}

/// Lists whose elements are one of several: when the choice changes, the members of the
/// old one must go, so clients say which to retain.
const fn by_key_retaining(key: &'static str) -> Field {
    Field::MergeByKey { key, element: &PLAIN, retain_keys: true }
}

const fn containers() -> Field {
    Field::MergeByKey { key: "name", element: &CONTAINER, retain_keys: false }
}

/// A type with nothing out of the ordinary.
pub static PLAIN: Fields = Fields(&[]);

static OBJECT_META: Fields = Fields(&[("ownerReferences", by_key("uid")), ("finalizers", Field::MergeSet)]);
const METADATA: (&str, Field) = ("metadata", Field::Object(&OBJECT_META));

static METADATA_ONLY: Fields = Fields(&[METADATA]);

static CONDITIONS: Fields = Fields(&[("conditions", by_key("type"))]);
static STATUS_CONDITIONS: Fields = Fields(&[METADATA, ("status", Field::Object(&CONDITIONS))]);

static SERVICE_ACCOUNT: Fields = Fields(&[METADATA, ("secrets", by_key("name"))]);

static NODE: Fields =
    Fields(&[METADATA, ("spec", Field::Object(&NODE_SPEC)), ("status", Field::Object(&NODE_STATUS))]);
static NODE_SPEC: Fields = Fields(&[("podCIDRs", Field::MergeSet)]);
static NODE_STATUS: Fields = Fields(&[("conditions", by_key("type")), ("addresses", by_key("type"))]);

static SERVICE: Fields =
    Fields(&[METADATA, ("spec", Field::Object(&SERVICE_SPEC)), ("status", Field::Object(&CONDITIONS))]);
static SERVICE_SPEC: Fields = Fields(&[("ports", by_key("port"))]);

static CSI_NODE: Fields = Fields(&[METADATA, ("spec", Field::Object(&CSI_NODE_SPEC))]);
static CSI_NODE_SPEC: Fields = Fields(&[("drivers", by_key("name"))]);

static POD: Fields =
    Fields(&[METADATA, ("spec", Field::Object(&POD_SPEC)), ("status", Field::Object(&POD_STATUS))]);
static POD_SPEC: Fields = Fields(&[
    ("volumes", by_key_retaining("name")),
    ("initContainers", containers()),
    ("containers", containers()),
    ("ephemeralContainers", containers()),
    ("imagePullSecrets", by_key("name")),
    ("hostAliases", by_key("ip")),
    ("topologySpreadConstraints", by_key("topologyKey")),
    ("schedulingGates", by_key("name")),
    ("resourceClaims", by_key_retaining("name")),
]);
static POD_STATUS: Fields = Fields(&[
    ("conditions", by_key("type")),
    ("hostIPs", by_key("ip")),
    ("podIPs", by_key("ip")),
    ("resourceClaimStatuses", by_key_retaining("name")),
]);
static CONTAINER: Fields = Fields(&[
    ("ports", by_key("containerPort")),
    ("env", by_key("name")),
    ("volumeMounts", by_key("mountPath")),
    ("volumeDevices", by_key("devicePath")),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_kind_merges_its_owners_and_finalizers() {
        for (group, kind) in [("", "Pod"), ("", "Secret"), ("", "Node"), ("storage.k8s.io", "CSINode")] {
            let Some(Field::Object(metadata)) = for_kind(group, kind).unwrap().field("metadata") else {
                panic!("{kind} has no metadata");
            };
            assert!(matches!(metadata.field("ownerReferences"), Some(Field::MergeByKey { key: "uid", .. })));
            assert!(matches!(metadata.field("finalizers"), Some(Field::MergeSet)));
        }
    }

    #[test]
    fn a_custom_resource_has_no_table() {
        assert!(for_kind("kubevirt.io", "VirtualMachine").is_none());
        assert!(for_kind("example.com", "Pod").is_none());
    }

    #[test]
    fn lists_that_only_look_mergeable_are_replaced() {
        let account = for_kind("", "ServiceAccount").unwrap();
        assert!(account.field("imagePullSecrets").is_none());
        assert!(matches!(account.field("secrets"), Some(Field::MergeByKey { key: "name", .. })));
        assert!(NODE_SPEC.field("taints").is_none());
        assert!(POD_SPEC.field("tolerations").is_none());
    }
}
