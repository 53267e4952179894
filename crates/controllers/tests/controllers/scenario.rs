//! What every controller promises, whatever it does.

use std::time::Duration;

use sheaf_testbed::{
    Cluster,
    cut::{Cut, cut_at},
    in_virtual_time,
    kubectl::Kubectl,
};

/// Longer than any controller waits before it looks again by the clock.
pub const PAST_EVERY_CLOCK: Duration = Duration::from_secs(25 * 60);
/// More writes than any scenario takes.
const MOST_WRITES: usize = 100;

/// What is there, what happens, and how it must end.
pub struct Scenario<P, H, E> {
    /// With controllers running, until they rest.
    pub prepared: P,
    /// With none running.
    pub happens: H,
    pub ends: E,
}

impl<P, H, E> Scenario<P, H, E>
where
    P: AsyncFn(&Kubectl),
    H: AsyncFn(&Kubectl),
    E: AsyncFn(&Kubectl),
{
    /// The end is reached and kept, also by controllers started anew.
    pub fn arrives_and_rests(&self) {
        in_virtual_time(async {
            let cluster = self.begin().await;
            let controllers = cluster.start_controllers();
            let there = cluster.settle().await;
            (self.ends)(&Kubectl(cluster.client())).await;
            tokio::time::sleep(PAST_EVERY_CLOCK).await;
            assert_eq!(cluster.revision().await, there, "something was written at rest");
            controllers.stop().await;
            let controllers = cluster.start_controllers();
            tokio::time::sleep(PAST_EVERY_CLOCK).await;
            assert_eq!(cluster.revision().await, there, "something was written after a restart at rest");
            controllers.stop().await;
        });
    }

    /// The end is reached whichever write the controllers are killed at, before it or after.
    pub fn arrives_however_interrupted(&self) {
        for cut in [Cut::BeforeWrite, Cut::AfterWrite] {
            let mut nth = 0;
            while self.is_interrupted_at(nth, cut) {
                nth += 1;
                assert!(nth < MOST_WRITES, "there is no end to the writes");
            }
            assert!(nth > 0, "nothing was written, so nothing was tried");
        }
    }

    /// The same at every few writes, before one and after the next, for stories that are long to tell. Each of them
    /// is told whole in a test of its own that is long too.
    pub fn arrives_interrupted_here_and_there(&self) {
        const APART: usize = 7;
        let mut cuts = [Cut::BeforeWrite, Cut::AfterWrite].into_iter().cycle();
        let mut nth = 1;
        while let Some(cut) = cuts.next()
            && self.is_interrupted_at(nth, cut)
        {
            nth += APART;
            assert!(nth < MOST_WRITES, "there is no end to the writes");
        }
        assert!(nth > 1, "nothing was written, so nothing was tried");
    }

    /// Whether there was such a write to be interrupted at.
    fn is_interrupted_at(&self, nth: usize, cut: Cut) -> bool {
        in_virtual_time(async {
            let cluster = self.begin().await;
            let (client, line) =
                cut_at(cluster.client_of("system:sheaf:controllers", &["system:masters"]), nth, cut);
            let controllers = cluster.start_controllers_with(client);
            let was_cut = tokio::select! {
                biased;
                () = line.is_cut() => true,
                _ = cluster.settle() => false,
            };
            controllers.stop().await;
            let controllers = cluster.start_controllers();
            cluster.settle().await;
            (self.ends)(&Kubectl(cluster.client())).await;
            controllers.stop().await;
            was_cut
        })
    }

    async fn begin(&self) -> Cluster {
        let cluster = Cluster::start(7).await;
        let kubectl = Kubectl(cluster.client());
        let controllers = cluster.start_controllers();
        cluster.settle().await;
        (self.prepared)(&kubectl).await;
        cluster.settle().await;
        controllers.stop().await;
        (self.happens)(&kubectl).await;
        cluster
    }
}

/// Runs a story on a cluster whose controllers are up.
pub fn on_a_cluster(story: impl AsyncFn(&Cluster, &Kubectl)) {
    in_virtual_time(async {
        let cluster = Cluster::start(11).await;
        let controllers = cluster.start_controllers();
        cluster.settle().await;
        story(&cluster, &Kubectl(cluster.client())).await;
        controllers.stop().await;
    });
}
