//! How the lists and objects of built-in types merge when they are applied: facts, as a table.
//!
//! ```text
//! io.k8s.api.core.v1.NodeStatus conditions map type     elements are told apart by their type
//! io.k8s.api.core.v1.NodeSpec podCIDRs set              elements are told apart as such
//! io.k8s.api.core.v1.LabelSelector . atomic             taken or left as a whole
//! io.k8s.api.core.v1.ContainerPort protocol default "TCP"    a key that was left out
//! io.k8s.api.core.v1.Namespace spec always              there, and empty, even when nobody wrote it
//! ```
//!
//! A list that is not named is atomic. `topology.txt` is written by `tests/clients/apply-vectors`; what the library it
//! asks has no types for follows here. No list is checked for elements that are there twice because it is named here:
//! the original does not do so for its own kinds.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::{Map, Value, json};

use super::parse::{ALWAYS, KEY_DEFAULT};

const FROM_THE_LIBRARY: &str = include_str!("topology.txt");

/// As the published Go types and CustomResourceDefinitions say.
const BESIDE_IT: &str = "\
io.k8s.api.core.v1.PodSpec containers always
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition metadata always
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition spec always
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition status always
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec names always
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus acceptedNames always
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus conditions map type
io.kubevirt.v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation users set
io.kubevirt.v1.VirtualMachineInstanceSpec resourceClaims map name
io.kubevirt.v1.VirtualMachineInstanceSpec topologySpreadConstraints map topologyKey,whenUnsatisfiable
";

/// The field that stands for the type itself.
const ITSELF: &str = ".";

/// Writes into the schema of a type what the table says of it.
pub(super) fn mark(name: &str, schema: &mut Map<String, Value>) {
    for (field, rule) in rules().get(name).into_iter().flatten() {
        if *field == ITSELF {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
            continue;
        }
        let Some(Value::Object(property)) = schema.get_mut("properties").and_then(|all| all.get_mut(*field))
        else {
            continue;
        };
        match rule.split_once(' ') {
            None if *rule == "atomic" => property.insert("x-kubernetes-map-type".into(), "atomic".into()),
            None if *rule == "set" => property.insert("x-kubernetes-list-type".into(), "set".into()),
            None => property.insert(ALWAYS.into(), true.into()),
            Some(("map", keys)) => {
                let keys: Vec<&str> = keys.split(',').collect();
                property.insert("x-kubernetes-list-map-keys".into(), json!(keys));
                property.insert("x-kubernetes-list-type".into(), "map".into())
            }
            Some((_, default)) => {
                property.insert(KEY_DEFAULT.into(), serde_json::from_str(default).unwrap_or_default())
            }
        };
    }
}

type Rules = BTreeMap<&'static str, Vec<(&'static str, &'static str)>>;

fn rules() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(|| {
        let mut rules = Rules::new();
        for line in FROM_THE_LIBRARY.lines().chain(BESIDE_IT.lines()) {
            let mut words = line.splitn(3, ' ');
            if let (Some(name), Some(field), Some(rule)) = (words.next(), words.next(), words.next()) {
                rules.entry(name).or_default().push((field, rule));
            }
        }
        rules
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, ServiceAccount};

    use super::*;
    use crate::{
        kinds,
        schema::{Schema, from_k8s_openapi},
    };

    #[test]
    fn the_lists_of_a_type_say_how_they_merge() {
        let pod = from_k8s_openapi::<Pod>();
        let spec = pod.field("spec").unwrap();
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.list_type(), Some("map"));
        let ports = containers.items.as_ref().unwrap().field("ports").unwrap();
        assert_eq!(ports.list_map_keys(), ["containerPort".into(), "protocol".into()]);
        assert_eq!(ports.key_default("protocol"), Some(&json!("TCP")));
        assert_eq!(spec.field("nodeSelector").unwrap().map_type(), Some("atomic"));
        assert_eq!(spec.field("tolerations").unwrap().list_type(), None);
        assert!(spec.is_always() && !spec.field("affinity").unwrap().is_always());
        let account = from_k8s_openapi::<ServiceAccount>();
        let reference = account.field("imagePullSecrets").unwrap().items.as_ref().unwrap();
        assert_eq!(reference.map_type(), Some("atomic"));
    }

    #[test]
    fn every_type_that_the_table_names_as_ours_is_one() {
        let mut names = std::collections::BTreeSet::new();
        for kind in kinds::built_in() {
            if let crate::kind::SchemaSource::BuiltIn { types: Some(types), .. } = &kind.schema {
                names.extend(types.all(crate::schema::Flavour::V3).into_keys());
            }
        }
        for line in BESIDE_IT.lines() {
            let name = line.split(' ').next().unwrap();
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn what_is_marked_defaults_nothing() {
        let schema: Schema = from_k8s_openapi::<Pod>();
        let mut defaults = 0;
        schema.visit(&mut |schema| defaults += usize::from(schema.default.is_some()));
        assert_eq!(defaults, 0);
    }
}
