//! Measures a disk from inside a guest, past the guest's page cache: `disk_meter DEVICE WORK MILLISECONDS`.
//!
//! `read` and `write` are single requests of 4 KiB at random places, a write with its flush: the median is
//! printed, in microseconds. `read-through` and `write-through` go through the disk in pieces of 1 MiB: the rate is
//! printed, in MB/s. `stall` writes as `write` does, and prints the longest, in milliseconds. `fill` writes the whole disk once, so that no later write finds a hole.
//!
//! One request at a time, and nothing but the standard library: it is compiled into one static file that runs in a
//! guest which has nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it has nobody else to tell")]

use std::{
    env,
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom},
    os::unix::fs::{FileExt, OpenOptionsExt},
    time::{Duration, Instant},
};

/// `O_DIRECT` on x86-64.
const PAST_THE_CACHE: i32 = 0o40000;
const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, device, work, millis] = &arguments[..] else {
        panic!("usage: disk_meter DEVICE WORK MILLISECONDS")
    };
    let mut disk =
        OpenOptions::new().read(true).write(true).custom_flags(PAST_THE_CACHE).open(device).unwrap();
    let bytes = disk.seek(SeekFrom::End(0)).unwrap();
    let limit = Duration::from_millis(millis.parse().unwrap());
    let found = match work.as_str() {
        "read" => median(times(bytes, limit, |at, piece| disk.read_exact_at(piece, at).unwrap())),
        "write" => median(times(bytes, limit, |at, piece| write(&disk, at, piece))),
        "stall" => longest(times(bytes, limit, |at, piece| write(&disk, at, piece))),
        "read-through" => rate(&disk, bytes, limit, |at, piece| disk.read_exact_at(piece, at).unwrap()),
        "write-through" => rate(&disk, bytes, limit, |at, piece| disk.write_all_at(piece, at).unwrap()),
        "fill" => rate(&disk, bytes, Duration::MAX, |at, piece| disk.write_all_at(piece, at).unwrap()),
        other => panic!("no work called {other}"),
    };
    println!("meter {found:.1}");
}

fn write(disk: &File, at: u64, piece: &[u8]) {
    disk.write_all_at(piece, at).unwrap();
    disk.sync_data().unwrap();
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// In milliseconds.
fn longest(times: Vec<Duration>) -> f64 {
    times.into_iter().max().unwrap().as_secs_f64() * 1e3
}

/// How long each of many small requests took, at random places.
fn times(bytes: u64, limit: Duration, mut request: impl FnMut(u64, &mut [u8])) -> Vec<Duration> {
    let mut room = vec![0x5a; 2 * SMALL];
    let piece = aligned(&mut room, SMALL);
    let places = bytes / SMALL as u64;
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut times, began) = (Vec::new(), Instant::now());
    while began.elapsed() < limit {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        let asked = Instant::now();
        request(chance % places * SMALL as u64, piece);
        times.push(asked.elapsed());
    }
    times
}

/// Goes round the disk until the time is over, or once when it never is.
fn rate(disk: &File, bytes: u64, limit: Duration, mut request: impl FnMut(u64, &mut [u8])) -> f64 {
    let mut room = vec![0xa5; LARGE + SMALL];
    let piece = aligned(&mut room, LARGE);
    let pieces = bytes / LARGE as u64;
    let (mut done, began) = (0, Instant::now());
    while began.elapsed() < limit && (limit < Duration::MAX || done < pieces) {
        request(done % pieces * LARGE as u64, piece);
        done += 1;
    }
    disk.sync_data().unwrap();
    (done * LARGE as u64) as f64 / 1e6 / began.elapsed().as_secs_f64()
}

/// What goes past the cache must lie at whole sectors in memory too.
fn aligned(room: &mut [u8], length: usize) -> &mut [u8] {
    let start = room.as_ptr().align_offset(SMALL);
    &mut room[start..start + length]
}
