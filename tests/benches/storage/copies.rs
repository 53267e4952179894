//! Volumes that are copies of a large image.

use std::{fs::File, time::Instant};

use serde_json::json;
use sheaf_storage::{Backend, Origin, Storage, StorageConfig};
use sheaf_tests::{
    bench::{report::Report, share::median},
    machines::{CLAIMS, Farm, claim},
    patience,
};

const ROUNDS: usize = 31;
const SIZE: u64 = 10 << 30;
const MOST_MILLIS: f64 = 100.0;

pub fn measure(report: &mut Report) {
    let farm = Farm::start();
    let file = farm.node.scratch().join("large");
    File::create(&file).unwrap().set_len(SIZE).unwrap();
    farm.image("large", &file);
    let mut claims = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("copy-{round}");
        let mut copy = claim(&name, Some("large"), "10Gi");
        (copy["apiVersion"], copy["kind"]) = ("v1".into(), "PersistentVolumeClaim".into());
        let mut api = farm.api();
        let began = Instant::now();
        api.post(CLAIMS, &copy).object();
        patience::until("the claim to be bound", || {
            (api.get(&format!("{CLAIMS}/{name}")).object()["status"]["phase"] == "Bound").then_some(())
        });
        claims.push(began.elapsed().as_secs_f64() * 1e3);
        api.ask("DELETE", &format!("{CLAIMS}/{name}"), &[], json!({}).to_string().as_bytes());
    }
    let volumes = volumes();
    report.table(&["a copy of an image of 10 GiB", "median", "the slowest"]);
    for (what, found) in [("a volume of it", &volumes), ("a claim of it", &claims)] {
        let slowest = found.iter().copied().fold(0.0, f64::max);
        report.row(&[what.into(), format!("{:.1} ms", median(found)), format!("{slowest:.1} ms")]);
    }
    let found = median(&volumes);
    let promise = format!("a volume of an image of 10 GiB within {MOST_MILLIS} ms");
    report.bar(&promise, found <= MOST_MILLIS, format!("{found:.1} ms"));
}

/// The storage alone, in milliseconds.
fn volumes() -> Vec<f64> {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let storage = Storage::open(StorageConfig::in_directory(directory.path())).await.unwrap();
        let image: sheaf_storage::ImageId = "large".parse().unwrap();
        let draft = storage.draft_image(&image, SIZE, 0).await.unwrap();
        let sheaf_storage::Drafted::Now(draft) = draft else { panic!("it is there already") };
        draft.finish().await.unwrap();
        let mut found = Vec::new();
        for round in 0..ROUNDS {
            let id = format!("copy-{round}").parse().unwrap();
            let began = Instant::now();
            storage.create(&id, SIZE, &Origin::Image(image.clone())).await.unwrap();
            found.push(began.elapsed().as_secs_f64() * 1e3);
        }
        found
    })
}
