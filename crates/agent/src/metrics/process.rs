//! What the kernel counts of a process and its threads.

use std::{fs, io};

/// A process and all its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessNumbers {
    pub user_nanos: u64,
    pub system_nanos: u64,
    pub resident_bytes: u64,
    /// Since boot, in the kernel's ticks: tells an older process from a younger one.
    pub started_ticks: u64,
}

/// One thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadNumbers {
    pub run_nanos: u64,
    pub delay_nanos: u64,
}

/// In what the kernel tells times to programs: a hundredth of a second, however often its own clock ticks.
const NANOS_PER_TICK: u64 = 10_000_000;

impl ProcessNumbers {
    pub fn read(pid: i32) -> io::Result<ProcessNumbers> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        parse(&stat, &status).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl ThreadNumbers {
    pub fn read(pid: i32, thread: i32) -> io::Result<ThreadNumbers> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"))?;
        parse_schedstat(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn parse(stat: &str, status: &str) -> Option<ProcessNumbers> {
    // The name stands in parentheses and may itself hold spaces and parentheses; the field after it is the third.
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let nanos = |ticks: u64| ticks.saturating_mul(NANOS_PER_TICK);
    Some(ProcessNumbers {
        user_nanos: nanos(number(14)?),
        system_nanos: nanos(number(15)?),
        started_ticks: number(22)?,
        // In pages in the one file, whose size differs between hosts; in KiB in the other.
        resident_bytes: resident_kib(status)?.saturating_mul(1024),
    })
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Time on a processor, time spent waiting for one, and how many turns.
fn parse_schedstat(text: &str) -> Option<ThreadNumbers> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    let run_nanos = fields.next()?.ok()?;
    let delay_nanos = fields.next()?.ok()?;
    Some(ThreadNumbers { run_nanos, delay_nanos })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "4711 (qemu (x86) 64) S 1 4711 4711 0 -1 1077936384 51234 0 12 0 1234 567 0 0 20 0 5 0 \
                        998877 1500000000 30000 18446744073709551615 1 1 0 0 0 0 268444224 4096 2143420159 0 0 0 17 \
                        1 0 0 0 0 0 0 0 0 0 0 0 0 0";
    const STATUS: &str = "Name:\tqemu-system-x86\nState:\tS (sleeping)\nVmHWM:\t  130000 kB\nVmRSS:\t  120000 kB\n\
                          RssAnon:\t  100000 kB\n";

    #[test]
    fn a_process_is_read_by_its_fields_whatever_its_name() {
        let read = parse(STAT, STATUS).unwrap();
        let wanted = ProcessNumbers {
            user_nanos: 12_340_000_000,
            system_nanos: 5_670_000_000,
            resident_bytes: 120_000 * 1024,
            started_ticks: 998_877,
        };
        assert_eq!(read, wanted);
    }

    #[test]
    fn a_thread_says_how_long_it_ran_and_how_long_it_stood_in_the_queue() {
        let read = parse_schedstat("602402 92723 1\n").unwrap();
        assert_eq!(read, ThreadNumbers { run_nanos: 602_402, delay_nanos: 92_723 });
        assert_eq!(parse_schedstat("602402\n"), None);
    }

    #[test]
    fn this_very_process_can_be_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let before = ProcessNumbers::read(pid).unwrap();
        assert!(before.resident_bytes > 100_000 && before.started_ticks > 0, "{before:?}");
        assert!(ThreadNumbers::read(pid, pid).is_ok());
        assert!(ProcessNumbers::read(-1).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_readers_panic(text in "(VmRSS:)?[0-9() kB]{0,120}") {
            let _ = (parse(&text, &text), parse(STAT, &text), parse_schedstat(&text));
        }
    }
}
