//! Promises about what is said of names.

use proptest::prelude::*;

use super::*;

fn zone() -> Zone {
    let zone = Zone::new("sheaf.internal", "10.52.0.0/16".parse().unwrap()).unwrap();
    zone.with([
        ("web.default", Ipv4Addr::new(10, 52, 0, 2)),
        ("web.default", Ipv4Addr::new(10, 52, 0, 3)),
        ("db.prod", Ipv4Addr::new(10, 52, 1, 1)),
        ("not a name", Ipv4Addr::new(10, 52, 1, 2)),
    ])
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// The answer in the words of `dig +short`, or its code when there is none.
fn said(name: &str, kind: RecordType) -> Vec<String> {
    match zone().decide(&question(name, kind)) {
        Decision::Answer(answer) if answer.answers.is_empty() => {
            assert!(!answer.authorities.is_empty(), "how long it may be believed is said");
            vec![format!("{:?}", answer.metadata.response_code)]
        }
        Decision::Answer(answer) => {
            assert!(answer.metadata.authoritative && answer.metadata.recursion_available);
            assert_eq!((answer.metadata.id, answer.metadata.message_type), (7, MessageType::Response));
            answer.answers.iter().map(|record| record.data.to_string()).collect()
        }
        Decision::Forward => vec!["forward".to_owned()],
        Decision::Ignore => vec!["ignore".to_owned()],
    }
}

#[test]
fn a_guest_is_found_by_its_name_in_any_case() {
    assert_eq!(said("web.default.sheaf.internal.", RecordType::A), ["10.52.0.2", "10.52.0.3"]);
    assert_eq!(said("DB.Prod.Sheaf.Internal.", RecordType::A), ["10.52.1.1"]);
}

#[test]
fn an_address_is_found_to_be_whose_it_is() {
    assert_eq!(said("1.1.52.10.in-addr.arpa.", RecordType::PTR), ["db.prod.sheaf.internal."]);
    assert_eq!(said("9.9.52.10.in-addr.arpa.", RecordType::PTR), ["NXDomain"]);
}

#[test]
fn what_a_name_does_not_have_is_told_apart_from_no_such_name() {
    assert_eq!(said("web.default.sheaf.internal.", RecordType::AAAA), ["NoError"]);
    assert_eq!(said("default.sheaf.internal.", RecordType::A), ["NoError"]);
    assert_eq!(said("sheaf.internal.", RecordType::A), ["NoError"]);
    assert_eq!(said("no.default.sheaf.internal.", RecordType::A), ["NXDomain"]);
    assert_eq!(said("web.sheaf.internal.", RecordType::A), ["NXDomain"]);
}

#[test]
fn everything_else_is_for_somebody_else() {
    for name in ["example.org.", "sheaf.internal.example.org.", "1.0.0.127.in-addr.arpa.", "internal.", "."] {
        assert_eq!(said(name, RecordType::A), ["forward"], "{name}");
    }
    assert_eq!(said("10.in-addr.arpa.", RecordType::PTR), ["forward"], "wider than the segment");
}

#[test]
fn what_is_no_question_is_refused_or_not_heard() {
    let code = |message: &Message| match zone().decide(message) {
        Decision::Answer(answer) => Some(answer.metadata.response_code),
        Decision::Forward | Decision::Ignore => None,
    };
    let mut answer = question("example.org.", RecordType::A);
    answer.metadata.message_type = MessageType::Response;
    assert_eq!(zone().decide(&answer), Decision::Ignore, "or two servers would answer each other for ever");
    let mut update = question("example.org.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(code(&update), Some(ResponseCode::NotImp));
    let mut two = question("example.org.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(code(&two), Some(ResponseCode::FormErr));
    let mut chaos = question("version.bind.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(&chaos), Some(ResponseCode::Refused));
}

#[test]
fn an_answer_too_long_for_a_datagram_is_cut_short_and_says_so() {
    let names: Vec<_> = (0..200).map(|number| ("big.default", Ipv4Addr::new(10, 52, 7, number))).collect();
    let zone = zone().with(names);
    let question = question("big.default.sheaf.internal.", RecordType::A);
    let Decision::Answer(answer) = zone.decide(&question) else { panic!("it is ours to answer") };
    let bytes = for_a_datagram(&answer, &question).unwrap();
    assert!(bytes.len() <= 512);
    assert!(Message::from_vec(&bytes).unwrap().metadata.truncation);
}

proptest! {
    #[test]
    fn no_bytes_make_it_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(question) = Message::from_vec(&bytes)
            && let Decision::Answer(answer) = zone().decide(&question)
        {
            let _ = for_a_datagram(&answer, &question);
        }
    }

    #[test]
    fn a_question_broken_anywhere_never_makes_it_fall_over(at in 0usize..44, byte: u8, length in 0usize..60) {
        let mut bytes = question("web.default.sheaf.internal.", RecordType::A).to_vec().unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(length);
        if let Ok(question) = Message::from_vec(&bytes)
            && let Decision::Answer(answer) = zone().decide(&question)
        {
            prop_assert!(for_a_datagram(&answer, &question).is_none_or(|bytes| bytes.len() <= 1232));
        }
    }
}
