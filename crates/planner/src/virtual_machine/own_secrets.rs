//! Which Secrets a machine gets copies of, so that none belongs to it and to a template.
//!
//! The Secrets of a template's version go with the version, and whoever changes one changes it for all. So a machine that
//! comes to name such a Secret is made to name one of its own, whose name follows from the machine and the Secret, and
//! notes which is to be a copy of which. The note is the API server's to write and the controller's to take away.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sheaf_resources::kinds::virtual_machine::{SECRETS_TO_COPY_ANNOTATION, VirtualMachine};

use super::copy::{DYNAMIC_KEYS_ANNOTATION, secret_name, with_renamed_keys};

/// Lets `new` name Secrets of its own instead of those that `is_of_template` says, and notes them. Answers which Secrets are
/// to be copied because of this write: whoever writes must be allowed to read them.
pub fn take(
    new: &mut Value,
    old: Option<&Value>,
    by_controller: bool,
    is_of_template: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, uid) = (text(&new["metadata"]["name"]), text(&new["metadata"]["uid"]));
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for secret in secrets_in(new) {
        if is_of_template(secret) {
            let own = secret_name(&name, &format!("{uid}/{secret}"));
            renamed.insert(std::mem::replace(secret, own.clone()).clone(), own);
        }
    }
    let keys = new.pointer_mut("/spec/template/metadata/annotations");
    if let Some(keys) =
        keys.and_then(|all| all.get_mut(DYNAMIC_KEYS_ANNOTATION)).filter(|_| !renamed.is_empty())
    {
        let named = |secret: &str| renamed.get(secret).cloned().unwrap_or_else(|| secret.to_owned());
        *keys = with_renamed_keys(keys.as_str().unwrap_or_default(), &named).into();
    }
    let noted = |vm: &Value| parsed(vm["metadata"]["annotations"][SECRETS_TO_COPY_ANNOTATION].as_str());
    let mut note = match old {
        _ if by_controller => noted(new),
        Some(old) => noted(old),
        None => BTreeMap::new(),
    };
    let had: Vec<String> = old.map(names_in).unwrap_or_default();
    let mut copied = Vec::new();
    for (from, to) in renamed {
        // Applied once more, as it was before: it has its own.
        if !had.contains(&to) {
            copied.push(from.clone());
            note.insert(to, from);
        }
    }
    let named = names_in(new);
    note.retain(|to, _| named.contains(to));
    if !note.is_empty() {
        if !new["metadata"]["annotations"].is_object() {
            new["metadata"]["annotations"] = Value::Object(Map::new());
        }
        let note = serde_json::to_string(&note).unwrap_or_default();
        new["metadata"]["annotations"][SECRETS_TO_COPY_ANNOTATION] = note.into();
    } else if let Some(Value::Object(annotations)) = new.pointer_mut("/metadata/annotations") {
        annotations.remove(SECRETS_TO_COPY_ANNOTATION);
    }
    copied
}

/// The Secrets that are still to be copied, by the names of the copies.
pub fn to_copy(vm: &VirtualMachine) -> BTreeMap<String, String> {
    parsed(Some(vm.annotation(SECRETS_TO_COPY_ANNOTATION)))
}

