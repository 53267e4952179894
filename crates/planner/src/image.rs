//! Decides the next step for one image, and how it is said in its conditions.
//!
//! ```text
//!   new ---Initialize---> initialized --Fetch--> here --Publish--> Imported
//!                            ^   |
//!               Wait (10 s)  +---+ failed, until the retries are spent: GiveUp
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - An upload is fetched by nobody: it waits for its bytes.
//! - `Initialized` is never False with a message while there is hope: Terraform takes that
//!   for the end.

use k8s_openapi::jiff::Timestamp;
use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    virtual_machine_image::{
        IMPORTED, INITIALIZED, RETRY_LIMIT_EXCEEDED, VirtualMachineImage, VirtualMachineImageStatus,
        storage_class_name,
    },
};

/// Between one attempt and the next.
const RETRY_SECS: i64 = 10;

/// What there is of the image's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// So many hundredths.
    Arriving {
        progress: i64,
    },
    /// All of it, checked.
    Complete {
        size: i64,
        virtual_size: i64,
    },
    /// The last attempt ended badly, at this time.
    Failed {
        at: i64,
        why: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    WriteStatus(Box<VirtualMachineImageStatus>),
    /// Begin to download; what is left of an earlier attempt is thrown away.
    Fetch {
        url: String,
    },
    Wait {
        until: i64,
    },
    /// Make the class that disks of this image are made by.
    Publish {
        class: String,
    },
}

/// `class_exists` is whether the image's own class is there; `now` and times in `found` are
/// seconds since the epoch, `now_text` is the same for people.
pub fn next_step(
    image: &VirtualMachineImage,
    found: &Found,
    class_exists: bool,
    (now, now_text): (i64, &str),
) -> Step {
    let status = status_of(image, found, now_text);
    if status != image.status {
        return Step::WriteStatus(Box::new(status));
    }
    let download = image.spec.source_type == "download";
    match found {
        Found::Complete { .. } if !class_exists => {
            Step::Publish { class: storage_class_name(image.metadata.name.as_deref().unwrap_or_default()) }
        }
        Found::Complete { .. } | Found::Arriving { .. } => Step::Rest,
        Found::Nothing if download => Step::Fetch { url: image.spec.url.clone() },
        Found::Nothing => Step::Rest,
        Found::Failed { .. } if !download || has_given_up(&status) => Step::Rest,
        Found::Failed { at, .. } if at + RETRY_SECS > now => Step::Wait { until: at + RETRY_SECS },
        Found::Failed { .. } => Step::Fetch { url: image.spec.url.clone() },
    }
}

fn has_given_up(status: &VirtualMachineImageStatus) -> bool {
    let conditions = &status.conditions;
    conditions.iter().any(|one| one.condition_type == RETRY_LIMIT_EXCEEDED && one.status == "True")
}

