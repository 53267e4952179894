//! Which kind a type's word means: `secret`, `secrets`, `kubevirt.io.virtualmachine`, `kubevirt.io.virtualmachines`.

use std::sync::Arc;

use sheaf_resources::kind::Kind;

use crate::registry::{Catalogue, Served};

/// What objects of the kind say they are, and schemas are called: `kubevirt.io.virtualmachine`.
pub fn id_of(kind: &Kind) -> String {
    id(&kind.group, &kind.kind)
}

/// The same, of a kind that need not be served.
pub fn id(group: &str, kind: &str) -> String {
    with_group(group, &kind.to_lowercase())
}

/// What paths say: `kubevirt.io.virtualmachines`.
pub fn plural_of(kind: &Kind) -> String {
    with_group(&kind.group, &kind.plural)
}

fn with_group(group: &str, word: &str) -> String {
    if group.is_empty() { word.to_owned() } else { format!("{group}.{word}") }
}

/// The kind that a word in lower case means.
pub fn find(catalogue: &Catalogue, word: &str) -> Option<Arc<Served>> {
    let means = |served: &&Arc<Served>| {
        let kind = &served.kind;
        let own = match kind.group.as_str() {
            "" => Some(word),
            group => word.strip_prefix(group).and_then(|rest| rest.strip_prefix('.')),
        };
        own.is_some_and(|own| {
            own == kind.plural || own == kind.singular || own.eq_ignore_ascii_case(&kind.kind)
        })
    };
    best(catalogue.all().filter(means)).cloned()
}

/// Every kind once, in the version that is shown.
pub fn all(catalogue: &Catalogue) -> Vec<Arc<Served>> {
    let mut kinds: Vec<Arc<Served>> = Vec::new();
    for served in catalogue.all() {
        let is_same = |other: &&Arc<Served>| {
            other.kind.group == served.kind.group && other.kind.plural == served.kind.plural
        };
        if kinds.iter().any(|other| is_same(&other)) {
            continue;
        }
        kinds.extend(best(catalogue.all().filter(is_same)).cloned());
    }
    kinds
}

/// Of several versions, the one that objects are stored in.
fn best<'a>(versions: impl Iterator<Item = &'a Arc<Served>>) -> Option<&'a Arc<Served>> {
    let is_stored = |served: &Served| {
        served.kind.conversion.is_none() && served.kind.api_version() == served.kind.stored_version
    };
    let mut found: Option<&Arc<Served>> = None;
    for served in versions {
        if found.is_none_or(|found| !is_stored(found) && is_stored(served)) {
            found = Some(served);
        }
    }
    found
}
