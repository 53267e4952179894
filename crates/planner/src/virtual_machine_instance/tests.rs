//! The table of steps, and walks of a simulated host through it.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const STOP: Wanted = Wanted::Stop { grace: MINUTE };
const CUT: Wanted = Wanted::Stop { grace: Duration::ZERO };

fn instance(phase: &str, more: serde_json::Value) -> VirtualMachineInstance {
    let mut object =
        json!({"metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}}, "status": {"phase": phase}});
    for (field, value) in more.as_object().unwrap() {
        for (inner, value) in value.as_object().unwrap() {
            object[field][inner] = value.clone();
        }
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_machine_comes_up_step_by_step() {
    assert_eq!(next_step(Seen::Absent, Wanted::Run), Step::Prepare);
    assert_eq!(next_step(Seen::Prepared, Wanted::Run), Step::Launch { paused: false });
    assert_eq!(next_step(Seen::Prepared, Wanted::Paused), Step::Launch { paused: true });
    assert_eq!(next_step(Seen::Launching, Wanted::Run), Step::Wait);
    assert_eq!(next_step(Seen::Running { paused: false }, Wanted::Run), Step::Rest);
}

#[test]
fn power_is_cut_only_after_the_guest_ignored_the_button() {
    assert_eq!(next_step(Seen::Running { paused: false }, STOP), Step::PressPowerButton);
    assert_eq!(next_step(Seen::Stopping { pressed_for: MINUTE / 2 }, STOP), Step::Wait);
    assert_eq!(next_step(Seen::Stopping { pressed_for: MINUTE }, STOP), Step::CutPower);
}

#[test]
fn without_grace_there_is_no_button() {
    for paused in [false, true] {
        assert_eq!(next_step(Seen::Running { paused }, CUT), Step::CutPower);
    }
    let no_acpi = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"domain": {"devices": {}, "features": {"acpi": {"enabled": false}}}, "terminationGracePeriodSeconds": 60}});
    assert_eq!(wanted(&instance("Running", no_acpi), MINUTE), CUT);
}

#[test]
fn a_paused_guest_is_let_go_before_the_button_is_pressed() {
    assert_eq!(next_step(Seen::Running { paused: true }, STOP), Step::Resume);
}

#[test]
fn what_somebody_paused_stays_paused() {
    assert_eq!(next_step(Seen::Running { paused: true }, Wanted::AsItIs), Step::Rest);
    assert_eq!(
        wanted(&instance("Running", json!({"spec": {"startStrategy": "Paused"}})), MINUTE),
        Wanted::AsItIs
    );
    assert_eq!(
        wanted(&instance("Scheduled", json!({"spec": {"startStrategy": "Paused"}})), MINUTE),
        Wanted::Paused
    );
}

#[test]
fn what_exited_is_reported_before_it_is_forgotten() {
    let exited = Seen::Exited { how: Exit::Crashed };
    for still in [Wanted::Run, Wanted::Paused, Wanted::AsItIs, STOP] {
        assert_eq!(next_step(exited, still), Step::ReportFinished);
    }
    assert_eq!(next_step(exited, Wanted::Forget), Step::Forget);
    assert_eq!(wanted(&instance("Failed", json!({})), MINUTE), Wanted::Forget);
}

#[test]
fn a_machine_that_vanished_has_failed_and_is_not_started_in_secret() {
    for seen in [Seen::Absent, Seen::Prepared] {
        assert_eq!(phase_of(Phase::Running, seen, true), Phase::Failed);
        assert_eq!(next_step(seen.after(Phase::Running), Wanted::AsItIs), Step::ReportFinished);
    }
}

#[test]
fn a_shutdown_succeeds_and_everything_else_fails() {
    for (how, acpi, phase) in [
        (Exit::ShutDown, true, Phase::Succeeded),
        (Exit::PowerCut, true, Phase::Failed),
        (Exit::PowerCut, false, Phase::Succeeded),
        (Exit::Crashed, true, Phase::Failed),
        (Exit::Vanished, true, Phase::Failed),
    ] {
        assert_eq!(phase_of(Phase::Running, Seen::Exited { how }, acpi), phase, "{how:?}");
    }
}

#[test]
fn the_grace_is_the_machines_own_else_the_given_one() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(wanted(&instance("Running", going), MINUTE), STOP);
    let own = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"terminationGracePeriodSeconds": 5}});
    assert_eq!(wanted(&instance("Running", own), MINUTE), Wanted::Stop { grace: Duration::from_secs(5) });
}

