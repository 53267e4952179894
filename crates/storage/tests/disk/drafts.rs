//! Images that another process writes.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use sheaf_storage::{
    Backend, Draft, Drafted, Format, ImageError, ImageId, ImageState, Origin, Refusal, VolumeId,
};

use crate::house::{House, MIB, everything_in, qemu_io_through, run};

fn id(name: &str) -> ImageId {
    name.parse().unwrap()
}

async fn draft(house: &House, name: &str) -> Draft {
    match house.storage.draft_image(&id(name), 8 * MIB, MIB).await.unwrap() {
        Drafted::Now(draft) => draft,
        Drafted::Already(image) => panic!("{image:?}"),
    }
}

/// The file of a draft, as whoever it is handed to has it.
fn file_of(draft: &Draft) -> File {
    draft.file().try_clone_to_owned().unwrap().into()
}

fn disk_of(house: &House, name: &str) -> String {
    house.path(&format!("images/.arriving-{name}/disk")).to_str().unwrap().to_owned()
}

/// A raw disk that begins like a qcow2 which lies on a file of the host.
fn disguised(path: &Path) {
    let secret = path.with_extension("secret");
    std::fs::write(&secret, vec![9; MIB as usize]).unwrap();
    let (path, secret) = (path.to_str().unwrap(), secret.to_str().unwrap());
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, path, "8M"]);
    OpenOptions::new().write(true).open(path).unwrap().set_len(8 * MIB).unwrap();
}

#[tokio::test]
async fn a_disk_that_looks_like_another_format_is_content_and_nothing_else() {
    let house = House::new().await;
    let raw = house.path("guest.raw");
    disguised(&raw);
    let draft = draft(&house, "drafted").await;
    let into = disk_of(&house, "drafted");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "qcow2", raw.to_str().unwrap(), &into]);
    draft.is_at(4 * MIB);
    let state = house.storage.image(&id("drafted")).await.unwrap();
    assert_eq!(state, ImageState::Arriving { bytes: 4 * MIB, total: Some(8 * MIB) });
    let image = draft.finish().await.unwrap();
    assert_eq!((image.format, image.virtual_size, image.is_disc), (Format::Qcow2, 8 * MIB, false));
    assert_eq!(house.storage.image(&id("drafted")).await.unwrap(), ImageState::Complete(image));

    let volume: VolumeId = "volume".parse().unwrap();
    house.storage.create(&volume, 8 * MIB, &Origin::Image(id("drafted"))).await.unwrap();
    let layers = house.storage.open(&volume, true).await.unwrap();
    assert_eq!(layers[0].format, Format::Qcow2);
    // The first bytes are the header that the guest wrote, and not what that header points at.
    let read = qemu_io_through(&layers, "read -v 0 512");
    assert!(read.contains("51 46 49 fb"), "{read}");
    assert!(!read.contains("09 09 09 09"), "{read}");
}

#[tokio::test]
async fn what_another_process_made_of_it_is_believed_no_more_than_what_arrives() {
    let house = House::new().await;
    let lies_on_another = |file: &File| file.write_all_at(&512u64.to_be_bytes(), 8).unwrap();
    let is_larger = |file: &File| file.write_all_at(&(64 * MIB).to_be_bytes(), 24).unwrap();
    let is_raw = |file: &File| file.write_all_at(&[7; 512], 0).unwrap();
    let is_empty = |file: &File| file.set_len(0).unwrap();
    type Spoil<'a> = &'a dyn Fn(&File);
    let ways: [(&str, Spoil<'_>); 4] = [
        ("a backing file", &lies_on_another),
        ("another size", &is_larger),
        ("another format", &is_raw),
        ("nothing", &is_empty),
    ];
    for (way, spoil) in ways {
        let draft = draft(&house, "spoilt").await;
        spoil(&file_of(&draft));
        let refused = draft.finish().await;
        let is_refused = match way {
            "a backing file" => matches!(refused, Err(ImageError::Refused(Refusal::BackingFile))),
            "nothing" => matches!(refused, Err(ImageError::Refused(Refusal::Empty))),
            _ => matches!(refused, Err(ImageError::Damaged { .. })),
        };
        assert!(is_refused, "{way}: {refused:?}");
        assert!(everything_in(&house.path("images")).is_empty(), "{way}");
    }
}

#[tokio::test]
async fn nothing_stays_of_a_draft_that_is_given_up_or_deleted() {
    let house = House::new().await;
    drop(draft(&house, "given-up").await);
    assert!(everything_in(&house.path("images")).is_empty());
    assert_eq!(house.storage.image(&id("given-up")).await.unwrap(), ImageState::Nothing);

    let unlucky = draft(&house, "deleted").await;
    let twice = house.storage.draft_image(&id("deleted"), MIB, MIB).await;
    assert!(matches!(twice, Err(ImageError::AlreadyArriving { .. })));
    house.storage.delete_image(&id("deleted")).await.unwrap();
    let refused = unlucky.finish().await;
    assert!(matches!(refused, Err(ImageError::DeletedMeanwhile { .. })), "{refused:?}");
    assert!(everything_in(&house.path("images")).is_empty());

    let too_large = house.storage.draft_image(&id("large"), MIB, u64::MAX / 2).await;
    assert!(matches!(too_large, Err(ImageError::NoSpace { .. })));
    assert!(everything_in(&house.path("images")).is_empty());
}

#[tokio::test]
async fn every_program_reads_what_was_drafted() {
    let house = House::new().await;
    for size in [4096, 8 * MIB, 5 << 30, 16 << 40] {
        let Drafted::Now(draft) = house.storage.draft_image(&id("of-a-size"), size, MIB).await.unwrap()
        else {
            panic!("{size}");
        };
        let checked = run("qemu-img", &["check", "-f", "qcow2", &disk_of(&house, "of-a-size")]);
        assert!(checked.contains("No errors"), "{size}: {checked}");
        let told = run("qemu-img", &["info", "-f", "qcow2", &disk_of(&house, "of-a-size")]);
        assert!(told.contains("extended l2: false") && told.contains(&format!("({size} bytes)")), "{told}");
        drop(draft);
    }
}
