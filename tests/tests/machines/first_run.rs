//! The first run as a person has it: one command, a machine at the end of it, the commands that it prints typed as they
//! are, and nothing left when it is put away.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use sheaf_testbed::guests;
use sheaf_tests::{
    lines::Lines,
    machines::{bridge_of, directories_of_control_groups, tables_of, uids_in},
    node, patience,
    terminal::Terminal,
};

/// From nothing to SSH under emulation, on a machine that has other things to do.
const BOOT: Duration = Duration::from_secs(15 * 60);

/// Of nobody else who may be on this host.
const NETWORK: &str = "10.251.0.0/24";

/// `scripts/run` in a session of its own, as `make run` starts it.
struct FirstRun {
    script: Child,
    lines: Lines,
    directory: tempfile::TempDir,
}

impl FirstRun {
    fn begin() -> FirstRun {
        let directory = tempfile::Builder::new().prefix("sheaf-test-").tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/run");
        let mut script = Command::new(script)
            .arg(node::binary())
            .arg(directory.path().join("data"))
            .args(["--name", "n1", "--listen", "127.0.0.1:0", "--vm-cidr", NETWORK])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Lines::of(script.stdout.take().unwrap());
        FirstRun { script, lines, directory }
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// What is printed behind this word, once it is.
    fn prints(&self, word: &str) -> String {
        let began = Instant::now();
        loop {
            let line = self.lines.next_within(BOOT.saturating_sub(began.elapsed()));
            let line = line.unwrap_or_else(|| panic!("it never printed {word:?}"));
            if let Some(rest) = line.trim_start().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// What Ctrl-C at its terminal does.
    fn is_interrupted(&mut self) {
        kill_process_group(Pid::from_child(&self.script), Signal::INT).unwrap();
        patience::until("the run to end", || self.script.try_wait().unwrap());
    }

    fn down(&self, words: &[&str]) -> String {
        let ended = Command::new(node::binary())
            .args(["down", "--data-dir"])
            .arg(self.data_dir())
            .args(words)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    }
}

impl Drop for FirstRun {
    fn drop(&mut self) {
        // All of this has happened already, unless the test failed.
        if self.script.try_wait().ok().flatten().is_none() {
            _ = kill_process_group(Pid::from_child(&self.script), Signal::TERM);
            _ = self.script.wait();
        }
        let mut down = Command::new(node::binary());
        _ = down.args(["down", "--stop-vms", "--grace", "0", "--data-dir"]).arg(self.data_dir()).output();
    }
}

/// The printed command of SSH, to run `words` there. Hosts that were met are not remembered beyond the test.
fn by_ssh(printed: &str, met: &Path, words: &str) -> String {
    let options = format!("ssh -o BatchMode=yes -o UserKnownHostsFile={}", met.display());
    let command = printed.replacen("ssh", &options, 1);
    let ended = Command::new("sh").args(["-c", &format!("{command} '{words}'")]).output().unwrap();
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// The processes of these machines, in `/proc`.
fn processes_of(data_dir: &Path, uids: &[String]) -> Vec<PathBuf> {
    let records = uids.iter().map(|uid| data_dir.join("machines").join(uid).join("process"));
    records
        .map(|record| {
            let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
            PathBuf::from(format!("/proc/{}", record["pid"]))
        })
        .collect()
}

#[test]
#[ignore = "a whole Debian boots, which takes minutes under emulation: for make soak"]
fn soak_a_first_run_ends_with_a_machine_that_can_be_entered_and_leaves_nothing_when_put_down() {
    if guests::debian().is_none() {
        return;
    }
    let mut run = FirstRun::begin();
    let place = run.prints("The virtual machine default/demo runs at");
    let console = run.prints("its console");
    let ssh = run.prints("SSH");
    let address = place.trim_end_matches('.').to_owned();
    assert!(ssh.ends_with(&format!("demo@{address}")), "{ssh}");

    let met = run.directory.path().join("met");
    let said = by_ssh(&ssh, &met, "hostname; cloud-init status --wait; cat /etc/os-release");
    assert!(said.contains("demo") && said.contains("status: done") && said.contains("Debian"), "{said}");

    // The same way in through the API, from wherever that is reached.
    let inside = |words: &[&str]| {
        let mut ssh = Command::new(node::binary());
        ssh.args(["vm", "ssh", "demo@demo", "-i"]).arg(run.data_dir().join("demo_ed25519"));
        ssh.arg("--data-dir").arg(run.data_dir()).arg("--").args(words).env("HOME", run.directory.path());
        ssh.output().unwrap()
    };
    let said = inside(&["hostname"]);
    assert_eq!(String::from_utf8_lossy(&said.stdout), "demo\n", "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(inside(&["exit", "7"]).status.code(), Some(7), "it ends as what ran there ended");

    let mut terminal = Terminal::open();
    let before = terminal.settings();
    let mut entered = terminal.run(Path::new("sh"), &["-c", &format!("exec {console}")]);
    terminal.shows("Ctrl-] leaves it");
    // The demo's user is logged in there already.
    terminal.types_until_it_shows(b"\recho $((1234 * 4321))\r", "5332114");
    terminal.types(b"\x1d");
    assert!(patience::until("the console to end", || entered.try_wait().unwrap()).success());
    assert_eq!(terminal.settings(), before);

    let (bridge, uids) = (bridge_of(NETWORK).unwrap(), uids_in(&run.data_dir()));
    let processes = processes_of(&run.data_dir(), &uids);
    assert!(uids.len() == 1 && processes[0].exists(), "{uids:?}");
    let of_machine: Vec<PathBuf> =
        directories_of_control_groups(&uids).into_iter().map(PathBuf::from).collect();
    let of_all = of_machine.iter().filter_map(|group| group.parent());
    let of_node = of_all.clone().map(|group| PathBuf::from(format!("{}-node", group.display())));
    let groups: Vec<PathBuf> = of_all.map(Path::to_owned).chain(of_node).collect();

    // Ctrl-C ends the node and not the machine.
    run.is_interrupted();
    assert_eq!(by_ssh(&ssh, &met, "hostname").trim(), "demo");
    let down = run.down(&["--stop-vms"]);
    assert!(down.contains("1 virtual machine shut down") && down.contains("off this host"), "{down}");
    assert_eq!((bridge_of(NETWORK), tables_of(&bridge)), (None, Vec::new()));
    // What ended and was not taken note of by whoever inherited it has no command line.
    let lives = |process: &Path| fs::read(process.join("cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(!processes.iter().any(|process| lives(process)), "{processes:?}");
    let left: Vec<&PathBuf> = groups.iter().filter(|group| group.exists()).collect();
    assert_eq!(left, [] as [&PathBuf; 0]);
}
