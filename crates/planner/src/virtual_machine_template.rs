//! Decides how the versions of a VirtualMachineTemplate are numbered, and what the template says of them.
//!
//! ```text
//!   a version comes ---WriteVersion---> it has its number ---SetDefault, for the first---> WriteStatus ---> Rest
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - Versions are numbered in the order in which they were made, each one more than the highest there is.
//! - Which version is meant when none is said is somebody's to choose; where nobody did, or what they chose is none of its
//!   versions, it is the first.
//! - What a version is that is made of a machine is [`from_machine`].

pub mod from_machine;

use std::collections::BTreeSet;

use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    virtual_machine_template::{VirtualMachineTemplate, VirtualMachineTemplateStatus},
    virtual_machine_template_version::{
        ASSIGNED, READY, VirtualMachineTemplateVersion, VirtualMachineTemplateVersionStatus,
    },
};

/// A template and all that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub template: &'a VirtualMachineTemplate,
    /// All of its versions.
    pub versions: &'a [&'a VirtualMachineTemplateVersion],
    /// The images that can be used, as namespace/name.
    pub imported: &'a BTreeSet<String>,
    pub now: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    WriteVersion {
        name: String,
        status: VirtualMachineTemplateVersionStatus,
    },
    /// This namespace/name is the version that is meant when none is said.
    SetDefault(String),
    WriteStatus(VirtualMachineTemplateStatus),
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    let template = seen.template;
    if template.metadata.deletion_timestamp.is_some() {
        return Step::Rest;
    }
    let mut versions = seen.versions.to_vec();
    versions.sort_by_key(|version| {
        let made = version.metadata.creation_timestamp.as_ref().map(|made| made.0);
        (made, version.metadata.name.clone())
    });
    let assigned = || versions.iter().filter(|version| version.is_assigned());
    let latest = assigned().map(|version| version.status.version).max().unwrap_or(0);
    for version in versions.iter().filter(|version| version.metadata.deletion_timestamp.is_none()) {
        let status = wanted_status(seen, version, latest);
        if status != version.status {
            return Step::WriteVersion { name: name_of(version), status };
        }
    }
    let id = |version: &VirtualMachineTemplateVersion| {
        format!("{}/{}", version.metadata.namespace.as_deref().unwrap_or_default(), name_of(version))
    };
    let chosen = &template.spec.default_version_id;
    let first = assigned().min_by_key(|version| version.status.version);
    match first {
        Some(first) if !versions.iter().any(|version| id(version) == *chosen) => {
            return Step::SetDefault(id(first));
        }
        _ => {}
    }
    let default = assigned().find(|version| id(version) == *chosen);
    let status = VirtualMachineTemplateStatus {
        default_version: default.map_or(0, |version| version.status.version),
        latest_version: latest,
    };
    if status == template.status { Step::Rest } else { Step::WriteStatus(status) }
}

fn wanted_status(
    seen: &Seen<'_>,
    version: &VirtualMachineTemplateVersion,
    latest: i64,
) -> VirtualMachineTemplateVersionStatus {
    let mut status = version.status.clone();
    if !version.is_assigned() {
        status.version = latest + 1;
        set_condition(&mut status.conditions, ASSIGNED, "True", ("", ""), seen.now);
    }
    let missing: Vec<String> =
        version.images().into_iter().filter(|image| !seen.imported.contains(image)).collect();
    match missing.is_empty() {
        true => set_condition(&mut status.conditions, READY, "True", ("", ""), seen.now),
        false => {
            let words = format!("these images are not imported: {}", missing.join(", "));
            set_condition(&mut status.conditions, READY, "False", ("ImagesNotReady", &words), seen.now);
        }
    }
    status
}

