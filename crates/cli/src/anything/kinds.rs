//! Which kinds a cluster serves, and which of them somebody means by a word.

use http::{Request, header};
use serde_json::Value;

use crate::{
    asking::{
        Refusal, Resource, Session,
        resource::{IMAGES, KEYS, MACHINES, NETWORKS, NODES, SNAPSHOTS, TEMPLATES, VOLUMES},
    },
    nearest_name::nearest,
};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// A kind that is served, with the words it goes by.
#[derive(Clone, Debug)]
pub struct Served {
    pub resource: Resource,
    singular: String,
    short_names: Vec<String>,
    pub verbs: Vec<String>,
}

impl Served {
    fn is_called(&self, word: &str) -> bool {
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (word, None),
        };
        let resource = &self.resource;
        let in_group = group.is_none_or(|group| {
            group == resource.group || group == format!("{}.{}", resource.version, resource.group)
        });
        let named = name == resource.plural
            || name == self.singular
            || name.eq_ignore_ascii_case(&resource.kind)
            || self.short_names.iter().any(|short| short == name);
        in_group && named
    }
}

/// All kinds, in the order of the server: what comes first is meant where a word means several.
pub async fn served(session: &Session) -> Result<Vec<Served>, Refusal> {
    let mut all = Vec::new();
    for root in ["/api", "/apis"] {
        let doing = "find out what is served";
        let request = Request::get(root).header(header::ACCEPT, AGGREGATED).body(Vec::new());
        let request = request.map_err(|why| Refusal::cannot(doing, why))?;
        let groups: Value =
            session.cluster.objects.request(request).await.map_err(|why| session.refused(why, doing))?;
        all.extend(in_groups(&groups));
    }
    Ok(all)
}

fn in_groups(groups: &Value) -> Vec<Served> {
    let mut found: Vec<Served> = Vec::new();
    for group in groups["items"].as_array().into_iter().flatten() {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in group["versions"].as_array().into_iter().flatten() {
            let version_name = version["version"].as_str().unwrap_or_default();
            for kind in version["resources"].as_array().into_iter().flatten() {
                let Some(served) = one(name, version_name, kind) else { continue };
                // The first version of a group is the preferred one.
                let is_known = |known: &Served| {
                    known.resource.group == name && known.resource.plural == served.resource.plural
                };
                if !found.iter().any(is_known) {
                    found.push(served);
                }
            }
        }
    }
    found
}

