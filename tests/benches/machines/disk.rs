//! Disks as the guest finds them: Sheaf's volumes beside QEMU at its best settings.
//!
//! All guests are booted first and idle; then they are measured one after the other, round by round, so that a
//! moment in which the host has something else to do meets all of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;
use sheaf_testbed::guests::{self, TinyGuest};
use sheaf_tests::{
    bench::report::Report,
    machines::{Farm, MACHINES, Serial, claim, machine},
};

const ROUNDS: usize = 5;
const SECONDS: u32 = 2;
const LEAST_OF_BARE: f64 = 0.95;
const UUID: &str = "44444444-0000-4000-8000-000000000001";
const METER_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/disk_meter.rs");

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
    let meter = built_meter(&scratch);
    let bare =
        [Bare::start(&scratch, "io_uring", &tiny, &meter), Bare::start(&scratch, "native", &tiny, &meter)];
    let mut guests: Vec<Serial> = bare.iter().map(Bare::serial).collect();
    guests.push(machine_of_sheaf(&farm, &tiny, &meter));
    for guest in &mut guests {
        guest.hears("tiny guest is up");
        guest.runs("cat /dev/vdb >/run/meter; chmod 755 /run/meter");
    }
    let places = [
        Place { guest: 0, device: "vdc" },
        Place { guest: 1, device: "vdc" },
        Place { guest: 2, device: "vdc" },
        Place { guest: 2, device: "vda" },
    ];
    for place in &places {
        metered(&mut guests, place, "fill");
    }
    report.table(&[
        "disk in the guest",
        "bare, raw, io_uring",
        "bare, raw, native",
        "Sheaf, empty volume",
        "of the better",
        "Sheaf, volume of an image",
        "of the better",
    ]);
    for (work, what, unit, more_is_better) in WORKS {
        let mut found = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            for (place, found) in places.iter().zip(&mut found) {
                found.push(metered(&mut guests, place, work));
            }
        }
        let [io_uring, native, empty, of_image] = found.map(median);
        let best = if more_is_better { io_uring.max(native) } else { io_uring.min(native) };
        let part = |ours: f64| if more_is_better { ours / best } else { best / ours };
        let shown = |number: f64| format!("{number:.0} {unit}");
        report.row(&[
            what.to_owned(),
            shown(io_uring),
            shown(native),
            shown(empty),
            format!("{:.2}", part(empty)),
            shown(of_image),
            format!("{:.2}", part(of_image)),
        ]);
        for (volume, ours) in [("empty volume", empty), ("volume of an image", of_image)] {
            let found = format!("{:.2}: {} against {}", part(ours), shown(ours), shown(best));
            report.bar(&format!("{volume}, {what}: 0.95 of bare QEMU"), part(ours) >= LEAST_OF_BARE, found);
        }
    }
}

fn metered(guests: &mut [Serial], place: &Place, work: &str) -> f64 {
    let said = guests[place.guest].runs(&format!("/run/meter /dev/{} {work} {SECONDS}", place.device));
    let number = said.split_whitespace().last().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("the meter said {said:?}"))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
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
    fn start(scratch: &Path, aio: &str, tiny: &TinyGuest, meter: &Path) -> Bare {
        let place = scratch.join(aio);
        fs::create_dir_all(&place).unwrap();
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

/// The meter in one static file, as large as a disk may be.
fn built_meter(scratch: &Path) -> PathBuf {
    let meter = scratch.join("meter");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", METER_SOURCE, "-o"])
        .arg(&meter)
        .status()
        .unwrap();
    assert!(status.success(), "the meter cannot be compiled");
    let file = fs::OpenOptions::new().write(true).open(&meter).unwrap();
    file.set_len(file.metadata().unwrap().len().next_multiple_of(1 << 20)).unwrap();
    meter
}
