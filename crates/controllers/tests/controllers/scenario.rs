//! What every controller promises, whatever it does.

use std::time::Duration;

use sheaf_testbed::{
    Cluster,
    cut::{Cut, Line, cut_at},
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

    /// The end is reached when the controllers are killed at the first write of each kind, such as the first status of an
    /// instance: before one, after the next. With `SHEAF_EVERY_STEP` set, as in a soak: before and after every single write.
    pub fn arrives_however_interrupted(&self) {
        const CUTS: [Cut; 2] = [Cut::BeforeWrite, Cut::AfterWrite];
        if std::env::var_os("SHEAF_EVERY_STEP").is_some() {
            return CUTS.into_iter().for_each(|cut| self.arrives_whichever_write_is_interrupted(cut));
        }
        let (was_cut, line) = self.is_interrupted_at(usize::MAX, Cut::BeforeWrite);
        assert!(!was_cut && line.writes() > 0, "nothing was written, so nothing was tried");
        for (nth, cut) in line.first_of_each_kind().into_iter().zip(CUTS.into_iter().cycle()) {
            assert!(
                self.is_interrupted_at(nth, cut).0,
                "write {nth} did not come again, although the seed is the same"
            );
        }
    }

    fn arrives_whichever_write_is_interrupted(&self, cut: Cut) {
        let mut nth = 0;
        while self.is_interrupted_at(nth, cut).0 {
            nth += 1;
            assert!(nth < MOST_WRITES, "there is no end to the writes");
        }
        assert!(nth > 0, "nothing was written, so nothing was tried");
    }

    /// Whether there was such a write to be interrupted at, and the line that it went over.
    fn is_interrupted_at(&self, nth: usize, cut: Cut) -> (bool, Line) {
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
            (was_cut, line)
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
