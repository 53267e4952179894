//! What the code may say, and where.

use crate::{
    source::{Source, sources},
    violation::{Violation, must_hold},
};

/// These decide and never look or act, so that a test of them needs nothing else.
const PURE: &[&str] = &["cel", "planner", "resources"];

/// What a pure room may not so much as mention.
const IMPURE: &[&str] = &[
    "getrandom",
    "rand",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
];

/// An address is a number, not a network.
const PURE_ALL_THE_SAME: &[&str] = &[
    "std::net::AddrParseError",
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
    "std::net::SocketAddr",
];

/// Ways to read the clock or draw a number past the `World` that was handed in.
/// `Instant::now` is not here because tokio's, which a paused runtime moves, is allowed;
/// the standard library's cannot be used without being imported.
const CLOCK_OR_CHANCE: &[&str] = &[
    "ASN1Time::now",
    "OffsetDateTime::now_utc",
    "OsRng",
    "SystemTime::now",
    "Timestamp::now",
    "Utc::now",
    "Uuid::new_v4",
    "Zoned::now",
    "from_entropy",
    "from_os_rng",
    "getrandom",
    "rand::random",
    "rand::rng",
    "std::time",
    "std::time::*",
    "std::time::Instant",
    "thread_rng",
];

/// The files that know HTTP's numbers: one for each server that answers over it.
const STATUS_CODES: [&str; 2] = ["crates/apiserver/src/status.rs", "crates/agent/src/stream_port/answer.rs"];

/// Whether `path` is `thing` or something inside it.
fn is_in(path: &str, thing: &str) -> bool {
    path.strip_prefix(thing).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Whether `path` ends with `thing`, however much of the way there it spells out.
fn ends_in(path: &str, thing: &str) -> bool {
    path.strip_suffix(thing).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

fn impurities(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| PURE.contains(&source.room()) && !source.is_test()) {
        for (line, path) in source.paths() {
            let impure = IMPURE.iter().any(|thing| is_in(&path, thing))
                && !PURE_ALL_THE_SAME.iter().any(|thing| is_in(&path, thing));
            if impure {
                found.push(source.violation(line, format!("{} is pure and says {path}", source.room())));
            }
        }
    }
    found
}

fn clocks_and_chances(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.room() != "world" && !source.is_test()) {
        for (line, path) in source.paths() {
            if CLOCK_OR_CHANCE.iter().any(|thing| ends_in(&path, thing)) || path.starts_with("getrandom::") {
                found.push(source.violation(line, format!("{path} goes past the World that was handed in")));
            }
        }
    }
    found
}

fn real_worlds(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in
        sources.iter().filter(|source| !["bin", "world"].contains(&source.room()) && !source.is_test())
    {
        for (line, path) in source.paths() {
            if ["World::real", "Clock::system", "Chance::system"].iter().any(|thing| ends_in(&path, thing)) {
                found.push(source.violation(line, format!("{path} is for the binary to say")));
            }
        }
    }
    found
}

fn unbiased_selects(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources {
        for tokens in source.all.windows(5) {
            let [word, bang, _, first, second] = tokens else { continue };
            let biased = first.text == "biased" && second.text == ";";
            if word.text == "select" && bang.text == "!" && !biased {
                found.push(source.violation(word.line, "`select!` without `biased;` draws a number"));
            }
        }
    }
    found
}

fn stray_status_codes(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in
        sources.iter().filter(|source| !STATUS_CODES.contains(&source.path.as_str()) && !source.is_test())
    {
        for (line, path) in source.paths() {
            // The type may be passed on; one of its values may not be chosen.
            let chosen = path.split("::").collect::<Vec<_>>();
            let value = chosen.iter().skip_while(|part| **part != "StatusCode").nth(1);
            if let Some(value) = value {
                found.push(
                    source.violation(line, format!("StatusCode::{value} belongs in {}", STATUS_CODES[0])),
                );
            }
        }
        for tokens in source.code.windows(4) {
            let [dot, word, open, number] = tokens else { continue };
            let is_number = number.text.starts_with(|c: char| c.is_ascii_digit());
            if dot.text == "." && word.text == "status" && open.text == "(" && is_number {
                found.push(
                    source.violation(word.line, format!("{} belongs in {}", number.text, STATUS_CODES[0])),
                );
            }
        }
    }
    found
}

#[test]
fn pure_crates_do_no_io_and_read_no_clock() {
    must_hold("pure crates do no I/O and read no clock", impurities(sources()));
}

