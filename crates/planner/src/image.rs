//! Decides the next step for one image, and how it is said in its conditions.
//!
//! ```text
//!   new ---Initialize---> initialized --Fetch, Clone, Export--> here --Label, Publish--> Imported
//!                            ^   |
//!               Wait (10 s)  +---+ failed, until the retries are spent: GiveUp
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - An upload is fetched by nobody: it waits for its bytes, and for the rest of them where it broke off.
//! - `Initialized` is never False with a message while there is hope: Terraform takes that
//!   for the end.

use k8s_openapi::jiff::Timestamp;
use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    virtual_machine_image::{
        DISC, DISK, DOWNLOAD, IMAGE_TYPE_LABEL, IMPORTED, INITIALIZED, RETRY_LIMIT_EXCEEDED,
        VirtualMachineImage, VirtualMachineImageStatus, storage_class_name,
    },
};

/// Between one attempt and the next.
const RETRY_SECS: i64 = 10;

/// What there is of the image's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Arriving(Amount),
    /// An upload broke off; the rest may still come.
    Interrupted {
        amount: Amount,
        why: String,
    },
    /// All of it, checked.
    Complete {
        size: i64,
        virtual_size: i64,
        /// It is installed from, and no disk.
        is_disc: bool,
    },
    /// The last attempt ended badly, at this time.
    Failed {
        at: i64,
        why: String,
    },
}

/// How much of an image is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// So many hundredths.
    pub progress: i64,
    /// Bytes that all of it is, as they come; 0 where nobody knows.
    pub total: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    WriteStatus(Box<VirtualMachineImageStatus>),
    /// Begin to download; what is left of an earlier attempt is thrown away.
    Fetch {
        url: String,
    },
    /// Make it of another image.
    Clone {
        namespace: String,
        name: String,
    },
    /// Make it of the disk of a claim.
    Export {
        namespace: String,
        claim: String,
    },
    /// Say what it is to be attached as.
    Label {
        image_type: &'static str,
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
    match found {
        Found::Complete { is_disc, .. } if !is_labelled(image) => {
            Step::Label { image_type: if *is_disc { DISC } else { DISK } }
        }
        Found::Complete { .. } if !class_exists => {
            Step::Publish { class: storage_class_name(image.metadata.name.as_deref().unwrap_or_default()) }
        }
        Found::Complete { .. } | Found::Arriving(_) | Found::Interrupted { .. } => Step::Rest,
        Found::Nothing => bring(image),
        Found::Failed { .. } if !is_tried_again(image) || has_given_up(&status) => Step::Rest,
        Found::Failed { at, .. } if at + RETRY_SECS > now => Step::Wait { until: at + RETRY_SECS },
        Found::Failed { .. } => bring(image),
    }
}

/// The step that brings the bytes here.
fn bring(image: &VirtualMachineImage) -> Step {
    if let Some((namespace, name)) = image.original() {
        return Step::Clone { namespace: namespace.into(), name: name.into() };
    }
    if let Some((namespace, claim)) = image.exported_claim() {
        return Step::Export { namespace: namespace.into(), claim: claim.into() };
    }
    match image.spec.source_type == DOWNLOAD {
        true => Step::Fetch { url: image.spec.url.clone() },
        false => Step::Rest,
    }
}

/// Whether the node can do anything about a failure by itself.
fn is_tried_again(image: &VirtualMachineImage) -> bool {
    bring(image) != Step::Rest
}

