//! Connects to backend servers time after time, and says how it went.
//!
//! One task for each server of each balancer, for as long as both are wanted and the check is the same. What it makes of
//! the outcomes is decided in [`sheaf_planner::load_balancer::health`].

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use sheaf_planner::load_balancer::health::Health;
use sheaf_resources::kinds::load_balancer::HealthCheck;
use tokio::{
    net::TcpStream,
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{MissedTickBehavior, interval, timeout},
};

use super::Place;

/// How one connecting went.
#[derive(Clone, Debug)]
pub(super) struct Told {
    place: Place,
    address: Ipv4Addr,
    went_well: bool,
}

struct Probe {
    check: HealthCheck,
    health: Health,
    task: AbortHandle,
}

pub(super) struct Probes {
    outcomes: mpsc::Sender<Told>,
    probes: BTreeMap<(Place, Ipv4Addr), Probe>,
    /// They end with this.
    tasks: JoinSet<()>,
}

impl Probes {
    pub fn new(outcomes: mpsc::Sender<Told>) -> Probes {
        Probes { outcomes, probes: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Probes these servers of a balancer and no others of it. `known` is what is known of one that was not probed yet.
    pub fn keep(
        &mut self,
        place: &Place,
        check: Option<&HealthCheck>,
        servers: &[Ipv4Addr],
        known: impl Fn(Ipv4Addr) -> Health,
    ) {
        let mut was = BTreeMap::new();
        self.probes.retain(|(of, address), probe| {
            let keep = of != place || (servers.contains(address) && check == Some(&probe.check));
            if !keep {
                probe.task.abort();
                was.insert(*address, probe.health);
            }
            keep
        });
        let Some(check) = check else { return };
        for address in servers {
            let key = (place.clone(), *address);
            if !self.probes.contains_key(&key) {
                // Another check begins with what the one before found.
                let health = match was.get(address) {
                    None | Some(Health::Unknown) => known(*address),
                    Some(health) => Health::known(health.is_well()),
                };
                let told = Told { place: place.clone(), address: *address, went_well: false };
                let task = self.tasks.spawn(probe(told, check.clone(), self.outcomes.clone()));
                self.probes.insert(key, Probe { check: check.clone(), health, task });
            }
        }
    }

    /// Ends the probes of other balancers.
    pub fn retain(&mut self, is_wanted: impl Fn(&Place) -> bool) {
        self.probes.retain(|(place, _), probe| {
            let keep = is_wanted(place);
            if !keep {
                probe.task.abort();
            }
            keep
        });
        // Those that ended are let go of.
        while self.tasks.try_join_next().is_some() {}
    }

    /// A server that is not probed counts as well.
    pub fn is_well(&self, place: &Place, address: Ipv4Addr) -> bool {
        self.probes.get(&(place.clone(), address)).is_none_or(|probe| probe.health.is_well())
    }

    /// Takes note of an outcome; if that makes a difference, whose server is well now or is not.
    pub fn learn(&mut self, told: &Told) -> Option<(Place, Ipv4Addr, bool)> {
        let probe = self.probes.get_mut(&(told.place.clone(), told.address))?;
        let before = probe.health;
        probe.health = before.after(told.went_well, &probe.check);
        let is_well = probe.health.is_well();
        (before.is_well() != is_well).then(|| (told.place.clone(), told.address, is_well))
    }
}

async fn probe(told: Told, check: HealthCheck, outcomes: mpsc::Sender<Told>) {
    let Ok(port) = u16::try_from(check.port) else { return };
    let server = SocketAddr::from((told.address, port));
    let mut due = interval(Duration::from_secs(u64::from(check.period_seconds.max(1))));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let patience = Duration::from_secs(u64::from(check.timeout_seconds.max(1)));
        let went_well = matches!(timeout(patience, TcpStream::connect(server)).await, Ok(Ok(_)));
        if outcomes.send(Told { went_well, ..told.clone() }).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_stops_listening_is_noticed_and_so_is_its_return() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = HealthCheck {
            port: port.into(),
            success_threshold: 1,
            failure_threshold: 1,
            period_seconds: 1,
            timeout_seconds: 1,
        };
        let (outcomes, mut told) = mpsc::channel(8);
        let mut probes = Probes::new(outcomes);
        let (place, server) = (("d".to_owned(), "lb".to_owned()), Ipv4Addr::LOCALHOST);
        let unknown = |_| Health::Unknown;
        probes.keep(&place, Some(&check), &[server], unknown);
        assert!(probes.is_well(&place, server), "before anybody looked");
        assert_eq!(probes.learn(&told.recv().await.unwrap()), None, "it is as it was taken for");
        drop(listener);
        let down = loop {
            if let Some(change) = probes.learn(&told.recv().await.unwrap()) {
                break change;
            }
        };
        assert_eq!(down, (place.clone(), server, false));
        assert!(!probes.is_well(&place, server));
        let _listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let up = loop {
            if let Some(change) = probes.learn(&told.recv().await.unwrap()) {
                break change;
            }
        };
        assert_eq!(up, (place.clone(), server, true));
        probes.keep(&place, None, &[server], unknown);
        assert!(probes.is_well(&place, server), "without a check everybody is");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_of_a_server_is_where_its_probe_begins_and_where_the_next_one_goes_on() {
        let check = |failure_threshold| HealthCheck {
            port: 1,
            success_threshold: 2,
            failure_threshold,
            period_seconds: 1,
            timeout_seconds: 1,
        };
        let mut probes = Probes::new(mpsc::channel(8).0);
        let place = ("d".to_owned(), "lb".to_owned());
        let [up, down] = [7, 8].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let fails = |address| Told { place: place.clone(), address, went_well: false };
        probes.keep(&place, Some(&check(3)), &[up, down], |server| Health::known(server == up));
        assert!(probes.is_well(&place, up) && !probes.is_well(&place, down));
        assert_eq!((probes.learn(&fails(up)), probes.learn(&fails(up))), (None, None));
        // The check is changed: neither does it begin anew with nothing known, nor go on counting by other rules.
        probes.keep(&place, Some(&check(2)), &[up, down], |_| Health::Unknown);
        assert!(probes.is_well(&place, up) && !probes.is_well(&place, down));
        assert_eq!(probes.learn(&fails(up)), None);
        assert_eq!(probes.learn(&fails(up)), Some((place.clone(), up, false)));
    }
}
