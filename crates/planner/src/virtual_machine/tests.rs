//! The tables of the run strategies, and walks of a simulated cluster through them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use sheaf_resources::kinds::{
    virtual_machine::{EJECTED_CLAIMS_ANNOTATION, status::StateChangeRequest},
    virtual_machine_instance::status::{Phase, PhaseTransition},
};

use super::*;

const NOW: i64 = 1_800_000_000;

pub(super) fn machine(strategy: RunStrategy) -> VirtualMachine {
    serde_json::from_value(json!({
        "metadata": {"name": "vm", "namespace": "default", "uid": "vm-uid", "generation": 1},
        "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {
            "autoattachPodInterface": false}}}}},
    }))
    .unwrap()
}

pub(super) fn instance(phase: Phase) -> VirtualMachineInstance {
    let mut instance = sheaf_resources::kinds::virtual_machine::instance::instance_of(
        &machine(RunStrategy::Always),
        &mut |_| {},
    )
    .unwrap();
    instance.metadata.uid = Some("vmi-uid".into());
    instance.metadata.finalizers = None;
    instance.status.phase = phase;
    if phase == Phase::Running {
        instance.status.phase_transition_timestamps = vec![Default::default()];
        instance.status.phase_transition_timestamps[0].phase = Phase::Running;
    }
    instance
}

fn look<'a>(
    vm: &'a VirtualMachine,
    instance: Option<&'a VirtualMachineInstance>,
    claims: &'a BTreeMap<String, i64>,
    images: &'a BTreeSet<String>,
) -> Seen<'a> {
    static NO_UIDS: BTreeMap<String, String> = BTreeMap::new();
    Seen { vm, instance, claims, claim_uids: &NO_UIDS, images, volumes: Volumes::Ready, now: NOW }
}

/// Writes the status as often as asked, and gives the first other step.
fn settle(vm: &mut VirtualMachine, instance: Option<&VirtualMachineInstance>) -> Step {
    settle_at(vm, instance, NOW)
}

fn settle_at(vm: &mut VirtualMachine, instance: Option<&VirtualMachineInstance>, now: i64) -> Step {
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    for _ in 0..2 {
        let seen = Seen { now, ..look(vm, instance, &claims, &images) };
        match next_step(&seen) {
            Step::WriteStatus(status) => vm.status = *status,
            step => {
                // As it is written if the step cannot be taken.
                if let Some(status) = unwritten_status(&seen) {
                    assert!(is_for_reading_only(&vm.status, &status), "{step:?} comes before {status:?}");
                    vm.status = *status;
                }
                return step;
            }
        }
    }
    panic!("a status is written once");
}

fn mark_deleted(instance: &mut VirtualMachineInstance) {
    instance.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
}

/// A row per strategy and phase: what is done, and what people are told.
#[test]
fn every_strategy_and_phase_has_its_step_and_its_word() {
    let mut table = String::new();
    let early = Phase::ALL.map(|phase| (Some(phase), false));
    let ran = [Phase::Succeeded, Phase::Failed].map(|phase| (Some(phase), true));
    for strategy in RunStrategy::ALL {
        for (phase, ran) in [(None, false)].into_iter().chain(early).chain(ran) {
            let mut vm = machine(strategy);
            let mut there = phase.map(instance);
            if let Some(there) = there.as_mut().filter(|_| ran) {
                there.status.phase_transition_timestamps =
                    instance(Phase::Running).status.phase_transition_timestamps;
            }
            let step = settle(&mut vm, there.as_ref());
            let word = match step {
                Step::Rest => "rest",
                Step::CreateInstance => "create",
                Step::DeleteInstance { .. } => "delete",
                Step::Wait { .. } => "wait",
                other => panic!("{other:?}"),
            };
            let phase =
                phase.map_or("none", |phase| if phase == Phase::Unset { "unset" } else { phase.as_str() });
            let phase = if ran { format!("ran, {phase}") } else { phase.to_owned() };
            let start = vm.status.state_change_requests.len();
            table += &format!(
                "{strategy:14} {phase:14} {word:6} {:16} requests={start} failures={}\n",
                vm.status.printable_status,
                vm.status.start_failure.map_or(0, |failure| failure.consecutive_fail_count)
            );
        }
    }
    let wanted = include_str!("strategies.txt");
    assert_eq!(table, wanted, "\n{table}");
}

