//! Images: fetched, made of a disk, and had back, with what is seen meanwhile.

use std::{fs, time::Duration};

use sheaf_tests::{machines::Farm, origin, terminal::Terminal};

use crate::person::Person;

const MIB: usize = 1 << 20;

/// Something that is not everywhere the same.
fn disk() -> Vec<u8> {
    (0..8 * MIB).map(|index| (index * index / 7 % 251) as u8).collect()
}

/// Columns that a line takes.
fn visible(line: &str) -> usize {
    line.replace("\x1b[2K", "").trim_end().chars().count()
}

#[test]
fn an_image_is_fetched_with_its_rate_and_the_time_left_and_had_back_as_it_was() {
    let farm = Farm::start();
    let anna = Person::of(&farm.node, "default");
    let url = origin::serving_slowly(disk(), 16, Duration::from_millis(300));
    let mut terminal = Terminal::open();
    terminal.is_so_wide(80);
    let mut child = anna.types_at(&terminal, &[], &["image", "import", &url, "--name", "slow", "--wait"]);
    terminal.shows(" % of 8.00 MiB, ");
    terminal.shows("iB/s, ");
    terminal.shows("s left");
    terminal.shows("image default/slow is there");
    assert!(child.wait().unwrap().success());
    let shown = terminal.everything();
    let bars: Vec<&str> = shown.split(['\r', '\n']).filter(|line| line.contains(" % of ")).collect();
    assert!(bars.iter().all(|bar| bar.contains("the image default/") && !bar.contains("GiB/s")), "{bars:?}");
    assert!(bars.iter().all(|bar| visible(bar) <= 80), "{bars:?}");
    assert_eq!(anna.says(&["image", "list", "-o", "name"]), "virtualmachineimage.harvesterhci.io/slow\n");
    let file = anna.home.path().join("slow.raw");
    anna.says(&["image", "download", "slow", file.to_str().unwrap()]);
    assert!(fs::read(&file).unwrap() == disk(), "what comes back is what was fetched");

    // Where lines cannot be changed, there is one now and then.
    let fast = origin::serving_slowly(disk(), 4, Duration::from_millis(1500));
    let told = anna.runs(&["image", "import", &fast, "--name", "plain", "--wait"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.stdout, "image default/plain is there\n");
    assert!(
        told.stderr.lines().any(|line| line.contains(" of 8 MiB (") && !line.contains("(0 %)")),
        "{told:?}"
    );
}

#[test]
fn an_image_is_made_of_a_volume_and_a_volume_of_that() {
    let farm = Farm::start();
    let anna = Person::of(&farm.node, "default");
    anna.says(&[
        "image",
        "import",
        &origin::serving_slowly(disk(), 1, Duration::ZERO),
        "--name",
        "one",
        "--wait",
    ]);
    anna.says(&["volume", "create", "disk", "--image", "one", "--size", "1Gi", "--wait"]);
    let made = anna.says(&["image", "export", "disk", "two", "--wait"]);
    assert!(made.ends_with("(two) is an image of the volume disk\n"), "{made}");
    let name = made.split(' ').nth(1).unwrap().rsplit('/').next().unwrap().to_owned();
    // The name was drawn; it goes by what it is called, too.
    assert!(anna.says(&["image", "show", "two"]).contains(&name));
    let missing = anna.complains(&["image", "show", "three"], 3);
    assert!(missing.contains("three"), "{missing}");
    anna.says(&["volume", "create", "again", "--image", &name, "--size", "1Gi", "--wait"]);
    assert!(anna.says(&["volume", "show", "again"]).contains(&name));
    let used = anna.complains(&["image", "delete", "two", "--yes"], 1);
    assert!(used.contains("being used by volume default/again"), "{used}");
    anna.says(&["volume", "delete", "again", "--yes", "--wait"]);
    assert!(anna.says(&["image", "delete", "two", "--yes", "--wait"]).contains(&name));
}
