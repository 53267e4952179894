//! The paths of a group version: every resource with its verbs, and its subresources.
//!
//! Clients look things up here more than they read: kubectl finds the kind of a resource by its path,
//! whether `fieldValidation` is served by the kind on a PATCH, and how to patch by the media types
//! a PATCH takes. So nothing is listed that is not served.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sheaf_resources::{
    kind::{Kind, Verbs},
    schema::{Flavour, named_types},
};

use super::{
    document::GroupVersion,
    names::{self, META, TypeNames},
    operation::{Body, GroupVersionKind, Operation},
    parameters::{self, NAME, NAMESPACE, PRETTY, Parameter},
};

const PATCHES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
const PATCHES_OF_BUILT_INS: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

pub fn of(group_version: &GroupVersion<'_>, flavour: Flavour) -> BTreeMap<String, Value> {
    let root = format!("/{}", group_version.path());
    let mut paths = BTreeMap::from([(format!("{root}/"), discovery(group_version, flavour))]);
    for kind in &group_version.kinds {
        Resource::new(kind).add(&root, flavour, &mut paths);
    }
    paths
}

fn discovery(group_version: &GroupVersion<'_>, flavour: Flavour) -> Value {
    let prefix = names::operation_prefix(group_version.group, group_version.version);
    let operation = Operation {
        id: format!("get{prefix}APIResources"),
        description: "get available resources".into(),
        tag: &names::tag(group_version.group, group_version.version),
        action: None,
        about: None,
        parameters: &[],
        body: None,
        codes: &["200"],
        answer: &format!("{META}APIResourceList"),
        watchable: false,
        deprecated: false,
    };
    json!({"get": operation.written(flavour)})
}

/// One resource while its paths are written.
struct Resource<'a> {
    kind: &'a Kind,
    types: TypeNames,
    tag: String,
    /// `CoreV1`.
    prefix: String,
}

/// The operations of one path.
struct Path {
    parameters: Vec<&'static Parameter>,
    operations: Map<String, Value>,
    flavour: Flavour,
}

impl Path {
    fn new(parameters: &[&'static Parameter], flavour: Flavour) -> Self {
        let parameters = parameters.iter().copied().chain([&PRETTY]).collect();
        Path { parameters, operations: Map::new(), flavour }
    }

    fn on(&mut self, method: &str, operation: &Operation<'_>) {
        self.operations.insert(method.into(), operation.written(self.flavour));
    }

    fn written(mut self) -> Value {
        let parameters: Vec<Value> = self.parameters.iter().map(|one| one.used(self.flavour)).collect();
        self.operations.insert("parameters".into(), parameters.into());
        Value::Object(self.operations)
    }
}

impl<'a> Resource<'a> {
    fn new(kind: &'a Kind) -> Self {
        Resource {
            kind,
            types: TypeNames::of(kind),
            tag: names::tag(&kind.group, &kind.version),
            prefix: names::operation_prefix(&kind.group, &kind.version),
        }
    }

    fn add(&self, root: &str, flavour: Flavour, paths: &mut BTreeMap<String, Value>) {
        let plural = &self.kind.plural;
        let (collection, in_path): (String, &[&'static Parameter]) = if self.kind.namespaced() {
            (format!("{root}/namespaces/{{namespace}}/{plural}"), &[&NAMESPACE])
        } else {
            (format!("{root}/{plural}"), &[])
        };
        let mut whole = Path::new(in_path, flavour);
        let verbs = self.kind.verbs.names();
        if verbs.contains(&"create") {
            whole.on("post", &self.create());
        }
        if self.kind.verbs.are_kept() {
            whole.on("get", &self.list(""));
            if verbs.contains(&"deletecollection") {
                whole.on("delete", &self.delete_collection());
            }
            if self.kind.namespaced() {
                let mut everywhere = Path::new(&[], flavour);
                everywhere.on("get", &self.list("ForAllNamespaces"));
                paths.insert(format!("{root}/{plural}"), everywhere.written());
            }
            let in_path: Vec<&'static Parameter> = in_path.iter().copied().chain([&NAME]).collect();
            let object = format!("{collection}/{{name}}");
            let mut one = Path::new(&in_path, flavour);
            one.on("get", &self.read());
            if self.kind.verbs != Verbs::ReadOnly {
                one.on("put", &self.replace());
                one.on("delete", &self.delete());
                one.on("patch", &self.patch());
            }
            for (name, path) in self.subresources(&in_path, flavour) {
                paths.insert(format!("{object}/{name}"), path.written());
            }
            paths.insert(object, one.written());
        }
        paths.insert(collection, whole.written());
    }

    /// An operation that answers with the object; the rest is said by who calls this.
    fn operation(
        &self,
        verb: &str,
        subject: &str,
        action: &'static str,
        description: String,
    ) -> Operation<'_> {
        let scope = if self.kind.namespaced() { "Namespaced" } else { "" };
        let kind = &self.kind.kind;
        Operation {
            id: match verb.strip_suffix("Collection") {
                Some(verb) => format!("{verb}{}Collection{scope}{kind}{subject}", self.prefix),
                // Across all namespaces there is no scope to name.
                None if subject == "ForAllNamespaces" => format!("{verb}{}{kind}{subject}", self.prefix),
                None => format!("{verb}{}{scope}{kind}{subject}", self.prefix),
            },
            description,
            tag: &self.tag,
            action: Some(action),
            about: Some(GroupVersionKind(&self.kind.group, &self.kind.version, kind)),
            parameters: &[],
            body: None,
            codes: &["200"],
            answer: &self.types.object,
            watchable: false,
            deprecated: self.kind.deprecation.is_some(),
        }
    }

