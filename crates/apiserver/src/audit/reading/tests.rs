//! Lines that a log wrote, and what reading it back finds of them.

use std::{fs, path::PathBuf, sync::Arc};

use serde_json::{Value, json};
use sheaf_world::{Clock, World};

use super::{pages, place::Place, question::Question};
use crate::{
    audit::{Limits, Log},
    request::Query,
    status::ApiError,
};

struct House {
    dir: PathBuf,
    log: Arc<Log>,
    clock: Clock,
}

impl House {
    fn new(name: &str, limits: Limits) -> Self {
        let dir = std::env::temp_dir().join(format!("sheaf-audit-reading-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let clock = World::seeded(1).clock;
        let log = Log::open(&dir.join("audit.log"), limits, clock.clone()).unwrap();
        House { dir, log, clock }
    }

    fn write(&self, lines: impl IntoIterator<Item = Value>) {
        for line in lines {
            self.log.put_now(format!("{line}\n").as_bytes());
            // Each by itself, so that files step aside between any two.
            self.log.flush();
        }
    }

    fn ask(&self, query: &str) -> Result<pages::Page, ApiError> {
        let question = Question::read(&Query::parse(Some(query)), &self.clock)?;
        pages::read(self.log.whereabouts(), &question)
    }

    fn numbers(&self, query: &str) -> Vec<u64> {
        numbers(&self.ask(query).unwrap())
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn numbers(page: &pages::Page) -> Vec<u64> {
    let read = page.lines.iter().map(|line| serde_json::from_slice::<Value>(line).unwrap());
    read.map(|line| line["n"].as_u64().unwrap()).collect()
}

fn line(n: u64) -> Value {
    json!({
        "n": n, "auditID": format!("id-{n}"), "verb": "create", "user": {"username": "jo"}, "responseStatus": {"code": 201},
        "objectRef": {"resource": "configmaps", "namespace": "a", "name": format!("m{n}")},
        "stageTimestamp": format!("2030-01-01T00:{:02}:00.000000Z", n % 60),
    })
}

#[tokio::test]
async fn pages_go_back_through_every_file_and_nothing_is_left_out_or_said_twice() {
    let house = House::new("pages", Limits { file_bytes: 1000, files: 16 });
    house.write((0..30).map(line));
    let (mut query, mut all) = ("limit=7".to_owned(), Vec::new());
    loop {
        let page = house.ask(&query).unwrap();
        assert!(page.lines.len() <= 7);
        all.extend(numbers(&page));
        let Some(next) = page.next else { break };
        query = format!("limit=7&continue={next}");
        // Files step aside while somebody reads.
        house.write([line(100)]);
    }
    assert_eq!(all, (0..30).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_whose_part_of_the_log_is_gone_says_so() {
    let house = House::new("gone", Limits { file_bytes: 400, files: 2 });
    house.write((0..3).map(line));
    let next = house.ask("limit=1").unwrap().next.unwrap();
    house.write((3..20).map(line));
    let why = house.ask(&format!("continue={next}")).unwrap_err();
    assert_eq!(why.reason(), "Expired");
    assert!(why.message().contains("begin anew"), "{why}");
}

#[tokio::test]
async fn one_answer_is_bounded_however_large_the_log_is_and_goes_on_from_there() {
    let house = House::new("bounded", Limits::default());
    let text = "x".repeat(1000);
    let path = house.dir.join("audit.log");
    let mut lines = format!("{}\n", line(1));
    for _ in 0..(2 * pages::SCAN / 1000) {
        lines.push_str(&format!("{{\"verb\":\"get\",\"text\":\"{text}\",\"stageTimestamp\":\"2030\"}}\n"));
    }
    fs::write(&path, lines).unwrap();
    let first = house.ask("verb=create").unwrap();
    assert!(first.lines.is_empty(), "it is further back than one answer looks");
    let mut next = first.next.expect("there is more to look at");
    let mut answers = 1;
    loop {
        let page = house.ask(&format!("verb=create&continue={next}")).unwrap();
        answers += 1;
        match page.next {
            Some(further) => next = further,
            None => break assert_eq!(numbers(&page), [1]),
        }
    }
    assert_eq!(answers, 3);
    let page = house.ask("limit=500").unwrap();
    assert_eq!(page.lines.len(), 500);
}

#[tokio::test]
async fn lines_are_large_at_some_levels_and_an_answer_is_not() {
    let house = House::new("large", Limits::default());
    let text = "x".repeat(900 << 10);
    house.write((0..8).map(|n| json!({"n": n, "text": text, "stageTimestamp": "2030"})));
    assert_eq!(house.numbers("limit=8"), [7, 6, 5]);
}

#[tokio::test]
async fn what_is_no_line_is_passed_over() {
    let house = House::new("broken", Limits::default());
    let path = house.dir.join("audit.log");
    let endless = "y".repeat(pages::LONGEST_LINE + 70_000);
    fs::write(&path, format!("{}\nhalf a li\n\n{endless}\n{}\n", line(1), line(2))).unwrap();
    assert_eq!(house.numbers(""), [2, 1]);
    fs::write(&path, "").unwrap();
    let empty = house.ask("").unwrap();
    assert_eq!((empty.lines.len(), empty.next, empty.newest), (0, None, Place::default()));
}

#[tokio::test]
async fn filters_are_of_all_that_a_line_says() {
    let house = House::new("filters", Limits::default());
    let mut refused = line(1);
    refused["verb"] = "delete".into();
    refused["responseStatus"]["code"] = 403.into();
    let mut machine = line(2);
    machine["objectRef"] =
        json!({"resource": "virtualmachines", "subresource": "start", "namespace": "b", "name": "web"});
    machine["user"]["username"] = "root".into();
    machine["impersonatedUser"] = json!({"username": "ann"});
    let path = json!({"n": 3, "verb": "post", "user": {}, "stageTimestamp": "2030-01-01T00:03:00.000000Z"});
    house.write([line(0), refused, machine, path]);
    for (query, expected) in [
        ("", vec![3, 2, 1, 0]),
        ("user=jo", vec![1, 0]),
        ("user=ann", vec![2]),
        ("user=root,jo", vec![2, 1, 0]),
        ("verb=create,delete", vec![2, 1, 0]),
        ("verb=!post", vec![2, 1, 0]),
        ("user=!root", vec![3, 1, 0]),
        // Who acts as somebody is not out of sight with that one.
        ("user=!ann", vec![3, 2, 1, 0]),
        ("user=!ann,jo", vec![1, 0]),
        ("resource=!virtualmachines/start", vec![3, 1, 0]),
        ("verb=post", vec![3]),
        ("resource=virtualmachines", vec![2]),
        ("resource=virtualmachines/start", vec![2]),
        ("resource=virtualmachines/stop", vec![]),
        ("namespace=a", vec![1, 0]),
        ("namespace=b&name=web", vec![2]),
        ("namespace=a&name=web", vec![]),
        ("id=id-2", vec![2]),
        ("code=403", vec![1]),
        ("code=2xx", vec![2, 0]),
        ("since=2030-01-01T00:02:00Z", vec![3, 2]),
        ("since=2030-01-01T02:02:00%2B02:00", vec![3, 2]),
        ("since=1d", vec![3, 2, 1, 0]),
    ] {
        assert_eq!(house.numbers(query), expected, "{query}");
    }
}

#[tokio::test]
async fn nothing_is_looked_at_that_is_long_before_what_is_asked_for() {
    let house = House::new("since", Limits::default());
    house.write((0..50).map(line));
    let page = house.ask("since=2030-01-01T00:48:30Z&limit=500").unwrap();
    assert_eq!((numbers(&page), page.next), (vec![49], None));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_words() {
    let house = House::new("words", Limits::default());
    for (query, part) in [
        ("limit=0", "limit=\"0\" is not a number from 1 to 500"),
        ("limit=501", "from 1 to 500"),
        ("limit=many", "from 1 to 500"),
        ("code=99", "403"),
        ("code=9xx", "4xx"),
        ("since=yesterday", "15m"),
        ("since=h", "15m"),
        ("since=99999999999d", "15m"),
        ("continue=here", "what an earlier answer"),
        ("verb=a,,b", "one word"),
        ("users=jo", "\"users\" is nothing"),
        ("watch=true&continue=0", "ask for one of them"),
        ("resourceVersion=0", "watch=true"),
    ] {
        let why = house.ask(query).unwrap_err();
        assert_eq!(why.reason(), "BadRequest", "{query}");
        assert!(why.message().contains(part), "{query}: {why}");
    }
}
