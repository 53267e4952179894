//! What becomes of snapshots and their contents, decision by decision.

use serde_json::{Value, json};

use super::*;

fn snapshot(source: Value) -> VolumeSnapshot {
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "default", "uid": "u",
            "finalizers": [AS_SOURCE_PROTECTION, BOUND_PROTECTION]},
        "spec": {"source": source, "volumeSnapshotClassName": "c"},
    }))
    .unwrap()
}

fn of_claim() -> VolumeSnapshot {
    snapshot(json!({"persistentVolumeClaimName": "disk"}))
}

fn of_content() -> VolumeSnapshot {
    snapshot(json!({"volumeSnapshotContentName": "there"}))
}

fn class(driver: &str, sort: &str) -> VolumeSnapshotClass {
    serde_json::from_value(json!({"metadata": {"name": "c"}, "driver": driver, "deletionPolicy": "Delete",
        "parameters": {"type": sort}}))
    .unwrap()
}

fn content(name: &str, source: Value, uid: &str) -> VolumeSnapshotContent {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {NODE_ANNOTATION: "n1"},
            "finalizers": [CONTENT_PROTECTION, DATA_FINALIZER]},
        "spec": {"driver": PROVISIONER, "deletionPolicy": "Delete", "source": source,
            "volumeSnapshotRef": {"namespace": "default", "name": "s", "uid": uid}},
    }))
    .unwrap()
}

fn taken() -> VolumeSnapshotContent {
    content("snapcontent-u", json!({"volumeHandle": "v"}), "u")
}

fn given() -> VolumeSnapshotContent {
    content("there", json!({"snapshotHandle": "snap-old"}), "")
}

/// One step, with a class that serves and whatever else is said.
fn step(
    snapshot: &VolumeSnapshot,
    content: Option<&VolumeSnapshotContent>,
    claim: &Claim,
    in_use: bool,
) -> Step {
    let class = class(PROVISIONER, "snap");
    let seen = Seen { snapshot, content, class: Some(&class), claim, kept_on: "", in_use, now_secs: 100 };
    next_step(&seen)
}

fn on_n1() -> Claim {
    Claim::On { node: "n1".into() }
}

fn error_in(step: Step) -> String {
    let Step::WriteStatus(status) = step else { panic!("{step:?}") };
    assert_eq!(status.ready_to_use, Some(false));
    status.error.unwrap().message.unwrap()
}

fn going<T: k8s_openapi::Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>>(
    mut object: T,
) -> T {
    object.metadata_mut().deletion_timestamp = time(1);
    object
}

#[test]
fn a_snapshot_is_protected_before_anything_is_taken() {
    let mut bare = of_claim();
    bare.metadata.finalizers = None;
    assert_eq!(step(&bare, None, &on_n1(), false), Step::Protect);
}

#[test]
fn a_volume_that_nobody_made_yet_is_placed_first() {
    let nowhere = Claim::Nowhere { node: Some("n2".into()) };
    assert_eq!(step(&of_claim(), None, &nowhere, false), Step::PlaceVolume { node: "n2".into() });
    let lost = Claim::Nowhere { node: None };
    assert_eq!(step(&of_claim(), None, &lost, false), Step::Wait(Reason::NoNode));
    let content = Step::CreateContent { name: "snapcontent-u".into(), node: "n1".into() };
    assert_eq!(step(&of_claim(), None, &on_n1(), false), content);
}

#[test]
fn what_is_in_the_way_is_told_in_the_status_once() {
    for (claim, words) in [
        (Claim::Missing, "the claim disk does not exist"),
        (Claim::Going, "the claim disk is being deleted"),
        (Claim::Foreign, "the volume of claim disk is not kept by Sheaf"),
    ] {
        let mut snapshot = of_claim();
        let told = step(&snapshot, None, &claim, false);
        assert_eq!(error_in(told.clone()), words);
        let Step::WriteStatus(status) = told else { unreachable!() };
        snapshot.status = Some(status);
        assert!(matches!(step(&snapshot, None, &claim, false), Step::Wait(_)), "it is told already");
        assert!(
            matches!(step(&snapshot, None, &on_n1(), false), Step::CreateContent { .. }),
            "and it may go"
        );
    }
    assert_eq!(
        step(&of_claim(), None, &Claim::Unbound, false),
        Step::Wait(Reason::UnboundClaim("disk".into()))
    );
}

