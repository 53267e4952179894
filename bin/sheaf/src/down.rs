//! `sheaf down`: stops the node of a data directory and, when asked to, its virtual machines.
//!
//! Machines are stopped on the host, behind the back of the API: their objects stay as they are, so what should run
//! runs again with the next `sheaf up`, as after a power cut of the whole host, only that the guests were asked before.
//! The data directory is held meanwhile, so that no node starts in between. Cut short, it is simply done again.

use std::{
    fs,
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use sheaf_cli::{DownConfig, install};
use sheaf_hypervisor::{
    Hypervisor, HypervisorError, MachineId, State,
    hypervisor::is_over,
    qmp::{Monitor, RunState},
};
use sheaf_network::user_mode;
use tokio::{
    runtime::Builder,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    data_dir::{self, DataDir, Layout},
    failure::Failure,
    look, machines,
};

/// A node ends within five seconds of being asked; a busy host may take longer to notice.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A guest that was still booting did not hear the button.
const PRESS_AGAIN: Duration = Duration::from_secs(10);
/// How long QEMU may take to close its disks.
const QUIT_PATIENCE: Duration = Duration::from_secs(5);

/// How machines came to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    shut_down: usize,
    cut: usize,
}

pub fn down(config: &DownConfig) -> Result<ExitCode, Failure> {
    let layout = Layout::new(&config.data_dir);
    if !layout.format().exists() {
        return Err(Failure::NoNode { path: config.data_dir.clone() });
    }
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    runtime.block_on(async {
        let stopped = stop_node(&layout).await?;
        look::print(&match stopped {
            Some(pid) => format!("The node stopped (it was process {pid}).\n"),
            None => format!("No node runs on {}.\n", config.data_dir.display()),
        })?;
        let hypervisor = Arc::new(Hypervisor::new(machines::hypervisor(&config.data_dir)?));
        let Some(grace) = config.stop_vms else {
            let running = running(&hypervisor)?.len();
            return look::print(&running_on(running, &config.data_dir));
        };
        let _held = DataDir::open(&config.data_dir)?;
        let ends = stop_machines(&hypervisor, grace).await?;
        look::print(&ended(ends))?;
        for machine in hypervisor.found()? {
            hypervisor.clear_limits(&machine.id).await?;
        }
        hypervisor.clear_shelter();
        if user_mode::can_make_taps().is_ok() {
            machines::bare_network(&config.data_dir)?.remove_everything().await?;
            look::print("Their network is off this host.\n")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Every machine of the host that has a process.
pub fn running(hypervisor: &Hypervisor) -> Result<Vec<MachineId>, HypervisorError> {
    let found = hypervisor.found()?.into_iter();
    let lives = |state: &State| matches!(state, State::Running { .. } | State::Launching);
    Ok(found.filter(|machine| lives(&machine.state)).map(|machine| machine.id).collect())
}

/// The process that was stopped, if there was one.
async fn stop_node(layout: &Layout) -> Result<Option<u32>, Failure> {
    let Some(holder) = data_dir::holder(layout) else { return Ok(None) };
    match service_of(holder) {
        // Told directly, it would be started again at once.
        Some(service) => install::systemctl(&["stop", &service])?,
        None => {
            let pid = i32::try_from(holder).ok().and_then(Pid::from_raw);
            // It may have ended by itself.
            _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
    }
    let patience = Instant::now() + STOP_PATIENCE;
    while data_dir::holder(layout) == Some(holder) {
        if Instant::now() >= patience {
            return Err(Failure::WontStop { pid: holder });
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(Some(holder))
}

/// The systemd service whose main process this is.
fn service_of(pid: u32) -> Option<String> {
    let service = service_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)?;
    let asked = Command::new("systemctl")
        .args(["show", "--property=MainPID", "--value", &service])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let main = String::from_utf8(asked.ok()?.stdout).ok()?;
    (main.trim() == pid.to_string()).then_some(service)
}

/// The innermost service in the text of `/proc/PID/cgroup`.
fn service_in(cgroups: &str) -> Option<String> {
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut names = paths.filter_map(|path| path.rsplit('/').find(|name| name.ends_with(".service")));
    names.next().map(str::to_owned)
}

async fn stop_machines(hypervisor: &Arc<Hypervisor>, grace: Duration) -> Result<Ends, Failure> {
    let running = running(hypervisor)?;
    if !running.is_empty() {
        look::print(&format!(
            "Asking {} to shut down; the power is cut after {} s.\n",
            machines_in_words(running.len()),
            grace.as_secs()
        ))?;
    }
    let mut stopping = JoinSet::new();
    for id in running {
        let hypervisor = hypervisor.clone();
        stopping.spawn(async move { stop_machine(&hypervisor, &id, grace).await });
    }
    let mut ends = Ends::default();
    while let Some(ended) = stopping.join_next().await {
        match ended.map_err(|why| Failure::Runtime(why.into()))?? {
            true => ends.shut_down += 1,
            false => ends.cut += 1,
        }
    }
    Ok(ends)
}

/// Whether the guest shut down by itself. Nothing of the machine runs afterwards.
async fn stop_machine(
    hypervisor: &Hypervisor,
    id: &MachineId,
    grace: Duration,
) -> Result<bool, HypervisorError> {
    let monitor = hypervisor.monitor(id).await.ok();
    let obeyed = match &monitor {
        Some(monitor) => timeout(grace, shut_down(monitor)).await.unwrap_or(false),
        // It says nothing: it is on its way up or down, and cannot be asked.
        None => false,
    };
    if let (true, Some(monitor)) = (obeyed, &monitor)
        && monitor.quit().await.is_ok()
    {
        let _ = timeout(QUIT_PATIENCE, monitor.closed()).await;
    }
    hypervisor.kill(id).await?;
    Ok(obeyed)
}

/// Presses the button until the guest is down; false if there is no use in it.
async fn shut_down(monitor: &Monitor) -> bool {
    let mut press_at = Instant::now();
    loop {
        match monitor.status().await {
            Ok(RunState::Shutdown) => return true,
            Ok(state) if is_over(&state) => return false,
            // Stopped by its user or by a failed disk: it hears nothing.
            Ok(RunState::Paused | RunState::Prelaunch | RunState::IoError) | Err(_) => return false,
            Ok(_) => {}
        }
        if Instant::now() >= press_at {
            if monitor.power_button().await.is_err() {
                return false;
            }
            press_at = Instant::now() + PRESS_AGAIN;
        }
        sleep(LOOK_EVERY).await;
    }
}

fn machines_in_words(count: usize) -> String {
    match count {
        1 => "1 virtual machine".into(),
        count => format!("{count} virtual machines"),
    }
}

fn running_on(running: usize, data_dir: &Path) -> String {
    let data_dir = data_dir.display();
    match running {
        0 => "No virtual machine of it runs.\n".into(),
        running => {
            let (runs, them) = if running == 1 { ("runs", "it") } else { ("run", "them") };
            format!(
                "{} of it {runs} on. `sheaf up --data-dir {data_dir}` takes care of {them} again, \
                 `sheaf down --stop-vms --data-dir {data_dir}` stops {them}.\n",
                machines_in_words(running)
            )
        }
    }
}

fn ended(ends: Ends) -> String {
    match ends {
        Ends { shut_down: 0, cut: 0 } => "No virtual machine ran.\n".into(),
        Ends { shut_down, cut: 0 } => format!("{} shut down.\n", machines_in_words(shut_down)),
        Ends { shut_down: 0, cut } => format!("The power of {} was cut.\n", machines_in_words(cut)),
        Ends { shut_down, cut } => {
            format!("{} shut down; the power of {cut} was cut.\n", machines_in_words(shut_down))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_systemd_started_is_stopped_by_systemd() {
        let found = |text| service_in(text);
        assert_eq!(found("0::/system.slice/sheaf.service\n"), Some("sheaf.service".into()));
        assert_eq!(found("12:memory:/a\n1:name=systemd:/system.slice/x.service\n"), Some("x.service".into()));
        assert_eq!(found("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn it_says_what_became_of_the_machines() {
        assert_eq!(running_on(0, Path::new("/d")), "No virtual machine of it runs.\n");
        assert_eq!(
            running_on(1, Path::new("/d")),
            "1 virtual machine of it runs on. `sheaf up --data-dir /d` takes care of it again, \
             `sheaf down --stop-vms --data-dir /d` stops it.\n"
        );
        assert_eq!(ended(Ends { shut_down: 2, cut: 0 }), "2 virtual machines shut down.\n");
        assert_eq!(
            ended(Ends { shut_down: 1, cut: 3 }),
            "1 virtual machine shut down; the power of 3 was cut.\n"
        );
        assert_eq!(ended(Ends { shut_down: 0, cut: 1 }), "The power of 1 virtual machine was cut.\n");
    }
}
