//! `sheaf vm console` at a real terminal: every key is the guest's while it lasts, and the terminal is afterwards as it was
//! before, however it ended.

use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{Farm, MACHINES, machine},
    node, patience,
    terminal::Terminal,
};

const UUID: &str = "55555555-0000-4000-8000-000000000001";
const CTRL_C: &[u8] = b"\x03";
const ESCAPE: &[u8] = b"\x1d";

/// Enters the console, and waits until the keys are the guest's.
fn enter(farm: &Farm, terminal: &mut Terminal) -> Child {
    let kubeconfig = farm.node.admin_kubeconfig();
    let console = terminal
        .run(&node::binary(), &["vm", "console", "typed", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    terminal.shows("Ctrl-] leaves it");
    patience::until("the terminal to be raw", || terminal.is_raw().then_some(()));
    console
}

fn ended(mut console: Child) -> ExitStatus {
    patience::until("the console to end", || console.try_wait().unwrap())
}

#[test]
fn a_console_leaves_the_terminal_as_it_found_it_however_it_ends() {
    let Some(guest) = guests::tiny() else { return };
    let mut farm = Farm::start();
    farm.image("tiny", &guest.disk);
    let mut vm = machine("typed", UUID, Some("tiny"));
    vm["spec"]["runStrategy"] = "Always".into();
    farm.api().post(MACHINES, &vm).object();
    farm.running("typed");
    let mut terminal = Terminal::open();
    terminal.set_oddly();
    let before = terminal.settings();
    assert!(!terminal.is_raw());

    // By the key. Until then every key is the guest's, also one that would end a program.
    let mut console = enter(&farm, &mut terminal);
    terminal.types_until_it_shows(b"run echo $((6 * 7))\r", "42");
    terminal.types(CTRL_C);
    terminal.types_until_it_shows(b"\rrun echo $((7 * 8))\r", "56");
    assert_eq!(console.try_wait().unwrap(), None);
    terminal.types(ESCAPE);
    assert!(ended(console).success());
    assert_eq!(terminal.settings(), before, "after Ctrl-]");

    // By somebody who ends the program.
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let console = enter(&farm, &mut terminal);
        kill_process(Pid::from_child(&console), signal).unwrap();
        ended(console);
        assert_eq!(terminal.settings(), before, "after {signal:?}");
    }

    // By somebody else who enters the same console.
    let console = enter(&farm, &mut terminal);
    let mut another = Terminal::open();
    let usurper = enter(&farm, &mut another);
    assert!(!ended(console).success());
    terminal.shows("broke off");
    assert_eq!(terminal.settings(), before, "after somebody else entered");
    another.types(ESCAPE);
    assert!(ended(usurper).success());

    // By a node that dies.
    let console = enter(&farm, &mut terminal);
    farm.node.kill();
    assert!(!ended(console).success());
    terminal.shows("broke off");
    assert_eq!(terminal.settings(), before, "after the node died");

    // By the end of the machine.
    let network = farm.arguments()[1].to_owned();
    let node = farm.node.start_again_with(&["--vm-cidr", &network, "--allow-local-images"]);
    let farm = Farm::with_node(node, &network);
    farm.running("typed");
    let console = enter(&farm, &mut terminal);
    farm.set_run_strategy("typed", "Halted");
    assert!(ended(console).success());
    terminal.shows("the machine is off");
    assert_eq!(terminal.settings(), before, "after the machine was stopped");
}
