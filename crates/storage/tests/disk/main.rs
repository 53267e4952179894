//! A whole storage on a real disk: what it keeps is read by QEMU's own tools and by
//! others who know the formats, it is killed after every step, and it is lied to.
//!
//! Needs `qemu-img`, `qemu-io`, `blkid`, `bsdtar`, `gzip` and `xz`.

#![expect(clippy::unwrap_used, reason = "a disk that cannot be read is a failed test")]

mod copies;
mod drafts;
mod failing_syncs;
mod fetching;
mod hostile;
mod house;
mod images;
mod killed;
mod packed;
mod planted;
mod proxies;
mod resuming;
mod seeds;
mod volume_syncs;
mod volumes;
mod web_server;