    fn list(&self, subject: &str) -> Operation<'_> {
        Operation {
            parameters: parameters::LIST,
            answer: &self.types.list,
            watchable: true,
            ..self.operation("list", subject, "list", format!("list or watch {}", self.kind.plural))
        }
    }

    fn create(&self) -> Operation<'_> {
        Operation {
            parameters: parameters::WRITE,
            body: Some(Body { data_type: &self.types.object, media_types: &[], required: true }),
            codes: &["200", "201", "202"],
            ..self.operation("create", "", "post", format!("create a {}", self.kind.kind))
        }
    }

    fn delete_collection(&self) -> Operation<'_> {
        Operation {
            parameters: parameters::DELETE_COLLECTION,
            body: Some(DELETE_OPTIONS),
            answer: STATUS,
            ..self.operation(
                "deleteCollection",
                "",
                "deletecollection",
                format!("delete all {}", self.kind.plural),
            )
        }
    }

    fn read(&self) -> Operation<'_> {
        Operation {
            parameters: parameters::READ,
            ..self.operation("read", "", "get", format!("read a {}", self.kind.kind))
        }
    }

    fn replace(&self) -> Operation<'_> {
        Operation {
            parameters: parameters::WRITE,
            body: Some(Body { data_type: &self.types.object, media_types: &[], required: true }),
            codes: &["200", "201"],
            ..self.operation("replace", "", "put", format!("replace a {}", self.kind.kind))
        }
    }

    fn patch(&self) -> Operation<'_> {
        Operation {
            parameters: parameters::PATCH,
            body: Some(self.patch_body()),
            codes: &["200", "201"],
            ..self.operation("patch", "", "patch", format!("change parts of a {}", self.kind.kind))
        }
    }

    fn delete(&self) -> Operation<'_> {
        Operation {
            parameters: parameters::DELETE,
            body: Some(DELETE_OPTIONS),
            codes: &["200", "202"],
            answer: STATUS,
            ..self.operation("delete", "", "delete", format!("delete a {}", self.kind.kind))
        }
    }

    fn patch_body(&self) -> Body<'_> {
        let media_types = if self.kind.custom { PATCHES } else { PATCHES_OF_BUILT_INS };
        Body { data_type: PATCH, media_types, required: true }
    }

    fn subresources(&self, in_path: &[&'static Parameter], flavour: Flavour) -> Vec<(&'a str, Path)> {
        const OBJECT: &[&str] = &["get", "patch", "update"];
        let mut all = Vec::new();
        if self.kind.status {
            all.push(("status", None, OBJECT));
        }
        if self.kind.scale.is_some() {
            all.push(("scale", Some(SCALE), OBJECT));
        }
        all.extend(self.kind.subresources.iter().map(|sub| (sub.name, sub.body, sub.verbs)));
        all.into_iter()
            .map(|(name, body, verbs)| (name, self.subresource(name, body, verbs, in_path, flavour)))
            .collect()
    }

    fn subresource(
        &self,
        name: &str,
        body: Option<(&'static str, &'static str, &'static str)>,
        verbs: &[&str],
        in_path: &[&'static Parameter],
        flavour: Flavour,
    ) -> Path {
        let subject = names::joined(name, true);
        // A body of a type nobody wrote down is called an object of the kind rather than nothing.
        let other =
            body.and_then(|(g, v, k)| named_types::of_a_subresource(g, v, k)).map(|types| types.root());
        let data_type = other.as_ref().unwrap_or(&self.types.object);
        let about = match body {
            Some((group, version, kind)) => GroupVersionKind(group, version, kind),
            None => GroupVersionKind(&self.kind.group, &self.kind.version, &self.kind.kind),
        };
        let own = || Some(Body { data_type, media_types: &[], required: true });
        let mut path = Path::new(in_path, flavour);
        for verb in verbs {
            let (method, word, action, parameters, body, codes): (_, _, _, _, _, &'static [&'static str]) =
                match *verb {
                    "get" => ("get", "read", "get", parameters::READ, None, &["200"]),
                    "create" => ("post", "create", "post", parameters::WRITE, own(), &["200", "201", "202"]),
                    "update" => ("put", "replace", "put", parameters::WRITE, own(), &["200", "201"]),
                    "patch" => (
                        "patch",
                        "patch",
                        "patch",
                        parameters::PATCH,
                        Some(self.patch_body()),
                        &["200", "201"],
                    ),
                    _ => continue,
                };
            let description = format!("{word} {name} of a {}", self.kind.kind);
            path.on(
                method,
                &Operation {
                    about: Some(about),
                    parameters,
                    body,
                    codes,
                    answer: data_type,
                    ..self.operation(word, &subject, action, description)
                },
            );
        }
        path
    }
}

const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const DELETE_OPTIONS: Body<'static> = Body {
    data_type: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    media_types: &[],
    required: false,
};
