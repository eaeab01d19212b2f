// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS messages: a cell's query, its response, and the addresses in that.
//!
//! No message of a cell is forwarded as it came. The gateway parses it and composes a query of its own: a fresh ID, the name in lower
//! case, one question, no options. The response is parsed and composed anew in the same way, so that neither side receives anything that
//! the gateway does not understand.

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Label, Name, OPCODE, Packet, PacketFlag, QCLASS, RCODE};
use std::net::IpAddr;

/// The bytes of a message's record counts, without that of questions.
const COUNTS: std::ops::Range<usize> = 4..12;

/// A cell's query.
#[derive(Clone, Debug)]
pub(crate) struct DnsQuestion {
    /// The question as the cell sent it, letter case included.
    original: simple_dns::Question<'static>,
    /// The question as resolvers receive it.
    canonical: simple_dns::Question<'static>,
    /// The cell's query ID, and that of the last query to a resolver.
    query_id: u16,
    resolver_query_id: u16,
    /// The cell wants recursion.
    is_recursive: bool,
    /// The name in lower case, without a trailing dot.
    pub(crate) name: String,
}

/// A parsed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsResponse {
    /// The message for the cell.
    pub(crate) message: Vec<u8>,
    /// The addresses of the name, each with its time to live in seconds.
    pub(crate) addresses: Vec<(IpAddr, u32)>,
    /// The resolver failed, and another might not.
    pub(crate) failed: bool,
}

/// A name in lower case.
fn canonical(name: &Name) -> Name<'static> {
    let labels: Vec<_> = name.as_bytes().map(|label| Label::new_unchecked(label.to_ascii_lowercase())).collect();
    Name::new_with_labels(&labels)
}

/// Parses a message with one question of class IN, a query or a response. Returns it with the question in lower case.
fn parse(message: &[u8], is_answer: bool) -> Option<(Packet<'_>, simple_dns::Question<'static>)> {
    let [0, 1, answers @ .., _, _] = message.get(COUNTS)? else { return None };
    // The counts of a query determine how much memory its parsing takes.
    if !is_answer && (answers != [0; 4] || message.get(10..12)? > &[0, 2][..]) {
        return None;
    }
    let packet = Packet::parse(message).ok()?;
    let question = packet.questions.first()?;
    let is_sound = packet.has_flags(PacketFlag::RESPONSE) == is_answer
        && packet.opcode() == OPCODE::StandardQuery
        && question.qclass == QCLASS::CLASS(CLASS::IN);
    let canonical = simple_dns::Question::new(canonical(&question.qname), question.qtype, question.qclass, false);
    is_sound.then_some((packet, canonical))
}

impl DnsQuestion {
    /// Parses a message of a cell, which may be any bytes.
    pub(crate) fn parse(message: &[u8]) -> Option<DnsQuestion> {
        let (packet, canonical) = parse(message, false)?;
        Some(DnsQuestion {
            original: packet.questions.first()?.clone().into_owned(),
            query_id: packet.id(),
            resolver_query_id: 0,
            is_recursive: packet.has_flags(PacketFlag::RECURSION_DESIRED),
            name: canonical.qname.to_string(),
            canonical,
        })
    }

