//! A machine outlives whoever launched it.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
    time::Duration,
};

use sheaf_hypervisor::{HypervisorError, MachineId, State, qmp::RunState};
use tokio::time::sleep;

use crate::house::{AGENT, House, machine, qemus};

#[tokio::test]
async fn a_machine_goes_on_when_the_one_who_launched_it_is_killed() {
    let house = House::new();
    let machine = machine("survivor");
    let description = house.beside("machine.json");
    fs::write(&description, serde_json::to_vec(&machine).unwrap()).unwrap();
    // The agent launches it and is killed with SIGKILL right after QEMU answered.
    let status = Command::new(AGENT)
        .args(["act".as_ref(), house.path().as_os_str(), description.as_os_str()])
        .args(["define,launch", "monitor-answered"])
        .stderr(Stdio::inherit())
        .status()
        .unwrap();
    assert!(!status.success());

    sleep(Duration::from_millis(300)).await;
    let found = house.hypervisor.found().unwrap();
    let [found] = &found[..] else { panic!("one machine was launched: {found:?}") };
    assert_eq!(found.machine.as_ref(), Some(&machine));
    let State::Running { pid } = found.state else { panic!("it does not run: {found:?}") };
    assert_eq!(qemus(&machine.id), [pid]);

    // The next agent can talk to it, and cannot start it a second time.
    let monitor = house.hypervisor.monitor(&machine.id).await.unwrap();
    assert_eq!(monitor.status().await.unwrap(), RunState::Running);
    is_neither_doubled_nor_forgotten_until_ended(&house, &machine.id).await;
}

async fn is_neither_doubled_nor_forgotten_until_ended(house: &House, id: &MachineId) {
    let twice = house.hypervisor.launch(id, Default::default()).await;
    assert!(matches!(twice, Err(HypervisorError::InUse { .. })));
    let early = house.hypervisor.forget(id).await;
    assert!(matches!(early, Err(HypervisorError::InUse { .. })));
    house.end(id).await;
    assert_eq!(qemus(id), [0; 0]);
}

#[tokio::test]
async fn a_process_that_died_is_found_as_exited_and_can_be_launched_again() {
    let house = House::new();
    let machine = machine("mortal");
    let monitor = house.launch(&machine, Default::default()).await;
    let pid = house.hypervisor.pid(&machine.id).unwrap().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    monitor.closed().await;
    house.hypervisor.kill(&machine.id).await.unwrap();

    let found = house.hypervisor.look(machine.id.clone()).unwrap();
    assert!(matches!(found.state, State::Exited { .. }), "{found:?}");
    assert!(matches!(house.hypervisor.monitor(&machine.id).await, Err(HypervisorError::NotRunning { .. })));

    let monitor = house.hypervisor.launch(&machine.id, Default::default()).await.unwrap();
    assert_eq!(monitor.status().await.unwrap(), RunState::Running);
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_process_that_gave_up_its_lock_is_found_not_doubled_and_ended_all_the_same() {
    let house = House::new();
    let machine = machine("escaper");
    drop(house.launch(&machine, Default::default()).await);
    let pid = house.hypervisor.pid(&machine.id).unwrap().unwrap();
    // What a QEMU that was broken into can do: the lock is one that it shares.
    let of_lock = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.file_name().is_some_and(|name| name == "lock"))
    };
    let mut descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let number = descriptors.find(of_lock).unwrap().file_name().to_str().unwrap().parse().unwrap();
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    let process = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let lock = rustix::process::pidfd_getfd(&process, number, flags).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();

    let found = house.hypervisor.look(machine.id.clone()).unwrap();
    assert_eq!(found.state, State::Running { pid });
    is_neither_doubled_nor_forgotten_until_ended(&house, &machine.id).await;
}

#[tokio::test]
async fn ten_who_launch_one_machine_at_once_launch_it_once() {
    let house = House::new();
    let machine = machine("wanted");
    house.hypervisor.define(&machine).await.unwrap();
    let launch = || house.hypervisor.launch(&machine.id, Default::default());
    let outcomes = [launch(), launch(), launch(), launch(), launch(), launch(), launch(), launch()];
    let mut launched = 0;
    for outcome in futures_all(outcomes).await {
        match outcome {
            Ok(_) => launched += 1,
            Err(HypervisorError::InUse { .. }) => {}
            Err(why) => panic!("{why}"),
        }
    }
    assert_eq!(launched, 1);
    assert_eq!(qemus(&machine.id).len(), 1);
    house.end(&machine.id).await;
}

/// All of them at the same time, in their order.
async fn futures_all<T, F: Future<Output = T>, const N: usize>(futures: [F; N]) -> Vec<T> {
    let mut futures = futures.map(Box::pin);
    let mut outcomes: [Option<T>; N] = [const { None }; N];
    std::future::poll_fn(|context| {
        for (future, outcome) in futures.iter_mut().zip(&mut outcomes) {
            if outcome.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *outcome = Some(ready);
            }
        }
        if outcomes.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}

#[tokio::test]
async fn without_privileges_it_all_works_as_the_same_user() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        // Every other test in this file has then shown it already.
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // Where somebody else can reach it: a checkout may be in root's home.
    let agent = place.path().join("agent");
    fs::copy(AGENT, &agent).unwrap();
    let machine = machine("humble");
    let description = place.path().join("machine.json");
    fs::write(&description, serde_json::to_vec(&machine).unwrap()).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = place.path().join("data");
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    let act = |acts: &str| {
        let status = Command::new(&agent)
            .args(["act".as_ref(), data.as_os_str(), description.as_os_str(), acts.as_ref()])
            .uid(NOBODY)
            .gid(NOBODY)
            .status();
        assert!(status.unwrap().success(), "{acts}");
    };
    act("define,launch");
    let running = qemus(&machine.id);
    assert_eq!(running.len(), 1);
    let status = fs::read_to_string(format!("/proc/{}/status", running[0])).unwrap();
    assert!(status.contains("Uid:\t65534\t65534"), "{status}");
    act("kill,forget");
    assert_eq!(qemus(&machine.id), [0; 0]);
    assert_eq!(fs::read_dir(data.join("machines")).unwrap().count(), 0);
}
