//! Agents that behave, and agents that do not.

use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

/// Plays a guest: for each line it is sent, what it sends back.
fn guest(mut play: impl FnMut(Value) -> Vec<u8> + Send + 'static) -> GuestAgent {
    let (ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        let (read, mut write) = theirs.into_split();
        let mut read = BufReader::new(read);
        let mut line = Vec::new();
        while read.read_until(b'\n', &mut line).await.is_ok_and(|number| number > 0) {
            let start = usize::from(line.first() == Some(&DELIMITER));
            let asked: Value = serde_json::from_slice(&line[start..]).unwrap();
            line.clear();
            if write.write_all(&play(asked)).await.is_err() {
                return;
            }
        }
    });
    GuestAgent::new(ours)
}

fn echo(asked: &Value) -> Option<Vec<u8>> {
    (asked["execute"] == "guest-sync-delimited").then(|| {
        let mut bytes = vec![DELIMITER];
        bytes.extend_from_slice(format!("{{\"return\": {}}}\n", asked["arguments"]["id"]).as_bytes());
        bytes
    })
}

#[tokio::test]
async fn an_answer_is_understood() {
    let agent = guest(|asked| {
        echo(&asked).unwrap_or_else(|| {
            br#"{"return": [{"name": "eth0", "hardware-address": "52:54:00:00:00:01", "ip-addresses": [
                {"ip-address": "10.52.0.5", "ip-address-type": "ipv4", "prefix": 16}]}]}"#
                .iter()
                .copied()
                .filter(|byte| *byte != b'\n')
                .chain([b'\n'])
                .collect()
        })
    });
    let interfaces = agent.interfaces().await.unwrap();
    assert_eq!(interfaces[0].ip_addresses[0].ip_address, "10.52.0.5");
}

#[tokio::test]
async fn a_refusal_carries_the_guests_reason() {
    let agent = guest(|asked| {
        echo(&asked)
            .unwrap_or_else(|| b"{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no\"}}\n".to_vec())
    });
    let why = agent.users().await.unwrap_err();
    assert!(matches!(&why, GuestAgentError::Refused { class, .. } if class == "CommandNotFound"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_guest_is_given_up_and_may_come_back() {
    let mut asked_before = 0;
    let agent = guest(move |asked| {
        asked_before += 1;
        match asked_before {
            // Not a word to the first question's synchronisation.
            1 => Vec::new(),
            // Then the late echo of it, and what an older question's answer might be.
            2 => {
                let mut late = vec![DELIMITER];
                late.extend_from_slice(b"{\"return\": 99}\n{\"return\": \"stale\"}\n");
                late.extend(echo(&asked).unwrap());
                late
            }
            _ => echo(&asked).unwrap_or_else(|| b"{\"return\": {\"host-name\": \"fresh\"}}\n".to_vec()),
        }
    });
    assert!(matches!(agent.ping().await, Err(GuestAgentError::Silent { .. })));
    assert_eq!(agent.host_name().await.unwrap(), "fresh");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let agent = guest(|asked| echo(&asked).unwrap_or_else(|| vec![b' '; MOST_ANSWER_BYTES + 8192]));
    assert!(matches!(agent.info().await, Err(GuestAgentError::TooLong { .. })));
}

#[tokio::test]
async fn nonsense_is_an_error_and_nothing_worse() {
    for nonsense in ["[]\n", "7\n", "{\"return\": {\"version\": 7}}\n", "{]\n", "\n"] {
        let agent = guest(move |asked| echo(&asked).unwrap_or_else(|| nonsense.as_bytes().to_vec()));
        assert!(agent.info().await.is_err(), "{nonsense:?} was taken for an answer");
    }
}
