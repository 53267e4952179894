//! Waiting for an object to become something, by watching it.

use std::time::Duration;

use clap::Args as ClapArgs;
use futures::StreamExt;
use kube::runtime::watcher;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Refusal, Resource, Session, format::without_owners, refusal::is_final};
use crate::progress::Progress;

/// Later than that no clock counts.
const A_YEAR_SECS: u64 = 365 * 86_400;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// `--wait` and for how long.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct WaitArgs {
    /// Come back only when it is done
    #[arg(long)]
    pub wait: bool,
    /// How long to wait at most, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration, requires = "wait")]
    pub timeout: Duration,
}

/// How something stands on its way.
#[derive(Debug)]
pub enum Standing<T> {
    There(T),
    /// In words, for whoever waits.
    OnItsWay(String),
    /// So many bytes of so many.
    Partly {
        done: u64,
        total: u64,
    },
    /// It will not come to it.
    Never(String),
}

/// Until `judge` says that it is there. `judge` is shown the object each time it changes, or that there is none.
pub async fn until<T>(
    session: &Session,
    resource: &Resource,
    (namespace, name): (&str, &str),
    what: &str,
    patience: Duration,
    mut judge: impl FnMut(Option<&Value>) -> Standing<T>,
) -> Result<T, Refusal> {
    let objects = sheaf_client::objects::for_watcher(
        &session.cluster.objects,
        &resource.for_kube(),
        match resource.is_namespaced {
            true => namespace,
            false => "",
        },
    );
    let deadline = Instant::now() + patience;
    let mut progress = Progress::on_stderr();
    let mut last = "nothing was seen of it yet".to_owned();
    let mut seen = std::pin::pin!(watcher::watch_object(objects, name));
    loop {
        let next = match timeout_at(deadline, seen.next()).await {
            Ok(next) => next,
            Err(_) => {
                let waited =
                    sheaf_resources::age::short(i64::try_from(patience.as_secs()).unwrap_or(i64::MAX));
                return Err(Refusal::TimedOut { what: what.to_owned(), waited, last });
            }
        };
        let object = match next {
            Some(Ok(object)) => object,
            // A line that broke is mended by asking again; a refusal stays one.
            Some(Err(watcher::Error::InitialListFailed(why) | watcher::Error::WatchStartFailed(why)))
                if is_final(&why) =>
            {
                return Err(session.refused(why, &format!("watch the {}", resource.about(namespace, name))));
            }
            Some(Err(_)) | None => {
                sleep(TRY_AGAIN).await;
                continue;
            }
        };
        let value = object.and_then(|object| serde_json::to_value(object).ok()).map(without_owners);
        match judge(value.as_ref()) {
            Standing::There(found) => return Ok(found),
            Standing::OnItsWay(how) => {
                progress.say(&format!("waiting for {what}: {how}"));
                last = how;
            }
            Standing::Partly { done, total } => {
                progress.count(what, done, total);
                last = format!("{} %", done.saturating_mul(100).checked_div(total).unwrap_or(0));
            }
            Standing::Never(why) => {
                return Err(Refusal::Refused { doing: format!("wait for {what}"), message: why });
            }
        }
    }
}

/// Until there is no object of that name any more.
pub async fn until_gone(
    session: &Session,
    resource: &Resource,
    (namespace, name): (&str, &str),
    patience: Duration,
) -> Result<(), Refusal> {
    let what = format!("the {} to be gone", resource.about(namespace, name));
    until(session, resource, (namespace, name), &what, patience, |object| match object {
        None => Standing::There(()),
        Some(object) => Standing::OnItsWay(match object["metadata"]["finalizers"].as_array() {
            Some(held) if !held.is_empty() => "what it is made of is being taken away".to_owned(),
            _ => "it is being deleted".to_owned(),
        }),
    })
    .await
}

/// `90`, `90s`, `5m`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; what fits: 90s, 5m, 1h30m, 90d");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds.min(A_YEAR_SECS)));
    }
    let (mut total, mut number) = (0_u64, String::new());
    for letter in text.chars() {
        let unit = match letter {
            '0'..='9' => {
                number.push(letter);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            _ => return Err(wrong()),
        };
        let count: u64 = std::mem::take(&mut number).parse().map_err(|_| wrong())?;
        total = count.checked_mul(unit).and_then(|more| total.checked_add(more)).ok_or_else(wrong)?;
    }
    match number.is_empty() && !text.is_empty() {
        true => Ok(Duration::from_secs(total.min(A_YEAR_SECS))),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800)] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for odd in ["", "m", "5x", "-1s", "5m3", "99999999999999999999d"] {
            assert!(duration(odd).unwrap_err().contains("what fits"), "{odd}");
        }
    }
}
