// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS queries, with a resolver of the test's own.

use crate::cell::{GATEWAY, TestCell};
use pando_stack::{Failure, Unreachable};
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;

const RESOLVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(GATEWAY), 53);

fn answer(question: &[u8]) -> Vec<u8> {
    let mut packet = Packet::parse(question).expect("a question").into_reply();
    let name = packet.questions[0].qname.clone();
    // The owner of a name controls its addresses.
    let address = if name.to_string() == "inside.example.org" { 0x0a09_0909 } else { 0x0102_0304 };
    packet.answers.push(ResourceRecord::new(name, CLASS::IN, 60, RData::A(A { address })));
    packet.build_bytes_vec().expect("it can be written")
}

/// A resolver on the host's loopback, by UDP and TCP.
fn resolver() -> SocketAddr {
    // A port that is free for UDP may be taken for TCP.
    let (socket, listener) = std::iter::repeat_with(|| UdpSocket::bind("127.0.0.1:0").expect("the host has a port"))
        .find_map(|socket| TcpListener::bind(socket.local_addr().ok()?).ok().map(|listener| (socket, listener)))
        .expect("there are more");
    let address = socket.local_addr().expect("it has an address");
    thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut room) {
            // A spoofed response.
            let _ = socket.send_to(&[0; 12], from);
            let _ = socket.send_to(&answer(&room[..length]), from);
        }
    });
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 2];
            stream.read_exact(&mut length).expect("a length");
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut question).expect("a question");
            let answer = answer(&question);
            stream.write_all(&[&(answer.len() as u16).to_be_bytes(), &answer[..]].concat()).expect("the peer reads");
        }
    });
    address
}

fn question(number: u16, name: &str) -> Vec<u8> {
    let mut packet = Packet::new_query(number);
    packet.questions.push(Question::new(Name::new(name).expect("a name"), QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN), false));
    packet.build_bytes_vec().expect("it can be written")
}

/// A response's ID, its code, and its address.
fn read(reply: &[u8]) -> (u16, RCODE, Option<u32>) {
    let packet = Packet::parse(reply).expect("a reply");
    let address = packet.answers.first().and_then(|record| if let RData::A(a) = &record.rdata { Some(a.address) } else { None });
    (packet.id(), packet.rcode(), address)
}

fn ask(cell: &mut TestCell, number: u16, name: &str) -> (u16, RCODE, Option<u32>) {
    cell.process_at(5000);
    cell.send(5000, RESOLVER, &question(number, name));
    let reply = cell.until(|cell| cell.datagrams.pop());
    assert_eq!(reply.remote, RESOLVER);
    read(&reply.bytes)
}

#[test]
fn questions_are_passed_on_and_answers_back() {
    let mut cell = TestCell::new(&["*.example.org:443".into()], &[], &[resolver()]);
    assert_eq!(ask(&mut cell, 7, "www.example.org"), (7, RCODE::NoError, Some(0x0102_0304)));
    assert_eq!(ask(&mut cell, 8, "secret.of.the.cell.example.net"), (8, RCODE::Refused, None));
    let dns = cell.stop().counts.dns;
    assert_eq!((dns.queries, dns.refused, dns.unanswered), (2, 1, 0));
}

#[test]
fn questions_by_connection_are_answered_one_after_the_other() {
    let mut cell = TestCell::new(&["dns".into()], &[], &[resolver()]);
    let id = cell.connect(RESOLVER);
    for number in 1..=5 {
        let asked = question(number, "www.example.org");
        cell.say(id, &[&(asked.len() as u16).to_be_bytes(), &asked[..]].concat(), number == 5);
    }
    assert_eq!(cell.until_over(id), None);
    let mut answers = &cell.connection(id).received[..];
    for number in 1..=5 {
        let (length, rest) = answers.split_first_chunk().expect("a length");
        let (reply, rest) = rest.split_at(u16::from_be_bytes(*length).into());
        assert_eq!(read(reply), (number, RCODE::NoError, Some(0x0102_0304)));
        answers = rest;
    }
    assert!(answers.is_empty());
}

#[test]
fn nonsense_by_connection_ends_it() {
    let mut cell = TestCell::new(&["dns".into()], &[], &[]);
    let id = cell.connect(RESOLVER);
    cell.say(id, b"\x00\x10GET / HTTP/1.0\r\n", false);
    assert_eq!(cell.until_over(id), Some(Failure::Reset));
}

#[test]
fn the_next_resolver_is_asked_where_one_does_not_answer() {
    // No program serves this port (RFC 1078), and the system does not assign it.
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut cell = TestCell::new(&["dns".into()], &[], &[closed, resolver()]);
    assert_eq!(ask(&mut cell, 7, "www.example.org"), (7, RCODE::NoError, Some(0x0102_0304)));
    let mut cell = TestCell::new(&["dns".into()], &[], &[closed]);
    assert_eq!(ask(&mut cell, 7, "www.example.org"), (7, RCODE::ServerFailure, None));
}

#[test]
fn a_name_opens_no_private_network() {
    let mut cell = TestCell::new(&["*.example.org".into()], &[], &[resolver()]);
    assert_eq!(ask(&mut cell, 7, "inside.example.org"), (7, RCODE::NoError, Some(0x0a09_0909)));
    let id = cell.connect(SocketAddr::from(([10, 9, 9, 9], 80)));
    assert_eq!(cell.until_over(id), Some(Failure::Unreachable(Unreachable::AdminProhibited)));
}
