//! Who is served when not everybody can be at once.
//!
//! A *seat* stands for a share of the processors and of the memory that answering takes. There are enough of them that
//! small requests never wait for one; a list of thousands of objects or a large body takes many, so that a few such
//! requests work at a time, and everybody else's wait for those few at most. Who waits, waits in the queue of their own
//! identity ([`queues`]).
//!
//! | level | whose | |
//! |---|---|---|
//! | `exempt` | health checks; the controllers and the agent in this process | never waits |
//! | `system` | nodes, and the cluster's own hands over the network | seats of their own |
//! | `leader-election` | leases, whoever renews them | seats of their own |
//! | `global-default` | everybody else; those who have not said who they are share one queue | |
//!
//! A seat is held while the server works on an answer, and never while it waits for a client: not while a body
//! arrives (that is [`crate::intake`]'s to bound), nor while an answer is written out (lists are streamed from memory
//! that is shared), nor for the length of a watch, a stream or an upload. What an agent is asked holds none either: it
//! is the agent that works. Logins have rooms of their own.

pub mod queues;
mod tallies;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use self::queues::{Queues, Seat, Unseated};
use crate::{
    ApiServer,
    identity::User,
    request::{Query, ResourceRequest, Verb},
    status::ApiError,
};

/// Seats of everybody, and of nodes, for each processor.
const SEATS_PER_CORE: usize = 64;
/// A request takes so many at most: two such requests for each processor keep it busy.
const WIDEST: usize = SEATS_PER_CORE / 2;
/// Seats of those who renew leases.
const ELECTION_SEATS: usize = 16;
/// As many listed objects are a seat's worth of work.
const OBJECTS: usize = 100;
/// As many bytes of a body are.
const BYTES: usize = 96 * 1024;
/// Seats for a look through the audit log.
const READING_BACK: usize = 8;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Among whom a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Exempt,
    System,
    LeaderElection,
    GlobalDefault,
}

impl Level {
    /// Of a request for objects. `in_process` is whether it comes from inside this process.
    pub fn of(user: &User, in_process: bool, request: &ResourceRequest) -> Self {
        let renews = matches!(request.verb, Verb::Get | Verb::Create | Verb::Update | Verb::Patch);
        match Level::of_user(user, in_process) {
            Level::GlobalDefault
                if renews && request.group == "coordination.k8s.io" && request.resource == "leases" =>
            {
                Level::LeaderElection
            }
            level => level,
        }
    }

    /// By who asks alone.
    fn of_user(user: &User, in_process: bool) -> Self {
        match user.is_of_the_cluster() || user.node_name().is_some() {
            true if in_process => Level::Exempt,
            true => Level::System,
            false => Level::GlobalDefault,
        }
    }
}

/// The seats of one API server.
#[derive(Debug)]
pub struct Fairness {
    system: Arc<Queues>,
    elections: Arc<Queues>,
    everybody: Arc<Queues>,
    exempted: AtomicU64,
}

impl Fairness {
    /// For a host with so many processors.
    pub fn new(cores: usize) -> Self {
        let seats = SEATS_PER_CORE * cores.clamp(2, 64);
        Fairness {
            // Hundreds of nodes may come back at once, each to list what is its own.
            system: Queues::new(seats),
            elections: Queues::new(ELECTION_SEATS),
            everybody: Queues::new(seats),
            exempted: AtomicU64::new(0),
        }
    }

    /// Waits for seats, until they are there or it has no prospect any more.
    pub async fn seat(&self, level: Level, user: &User, width: usize) -> Result<Option<Seat>, ApiError> {
        let queues = match level {
            Level::Exempt => {
                self.exempted.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
            Level::System => &self.system,
            Level::LeaderElection => &self.elections,
            Level::GlobalDefault => &self.everybody,
        };
        match queues.take(&user.name, width.min(WIDEST)).await {
            Ok(seat) => Ok(Some(seat)),
            Err(Unseated::Full | Unseated::Late) => Err(busy()),
        }
    }
}

/// What who finds no room is told, in the original's words.
pub(crate) fn busy() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", RETRY_AFTER)
}

/// How many seats a request takes: one, and more for what it reads or brings.
fn width(request: &ResourceRequest, query: &Query, objects: usize, body: usize) -> usize {
    let listed = match request.verb {
        Verb::List | Verb::DeleteCollection => objects,
        // One that goes on from where another ended shows nothing of what is there.
        Verb::Watch if query.get("resourceVersion").is_none_or(|version| version == "0") => objects,
        _ => 0,
    };
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    // With a selector all of them are looked at for a page of a few.
    let selects = query.get("labelSelector").is_some() || query.get("fieldSelector").is_some();
    let listed = if selects { listed } else { listed.min(limit.unwrap_or(usize::MAX)) };
    1 + listed / OBJECTS + body / BYTES
}