fn name_of(version: &VirtualMachineTemplateVersion) -> String {
    version.metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(default: &str) -> VirtualMachineTemplate {
        let whole =
            json!({"metadata": {"name": "t", "namespace": "a"}, "spec": {"defaultVersionId": default}});
        serde_json::from_value(whole).unwrap()
    }

    fn version(name: &str, made: &str, image: &str) -> VirtualMachineTemplateVersion {
        let whole = json!({
            "metadata": {"name": name, "namespace": "a", "creationTimestamp": made},
            "spec": {"templateId": "a/t", "imageId": image},
        });
        serde_json::from_value(whole).unwrap()
    }

    /// Takes every step there is.
    fn settle(
        template: &mut VirtualMachineTemplate,
        versions: &mut [VirtualMachineTemplateVersion],
        imported: &[&str],
    ) -> Vec<Step> {
        let mut taken = Vec::new();
        loop {
            assert!(taken.len() < 20, "there is no end to it: {taken:?}");
            let all: Vec<&VirtualMachineTemplateVersion> = versions.iter().collect();
            let imported = imported.iter().map(|image| (*image).to_owned()).collect();
            let seen = Seen { template, versions: &all, imported: &imported, now: "now" };
            let step = next_step(&seen);
            match &step {
                Step::Rest => return taken,
                Step::WriteVersion { name, status } => {
                    let found = versions.iter_mut().find(|one| one.metadata.name.as_ref() == Some(name));
                    found.unwrap().status = status.clone();
                }
                Step::SetDefault(id) => template.spec.default_version_id = id.clone(),
                Step::WriteStatus(status) => template.status = status.clone(),
            }
            taken.push(step);
        }
    }

    fn numbers(versions: &[VirtualMachineTemplateVersion]) -> Vec<i64> {
        versions.iter().map(|version| version.status.version).collect()
    }

    #[test]
    fn versions_are_numbered_as_they_were_made_and_the_first_is_meant() {
        let mut t = template("");
        let mut versions = vec![
            version("late", "2026-01-02T00:00:00Z", ""),
            version("b", "2026-01-01T00:00:00Z", ""),
            version("a", "2026-01-01T00:00:00Z", ""),
        ];
        settle(&mut t, &mut versions, &[]);
        assert_eq!(numbers(&versions), [3, 2, 1]);
        assert_eq!(t.spec.default_version_id, "a/a");
        assert_eq!((t.status.default_version, t.status.latest_version), (1, 3));
        // Another one is the newest, and the one that is meant stays.
        versions.push(version("newer", "2026-01-03T00:00:00Z", ""));
        settle(&mut t, &mut versions, &[]);
        assert_eq!((t.status.default_version, t.status.latest_version), (1, 4));
    }

    #[test]
    fn a_number_is_kept_whatever_goes() {
        let mut t = template("");
        let mut versions =
            vec![version("a", "2026-01-01T00:00:00Z", ""), version("b", "2026-01-02T00:00:00Z", "")];
        settle(&mut t, &mut versions, &[]);
        t.spec.default_version_id = "a/b".into();
        versions.remove(0);
        settle(&mut t, &mut versions, &[]);
        assert_eq!((numbers(&versions), t.status.default_version), (vec![2], 2));
    }

    #[test]
    fn a_choice_that_is_none_of_its_versions_is_no_choice() {
        let mut t = template("a/gone");
        assert_eq!(settle(&mut t, &mut [], &[]), [], "there is nothing to choose from yet");
        settle(&mut t, &mut [version("a", "2026-01-01T00:00:00Z", "")], &[]);
        assert_eq!((t.spec.default_version_id.as_str(), t.status.default_version), ("a/a", 1));
    }

    #[test]
    fn a_version_is_ready_when_its_images_are() {
        let mut t = template("");
        let mut versions = vec![version("a", "2026-01-01T00:00:00Z", "a/image")];
        settle(&mut t, &mut versions, &[]);
        let ready = |versions: &[VirtualMachineTemplateVersion]| {
            let conditions = &versions[0].status.conditions;
            let found = conditions.iter().find(|one| one.condition_type == READY).unwrap();
            (found.status.clone(), found.message.clone())
        };
        let (is, words) = ready(&versions);
        assert!(is == "False" && words.contains("a/image"), "{words}");
        settle(&mut t, &mut versions, &["a/image"]);
        assert_eq!(ready(&versions), ("True".into(), String::new()));
        assert_eq!(numbers(&versions), [1]);
    }

    #[test]
    fn a_template_without_versions_is_at_rest_and_so_is_one_that_goes() {
        let mut t = template("");
        assert_eq!(settle(&mut t, &mut [], &[]), []);
        t.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(settle(&mut t, &mut [version("a", "2026-01-01T00:00:00Z", "")], &[]), []);
    }
}