#[test]
fn a_machine_is_brought_up_before_its_status_is_written_unless_that_says_what_to_do() {
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    let mut vm = machine(RunStrategy::Always);
    let seen = look(&vm, None, &claims, &images);
    assert_eq!(next_step(&seen), Step::CreateInstance);
    assert!(unwritten_status(&seen).is_some(), "it is still to be written");

    // Halted before, and it never failed: that it is to start is an intention, which is kept first.
    vm.status.run_strategy = Some(RunStrategy::Halted);
    vm.spec.run_strategy = Some(RunStrategy::RerunOnFailure);
    assert!(matches!(next_step(&look(&vm, None, &claims, &images)), Step::WriteStatus(_)));
    vm.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    vm.spec.run_strategy = Some(RunStrategy::Always);
    assert!(matches!(next_step(&look(&vm, None, &claims, &images)), Step::WriteStatus(_)));
}

#[test]
fn what_changes_on_the_way_up_is_told_in_a_moment_and_holds_up_nothing() {
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    let mut vm = machine(RunStrategy::Always);
    let mut there = instance(Phase::Pending);
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    assert_eq!(vm.status.printable_status, "Starting");

    there.status.phase = Phase::Scheduled;
    there.status.conditions =
        serde_json::from_value(json!([{"type": "Ready", "status": "False", "reason": "GuestNotRunning"}]))
            .unwrap();
    let told = |vm: &VirtualMachine, instance: &VirtualMachineInstance| {
        next_step(&look(vm, Some(instance), &claims, &images))
    };
    assert!(matches!(told(&vm, &there), Step::TellSoon(_)));
    let mut stopped = vm.clone();
    stopped.status.state_change_requests = vec![StateChangeRequest::stop("vmi-uid")];
    assert_eq!(told(&stopped, &there), Step::DeleteInstance { uid: "vmi-uid".into() });
    let mut changed = vm.clone();
    changed.spec.run_strategy = Some(RunStrategy::RerunOnFailure);
    let step = told(&changed, &there);
    assert!(matches!(step, Step::WriteStatus(_)), "it would be started again after a stop: {step:?}");
    there.status.phase = Phase::Running;
    assert!(matches!(told(&vm, &there), Step::WriteStatus(_)), "that it runs is told at once");
    there.status.phase = Phase::Scheduling;
    there.status.conditions = serde_json::from_value(
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]),
    )
    .unwrap();
    assert!(matches!(told(&vm, &there), Step::WriteStatus(_)), "and so is what keeps it from running");
}

#[test]
fn deletion_outranks_power_on() {
    let mut vm = machine(RunStrategy::Always);
    vm.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    vm.metadata.finalizers = Some(vec![FINALIZER.into()]);
    assert_eq!(settle(&mut vm, None), Step::RemoveFinalizer);
    assert_eq!(vm.status.printable_status, "Terminating");
}

#[test]
fn a_deleted_machine_goes_after_its_instance_and_takes_the_named_claims_along() {
    let mut vm = machine(RunStrategy::Always);
    vm.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    vm.metadata.finalizers = Some(vec![FINALIZER.into()]);
    vm.metadata.annotations =
        Some([("harvesterhci.io/removedPersistentVolumeClaims".into(), "a,gone,anew,late".into())].into());
    note_uids(&mut vm, json!({"a": "1", "gone": "2", "anew": "3"}));
    let mut there = instance(Phase::Running);
    assert_eq!(settle(&mut vm, Some(&there)), Step::DeleteInstance { uid: "vmi-uid".into() });
    mark_deleted(&mut there);
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    settle(&mut vm, None);
    let there = [("a", "1"), ("kept", "4"), ("anew", "5"), ("late", "6")];
    let claims = there.iter().map(|(name, _)| ((*name).to_owned(), 1)).collect();
    let uids = there.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned())).collect();
    let images = BTreeSet::new();
    let seen = Seen { claim_uids: &uids, ..look(&vm, None, &claims, &images) };
    let meant = NotedClaim { name: "a".into(), uid: "1".into() };
    assert_eq!(next_step(&seen), Step::DeleteClaims { claims: vec![meant] }, "and no others of those names");
    assert_eq!(settle(&mut vm, None), Step::RemoveFinalizer);
}