impl ApiServer {
    /// Seats for a request for objects whose body is `body` bytes long.
    pub(crate) async fn seat_for(
        &self,
        user: &User,
        in_process: bool,
        request: &ResourceRequest,
        query: &Query,
        body: usize,
    ) -> Result<Option<Seat>, ApiError> {
        let level = Level::of(user, in_process, request);
        if level == Level::Exempt {
            return self.fairness.seat(level, user, 1).await;
        }
        let objects = match request.verb {
            Verb::List | Verb::Watch | Verb::DeleteCollection => {
                let catalogue = self.registry.catalogue();
                let served = catalogue.find(&request.group, &request.version, &request.resource);
                served.map_or(0, |served| self.cache.snapshot(&served.resource).0.len())
            }
            _ => 0,
        };
        self.fairness.seat(level, user, width(request, query, objects, body)).await
    }

    /// Seats for a request for something else than objects.
    pub(crate) async fn seat_for_path(
        &self,
        user: &User,
        in_process: bool,
        path: &str,
    ) -> Result<Option<Seat>, ApiError> {
        let first = path.split('/').nth(1).unwrap_or_default();
        let level = Level::of_user(user, in_process);
        let (level, width) = match first {
            "healthz" | "livez" | "readyz" => (Level::Exempt, 1),
            // These documents describe everything that is served, and may have to be written first.
            "openapi" => (level, WIDEST),
            "audit" => (level, READING_BACK),
            _ => (level, 1),
        };
        self.fairness.seat(level, user, width).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{MASTERS, NODES};

    fn request(verb: Verb, group: &str, resource: &str) -> ResourceRequest {
        ResourceRequest {
            verb,
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
        }
    }

    fn user(name: &str, group: &str) -> User {
        User { name: name.into(), groups: vec![group.into()], ..User::default() }
    }

    #[test]
    fn the_clusters_own_hands_never_wait_among_people() {
        let get = request(Verb::Get, "", "nodes");
        let level = |user: &User, in_process| Level::of(user, in_process, &get);
        let (controller, node) = (user("system:sheaf:controllers", MASTERS), user("system:node:n1", NODES));
        assert_eq!(level(&controller, true), Level::Exempt);
        assert_eq!(level(&node, true), Level::Exempt);
        assert_eq!(level(&controller, false), Level::System);
        assert_eq!(level(&node, false), Level::System);
        // A name alone is nobody, and a person in this process is a person.
        assert_eq!(level(&user("system:node:n1", "x"), false), Level::GlobalDefault);
        assert_eq!(level(&user("system:sheaf:x", "x"), true), Level::GlobalDefault);
        assert_eq!(level(&user("admin", MASTERS), true), Level::GlobalDefault);
    }

    #[test]
    fn who_renews_a_lease_waits_only_for_others_who_do() {
        let lease = |verb| request(verb, "coordination.k8s.io", "leases");
        let somebody = user("system:serviceaccount:a:b", "x");
        for verb in [Verb::Get, Verb::Create, Verb::Update, Verb::Patch] {
            assert_eq!(Level::of(&somebody, false, &lease(verb)), Level::LeaderElection);
        }
        assert_eq!(Level::of(&somebody, false, &lease(Verb::List)), Level::GlobalDefault);
    }

    #[test]
    fn what_is_much_work_takes_many_seats() {
        let of = |verb, query: &str, objects, body| {
            width(&request(verb, "", "secrets"), &Query::parse(Some(query)), objects, body)
        };
        assert_eq!(of(Verb::Get, "", 10_000, 0), 1);
        assert_eq!(of(Verb::List, "", 10, 0), 1);
        assert_eq!(of(Verb::List, "", 10_000, 0), 101);
        assert_eq!(of(Verb::List, "limit=500", 10_000, 0), 6);
        assert_eq!(of(Verb::List, "limit=500&labelSelector=a", 10_000, 0), 101);
        assert_eq!(of(Verb::Watch, "", 10_000, 0), 101);
        assert_eq!(of(Verb::Watch, "resourceVersion=7", 10_000, 0), 1);
        assert_eq!(of(Verb::Create, "", 10_000, 2_000), 1);
        assert!(of(Verb::Create, "", 0, crate::body::MAX_BODY) >= WIDEST);
    }

    #[tokio::test]
    async fn who_is_refused_is_told_when_to_come_back() {
        let error = busy().to_value();
        assert_eq!((error["code"].as_u64(), error["reason"].as_str()), (Some(429), Some("TooManyRequests")));
        assert_eq!(error["details"]["retryAfterSeconds"], 1);
    }
}
