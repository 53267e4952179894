//! The process is killed, again and again, while many write. Says nothing about syncing (the kernel
//! keeps what a dead process wrote) but all about the order of things inside it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use sheaf_store::{
    Expect, Revision, Store, Transaction, Write,
    embedded::{self, Options},
};

use crate::disk::Chance;

const WRITERS: usize = 8;
/// Tells the test binary that it is the child, and where to write.
const FILE: &str = "SHEAF_STORE_KILLED_CHILD";

#[test]
fn killed_200_times_under_concurrent_writers_it_keeps_every_acknowledged_write() {
    kill_again_and_again(7, 200);
}

#[test]
#[ignore = "takes an hour; `make soak` runs it"]
fn soak_killed_5000_times_it_keeps_every_acknowledged_write() {
    kill_again_and_again(8, 5000);
}

fn kill_again_and_again(seed: u64, kills: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut chance = Chance(seed);
    let mut promised: BTreeMap<usize, (u64, Revision)> = BTreeMap::new();
    let mut acknowledged = 0;
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_child", "--ignored", "--nocapture"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        let enough = 1 + chance.below(25);
        while let Some(Ok(line)) = lines.next() {
            heard += usize::from(take(&line, &mut promised));
            if heard == enough {
                // Not at the moment of an answer but somewhere in the work that follows it.
                std::thread::sleep(Duration::from_micros(chance.below(3000) as u64));
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(
            !status.success() && heard >= enough,
            "kill {kill}: the child ended by itself after {heard}: {status}"
        );
        acknowledged += heard;
        runtime.block_on(look(&path, kill, &mut promised));
    }
    assert!(acknowledged > kills);
}

/// Takes one line of the child; whether it is an acknowledgement.
fn take(line: &str, promised: &mut BTreeMap<usize, (u64, Revision)>) -> bool {
    // The test harness may have written on the same line first.
    let Some((_, said)) = line.split_once("ack ") else { return false };
    let numbers: Vec<u64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
    promised.insert(numbers[0] as usize, (numbers[1], Revision(numbers[2])));
    true
}

async fn look(path: &Path, kill: usize, promised: &mut BTreeMap<usize, (u64, Revision)>) {
    let store = embedded::open(path, Options::default()).unwrap();
    let newest = promised.values().map(|(_, revision)| *revision).max().unwrap_or_default();
    let head = store.revision().await.unwrap();
    assert!(head >= newest, "kill {kill}: went back from {newest} to {head}");
    assert!(head.0 < newest.0 + 900, "kill {kill}: a kill is no reason for a new epoch");
    for (writer, (count, revision)) in promised.iter_mut() {
        let left = store.get(&format!("left/{writer}").into()).await.unwrap().unwrap();
        let right = store.get(&format!("right/{writer}").into()).await.unwrap().unwrap();
        assert_eq!(
            (&left.value, left.modified),
            (&right.value, right.modified),
            "kill {kill}: half a transaction"
        );
        let found: u64 = std::str::from_utf8(&left.value).unwrap().parse().unwrap();
        // At most the one write that was under way is beyond what we heard of.
        assert!(
            found == *count || found == *count + 1,
            "kill {kill}: writer {writer} is at {found}, not {count}"
        );
        assert!(left.modified >= *revision);
        (*count, *revision) = (found, left.modified);
    }
}

/// Not a test by itself: what is killed. Writes as fast as it can and says so.
#[test]
#[ignore = "started by the test that kills it"]
fn the_child() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = Arc::new(embedded::open(Path::new(&path), Options::default()).unwrap());
        let writers = (0..WRITERS).map(|writer| tokio::spawn(count(Arc::clone(&store), writer)));
        futures::future::join_all(writers).await;
    });
}

async fn count(store: Arc<dyn Store>, writer: usize) {
    let (left, right) = (format!("left/{writer}"), format!("right/{writer}"));
    loop {
        let found = store.get(&left.clone().into()).await.unwrap();
        let next = found
            .as_ref()
            .map_or(1, |entry| std::str::from_utf8(&entry.value).unwrap().parse::<u64>().unwrap() + 1);
        let key = left.clone().into();
        let expect = match found {
            None => Expect::Absent { key },
            Some(entry) => Expect::ModifiedAt { key, revision: entry.modified },
        };
        let put = |key: &String| Write::Put { key: key.clone().into(), value: next.to_string().into() };
        let transaction = Transaction { expect: vec![expect], writes: vec![put(&left), put(&right)] };
        let revision = store.commit(transaction).await.unwrap();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("ack {writer} {next} {revision}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
}