#[test]
fn events_speak_the_originals_words() {
    assert_eq!(event_of_phase(Phase::Running).unwrap().1, "Started");
    assert_eq!(
        event_of_phase(Phase::Failed),
        Some(("Warning", "Stopped", "The VirtualMachineInstance crashed."))
    );
    assert_eq!(
        event_of_step(Step::PressPowerButton),
        Some(("Normal", "ShuttingDown", "Signaled Graceful Shutdown"))
    );
    assert_eq!(event_of_step(Step::Rest), None);
}

/// What a host does with a step. The guest may ignore the button.
fn obey(seen: Seen, step: Step, heeds: bool) -> Seen {
    match (step, seen) {
        (Step::Prepare, _) => Seen::Prepared,
        (Step::Launch { paused }, _) => {
            if paused {
                Seen::Running { paused }
            } else {
                Seen::Launching
            }
        }
        (Step::Pause, _) => Seen::Running { paused: true },
        (Step::Resume, _) => Seen::Running { paused: false },
        (Step::PressPowerButton, _) if heeds => Seen::Exited { how: Exit::ShutDown },
        (Step::PressPowerButton, _) => Seen::Stopping { pressed_for: Duration::ZERO },
        (Step::CutPower, _) => Seen::Exited { how: Exit::PowerCut },
        (Step::Forget, _) => Seen::Absent,
        (Step::Wait, Seen::Launching) => Seen::Running { paused: false },
        (Step::Wait, Seen::Stopping { pressed_for }) => {
            Seen::Stopping { pressed_for: pressed_for + MINUTE / 4 }
        }
        (Step::Wait | Step::Rest | Step::ReportFinished, seen) => seen,
    }
}

fn any_seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        Just(Seen::Absent),
        Just(Seen::Prepared),
        Just(Seen::Launching),
        any::<bool>().prop_map(|paused| Seen::Running { paused }),
        (0_u64..200).prop_map(|s| Seen::Stopping { pressed_for: Duration::from_secs(s) }),
        prop_oneof![Just(Exit::ShutDown), Just(Exit::PowerCut), Just(Exit::Crashed)]
            .prop_map(|how| Seen::Exited { how }),
    ]
}

proptest! {
    #[test]
    fn from_anywhere_a_machine_that_should_go_is_gone_in_a_dozen_steps(start in any_seen(), heeds: bool) {
        let (mut seen, mut phase) = (start, Phase::Scheduled);
        for _ in 0..16 {
            phase = phase_of(phase, seen, true);
            let wish = if phase.is_final() { Wanted::Forget } else { STOP };
            let step = next_step(seen, wish);
            if step == Step::ReportFinished && !phase.is_final() {
                phase = NEVER_STARTED;
            }
            seen = obey(seen, step, heeds);
        }
        prop_assert_eq!(seen, Seen::Absent);
        prop_assert!(phase.is_final());
    }

    #[test]
    fn a_phase_never_goes_back(steps in proptest::collection::vec(any_seen(), 0..20)) {
        let mut phase = Phase::Scheduling;
        for seen in steps {
            let next = phase_of(phase, seen, true);
            prop_assert!(next >= phase, "{phase:?} -> {next:?}");
            prop_assert!(!phase.is_final() || next == phase);
            phase = next;
        }
    }

    #[test]
    fn a_wish_that_is_met_is_left_alone(paused: bool) {
        let wish = if paused { Wanted::Paused } else { Wanted::Run };
        prop_assert_eq!(next_step(Seen::Running { paused }, wish), Step::Rest);
        prop_assert_eq!(next_step(Seen::Absent, Wanted::Forget), Step::Rest);
    }
}
