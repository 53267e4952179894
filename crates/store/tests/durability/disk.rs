//! A disk that keeps only what was synced, and anything or nothing of the rest.
//!
//! Reads see every write at once, as the kernel's cache shows it. What is on the platter is a
//! separate image that a sync brings up to date. When the power is cut, each write since the last
//! sync is there, missing, or torn at a sector, in any combination: that is all a disk promises.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use redb::StorageBackend;

const SECTOR: usize = 512;
const BLOCK: usize = 4096;

#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    cache: Vec<u8>,
    platter: Vec<u8>,
    since_sync: Vec<Write>,
    syncs: u64,
    fault: Fault,
    dead: bool,
    /// The blocks that were ever written: a file has room where it was written before.
    blocks: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
enum Write {
    Bytes { offset: usize, data: Vec<u8> },
    Length(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// The power goes when this sync is called for; nothing answers any more.
    CutAtSync(u64),
    /// This sync fails, and the writes it was for are forgotten by the kernel: later syncs succeed without
    /// them. That is what Linux does.
    FailSync(u64),
    /// From this sync on, syncs do nothing and say that all is well.
    LieFromSync(u64),
    /// There is room for so many blocks; a write that needs one more finds none.
    FullAfter(usize),
}

impl Disk {
    pub fn with(fault: Fault) -> Self {
        Disk::holding(Vec::new(), fault)
    }

    pub fn holding(image: Vec<u8>, fault: Fault) -> Self {
        Disk(Arc::new(Mutex::new(State { cache: image.clone(), platter: image, fault, ..State::default() })))
    }

    /// From now on nothing is wrong with it.
    pub fn heal(&self) {
        self.state().fault = Fault::None;
    }

    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// What the disk holds after a power cut. One seed gives one outcome.
    pub fn after_power_cut(&self, seed: u64) -> Vec<u8> {
        let state = self.state();
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut image = state.platter.clone();
        let mut writes = state.since_sync.clone();
        match seed % 4 {
            0 => writes.clear(),
            1 => writes.truncate(chance.below(writes.len() + 1)),
            2 => chance.shuffle(&mut writes),
            _ => {
                chance.shuffle(&mut writes);
                writes.retain(|_| chance.below(2) == 0);
            }
        }
        let torn = seed % 4 >= 1;
        for write in writes {
            match write {
                Write::Length(length) => image.resize(length, 0),
                Write::Bytes { offset, data } => {
                    let sectors = data.chunks(SECTOR).enumerate();
                    let tear = torn && chance.below(3) == 0;
                    for (number, sector) in sectors {
                        if tear && chance.below(2) == 0 {
                            continue;
                        }
                        let start = offset + number * SECTOR;
                        let end = start + sector.len();
                        if image.len() < end {
                            image.resize(end, 0);
                        }
                        image[start..end].copy_from_slice(sector);
                    }
                }
            }
        }
        image
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.dead { Err(io::Error::from_raw_os_error(5)) } else { Ok(state) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.alive()?.cache.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.alive()?;
        let start = usize::try_from(offset).unwrap();
        let found = state.cache.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.alive()?;
        let length = usize::try_from(length).unwrap();
        state.cache.resize(length, 0);
        state.since_sync.push(Write::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.alive()?;
        state.syncs += 1;
        match state.fault {
            Fault::CutAtSync(at) if state.syncs == at => {
                state.dead = true;
                return Err(io::Error::from_raw_os_error(5));
            }
            Fault::FailSync(at) if state.syncs == at => {
                state.since_sync.clear();
                return Err(io::Error::from_raw_os_error(5));
            }
            Fault::LieFromSync(at) if state.syncs >= at => return Ok(()),
            _ => {}
        }
        let state = &mut *state;
        for write in state.since_sync.drain(..) {
            match write {
                Write::Length(length) => state.platter.resize(length, 0),
                Write::Bytes { offset, data } => {
                    let end = offset + data.len();
                    if state.platter.len() < end {
                        state.platter.resize(end, 0);
                    }
                    state.platter[offset..end].copy_from_slice(&data);
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.alive()?;
        let offset = usize::try_from(offset).unwrap();
        let end = offset + data.len();
        let touched = offset / BLOCK..end.div_ceil(BLOCK);
        let more = touched.clone().filter(|block| !state.blocks.contains(block)).count();
        if let Fault::FullAfter(room) = state.fault
            && state.blocks.len() + more > room
        {
            return Err(io::Error::from_raw_os_error(28));
        }
        state.blocks.extend(touched);
        if state.cache.len() < end {
            state.cache.resize(end, 0);
        }
        state.cache[offset..end].copy_from_slice(data);
        state.since_sync.push(Write::Bytes { offset, data: data.to_vec() });
        Ok(())
    }
}

/// Small, seeded, and the same everywhere.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
