//! How many clients may be subscribed at a time: a right to nothing is enough to be one, so nobody has more than their share,
//! and none of it is taken from consoles and screens.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::status::ApiError;

/// Connections at a time, and those of one identity.
const MOST: usize = 2048;
const MOST_OF_ONE: usize = 64;

/// Who is subscribed, and how often.
#[derive(Clone, Default)]
pub struct Room(Arc<Mutex<BTreeMap<String, usize>>>);

/// A connection's place, until it is dropped.
pub struct Place {
    room: Room,
    name: String,
}

impl Room {
    pub fn enter(&self, name: &str) -> Result<Place, ApiError> {
        let mut open = self.0.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(name).copied().unwrap_or(0));
        if all >= MOST || own >= MOST_OF_ONE {
            let why = format!(
                "{own} subscriptions of {name} are open, and {all} in all: close some, or try again later"
            );
            return Err(ApiError::too_many_requests(why, Duration::from_secs(5)));
        }
        open.insert(name.to_owned(), own + 1);
        Ok(Place { room: self.clone(), name: name.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.room.0.lock();
        match open.get_mut(&self.name) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(open.remove(&self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_places_of_others() {
        let room = Room::default();
        let mut places: Vec<Place> = (0..MOST_OF_ONE).map(|_| room.enter("jo").ok().unwrap()).collect();
        assert_eq!(room.enter("jo").err().unwrap().code().as_u16(), 429);
        let other = room.enter("anna").ok().unwrap();
        places.pop();
        assert!(room.enter("jo").is_ok());
        drop((places, other));
        assert!(room.0.lock().is_empty(), "nothing is remembered of those who left");
    }
}
