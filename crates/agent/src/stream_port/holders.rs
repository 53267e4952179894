//! Who holds a machine's console or screen: one at a time, and who comes later takes it over.
//!
//! A serial line has two ends. A newcomer tells the holder to let go and waits until it has; of several newcomers
//! the last one gets it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use sheaf_hypervisor::MachineId;
use tokio::{
    sync::{Mutex as Cable, OwnedMutexGuard},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// A holder lets go within an instant; only one that is stuck takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    Console,
    Screen,
}

type Place = (MachineId, Device);

#[derive(Default)]
pub struct Holders(Arc<Places>);

#[derive(Default)]
struct Places(Mutex<BTreeMap<Place, Held>>);

struct Held {
    /// Tells holders apart: only the present one takes its entry away.
    number: u64,
    let_go: CancellationToken,
    cable: Arc<Cable<()>>,
}

/// Why somebody did not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotYours {
    /// Somebody has it, and is to keep it.
    Taken,
    /// Somebody else came even later.
    Overtaken,
    Stuck,
}

/// Held until dropped.
#[derive(Debug)]
pub struct Hold {
    place: Place,
    number: u64,
    places: Weak<Places>,
    let_go: CancellationToken,
    cable: Option<OwnedMutexGuard<()>>,
}

impl Holders {
    /// Takes a device over from whoever holds it; with `preserve` only if nobody does.
    pub async fn take(&self, machine: &MachineId, device: Device, preserve: bool) -> Result<Hold, NotYours> {
        let place = (machine.clone(), device);
        let (mut hold, cable) = {
            let mut places = self.0.0.lock();
            let before = places.get(&place);
            if preserve && before.is_some() {
                return Err(NotYours::Taken);
            }
            let (number, cable) = match before {
                Some(before) => {
                    before.let_go.cancel();
                    (before.number + 1, before.cable.clone())
                }
                None => (0, Arc::default()),
            };
            let let_go = CancellationToken::new();
            places.insert(place.clone(), Held { number, let_go: let_go.clone(), cable: cable.clone() });
            let places = Arc::downgrade(&self.0);
            (Hold { place, number, places, let_go, cable: None }, cable)
        };
        tokio::select! {
            biased;
            () = hold.let_go.cancelled() => Err(NotYours::Overtaken),
            guard = timeout(PATIENCE, cable.lock_owned()) => match guard {
                Ok(guard) => {
                    hold.cable = Some(guard);
                    Ok(hold)
                }
                Err(_) => Err(NotYours::Stuck),
            },
        }
    }
}

impl Hold {
    /// Resolves when somebody else wants it.
    pub fn wanted_by_another(&self) -> impl Future<Output = ()> + Send + use<> {
        self.let_go.clone().cancelled_owned()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(places) = self.places.upgrade() else { return };
        let mut places = places.0.lock();
        if places.get(&self.place).is_some_and(|held| held.number == self.number) {
            places.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> MachineId {
        "m1".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_takes_over_once_the_holder_has_let_go() {
        let holders = Holders::default();
        let first = holders.take(&machine(), Device::Console, false).await.unwrap();
        let newcomer = async { holders.take(&machine(), Device::Console, false).await };
        let holder = async {
            first.wanted_by_another().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(newcomer, holder);
        assert!(second.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_newcomers_the_last_one_gets_it() {
        let holders = Holders::default();
        let first = holders.take(&machine(), Device::Console, false).await.unwrap();
        let second = async { holders.take(&machine(), Device::Console, false).await.map(drop) };
        let third = async {
            tokio::task::yield_now().await;
            holders.take(&machine(), Device::Console, false).await
        };
        let holder = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        };
        let (second, third, ()) = tokio::join!(second, third, holder);
        assert_eq!(second, Err(NotYours::Overtaken));
        assert!(third.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_to_be_preserved_is_not_taken_and_a_free_device_is() {
        let holders = Holders::default();
        let first = holders.take(&machine(), Device::Screen, true).await.unwrap();
        assert_eq!(holders.take(&machine(), Device::Screen, true).await.map(drop), Err(NotYours::Taken));
        assert!(holders.take(&machine(), Device::Console, true).await.is_ok());
        drop(first);
        assert!(holders.take(&machine(), Device::Screen, true).await.is_ok());
        assert!(holders.0.0.lock().is_empty(), "nobody holds anything any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_does_not_let_go_is_not_waited_for_without_end() {
        let holders = Holders::default();
        let _first = holders.take(&machine(), Device::Console, false).await.unwrap();
        let second = holders.take(&machine(), Device::Console, false).await;
        assert_eq!(second.map(drop), Err(NotYours::Stuck));
    }
}
