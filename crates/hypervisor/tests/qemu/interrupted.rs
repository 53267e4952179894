//! Killed after every single step, the next one carries on.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use sheaf_hypervisor::{Machine, State, Step};
use tokio::time::sleep;

use crate::house::{AGENT, House, machine, qemus};

/// Which acts lead to a step. None for what is done to a machine that runs and goes on running: that is `plugging`'s.
fn acts(step: Step) -> Option<&'static str> {
    Some(match step {
        Step::DirectoryMade | Step::DefinitionLocked | Step::DefinitionWritten => "define",
        Step::LaunchLocked
        | Step::LeftoversCleared
        | Step::CgroupMade
        | Step::SocketsBound
        | Step::LauncherSpawned
        | Step::MonitorAnswered => "define,launch",
        Step::Signalled | Step::Gone => "define,launch,kill",
        Step::ForgetLocked | Step::CgroupRemoved | Step::FilesRemoved | Step::DirectoryRemoved => {
            "define,launch,kill,forget"
        }
        Step::LayerHandedIn
        | Step::NodeAdded
        | Step::BackendAdded
        | Step::DeviceAdded
        | Step::ProcessorAdded
        | Step::MemoryAsked
        | Step::DeviceAskedOut
        | Step::NodeRemoved
        | Step::DescriptorsTakenBack
        | Step::BackendRemoved
        | Step::TrayOpened
        | Step::MediumRemoved
        | Step::MediumInserted
        | Step::TrayClosed
        | Step::NodeGrown => return None,
    })
}

/// Every step that leads to a machine's beginning or end.
fn steps() -> impl Iterator<Item = (&'static Step, &'static str)> {
    Step::ALL.iter().filter_map(|step| Some((step, acts(*step)?)))
}

/// Lets an agent begin, and kills it after `step`.
fn interrupt_after(step: Step, acts: &str, house: &House, machine: &Machine) {
    let description = house.beside("machine.json");
    fs::write(&description, serde_json::to_vec(machine).unwrap()).unwrap();
    let output = Command::new(AGENT)
        .args(["act".as_ref(), house.path().as_os_str(), description.as_os_str()])
        .args([acts, step.name()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), None, "the agent was not killed after {step}: {said}");
}

/// A launcher that is on its way may take a moment until it is QEMU or gone.
async fn settled(house: &House, machine: &Machine) -> Option<State> {
    for _ in 0..500 {
        let found = house.hypervisor.found().unwrap();
        match found.first() {
            Some(found) if found.state == State::Launching => sleep(Duration::from_millis(20)).await,
            Some(found) => {
                assert_eq!(found.id, machine.id);
                return Some(found.state.clone());
            }
            None => return None,
        }
    }
    panic!("a machine is launching for ever");
}

#[tokio::test]
async fn after_any_interrupted_step_the_host_tells_the_truth_and_the_next_one_carries_on() {
    for (step, acts) in steps() {
        let house = House::new();
        let machine = machine(&format!("interrupted-{step}"));
        interrupt_after(*step, acts, &house, &machine);

        // The truth: a process is there exactly if the host is said to run it.
        let state = settled(&house, &machine).await;
        let running = qemus(&machine.id);
        match (*step, &state) {
            (Step::LauncherSpawned | Step::MonitorAnswered, Some(State::Running { pid })) => {
                assert_eq!(running, [*pid], "after {step}");
            }
            (Step::Signalled, Some(State::Running { .. } | State::Exited { .. })) => {}
            (Step::Gone | Step::ForgetLocked | Step::CgroupRemoved, Some(State::Exited { .. })) => {
                assert_eq!(running, [0; 0], "after {step}");
            }
            (Step::DirectoryRemoved, None) => assert_eq!(running, [0; 0], "after {step}"),
            (
                Step::DirectoryMade
                | Step::DefinitionLocked
                | Step::DefinitionWritten
                | Step::LaunchLocked
                | Step::LeftoversCleared
                | Step::CgroupMade
                | Step::SocketsBound
                | Step::FilesRemoved,
                Some(State::Defined),
            ) => assert_eq!(running, [0; 0], "after {step}"),
            (step, state) => panic!("after {step} the machine is found as {state:?}"),
        }

        // Carrying on: it runs in the end, once, whatever was there.
        let already = matches!(state, Some(State::Running { .. })) && *step != Step::Signalled;
        if !already {
            house.hypervisor.kill(&machine.id).await.unwrap();
            house.hypervisor.define(&machine).await.unwrap();
            drop(house.hypervisor.launch(&machine.id, Default::default()).await.unwrap());
        }
        assert_eq!(qemus(&machine.id).len(), 1, "after {step}");
        let monitor = house.hypervisor.monitor(&machine.id).await.unwrap();
        monitor.status().await.unwrap();

        house.end(&machine.id).await;
        assert_eq!(qemus(&machine.id), [0; 0], "after {step}");
    }
}

#[tokio::test]
async fn what_was_interrupted_can_also_simply_be_forgotten() {
    for (step, acts) in steps() {
        let house = House::new();
        let machine = machine(&format!("forgotten-{step}"));
        interrupt_after(*step, acts, &house, &machine);
        house.end(&machine.id).await;
        assert_eq!(qemus(&machine.id), [0; 0], "after {step}");
    }
}
