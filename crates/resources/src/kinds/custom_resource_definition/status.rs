//! Decides the status of a definition: whether its names are free, and so whether it is
//! served.
//!
//! ```text
//!              names free                  served once,
//!   Installing ----------> Established     stays established: objects exist
//!       |  ^
//!       v  | the other definition goes
//!   NamesAccepted=False (PluralConflict, KindConflict, ...)
//! ```
//!
//! The status is a function of the definition, the names others hold and the time; writing
//! it twice is writing it once. Whoever writes `Established` must be able to serve the kind
//! by then.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Names, list, storage_version, text, texts};
use crate::quote::quoted;

/// The names in a group that are not free.
#[derive(Clone, Debug, Default)]
pub struct TakenNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl TakenNames {
    /// The names accepted for the other definitions of a group. Built-in kinds of the group
    /// are added with [`TakenNames::take`].
    pub fn by_others<'a>(group: &str, own_name: &str, crds: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut taken = Self::default();
        for crd in crds {
            if text(&crd["spec"]["group"]) == group && text(&crd["metadata"]["name"]) != own_name {
                taken.take(&Names::read(&crd["status"]["acceptedNames"]));
            }
        }
        taken
    }

    pub fn take(&mut self, names: &Names) {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        self.resources.extend(resources.filter(|name| !name.is_empty()).cloned());
        let kinds = [&names.kind, &names.list_kind].into_iter();
        self.kinds.extend(kinds.filter(|name| !name.is_empty()).cloned());
    }
}