    /// The query for a resolver, with an ID of the gateway. `None` if the name is too long.
    pub(crate) fn query_message(&mut self, query_id: u16) -> Option<Vec<u8>> {
        self.resolver_query_id = query_id;
        let mut packet = Packet::new_query(query_id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        packet.questions = vec![self.canonical.clone()];
        packet.build_bytes_vec().ok()
    }

    /// Parses the response to the last query. `None` if it does not match that.
    pub(crate) fn parse_response(&self, reply: &[u8]) -> Option<DnsResponse> {
        let (packet, canonical) = parse(reply, true)?;
        let is_ours =
            packet.id() == self.resolver_query_id && canonical.qname == self.canonical.qname && canonical.qtype == self.canonical.qtype;
        if !is_ours {
            return None;
        }
        let addresses = self.addresses(&packet);
        let code = match packet.rcode() {
            code @ (RCODE::NoError | RCODE::NameError | RCODE::FormatError | RCODE::NotImplemented | RCODE::Refused) => code,
            _ => RCODE::ServerFailure,
        };
        let failed = matches!(code, RCODE::ServerFailure | RCODE::Refused | RCODE::NotImplemented);
        let mut message = self.reply(code);
        if packet.has_flags(PacketFlag::TRUNCATION) {
            message.set_flags(PacketFlag::TRUNCATION);
        }
        message.answers = packet.answers;
        message.name_servers = packet.name_servers;
        message.additional_records = packet.additional_records;
        Some(DnsResponse { message: message.build_bytes_vec_compressed().ok()?, addresses, failed })
    }

    /// The addresses of the name itself, and of the names that it is an alias of.
    fn addresses(&self, packet: &Packet<'_>) -> Vec<(IpAddr, u32)> {
        let mut name = self.canonical.qname.clone();
        let mut addresses = Vec::new();
        for record in packet.answers.iter().filter(|record| record.class == CLASS::IN) {
            if canonical(&record.name) != name {
                continue;
            }
            match &record.rdata {
                RData::A(a) => addresses.push((IpAddr::V4(a.address.into()), record.ttl)),
                RData::AAAA(aaaa) => addresses.push((IpAddr::V6(aaaa.address.into()), record.ttl)),
                RData::CNAME(other) => name = canonical(&other.0),
                _ => {}
            }
        }
        addresses
    }

    /// The response that refuses the query.
    pub(crate) fn refused_response(&self) -> Vec<u8> {
        self.reply(RCODE::Refused).build_bytes_vec().unwrap_or_default()
    }

    /// The response that reports that no resolver answered.
    pub(crate) fn servfail_response(&self) -> Vec<u8> {
        self.reply(RCODE::ServerFailure).build_bytes_vec().unwrap_or_default()
    }

    /// A response to the cell without records.
    fn reply(&self, code: RCODE) -> Packet<'_> {
        let mut reply = Packet::new_reply(self.query_id);
        reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
        if self.is_recursive {
            reply.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        *reply.rcode_mut() = code;
        reply.questions = vec![self.original.clone()];
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::{DnsQuestion, DnsResponse};
    use simple_dns::rdata::{A, CNAME, RData};
    use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};

    fn question(name: &str) -> Vec<u8> {
        let mut packet = Packet::new_query(0x1234);
        let name = Name::new(name).expect("a name");
        packet.questions.push(simple_dns::Question::new(name, QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().expect("it can be written")
    }

    fn reply(question: &[u8]) -> Vec<u8> {
        let mut packet = Packet::parse(question).expect("a question").into_reply();
        let record = |name, data| ResourceRecord::new(Name::new(name).expect("a name"), CLASS::IN, 300, data);
        packet.answers.push(record("www.example.org", RData::CNAME(CNAME(Name::new("cdn.example.net").expect("a name")))));
        packet.answers.push(record("cdn.example.net", RData::A(A { address: 0x0808_0808 })));
        packet.build_bytes_vec_compressed().expect("it can be written")
    }

    #[test]
    fn questions_go_out_under_another_number_and_come_back_under_their_own() {
        let mut query = DnsQuestion::parse(&question("www.Example.org")).expect("a question");
        assert_eq!(query.name, "www.example.org");
        let reply = reply(&query.query_message(0xabcd).expect("it can be written"));
        let DnsResponse { message, addresses, failed } = query.parse_response(&reply).expect("an answer to it");
        assert_eq!((addresses, failed), (vec![("8.8.8.8".parse().expect("an address"), 300)], false));
        let heard = Packet::parse(&message).expect("a message");
        assert_eq!((heard.id(), heard.rcode(), heard.answers.len()), (0x1234, RCODE::NoError, 2));
        assert_eq!(heard.questions[0].qname.to_string(), "www.Example.org", "the letter case of the cell");
        // Another ID, or another name.
        let _ = query.query_message(0xabce);
        assert_eq!(query.parse_response(&reply), None, "another number");
        let mut other = DnsQuestion::parse(&question("other.org")).expect("a question");
        let _ = other.query_message(0xabcd);
        assert_eq!(other.parse_response(&reply), None);
    }

    #[test]
    fn a_question_carries_nothing_but_its_name_and_type() {
        let plain = DnsQuestion::parse(&question("www.example.org")).expect("a question").query_message(7);
        let mut loud = question("WwW.eXample.ORG");
        // Other flags, an option with data, and trailing bytes.
        loud[3] |= 0x30;
        loud[11] = 1;
        loud.extend([0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, 10, 0xfd, 0xe9, 0, 6]);
        loud.extend(b"secretand more");
        assert_eq!(DnsQuestion::parse(&loud).expect("a question").query_message(7), plain);
        // Of another class than IN.
        let end = plain.as_ref().map_or(0, Vec::len);
        let mut chaos = question("www.example.org");
        chaos[end - 1] = 3;
        assert!(DnsQuestion::parse(&chaos).is_none());
    }

    #[test]
    fn an_answer_opens_the_addresses_of_its_name_alone() {
        let mut query = DnsQuestion::parse(&question("www.example.org")).expect("a question");
        let message = query.query_message(1).expect("it can be written");
        let mut packet = Packet::parse(&message).expect("a question").into_reply();
        let record = |name, address| ResourceRecord::new(Name::new(name).expect("a name"), CLASS::IN, 300, RData::A(A { address }));
        packet.answers.extend([record("other.org", 1), record("WWW.example.org", 2)]);
        *packet.opt_mut() = Some(simple_dns::rdata::OPT { opt_codes: Vec::new(), udp_packet_size: 1232, version: 0 });
        let answer = query.parse_response(&packet.build_bytes_vec().expect("it can be written")).expect("an answer");
        assert_eq!(answer.addresses, [("0.0.0.2".parse().expect("an address"), 300)]);
        assert!(Packet::parse(&answer.message).expect("a message").opt().is_none());
    }

    #[test]
    fn a_refusal_answers_the_question() {
        let query = question("www.example.org");
        let refused = DnsQuestion::parse(&query).expect("a question").refused_response();
        let packet = Packet::parse(&refused).expect("a message");
        assert_eq!((packet.id(), packet.rcode(), packet.questions.len()), (0x1234, RCODE::Refused, 1));
    }

    #[test]
    fn malformed_questions_are_rejected() {
        let good = question("www.example.org");
        assert!(DnsQuestion::parse(&reply(&good)).is_none(), "an answer");
        for length in 0..good.len() {
            assert!(DnsQuestion::parse(&good[..length]).is_none(), "the first {length} bytes");
        }
        for (place, byte) in [(5, 0), (5, 2), (4, 255), (6, 1), (8, 1), (10, 255), (2, 0x78)] {
            let mut bad = good.clone();
            bad[place] = byte;
            assert!(DnsQuestion::parse(&bad).is_none(), "byte {place} is {byte}");
        }
        let mut seed = 1_u64;
        for _ in 0..100_000 {
            let mut bad = reply(&good);
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = (seed >> 33) as usize % bad.len();
                bad[place] = (seed >> 56) as u8;
            }
            let _ = DnsQuestion::parse(&bad);
            let _ = DnsQuestion::parse(&good).expect("a question").parse_response(&bad);
        }
    }
}