fn is_labelled(image: &VirtualMachineImage) -> bool {
    image.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(IMAGE_TYPE_LABEL))
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
        Found::Arriving(amount) => {
            say(IMPORTED, "Unknown", ("Importing", ""));
            (status.progress, status.size) = (amount.progress, amount.total);
        }
        Found::Interrupted { amount, why } => {
            say(IMPORTED, "Unknown", ("Importing", why));
            (status.progress, status.size) = (amount.progress, amount.total);
        }
        Found::Complete { size, virtual_size, .. } => {
            say(IMPORTED, "True", ("Imported", ""));
            (status.progress, status.size, status.virtual_size) = (100, *size, *virtual_size);
            // What went wrong before is over: an upload may fail and then succeed.
            status.conditions.retain(|condition| condition.condition_type != RETRY_LIMIT_EXCEEDED);
        }
        Found::Failed { at, why } => {
            // Nothing is kept of it, and nothing of what comes next is there.
            (status.progress, status.size) = (0, 0);
            let stamp = Timestamp::from_second(*at).map(|time| time.to_string()).unwrap_or_default();
            if status.last_failed_time != stamp {
                status.failed = status.failed.saturating_add(1);
                status.last_failed_time = stamp;
            }
            let spent = !is_tried_again(image) || status.failed > image.retries();
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
        let some = Found::Arriving(Amount { progress: 40, total: 3 });
        assert_eq!(settled(&mut image, &some, false, 1), Step::Rest);
        assert_eq!((image.status.progress, image.status.size, image.is_imported()), (40, 3, false));
        let complete = Found::Complete { size: 5, virtual_size: 10, is_disc: false };
        assert_eq!(settled(&mut image, &complete, false, 2), Step::Label { image_type: "raw_qcow2" });
        image.metadata.labels = Some([(IMAGE_TYPE_LABEL.to_owned(), "iso".to_owned())].into());
        assert_eq!(
            settled(&mut image, &complete, false, 2),
            Step::Publish { class: "longhorn-image-1".into() }
        );
        assert_eq!(settled(&mut image, &complete, true, 3), Step::Rest);
        assert!(image.is_imported());
    }

    #[test]
    fn an_upload_waits_for_its_bytes_and_for_the_rest_of_them() {
        let mut image = image("upload");
        assert_eq!(settled(&mut image, &Found::Nothing, false, 0), Step::Rest);
        let amount = Amount { progress: 50, total: 8 };
        let half = Found::Interrupted { amount, why: "the cable is gone".into() };
        assert_eq!(settled(&mut image, &half, false, 1), Step::Rest);
        let imported = image.condition(IMPORTED).unwrap();
        assert_eq!((imported.status.as_str(), imported.message.as_str()), ("Unknown", "the cable is gone"));
        assert_eq!((image.status.progress, image.status.failed), (50, 0), "there is hope");
    }

    #[test]
    fn an_image_of_an_image_or_of_a_disk_is_made_where_that_is() {
        let mut clone = image("clone");
        clone.spec.security_parameters.source_image_name = "a".into();
        clone.spec.security_parameters.source_image_namespace = "n".into();
        let step = Step::Clone { namespace: "n".into(), name: "a".into() };
        assert_eq!(settled(&mut clone, &Found::Nothing, false, 0), step);
        let failed = |at| Found::Failed { at, why: "not yet".into() };
        assert_eq!(settled(&mut clone, &failed(100), false, 101), Step::Wait { until: 110 });
        assert_eq!(settled(&mut clone, &failed(100), false, 111), step);

        let mut export = image("export-from-volume");
        (export.spec.pvc_namespace, export.spec.pvc_name) = ("n".into(), "disk".into());
        let step = Step::Export { namespace: "n".into(), claim: "disk".into() };
        assert_eq!(settled(&mut export, &Found::Nothing, false, 0), step);
    }

    #[test]
    fn a_failed_download_is_tried_again_until_the_retries_are_spent() {
        let mut image = image("download");
        let failed = |at| Found::Failed { at, why: "404 Not Found".into() };
        settled(&mut image, &Found::Arriving(Amount { progress: 40, total: 3 }), false, 99);
        assert_eq!(settled(&mut image, &failed(100), false, 101), Step::Wait { until: 110 });
        assert_eq!((image.status.progress, image.status.size), (0, 0), "nothing is there of it");
        assert_eq!(image.condition(IMPORTED).unwrap().message, "404 Not Found");
        assert_eq!(
            settled(&mut image, &failed(100), false, 110),
            Step::Fetch { url: "https://example.com/i".into() }
        );
        assert_eq!(settled(&mut image, &failed(111), false, 200), Step::Rest);
        assert_eq!((image.status.failed, image.condition(IMPORTED).unwrap().status.as_str()), (2, "False"));
        assert_eq!(image.condition(RETRY_LIMIT_EXCEEDED).unwrap().status, "True");
        assert_eq!(image.condition(INITIALIZED).unwrap().status, "True", "Terraform takes False for the end");
        settled(&mut image, &Found::Complete { size: 5, virtual_size: 10, is_disc: true }, true, 300);
        assert!(image.condition(RETRY_LIMIT_EXCEEDED).is_none(), "what is here did not fail");
    }

    /// Terraform takes `Initialized` that is False and has words for the end of it.
    #[test]
    fn trap_13_an_image_on_its_way_is_never_uninitialised_with_words() {
        let failed = |at| Found::Failed { at, why: "404 Not Found".into() };
        for source in ["download", "upload", "clone", "export-from-volume"] {
            let mut image = image(source);
            let told = [
                Found::Nothing,
                failed(1),
                Found::Arriving(Amount { progress: 3, total: 0 }),
                Found::Interrupted { amount: Amount::default(), why: "the cable is gone".into() },
                failed(30),
                Found::Nothing,
                failed(60),
                failed(90),
            ];
            for (n, found) in told.iter().enumerate() {
                let now = i64::try_from(n).unwrap() * 30;
                while let Step::WriteStatus(status) = next_step(&image, found, false, (now, "t")) {
                    image.status = *status;
                    let initialized = image.condition(INITIALIZED);
                    let is_end =
                        initialized.is_some_and(|one| one.status == "False" && !one.message.is_empty());
                    assert!(!is_end, "{source}, {found:?}: {initialized:?}");
                }
            }
        }
    }
}
