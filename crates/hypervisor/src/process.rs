//! Which process a machine is, in words that survive both us and the reuse of its number.
//!
//! A number alone names nobody: it is given to the next process once the old one is gone.
//! Together with the time at which the process was started it is never given twice, until the host starts anew: at every
//! boot much the same processes are started in much the same order. So a record says of which boot it is.

use std::{fs, io, path::Path, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRecord {
    pub pid: i32,
    /// In the kernel's clock ticks since boot.
    pub started: u64,
    /// What the kernel calls that boot; empty in records of versions that did not note it.
    #[serde(default)]
    pub boot: String,
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How long a process may take from closing its files to being gone: microseconds, on a host that is not busy.
const ENDING_LOOKS: u32 = 20;
const ENDING_PAUSE: Duration = Duration::from_millis(1);

impl ProcessRecord {
    /// The calling process; `exec` changes neither number.
    pub fn own() -> io::Result<ProcessRecord> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let started = started(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(ProcessRecord { pid, started, boot: this_boot() })
    }

    /// One that does not live.
    pub fn of_nobody() -> ProcessRecord {
        ProcessRecord { pid: 0, started: 0, boot: "none".to_owned() }
    }

    pub fn lives(&self) -> bool {
        self.is_of_this_boot() && started(self.pid).is_ok_and(|started| started == Some(self.started))
    }

    fn is_of_this_boot(&self) -> bool {
        self.boot.is_empty() || self.boot == this_boot()
    }

    /// Whether it lives and is not about to end: a process that ends closes its files first.
    pub fn lives_on(&self) -> bool {
        let looks = (0..ENDING_LOOKS).all(|_| {
            let lives = self.lives();
            if lives {
                std::thread::sleep(ENDING_PAUSE);
            }
            lives
        });
        looks && self.lives()
    }

    /// Whether it still is this program (its real name), rather than what it turned into.
    pub fn runs(&self, program: &Path) -> bool {
        fs::read_link(format!("/proc/{}/exe", self.pid)).is_ok_and(|running| running == program)
    }

    /// Kills this very process, or nobody.
    pub fn kill(&self) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(why) => return Err(why.into()),
        };
        // The handle keeps meaning the process it was opened for, so looking after
        // opening it is looking at the right one.
        if !self.lives() {
            return Ok(());
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }
}

/// What a process that keeps us waiting does just now, for whoever has to find out why: which program it is, its state as `ps`
/// prints it, and in which function of the kernel it waits.
pub fn standing(pid: Option<u32>) -> String {
    let Some(pid) = pid else { return "its process has ended".to_owned() };
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let state = read("stat")
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.chars().next());
    match state {
        Some(state) => format!(
            "its process {pid} ({}) is in state {state} and waits in {}",
            read("comm").trim(),
            Some(read("wchan"))
                .filter(|place| !matches!(place.as_str(), "" | "0"))
                .as_deref()
                .unwrap_or("no place that is told")
        ),
        None => format!("its process {pid} is gone"),
    }
}

/// Empty where the kernel does not say.
fn this_boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// When a process was started; `None` when there is none, or only its remains.
fn started(pid: i32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_stat(&stat)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        // The process went away between opening and reading.
        Err(why) if why.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
        Err(why) => Err(why),
    }
}

fn parse_stat(stat: &str) -> Option<u64> {
    // The name stands in parentheses and may itself hold spaces and parentheses.
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_process_stands_is_told_in_words() {
        let own = standing(Some(std::process::id()));
        assert!(own.contains("is in state ") && own.contains("waits in "), "{own}");
        assert_eq!(standing(None), "its process has ended");
        assert_eq!(standing(Some(u32::MAX)), format!("its process {} is gone", u32::MAX));
    }

    #[test]
    fn a_process_whose_name_looks_like_fields_is_read_right() {
        let stat = "7 (a) R 1 (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9 9";
        assert_eq!(parse_stat(stat), Some(4242));
    }

    #[test]
    fn a_zombie_does_not_live() {
        assert_eq!(parse_stat("7 (qemu) Z 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4242 9"), None);
    }

    #[test]
    fn the_next_process_with_the_same_number_is_spared() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let real = ProcessRecord { pid, started: started(pid).unwrap().unwrap(), boot: this_boot() };
        let earlier = ProcessRecord { started: real.started - 1, ..real.clone() };
        let before_the_reboot = ProcessRecord { boot: "another".into(), ..real.clone() };
        for other in [earlier, before_the_reboot] {
            assert!(!other.lives() && !other.lives_on());
            other.kill().unwrap();
            assert!(real.lives(), "another process was killed for its number");
        }

        let of_an_older_version = format!(r#"{{"pid": {pid}, "started": {}}}"#, real.started);
        let of_an_older_version: ProcessRecord = serde_json::from_str(&of_an_older_version).unwrap();
        assert!(of_an_older_version.lives(), "machines outlive an upgrade");

        real.kill().unwrap();
        child.wait().unwrap();
        assert!(!real.lives());
    }
}