#[test]
fn how_an_instance_ended_is_noted_before_it_is_let_go() {
    let mut vm = machine(RunStrategy::RerunOnFailure);
    let mut failed = instance(Phase::Failed);
    failed.metadata.finalizers = Some(vec![CONTROLLER_FINALIZER.into()]);
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    let Step::WriteStatus(status) = next_step(&look(&vm, Some(&failed), &claims, &images)) else {
        panic!("the status comes first");
    };
    assert_eq!(status.start_failure.as_ref().unwrap().consecutive_fail_count, 1);
    vm.status = *status;
    let step = next_step(&look(&vm, Some(&failed), &claims, &images));
    assert_eq!(step, Step::ReleaseInstance { uid: "vmi-uid".into() });
}

#[test]
fn a_machine_that_fails_to_come_up_waits_longer_each_time() {
    let mut vm = machine(RunStrategy::Always);
    let mut waits = Vec::new();
    for n in 0..7 {
        let mut failed = instance(Phase::Failed);
        failed.metadata.uid = Some(format!("vmi-{n}"));
        settle(&mut vm, Some(&failed));
        assert_eq!(settle(&mut vm, Some(&failed)), Step::DeleteInstance { uid: format!("vmi-{n}") });
        let Step::Wait { until } = settle(&mut vm, None) else { panic!("it waits") };
        assert_eq!(vm.status.printable_status, "CrashLoopBackOff");
        waits.push(until - NOW);
        assert_eq!(settle_at(&mut vm, None, until), Step::CreateInstance);
    }
    assert_eq!(waits, [10, 40, 90, 160, 250, 300, 300]);
    let up = ran(Phase::Running, "up", NOW, NOW);
    settle_at(&mut vm, Some(&up), NOW + 299);
    assert!(vm.status.start_failure.is_some(), "it may still die at once");
    settle_at(&mut vm, Some(&up), NOW + 300);
    assert_eq!(vm.status.start_failure, None, "once it ran for a while, it is forgiven");
}

/// One that came up at `since`, and ended at `until` unless it is still up.
fn ran(phase: Phase, uid: &str, since: i64, until: i64) -> VirtualMachineInstance {
    let mut there = instance(Phase::Running);
    there.metadata.uid = Some(uid.into());
    there.status.phase = phase;
    let passed = &mut there.status.phase_transition_timestamps;
    passed[0].phase_transition_timestamp = Timestamp::from_second(since).ok().map(Time);
    if phase.is_final() {
        passed.push(PhaseTransition {
            phase,
            phase_transition_timestamp: Timestamp::from_second(until).ok().map(Time),
        });
    }
    there
}

#[test]
fn a_machine_that_comes_up_and_dies_again_and_again_waits_longer_each_time() {
    for (strategy, phase) in [
        (RunStrategy::Always, Phase::Failed),
        (RunStrategy::Always, Phase::Succeeded),
        (RunStrategy::RerunOnFailure, Phase::Failed),
    ] {
        let mut vm = machine(strategy);
        let (mut now, mut waits) = (NOW, Vec::new());
        for n in 0..8 {
            let uid = format!("vmi-{n}");
            settle_at(&mut vm, Some(&ran(Phase::Running, &uid, now, now)), now);
            let died = ran(phase, &uid, now, now + 30);
            now += 31;
            assert_eq!(settle_at(&mut vm, Some(&died), now), Step::DeleteInstance { uid });
            waits.push(match settle_at(&mut vm, None, now) {
                Step::Wait { until } => {
                    assert_eq!(vm.status.printable_status, "CrashLoopBackOff");
                    until - now
                }
                Step::CreateInstance => 0,
                step => panic!("{step:?}"),
            });
            now += waits[n];
        }
        assert_eq!(waits, [0, 10, 40, 90, 160, 250, 300, 300]);
        // One that ran for long and dies then begins anew, also when nobody looked meanwhile.
        let died = ran(phase, "long", now, now + 300);
        settle_at(&mut vm, Some(&died), now + 400);
        assert_eq!(settle_at(&mut vm, None, now + 400), Step::CreateInstance);
    }
}

