//! The last hour of one machine, as rates between samples.
//!
//! A point is 40 bytes and there are at most 360 of them: fifty machines keep less than a megabyte.

use std::collections::VecDeque;

use serde::Serialize;
use sheaf_hypervisor::qmp::numbers::DiskNumbers;

use super::{INTERVAL_SECS, sample::Sample};

const POINTS: usize = 3600 / INTERVAL_SECS as usize;

/// In the order in which they were measured.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
}

/// What is not known is not a number.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Since the epoch.
    at_secs: u32,
    cores: f32,
    resident_kib: u32,
    /// 0 if the guest does not say.
    used_kib: u32,
    disk_read: f32,
    disk_write: f32,
    disk_reads: f32,
    disk_writes: f32,
    net_received: f32,
    net_transmitted: f32,
}

#[derive(Serialize)]
struct Told {
    /// Seconds between points, where none is missing.
    interval: u64,
    points: Vec<ToldPoint>,
}

/// Not known is `null`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldPoint {
    /// Seconds since the epoch.
    t: u32,
    /// How many processors of the host were busy for it.
    cpu: Option<f32>,
    /// What its process holds of the host's memory.
    memory_bytes: u64,
    /// What the guest says is in use inside.
    memory_used_bytes: Option<u64>,
    disk_read_bps: Option<f32>,
    disk_write_bps: Option<f32>,
    disk_read_iops: Option<f32>,
    disk_write_iops: Option<f32>,
    net_rx_bps: Option<f32>,
    net_tx_bps: Option<f32>,
}

impl History {
    /// Enters what happened between two samples of one machine.
    pub fn push(&mut self, at_secs: u64, before: &Sample, now: &Sample) {
        if self.points.capacity() == 0 {
            self.points.reserve_exact(POINTS);
        }
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point::between(at_secs, before, now));
    }

    pub fn to_json(&self) -> Vec<u8> {
        let told = Told { interval: INTERVAL_SECS, points: self.points.iter().map(Point::told).collect() };
        // Numbers and fixed names: there is nothing in it that cannot be written.
        serde_json::to_vec(&told).unwrap_or_default()
    }
}

impl Point {
    fn between(at_secs: u64, before: &Sample, now: &Sample) -> Point {
        let secs = now.at.saturating_duration_since(before.at).as_secs_f64();
        // Another process of the same machine began counting at zero.
        let same = before.process.started_ticks == now.process.started_ticks;
        let rate = |before: Option<u64>, now: Option<u64>| match (before, now) {
            (Some(before), Some(now)) if same && secs > 0.0 && now >= before => {
                ((now - before) as f64 / secs) as f32
            }
            _ => f32::NAN,
        };
        let busy = |sample: &Sample| sample.process.user_nanos + sample.process.system_nanos;
        let disks = |number: fn(&DiskNumbers) -> u64| {
            let sum = |sample: &Sample| Some(sample.disks.as_ref()?.iter().map(number).sum());
            rate(sum(before), sum(now))
        };
        let sum_received = |sample: &Sample| sample.nics.iter().map(|nic| nic.received.bytes).sum();
        let sum_transmitted = |sample: &Sample| sample.nics.iter().map(|nic| nic.transmitted.bytes).sum();
        let nics = |sum: &dyn Fn(&Sample) -> u64| {
            let known = |sample: &Sample| (!sample.nics.is_empty()).then(|| sum(sample));
            rate(known(before), known(now))
        };
        Point {
            at_secs: u32::try_from(at_secs).unwrap_or(u32::MAX),
            cores: rate(Some(busy(before)), Some(busy(now))) / 1e9,
            resident_kib: kib(now.process.resident_bytes),
            used_kib: now.guest.and_then(|guest| guest.used_bytes()).map_or(0, kib),
            disk_read: disks(|disk| disk.read_bytes),
            disk_write: disks(|disk| disk.written_bytes),
            disk_reads: disks(|disk| disk.reads),
            disk_writes: disks(|disk| disk.writes),
            net_received: nics(&sum_received),
            net_transmitted: nics(&sum_transmitted),
        }
    }

    fn told(&self) -> ToldPoint {
        let known = |rate: f32| rate.is_finite().then_some(rate);
        ToldPoint {
            t: self.at_secs,
            cpu: known(self.cores),
            memory_bytes: u64::from(self.resident_kib) << 10,
            memory_used_bytes: (self.used_kib > 0).then(|| u64::from(self.used_kib) << 10),
            disk_read_bps: known(self.disk_read),
            disk_write_bps: known(self.disk_write),
            disk_read_iops: known(self.disk_reads),
            disk_write_iops: known(self.disk_writes),
            net_rx_bps: known(self.net_received),
            net_tx_bps: known(self.net_transmitted),
        }
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}