fn one(group: &str, version: &str, kind: &Value) -> Option<Served> {
    let text = |field: &str| kind[field].as_str().unwrap_or_default().to_owned();
    let list = |field: &str| -> Vec<String> {
        kind[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let kind_name = kind["responseKind"]["kind"].as_str()?.to_owned();
    Some(Served {
        resource: Resource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            plural: text("resource").into(),
            called: kind_name.clone().into(),
            kind: kind_name.into(),
            is_namespaced: kind["scope"] == "Namespaced",
        },
        singular: text("singularResource"),
        short_names: list("shortNames"),
        verbs: list("verbs"),
    })
}

/// Those that have a command of their own, by its name.
static WITH_A_COMMAND: [(&str, &Resource); 8] = [
    ("vm", &MACHINES),
    ("image", &IMAGES),
    ("volume", &VOLUMES),
    ("snapshot", &SNAPSHOTS),
    ("network", &NETWORKS),
    ("key", &KEYS),
    ("template", &TEMPLATES),
    ("host", &NODES),
];

/// What is meant by a word: a kind, its plural, a short name, with its group behind it or not. What the cluster calls otherwise goes
/// by the name of its command, too.
pub fn meant(all: &[Served], word: &str) -> Result<Resource, Refusal> {
    let lower = word.to_lowercase();
    if let Some(found) = all.iter().find(|one| one.is_called(&lower) || one.is_called(word)) {
        return Ok(found.resource.clone());
    }
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    if let Some((_, resource)) = WITH_A_COMMAND.iter().find(|(noun, _)| *noun == singular) {
        return Ok((*resource).clone());
    }
    let words = all
        .iter()
        .flat_map(|one| [one.resource.plural.as_ref(), one.singular.as_str()])
        .chain(all.iter().flat_map(|one| &one.short_names).map(String::as_str))
        .chain(WITH_A_COMMAND.iter().map(|(noun, _)| *noun))
        .filter(|word| !word.is_empty());
    Err(Refusal::NotFound {
        about: format!("kind {word}"),
        meant: nearest(&lower, words).map(str::to_owned),
        advice: "`sheaf get --kinds` prints those that are served".to_owned(),
    })
}

/// What objects of this type are: `apiVersion` and `kind` of a file.
pub fn of_type(all: &[Served], api_version: &str, kind: &str) -> Option<Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // It becomes a part of an address, and a file may be anybody's.
    if version.is_empty() || !version.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return None;
    }
    let found = all.iter().find(|one| one.resource.group == group && one.resource.kind == kind)?;
    // As the file says: another version may be served than the preferred one.
    Some(Resource { version: version.to_owned().into(), ..found.resource.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all() -> Vec<Served> {
        in_groups(&json!({"items": [
            {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [
                {"resource": "nodes", "responseKind": {"kind": "Node"}, "scope": "Cluster", "singularResource": "node", "shortNames": ["no"]}]}]},
            {"metadata": {"name": "kubevirt.io"}, "versions": [
                {"version": "v1", "resources": [
                    {"resource": "virtualmachines", "responseKind": {"kind": "VirtualMachine"}, "scope": "Namespaced",
                     "singularResource": "virtualmachine", "shortNames": ["vm", "vms"]}]},
                {"version": "v1alpha3", "resources": [
                    {"resource": "virtualmachines", "responseKind": {"kind": "VirtualMachine"}, "scope": "Namespaced"}]}]},
        ]}))
    }

    #[test]
    fn a_kind_goes_by_many_words() {
        for word in [
            "vm",
            "vms",
            "virtualmachine",
            "VirtualMachine",
            "virtualmachines",
            "virtualmachines.kubevirt.io",
            "vm.v1.kubevirt.io",
        ] {
            let found = meant(&all(), word).unwrap();
            assert_eq!((found.plural.as_ref(), found.version.as_ref()), ("virtualmachines", "v1"), "{word}");
        }
        assert!(!meant(&all(), "no").unwrap().is_namespaced);
    }

    #[test]
    fn a_typo_suggests_the_nearest_word() {
        let why = meant(&all(), "virtualmachins").unwrap_err();
        assert_eq!(why.to_string(), "there is no kind virtualmachins: did you mean virtualmachine?");
        assert_eq!(why.exit_code(), 3);
        meant(&all(), "virtualmachines.example.com").unwrap_err();
        for (typed, near) in [("vmz", "vm"), ("imag", "image"), ("voluem", "volume")] {
            let why = meant(&all(), typed).unwrap_err();
            assert!(why.to_string().ends_with(&format!("did you mean {near}?")), "{why}");
        }
        assert_eq!(meant(&all(), "images").unwrap(), IMAGES);
    }

    #[test]
    fn a_file_says_which_version_is_meant() {
        let found = of_type(&all(), "kubevirt.io/v1alpha3", "VirtualMachine").unwrap();
        assert_eq!(found.collection("a"), "/apis/kubevirt.io/v1alpha3/namespaces/a/virtualmachines");
        assert!(of_type(&all(), "v1", "VirtualMachine").is_none());
        for odd in [
            "kubevirt.io/v1/namespaces/a/secrets/b?x=",
            "kubevirt.io/",
            "kubevirt.io/../v1",
            "kubevirt.io/v1?",
        ] {
            assert!(of_type(&all(), odd, "VirtualMachine").is_none(), "{odd}");
        }
    }
}
