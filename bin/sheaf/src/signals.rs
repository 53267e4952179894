//! SIGTERM and Ctrl-C: the first asks, the second insists, and the clock does too.
//!
//! ```text
//!   running --signal--> stopping --all done--> ended (0)
//!                          |--- second signal -> ended at once (128 + signal)
//!                          +--- 4.5 s later ---> ended anyway (1)
//! ```
//!
//! A thread with a runtime of its own waits for the signals, so that a node whose own
//! runtime hangs still ends in time. Ending without cleaning up loses nothing that was
//! acknowledged: the store is durable at every commit.

use std::{io, process, thread, time::Duration};

use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// The promise is 5 s from the signal to the end of the process; ending takes some of it.
const PATIENCE: Duration = Duration::from_millis(4500);

/// From here on, the first signal cancels `stop` instead of killing the process.
pub fn watch(stop: CancellationToken) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? }
    };
    let wait = move || {
        runtime.block_on(async {
            let first = signals.next().await;
            info!(signal = first.name, "stopping");
            stop.cancel();
            tokio::select! {
                biased;
                second = signals.next() => {
                    warn!(signal = second.name, "stopping at once");
                    process::exit(128 + second.number);
                }
                () = tokio::time::sleep(PATIENCE) => {
                    error!("not everything stopped in time; ending anyway");
                    process::exit(1);
                }
            }
        })
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

struct Received {
    name: &'static str,
    number: i32,
}

impl Signals {
    async fn next(&mut self) -> Received {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {
                Received { name: "SIGTERM", number: SignalKind::terminate().as_raw_value() }
            }
            _ = self.interrupt.recv() => {
                Received { name: "SIGINT", number: SignalKind::interrupt().as_raw_value() }
            }
        }
    }
}
