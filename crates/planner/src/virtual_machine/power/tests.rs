//! KubeVirt's tables: what each button does under each strategy.

use super::super::tests::{instance, machine};
use super::*;

fn message(result: Result<Change, Refusal>) -> String {
    match result.unwrap_err() {
        Refusal::Conflict(message) => message,
        other => panic!("{other:?}"),
    }
}

fn actions(change: Result<Change, Refusal>) -> Vec<String> {
    change.unwrap().requests.unwrap().into_iter().map(|request| request.action).collect()
}

#[test]
fn starting_what_runs_is_a_conflict() {
    for strategy in RunStrategy::ALL {
        let refused = start(&machine(strategy), Some(&instance(Phase::Running)), false);
        assert_eq!(message(refused), "VM is already running", "{strategy}");
    }
}

#[test]
fn starting_flips_a_halted_machine_and_asks_the_others() {
    let flipped = start(&machine(RunStrategy::Halted), None, false).unwrap();
    assert_eq!(flipped.run_strategy, Some(RunStrategy::Always));
    assert_eq!(flipped.requests, None);
    for strategy in [RunStrategy::Manual, RunStrategy::RerunOnFailure] {
        assert_eq!(actions(start(&machine(strategy), None, false)), ["Start"]);
        let over = instance(Phase::Succeeded);
        assert_eq!(actions(start(&machine(strategy), Some(&over), false)), ["Stop", "Start"]);
    }
    for strategy in [RunStrategy::Always, RunStrategy::Once] {
        let refused = start(&machine(strategy), None, false);
        assert_eq!(message(refused), format!("{strategy} does not support manual start requests"));
    }
}

#[test]
fn a_failed_machine_is_started_by_its_strategy_not_by_hand() {
    let failed = instance(Phase::Failed);
    let refused = start(&machine(RunStrategy::RerunOnFailure), Some(&failed), false);
    assert_eq!(message(refused), "RerunOnFailure does not support starting VM from failed state");
    assert_eq!(actions(start(&machine(RunStrategy::Manual), Some(&failed), false)), ["Stop", "Start"]);
}

#[test]
fn stopping_halts_the_automatic_and_asks_the_others() {
    let running = instance(Phase::Running);
    for strategy in [RunStrategy::Always, RunStrategy::Once] {
        let change = stop(&machine(strategy), Some(&running), None).unwrap();
        assert_eq!(change.run_strategy, Some(RunStrategy::Halted));
    }
    for strategy in [RunStrategy::Manual, RunStrategy::RerunOnFailure] {
        assert_eq!(actions(stop(&machine(strategy), Some(&running), None)), ["Stop"]);
        assert_eq!(message(stop(&machine(strategy), None, None)), "VM is not running");
        let over = instance(Phase::Failed);
        assert_eq!(message(stop(&machine(strategy), Some(&over), None)), "VM is not running");
    }
}

#[test]
fn a_halted_machine_can_only_be_hurried() {
    let halted = machine(RunStrategy::Halted);
    let mut running = instance(Phase::Running);
    running.spec.termination_grace_period_seconds = Some(120);
    let why = "Halted only supports manual stop requests with a shorter graceperiod";
    assert_eq!(message(stop(&halted, Some(&running), None)), why);
    assert_eq!(message(stop(&halted, Some(&running), Some(120))), why);
    let change = stop(&halted, Some(&running), Some(0)).unwrap();
    assert_eq!(change.grace_period_secs, Some(0));
    assert_eq!(message(stop(&halted, None, Some(0))), "VM is not running");
}

