//! Follows every resource whose objects can be deleted, as resources come and go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use sheaf_client::{
    served::{ResourceName, Served, ServedResource},
    watching::{self, NOTICES, Notice, Watched},
};

/// Events are about objects and belong to none; there are many of them and they go by age.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];
/// A resource that is no longer served is followed this much longer, to hear of the last of its objects.
const LINGER: Duration = Duration::from_secs(5);
/// A resource that cannot be listed for this long is not waited for any more.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Monitors {
    client: Client,
    tell: mpsc::Sender<Notice>,
    tasks: JoinSet<()>,
    monitors: BTreeMap<usize, Monitor>,
    next_number: usize,
}

/// One resource being followed.
pub struct Monitor {
    pub resource: Arc<ResourceName>,
    served: ServedResource,
    /// Counts the lists.
    pub round: u32,
    began: Instant,
    synced: bool,
    leaving: Option<Instant>,
    task: AbortHandle,
}

impl Monitor {
    pub fn kind(&self) -> &str {
        &self.served.resource.kind
    }
}

impl Monitors {
    pub fn new(client: Client) -> (Self, mpsc::Receiver<Notice>) {
        let (tell, notices) = mpsc::channel(NOTICES);
        let monitors =
            Monitors { client, tell, tasks: JoinSet::new(), monitors: BTreeMap::new(), next_number: 0 };
        (monitors, notices)
    }

    /// The monitor a notice came from, unless it has been given up since.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Monitor> {
        self.monitors.get_mut(&number)
    }

    /// Follows what is served now; answers the resources given up, and when to come again.
    pub fn update(&mut self, served: &Served) -> (Vec<Arc<ResourceName>>, Option<Instant>) {
        while self.tasks.try_join_next().is_some() {}
        let mut given_up = Vec::new();
        let now = Instant::now();
        self.monitors.retain(|_, monitor| {
            let stays = match served.resources.get(&*monitor.resource) {
                Some(resource) if *resource == monitor.served => {
                    monitor.leaving = None;
                    true
                }
                // Another version of it is the one to use: a new monitor takes over at once.
                Some(_) => false,
                None => {
                    let until = *monitor.leaving.get_or_insert(now + LINGER);
                    if until <= now {
                        given_up.push(monitor.resource.clone());
                    }
                    now < until
                }
            };
            if !stays {
                monitor.task.abort();
            }
            stays
        });
        for (name, served) in &served.resources {
            let deletable = ["delete", "list", "watch"].iter().all(|verb| served.can(verb));
            let ignored = IGNORED.contains(&(name.0.as_str(), name.1.as_str()));
            let followed = self.monitors.values().any(|monitor| *monitor.resource == *name);
            if deletable && !ignored && !followed {
                self.start(name, served);
            }
        }
        (given_up, self.monitors.values().filter_map(|monitor| monitor.leaving).min())
    }

    fn start(&mut self, name: &ResourceName, served: &ServedResource) {
        let watched = Watched::all(served.resource.clone());
        let following = watching::follow(self.client.clone(), watched, self.next_number, self.tell.clone());
        let monitor = Monitor {
            resource: Arc::new(name.clone()),
            served: served.clone(),
            round: 0,
            began: Instant::now(),
            synced: false,
            leaving: None,
            task: self.tasks.spawn(following),
        };
        self.monitors.insert(self.next_number, monitor);
        self.next_number += 1;
    }

    /// Whether everything that can be listed has been: before that, dependents may be unknown.
    pub fn synced(&self) -> bool {
        self.monitors.values().all(|monitor| monitor.synced)
    }
}

impl Monitor {
    pub fn listed(&mut self) {
        self.synced = true;
    }

    pub fn failed(&mut self) {
        if !self.synced && self.began.elapsed() > PATIENCE {
            tracing::warn!(resource = ?self.resource, "cannot be listed; its objects are not waited for");
            self.synced = true;
        }
    }
}