#[test]
fn only_world_reads_the_clock_or_draws_a_number() {
    must_hold("only world reads the clock or draws a number", clocks_and_chances(sources()));
}

#[test]
fn only_the_binary_chooses_the_real_world() {
    must_hold("only the binary chooses the real world", real_worlds(sources()));
}

#[test]
fn every_select_is_biased_so_that_a_seed_replays() {
    must_hold("every select is biased", unbiased_selects(sources()));
}

#[test]
fn http_status_codes_appear_in_one_file_for_each_server() {
    must_hold("HTTP status codes appear in one file for each server", stray_status_codes(sources()));
}

mod planted {
    use super::*;

    fn complaints(rule: fn(&[Source]) -> Vec<Violation>, path: &str, text: &str) -> Vec<String> {
        rule(&[Source::parse(path, text)]).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn io_in_a_pure_crate_is_found() {
        let text = "use std::{fmt, fs, net::{IpAddr, TcpStream}};\nfn f() { tokio::spawn(g()); std::env::var(\"A\"); }";
        assert_eq!(
            complaints(impurities, "crates/planner/src/lib.rs", text),
            [
                "planner is pure and says std::fs",
                "planner is pure and says std::net::TcpStream",
                "planner is pure and says tokio::spawn",
                "planner is pure and says std::env::var",
            ]
        );
        assert!(complaints(impurities, "crates/store/src/lib.rs", text).is_empty());
    }

    #[test]
    fn a_clock_read_past_the_world_is_found_however_it_is_spelt() {
        for text in [
            "fn f() { std::time::SystemTime::now(); }",
            "fn f() { info!(now = ?SystemTime::now()); }",
            "use std::time::Instant;",
            "use std::{sync::Arc, time::{Duration, Instant}};",
            "use std::time;",
            "use std::time::*;",
            "fn f() { jiff::Timestamp::now(); }",
        ] {
            assert_eq!(
                complaints(clocks_and_chances, "crates/apiserver/src/lib.rs", text).len(),
                1,
                "{text}"
            );
            assert!(complaints(clocks_and_chances, "crates/world/src/lib.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_draw_past_the_world_is_found_however_it_is_spelt() {
        for text in [
            "fn f() { rand::thread_rng(); }",
            "use rand::rngs::OsRng;",
            "fn f() { getrandom::fill(&mut b); }",
            "fn f() { StdRng::from_os_rng(); }",
        ] {
            assert_eq!(complaints(clocks_and_chances, "crates/store/src/lib.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn timers_of_the_runtime_are_allowed() {
        let text = "use tokio::time::{self, Instant};\nuse std::time::Duration;\nfn f() { Instant::now(); }";
        assert!(complaints(clocks_and_chances, "crates/apiserver/src/lib.rs", text).is_empty());
    }

    #[test]
    fn a_real_world_made_below_the_binary_is_found() {
        let text = "fn f() { let world = sheaf_world::World::real(); }";
        assert_eq!(complaints(real_worlds, "crates/apiserver/src/lib.rs", text).len(), 1);
        assert!(complaints(real_worlds, "bin/sheaf/src/main.rs", text).is_empty());
        let in_a_test = format!("#[cfg(test)]\nmod tests {{ {text} }}");
        assert!(complaints(real_worlds, "crates/apiserver/src/lib.rs", &in_a_test).is_empty());
    }

    #[test]
    fn a_select_that_tosses_a_coin_is_found() {
        let unbiased = "async fn f() { loop { tokio::select! { a = b() => {}, c = d() => {} } } }";
        assert_eq!(complaints(unbiased_selects, "crates/store/src/lib.rs", unbiased).len(), 1);
        let biased = "async fn f() { tokio::select! { biased; a = b() => {} } }";
        assert!(complaints(unbiased_selects, "crates/store/src/lib.rs", biased).is_empty());
    }

    #[test]
    fn a_stray_status_code_is_found() {
        let text =
            "use http::StatusCode;\nfn f() -> StatusCode { r.status(404); http::StatusCode::NOT_FOUND }";
        assert_eq!(complaints(stray_status_codes, "crates/apiserver/src/list.rs", text).len(), 2);
        assert_eq!(complaints(stray_status_codes, "crates/agent/src/stream_port/mod.rs", text).len(), 2);
        for known in STATUS_CODES {
            assert!(complaints(stray_status_codes, known, text).is_empty());
        }
    }
}
