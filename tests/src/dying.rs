//! Nodes that are told to die after a step, and requests to a node that may die while it answers.
//!
//! A node that was started by [`restart_mortal`] dies when [`tell_to_die`] says so: after so many more steps, or after the
//! first step of a kind. It is armed while it runs, so a death costs one start of the node.

use std::{
    cell::Cell,
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::Once,
};

use crate::{machines::Farm, node::Node, patience};

/// More steps than any operation takes: an enumeration that never ends is a failure.
const MOST_STEPS: usize = 150;

/// The steps that a node took until it died, or until it was done.
#[derive(Debug)]
pub struct Death {
    pub steps: Vec<String>,
    pub survived: bool,
}

/// Whether to die after every single step, as `make soak` does, and not only after the first of each kind.
pub fn is_every_step_wanted() -> bool {
    env::var_os("SHEAF_EVERY_STEP").is_some()
}

/// Starts a node again so that it can be told to die, and kills it before if it is not dead.
pub fn restart_mortal(mut farm: Farm) -> Farm {
    if !farm.node.has_ended() {
        farm.node.kill();
    }
    let mut arguments: Vec<String> = farm.arguments().map(str::to_owned).to_vec();
    let network = arguments[1].clone();
    let place = farm.node.into_place();
    // An order that the last process did not read is not for the next one.
    _ = fs::remove_file(order(&place.0));
    arguments.extend(["--die-as-told-in".to_owned(), order(&place.0).display().to_string()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let node = Node::start_mortal(&place, &arguments).expect("a node that died starts again");
    Farm::with_node(node, &network)
}

/// From here on, the node dies after so many steps, after the first of this kind, or after the first of a kind that is not listed.
pub fn tell_to_die(farm: &Farm, last: &str) {
    let order = order(farm.node.data_dir().parent().unwrap());
    fs::write(order.with_extension("new"), last).unwrap();
    fs::rename(order.with_extension("new"), &order).unwrap();
}

/// Has a mortal node die after step `last` from here on, sends it the request, and waits for that or for `done`. Answers
/// the node that was started after it.
pub fn die_after(
    mut farm: Farm,
    last: &str,
    request: impl Fn(&Farm),
    done: impl Fn(&Farm) -> bool,
) -> (Farm, Death) {
    tell_to_die(&farm, last);
    let before = farm.node.log().len();
    // It may die while it is asked.
    unless_it_dies(|| request(&farm));
    let survived = patience::until(format!("step {last} or the end"), || {
        if farm.node.has_ended() {
            return Some(false);
        }
        unless_it_dies(|| done(&farm)).filter(|done| *done)
    });
    let steps = steps_in(&farm.node.log()[before..]);
    (restart_mortal(farm), Death { steps, survived })
}

/// Does an operation again and again, each time with a death after another of its steps, until it comes to its end without one: after
/// the first step of each kind, or after every single one. It must have at least `fewest` of those.
pub fn after_steps(fewest: usize, mut once: impl FnMut(&str) -> Death) {
    if is_every_step_wanted() {
        let died_after = after_every_step(once);
        assert!(died_after.len() >= fewest, "it has more steps than {died_after:?}");
        return;
    }
    let mut kinds: Vec<String> = Vec::new();
    loop {
        assert!(kinds.len() < MOST_STEPS, "it never came to its end: {kinds:?}");
        let death = once(&format!("except {}", kinds.join(" ")));
        if death.survived {
            break;
        }
        // Not simply the last that was logged: steps are taken side by side.
        let kind = death.steps.into_iter().find(|step| !kinds.contains(step));
        kinds.push(kind.expect("it died after a step of another kind"));
    }
    assert!(kinds.len() >= fewest, "it has more kinds of steps than {kinds:?}");
}

/// The same after step 1, 2, 3 and so on. Answers the last step before each death.
pub fn after_every_step(mut once: impl FnMut(&str) -> Death) -> Vec<String> {
    let mut died_after = Vec::new();
    for number in 1..MOST_STEPS {
        let mut death = once(&number.to_string());
        if death.survived {
            return died_after;
        }
        died_after.extend(death.steps.pop());
    }
    panic!("it never came to its end: {died_after:?}");
}

/// The steps that a log tells of.
pub fn steps_in(log: &str) -> Vec<String> {
    let taken = log.lines().filter(|line| line.contains("took a step"));
    taken.filter_map(|line| Some(line.split("step=").nth(1)?.trim().to_owned())).collect()
}

/// The file in which a node on this directory is told when to die.
fn order(directory: &Path) -> PathBuf {
    directory.join("die-after")
}

thread_local! {
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// What `ask` answered, or none if it panicked.
///
/// A request to a node that dies panics, as everywhere in the tests, and that is no failure here. Nothing is printed of
/// it: hundreds of backtraces that mean nothing hide the one that does.
pub fn unless_it_dies<T>(ask: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let otherwise = panic::take_hook();
        panic::set_hook(Box::new(move |told| {
            if !IS_SILENT.get() {
                otherwise(told);
            }
        }));
    });
    IS_SILENT.set(true);
    let answer = panic::catch_unwind(AssertUnwindSafe(ask));
    IS_SILENT.set(false);
    answer.ok()
}