/// Written by the API server alone, so what cannot be read is of no use to anybody.
fn parsed(text: Option<&str>) -> BTreeMap<String, String> {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn names_in(vm: &Value) -> Vec<String> {
    let mut vm = vm.clone();
    secrets_in(&mut vm).into_iter().map(|name| name.clone()).collect()
}

/// Every place of a machine that names a Secret.
fn secrets_in(vm: &mut Value) -> Vec<&mut String> {
    let mut found = Vec::new();
    let Some(Value::Object(spec)) = vm.pointer_mut("/spec/template/spec") else { return found };
    for (field, part) in spec {
        let places: &[&str] = match field.as_str() {
            "volumes" => &[
                "/cloudInitNoCloud/secretRef/name",
                "/cloudInitNoCloud/networkDataSecretRef/name",
                "/cloudInitConfigDrive/secretRef/name",
                "/cloudInitConfigDrive/networkDataSecretRef/name",
            ],
            "accessCredentials" => {
                &["/sshPublicKey/source/secret/secretName", "/userPassword/source/secret/secretName"]
            }
            _ => continue,
        };
        for one in part.as_array_mut().into_iter().flatten() {
            found.extend(strings_at(one, places));
        }
    }
    found
}

/// The strings in these places, which lie in different parts.
fn strings_at<'a>(value: &'a mut Value, places: &[&str]) -> Vec<&'a mut String> {
    let Value::Object(fields) = value else { return Vec::new() };
    let mut found = Vec::new();
    for (field, part) in fields {
        let inside: Vec<&str> = places
            .iter()
            .filter_map(|place| place.strip_prefix('/')?.strip_prefix(field.as_str()))
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .collect();
        match (part, inside.contains(&"")) {
            (Value::String(text), true) => found.push(text),
            (_, true) => {}
            (part, false) => found.extend(strings_at(part, &inside)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(user: &str, network: &str, keys: &str) -> Value {
        json!({"metadata": {"name": "vm", "uid": "u"}, "spec": {"template": {
            "metadata": {"annotations": {DYNAMIC_KEYS_ANNOTATION: json!({keys: ["a"]}).to_string()}},
            "spec": {
                "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": keys}}}}],
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": user},
                        "networkDataSecretRef": {"name": network}}}]}}}})
    }

    fn of_template(name: &str) -> bool {
        name.starts_with("t-")
    }

    fn note(vm: &Value) -> BTreeMap<String, String> {
        parsed(vm["metadata"]["annotations"][SECRETS_TO_COPY_ANNOTATION].as_str())
    }

    #[test]
    fn a_machine_of_a_template_names_secrets_of_its_own_and_says_what_they_are_copies_of() {
        let mut vm = machine("t-user", "own", "t-keys");
        let copied = take(&mut vm, None, false, &of_template);
        assert_eq!(copied, ["t-keys", "t-user"]);
        let (user, keys) = (secret_name("vm", "u/t-user"), secret_name("vm", "u/t-keys"));
        let mut expected = machine(&user, "own", &keys);
        let noted = [(user.clone(), "t-user".to_owned()), (keys.clone(), "t-keys".to_owned())];
        assert_eq!(note(&vm), noted.into());
        expected["metadata"]["annotations"] = vm["metadata"]["annotations"].clone();
        assert_eq!(vm, expected, "and nothing else is otherwise");
        let mut other = machine("t-user", "own", "own");
        other["metadata"]["uid"] = json!("v");
        take(&mut other, None, false, &of_template);
        assert_ne!(note(&other).keys().next(), Some(&user), "another of its name has another");
        let mut plain = machine("own", "own", "own");
        assert!(take(&mut plain, None, false, &of_template).is_empty());
        assert_eq!(plain, machine("own", "own", "own"));
    }

    #[test]
    fn what_is_applied_again_is_not_copied_again() {
        let mut first = machine("t-user", "own", "own");
        take(&mut first, None, false, &of_template);
        let mut again = machine("t-user", "own", "own");
        assert!(take(&mut again, Some(&first), false, &of_template).is_empty());
        assert_eq!(again, first, "what is not done yet stays noted");
        let mut done = first.clone();
        done["metadata"]["annotations"] = json!({});
        let mut after = machine("t-user", "own", "own");
        assert!(take(&mut after, Some(&done), false, &of_template).is_empty());
        assert!(note(&after).is_empty());
    }

    #[test]
    fn the_note_is_nobodys_to_write_but_ours() {
        let forged = json!({SECRETS_TO_COPY_ANNOTATION: r#"{"own":"somebodys"}"#});
        let mut vm = machine("own", "own", "own");
        vm["metadata"]["annotations"] = forged.clone();
        assert!(take(&mut vm, None, false, &of_template).is_empty());
        assert!(note(&vm).is_empty());
        let mut later = machine("own", "own", "own");
        later["metadata"]["annotations"] = forged;
        take(&mut later, Some(&machine("own", "own", "own")), false, &of_template);
        assert!(note(&later).is_empty());
        // The controller takes it away, a person does not; and with the name goes what is noted about it.
        let mut first = machine("t-user", "own", "own");
        take(&mut first, None, false, &of_template);
        let mut bare = first.clone();
        bare["metadata"]["annotations"] = json!({});
        let mut by_person = bare.clone();
        take(&mut by_person, Some(&first), false, &of_template);
        assert_eq!(note(&by_person), note(&first));
        take(&mut bare, Some(&first), true, &of_template);
        assert!(note(&bare).is_empty());
        let mut elsewhere = machine("own", "own", "own");
        take(&mut elsewhere, Some(&first), false, &of_template);
        assert!(note(&elsewhere).is_empty());
    }
}