#[test]
fn a_machine_told_to_go_before_it_came_up_did_not_fail() {
    let mut vm = machine(RunStrategy::RerunOnFailure);
    let mut there = instance(Phase::Scheduled);
    mark_deleted(&mut there);
    settle(&mut vm, Some(&there));
    there.status.phase = Phase::Succeeded;
    settle(&mut vm, Some(&there));
    assert_eq!((vm.status.start_failure.as_ref(), vm.status.printable_status.as_str()), (None, "Stopped"));
}

#[test]
fn a_failure_is_counted_once_however_often_it_is_seen() {
    let mut vm = machine(RunStrategy::Always);
    for _ in 0..5 {
        settle(&mut vm, Some(&instance(Phase::Failed)));
    }
    assert_eq!(vm.status.start_failure.unwrap().consecutive_fail_count, 1);
}

#[test]
fn a_machine_stopped_by_hand_stays_stopped_until_it_is_asked_for() {
    let mut vm = machine(RunStrategy::RerunOnFailure);
    let mut there = instance(Phase::Running);
    settle(&mut vm, Some(&there));
    vm.status.state_change_requests = power::stop(&vm, Some(&there), None).unwrap().requests.unwrap();
    assert_eq!(settle(&mut vm, Some(&there)), Step::DeleteInstance { uid: "vmi-uid".into() });
    mark_deleted(&mut there);
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    assert_eq!(vm.status.printable_status, "Stopping");
    // Its power had to be cut. That is no failure to come back from: somebody asked for it.
    there.status.phase = Phase::Failed;
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    assert_eq!(settle(&mut vm, None), Step::Rest);
    assert_eq!(vm.status.printable_status, "Stopped");
    vm.status.state_change_requests = power::start(&vm, None, false).unwrap().requests.unwrap();
    assert_eq!(settle(&mut vm, None), Step::CreateInstance);
}

#[test]
fn a_restart_is_another_instance() {
    for strategy in [RunStrategy::Always, RunStrategy::RerunOnFailure, RunStrategy::Manual] {
        let mut vm = machine(strategy);
        let mut there = instance(Phase::Running);
        settle(&mut vm, Some(&there));
        vm.status.state_change_requests = power::restart(&vm, Some(&there), None).unwrap().requests.unwrap();
        assert_eq!(settle(&mut vm, Some(&there)), Step::DeleteInstance { uid: "vmi-uid".into() });
        mark_deleted(&mut there);
        there.status.phase = Phase::Succeeded;
        assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
        assert_eq!(settle(&mut vm, None), Step::CreateInstance, "{strategy}");
        let mut next = instance(Phase::Pending);
        next.metadata.uid = Some("vmi-2".into());
        assert_eq!(settle(&mut vm, Some(&next)), Step::Rest);
        assert!(vm.status.state_change_requests.is_empty());
    }
}

#[test]
fn a_machine_turned_on_while_it_goes_down_comes_up_again() {
    let mut vm = machine(RunStrategy::Halted);
    vm.status.run_strategy = Some(RunStrategy::Halted);
    let mut there = instance(Phase::Running);
    mark_deleted(&mut there);
    settle(&mut vm, Some(&there));
    vm.spec.run_strategy = Some(RunStrategy::RerunOnFailure);
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    assert_eq!(settle(&mut vm, None), Step::CreateInstance);
}

