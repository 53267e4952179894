//! When a machine runs, as its own monitor says. The same question to both sides, in the same way.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use sheaf_tests::patience;

/// How often a socket is looked for. Fifty who look more often would be a load of their own.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until QEMU says that the guest runs; answers when it did.
pub fn until_running(socket: &Path) -> Instant {
    let began = Instant::now();
    let stream = loop {
        if socket.exists()
            && let Ok(stream) = UnixStream::connect(socket)
        {
            break stream;
        }
        assert!(began.elapsed() < patience::TOO_LONG, "there is no monitor at {}", socket.display());
        thread::sleep(LOOK_EVERY);
    };
    stream.set_read_timeout(Some(patience::TOO_LONG)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    // QEMU greets as soon as its main loop runs.
    let greeting = next(&mut answers);
    assert!(greeting["QMP"].is_object(), "{greeting}");
    ask(&stream, &mut answers, "qmp_capabilities");
    loop {
        if ask(&stream, &mut answers, "query-status")["status"] == "running" {
            return Instant::now();
        }
        assert!(began.elapsed() < patience::TOO_LONG, "{} never runs", socket.display());
        thread::sleep(LOOK_EVERY);
    }
}

fn ask(mut stream: &UnixStream, answers: &mut impl BufRead, question: &str) -> Value {
    writeln!(stream, r#"{{"execute": "{question}"}}"#).unwrap();
    loop {
        let mut answer = next(answers);
        if !answer["return"].is_null() {
            return answer["return"].take();
        }
    }
}

fn next(answers: &mut impl BufRead) -> Value {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|why| panic!("the monitor said {line:?}: {why}"))
}