#[test]
fn a_class_that_nobody_serves_takes_nothing() {
    let snapshot = of_claim();
    let with = |class: Option<&VolumeSnapshotClass>| {
        let claim = on_n1();
        let seen = Seen {
            snapshot: &snapshot,
            content: None,
            class,
            claim: &claim,
            kept_on: "",
            in_use: false,
            now_secs: 1,
        };
        error_in(next_step(&seen))
    };
    assert_eq!(with(None), "volume snapshot class c not found");
    assert!(with(Some(&class("other", "snap"))).contains("driver other"));
    assert!(with(Some(&class(PROVISIONER, "bak"))).starts_with("no backup target"));
    let mut unclassed = of_claim();
    unclassed.spec.volume_snapshot_class_name = None;
    assert!(error_in(step(&unclassed, None, &on_n1(), false)).contains("no volumeSnapshotClassName"));
}

#[test]
fn a_snapshot_says_what_its_content_says() {
    let mut snapshot = of_claim();
    let mut content = taken();
    let Step::WriteStatus(status) = step(&snapshot, Some(&content), &Claim::Missing, false) else { panic!() };
    assert_eq!(status.bound_volume_snapshot_content_name.as_deref(), Some("snapcontent-u"));
    assert_eq!(status.ready_to_use, Some(false));
    snapshot.status = Some(status);
    assert_eq!(step(&snapshot, Some(&content), &Claim::Missing, false), Step::Rest);
    content.status =
        serde_json::from_value(json!({"error": {"message": "no room on n1"}, "readyToUse": false})).unwrap();
    let Step::WriteStatus(status) = step(&snapshot, Some(&content), &Claim::Missing, false) else { panic!() };
    assert_eq!(status.error.as_ref().unwrap().message.as_deref(), Some("no room on n1"));
    snapshot.status = Some(status);
    assert_eq!(step(&snapshot, Some(&content), &Claim::Missing, false), Step::Rest, "times included");
    content.status = serde_json::from_value(json!({
        "snapshotHandle": "snap-u", "readyToUse": true, "restoreSize": 1 << 30, "creationTime": 5_999_999_999_i64,
    }))
    .unwrap();
    let Step::WriteStatus(status) = step(&snapshot, Some(&content), &Claim::Missing, false) else { panic!() };
    assert_eq!(
        (status.ready_to_use, status.error.clone()),
        (Some(true), None),
        "what is over is told no more"
    );
    assert_eq!(
        (status.creation_time.clone(), status.restore_size.clone().unwrap().0),
        (time(5), "1Gi".into())
    );
    snapshot.status = Some(status);
    assert_eq!(step(&snapshot, Some(&content), &Claim::Missing, false), Step::Rest);
}

#[test]
fn a_content_that_went_is_not_taken_again() {
    let mut snapshot = of_claim();
    snapshot.status = Some(mirrored_of(&snapshot, &taken()));
    assert!(error_in(step(&snapshot, None, &on_n1(), false)).contains("is gone"));
}

fn mirrored_of(snapshot: &VolumeSnapshot, content: &VolumeSnapshotContent) -> VolumeSnapshotStatus {
    let Step::WriteStatus(status) = step(snapshot, Some(content), &Claim::Missing, false) else { panic!() };
    status
}