#[test]
fn a_machine_is_stopped_before_its_claims_are_seen_to() {
    let mut vm = machine(RunStrategy::Halted);
    let template =
        json!([{"metadata": {"name": "d"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]);
    let annotations = vm.metadata.annotations.get_or_insert_default();
    annotations.insert(claim_templates::ANNOTATION.into(), template.to_string());
    let running = instance(Phase::Running);
    assert_eq!(settle(&mut vm, Some(&running)), Step::DeleteInstance { uid: "vmi-uid".into() });
    let step = settle(&mut vm, None);
    assert!(matches!(step, Step::CreateClaim(_)), "{step:?}");
    let (sort, reason, told) = failure_event_of(&step, &vm, "no").unwrap();
    assert_eq!((sort, reason), ("Warning", "FailedCreate"));
    assert_eq!(told, "Error creating PersistentVolumeClaim d: no");
}

#[test]
fn a_halted_machine_that_is_to_start_paused_runs_from_then_on() {
    let mut vm = machine(RunStrategy::Halted);
    vm.status.state_change_requests = power::start(&vm, None, true).unwrap().requests.unwrap();
    assert_eq!(settle(&mut vm, None), Step::SetRunStrategy(RunStrategy::Always));
}

#[test]
fn somebody_elses_instance_is_left_alone() {
    let mut vm = machine(RunStrategy::Always);
    let mut foreign = instance(Phase::Running);
    foreign.metadata.owner_references = None;
    assert_eq!(settle(&mut vm, Some(&foreign)), Step::Rest);
    assert_eq!(vm.status.condition("Failure").unwrap().reason, "FailedCreate");
    assert!(!vm.status.created);
}

#[test]
fn claims_are_made_once_their_image_is_there_and_grown_when_asked() {
    let template = |size: &str| {
        json!([{"metadata": {"name": "disk", "annotations": {IMAGE_ANNOTATION: "default/i"}},
            "spec": {"resources": {"requests": {"storage": size}}}}])
        .to_string()
    };
    let mut vm = machine(RunStrategy::Halted);
    vm.metadata.annotations = Some([(claim_templates::ANNOTATION.into(), template("1Gi"))].into());
    assert_eq!(settle(&mut vm, None), Step::Rest, "the image is not there");
    let (mut claims, images) = (BTreeMap::new(), BTreeSet::from(["default/i".to_owned()]));
    let Step::CreateClaim(claim) = next_step(&look(&vm, None, &claims, &images)) else { panic!() };
    assert_eq!(claim.metadata.namespace.as_deref(), Some("default"));
    claims.insert("disk".to_owned(), 1 << 30);
    assert_eq!(next_step(&look(&vm, None, &claims, &images)), Step::Rest);
    vm.metadata.annotations = Some([(claim_templates::ANNOTATION.into(), template("2Gi"))].into());
    let grow = Step::GrowClaim { name: "disk".into(), bytes: 2 << 30 };
    assert_eq!(next_step(&look(&vm, None, &claims, &images)), grow);
    claims.insert("disk".to_owned(), 4 << 30);
    assert_eq!(next_step(&look(&vm, None, &claims, &images)), Step::Rest, "none is ever shrunk");
}

#[test]
fn conditions_of_the_instance_are_the_machines() {
    let mut vm = machine(RunStrategy::Always);
    let mut there = instance(Phase::Running);
    there.status.conditions = serde_json::from_value(json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "AgentConnected", "status": "True"}, {"type": "Paused", "status": "True", "reason": "PausedByUser"}]))
    .unwrap();
    settle(&mut vm, Some(&there));
    assert!(vm.status.ready && vm.status.created);
    assert_eq!(vm.status.printable_status, "Paused");
    assert_eq!((vm.status.observed_generation, vm.status.desired_generation), (1, 1));
    settle(&mut vm, None);
    let left: Vec<&str> = vm.status.conditions.iter().map(|one| one.condition_type.as_str()).collect();
    assert_eq!(left, ["Ready"]);
    assert_eq!(vm.status.condition("Ready").unwrap().reason, "VMINotExists");
}