/// The status `crd` should have. `now` is an RFC 3339 time; it is used only for conditions
/// that change.
pub fn next_status(crd: &Value, taken: &TakenNames, now: &str) -> Value {
    let asked = Names::read(&crd["spec"]["names"]);
    let (accepted, conflict) = settle(&asked, &Names::read(&crd["status"]["acceptedNames"]), taken);
    let names_accepted = match &conflict {
        None => Condition::new("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        Some((reason, message)) => Condition::new("NamesAccepted", false, reason, message),
    };
    let established = if is_true(crd, "Established") {
        None
    } else if conflict.is_none() {
        let message = "the initial names have been accepted";
        Some(Condition::new("Established", true, "InitialNamesAccepted", message))
    } else {
        Some(Condition::new("Established", false, "NotAccepted", "not all names are accepted"))
    };
    let mut conditions = list(&crd["status"]["conditions"]).to_vec();
    for condition in std::iter::once(names_accepted).chain(established) {
        condition.put_into(&mut conditions, now);
    }
    let mut stored = texts(&crd["status"]["storedVersions"]);
    if let Some(version) = storage_version(crd)
        && !stored.contains(&version)
    {
        stored.push(version);
    }
    let mut status = crd["status"].as_object().cloned().unwrap_or_default();
    status.insert("acceptedNames".into(), accepted.to_json());
    status.insert("conditions".into(), conditions.into());
    status.insert("storedVersions".into(), stored.into());
    Value::Object(status)
}

/// Whether a condition of a definition is present and true.
pub fn is_true(crd: &Value, kind: &str) -> bool {
    list(&crd["status"]["conditions"])
        .iter()
        .any(|condition| text(&condition["type"]) == kind && text(&condition["status"]) == "True")
}

/// The names that can be accepted now, and the last conflict among the others.
fn settle(asked: &Names, held: &Names, taken: &TakenNames) -> (Names, Option<(&'static str, String)>) {
    let mut accepted = held.clone();
    let mut conflict = None;
    let in_use = |name: &str| format!("{} is already in use", quoted(name));
    {
        let mut one = |reason, asked: &str, held: &str, taken: &BTreeSet<String>, slot: &mut String| {
            if asked != held && taken.contains(asked) {
                conflict = Some((reason, in_use(asked)));
            } else {
                *slot = asked.to_owned();
            }
        };
        let resources = &taken.resources;
        one("PluralConflict", &asked.plural, &held.plural, resources, &mut accepted.plural);
        one("SingularConflict", &asked.singular, &held.singular, resources, &mut accepted.singular);
    }
    let refused: Vec<String> = asked
        .short_names
        .iter()
        .filter(|name| !held.short_names.contains(name) && taken.resources.contains(*name))
        .map(|name| in_use(name))
        .collect();
    match refused.as_slice() {
        [] => accepted.short_names = asked.short_names.clone(),
        [only] => conflict = Some(("ShortNamesConflict", only.clone())),
        several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
    {
        let mut one = |reason, asked: &str, held: &str, slot: &mut String| {
            if asked != held && taken.kinds.contains(asked) {
                conflict = Some((reason, in_use(asked)));
            } else {
                *slot = asked.to_owned();
            }
        };
        one("KindConflict", &asked.kind, &held.kind, &mut accepted.kind);
        one("ListKindConflict", &asked.list_kind, &held.list_kind, &mut accepted.list_kind);
    }
    accepted.categories = asked.categories.clone();
    (accepted, conflict)
}

struct Condition<'a> {
    kind: &'static str,
    status: &'static str,
    reason: &'a str,
    message: &'a str,
}

impl<'a> Condition<'a> {
    fn new(kind: &'static str, holds: bool, reason: &'a str, message: &'a str) -> Self {
        Self { kind, status: if holds { "True" } else { "False" }, reason, message }
    }

    /// Writes the condition over the one of its kind; its time moves only with its status.
    fn put_into(&self, conditions: &mut Vec<Value>, now: &str) {
        let at = conditions.iter().position(|condition| text(&condition["type"]) == self.kind);
        let since = at
            .map(|at| &conditions[at])
            .filter(|old| text(&old["status"]) == self.status)
            .map(|old| text(&old["lastTransitionTime"]))
            .filter(|since| !since.is_empty())
            .unwrap_or(now)
            .to_owned();
        let mut condition = at
            .and_then(|at| conditions[at].as_object().cloned())
            .unwrap_or_else(|| Map::from_iter([("type".to_owned(), json!(self.kind))]));
        condition.insert("status".into(), self.status.into());
        condition.insert("reason".into(), self.reason.into());
        condition.insert("message".into(), self.message.into());
        condition.insert("lastTransitionTime".into(), since.into());
        match at {
            Some(at) => conditions[at] = Value::Object(condition),
            None => conditions.push(Value::Object(condition)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::custom_resource_definition::tests::widgets;

    const NOW: &str = "2024-05-01T00:00:00Z";
    const LATER: &str = "2024-05-02T00:00:00Z";

    fn established(mut crd: Value) -> Value {
        crd["status"] = next_status(&crd, &TakenNames::default(), NOW);
        crd
    }

    fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
        list(&status["conditions"]).iter().find(|condition| condition["type"] == kind).unwrap()
    }

    #[test]
    fn free_names_are_accepted_and_the_kind_is_established() {
        let status = next_status(&widgets(), &TakenNames::default(), NOW);
        assert_eq!(
            status,
            json!({
                "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget",
                    "listKind": "WidgetList", "shortNames": ["wd"], "categories": ["all"]},
                "conditions": [
                    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
                        "message": "no conflicts found", "lastTransitionTime": NOW},
                    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                        "message": "the initial names have been accepted", "lastTransitionTime": NOW},
                ],
                "storedVersions": ["v1"],
            })
        );
    }

    #[test]
    fn a_settled_status_stays_as_it_is() {
        let crd = established(widgets());
        assert_eq!(next_status(&crd, &TakenNames::default(), LATER), crd["status"]);
    }

    #[test]
    fn a_name_somebody_holds_is_refused_with_its_reason() {
        let mut other = widgets();
        other["metadata"]["name"] = json!("gadgets.example.com");
        other["status"]["acceptedNames"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"],
            "listKind": "WidgetList"});
        let crd = widgets();
        let taken = TakenNames::by_others("example.com", "widgets.example.com", [&other, &crd]);
        let status = next_status(&crd, &taken, NOW);
        let names = condition(&status, "NamesAccepted");
        assert_eq!(names["status"], "False");
        assert_eq!(names["reason"], "ListKindConflict");
        assert_eq!(names["message"], r#""WidgetList" is already in use"#);
        assert_eq!(condition(&status, "Established")["reason"], "NotAccepted");
        assert_eq!(status["acceptedNames"]["kind"], "Widget");
        assert_eq!(status["acceptedNames"]["shortNames"], Value::Null);
    }

    #[test]
    fn names_of_another_group_do_not_conflict() {
        let other = established(widgets());
        let mut crd = widgets();
        crd["metadata"]["name"] = json!("widgets.example.org");
        crd["spec"]["group"] = json!("example.org");
        let taken = TakenNames::by_others("example.org", "widgets.example.org", [&other]);
        assert_eq!(condition(&next_status(&crd, &taken, NOW), "NamesAccepted")["status"], "True");
    }

    #[test]
    fn when_the_conflict_goes_the_kind_is_established() {
        let mut crd = widgets();
        let mut taken = TakenNames::default();
        taken.take(&Names { plural: "widgets".into(), ..Names::default() });
        crd["status"] = next_status(&crd, &taken, NOW);
        assert!(!is_true(&crd, "Established"));
        assert_eq!(condition(&crd["status"], "NamesAccepted")["reason"], "PluralConflict");
        crd["status"] = next_status(&crd, &TakenNames::default(), LATER);
        assert!(is_true(&crd, "Established") && is_true(&crd, "NamesAccepted"));
        assert_eq!(condition(&crd["status"], "Established")["lastTransitionTime"], LATER);
    }

    #[test]
    fn an_established_kind_stays_so_whatever_names_it_asks_for_next() {
        let mut crd = established(widgets());
        crd["spec"]["names"]["shortNames"] = json!(["taken"]);
        let mut taken = TakenNames::default();
        taken.take(&Names { plural: "taken".into(), ..Names::default() });
        crd["status"] = next_status(&crd, &taken, LATER);
        assert!(is_true(&crd, "Established") && !is_true(&crd, "NamesAccepted"));
        assert_eq!(crd["status"]["acceptedNames"]["shortNames"], json!(["wd"]));
    }
}
