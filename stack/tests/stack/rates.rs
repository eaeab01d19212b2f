// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates of two stacks when nothing else takes time. They are printed, not asserted: the tests of the whole system assert.

use std::time::Instant;

use pando_stack::{ConnectionId, SocketEvent, Stack, TcpOptions, Tuple, TxQueue, Verdict};

use crate::net::{Link, LinkEnd, MS, Net, TestListeners, config, noise};

/// Two stacks with an open connection between them; frames take no time.
struct Wire {
    stacks: [Stack; 2],
    ids: [ConnectionId; 2],
    boxes: [TxQueue; 2],
    now: u64,
    frames: u64,
}

impl Wire {
    fn new(mtu: usize, buffer: usize) -> Self {
        let mut configs = [config(0), config(1)];
        for config in &mut configs {
            (config.mtu, config.buffer) = (mtu, buffer);
        }
        let [one, other] = configs;
        let mut wire = Self {
            stacks: [Stack::new(one, 0), Stack::new(other, 0)],
            ids: [ConnectionId::default(), ConnectionId::default()],
            boxes: [TxQueue::new(1 << 20), TxQueue::new(1 << 20)],
            now: 1,
            frames: 0,
        };
        let tuple = Net::pair(Link::GOOD, 1).tuple(0, 40_000, 1, 80);
        wire.connect(tuple);
        wire
    }

    fn connect(&mut self, tuple: Tuple) {
        self.ids[0] = self.stacks[0].connect(tuple, TcpOptions { no_delay: true, ..TcpOptions::default() }, self.now).unwrap();
        let mut opened = 0;
        while opened < 2 {
            self.exchange();
            for side in 0..2 {
                while let Some(event) = self.stacks[side].next_event() {
                    if let SocketEvent::Opened(id) | SocketEvent::Accepted(id) = event {
                        self.ids[side] = id;
                        opened += 1;
                    }
                }
            }
        }
    }

    /// Lets both transmit, and both receive.
    fn exchange(&mut self) {
        let mut listeners = TestListeners { tcp: [(80, Verdict::Admit)].into(), udp: Default::default(), asked: Vec::new() };
        self.now += 1000;
        for side in 0..2 {
            self.stacks[side].run(self.now, &mut self.boxes[side]);
            let mut heard = 0;
            let (to, answers) = (1 - side, &mut self.boxes);
            let [one, other] = answers;
            let (from_box, to_box) = if side == 0 { (one, other) } else { (other, one) };
            from_box.drain(&mut |frame| {
                heard += 1;
                self.stacks[to].receive_frame(frame, self.now, &mut listeners, to_box);
                true
            });
            self.frames += heard;
        }
    }

    fn stream(&mut self, bytes: usize) {
        let (mut sent, mut received) = (0, 0);
        while received < bytes {
            self.stacks[0].send(self.ids[0], &mut |room| {
                let length = room.len().min(bytes - sent);
                sent += length;
                length
            });
            self.exchange();
            received += self.stacks[1].receive(self.ids[1], &mut |piece| piece.len());
        }
    }

    fn talk(&mut self) {
        for side in 0..2 {
            self.stacks[side].send(self.ids[side], &mut |_| 1);
            while self.stacks[1 - side].receive(self.ids[1 - side], &mut |piece| piece.len()) == 0 {
                self.exchange();
            }
        }
    }
}

#[test]
fn rates() {
    for (mtu, bytes) in [(1500, 64 << 20), (65_535, 1 << 30)] {
        let mut wire = Wire::new(mtu, 512 << 10);
        let begin = Instant::now();
        wire.stream(bytes);
        let took = begin.elapsed();
        let per_frame = took.as_nanos() as f64 / wire.frames as f64;
        println!(
            "packets of {mtu}: {:.2} GB/s, {per_frame:.0} ns for each of {} frames, {} again",
            bytes as f64 / took.as_nanos() as f64,
            wire.frames,
            wire.stacks[0].counts().retransmitted
        );
    }
    let mut wire = Wire::new(65_535, 64 << 10);
    let (begin, frames) = (Instant::now(), wire.frames);
    const TALKS: u32 = 20_000;
    for _ in 0..TALKS {
        wire.talk();
    }
    println!("a byte there and back: {:?}, {:.2} frames", begin.elapsed() / TALKS, (wire.frames - frames) as f64 / f64::from(TALKS));
    let begin = Instant::now();
    const OPENS: u32 = 5_000;
    let net = Net::pair(Link::GOOD, 1);
    for number in 0..OPENS {
        wire.connect(net.tuple(0, 1000 + number as u16, 1, 80));
        wire.stacks[0].abort(wire.ids[0]);
        wire.exchange();
        wire.stacks[1].release(wire.ids[1], wire.now);
    }
    println!("a connection opened and broken: {:?}", begin.elapsed() / OPENS);
}

/// Time of the first request and answer on a fresh connection, where a packet takes 50 µs.
#[test]
fn first_answers() {
    for mtu in [1500, 65_535] {
        for bytes in [100, 3_000, 10_000, 100_000, 1_000_000] {
            let mut configs = vec![config(0), config(1)];
            for config in &mut configs {
                (config.mtu, config.buffer) = (mtu, 256 << 10);
            }
            let mut net = Net::new(configs, Link { delay: 50_000, ..Link::GOOD }, 1);
            net.introduce();
            net.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
            net.hosts[1].serves = Some(noise(bytes, 1));
            let (begin, frames) = (net.now, net.frames);
            let id = net.connect(net.tuple(0, 40_000, 1, 80), 0, LinkEnd { to_send: noise(100, 2), ..LinkEnd::default() });
            net.run_until(10_000 * MS, "all arrived", |net| net.end(0, id).received.len() == bytes);
            println!("packets of {mtu}: {bytes} bytes after {} µs, {} frames", (net.now - begin) / 1000, net.frames - frames);
        }
    }
}
