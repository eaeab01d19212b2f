// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the domain name system: what a cell asks, what it is told, and the addresses that are in that.

use simple_dns::rdata::RData;
use simple_dns::{OPCODE, Packet, PacketFlag, RCODE};
use std::net::IpAddr;

/// Where the counts of a message's parts begin, and where they end.
const COUNTS: std::ops::Range<usize> = 4..12;

/// A question that a cell asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The message as it came, but for its number.
    message: Vec<u8>,
    /// The number by which the cell knows its question.
    number: u16,
    /// The name that it is about, in lower case, without a dot at its end.
    pub(crate) name: String,
}

/// An answer, with what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The message, as the cell expects it.
    pub(crate) message: Vec<u8>,
    /// The addresses of the name, and for how many seconds they are.
    pub(crate) addresses: Vec<(IpAddr, u32)>,
    /// The resolver could not say anything, and another might.
    pub(crate) failed: bool,
}

/// The name that a message with one question is about, and the message.
fn asked<'a>(message: &'a [u8], answer: bool) -> Option<(String, Packet<'a>)> {
    let [0, 1, answers @ .., _, _] = message.get(COUNTS)? else { return None };
    // How much a question says that it holds is how much memory it takes.
    if !answer && (answers != [0; 4] || message.get(10..12)? > &[0, 2][..]) {
        return None;
    }
    let packet = Packet::parse(message).ok()?;
    let is_sound = packet.has_flags(PacketFlag::RESPONSE) == answer && packet.opcode() == OPCODE::StandardQuery;
    let name = packet.questions.first()?.qname.to_string().to_ascii_lowercase();
    is_sound.then_some((name, packet))
}

impl Question {
    /// Reads what a cell sent, which may be anything.
    pub(crate) fn read(message: &[u8]) -> Option<Question> {
        let (name, packet) = asked(message, false)?;
        Some(Question { number: packet.id(), name, message: message.to_vec() })
    }

    /// The message for a resolver, under a number of the gateway's own.
    pub(crate) fn message(&mut self, number: u16) -> &[u8] {
        if let Some(place) = self.message.first_chunk_mut() {
            *place = number.to_be_bytes();
        }
        &self.message
    }

    /// Reads what came back for the question as it was asked last. Nothing if it is no answer to it.
    pub(crate) fn answer(&self, reply: &[u8]) -> Option<Answer> {
        if reply.first_chunk::<2>() != self.message.first_chunk() {
            return None;
        }
        let (name, packet) = asked(reply, true)?;
        if name != self.name {
            return None;
        }
        let addresses = packet.answers.iter().filter_map(|record| match &record.rdata {
            RData::A(a) => Some((IpAddr::V4(a.address.into()), record.ttl)),
            RData::AAAA(aaaa) => Some((IpAddr::V6(aaaa.address.into()), record.ttl)),
            _ => None,
        });
        let failed = matches!(packet.rcode(), RCODE::ServerFailure | RCODE::Refused | RCODE::NotImplemented);
        let mut message = reply.to_vec();
        if let Some(place) = message.first_chunk_mut() {
            *place = self.number.to_be_bytes();
        }
        Some(Answer { addresses: addresses.collect(), message, failed })
    }

    /// The message that says that nobody may ask this.
    pub(crate) fn refused(&self) -> Vec<u8> {
        self.without_answer(RCODE::Refused)
    }

    /// The message that says that no resolver knew.
    pub(crate) fn failed(&self) -> Vec<u8> {
        self.without_answer(RCODE::ServerFailure)
    }

    fn without_answer(&self, code: RCODE) -> Vec<u8> {
        let Ok(asked) = Packet::parse(&self.message) else { return Vec::new() };
        let mut reply = Packet::new_reply(self.number);
        reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
        if asked.has_flags(PacketFlag::RECURSION_DESIRED) {
            reply.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        *reply.rcode_mut() = code;
        reply.questions = asked.questions;
        reply.build_bytes_vec().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Question};
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
        let mut asked = Question::read(&question("www.Example.org")).expect("a question");
        assert_eq!(asked.name, "www.example.org");
        let reply = reply(asked.message(0xabcd));
        let Answer { message, addresses, failed } = asked.answer(&reply).expect("an answer to it");
        assert_eq!((addresses, failed), (vec![("8.8.8.8".parse().expect("an address"), 300)], false));
        assert_eq!((&message[..2], &message[2..]), (&[0x12, 0x34][..], &reply[2..]));
        // Another number, or another name.
        let _ = asked.message(0xabce);
        assert_eq!(asked.answer(&reply), None);
        let mut other = Question::read(&question("other.org")).expect("a question");
        let _ = other.message(0xabcd);
        assert_eq!(other.answer(&reply), None);
    }

    #[test]
    fn a_refusal_answers_the_question() {
        let asked = question("www.example.org");
        let refused = Question::read(&asked).expect("a question").refused();
        let packet = Packet::parse(&refused).expect("a message");
        assert_eq!((packet.id(), packet.rcode(), packet.questions.len()), (0x1234, RCODE::Refused, 1));
    }

    #[test]
    fn what_is_no_question_is_none() {
        let good = question("www.example.org");
        assert_eq!(Question::read(&reply(&good)), None, "an answer");
        for length in 0..good.len() {
            assert_eq!(Question::read(&good[..length]), None, "the first {length} bytes");
        }
        for (place, byte) in [(5, 0), (5, 2), (4, 255), (6, 1), (8, 1), (10, 255), (2, 0x78)] {
            let mut bad = good.clone();
            bad[place] = byte;
            assert_eq!(Question::read(&bad), None, "byte {place} is {byte}");
        }
        let mut seed = 1_u64;
        for _ in 0..100_000 {
            let mut bad = reply(&good);
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = (seed >> 33) as usize % bad.len();
                bad[place] = (seed >> 56) as u8;
            }
            let _ = Question::read(&bad);
            let _ = Question::read(&good).expect("a question").answer(&bad);
        }
    }
}
