//! The work, and what one server showed while it did it.

use std::{thread::sleep, time::Duration};

use sheaf_tests::{
    bench::{
        api::{self, Meter, Work},
        process::Process,
    },
    server::Server,
};

/// Time in which a server comes to rest before its memory is looked at.
const REST: Duration = Duration::from_secs(5);

/// How much is done.
pub struct Size {
    creates_alone: usize,
    creates_together: usize,
    gets_alone: usize,
    gets_together: usize,
    lists: usize,
    pub objects: usize,
    pub watchers: usize,
    pub changes: usize,
}

impl Size {
    /// The full size for 1; more for a run that only shows that all of it works.
    pub fn divided_by(scale: usize) -> Size {
        let part = |full: usize| (full / scale).max(20);
        Size {
            creates_alone: part(1000),
            creates_together: part(6000),
            gets_alone: part(5000),
            gets_together: part(20_000),
            lists: 20_usize.div_ceil(scale),
            objects: part(10_000),
            watchers: part(1000),
            changes: 20_usize.div_ceil(scale),
        }
    }
}

/// Work under the name of its row. For all servers in the same order.
pub struct Row {
    pub what: String,
    /// What came out, as its costs are counted.
    pub each: &'static str,
    pub work: Work,
}

/// Memory in MB, of the API server and of its store where that is another process.
#[derive(Clone, Copy)]
pub struct Memory {
    pub server: f64,
    pub store: Option<f64>,
}

impl Memory {
    fn of(meter: &Meter) -> Memory {
        Memory { server: meter.server.pss_mb(), store: meter.store.as_ref().map(Process::pss_mb) }
    }
}

/// What one server showed in one round.
pub struct Found {
    pub idle: Memory,
    pub full: Memory,
    pub watched_mb: f64,
    pub list_mb: f64,
    pub rows: Vec<Row>,
}

pub fn measure(server: &impl Server, meter: &Meter, size: &Size) -> Found {
    sleep(REST);
    let idle = Memory::of(meter);
    let mut rows = Vec::new();
    let mut row = |what: String, each, work| rows.push(Row { what, each, work });

    row("creates, 1 client".into(), "create", api::creates(server, meter, 1, size.creates_alone));
    row("creates, 64 clients".into(), "create", api::creates(server, meter, 64, size.creates_together));
    api::fill(server, size.objects);
    sleep(REST);
    let full = Memory::of(meter);

    let there = size.creates_alone;
    row("gets, 1 client".into(), "get", api::gets(server, meter, 1, size.gets_alone, there));
    row("gets, 64 clients".into(), "get", api::gets(server, meter, 64, size.gets_together, there));
    let (work, bytes) = api::lists(server, meter, size.lists, size.objects);
    row("lists of all objects".into(), "object listed", work);
    let (work, watched_mb) = api::watchers(server, meter, size.watchers, size.changes);
    row("changes to all watchers".into(), "event delivered", work);
    Found { idle, full, watched_mb, list_mb: bytes as f64 / 1e6, rows }
}
