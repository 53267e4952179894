//! What is promised to those who wait, on a clock that stands still by itself.

use tokio::time::{Instant, sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Works for `long` once it is seated; answers how long it waited.
fn work(
    queues: &Arc<Queues>,
    who: &str,
    width: usize,
    long: Duration,
) -> tokio::task::JoinHandle<Result<Duration, Unseated>> {
    let (queues, who) = (queues.clone(), who.to_owned());
    tokio::spawn(async move {
        let began = Instant::now();
        let seat = queues.take(&who, width).await?;
        let waited = began.elapsed();
        sleep(long).await;
        drop(seat);
        Ok(waited)
    })
}

async fn all(work: Vec<tokio::task::JoinHandle<Result<Duration, Unseated>>>) -> Vec<Duration> {
    let mut waited = Vec::new();
    for one in work {
        waited.push(one.await.unwrap().unwrap());
    }
    waited
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_has_every_seat_and_never_waits() {
    let queues = Queues::new(64);
    for _ in 0..3 {
        let waited = all((0..64).map(|_| work(&queues, "admin", 1, SECOND)).collect()).await;
        assert!(waited.iter().all(Duration::is_zero));
    }
    assert_eq!(queues.tally(), Tally { dispatched: 192, ..Tally::default() });
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_leaves_no_seat_empty_however_wide_the_requests_are() {
    let queues = Queues::new(128);
    // Lists of all sizes on 64 connections, gets among them, each of which asks again as soon as it is answered.
    let began = Instant::now();
    let connections: Vec<_> = (0..64)
        .map(|n: usize| {
            let queues = queues.clone();
            tokio::spawn(async move {
                for turn in 0..20 {
                    let width = [1, 5, 20, 32][(n + turn) % 4];
                    let _seat = queues.take("admin", width).await.unwrap();
                    sleep(SECOND).await;
                }
            })
        })
        .collect();
    while connections.iter().any(|connection| !connection.is_finished()) {
        sleep(SECOND / 10).await;
        let tally = queues.tally();
        assert!(tally.waiting == 0 || tally.taken >= 128, "{tally:?}");
        assert!(tally.taken < 128 + 32, "{tally:?}");
    }
    // So many seats for so long is the work there was.
    let work = 64 * 20 * (1 + 5 + 20 + 32) / 4;
    assert!(began.elapsed() <= SECOND * work / 128 + SECOND * 20, "{:?}", began.elapsed());
    assert_eq!((queues.tally().dispatched, queues.tally().taken), (64 * 20, 0));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_holds_up_another_for_one_request_at_most() {
    let queues = Queues::new(4);
    let flood: Vec<_> = (0..200).map(|_| work(&queues, "flood", 1, SECOND / 4)).collect();
    sleep(SECOND / 100).await;
    for _ in 0..20 {
        let waited = work(&queues, "other", 1, SECOND / 100).await.unwrap().unwrap();
        assert!(waited <= SECOND / 4, "{waited:?}");
    }
    assert_eq!(all(flood).await.len(), 200, "and the flood is served, too");
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_turn_whoever_asks_for_more() {
    let queues = Queues::new(1);
    let first = queues.take("z", 1).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for who in ["a", "a", "a", "b", "c", "b"] {
        let (queues, order) = (queues.clone(), order.clone());
        waiting.push(tokio::spawn(async move {
            let _seat = queues.take(who, 1).await.unwrap();
            order.lock().push(who);
        }));
        sleep(SECOND / 100).await;
    }
    drop(first);
    for one in waiting {
        one.await.unwrap();
    }
    assert_eq!(*order.lock(), ["a", "b", "c", "a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_wide_request_is_not_overtaken_for_ever() {
    let queues = Queues::new(4);
    let narrow: Vec<_> = (0..4).map(|_| work(&queues, "narrow", 1, SECOND)).collect();
    sleep(SECOND / 100).await;
    let wide = work(&queues, "wide", 4, SECOND);
    sleep(SECOND / 100).await;
    let more: Vec<_> = (0..40).map(|_| work(&queues, "narrow", 1, SECOND / 10)).collect();
    assert!(wide.await.unwrap().unwrap() <= SECOND);
    all(narrow).await;
    all(more).await;
    assert_eq!(queues.tally().taken, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_wider_than_everything_is_served_alone() {
    let queues = Queues::new(4);
    let seat = queues.take("wide", 1000).await.unwrap();
    assert_eq!(queues.tally().taken, 4);
    drop(seat);
    assert_eq!(queues.tally().taken, 0);
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_long_enough_is_told_so() {
    let queues = Queues::new(1);
    let _held = queues.take("a", 1).await.unwrap();
    let began = Instant::now();
    assert_eq!(queues.take("b", 1).await.unwrap_err(), Unseated::Late);
    assert_eq!(began.elapsed(), PATIENCE);
    assert_eq!((queues.tally().waiting, queues.tally().late), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_its_own_and_nobody_elses() {
    let queues = Queues::new(1);
    let held = queues.take("a", 1).await.unwrap();
    let waiting: Vec<_> = (0..MOST_OF_ONE).map(|_| work(&queues, "flood", 1, Duration::ZERO)).collect();
    sleep(SECOND / 100).await;
    assert_eq!(queues.take("flood", 1).await.unwrap_err(), Unseated::Full);
    let other = work(&queues, "other", 1, Duration::ZERO);
    sleep(SECOND).await;
    drop(held);
    assert!(other.await.unwrap().is_ok());
    all(waiting).await;
}

#[tokio::test(start_paused = true)]
async fn many_floods_together_leave_a_place_for_a_newcomer() {
    let queues = Queues::new(1);
    let _held = queues.take("a", 1).await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..100 {
        waiting.extend((0..MOST_OF_ONE).map(|_| work(&queues, &format!("flood {n}"), 1, SECOND)));
    }
    sleep(SECOND / 100).await;
    assert!(queues.tally().waiting <= MOST + 100);
    let newcomer = work(&queues, "newcomer", 1, Duration::ZERO);
    sleep(SECOND / 100).await;
    assert!(!newcomer.is_finished(), "it waits, and is not refused");
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_the_queue_and_gives_the_seat_back() {
    let queues = Queues::new(1);
    let seated = work(&queues, "a", 1, 3600 * SECOND);
    sleep(SECOND / 100).await;
    let waiting = work(&queues, "b", 1, SECOND);
    sleep(SECOND / 100).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!((queues.tally().waiting, queues.tally().left), (0, 1));
    seated.abort();
    assert!(seated.await.unwrap_err().is_cancelled());
    assert_eq!((queues.tally().taken, queues.tally().seated), (0, 0));
    assert!(queues.state.lock().flows.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_being_called_gives_the_seat_back() {
    let queues = Queues::new(1);
    let held = queues.take("a", 1).await.unwrap();
    let mut waiting = Box::pin(queues.take("b", 1));
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(held);
    assert_eq!(queues.tally().taken, 1, "it has been called");
    drop(waiting);
    assert_eq!(queues.tally().taken, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_the_seat_back() {
    let queues = Queues::new(1);
    let of_panic = queues.clone();
    let panicked = tokio::spawn(async move {
        let _seat = of_panic.take("a", 1).await.unwrap();
        panic!("on purpose");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(queues.tally().taken, 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_another_stands_up_and_sits_down_again_at_once() {
    let queues = Queues::new(2);
    let wide = queues.take("a", 2).await.unwrap();
    let (tell, told) = oneshot::channel::<()>();
    let mut waiting = Box::pin(wide.without(told));
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!((queues.tally().seated, queues.tally().taken), (0, 0));
    let others = [queues.take("b", 1).await.unwrap(), queues.take("b", 1).await.unwrap()];
    tell.send(()).unwrap();
    assert!(waiting.await.is_ok(), "although there is no seat");
    assert_eq!(queues.tally().taken, 4);
    let next = work(&queues, "c", 1, Duration::ZERO);
    drop(others);
    sleep(SECOND).await;
    assert!(!next.is_finished(), "all seats are taken still");
    drop(wide);
    next.await.unwrap().unwrap();
    assert_eq!(queues.tally(), Tally { dispatched: 4, ..Tally::default() });
    assert!(queues.state.lock().flows.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_standing_takes_no_seat_with_it() {
    let queues = Queues::new(1);
    let of_task = queues.clone();
    let standing = tokio::spawn(async move {
        let seat = of_task.take("a", 1).await.unwrap();
        seat.without(std::future::pending::<()>()).await;
    });
    sleep(SECOND).await;
    standing.abort();
    assert!(standing.await.unwrap_err().is_cancelled());
    assert_eq!(queues.tally(), Tally { dispatched: 1, ..Tally::default() });
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_any_length_refuses_nobody() {
    let queues = Queues::of_any_length(1);
    let held = queues.take("a", 1).await.unwrap();
    let waiting: Vec<_> = (0..4 * MOST).map(|_| work(&queues, "a", 1, Duration::ZERO)).collect();
    sleep(SECOND).await;
    drop(held);
    assert_eq!(all(waiting).await.len(), 4 * MOST);
}
