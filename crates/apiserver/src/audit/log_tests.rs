//! What becomes of lines, on a disk and on one that fails.

use sheaf_world::World;

use super::*;

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sheaf-audit-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn log(&self) -> PathBuf {
        self.0.join("audit.log")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn clock() -> Clock {
    World::seeded(1).clock
}

#[tokio::test]
async fn lines_are_in_the_file_in_their_order_and_for_the_owner_alone() {
    let dir = Dir::new("order");
    fs::write(dir.log(), "half a li").unwrap();
    fs::set_permissions(dir.log(), Permissions::from_mode(0o644)).unwrap();
    let log = Log::open(&dir.log(), Limits::default(), clock()).unwrap();
    for n in 0..1000 {
        log.put(format!("{n}\n").as_bytes()).await;
    }
    log.flush();
    let expected: String = (0..1000).map(|n| format!("{n}\n")).collect();
    assert_eq!(dir.read("audit.log"), format!("half a li\n{expected}"));
    assert_eq!(fs::metadata(dir.log()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn what_was_taken_is_written_before_the_log_closes() {
    let dir = Dir::new("close");
    let log = Log::open(&dir.log(), Limits::default(), clock()).unwrap();
    log.put(b"last\n").await;
    drop(log);
    assert_eq!(dir.read("audit.log"), "last\n");
}

#[tokio::test]
async fn files_are_bounded_in_size_and_number_and_no_line_is_cut() {
    let dir = Dir::new("rotate");
    let log = Log::open(&dir.log(), Limits { file_bytes: 100, files: 3 }, clock()).unwrap();
    for n in 0..1000 {
        log.put(format!("line number {n:04}\n").as_bytes()).await;
        if n % 7 == 0 {
            log.flush();
        }
    }
    log.flush();
    assert_eq!(dir.names(), ["audit.log", "audit.log.1", "audit.log.2"]);
    let all = dir.read("audit.log.2") + &dir.read("audit.log.1") + &dir.read("audit.log");
    let numbers: Vec<u32> = all.lines().map(|line| line["line number ".len()..].parse().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&999));
    for name in dir.names() {
        assert!(dir.read(&name).len() <= 100);
        assert_eq!(fs::metadata(dir.0.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_line_larger_than_a_file_may_be_is_still_whole() {
    let dir = Dir::new("large");
    let log = Log::open(&dir.log(), Limits { file_bytes: 10, files: 3 }, clock()).unwrap();
    for line in ["a\n", "a very long line indeed\n", "b\n"] {
        log.put(line.as_bytes()).await;
    }
    log.flush();
    assert_eq!(dir.read("audit.log"), "b\n");
    assert_eq!(dir.read("audit.log.1"), "a very long line indeed\n");
    assert_eq!(dir.read("audit.log.2"), "a\n");
}

#[tokio::test]
async fn who_finds_no_room_goes_on_and_the_log_says_what_is_missing() {
    let dir = Dir::new("room");
    let log = Log::open_with(&dir.log(), Limits::default(), clock(), 100).unwrap();
    // Nothing of it fits, however long one waits.
    let too_long = [b'x'; 101];
    let began = tokio::time::Instant::now();
    log.put(&too_long).await;
    assert!(began.elapsed() >= PATIENCE);
    assert!(began.elapsed() < 20 * PATIENCE);
    log.put_now(&too_long);
    assert_eq!(log.tally(), Tally { dropped: 2, ..Tally::default() });
    log.put(b"fits\n").await;
    log.flush();
    let text = dir.read("audit.log");
    let notice: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(notice["annotations"]["sheaf.io/missing-events"], "2");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_counted_and_stops_nobody() {
    // Every write to it fails as on a full disk.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dir = Dir::new("full");
    let mut files = Files::open(&dir.log(), Limits::default()).unwrap();
    files.file = Some(full);
    let shared = Arc::new(Shared {
        pending: Mutex::default(),
        work: Condvar::new(),
        done: Condvar::new(),
        room: Notify::new(),
        written: watch::Sender::new(0),
        capacity: PENDING,
    });
    let (of_thread, clock) = (shared.clone(), clock());
    let writer = thread::spawn(move || of_thread.write(files, &clock));
    let whereabouts = Whereabouts { path: dir.log(), files: 1 };
    let log = Log { shared, writer: Mutex::new(Some(writer)), whereabouts };
    log.put(b"one\n").await;
    log.flush();
    log.put(b"two\n").await;
    log.flush();
    assert_eq!(log.tally(), Tally { taken: 2, dropped: 0, failed: 2 });
    assert_eq!(log.shared.pending.lock().missing, 2, "to be told once it can be");
}

#[test]
fn a_link_is_refused_and_what_it_points_at_is_left_alone() {
    let dir = Dir::new("link");
    let (precious, nothing) = (dir.0.join("precious"), dir.0.join("nothing"));
    fs::write(&precious, "of somebody else").unwrap();
    fs::set_permissions(&precious, Permissions::from_mode(0o644)).unwrap();
    for target in [&precious, &nothing] {
        std::os::unix::fs::symlink(target, dir.log()).unwrap();
        let why = Log::open(&dir.log(), Limits::default(), clock()).unwrap_err();
        assert_eq!(why.to_string(), "it is a symbolic link, which is not followed: name the file itself");
        fs::remove_file(dir.log()).unwrap();
    }
    assert_eq!(dir.read("precious"), "of somebody else");
    assert_eq!(fs::metadata(&precious).unwrap().permissions().mode() & 0o777, 0o644);
    assert!(!nothing.exists());
}

#[test]
fn a_link_that_takes_the_place_of_the_log_is_not_followed_either() {
    let dir = Dir::new("later-link");
    let mut files = Files::open(&dir.log(), Limits { file_bytes: 8, files: 3 }).unwrap();
    files.write(b"first\n").unwrap();
    files.step_aside().unwrap();
    fs::write(dir.0.join("precious"), "of somebody else").unwrap();
    std::os::unix::fs::symlink(dir.0.join("precious"), dir.log()).unwrap();
    assert!(files.write(b"second\n").is_err());
    assert_eq!(dir.read("precious"), "of somebody else");
}

#[test]
fn files_step_aside_once_however_often_the_next_one_cannot_be_opened() {
    let dir = Dir::new("aside");
    let mut files = Files::open(&dir.log(), Limits { file_bytes: 8, files: 3 }).unwrap();
    for line in ["first\n", "second\n", "third\n"] {
        files.write(line.as_bytes()).unwrap();
    }
    files.step_aside().unwrap();
    // What is no file is in its place.
    fs::create_dir(dir.log()).unwrap();
    for _ in 0..5 {
        assert!(files.write(b"fourth\n").is_err());
    }
    fs::remove_dir(dir.log()).unwrap();
    files.write(b"fifth\n").unwrap();
    assert_eq!(dir.names(), ["audit.log", "audit.log.1", "audit.log.2"]);
    let read = ["audit.log", "audit.log.1", "audit.log.2"].map(|name| dir.read(name));
    assert_eq!(read, ["fifth\n", "third\n", "second\n"]);
}
