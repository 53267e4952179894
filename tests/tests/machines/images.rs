//! Images on a real node: brought in every way there is, over lines that break, and had back again.

use std::{
    fs,
    io::Write,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{Farm, IMAGES},
    node::binary,
    origin, patience,
};

const BYTES: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/default";

fn disk() -> Vec<u8> {
    (0..3_000_064_usize).map(|index| (index * index / 7 % 251) as u8).collect()
}

fn condition(image: &Value, condition_type: &str) -> Value {
    let conditions = image["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == condition_type).unwrap_or_default()
}

fn create(farm: &Farm, name: &str, spec: Value) {
    let mut image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": name}, "spec": spec});
    image["spec"]["displayName"] = json!(name);
    farm.api().post(IMAGES, &image).object();
}

fn imported(farm: &Farm, name: &str) -> Value {
    let mut api = farm.api();
    patience::until(format!("image {name} to be imported and labelled"), || {
        let image = api.get(&format!("{IMAGES}/{name}")).object();
        let is_labelled = image["metadata"]["labels"]["harvesterhci.io/image-type"].is_string();
        (condition(&image, "Imported")["status"] == "True" && is_labelled).then_some(image)
    })
}

fn sheaf(farm: &Farm, arguments: &[&str]) {
    let kubeconfig = farm.node.admin_kubeconfig();
    let output = Command::new(binary()).args(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn downloaded(farm: &Farm, name: &str) -> Vec<u8> {
    let file = farm.node.scratch().join(format!("{name}-back"));
    sheaf(farm, &["image", "download", name, file.to_str().unwrap()]);
    fs::read(file).unwrap()
}

fn gzip(file: &Path) {
    assert!(Command::new("gzip").arg("-k").arg(file).status().unwrap().success());
}

#[test]
fn an_image_is_brought_packed_cloned_and_had_back_unpacked() {
    let farm = Farm::start();
    let file = farm.node.scratch().join("disk.raw");
    fs::write(&file, disk()).unwrap();
    gzip(&file);
    let packed = farm.node.scratch().join("disk.raw.gz");
    sheaf(&farm, &["image", "upload", packed.to_str().unwrap(), "--name", "packed"]);
    let image = imported(&farm, "packed");
    assert_eq!(image["metadata"]["labels"]["harvesterhci.io/image-type"], "raw_qcow2");
    assert_eq!((&image["status"]["size"], &image["status"]["progress"]), (&json!(3_000_064), &json!(100)));
    assert_eq!(image["status"]["virtualSize"], json!(3_000_064_u64.next_multiple_of(512)));
    assert!(downloaded(&farm, "packed").starts_with(&disk()));

    let source = json!({"sourceImageName": "packed", "sourceImageNamespace": "default"});
    create(&farm, "clone", json!({"sourceType": "clone", "securityParameters": source}));
    imported(&farm, "clone");
    assert_eq!(farm.api().delete(&format!("{IMAGES}/packed")).code, 200);
    assert!(downloaded(&farm, "clone").starts_with(&disk()), "it does not need the one it was made of");
    let part =
        farm.api().ask("GET", &format!("{BYTES}/clone/download"), &[("range", "bytes=1000-1999")], b"");
    assert_eq!((part.code, part.body.as_slice()), (206, &disk()[1000..2000]));
}

#[test]
fn an_upload_whose_line_breaks_goes_on_where_the_server_says() {
    let farm = Farm::start();
    create(&farm, "halves", json!({"sourceType": "upload"}));
    let (disk, mut api) = (disk(), farm.api());
    let head = format!(
        "POST {BYTES}/halves?action=upload&size={0} HTTP/1.1\r\nhost: sheaf\r\n\
         content-type: application/octet-stream\r\ncontent-length: {0}\r\n\r\n",
        disk.len()
    );
    api.write(&[head.as_bytes(), &disk[..2_000_000]].concat()).unwrap();
    patience::until("half of it to be there", || {
        let image = farm.api().get(&format!("{IMAGES}/halves")).object();
        (image["status"]["progress"].as_i64() > Some(50)).then_some(())
    });
    drop(api);
    let offset = patience::until("the broken line to be noticed", || {
        let answer = farm.api().get(&format!("{BYTES}/halves/upload"));
        (answer.code == 200).then(|| answer.object()["offset"].as_u64().unwrap())
    });
    assert!((1..=2_000_000).contains(&offset), "{offset}");
    let uri = format!("{BYTES}/halves?action=upload&size={}&offset={offset}", disk.len());
    let octets = [("content-type", "application/octet-stream")];
    let wrong =
        farm.api().ask("POST", &uri.replace(&format!("offset={offset}"), "offset=7"), &octets, &disk[7..]);
    assert_eq!(wrong.code, 409, "{}", wrong.text());
    let rest = farm.api().ask("POST", &uri, &octets, &disk[offset as usize..]);
    assert_eq!(rest.code, 200, "{}", rest.text());
    imported(&farm, "halves");
    assert!(downloaded(&farm, "halves").starts_with(&disk));
}

#[test]
fn an_image_comes_through_the_proxy_of_the_settings_and_goes_on_when_that_breaks_off() {
    let farm = Farm::start();
    let parts = Arc::new(AtomicUsize::new(0));
    let counted = parts.clone();
    // The only one who knows that name, and one who hangs up after a million bytes.
    let proxy = origin::answering(move |request, stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        assert!(request.starts_with("GET http://images.invalid/disk "), "{request}");
        let disk = disk();
        let range = request
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("range: bytes=")?.trim_end_matches('-').parse::<usize>().ok());
        let from = range.unwrap_or(0);
        let head = match range {
            None => format!("200 OK\r\ncontent-length: {}", disk.len()),
            Some(from) => format!(
                "206 Partial Content\r\ncontent-range: bytes {from}-{}/{}\r\ncontent-length: {}",
                disk.len() - 1,
                disk.len(),
                disk.len() - from
            ),
        };
        let head = format!("HTTP/1.1 {head}\r\netag: \"one\"\r\nconnection: close\r\n\r\n");
        let part = &disk[from..disk.len().min(from + 1_200_000)];
        _ = stream.write_all(&[head.as_bytes(), part].concat());
    });
    let setting = json!({"httpProxy": format!("http://{proxy}"), "noProxy": "127.0.0.1"}).to_string();
    let path = "/apis/harvesterhci.io/v1beta1/settings/http-proxy";
    farm.api().patch(path, "merge", &json!({"value": setting}).to_string()).object();
    create(&farm, "fetched", json!({"sourceType": "download", "url": "http://images.invalid/disk"}));
    let image = imported(&farm, "fetched");
    assert_eq!((&image["status"]["size"], &image["status"]["failed"]), (&json!(3_000_064), &Value::Null));
    assert_eq!(parts.load(Ordering::SeqCst), 3, "one attempt, three connections");
    assert!(downloaded(&farm, "fetched").starts_with(&disk()));
}
