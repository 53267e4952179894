//! How fast an image comes in, beside a plain copy of the same file.
//!
//! The copy is `cp` and a sync of what it wrote, on the same file system and in the same round, since what a disk can
//! do is never the same twice; what counts is the median over the rounds of how each compares with the copy of its
//! round. The file does not compress and is in memory before each round.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use sheaf_tests::{
    bench::{report::Report, share::median},
    machines::{Farm, IMAGES},
    patience,
};

const ROUNDS: usize = 7;
const SIZE: u64 = 1 << 30;
const LEAST_OF_COPY: f64 = 0.8;
const BYTES: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";

pub fn measure(report: &mut Report) {
    let farm = Farm::start();
    let scratch = farm.node.scratch();
    let file = scratch.join("image");
    write_noise(&file);
    let mut copies = Vec::new();
    let mut ways = [("upload", Vec::new()), ("import from a web server", Vec::new())];
    for round in 0..ROUNDS {
        warm(&file);
        let copy = copied(&file, &scratch.join("copy"));
        copies.push(copy.as_secs_f64());
        for (way, (_, found)) in ways.iter_mut().enumerate() {
            warm(&file);
            let name = format!("image-{round}-{way}");
            let took = if way == 0 { uploaded(&farm, &name, &file) } else { imported(&farm, &name, &file) };
            found.push((took.as_secs_f64(), copy.as_secs_f64() / took.as_secs_f64()));
            farm.api().delete(&format!("{IMAGES}/{name}"));
            patience::until("the image to be gone", || {
                (farm.api().get(&format!("{IMAGES}/{name}")).code == 404).then_some(())
            });
        }
    }
    let rate = |seconds: f64| format!("{:.0} MB/s", SIZE as f64 / 1e6 / seconds);
    report.table(&["an image of 1 GiB", "rate", "of a copy"]);
    report.row(&["`cp` and sync".into(), rate(median(&copies)), "1.00".into()]);
    for (what, found) in ways {
        let of_copy = median(&found.iter().map(|(_, of_copy)| *of_copy).collect::<Vec<_>>());
        let took = median(&found.iter().map(|(took, _)| *took).collect::<Vec<_>>());
        report.row(&[what.into(), rate(took), format!("{of_copy:.2}")]);
        let promise = format!("{what}: at least {LEAST_OF_COPY} of a plain copy");
        report.bar(&promise, of_copy >= LEAST_OF_COPY, format!("{of_copy:.2}"));
    }
}

/// What no disk and no packer makes smaller.
fn write_noise(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; 1 << 20];
    for _ in 0..SIZE >> 20 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}

fn warm(path: &Path) {
    std::io::copy(&mut File::open(path).unwrap(), &mut std::io::sink()).unwrap();
}

fn copied(from: &Path, to: &Path) -> Duration {
    let began = Instant::now();
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    File::open(to).unwrap().sync_all().unwrap();
    let took = began.elapsed();
    fs::remove_file(to).unwrap();
    took
}

/// From the first byte sent until the server says that all of it is taken, checked and synced.
fn uploaded(farm: &Farm, name: &str, file: &Path) -> Duration {
    create(farm, name, json!({"displayName": name, "sourceType": "upload"}));
    let mut api = farm.api();
    let mut content = File::open(file).unwrap();
    let began = Instant::now();
    let head = format!(
        "POST {BYTES}/{name}?action=upload&size={SIZE} HTTP/1.1\r\nhost: sheaf\r\n\
         content-type: application/octet-stream\r\ncontent-length: {SIZE}\r\n\r\n"
    );
    api.write(head.as_bytes()).unwrap();
    let mut piece = vec![0; 256 << 10];
    loop {
        match content.read(&mut piece).unwrap() {
            0 => break,
            read => api.write(&piece[..read]).unwrap(),
        }
    }
    assert_eq!(api.head().unwrap().0, 200);
    began.elapsed()
}

/// From before the image is created until its status says that it is imported.
fn imported(farm: &Farm, name: &str, file: &Path) -> Duration {
    let began = Instant::now();
    farm.image(name, file);
    began.elapsed()
}

fn create(farm: &Farm, name: &str, spec: serde_json::Value) {
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": name}, "spec": spec});
    farm.api().post(IMAGES, &image).object();
    patience::until("a node to be chosen", || {
        let image = farm.api().get(&format!("{IMAGES}/{name}")).object();
        image["metadata"]["annotations"]["sheaf.io/node"].is_string().then_some(())
    });
}