#[test]
fn what_keeps_a_machine_from_starting_is_said() {
    for (condition, reason, word) in [
        ("Synchronized", "FailedPvcNotFound", "ErrorPvcNotFound"),
        ("PodScheduled", "Unschedulable", "ErrorUnschedulable"),
    ] {
        let mut vm = machine(RunStrategy::Always);
        let mut there = instance(Phase::Pending);
        let conditions: Value = json!([{"type": condition, "status": "False", "reason": reason}]);
        there.status.conditions = serde_json::from_value(conditions).unwrap();
        settle(&mut vm, Some(&there));
        assert_eq!(vm.status.printable_status, word);
    }
    let vm = machine(RunStrategy::Always);
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    for (volumes, word) in [
        (Volumes::Failed, "DataVolumeError"),
        (Volumes::Provisioning, "Provisioning"),
        (Volumes::Unbound, "WaitingForVolumeBinding"),
        (Volumes::Ready, "Stopped"),
    ] {
        let seen = Seen { volumes, ..look(&vm, None, &claims, &images) };
        assert_eq!(status::status_of(&seen).printable_status, word);
    }
}

#[test]
fn a_changed_template_asks_for_a_restart() {
    let mut vm = machine(RunStrategy::Always);
    let there = instance(Phase::Running);
    vm.metadata.generation = Some(2);
    settle(&mut vm, Some(&there));
    assert!(vm.status.condition("RestartRequired").is_none(), "only the run strategy changed");
    vm.spec.template.as_mut().unwrap().spec.hostname = "other".into();
    settle(&mut vm, Some(&there));
    let told = vm.status.condition("RestartRequired").unwrap();
    assert_eq!(told.status, "True");
    assert_eq!(told.message, "a non-live-updatable field was changed in the template spec: hostname");
    // Another instance is made as the template says.
    let mut fresh = instance(Phase::Running);
    fresh.spec.hostname = "other".into();
    settle(&mut vm, Some(&fresh));
    assert!(vm.status.condition("RestartRequired").is_none());
}

#[test]
fn what_can_change_while_it_runs_is_carried_over_and_asks_for_nothing_more() {
    let mut vm = machine(RunStrategy::Always);
    vm.metadata.generation = Some(2);
    let spec = &mut vm.spec.template.as_mut().unwrap().spec;
    spec.volumes = serde_json::from_value(json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}]))
    .unwrap();
    spec.domain.devices.disks =
        serde_json::from_value(json!([{"name": "data", "disk": {"bus": "scsi"}}])).unwrap();
    // One that comes up is left alone until it runs.
    let early = instance(Phase::Scheduled);
    assert!(!matches!(settle(&mut vm, Some(&early)), Step::UpdateInstance { .. }));
    let mut there = instance(Phase::Running);
    let Step::UpdateInstance { spec } = settle(&mut vm, Some(&there)) else {
        panic!("it is not carried over")
    };
    assert_eq!(spec.volumes[0].name, "data");
    there.spec = *spec;
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    assert!(vm.status.condition("RestartRequired").is_none());
    // What was added to the instance alone is not the machine's to take away.
    vm.spec.template.as_mut().unwrap().spec.volumes.clear();
    vm.spec.template.as_mut().unwrap().spec.domain.devices.disks.clear();
    let mut ephemeral = there.clone();
    ephemeral
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("kubevirt.io/ephemeral-hotplug-volumes".into(), r#"["data"]"#.into());
    assert_eq!(settle(&mut vm, Some(&ephemeral)), Step::Rest);
    let Step::UpdateInstance { spec } = settle(&mut vm, Some(&there)) else { panic!("it stays") };
    assert!(spec.volumes.is_empty() && spec.domain.devices.disks.is_empty());
}

