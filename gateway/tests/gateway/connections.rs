// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections, from cells and to them.

use crate::cell::{CELL, GATEWAY, TestCell};
use crate::pattern;
use pando_gateway::RefusedDestination;
use pando_stack::{Failure, Unreachable};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

const MEGABYTE: usize = 1 << 20;

/// A server on the host's loopback that runs this for each connection, and its port.
fn serve(body: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it has an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let body = body.clone();
            thread::spawn(move || body(stream));
        }
    });
    port
}

/// Echoes a stream.
fn echo(mut stream: TcpStream) {
    let mut writer = stream.try_clone().expect("the host has descriptors");
    let _ = std::io::copy(&mut stream, &mut writer);
    let _ = writer.shutdown(Shutdown::Write);
}

fn cell_with(port: u16) -> TestCell {
    TestCell::new(&[format!("host:{port}")], &[], &[])
}

#[test]
fn a_cell_speaks_with_a_server_of_the_host() {
    let port = serve(echo);
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    let bytes = pattern(MEGABYTE, 0);
    cell.say(id, &bytes, true);
    assert_eq!(cell.until_over(id), None);
    assert!(cell.connection(id).received == bytes, "all came back as it was");
    let tcp = cell.stop().counts.tcp;
    assert_eq!((tcp.outgoing, tcp.bytes_out, tcp.bytes_in), (1, MEGABYTE as u64, MEGABYTE as u64));
}

#[test]
fn a_program_of_the_host_talks_to_a_server_in_the_cell() {
    for at in ["0:80", "[::1]:0:80"] {
        let mut cell = TestCell::new(&[], &[at], &[]);
        cell.echo_at(80);
        let (to, bytes) = (cell.forwards[0], pattern(MEGABYTE, 1));
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(to).expect("the gateway listens");
            let (mut writer, said) = (stream.try_clone().expect("the host has descriptors"), bytes.clone());
            let speaker = thread::spawn(move || {
                writer.write_all(&said).expect("the cell hears");
                writer.shutdown(Shutdown::Write).expect("it is open");
            });
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the cell answers");
            speaker.join().expect("it does not panic");
            received == bytes
        });
        cell.until(|_| client.is_finished().then_some(()));
        assert!(client.join().expect("it does not panic"), "all came back as it was");
        let tuple = cell.connections.len();
        assert_eq!((tuple, cell.stop().counts.tcp.incoming), (1, 1));
    }
}

#[test]
fn destinations_without_a_rule_are_unreachable() {
    let (open, closed) = (serve(echo), serve(echo));
    let mut cell = cell_with(open);
    let own = SocketAddr::new(GATEWAY.into(), closed);
    for to in [own, SocketAddr::from(([10, 1, 2, 3], 80)), SocketAddr::from(([8, 8, 8, 8], 80))] {
        let id = cell.connect(to);
        assert_eq!(cell.until_over(id), Some(Failure::Unreachable(Unreachable::AdminProhibited)), "{to}");
    }
    let report = cell.stop();
    assert_eq!((report.counts.refused, report.refused.first()), (3, Some(&RefusedDestination::Destination(own))));
}

#[test]
fn a_refusal_of_the_host_is_one_of_the_gateway() {
    // No program serves this port (RFC 1078), and the system does not assign it.
    let port = 1;
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    assert_eq!(cell.until_over(id), Some(Failure::Reset));
    assert!(!cell.connection(id).open, "it never opened");
}

#[test]
fn early_connections_wait_for_the_first_listener_and_later_refusals_reset_them() {
    let mut cell = TestCell::new(&[], &["0:80"], &[]);
    let to = cell.forwards[0];
    let call = move || {
        let mut stream = TcpStream::connect(to).expect("the gateway listens");
        let mut echo = [0];
        stream.write_all(b"?").and_then(|()| stream.read(&mut echo)).map(|_| echo).map_err(|error| error.kind())
    };
    let early = thread::spawn(call);
    cell.until(|cell| (cell.refusals() > 0).then_some(()));
    cell.echo_at(80);
    cell.until(|_| early.is_finished().then_some(()));
    assert_eq!(early.join().expect("it does not panic"), Ok(*b"?"));
    cell.refuse_at(80);
    let late = thread::spawn(call);
    cell.until(|_| late.is_finished().then_some(()));
    assert_eq!(late.join().expect("it does not panic"), Err(ErrorKind::ConnectionReset));
}

#[test]
fn either_side_finishes_by_itself() {
    // The cell finishes first, and receives the reply after that.
    let port = serve(|mut stream| {
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        received.reverse();
        let _ = stream.write_all(&received);
    });
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    cell.say(id, b"question", true);
    assert_eq!(cell.until_over(id), None);
    assert_eq!(cell.connection(id).received, b"noitseuq");

    // The host finishes first, and receives the reply after that.
    let (sender, receiver) = mpsc::channel();
    let port = serve(move |mut stream| {
        let _ = stream.write_all(b"question");
        let _ = stream.shutdown(Shutdown::Write);
        let mut all = String::new();
        let _ = stream.read_to_string(&mut all);
        let _ = sender.send(all);
    });
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    assert_eq!(cell.until_over(id), None);
    assert_eq!(cell.connection(id).received, b"question");
    cell.say(id, b"answer", true);
    assert_eq!(cell.until(|_| receiver.try_recv().ok()), "answer");
    cell.until(|cell| cell.connection(id).closed.then_some(()));
}