#[test]
fn restarting_is_a_stop_and_a_start() {
    let running = instance(Phase::Running);
    for strategy in [RunStrategy::Always, RunStrategy::Manual, RunStrategy::RerunOnFailure] {
        let change = restart(&machine(strategy), Some(&running), Some(0)).unwrap();
        assert_eq!(change.grace_period_secs, Some(0));
        assert_eq!(actions(Ok(change)), ["Stop", "Start"]);
        assert_eq!(message(restart(&machine(strategy), None, None)), "VM is not running: Halted");
    }
    for strategy in [RunStrategy::Halted, RunStrategy::Once] {
        let refused = restart(&machine(strategy), Some(&running), None);
        assert_eq!(
            message(refused),
            format!("RunStategy {strategy} does not support manual restart requests")
        );
    }
    for (grace, words) in [(5, "only gracePeriod=0"), (-1, "greater or equal to 0")] {
        let refused = restart(&machine(RunStrategy::Always), Some(&running), Some(grace)).unwrap_err();
        assert!(matches!(&refused, Refusal::BadRequest(why) if why.contains(words)), "{refused:?}");
    }
}

#[test]
fn one_request_at_a_time_except_a_stop() {
    let running = instance(Phase::Running);
    let mut vm = machine(RunStrategy::Manual);
    vm.status.state_change_requests = vec![StateChangeRequest::start(false)];
    assert!(matches!(start(&vm, None, false), Err(Refusal::Underway(_))));
    let over = instance(Phase::Succeeded);
    assert!(matches!(restart(&vm, Some(&over), None), Err(Refusal::Underway(_))));
    assert_eq!(actions(stop(&vm, Some(&running), None)), ["Stop"]);
}

#[test]
fn a_stop_that_is_done_but_still_written_down_keeps_nobody_from_starting() {
    let running = instance(Phase::Running);
    for strategy in [RunStrategy::Manual, RunStrategy::RerunOnFailure] {
        let mut vm = machine(strategy);
        vm.status.state_change_requests = stop(&vm, Some(&running), None).unwrap().requests.unwrap();
        assert_eq!(actions(start(&vm, None, false)), ["Start"], "{strategy}: its instance is gone");
        let mut over = instance(Phase::Succeeded);
        over.metadata.uid = running.metadata.uid.clone();
        let refused = start(&vm, Some(&over), false);
        assert!(matches!(refused, Err(Refusal::Underway(_))), "{strategy}: not gone yet");
    }
}

#[test]
fn buttons_of_a_running_machine_say_why_not() {
    let mut vmi = instance(Phase::Scheduled);
    let conflict = |message: &str| Err(Refusal::Conflict(message.into()));
    assert_eq!(may_pause(&vmi), conflict("VM is not running"));
    assert_eq!(may_unpause(None, &vmi), conflict("VMI is not running"));
    assert_eq!(may_soft_reboot(&vmi), conflict("VM is not running"));
    assert_eq!(may_reset(&vmi), conflict("VMI is not running"));
    assert_eq!(may_ask_guest(&vmi), conflict("VMI is not running"));
    vmi.status.phase = Phase::Running;
    assert_eq!((may_pause(&vmi), may_soft_reboot(&vmi), may_reset(&vmi)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(may_unpause(None, &vmi), conflict("VMI is not paused"));
    assert_eq!(may_ask_guest(&vmi), conflict("VMI does not have guest agent connected"));
    vmi.status.conditions =
        serde_json::from_value(serde_json::json!([{"type": "Paused", "status": "True"}])).unwrap();
    assert_eq!(may_pause(&vmi), conflict("VMI is already paused"));
    assert_eq!(may_soft_reboot(&vmi), conflict("VMI is paused"));
    assert_eq!(may_unpause(None, &vmi), Ok(()));
    let mut vm = machine(RunStrategy::Manual);
    vm.status.snapshot_in_progress = Some("s".into());
    assert_eq!(may_unpause(Some(&vm), &vmi), conflict("VM snapshot is in progress"));
    vmi.status.conditions.clear();
    vmi.spec.domain.features =
        serde_json::from_value(serde_json::json!({"acpi": {"enabled": false}})).unwrap();
    assert_eq!(
        may_soft_reboot(&vmi),
        conflict("VMI neither have the agent connected nor the ACPI feature enabled")
    );
}
