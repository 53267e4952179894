//! How any object stands, in one word and a sentence: what a console shows beside its name.
//!
//! Read off the object alone, whatever its kind: off its phase, its conditions, and whether it is being deleted. The words
//! are those that Rancher's clients know.

use serde_json::{Value, json};

/// How an object stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub name: String,
    pub message: String,
    pub error: bool,
    /// On its way somewhere, and not there yet.
    pub transitioning: bool,
}

impl Summary {
    /// As `metadata.state`.
    pub fn into_wire(self) -> Value {
        json!({
            "name": self.name, "message": self.message, "error": self.error, "transitioning": self.transitioning,
        })
    }
}

/// `False` is an error, `Unknown` is on its way.
const WHEN_UNKNOWN: &[(&str, &str)] = &[
    ("Active", "activating"),
    ("AddonDeploy", "provisioning"),
    ("AgentDeployed", "provisioning"),
    ("BackingNamespaceCreated", "configuring"),
    ("Built", "building"),
    ("Created", "creating"),
    ("Deployed", "deploying"),
    ("Downloaded", "downloading"),
    ("Drained", "draining"),
    ("Inactive", "deactivating"),
    ("Initialized", "initializing"),
    ("Installed", "installing"),
    ("Pending", "pending"),
    ("PodScheduled", "scheduling"),
    ("Provisioned", "provisioning"),
    ("Reconciled", "reconciling"),
    ("Registered", "registering"),
    ("Removed", "removing"),
    ("Saved", "saving"),
    ("Updated", "updating"),
    ("Updating", "updating"),
    ("Upgraded", "upgrading"),
    ("Waiting", "waiting"),
];
/// `False` is on its way, `Unknown` is an error.
const WHEN_FALSE: &[(&str, &str)] =
    &[("Available", "updating"), ("Completed", "activating"), ("Ready", "unavailable")];
/// `True` is on its way.
const WHEN_TRUE: &[(&str, &str)] = &[("Reconciling", "reconciling")];
/// `True` is an error.
const FAULTS: &[&str] = &[
    "DiskPressure",
    "Failed",
    "MemoryPressure",
    "NetworkUnavailable",
    "OutOfDisk",
    "ReplicaFailure",
    "Stalled",
    "Unschedulable",
];
/// What somebody who waits for its dependents is said to wait for.
const FOREGROUND: &str = "foregroundDeletion";

pub fn of(object: &Value) -> Summary {
    let conditions: Vec<&Value> = object["status"]["conditions"].as_array().into_iter().flatten().collect();
    let mut draft = Draft::default();
    if object["metadata"]["deletionTimestamp"].is_string() {
        draft.be("removing", waits_for(object));
        draft.transitioning = true;
        return draft.done();
    }
    draft.read_conditions(&conditions);
    match object["spec"]["active"].as_bool() {
        Some(is_active) if draft.name.is_empty() => {
            draft.be(if is_active { "active" } else { "inactive" }, "");
        }
        Some(_) | None => {}
    }
    draft.read_phase(text(&object["status"]["phase"]));
    if draft.name.is_empty() && object["kind"] == "Node" && object["spec"]["unschedulable"] == true {
        let is_drained = conditions.iter().any(|one| one["type"] == "Drained" && one["status"] == "True");
        match is_drained {
            true => draft.be("drained", "nothing runs on it, and nothing is placed on it"),
            false => draft.be("cordoned", "nothing more is placed on it"),
        }
    }
    if draft.name.is_empty() {
        let (seen, wanted) = (&object["status"]["observedGeneration"], &object["metadata"]["generation"]);
        match seen.is_number() && wanted.is_number() && seen != wanted {
            true => {
                draft.be(
                    "in-progress",
                    format!(
                        "{} generation is {wanted}, but latest observed generation is {seen}",
                        text(&object["kind"])
                    ),
                );
                draft.transitioning = true;
            }
            false => draft.be("active", "Resource is current"),
        }
    }
    draft.done()
}

/// Whether one condition by itself is an error, and whether it is on its way.
pub fn flags_of_condition(condition: &Value) -> (bool, bool) {
    let mut draft = Draft::default();
    draft.read_conditions(&[condition]);
    (draft.error, draft.transitioning)
}

fn waits_for(object: &Value) -> String {
    let first = |list: &Value| list.as_array().and_then(|all| all.first()?.as_str().map(str::to_owned));
    let finalizer = first(&object["metadata"]["finalizers"]).or_else(|| first(&object["spec"]["finalizers"]));
    match finalizer.as_deref() {
        None => String::new(),
        Some(FOREGROUND) => "waiting on object cleanup".into(),
        Some(finalizer) => format!("waiting on {finalizer}"),
    }
}

#[derive(Default)]
struct Draft {
    name: String,
    messages: Vec<String>,
    error: bool,
    transitioning: bool,
}

