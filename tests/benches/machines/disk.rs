//! Disks as the guest finds them: Sheaf's volumes beside QEMU at its best settings.
//!
//! All guests are booted first and idle; then they are measured one after the other, round by round and each round from
//! another one on, so that a moment in which the host has something else to do meets all of them. What counts is the
//! median over the rounds of how each compares with the better bare one in the same round. A third bare guest, set up as
//! the first, goes along and is compared in the same way: what it differs from 1 by is noise.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;
use sheaf_testbed::guests::{self, TinyGuest};
use sheaf_tests::{
    bench::{
        meter,
        report::Report,
        share::{Share, median},
    },
    machines::{Farm, MACHINES, Serial, claim, machine},
};

/// Many short ones: what is compared must have met the same host, whose disk is another one every few seconds.
const ROUNDS: usize = 51;
const MILLIS: u32 = 250;
const LEAST_OF_BARE: f64 = 0.95;
const UUID: &str = "44444444-0000-4000-8000-000000000001";

/// The meter's word, what it is, its unit, and whether more is better.
const WORKS: [(&str, &str, &str, bool); 4] = [
    ("read", "random 4 KiB read, median", "us", false),
    ("write", "random 4 KiB write and flush, median", "us", false),
    ("read-through", "sequential read, 1 MiB", "MB/s", true),
    ("write-through", "sequential write, 1 MiB, and flush", "MB/s", true),
];

/// A disk in a guest that has the meter.
struct Place {
    guest: usize,
    device: &'static str,
}

pub fn measure(report: &mut Report) {
    let Some(tiny) = guests::tiny() else { return };
    let farm = Farm::start();
    let scratch = farm.node.scratch();
    let meter = meter::built(&scratch);
    let bare = [
        Bare::start(&scratch.join("bare-1"), "io_uring", &tiny, &meter),
        Bare::start(&scratch.join("bare-2"), "native", &tiny, &meter),
        Bare::start(&scratch.join("bare-3"), "io_uring", &tiny, &meter),
    ];
    let mut guests: Vec<Serial> = bare.iter().map(Bare::serial).collect();
    guests.push(machine_of_sheaf(&farm, &tiny, &meter));
    for guest in &mut guests {
        guest.hears("tiny guest is up");
        meter::install(guest, "vdb");
    }
    let places = [
        Place { guest: 0, device: "vdc" },
        Place { guest: 1, device: "vdc" },
        Place { guest: 2, device: "vdc" },
        Place { guest: 3, device: "vdc" },
        Place { guest: 3, device: "vda" },
    ];
    for place in &places {
        metered(&mut guests, place, "fill");
    }
    report.table(&[
        "disk in the guest",
        "bare, raw, io_uring",
        "bare, raw, native",
        "bare, io_uring again",
        "of the better",
        "Sheaf, empty volume",
        "of the better",
        "Sheaf, volume of an image",
        "of the better",
    ]);
    for (work, what, unit, more_is_better) in WORKS {
        let mut found = [const { Vec::new() }; 5];
        for round in 0..ROUNDS {
            for nth in 0..places.len() {
                let nth = (round + nth) % places.len();
                found[nth].push(metered(&mut guests, &places[nth], work));
            }
        }
        let [io_uring, native, again, empty, of_image] = &found;
        let better = match more_is_better == (median(io_uring) > median(native)) {
            true => io_uring,
            false => native,
        };
        let share = |ours: &[f64]| {
            let rounds = ours.iter().zip(better);
            let shares = rounds.map(|(ours, bare)| if more_is_better { ours / bare } else { bare / ours });
            Share::of(shares.collect())
        };
        let shown = |numbers: &[f64]| format!("{:.0} {unit}", median(numbers));
        let mut row = vec![what.to_owned(), shown(io_uring), shown(native)];
        for ours in [again, empty, of_image] {
            row.extend([shown(ours), share(ours).shown()]);
        }
        report.row(&row);
        for (volume, ours) in [("empty volume", empty), ("volume of an image", of_image)] {
            let share = share(ours);
            let kept = share.median >= LEAST_OF_BARE;
            report.bar(&format!("{volume}, {what}: 0.95 of bare QEMU"), kept, share.shown());
        }
    }
}

fn metered(guests: &mut [Serial], place: &Place, work: &str) -> f64 {
    meter::ask(&mut guests[place.guest], place.device, work, MILLIS)
}

/// A machine with a disk of an image that it boots from, the meter, and an empty disk.
fn machine_of_sheaf(farm: &Farm, tiny: &TinyGuest, meter: &Path) -> Serial {
    farm.image("tiny", &tiny.disk);
    farm.image("meter", meter);
    let mut vm = machine("measured", UUID, None);
    let claims = json!([
        claim("root", Some("tiny"), "1Gi"),
        claim("meter", Some("meter"), "16Mi"),
        claim("data", None, "1Gi")
    ]);
    vm["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    vm["spec"]["runStrategy"] = "Always".into();
    let names = ["root", "meter", "data"];
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["memory"] = json!({"guest": "256Mi"});
    spec["domain"]["devices"]["disks"] =
        names.map(|name| json!({"name": name, "disk": {"bus": "virtio"}})).into();
    spec["volumes"] =
        names.map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).into();
    farm.api().post(MACHINES, &vm).object();
    farm.serial(&farm.running("measured"))
}

/// QEMU as somebody would start it who knows how: raw, past the page cache, a thread of its own for each disk.
struct Bare {
    qemu: Child,
    serial: PathBuf,
}

impl Bare {
    fn start(place: &Path, aio: &str, tiny: &TinyGuest, meter: &Path) -> Bare {
        fs::create_dir_all(place).unwrap();
        let (root, data, serial) = (place.join("root"), place.join("data"), place.join("serial"));
        fs::copy(&tiny.disk, &root).unwrap();
        fs::File::create(&data).unwrap().set_len(1 << 30).unwrap();
        // It ends with us, however we end.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"]);
        command.args(["-accel", "tcg,thread=multi,tb-size=64", "-cpu", "max", "-smp", "1", "-m", "256"]);
        command.arg("-kernel").arg(&tiny.kernel).arg("-initrd").arg(&tiny.initramfs);
        command.args(["-append", "console=ttyS0 quiet panic=-1"]);
        for (name, file) in [("root", root.as_path()), ("meter", meter), ("data", &data)] {
            // All guests share the meter.
            let read_only = name == "meter";
            let file = json!({
                "driver": "file", "node-name": format!("{name}-file"), "filename": file, "aio": aio,
                "cache": {"direct": true}, "discard": "unmap", "read-only": read_only,
            });
            let node = json!({
                "driver": "raw", "node-name": name, "file": format!("{name}-file"), "cache": {"direct": true},
                "discard": "unmap", "read-only": read_only,
            });
            let device = json!({
                "driver": "virtio-blk-pci", "drive": name, "iothread": format!("{name}-thread"), "write-cache": "on",
            });
            command.args(["-object", &format!("iothread,id={name}-thread")]);
            command.args(["-blockdev", &file.to_string(), "-blockdev", &node.to_string()]);
            command.args(["-device", &device.to_string()]);
        }
        let socket = format!("socket,id=serial,path={},server=on,wait=off", serial.display());
        command.args(["-chardev", &socket, "-serial", "chardev:serial"]);
        Bare { qemu: command.stdin(Stdio::null()).spawn().unwrap(), serial }
    }

    fn serial(&self) -> Serial {
        Serial::at(&self.serial)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.qemu.kill();
        _ = self.qemu.wait();
    }
}
