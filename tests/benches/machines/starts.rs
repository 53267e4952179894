//! From the wish for a machine to its running: one alone, and fifty at once.

use std::{
    thread,
    time::{Duration, Instant},
};

use sheaf_tests::bench::{
    process::Process,
    report::{Report, micros, seconds},
    sample::Sample,
};

use crate::{
    by_hand::Recipe,
    fleet::{Fleet, Start, names},
};

const ROUNDS_OF_ONE: usize = 15;
const MANY: usize = 50;
const ROUNDS_OF_MANY: usize = 3;
/// What Sheaf may take on top of QEMU itself.
const ALLOWANCE: Duration = Duration::from_millis(150);
const MOST_TIMES_BY_HAND: f64 = 1.3;
/// By then firmware has found what to boot, and the last sample of the start is over.
const SETTLING: Duration = Duration::from_secs(15);
/// Long enough for what Sheaf does by the clock of every machine: it does it at least three times.
const IDLE: Duration = Duration::from_secs(30);

pub fn measure(report: &mut Report) {
    let fleet = Fleet::start();
    let node = Process::new(fleet.farm.node.pid());
    thread::sleep(Duration::from_secs(5));
    let empty = node.pss_mb();

    let recipe = recipe(&fleet);
    report.table(&["until a machine runs", "P50", "P95", "measured", "beside"]);
    one(report, &fleet, &recipe);
    many(report, &fleet, &recipe);

    // The last fifty still run.
    thread::sleep(SETTLING);
    report.table(&["Sheaf's own process", "found"]);
    let before = node.cpu();
    thread::sleep(IDLE);
    let cpu = (node.cpu() - before).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    let full = node.pss_mb();
    let each = (full - empty) / MANY as f64;
    report.row(&["memory (PSS), before the first machine".into(), format!("{empty:.1} MiB")]);
    report.row(&[format!("memory (PSS), {MANY} machines running"), format!("{full:.1} MiB")]);
    report.row(&["memory for each machine".into(), format!("{each:.3} MiB")]);
    report.row(&[format!("CPU with {MANY} idle machines, over {IDLE:?}"), format!("{cpu:.2} % of a core")]);
    report.bar("memory of Sheaf for each machine at most 1 MiB", each <= 1.0, format!("{each:.3} MiB"));
    report.bar("CPU of Sheaf with 50 idle machines at most 2 % of a core", cpu <= 2.0, format!("{cpu:.2} %"));
    fleet.remove(&names(MANY));
}

/// The command line of a machine that Sheaf started.
fn recipe(fleet: &Fleet) -> Recipe {
    let first = names(1);
    fleet.create(&first);
    let recipe = Recipe::of_process(fleet.process_of(&first[0]), &fleet.image, fleet.farm.node.scratch());
    fleet.remove(&first);
    recipe
}

fn one(report: &mut Report, fleet: &Fleet, recipe: &Recipe) {
    let (mut starts, mut by_hand) = (Vec::new(), Vec::new());
    let one = names(1);
    for round in 0..ROUNDS_OF_ONE {
        starts.extend(fleet.create(&one));
        fleet.remove(&one);
        by_hand.extend(loop_of(recipe, round, 1));
    }
    let (running, told, by_hand) =
        (sample(&starts, |one| one.running), sample(&starts, |one| one.told), all(by_hand));
    row(report, "one machine by hand, until QMP says running", &by_hand, "");
    row(report, "one machine with Sheaf, until it has a node", &sample(&starts, |one| one.bound), "");
    row(report, "one machine with Sheaf, until QMP says running", &running, "");
    row(report, "one machine with Sheaf, until a watch says Running", &told, "");
    for percent in [50.0, 95.0] {
        let (ours, theirs) = (running.percentile(percent), by_hand.percentile(percent));
        report.bar(
            &format!("one machine, P{percent}: by hand + 150 ms"),
            ours <= theirs + ALLOWANCE,
            format!("{} against {}", micros(ours), micros(theirs)),
        );
    }
}

fn many(report: &mut Report, fleet: &Fleet, recipe: &Recipe) {
    let names = names(MANY);
    let (mut starts, mut by_hand) = (Vec::new(), Vec::new());
    let (mut walls, mut walls_by_hand) = (Vec::new(), Vec::new());
    let (node, mut cpu) = (Process::new(fleet.farm.node.pid()), Duration::ZERO);
    for round in 0..ROUNDS_OF_MANY {
        // Neither has guests of the other beside it: they would still be booting.
        if round > 0 {
            fleet.remove(&names);
        }
        let looped = loop_of(recipe, MANY * (round + 1), MANY);
        walls_by_hand.extend(looped.iter().max());
        by_hand.extend(looped);
        let before = node.cpu();
        let made = fleet.create(&names);
        cpu += node.cpu() - before;
        walls.extend(made.iter().map(|one| one.running).max());
        starts.extend(made);
    }
    let (running, told, by_hand) =
        (sample(&starts, |one| one.running), sample(&starts, |one| one.told), all(by_hand));
    let (wall, wall_by_hand) = (median(walls), median(walls_by_hand));
    let last = |wall| format!("the last after {} (median of {ROUNDS_OF_MANY})", seconds(wall));
    row(report, "50 machines by hand, until QMP says running", &by_hand, &last(wall_by_hand));
    let cost = format!("{} of Sheaf's CPU each time", seconds(cpu / ROUNDS_OF_MANY as u32));
    row(report, "50 machines with Sheaf, until they have a node", &sample(&starts, |one| one.bound), &cost);
    row(report, "50 machines with Sheaf, until QMP says running", &running, &last(wall));
    row(report, "50 machines with Sheaf, until a watch says Running", &told, "");
    for (what, ours, theirs) in [
        ("P50", running.percentile(50.0), by_hand.percentile(50.0)),
        ("P95", running.percentile(95.0), by_hand.percentile(95.0)),
        ("the last", wall, wall_by_hand),
    ] {
        let times = ours.as_secs_f64() / theirs.as_secs_f64();
        report.bar(
            &format!("50 machines, {what}: 1.3 times a plain loop"),
            times <= MOST_TIMES_BY_HAND,
            format!("{times:.2} times: {} against {}", seconds(ours), seconds(theirs)),
        );
    }
}

/// What a script with `&` does, and how long each machine took from its beginning.
fn loop_of(recipe: &Recipe, first: usize, count: usize) -> Vec<Duration> {
    let began = Instant::now();
    let machines: Vec<_> = (first..first + count).map(|number| recipe.start(number)).collect();
    let waiting = machines.iter();
    thread::scope(|scope| {
        let asked: Vec<_> = waiting.map(|machine| scope.spawn(|| machine.until_running() - began)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

fn row(report: &mut Report, what: &str, sample: &Sample, beside: &str) {
    report.row(&[
        what.to_owned(),
        micros(sample.percentile(50.0)),
        micros(sample.percentile(95.0)),
        format!("{} starts", sample.count()),
        beside.to_owned(),
    ]);
}

fn sample(starts: &[Start], time: impl Fn(&Start) -> Duration) -> Sample {
    all(starts.iter().map(time).collect())
}

fn all(times: Vec<Duration>) -> Sample {
    let wall = times.iter().sum();
    Sample::new(times, wall)
}

fn median(times: Vec<Duration>) -> Duration {
    all(times).percentile(50.0)
}
