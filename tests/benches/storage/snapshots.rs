//! What a guest notices of snapshots: while one is taken, and afterwards, when its disk lies on many layers.

use std::{thread, time::Duration};

use serde_json::json;
use sheaf_testbed::guests;
use sheaf_tests::{
    bench::{
        meter,
        report::Report,
        share::{Share, median},
    },
    machines::{Farm, MACHINES, Serial, claim, machine},
    patience,
};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const UUID: &str = "44444444-0000-4000-8000-000000000002";
/// Of taking one.
const PAUSES: usize = 15;
const PAUSE_MILLIS: u32 = 2000;
const MOST_PAUSE_MILLIS: f64 = 50.0;
/// Of disks on layers.
const DEPTH: usize = 10;
const ROUNDS: usize = 51;
const MILLIS: u32 = 250;
const WORKS: [(&str, &str); 2] =
    [("read", "random 4 KiB read, median"), ("write", "random 4 KiB write and flush, median")];

pub fn measure(report: &mut Report) {
    let Some(tiny) = guests::tiny() else { return };
    let farm = Farm::start();
    farm.image("tiny", &tiny.disk);
    farm.image("meter", &meter::built(&farm.node.scratch()));
    let mut guest = start(&farm);
    for device in ["vdc", "vdd"] {
        meter::ask(&mut guest, device, "fill", MILLIS);
    }
    chains(report, &farm, &mut guest);
    pauses(report, &farm, &mut guest);
}

/// A machine with the meter and two disks: `vdc` is left alone, `vdd` is snapshotted.
fn start(farm: &Farm) -> Serial {
    let mut vm = machine("measured", UUID, None);
    let names = ["root", "meter", "fresh", "deep"];
    let claims = json!([
        claim("root", Some("tiny"), "64Mi"),
        claim("meter", Some("meter"), "16Mi"),
        claim("fresh", None, "512Mi"),
        claim("deep", None, "512Mi")
    ]);
    vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    vm["spec"]["runStrategy"] = "Always".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["memory"] = json!({"guest": "256Mi"});
    spec["domain"]["devices"]["disks"] =
        names.map(|name| json!({"name": name, "disk": {"bus": "virtio"}})).into();
    spec["volumes"] =
        names.map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).into();
    farm.api().post(MACHINES, &vm).object();
    let mut guest = farm.serial(&farm.running("measured"));
    guest.hears("tiny guest is up");
    meter::install(&mut guest, "vdb");
    guest
}

fn take(farm: &Farm, name: &str) {
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name}, "spec": {"source": {"persistentVolumeClaimName": "deep"}}});
    let mut api = farm.api();
    api.post(SNAPSHOTS, &snapshot).object();
    patience::until(format!("snapshot {name} to be taken"), || {
        (api.get(&format!("{SNAPSHOTS}/{name}")).object()["status"]["readyToUse"] == true).then_some(())
    });
}

fn chains(report: &mut Report, farm: &Farm, guest: &mut Serial) {
    for number in 0..DEPTH {
        take(farm, &format!("deep-{number}"));
        meter::ask(guest, "vdd", "write", 4 * MILLIS);
    }
    let head = format!("a volume with {DEPTH} snapshots");
    report.table(&[&head, "fresh volume", "through the chain", "of the fresh one"]);
    for (work, what) in WORKS {
        let mut found = [const { Vec::new() }; 2];
        for round in 0..ROUNDS {
            for nth in 0..2 {
                let nth = (round + nth) % 2;
                found[nth].push(meter::ask(guest, ["vdc", "vdd"][nth], work, MILLIS));
            }
        }
        let [fresh, deep] = &found;
        let share = Share::of(fresh.iter().zip(deep).map(|(fresh, deep)| fresh / deep).collect());
        let shown = |numbers: &[f64]| format!("{:.0} us", median(numbers));
        report.row(&[what.into(), shown(fresh), shown(deep), share.shown()]);
    }
}

fn pauses(report: &mut Report, farm: &Farm, guest: &mut Serial) {
    let [mut with, mut without] = [Vec::new(), Vec::new()];
    for round in 0..PAUSES {
        without.push(meter::ask(guest, "vdd", "stall", PAUSE_MILLIS));
        let longest = thread::scope(|scope| {
            let taking = scope.spawn(|| {
                thread::sleep(Duration::from_millis(u64::from(PAUSE_MILLIS) / 3));
                take(farm, &format!("pause-{round}"));
            });
            let longest = meter::ask(guest, "vdd", "stall", PAUSE_MILLIS);
            taking.join().unwrap();
            longest
        });
        with.push(longest);
    }
    report.table(&["the longest write of two seconds", "median", "the worst"]);
    for (what, found) in [("while a snapshot is taken", &with), ("while none is", &without)] {
        let worst = found.iter().copied().fold(0.0, f64::max);
        report.row(&[what.into(), format!("{:.1} ms", median(found)), format!("{worst:.1} ms")]);
    }
    let found = median(&with);
    let promise = format!("a snapshot keeps a guest waiting for at most {MOST_PAUSE_MILLIS} ms");
    report.bar(&promise, found <= MOST_PAUSE_MILLIS, format!("{found:.1} ms"));
}
