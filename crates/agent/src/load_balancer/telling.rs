//! Tells when a backend server goes down and when it is back, in events beside its load balancer.
//!
//! A server that comes and goes all day is one event for each, which counts: the first time is told at once, and how often
//! it was since then at most every [`BETWEEN`]. What was not told yet when the process ends is not told.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sheaf_client::{api, objects::Objects};
use sheaf_resources::kinds::load_balancer::LoadBalancer;
use tokio::time::Instant;

use super::Place;
use crate::virtual_machine_instance::Hands;

const COMPONENT: &str = "harvester-lb-controller";
/// From one writing of an event to the next.
const BETWEEN: Duration = Duration::from_secs(60);

/// Whose server it is, which, and whether it went down or came back.
type About = (Place, Ipv4Addr, bool);

/// What is told of one server.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// Of the event.
    name: String,
    times: u32,
    is_told: bool,
    at: Instant,
}

/// What there is to write.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    New { name: String },
    Again { name: String, times: u32 },
}

#[derive(Debug, Default)]
pub(super) struct Telling {
    said: BTreeMap<About, Said>,
}

impl Telling {
    /// It happened; the word for it, if it is to be told now.
    fn happened(&mut self, about: About, fresh_name: impl FnOnce() -> String, now: Instant) -> Option<Word> {
        match self.said.get_mut(&about) {
            None => {
                let name = fresh_name();
                self.said.insert(about, Said { name: name.clone(), times: 1, is_told: true, at: now });
                Some(Word::New { name })
            }
            Some(said) => {
                said.times = said.times.saturating_add(1);
                said.is_told = false;
                said.due(now)
            }
        }
    }

    /// Those that happened again and were not told, and may be by now.
    fn due(&mut self, now: Instant) -> Vec<(About, Word)> {
        let all = self.said.iter_mut();
        all.filter_map(|(about, said)| Some((about.clone(), said.due(now)?))).collect()
    }

    /// What was told of others is none of ours any more.
    pub fn retain(&mut self, places: &BTreeSet<&Place>) {
        self.said.retain(|(place, _, _), _| places.contains(place));
    }

    /// What cannot be told is logged: nothing waits for it.
    pub async fn tell(&mut self, hands: &Hands, balancer: &LoadBalancer, about: About) {
        let fresh = || {
            let name = balancer.metadata.name.as_deref().unwrap_or_default();
            format!("{name}.{}", hands.world.chance.name_suffix())
        };
        if let Some(word) = self.happened(about.clone(), fresh, Instant::now()) {
            self.write(hands, balancer, &about, &word).await;
        }
    }

    /// Tells what has waited long enough.
    pub async fn catch_up(&mut self, hands: &Hands, balancers: &BTreeMap<Place, LoadBalancer>) {
        for (about, word) in self.due(Instant::now()) {
            if let Some(balancer) = balancers.get(&about.0) {
                self.write(hands, balancer, &about, &word).await;
            }
        }
    }

    async fn write(&mut self, hands: &Hands, balancer: &LoadBalancer, about: &About, word: &Word) {
        let namespace = balancer.metadata.namespace.as_deref().unwrap_or_default();
        let events: Objects<Event> = Objects::namespaced(hands.client.clone(), namespace);
        let now = hands.world.clock.rfc3339();
        let told = match word {
            Word::New { name } => create(&events, &event(hands, balancer, about, name, &now)).await,
            Word::Again { name, times } => {
                let more = json!({"count": times, "lastTimestamp": now});
                match events.patch(name, &PatchParams::default(), &Patch::Merge(&more)).await {
                    // It grew old, and is told anew the next time.
                    Err(why) if api::is_not_found(&why) => {
                        self.said.remove(about);
                        Ok(())
                    }
                    written => written.map(drop).map_err(|why| why.to_string()),
                }
            }
        };
        if let Err(why) = told {
            tracing::warn!(namespace, name = balancer.metadata.name, why, "an event could not be told");
        }
    }
}

impl Said {
    fn due(&mut self, now: Instant) -> Option<Word> {
        if self.is_told || now.duration_since(self.at) < BETWEEN {
            return None;
        }
        (self.is_told, self.at) = (true, now);
        Some(Word::Again { name: self.name.clone(), times: self.times })
    }
}

async fn create(events: &Objects<Event>, event: &Value) -> Result<(), String> {
    let event = serde_json::from_value::<Event>(event.clone()).map_err(|why| why.to_string())?;
    events.create(&PostParams::default(), &event).await.map(drop).map_err(|why| why.to_string())
}

fn event(
    hands: &Hands,
    balancer: &LoadBalancer,
    (_, server, is_well): &About,
    event: &str,
    now: &str,
) -> Value {
    let (sort, reason, message) = match is_well {
        true => {
            ("Normal", "BackendServerUp", format!("backend server {server} answers and gets connections"))
        }
        false => (
            "Warning",
            "BackendServerDown",
            format!("backend server {server} does not answer and gets no connections"),
        ),
    };
    let metadata = &balancer.metadata;
    json!({
        "metadata": {"name": event, "namespace": metadata.namespace},
        "involvedObject": {
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "name": metadata.name,
            "namespace": metadata.namespace, "uid": metadata.uid, "resourceVersion": metadata.resource_version,
        },
        "type": sort, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": COMPONENT, "host": hands.node},
        "reportingComponent": COMPONENT, "reportingInstance": hands.node,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(server: u8, is_well: bool) -> About {
        (("d".to_owned(), "lb".to_owned()), Ipv4Addr::new(10, 52, 0, server), is_well)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_flaps_for_an_hour_is_two_events_written_once_a_minute() {
        let mut telling = Telling::default();
        let (mut new, mut again, mut last) = (0, 0, 0);
        for second in 0..3600 {
            let happened =
                telling.happened(about(7, second % 2 == 0), || format!("e{second}"), Instant::now());
            match happened {
                None => {}
                Some(Word::New { .. }) => new += 1,
                Some(Word::Again { times, .. }) => {
                    again += 1;
                    last = times;
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(new, 2, "one that goes down, one that comes back");
        assert!((100..=120).contains(&again), "{again}");
        assert!(last > 1700, "{last}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_happened_again_is_told_in_the_end_and_once() {
        let mut telling = Telling::default();
        let mut happens = || telling.happened(about(7, false), || "e".to_owned(), Instant::now());
        assert_eq!(happens(), Some(Word::New { name: "e".to_owned() }));
        assert_eq!((happens(), happens()), (None, None));
        assert_eq!(telling.due(Instant::now()), []);
        tokio::time::sleep(BETWEEN).await;
        let word = Word::Again { name: "e".to_owned(), times: 3 };
        assert_eq!(telling.due(Instant::now()), [(about(7, false), word)]);
        assert_eq!(telling.due(Instant::now()), []);
        // Another server is another matter; and what is nobody's any more is forgotten.
        let other = telling.happened(about(8, false), || "f".to_owned(), Instant::now());
        assert_eq!(other, Some(Word::New { name: "f".to_owned() }));
        telling.retain(&BTreeSet::new());
        assert!(telling.said.is_empty());
    }
}
