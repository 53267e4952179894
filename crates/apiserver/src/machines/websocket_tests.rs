//! The bridge between a WebSocket and a stream, with both ends in memory.

use tokio::{io::DuplexStream, task::JoinHandle};

use super::*;

struct Ends {
    client: WebSocketStream<DuplexStream>,
    machine: DuplexStream,
    stop: watch::Sender<bool>,
    bridge: JoinHandle<()>,
}

async fn bridged(framing: Framing) -> Ends {
    let (client, at_server) = tokio::io::duplex(256 * 1024);
    let (machine, at_agent) = tokio::io::duplex(256 * 1024);
    let (stop, stopping) = watch::channel(false);
    let bridge = tokio::spawn(bridge(at_server, at_agent, framing, stopping));
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    Ends { client, machine, stop, bridge }
}

async fn next_close(client: &mut WebSocketStream<DuplexStream>) -> CloseCode {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(Some(frame)))) => return frame.code,
            Some(Ok(_)) => {}
            other => panic!("no close frame: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn payload_goes_both_ways_in_binary_messages_of_bounded_size() {
    let mut ends = bridged(Framing::Bytes).await;
    ends.client.send(Message::Binary(Bytes::from_static(b"ls\n"))).await.unwrap();
    let mut typed = [0; 3];
    ends.machine.read_exact(&mut typed).await.unwrap();
    assert_eq!(&typed, b"ls\n");

    let long = vec![7; 100 * 1024];
    ends.machine.write_all(&long).await.unwrap();
    let mut read = Vec::new();
    while read.len() < long.len() {
        let Some(Ok(Message::Binary(piece))) = ends.client.next().await else { panic!("not binary") };
        assert!(piece.len() <= PIECE);
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, long);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ends_closes_normally() {
    let mut ends = bridged(Framing::Bytes).await;
    ends.machine.write_all(b"last words").await.unwrap();
    drop(ends.machine);
    let Some(Ok(Message::Binary(words))) = ends.client.next().await else { panic!("words were lost") };
    assert_eq!(&words[..], b"last words");
    assert_eq!(next_close(&mut ends.client).await, CloseCode::Normal);
    ends.bridge.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_lets_the_machine_go() {
    let mut ends = bridged(Framing::Bytes).await;
    let goodbye = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    ends.client.close(Some(goodbye)).await.unwrap();
    let mut rest = Vec::new();
    ends.machine.read_to_end(&mut rest).await.unwrap();
    assert_eq!(next_close(&mut ends.client).await, CloseCode::Normal);
    ends.bridge.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_message_is_one_datagram() {
    let mut ends = bridged(Framing::Datagrams).await;
    ends.client.send(Message::Binary(Bytes::from_static(b"ask"))).await.unwrap();
    // Longer than any datagram: lost, and nothing else with it.
    ends.client.send(Message::Binary(vec![0; 70_000].into())).await.unwrap();
    ends.client.send(Message::Binary(Bytes::new())).await.unwrap();
    let mut framed = [0; 7];
    ends.machine.read_exact(&mut framed).await.unwrap();
    assert_eq!(&framed, b"\0\x03ask\0\0");

    ends.machine.write_all(b"\0\x02an").await.unwrap();
    ends.machine.write_all(b"\0").await.unwrap();
    ends.machine.write_all(b"\x03swe").await.unwrap();
    for wanted in [&b"an"[..], b"swe"] {
        let Some(Ok(Message::Binary(datagram))) = ends.client.next().await else { panic!("no datagram") };
        assert_eq!(&datagram[..], wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_pinged_and_given_up_when_it_stays_silent() {
    let mut ends = bridged(Framing::Bytes).await;
    assert!(matches!(ends.client.next().await, Some(Ok(Message::Ping(_)))));
    // From here on the client reads nothing, so it answers nothing.
    let began = Instant::now();
    let mut rest = Vec::new();
    ends.machine.read_to_end(&mut rest).await.unwrap();
    assert!(began.elapsed() <= SILENCE + PING_EVERY);
    ends.bridge.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_may_say_nothing_for_long() {
    let Ends { mut client, machine, stop, bridge } = bridged(Framing::Bytes).await;
    let reading = tokio::spawn(async move { next_close(&mut client).await });
    tokio::time::sleep(SILENCE * 5).await;
    assert!(!bridge.is_finished());
    drop(machine);
    assert_eq!(reading.await.unwrap(), CloseCode::Normal);
    drop(stop);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_says_so() {
    let mut ends = bridged(Framing::Bytes).await;
    ends.stop.send_replace(true);
    assert_eq!(next_close(&mut ends.client).await, CloseCode::Away);
    ends.bridge.await.unwrap();
}
