//! Passwords, typed unseen.

use std::io::{self, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::{Secret, asking::Refusal};

/// Shows nothing of what is typed until it is dropped.
struct Unseen(Termios);

impl Unseen {
    fn begin() -> io::Result<Unseen> {
        let before = tcgetattr(io::stdin())?;
        let mut unseen = before.clone();
        // Ctrl-C comes as a key, too: a signal would end the process and leave the terminal as it is here.
        unseen.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &unseen)?;
        Ok(Unseen(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // There is nobody left to tell.
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

pub fn asked(question: &str) -> Result<Secret, Refusal> {
    if !io::stdin().is_terminal() {
        let why = "a password is typed at a terminal, or is in a file that --password-file names (a new one, --new-password-file)";
        return Err(Refusal::Wrong(why.to_owned()));
    }
    let read = || -> io::Result<String> {
        // Before it is asked for: who types at once is not to be seen, either.
        let _unseen = Unseen::begin()?;
        let mut stderr = io::stderr().lock();
        write!(stderr, "{question}")?;
        stderr.flush()?;
        drop(stderr);
        let typed = typed(io::stdin().lock().bytes())?;
        writeln!(io::stderr().lock())?;
        Ok(typed)
    };
    let line = read().map_err(|why| Refusal::cannot("read a password", why))?;
    match line.as_str() {
        "" => Err(Refusal::NotConfirmed("no password was typed".to_owned())),
        password => Ok(Secret::new(password)),
    }
}

/// Keys up to the end of the line; nothing if it was given up.
fn typed(keys: impl Iterator<Item = io::Result<u8>>) -> io::Result<String> {
    const GIVEN_UP: u8 = 3;
    const END: u8 = 4;
    let mut typed: Vec<u8> = Vec::new();
    for key in keys {
        match key? {
            b'\n' | b'\r' | END => break,
            GIVEN_UP => return Ok(String::new()),
            // What was typed last is taken back, all bytes of it.
            0x7f | 0x08 => while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
            key => typed.push(key),
        }
    }
    Ok(String::from_utf8_lossy(&typed).into_owned())
}

/// A new one, typed twice.
pub fn chosen() -> Result<Secret, Refusal> {
    let first = asked("New password: ")?;
    match asked("The same once more: ")? {
        again if again.reveal() == first.reveal() => Ok(first),
        _ => {
            Err(Refusal::NotConfirmed("the two are not the same; the password is the one it was".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_taken_back_and_ctrl_c_gives_up() {
        let typed = |keys: &str| super::typed(keys.bytes().map(Ok)).unwrap();
        assert_eq!(typed("secret\nmore"), "secret");
        assert_eq!(typed("se\u{e9}\u{7f}cret\r"), "secret");
        assert_eq!(typed("secret\u{3}\n"), "");
    }
}