#[test]
fn many_connections_at_once_stay_apart() {
    const MANY: usize = 64;
    let port = serve(echo);
    let mut cell = cell_with(port);
    let ids: Vec<_> = (0..MANY).map(|_| cell.connect_host(port)).collect();
    for (number, id) in ids.iter().enumerate() {
        cell.say(*id, &pattern(MEGABYTE, number), true);
    }
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(cell.until_over(*id), None);
        assert!(cell.connection(*id).received == pattern(MEGABYTE, number), "{number} came back as it was");
    }
    assert_eq!(cell.stop().counts.tcp.outgoing, MANY as u64);
}

#[test]
fn a_slow_reader_does_not_delay_other_connections() {
    let (go, goes) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel();
    let goes = std::sync::Arc::new(std::sync::Mutex::new(goes));
    let slow = serve(move |mut stream| {
        let _ = goes.lock().map(|goes| goes.recv());
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = done.send(all);
    });
    let quick = serve(echo);
    let mut cell = TestCell::new(&[format!("host:{slow}"), format!("host:{quick}")], &[], &[]);
    // More than all buffers on the path hold.
    let bytes = pattern(16 * MEGABYTE, 3);
    let waits = cell.connect_host(slow);
    cell.say(waits, &bytes, true);
    // A connection that its cell does not read.
    let deaf = cell.connect_host(quick);
    cell.connection(deaf).deaf = true;
    cell.say(deaf, &bytes, true);
    let id = cell.connect_host(quick);
    cell.say(id, &bytes, true);
    assert_eq!(cell.until_over(id), None);
    assert!(cell.connection(id).received == bytes, "the quick one has all");
    go.send(()).expect("the server waits");
    assert!(cell.until(|_| is_done.try_recv().ok()) == bytes, "the slow one has all in the end");
    cell.connection(deaf).deaf = false;
    assert_eq!(cell.until_over(deaf), None);
    assert!(cell.connection(deaf).received == bytes, "so has the deaf one");
}

#[test]
fn a_side_that_breaks_breaks_the_other() {
    // The host's: closing with unread data resets the connection.
    let port = serve(|stream| {
        let mut byte = [0];
        let _ = stream.peek(&mut byte);
    });
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    cell.say(id, b"unheard", false);
    assert_eq!(cell.until_over(id), Some(Failure::Reset));

    // The cell's.
    let (broke, breaks) = mpsc::channel();
    let port = serve(move |mut stream| {
        let _ = stream.write_all(b"x");
        let mut all = Vec::new();
        let _ = broke.send(stream.read_to_end(&mut all).map_err(|error| error.kind()));
    });
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    cell.until(|cell| (cell.connection(id).received == b"x").then_some(()));
    cell.abort(id);
    assert_eq!(cell.until(|_| breaks.try_recv().ok()), Err(ErrorKind::ConnectionReset));
}

#[test]
fn the_last_bytes_of_a_cell_are_delivered_at_the_end() {
    let (sender, receiver) = mpsc::channel();
    let port = serve(move |mut stream| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = sender.send(all.len());
    });
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    cell.say(id, &pattern(MEGABYTE, 5), true);
    cell.until(|cell| cell.has_sent(id).then_some(()));
    cell.stop();
    assert_eq!(receiver.recv(), Ok(MEGABYTE));
}

#[test]
fn streams_that_the_cell_did_not_finish_are_reset() {
    let (sender, receiver) = mpsc::channel();
    let port = serve(move |mut stream| {
        let mut all = Vec::new();
        let outcome = stream.read_to_end(&mut all).map_err(|error| error.kind());
        let _ = sender.send((outcome, all.len()));
    });
    let mut cell = TestCell::new(&[format!("host:{port}")], &["0:80"], &[]);
    cell.echo_at(80);
    let to = cell.forwards[0];
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(to).expect("the gateway listens");
        stream.write_all(b"half of it").expect("the cell hears");
        let mut all = Vec::new();
        (stream.read_to_end(&mut all).map_err(|error| error.kind()), all.len())
    });
    let id = cell.connect_host(port);
    cell.say(id, b"half of it", false);
    cell.until(|cell| cell.has_sent(id).then_some(()));
    cell.until(|cell| cell.connections.keys().copied().find(|other| *other != id));
    let called = cell.connections.keys().copied().find(|other| *other != id).expect("it was just seen");
    cell.until(|cell| (cell.connection(called).received.len() == 10 && cell.has_sent(called)).then_some(()));
    // It is killed.
    cell.stop();
    assert_eq!(receiver.recv(), Ok((Err(ErrorKind::ConnectionReset), 10)));
    assert_eq!(client.join().expect("it does not panic"), (Err(ErrorKind::ConnectionReset), 10));
}

/// The timers of this process's connections to a port of the host, as `/proc/net/tcp` shows them: the second kind is the keepalive timer.
fn timers_towards(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let (to, is_open) = (format!(":{port:04X}"), "01");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&to) && row[3] == is_open).map(|row| row[5][..2].to_owned()).collect()
}

#[test]
fn a_host_that_is_silent_is_asked_whether_it_is_there() {
    let port = serve(echo);
    let mut cell = cell_with(port);
    let id = cell.connect_host(port);
    cell.say(id, b"x", false);
    cell.until(|cell| (cell.connection(id).received == b"x").then_some(()));
    cell.until(|_| (timers_towards(port) == ["02"]).then_some(()));
}

#[test]
fn a_cell_is_called_from_the_gateways_address() {
    let mut cell = TestCell::new(&[], &["0:80"], &[]);
    cell.echo_at(80);
    let stream = TcpStream::connect(cell.forwards[0]).expect("the gateway listens");
    let id = cell.until(|cell| cell.connections.keys().next().copied());
    let tuple = cell.tuple(id);
    assert_eq!((tuple.local, tuple.remote.ip()), (SocketAddr::new(CELL.into(), 80), GATEWAY.into()));
    drop(stream);
    cell.until(|cell| cell.connection(id).closed.then_some(()));
}
