//! Runs one node from its settings to its end.

use std::{process::ExitCode, time::Duration};

use sheaf_cli::UpConfig;
use sheaf_world::World;
use tokio::{net::TcpListener, runtime::Builder};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{failure::Failure, limits, log, node::Node, panics, signals};

/// How long work that cannot be interrupted may go on after everything else has stopped.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Builds the node, lets `serve` have it until it returns, and cleans up behind it.
///
/// `serve` returns when `node.stop` is cancelled, or earlier with a failure.
pub fn run(
    config: UpConfig,
    serve: impl AsyncFnOnce(&Node, Vec<TcpListener>) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    log::start(config.log_format)?;
    panics::to_the_log();
    limits::raise_open_files();
    let stop = CancellationToken::new();
    signals::watch(stop.clone()).map_err(Failure::Runtime)?;
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;

    let (node, listeners) = {
        let _inside = runtime.enter();
        Node::build(config, World::real(), stop)?
    };
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            outcome = serve(&node, listeners) => outcome,
            never = node.keep_certificates_fresh() => match never {},
        }
    });
    runtime.shutdown_timeout(LAST_WORK);
    // Only now may another process have the data directory.
    drop(node);
    info!("stopped");
    outcome.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        io::{BufRead, BufReader},
        path::Path,
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use rustix::process::{Pid, Signal, kill_process};
    use sheaf_cli::{Args, Config, Host};

    use super::*;

    const TOLD_BY: &str = "SHEAF_TEST_HANG_IN";

    /// Not a test by itself: the process that the tests below start.
    #[test]
    fn hang_if_told_to() {
        let Some(data_dir) = env::var_os(TOLD_BY) else { return };
        let data_dir = data_dir.to_str().unwrap();
        let words = ["sheaf", "up", "--name", "n1", "--listen", "127.0.0.1:0", "--data-dir", data_dir];
        let args = <Args as clap::Parser>::try_parse_from(words).unwrap();
        let Config::Up(config) = Config::new(args, &Host::look()).unwrap() else { panic!("not up") };
        // Not only waiting: the thread that should see the signal is taken, too.
        _ = run(config, async |node, _| {
            node.announce_ready();
            loop {
                thread::park();
            }
        });
    }

    fn hanging(data_dir: &Path) -> Child {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["run::tests::hang_if_told_to", "--exact", "--nocapture"])
            .env(TOLD_BY, data_dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("sheaf is ready")));
        child
    }

    fn signal(child: &Child, signal: Signal) {
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    #[test]
    fn a_node_that_hangs_still_ends_within_five_seconds() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = hanging(dir.path());
        let asked = Instant::now();
        signal(&child, Signal::TERM);
        let status = child.wait().unwrap();
        let took = asked.elapsed();
        assert_eq!(status.code(), Some(1));
        assert!(Duration::from_secs(4) < took && took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn a_second_signal_ends_it_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = hanging(dir.path());
        let asked = Instant::now();
        signal(&child, Signal::TERM);
        // Two signals of one kind that arrive together are one.
        thread::sleep(Duration::from_millis(300));
        signal(&child, Signal::INT);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(asked.elapsed() < Duration::from_secs(4));
    }
}