proptest! {
    /// A cluster in a few lines: steps are obeyed, instances come up or fail, people press
    /// buttons. Whatever happens, the status settles, and nothing is created twice.
    #[test]
    fn the_status_settles_and_a_machine_has_one_instance(
        strategies in proptest::collection::vec(0_usize..5, 1..6),
        fates in proptest::collection::vec(0_u8..6, 1..40),
    ) {
        let mut vm = machine(RunStrategy::ALL[strategies[0]]);
        let (mut there, mut made): (Option<VirtualMachineInstance>, u32) = (None, 0);
        let mut now = NOW;
        for (n, fate) in fates.iter().enumerate() {
            vm.spec.run_strategy = Some(RunStrategy::ALL[strategies[n % strategies.len()]]);
            match settle_at(&mut vm, there.as_ref(), now) {
                Step::CreateInstance => {
                    prop_assert!(there.is_none());
                    made += 1;
                    let mut fresh = instance(Phase::Pending);
                    fresh.metadata.uid = Some(format!("vmi-{made}"));
                    there = Some(fresh);
                }
                Step::DeleteInstance { uid } => {
                    let doomed = there.as_mut().unwrap();
                    prop_assert_eq!(doomed.metadata.uid.as_deref(), Some(uid.as_str()));
                    prop_assert!(doomed.metadata.deletion_timestamp.is_none());
                    mark_deleted(doomed);
                }
                Step::SetRunStrategy(strategy) => vm.spec.run_strategy = Some(strategy),
                Step::Wait { until } => prop_assert!(until > now && until <= now + 300),
                _ => {}
            }
            now += 7;
            let going = there.as_ref().is_some_and(|there| there.metadata.deletion_timestamp.is_some());
            match fate {
                0 if going => there = None,
                1 => there.iter_mut().for_each(|there| there.status.phase = Phase::Failed),
                2 => there.iter_mut().filter(|there| !there.status.phase.is_final()).for_each(|there| {
                    there.status = instance(Phase::Running).status;
                }),
                3 => if let Ok(change) = power::start(&vm, there.as_ref(), false) {
                    vm.status.state_change_requests = change.requests.unwrap_or_default();
                },
                4 => if let Ok(change) = power::stop(&vm, there.as_ref(), None) {
                    vm.status.state_change_requests = change.requests.unwrap_or_default();
                },
                _ => {}
            }
        }
    }
}

#[test]
fn drawn_hardware_addresses_are_noted_while_it_runs_and_settled_when_it_is_down() {
    let mut vm = machine(RunStrategy::Manual);
    let interface = json!([{"name": "nic-0", "bridge": {}}]);
    let template = vm.spec.template.as_mut().unwrap();
    template.spec.domain.devices.interfaces = serde_json::from_value(interface).unwrap();
    let mut there = instance(Phase::Running);
    there.spec.domain.devices.interfaces.clone_from(&template.spec.domain.devices.interfaces);
    there.spec.domain.devices.interfaces[0].mac_address = "02:00:00:00:00:07".into();
    let annotation = r#"{"nic-0":"02:00:00:00:00:07"}"#.to_owned();
    assert_eq!(settle(&mut vm, Some(&there)), Step::NoteAddresses { annotation: annotation.clone() });
    vm.metadata.annotations = Some([(MAC_ADDRESS_ANNOTATION.to_owned(), annotation)].into());
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
    let addresses = BTreeMap::from([("nic-0".to_owned(), "02:00:00:00:00:07".to_owned())]);
    assert_eq!(settle(&mut vm, None), Step::SettleAddresses { addresses });
    let template = vm.spec.template.as_mut().unwrap();
    template.spec.domain.devices.interfaces[0].mac_address = "02:00:00:00:00:07".into();
    assert_eq!(settle(&mut vm, None), Step::Rest);
}