impl Draft {
    fn be(&mut self, name: &str, message: impl Into<String>) {
        self.name = name.to_lowercase();
        let message = message.into().trim().to_owned();
        if !message.is_empty() && !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// What is said later does not take the place of what was said first, unless it is an error.
    fn read_conditions(&mut self, conditions: &[&Value]) {
        let all = || conditions.iter().map(|c| (text(&c["type"]), text(&c["status"]), text(&c["message"])));
        for (_, _, message) in all().filter(|(name, status, _)| FAULTS.contains(name) && *status == "True") {
            self.error = true;
            let name = if self.name.is_empty() { "error".to_owned() } else { self.name.clone() };
            self.be(&name, message);
        }
        for (condition, status, message) in all() {
            match (word(WHEN_UNKNOWN, condition), status) {
                (Some(name), "False") => {
                    self.error = true;
                    self.be(name, message);
                }
                (Some(name), "Unknown") if self.name.is_empty() => {
                    self.transitioning = true;
                    self.be(name, message);
                }
                _ => {}
            }
        }
        for (condition, status, message) in all() {
            match (word(WHEN_TRUE, condition), status) {
                (Some(name), "True") if self.name.is_empty() => {
                    self.transitioning = true;
                    self.be(name, message);
                }
                _ => {}
            }
        }
        // That it is not ready says the least of all.
        let (ready, others): (Vec<_>, Vec<_>) = all().partition(|(condition, _, _)| *condition == "Ready");
        for (condition, status, message) in others.into_iter().chain(ready) {
            let Some(name) = word(WHEN_FALSE, condition).filter(|_| self.name.is_empty()) else { continue };
            match status {
                "False" => {
                    self.transitioning = true;
                    self.be(name, message);
                }
                "Unknown" => {
                    self.error = true;
                    self.be(name, message);
                }
                _ => {}
            }
        }
    }

    /// What is over or bound is that, whatever its conditions say.
    fn read_phase(&mut self, phase: &str) {
        match phase {
            "" => {}
            "Succeeded" | "Bound" => {
                self.be(phase, "");
                self.transitioning = false;
            }
            phase if self.name.is_empty() => self.be(phase, ""),
            _ => {}
        }
    }

    fn done(self) -> Summary {
        Summary {
            name: self.name,
            message: self.messages.join(":"),
            error: self.error,
            transitioning: self.transitioning,
        }
    }
}

fn word(table: &[(&str, &'static str)], condition: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| *name == condition).map(|(_, word)| *word)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(conditions: Value) -> Value {
        json!({"kind": "Thing", "metadata": {}, "status": {"conditions": conditions}})
    }

    fn told(object: &Value) -> (String, bool, bool) {
        let summary = of(object);
        (summary.name, summary.error, summary.transitioning)
    }

    #[test]
    fn an_object_that_says_nothing_is_active() {
        assert_eq!(told(&json!({"metadata": {}})), ("active".into(), false, false));
        assert_eq!(of(&json!({})).message, "Resource is current");
    }

    #[test]
    fn a_node_that_takes_nothing_more_is_cordoned_unless_there_is_worse_to_say() {
        let node = |conditions: Value| json!({"kind": "Node", "spec": {"unschedulable": true}, "status": {"conditions": conditions}});
        let ready = json!({"type": "Ready", "status": "True"});
        assert_eq!(told(&node(json!([ready]))), ("cordoned".into(), false, false));
        let drained = json!([ready, {"type": "Drained", "status": "True"}]);
        assert_eq!(told(&node(drained)), ("drained".into(), false, false));
        let gone = json!([{"type": "Ready", "status": "Unknown", "message": "no sign of it"}]);
        assert_eq!(told(&node(gone)), ("unavailable".into(), true, false));
        let mut open = node(json!([ready]));
        open["spec"] = json!({"unschedulable": false});
        assert_eq!(told(&open), ("active".into(), false, false));
        open["spec"] = json!({"unschedulable": true});
        open["kind"] = "Thing".into();
        assert_eq!(told(&open), ("active".into(), false, false));
    }

    #[test]
    fn a_phase_is_told_as_it_is() {
        for (phase, name) in [("Running", "running"), ("Bound", "bound"), ("Pending", "pending")] {
            assert_eq!(told(&json!({"status": {"phase": phase}})), (name.into(), false, false));
        }
    }

    #[test]
    fn what_is_not_ready_is_on_its_way_and_what_is_over_is_not() {
        let mut object = with(json!([{"type": "Ready", "status": "False", "message": "no instance"}]));
        assert_eq!(told(&object), ("unavailable".into(), false, true));
        assert_eq!(of(&object).message, "no instance");
        object["status"]["phase"] = "Succeeded".into();
        assert_eq!(told(&object), ("succeeded".into(), false, false));
    }

    #[test]
    fn an_error_outranks_everything_but_the_end() {
        let object = with(json!([
            {"type": "Ready", "status": "False"},
            {"type": "DiskPressure", "status": "True", "message": "full"},
            {"type": "Initialized", "status": "False", "message": "no source"},
        ]));
        assert_eq!(told(&object), ("initializing".into(), true, false));
        assert_eq!(of(&object).message, "full:no source");
        let mut going = object;
        going["metadata"] =
            json!({"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]});
        assert_eq!(told(&going), ("removing".into(), false, true));
        assert_eq!(of(&going).message, "waiting on object cleanup");
    }

    #[test]
    fn one_that_nobody_has_looked_at_yet_is_in_progress() {
        let object =
            json!({"kind": "Thing", "metadata": {"generation": 3}, "status": {"observedGeneration": 2}});
        assert_eq!(told(&object), ("in-progress".into(), false, true));
    }

    #[test]
    fn a_condition_has_flags_of_its_own() {
        let flags = |kind: &str, status: &str| flags_of_condition(&json!({"type": kind, "status": status}));
        assert_eq!(flags("Ready", "True"), (false, false));
        assert_eq!(flags("Ready", "False"), (false, true));
        assert_eq!(flags("Initialized", "False"), (true, false));
        assert_eq!(flags("Initialized", "Unknown"), (false, true));
        assert_eq!(flags("Stalled", "True"), (true, false));
        assert_eq!(flags("Imaginary", "False"), (false, false));
    }
}
