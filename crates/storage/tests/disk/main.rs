//! A whole storage on a real disk: what it keeps is read by QEMU's own tools and by
//! others who know the formats, it is killed after every step, and it is lied to.
//!
//! Needs `qemu-img`, `qemu-io`, `blkid` and `bsdtar`.

#![expect(clippy::unwrap_used, reason = "a disk that cannot be read is a failed test")]

mod fetching;
mod house;
mod images;
mod killed;
mod planted;
mod seeds;
mod volumes;
mod web_server;