#[test]
fn the_labels_of_the_template_are_those_of_the_instance_beside_kubevirts_own() {
    let mut vm = machine(RunStrategy::Always);
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let wanted = labels(&[("app", "web"), ("kubevirt.io/size", "mine")]);
    vm.spec.template.as_mut().unwrap().metadata.labels = Some(wanted);
    let mut there = instance(Phase::Scheduled);
    there.metadata.labels = Some(labels(&[("old", "1"), ("kubevirt.io/nodeName", "n1")]));
    let synced = labels(&[("app", "web"), ("kubevirt.io/nodeName", "n1")]);
    assert_eq!(settle(&mut vm, Some(&there)), Step::SyncLabels { labels: synced.clone() });
    there.metadata.labels = Some(synced);
    assert_eq!(settle(&mut vm, Some(&there)), Step::Rest);
}

fn note_uids(vm: &mut VirtualMachine, uids: Value) {
    let annotations = vm.metadata.annotations.get_or_insert_default();
    annotations.insert(noted_claims::UIDS_ANNOTATION.into(), uids.to_string());
}

#[test]
fn a_disk_of_its_own_that_was_noted_before_it_was_made_is_the_first_one_that_is_there() {
    let mut vm = machine(RunStrategy::Halted);
    vm.spec.template.as_mut().unwrap().spec.volumes = ["root", "data"]
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .map(|volume| serde_json::from_value(volume).unwrap())
        .into();
    let annotations = vm.metadata.annotations.get_or_insert_default();
    annotations.insert("harvesterhci.io/removedPersistentVolumeClaims".into(), "root,data,somebodys".into());
    note_uids(&mut vm, json!({"data": "1"}));
    let there = [("root", "7"), ("data", "8"), ("somebodys", "9")];
    let uids = there.map(|(name, uid)| (name.to_owned(), uid.to_owned())).into();
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    let seen = Seen { claim_uids: &uids, ..look(&vm, None, &claims, &images) };
    let annotation = r#"{"data":"1","root":"7"}"#.to_owned();
    assert_eq!(binding_step(&seen), Some(Step::BindClaims { annotation }));
    note_uids(&mut vm, json!({"data": "1", "root": "6"}));
    let seen = Seen { claim_uids: &uids, ..look(&vm, None, &claims, &images) };
    assert_eq!(binding_step(&seen), None);
}

#[test]
fn an_ejected_disc_goes_when_neither_the_machine_nor_its_instance_names_it() {
    let mut vm = machine(RunStrategy::Always);
    vm.metadata
        .annotations
        .get_or_insert_default()
        .insert(EJECTED_CLAIMS_ANNOTATION.into(), "disc, other, unknown".into());
    note_uids(&mut vm, json!({"disc": "1", "other": "2"}));
    let noted = |name: &str, uid: &str| NotedClaim { name: name.into(), uid: uid.into() };
    let (claims, images) = (BTreeMap::new(), BTreeSet::new());
    let mut running = instance(Phase::Running);
    running.spec.volumes = vec![
        serde_json::from_value(json!({"name": "cd", "persistentVolumeClaim": {"claimName": "disc"}}))
            .unwrap(),
    ];
    let step = ejected_step(&look(&vm, Some(&running), &claims, &images));
    assert_eq!(
        step,
        Some(Step::DeleteEjected { claims: vec![noted("other", "2")], held: vec!["disc".into()] })
    );
    vm.metadata.annotations.get_or_insert_default().insert(EJECTED_CLAIMS_ANNOTATION.into(), "disc".into());
    assert_eq!(ejected_step(&look(&vm, Some(&running), &claims, &images)), None, "it waits");
    running.spec.volumes.clear();
    let step = ejected_step(&look(&vm, Some(&running), &claims, &images));
    assert_eq!(step, Some(Step::DeleteEjected { claims: vec![noted("disc", "1")], held: vec![] }));
    vm.spec.template.as_mut().unwrap().spec.volumes = vec![
        serde_json::from_value(json!({"name": "cd", "persistentVolumeClaim": {"claimName": "disc"}}))
            .unwrap(),
    ];
    let step = ejected_step(&look(&vm, Some(&running), &claims, &images));
    assert_eq!(step, Some(Step::DeleteEjected { claims: vec![], held: vec![] }), "it is in again");
    vm.metadata.annotations = None;
    assert_eq!(ejected_step(&look(&vm, None, &claims, &images)), None);
}
