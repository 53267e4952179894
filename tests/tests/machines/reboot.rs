//! A host that loses its power and comes back: of all there was, only what is on its disk is left, and some of that is
//! not whole. What should run runs again where it was, and what should be off stays off.

use std::{fs, process::Command};

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{Farm, INSTANCES, MACHINES, machine, rich_machine, tables_of},
    patience,
};

fn uuid(number: u32) -> String {
    format!("66666666-0000-4000-8000-{number:012}")
}

fn create(farm: &Farm, mut vm: Value, strategy: &str) {
    vm["spec"]["runStrategy"] = strategy.into();
    farm.api().post(MACHINES, &vm).object();
}

fn uid(instance: &Value) -> &str {
    instance["metadata"]["uid"].as_str().unwrap()
}

fn addresses(instance: &Value) -> Vec<String> {
    let interfaces = instance["status"]["interfaces"].as_array().unwrap();
    interfaces.iter().map(|one| one["ipAddress"].as_str().unwrap().to_owned()).collect()
}

/// The process of this number, as a record of it on disk would have it, but from before the host was started anew.
fn record_of_another_boot(pid: u32) -> Value {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let started: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    json!({"pid": pid, "started": started, "boot": "00000000-0000-4000-8000-000000000000"})
}

#[test]
fn after_a_power_cut_what_should_run_runs_where_it_was_and_what_should_be_off_is_off() {
    let mut farm = Farm::start();
    farm.furnish();
    create(&farm, rich_machine("always", &uuid(1)), "Always");
    create(&farm, machine("rerun", &uuid(2), None), "RerunOnFailure");
    create(&farm, machine("once", &uuid(3), None), "Once");
    create(&farm, machine("halted", &uuid(4), None), "Always");
    let before = ["always", "rerun", "once", "halted"].map(|name| farm.running(name));
    farm.set_run_strategy("halted", "Halted");
    farm.stopped("halted");
    let (bridge, tables) = (farm.bridge().unwrap(), tables_of(&farm.bridge().unwrap()));

    farm.loses_power();
    // At the next boot other processes get the same numbers at the same moments, and what was not written yet is lost.
    let mut somebody_else = Command::new("sleep").arg("600").spawn().unwrap();
    let machines = farm.node.data_dir().join("machines");
    let record = record_of_another_boot(somebody_else.id()).to_string();
    fs::write(machines.join(uid(&before[0])).join("process"), record).unwrap();
    fs::write(machines.join(uid(&before[1])).join("process"), "").unwrap();

    let network = farm.arguments()[1].to_owned();
    let node = farm.node.start_again_with(&["--vm-cidr", &network, "--allow-local-images"]);
    let farm = Farm::with_node(node, &network);
    for (name, before) in ["always", "rerun"].into_iter().zip(&before) {
        let again = patience::until(format!("machine {name} to run again"), || {
            farm.instance(name).filter(|now| now["status"]["phase"] == "Running" && uid(now) != uid(before))
        });
        assert_eq!(addresses(&again), addresses(before), "{name} has its addresses");
    }
    for (number, count) in [(1, 1), (2, 1), (3, 0), (4, 0)] {
        assert_eq!(farm.processes(&uuid(number)).len(), count, "machine {number}");
    }
    patience::until("what ran once to be told as failed", || {
        (farm.instance("once")?["status"]["phase"] == "Failed").then_some(())
    });
    assert_eq!(farm.api().get(&format!("{INSTANCES}/halted")).code, 404);
    assert_eq!(farm.bridge().as_ref(), Some(&bridge), "the network is back");
    assert_eq!((farm.taps().len(), tables_of(&bridge)), (3, tables));
    assert_eq!(somebody_else.try_wait().unwrap(), None, "another process was killed for its number");
    somebody_else.kill().unwrap();
    somebody_else.wait().unwrap();

    // Nothing of those before is left, and nothing of those after when they go.
    patience::until("nothing to be left of the instances before", || {
        let uids: Vec<String> = before.iter().map(|instance| uid(instance).to_owned()).collect();
        let left = farm.leftovers(&uids);
        left.iter().all(|what| uids.iter().all(|uid| !what.contains(uid))).then_some(())
    });
}
