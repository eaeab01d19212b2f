// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile frames: mutations of good ones, and segments made to fit an open connection.

use fastrand::Rng;
use pando_stack::{Counts, Datagram, SocketEvent, TcpOptions, Verdict};
use pando_testing::mutate::{EDGES, mutate};
use std::net::SocketAddr;

use crate::net::{Link, LinkEnd, MS, Net, address, address6, config, echo, mac, noise};

const SECOND: u64 = 1000 * MS;

/// A network in which stacks have sent every kind of frame, with a recording.
fn talk(checksums: bool) -> (Net, Vec<Vec<u8>>) {
    let mut configs = vec![config(0), config(1)];
    for config in &mut configs {
        (config.checksums, config.half_open, config.connections) = (checksums, 64, 128);
    }
    let mut net = Net::new(configs, Link { loss: 20, doubles: 10, reorders: 50, delay: MS, ..Link::GOOD }, 11);
    net.recording = Some(Vec::new());
    net.hosts[1].echoes = true;
    net.hosts[1].listeners.udp.insert(53);
    for port in 80..90 {
        net.hosts[1].listeners.tcp.insert(port, [Verdict::Admit, Verdict::Hold, Verdict::Ignore][usize::from(port % 3)]);
    }
    net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
    let (client, _) = net.open();
    net.send(0, client, &noise(100_000, 1));
    net.run_for(5 * SECOND);
    for port in 80..95 {
        let to_send = noise(3000, 2);
        net.connect(net.tuple(0, 1000 + port, 1, port), 0, LinkEnd { to_send, finishes: port % 2 == 0, ..LinkEnd::default() });
        let tuple = pando_stack::Tuple { local: SocketAddr::new(address6(0), 2000 + port), remote: SocketAddr::new(address6(1), port) };
        net.connect(tuple, 0, LinkEnd { to_send: noise(3000, 2), finishes: port % 2 == 0, ..LinkEnd::default() });
    }
    let now = net.now;
    let host = &mut net.hosts[0];
    for (from, to) in [(address(0), address(1)), (address6(0), address6(1))] {
        for port in [53, 54] {
            let (local, remote) = (SocketAddr::new(from, 5000), SocketAddr::new(to, port));
            host.stack.send_datagram(&Datagram { local, remote, bytes: noise(200, 1), hops: 64 }, now, &mut host.tx_queue).unwrap();
        }
        host.stack.send_message(&echo(from, to, &noise(56, 4)), now, &mut host.tx_queue).unwrap();
    }
    net.run_for(2 * SECOND);
    let mut frames = net.recording.take().unwrap();
    frames.retain(|frame| frame[..6] == mac(1) || frame[0] & 1 == 1);
    (net, frames)
}

fn is_bounded(counts: Counts) -> bool {
    counts.connections <= 128
        && counts.half_open <= 64
        && counts.neighbours <= 4096
        && counts.time_wait <= 16_384
        && counts.waiting_bytes <= 1 << 20
}

/// Lets both hosts work between frames. Frames between them are lost.
fn go_on(net: &mut Net, rng: &mut Rng) {
    net.now += rng.u64(..50 * MS);
    let now = net.now;
    for host in &mut net.hosts {
        while let Some(event) = host.stack.next_event() {
            if let SocketEvent::Readable(id) | SocketEvent::Accepted(id) | SocketEvent::Opened(id) = event {
                host.stack.receive(id, &mut |piece| piece.len());
                host.stack.send(id, &mut |room| room.len().min(100));
                match rng.u8(..20) {
                    0 => host.stack.finish(id, now),
                    1 => host.stack.release(id, now),
                    2 => host.stack.abort(id),
                    _ => {}
                }
            }
        }
        host.stack.run(now, &mut host.tx_queue);
        host.tx_queue.drain(&mut |_| true);
    }
}