#[test]
fn nobody_gets_a_content_that_is_anothers() {
    for stray in [
        content("snapcontent-u", json!({"volumeHandle": "v"}), "other"),
        content("snapcontent-u", json!({"volumeHandle": "v"}), ""),
    ] {
        assert!(error_in(step(&of_claim(), Some(&stray), &on_n1(), false)).contains("for another"));
    }
    let mut elsewhere = given();
    elsewhere.spec.volume_snapshot_ref.namespace = Some("other".into());
    let mut renamed = given();
    renamed.spec.volume_snapshot_ref.name = Some("t".into());
    let mut held = given();
    held.spec.volume_snapshot_ref.uid = Some("other".into());
    for stray in [elsewhere, renamed, held] {
        assert!(error_in(step(&of_content(), Some(&stray), &Claim::Missing, false)).contains("for another"));
        let dying = step(&going(of_content()), Some(&stray), &Claim::Missing, false);
        assert_eq!(dying, Step::Unprotect, "nor does it take one along");
    }
    let dynamic = content("there", json!({"volumeHandle": "v"}), "");
    assert!(
        error_in(step(&of_content(), Some(&dynamic), &Claim::Missing, false)).contains("made for a claim")
    );
}

#[test]
fn a_content_that_was_there_is_taken_over_where_its_bytes_are() {
    assert!(error_in(step(&of_content(), None, &Claim::Missing, false)).contains("does not exist"));
    let adopt = Step::AdoptContent { node: "n1".into() };
    assert_eq!(step(&of_content(), Some(&given()), &Claim::Missing, false), adopt);
    let mut bare = given();
    bare.spec.volume_snapshot_ref.uid = Some("u".into());
    bare.metadata.finalizers = None;
    assert_eq!(
        step(&of_content(), Some(&bare), &Claim::Missing, false),
        adopt,
        "its marks are still to come"
    );
    bare.metadata.annotations = None;
    assert!(error_in(step(&of_content(), Some(&bare), &Claim::Missing, false)).contains("which node keeps"));
    let mut adopted = given();
    adopted.spec.volume_snapshot_ref.uid = Some("u".into());
    assert!(matches!(step(&of_content(), Some(&adopted), &Claim::Missing, false), Step::WriteStatus(_)));
}

#[test]
fn a_snapshot_goes_after_its_bytes_and_not_while_a_volume_is_made_of_it() {
    let dying = going(of_claim());
    assert_eq!(step(&dying, Some(&taken()), &Claim::Missing, true), Step::Wait(Reason::InUse));
    assert_eq!(step(&dying, Some(&taken()), &Claim::Missing, false), Step::DeleteContent);
    let mut content = going(taken());
    assert_eq!(step(&dying, Some(&content), &Claim::Missing, false), Step::ReleaseContent);
    content.metadata.finalizers = Some(vec![DATA_FINALIZER.into()]);
    assert_eq!(step(&dying, Some(&content), &Claim::Missing, false), Step::Wait(Reason::ContentGoing));
    assert_eq!(step(&dying, None, &Claim::Missing, false), Step::Unprotect);
    let mut gone = dying;
    gone.metadata.finalizers = None;
    assert_eq!(step(&gone, None, &Claim::Missing, false), Step::Rest);
}

#[test]
fn a_content_that_is_retained_stays_and_may_be_deleted_later() {
    let dying = going(of_claim());
    let mut content = taken();
    content.spec.deletion_policy = "Retain".into();
    assert_eq!(step(&dying, Some(&content), &Claim::Missing, false), Step::ReleaseContent);
    content.metadata.finalizers = Some(vec![DATA_FINALIZER.into()]);
    assert_eq!(step(&dying, Some(&content), &Claim::Missing, false), Step::Unprotect);
}

#[test]
fn a_content_whose_snapshot_is_gone_goes_or_stays_as_its_policy_says() {
    let content = taken();
    assert_eq!(next_content_step(&content, Some("u")), ContentStep::Rest);
    // A snapshot of the same name that was made later is another one.
    assert_eq!(next_content_step(&content, Some("v")), ContentStep::DeleteContent);
    assert_eq!(next_content_step(&going(taken()), None), ContentStep::Release);
    let mut kept = taken();
    kept.spec.deletion_policy = "Retain".into();
    assert_eq!(next_content_step(&kept, None), ContentStep::Release);
    kept.metadata.finalizers = Some(vec![DATA_FINALIZER.into()]);
    assert_eq!(next_content_step(&kept, None), ContentStep::Rest);
    assert_eq!(next_content_step(&given(), None), ContentStep::Rest, "it waits for its snapshot");
    assert_eq!(next_content_step(&going(given()), None), ContentStep::Release);
}
