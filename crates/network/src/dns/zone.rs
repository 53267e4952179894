//! The names of guests and what is said about them. Pure.
//!
//! Names end in the zone's domain, whatever case they are asked in. Inside the domain and
//! inside the segment's addresses the answer is final, also when it is "no such name":
//! nobody else knows better, and nobody outside needs to hear what guests look for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use hickory_proto::{
    op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record, RecordType,
        rdata::{A, PTR, SOA},
    },
};
use ipnet::{IpNet, Ipv4Net};

/// How long an answer may be kept, in seconds: a machine that is made again under the same
/// name is found soon.
const TTL: u32 = 5;
/// What fits in a datagram where the asker says nothing about it.
const ORDINARY_DATAGRAM: u16 = 512;
/// The most that is promised to take or give in one datagram.
const LARGEST_DATAGRAM: u16 = 1232;

/// The names this host knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    domain: Name,
    segment: Ipv4Net,
    forward: BTreeMap<Name, BTreeSet<Ipv4Addr>>,
    reverse: BTreeMap<Ipv4Addr, Name>,
}

/// What becomes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This is the answer.
    Answer(Box<Message>),
    /// Somebody else knows.
    Forward,
    /// It is not a question, and gets no answer.
    Ignore,
}

impl Zone {
    /// A zone without names. None if `domain` is not a domain name.
    pub fn new(domain: &str, segment: Ipv4Net) -> Option<Zone> {
        let mut domain = Name::from_ascii(domain).ok()?.to_lowercase();
        domain.set_fqdn(true);
        Some(Zone { domain, segment, forward: BTreeMap::new(), reverse: BTreeMap::new() })
    }

    /// The same zone with these names in it: each without the domain (`web.default`), and
    /// its address. A name that cannot be one is left out; an address that has two
    /// names is known backwards by the first.
    pub fn with<'a>(&self, names: impl IntoIterator<Item = (&'a str, Ipv4Addr)>) -> Zone {
        let mut zone = Zone { forward: BTreeMap::new(), reverse: BTreeMap::new(), ..self.clone() };
        for (name, address) in names {
            let full = Name::from_ascii(name).and_then(|name| name.append_domain(&self.domain));
            match full.map(|name| name.to_lowercase()) {
                Ok(full) if crate::addresses::is_hostname(name) => {
                    zone.reverse.entry(address).or_insert_with(|| full.clone());
                    zone.forward.entry(full).or_default().insert(address);
                }
                _ => tracing::warn!(name, "cannot be a host name; it will not resolve"),
            }
        }
        zone
    }

    pub fn decide(&self, question: &Message) -> Decision {
        if question.metadata.message_type != MessageType::Query {
            return Decision::Ignore;
        }
        let say = |code| Decision::Answer(Box::new(begin(question, code)));
        if question.metadata.op_code != OpCode::Query {
            return say(ResponseCode::NotImp);
        }
        let [query] = question.queries.as_slice() else { return say(ResponseCode::FormErr) };
        if query.query_class() != DNSClass::IN {
            return say(ResponseCode::Refused);
        }
        let name = query.name().to_lowercase();
        if self.domain.zone_of(&name) {
            return Decision::Answer(Box::new(self.about_a_name(question, query, &name)));
        }
        match name.parse_arpa_name() {
            Ok(IpNet::V4(range)) if self.segment.contains(&range) => {
                Decision::Answer(Box::new(self.about_an_address(question, query, range)))
            }
            _ => Decision::Forward,
        }
    }

    fn about_a_name(&self, question: &Message, query: &Query, name: &Name) -> Message {
        let Some(addresses) = self.forward.get(name) else {
            // `default.sheaf.internal` has no address, but what is below it has.
            let is_above = name == &self.domain || self.forward.keys().any(|known| name.zone_of(known));
            return self.nothing(question, is_above);
        };
        match query.query_type() {
            RecordType::A | RecordType::ANY => {
                let mut answer = self.known(question);
                for address in addresses {
                    answer.add_answer(Record::from_rdata(query.name().clone(), TTL, RData::A(A(*address))));
                }
                answer
            }
            _ => self.nothing(question, true),
        }
    }

    fn about_an_address(&self, question: &Message, query: &Query, range: Ipv4Net) -> Message {
        if range.prefix_len() < 32 {
            return self.nothing(question, true);
        }
        match (self.reverse.get(&range.addr()), query.query_type()) {
            (Some(name), RecordType::PTR | RecordType::ANY) => {
                let mut answer = self.known(question);
                let record = Record::from_rdata(query.name().clone(), TTL, RData::PTR(PTR(name.clone())));
                answer.add_answer(record);
                answer
            }
            (found, _) => self.nothing(question, found.is_some()),
        }
    }

    fn known(&self, question: &Message) -> Message {
        let mut answer = begin(question, ResponseCode::NoError);
        answer.metadata.authoritative = true;
        answer
    }

    /// "No such name", or "nothing of that kind", with how long that may be believed.
    fn nothing(&self, question: &Message, exists: bool) -> Message {
        let mut answer = self.known(question);
        if !exists {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        let soa = SOA::new(self.domain.clone(), self.domain.clone(), 1, 60, 60, 60, TTL);
        answer.add_authority(Record::from_rdata(self.domain.clone(), TTL, RData::SOA(soa)));
        answer
    }
}

/// An answer of ours to a question, with nothing in it yet.
pub(super) fn begin(question: &Message, code: ResponseCode) -> Message {
    let metadata = &question.metadata;
    let mut answer = Message::response(metadata.id, metadata.op_code);
    answer.metadata = Metadata::response_from_request(metadata);
    answer.metadata.recursion_available = true;
    answer.metadata.response_code = code;
    answer.add_queries(question.queries.iter().cloned());
    if question.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGEST_DATAGRAM);
        answer.set_edns(edns);
    }
    answer
}

/// The bytes of an answer that goes into one datagram, cut short if the asker cannot take
/// so much: it then asks again over TCP.
pub(super) fn for_a_datagram(answer: &Message, question: &Message) -> Option<Vec<u8>> {
    let offered = question.edns.as_ref().map_or(ORDINARY_DATAGRAM, Edns::max_payload);
    let room = usize::from(offered.clamp(ORDINARY_DATAGRAM, LARGEST_DATAGRAM));
    let bytes = answer.to_vec().ok()?;
    if bytes.len() <= room { Some(bytes) } else { answer.truncate().to_vec().ok() }
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