fn attack(seed: u64, frames: usize, checksums: bool) {
    let (mut net, recorded) = talk(checksums);
    let mut rng = Rng::with_seed(seed);
    for number in 0..frames {
        let mut frame = mutate(&recorded[rng.usize(..recorded.len())], &mut rng);
        // Most frames must pass the address filter.
        if rng.u8(..) < 250 && frame.len() > 6 {
            frame[..6].copy_from_slice(&mac(1));
        }
        let (host, now) = (&mut net.hosts[1], net.now);
        host.stack.receive_frame(&frame, now, &mut host.listeners, &mut host.tx_queue);
        host.listeners.asked.clear();
        if number % 16 == 0 {
            go_on(&mut net, &mut rng);
        }
        assert!(is_bounded(net.hosts[1].stack.counts()), "{:?}", net.hosts[1].stack.counts());
    }
    let counts = net.hosts[1].stack.counts();
    assert!(counts.ignored < counts.received * 9 / 10, "most frames were not even looked at: {counts:?}");
    // After all that, it still serves.
    net.hosts[1].ends.clear();
    net.now += 400 * SECOND;
    net.link = Link::GOOD;
    net.run_for(400 * SECOND);
    let tuple = net.tuple(0, 33_333, 1, 80);
    let id = net.hosts[0].stack.connect(tuple, TcpOptions::default(), net.now).unwrap();
    net.hosts[0].ends.insert(id, LinkEnd { to_send: b"are you well?".to_vec(), ..LinkEnd::default() });
    net.run_until(10 * SECOND, "it serves", |net| net.end(0, id).received == b"are you well?");
}

#[test]
fn mutated_frames_break_nothing() {
    attack(1, 150_000, false);
}

#[test]
fn mutated_frames_break_nothing_where_sums_count() {
    attack(2, 20_000, true);
}

/// Segments of an open connection, with random numbers, windows and flags, mostly near the expected ones.
#[test]
fn segments_of_a_hostile_peer_break_nothing() {
    let mut rng = Rng::with_seed(3);
    let mut alive = 0;
    for round in 0..400 {
        let mut net = Net::pair(Link::GOOD, round);
        net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
        net.recording = Some(Vec::new());
        let (client, server) = net.open();
        net.send(0, client, b"hello");
        net.run_for(50 * MS);
        // The last frame from host 0 with a payload: its numbers are near the expected ones.
        let from_client = |frame: &&Vec<u8>| frame[6..12] == mac(0) && frame[12..14] == [8, 0] && frame.len() >= 54;
        let template = net.recording.take().unwrap().iter().rfind(from_client).unwrap().clone();
        let header = &template[34..];
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let (sequence, acknowledged) = (number(4).wrapping_add(5), number(8));
        for _ in 0..300 {
            let near = |base: u32, rng: &mut Rng| match rng.u8(..8) {
                0..=2 => base,
                3 => base.wrapping_add(rng.u32(..20)),
                4 => base.wrapping_sub(rng.u32(..20)),
                5 => base.wrapping_add(rng.u32(60_000..70_000)),
                6 => base.wrapping_add(EDGES[rng.usize(..EDGES.len())]),
                _ => base.wrapping_add(rng.u32(..)),
            };
            let payload = noise([0, 0, 1, 10, 1000, 65_000][rng.usize(..6)], 1);
            let mut frame = template[..54].to_vec();
            frame[16..18].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
            frame[38..42].copy_from_slice(&near(sequence, &mut rng).to_be_bytes());
            frame[42..46].copy_from_slice(&near(acknowledged, &mut rng).to_be_bytes());
            frame[46] = 0x50;
            // RST and FIN are rare, so that the connection lives for some time.
            frame[47] = 0x10 | if rng.u8(..) < 250 { rng.u8(..) & 0x28 } else { rng.u8(..64) };
            frame[48..50].copy_from_slice(&(EDGES[rng.usize(..EDGES.len())] as u16).to_be_bytes());
            frame.extend_from_slice(&payload);
            let (host, now) = (&mut net.hosts[1], net.now);
            host.stack.receive_frame(&frame, now, &mut host.listeners, &mut host.tx_queue);
            match rng.u8(..12) {
                0 => drop(host.stack.receive(server, &mut |piece| piece.len())),
                1 => drop(host.stack.send(server, &mut |room| room.len())),
                2 => drop(host.stack.send(server, &mut |room| room.len().min(1))),
                3 if rng.u8(..8) == 0 => host.stack.finish(server, now),
                _ => {}
            }
            host.stack.run(now, &mut host.tx_queue);
            host.tx_queue.drain(&mut |_| true);
            while host.stack.next_event().is_some() {}
            net.now += rng.u64(..300 * MS);
            alive += u32::from(host.stack.tuple(server).is_some());
        }
    }
    assert!(alive > 40_000, "most segments were for connections that are over: {alive} were not");
}