/// The status an image should have. At rest it is the one it has.
pub fn status_of(image: &VirtualMachineImage, found: &Found, now: &str) -> VirtualMachineImageStatus {
    let mut status = image.status.clone();
    let name = image.metadata.name.as_deref().unwrap_or_default();
    status.applied_url.clone_from(&image.spec.url);
    status.storage_class_name = storage_class_name(name);
    status.target_storage_class_name.clone_from(&image.spec.target_storage_class_name);
    let mut say = |condition: &str, truth: &str, why: (&str, &str)| {
        set_condition(&mut status.conditions, condition, truth, why, now);
    };
    say(INITIALIZED, "True", ("", ""));
    match found {
        Found::Nothing => say(IMPORTED, "Unknown", ("Importing", "")),
        Found::Arriving { progress } => {
            say(IMPORTED, "Unknown", ("Importing", ""));
            status.progress = *progress;
        }
        Found::Complete { size, virtual_size } => {
            say(IMPORTED, "True", ("Imported", ""));
            (status.progress, status.size, status.virtual_size) = (100, *size, *virtual_size);
            // What went wrong before is over: an upload may fail and then succeed.
            status.conditions.retain(|condition| condition.condition_type != RETRY_LIMIT_EXCEEDED);
        }
        Found::Failed { at, why } => {
            let stamp = Timestamp::from_second(*at).map(|time| time.to_string()).unwrap_or_default();
            if status.last_failed_time != stamp {
                status.failed = status.failed.saturating_add(1);
                status.last_failed_time = stamp;
            }
            let spent = image.spec.source_type != "download" || status.failed > image.retries();
            let mut say = |condition: &str, truth: &str, why: (&str, &str)| {
                set_condition(&mut status.conditions, condition, truth, why, now);
            };
            if spent {
                say(IMPORTED, "False", ("ImportFailed", why));
                say(RETRY_LIMIT_EXCEEDED, "True", ("RetryLimitExceeded", "VMImage reached the retry limit"));
            } else {
                say(IMPORTED, "Unknown", ("Importing", why));
            }
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image(source: &str) -> VirtualMachineImage {
        serde_json::from_value(
            json!({"metadata": {"name": "image-1"}, "spec": {"displayName": "d", "sourceType": source,
            "url": if source == "download" { "https://example.com/i" } else { "" }, "retry": 1}}),
        )
        .unwrap()
    }

    /// The step once the status is written.
    fn settled(image: &mut VirtualMachineImage, found: &Found, class: bool, now: i64) -> Step {
        match next_step(image, found, class, (now, "t")) {
            Step::WriteStatus(status) => {
                image.status = *status;
                let step = next_step(image, found, class, (now, "later"));
                assert!(!matches!(step, Step::WriteStatus(_)), "a status is written once");
                step
            }
            step => step,
        }
    }

    #[test]
    fn a_download_is_fetched_published_and_then_at_rest() {
        let mut image = image("download");
        let fetch = Step::Fetch { url: "https://example.com/i".into() };
        assert_eq!(settled(&mut image, &Found::Nothing, false, 0), fetch);
        assert_eq!(image.condition(INITIALIZED).unwrap().status, "True");
        assert_eq!(image.status.storage_class_name, "longhorn-image-1");
        assert_eq!(settled(&mut image, &Found::Arriving { progress: 40 }, false, 1), Step::Rest);
        assert_eq!((image.status.progress, image.is_imported()), (40, false));
        let complete = Found::Complete { size: 5, virtual_size: 10 };
        assert_eq!(
            settled(&mut image, &complete, false, 2),
            Step::Publish { class: "longhorn-image-1".into() }
        );
        assert_eq!(settled(&mut image, &complete, true, 3), Step::Rest);
        assert!(image.is_imported());
    }

    #[test]
    fn an_upload_waits_for_its_bytes() {
        let mut image = image("upload");
        assert_eq!(settled(&mut image, &Found::Nothing, false, 0), Step::Rest);
    }

    #[test]
    fn a_failed_download_is_tried_again_until_the_retries_are_spent() {
        let mut image = image("download");
        let failed = |at| Found::Failed { at, why: "404 Not Found".into() };
        assert_eq!(settled(&mut image, &failed(100), false, 101), Step::Wait { until: 110 });
        assert_eq!(image.condition(IMPORTED).unwrap().message, "404 Not Found");
        assert_eq!(
            settled(&mut image, &failed(100), false, 110),
            Step::Fetch { url: "https://example.com/i".into() }
        );
        assert_eq!(settled(&mut image, &failed(111), false, 200), Step::Rest);
        assert_eq!((image.status.failed, image.condition(IMPORTED).unwrap().status.as_str()), (2, "False"));
        assert_eq!(image.condition(RETRY_LIMIT_EXCEEDED).unwrap().status, "True");
        assert_eq!(image.condition(INITIALIZED).unwrap().status, "True", "Terraform takes False for the end");
        settled(&mut image, &Found::Complete { size: 5, virtual_size: 10 }, true, 300);
        assert!(image.condition(RETRY_LIMIT_EXCEEDED).is_none(), "what is here did not fail");
    }
}
