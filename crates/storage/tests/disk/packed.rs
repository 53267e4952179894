//! Images that come as gzip, xz or zstd: unpacked on the way, and bombs defused.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use bytes::Bytes;
use futures::stream;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use sha2::{Digest, Sha256};
use sheaf_storage::{Announced, Checksum, Format, ImageError, ImageId, ImageState, Source};

use crate::{
    house::{House, MIB, everything_in, pieces, read_at, run},
    images::SmallDisk,
    web_server::{Answers, WebServer, ok},
};

fn debian() -> ImageId {
    "debian".parse().unwrap()
}

/// What a program makes of its input.
fn filtered(program: &str, arguments: &[&str], content: &[u8]) -> Vec<u8> {
    let mut child =
        Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let content = content.to_vec();
    let writing = std::thread::spawn(move || input.write_all(&content));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success(), "{program}");
    output.stdout
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    filtered("gzip", &["-1c"], content)
}

fn xz(content: &[u8]) -> Vec<u8> {
    filtered("xz", &["-1c"], content)
}

fn zstd(content: &[u8]) -> Vec<u8> {
    compress_to_vec(content, CompressionLevel::Fastest)
}

fn all_packings(content: &[u8]) -> [(&'static str, Vec<u8>); 3] {
    [("gzip", gzip(content)), ("xz", xz(content)), ("zstd", zstd(content))]
}

/// A disk that neither packs to nothing nor not at all.
fn raw_disk() -> Vec<u8> {
    let mut disk = vec![0; 3 * MIB as usize + 512];
    for (index, byte) in disk.iter_mut().enumerate().skip(70_000).take(1 << 20) {
        *byte = (index * index / 7 % 251) as u8;
    }
    disk
}

fn iso(house: &House) -> Vec<u8> {
    let path = house.path("disc.iso");
    std::fs::write(house.path("file"), "on a disc").unwrap();
    let from = house.path("");
    run("bsdtar", &["-cf", path.to_str().unwrap(), "--format=iso9660", "-C", from.to_str().unwrap(), "file"]);
    std::fs::read(path).unwrap()
}

#[tokio::test]
async fn every_format_arrives_unpacked_from_every_packing_by_upload_and_by_url() {
    let house = House::new().await;
    let qcow2 = std::fs::read(house.image_file("qcow2", 64 * MIB, "write -P 7 1M 1M")).unwrap();
    for (format, is_disc, content) in
        [(Format::Raw, false, raw_disk()), (Format::Qcow2, false, qcow2), (Format::Raw, true, iso(&house))]
    {
        for (name, packed) in all_packings(&content) {
            let sha256: String = Sha256::digest(&packed).iter().map(|byte| format!("{byte:02x}")).collect();
            let checksum = Checksum::parse(&sha256);
            let size = Some(packed.len() as u64);
            let announced = Announced { size, checksum: checksum.clone(), ..Announced::default() };
            let sent =
                house.storage.receive_image(&debian(), pieces(packed.clone()), announced).await.unwrap();
            assert_eq!(
                (sent.format, sent.is_disc, sent.size),
                (format, is_disc, content.len() as u64),
                "{name}"
            );
            let file = house.storage.open_image_for_reading(&debian()).await.unwrap();
            assert_eq!(read_at(&file.file, 0, content.len()), content, "{name}");
            house.storage.delete_image(&debian()).await.unwrap();

            let server = WebServer::start(Answers::from([("/image", ok(&packed))])).await;
            let url = format!("http://localhost:{}/image", server.port);
            let source = Source { allow_local: true, checksum, ..Source::of(url) };
            assert_eq!(house.storage.fetch_image(&debian(), source).await.unwrap(), sent, "{name}");
            house.storage.delete_image(&debian()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_checksum_is_that_of_what_arrived_and_is_asked_before_anything_is_published() {
    let house = House::new().await;
    let disk = raw_disk();
    let sha256: String = Sha256::digest(&disk).iter().map(|byte| format!("{byte:02x}")).collect();
    let announced = Announced { checksum: Checksum::parse(&sha256), ..Announced::default() };
    let refused = house.storage.receive_image(&debian(), pieces(gzip(&disk)), announced).await;
    assert!(matches!(refused, Err(ImageError::WrongChecksum { .. })), "{refused:?}");
    assert!(everything_in(&house.path("images")).is_empty());
}

#[tokio::test]
async fn a_packed_image_that_is_damaged_or_cut_off_is_refused_and_nothing_is_kept() {
    let house = House::new().await;
    for (name, packed) in all_packings(&raw_disk()) {
        let mut damaged = packed.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        let cut = packed[..packed.len() - 9].to_vec();
        let behind = [packed, b"something else".to_vec()].concat();
        for bad in [damaged, cut, behind] {
            let refused = house.storage.receive_image(&debian(), pieces(bad), None).await.unwrap_err();
            assert!(
                matches!(refused, ImageError::Unpacking { packing, .. } if packing == name),
                "{refused:?}"
            );
            assert!(everything_in(&house.path("images")).is_empty());
        }
    }
}

#[tokio::test]
async fn what_is_packed_twice_is_unpacked_once_and_refused_at_its_first_bytes() {
    let house = House::new().await;
    // All of it would be a thousand times a thousand times as much.
    let inner = gzip(&gzip(&vec![0; 8 * MIB as usize]));
    for (_, nested) in all_packings(&inner) {
        let refused = house.storage.receive_image(&debian(), pieces(nested), None).await.unwrap_err();
        assert!(refused.to_string().contains("compressed with gzip"), "{refused}");
        assert!(everything_in(&house.path("images")).is_empty());
    }
}

#[tokio::test]
async fn a_bomb_of_zeros_takes_no_space_and_one_of_noise_stops_before_the_disk_is_full() {
    use std::os::unix::fs::MetadataExt;
    let house = House::new().await;
    let zeros = gzip(&vec![0; 40 * MIB as usize]);
    house.storage.receive_image(&debian(), pieces(zeros), None).await.unwrap();
    let found = std::fs::metadata(house.path("images/debian/disk")).unwrap();
    assert!(found.len() == 40 * MIB && found.blocks() * 512 < MIB, "{} blocks", found.blocks());

    let Some(disk) = SmallDisk::of_mib(32) else { return println!("this test must be allowed to mount") };
    let storage = crate::house::open(disk.0.path()).await;
    let ones = vec![1; 40 * MIB as usize];
    for (name, bomb) in all_packings(&ones) {
        assert!(bomb.len() < MIB as usize, "{name}");
        let refused = storage.receive_image(&debian(), pieces(bomb), None).await.unwrap_err();
        assert!(matches!(refused, ImageError::DiskFull { .. }), "{name}: {refused:?}");
        assert!(everything_in(&disk.0.path().join("images")).is_empty());
    }
}

#[tokio::test]
async fn a_limit_holds_for_what_comes_out_too() {
    let house = House::new().await;
    let packed = gzip(&vec![1; 8 * MIB as usize]);
    let server = WebServer::start(Answers::from([("/image", ok(&packed))])).await;
    let url = format!("http://localhost:{}/image", server.port);
    let source = Source { allow_local: true, most_bytes: Some(4 * MIB), ..Source::of(url) };
    let refused = house.storage.fetch_image(&debian(), source).await;
    assert!(matches!(refused, Err(ImageError::TooLarge { .. })), "{refused:?}");
}

/// Eight kilobytes of zstd that are sixteen mebibytes of zeros.
fn zeros_of_zstd() -> Vec<u8> {
    let mut frame = 0xfd2f_b528u32.to_le_bytes().to_vec();
    frame.extend([0x00, 0x38]); // no length said; a window of 128 KiB
    for number in 0..128u32 {
        // A block that is one byte, repeated 128 KiB times.
        let is_last = u32::from(number == 127);
        let header = (131_072u32 << 3) | (1 << 1) | is_last;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

#[tokio::test]
#[ignore = "long: takes 16 GiB of nothing out of a small file"]
async fn soak_an_endless_bomb_is_refused_by_its_ratio() {
    let house = House::new().await;
    let frames = Bytes::from(zeros_of_zstd());
    let endless = stream::repeat_with(move || Ok::<_, String>(frames.clone()));
    let refused = house.storage.receive_image(&debian(), endless, None).await.unwrap_err();
    assert!(matches!(refused, ImageError::Bomb { .. }), "{refused:?}");
    assert!(everything_in(&house.path("images")).is_empty());
    assert!(matches!(house.storage.image(&debian()).await.unwrap(), ImageState::Failed { .. }));
}

#[tokio::test]
async fn an_unpacker_that_would_take_a_machines_memory_is_refused() {
    let house = House::new().await;
    let zstd = [&0xfd2f_b528u32.to_le_bytes()[..], &[0x00, 0xf8], &[0; 64]].concat();
    let xz = filtered("xz", &["-c", "--lzma2=dict=512MiB"], &raw_disk());
    for hungry in [zstd, xz] {
        let refused = house.storage.receive_image(&debian(), pieces(hungry), None).await.unwrap_err();
        assert!(matches!(refused, ImageError::Unpacking { .. }), "{refused:?}");
    }
    for modest in [filtered("xz", &["-9ec"], &raw_disk()), filtered("gzip", &["-9c"], &raw_disk())] {
        house.storage.receive_image(&debian(), pieces(modest), None).await.unwrap();
        house.storage.delete_image(&debian()).await.unwrap();
    }
}
