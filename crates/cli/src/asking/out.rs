//! Standard output and what it is connected to.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use rustix::termios::tcgetwinsize;

use super::{Refusal, table::printable};

/// Where answers go, and what can be shown there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// How many letters fit on a line; none where lines have no end.
    pub width: Option<usize>,
    pub colours: bool,
}

impl Out {
    /// As the process was started. Colours are for terminals alone, and for who wants them: https://no-color.org.
    pub fn look() -> Out {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Out::default();
        }
        let width =
            tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        let unwanted = env::var_os("NO_COLOR").is_some_and(|said| !said.is_empty())
            || env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        Out { width, colours: !unwanted }
    }

    pub fn print(self, text: &str) -> Result<(), Refusal> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Err(Refusal::NobodyReads),
            Err(why) => Err(Refusal::cannot("print", why)),
        }
    }
}

/// Says something beside the answer.
pub fn note(text: &str) {
    // Whoever closed our standard error does not want to know.
    _ = writeln!(io::stderr().lock(), "{}", printable(text));
}
