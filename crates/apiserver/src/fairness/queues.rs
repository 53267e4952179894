//! Seats, and one queue of those who wait for them per identity.
//!
//! ```text
//!            is a seat free, and does nobody wait?
//!   request ----------------------------------------> seated --> answered
//!      | no                                             ^
//!      v                                                | whoever holds the fewest seats; among equals, in turn
//!    waits, behind its own identity's requests only ----+
//!      |
//!      v its queue is full, or it has waited for too long
//!    refused
//! ```
//!
//! - Nobody who is alone is held up while a seat is free: all of them are theirs.
//! - A request that needs several seats sits down as soon as one is free, and then takes those of who comes later, too. If it
//!   waited for all of them, seats would be empty meanwhile, or others would overtake it for ever.
//! - A request whose sender leaves, or whose handling panics, leaves its queue and its seats by being dropped.
//! - A request that waits for another one, and not for work, stands up meanwhile ([`Seat::without`]).
//!
//! Deliberately absent: taking a seat away from who has it. Nothing survives a restart, nor should it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

/// How long a request may wait for its seats: a quarter of the time it has altogether, as in the original.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How many requests of one identity may wait.
const MOST_OF_ONE: usize = 256;
/// How many may wait altogether, but for one of each identity.
const MOST: usize = 4096;

/// Why a request was not seated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseated {
    /// So many wait already that waiting has no prospect.
    Full,
    /// It waited for [`PATIENCE`].
    Late,
}

/// Seats that several identities share.
#[derive(Debug)]
pub struct Queues {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seats: usize,
    is_of_any_length: bool,
    /// Those who hold seats or wait for some, by name.
    flows: BTreeMap<String, Flow>,
    /// Counts who was seated, so that turns can be told.
    turn: u64,
    ticket: u64,
    tally: Tally,
}

/// What can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that have their seats.
    pub seated: usize,
    /// Seats that are taken.
    pub taken: usize,
    pub waiting: usize,
    /// Requests that were seated, ever.
    pub dispatched: u64,
    pub full: u64,
    pub late: u64,
    /// Requests whose sender left while they waited.
    pub left: u64,
}

/// What one identity has.
#[derive(Debug, Default)]
struct Flow {
    held: usize,
    /// When it was last seated, in turns.
    last: u64,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    width: usize,
    call: oneshot::Sender<()>,
}

/// Seats of one request, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    queues: Arc<Queues>,
    who: Arc<str>,
    width: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.queues.give_back(&self.who, self.width);
    }
}

impl Seat {
    /// Waits for something without the seats. Who comes back sits down at once, also where none is free: what was waited
    /// for must not wait for seats in turn.
    pub async fn without<T>(&self, waiting: impl Future<Output = T>) -> T {
        let _standing = Standing::up(self);
        waiting.await
    }
}

/// Somebody who has stood up, until it is dropped.
struct Standing<'a>(&'a Seat);

impl<'a> Standing<'a> {
    fn up(seat: &'a Seat) -> Self {
        seat.queues.give_back(&seat.who, seat.width);
        Standing(seat)
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let seat = self.0;
        seat.queues.state.lock().occupy(&seat.who, seat.width);
    }
}

impl Queues {
    pub fn new(seats: usize) -> Arc<Self> {
        Arc::new(Queues { state: Mutex::new(State { seats, ..State::default() }) })
    }

    /// For requests that are inside already, and bounded where they came in.
    pub fn of_any_length(seats: usize) -> Arc<Self> {
        let state = State { seats, is_of_any_length: true, ..State::default() };
        Arc::new(Queues { state: Mutex::new(state) })
    }

    pub fn seats(&self) -> usize {
        self.state.lock().seats
    }

    pub fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// So many seats, if they are free and nobody waits.
    pub fn try_take(self: &Arc<Self>, who: &str, width: usize) -> Option<Seat> {
        let mut state = self.state.lock();
        let width = state.possible(width);
        if state.tally.waiting > 0 || state.free() == 0 {
            return None;
        }
        state.seat(who, width);
        Some(Seat { queues: self.clone(), who: who.into(), width })
    }

