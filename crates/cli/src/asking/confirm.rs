//! Asking back before something is lost.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args as ClapArgs;

use super::{Refusal, table::printable};

#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct YesArgs {
    /// Ask nothing back; for scripts
    #[arg(short, long)]
    pub yes: bool,
}

/// Goes on only if somebody said yes. `what` is a sentence about what will be lost.
pub fn confirm(args: YesArgs, what: &str) -> Result<(), Refusal> {
    match args.yes {
        true => Ok(()),
        false => ask(what, "say --yes if that is meant"),
    }
}

/// The same where nothing that could be typed says yes beforehand but what `otherwise` says.
pub fn ask(what: &str, otherwise: &str) -> Result<(), Refusal> {
    if !io::stdin().is_terminal() {
        return Err(Refusal::NotConfirmed(format!("{what} Nobody is there to be asked: {otherwise}")));
    }
    let mut answer = String::new();
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "{}\nGo on? [y/N] ", printable(what)).and_then(|()| stderr.flush());
    drop(stderr);
    asked
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .map_err(|why| Refusal::cannot("ask", why))?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Refusal::NotConfirmed("the answer was not yes".to_owned())),
    }
}