    /// Waits for `width` seats, in the queue of `who`.
    pub async fn take(self: &Arc<Self>, who: &str, width: usize) -> Result<Seat, Unseated> {
        if let Some(seat) = self.try_take(who, width) {
            return Ok(seat);
        }
        let (ticket, width, called) = {
            let mut state = self.state.lock();
            let width = state.possible(width);
            if state.is_full_for(who) {
                state.tally.full += 1;
                return Err(Unseated::Full);
            }
            let (ticket, called) = state.enqueue(who, width);
            // A seat may have become free since it was looked.
            state.call_next();
            (ticket, width, called)
        };
        let mut place = Place { queues: self, who, ticket, width, is_settled: false };
        let called = timeout(PATIENCE, called).await.is_ok();
        place.is_settled = true;
        if !called && self.state.lock().leave(who, ticket, |tally| tally.late += 1) {
            return Err(Unseated::Late);
        }
        Ok(Seat { queues: self.clone(), who: who.into(), width })
    }

    fn give_back(&self, who: &str, width: usize) {
        let mut state = self.state.lock();
        state.tally.taken -= width;
        state.tally.seated -= 1;
        if let Some(flow) = state.flows.get_mut(who) {
            flow.held -= width;
            if flow.held == 0 && flow.queue.is_empty() {
                state.flows.remove(who);
            }
        }
        state.call_next();
    }
}

impl State {
    /// None where more are taken than there are.
    fn free(&self) -> usize {
        self.seats.saturating_sub(self.tally.taken)
    }

    /// More than there are would be waited for in vain.
    fn possible(&self, width: usize) -> usize {
        width.clamp(1, self.seats)
    }

    fn is_full_for(&self, who: &str) -> bool {
        let waiting = self.flows.get(who).map_or(0, |flow| flow.queue.len());
        // The fuller it is, the fewer may be of one; the first of a newcomer finds a place all the same.
        let most = MOST_OF_ONE.min(MOST.saturating_sub(self.tally.waiting)).max(1);
        !self.is_of_any_length && (waiting >= most || self.tally.waiting >= 2 * MOST)
    }

    fn seat(&mut self, who: &str, width: usize) {
        self.tally.dispatched += 1;
        self.occupy(who, width);
    }

    fn occupy(&mut self, who: &str, width: usize) {
        self.turn += 1;
        self.tally.taken += width;
        self.tally.seated += 1;
        let flow = match self.flows.get_mut(who) {
            Some(flow) => flow,
            None => self.flows.entry(who.to_owned()).or_default(),
        };
        flow.held += width;
        flow.last = self.turn;
    }

    fn enqueue(&mut self, who: &str, width: usize) -> (u64, oneshot::Receiver<()>) {
        let (call, called) = oneshot::channel();
        self.ticket += 1;
        self.tally.waiting += 1;
        let flow = self.flows.entry(who.to_owned()).or_default();
        flow.queue.push_back(Waiter { ticket: self.ticket, width, call });
        (self.ticket, called)
    }

    /// Seats whoever is next, for as long as there is room.
    fn call_next(&mut self) {
        while self.tally.waiting > 0 && self.free() > 0 {
            let waiting = self.flows.iter().filter(|(_, flow)| !flow.queue.is_empty());
            let Some((who, _)) = waiting.min_by_key(|(_, flow)| (flow.held, flow.last)) else { return };
            let who = who.clone();
            let first = self.flows.get_mut(&who).and_then(|flow| flow.queue.pop_front());
            let Some(first) = first else { return };
            self.tally.waiting -= 1;
            self.seat(&who, first.width);
            // One who has just left gives the seats back when it is dropped.
            let _ = first.call.send(());
        }
    }

    /// Takes a request out of its queue; false when it has been seated already.
    fn leave(&mut self, who: &str, ticket: u64, count: impl FnOnce(&mut Tally)) -> bool {
        let Some(flow) = self.flows.get_mut(who) else { return false };
        let Some(at) = flow.queue.iter().position(|waiter| waiter.ticket == ticket) else { return false };
        flow.queue.remove(at);
        if flow.held == 0 && flow.queue.is_empty() {
            self.flows.remove(who);
        }
        self.tally.waiting -= 1;
        count(&mut self.tally);
        // It may have been what the others waited behind.
        self.call_next();
        true
    }
}

/// A place in a queue, given up when its request is dropped while it waits.
struct Place<'a> {
    queues: &'a Queues,
    who: &'a str,
    ticket: u64,
    width: usize,
    is_settled: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let left = self.queues.state.lock().leave(self.who, self.ticket, |tally| tally.left += 1);
        if !left {
            self.queues.give_back(self.who, self.width);
        }
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
