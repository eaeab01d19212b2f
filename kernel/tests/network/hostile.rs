// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that spoof, flood, and write invalid data into their rings.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::ring::FAULTED;
use pando_kernel::limits::{CARD_STEP, QUEUE_BYTES, QUEUE_FRAMES};
use pando_testing::lab::repetitions;
use pando_testing::network_lab::{NetworkLab, RECEIVED, ROOM, SENT, TestRing, batch, packet};

#[test]
fn frames_with_a_foreign_source_address_are_dropped() {
    for mut bench in NetworkLab::both(3) {
        let [a, b, c] = [0, 1, 2].map(|cell| bench.addresses(cell));
        bench.listen(2, 1);
        let mut lie = packet(&a, &c, 60, 1);
        lie[26..30].copy_from_slice(&b.v4.octets());
        bench.send(0, &[packet(&b, &c, 60, 2), lie, packet(&a, &c, 60, 3)]);
        assert_eq!(bench.received(2), [[packet(&a, &c, 60, 3)]]);
        assert_eq!(bench.traffic(0).spoofed, 2);
        bench.close();
    }
}

#[test]
fn a_flooding_sender_takes_no_room_of_others() {
    for mut bench in NetworkLab::both(3) {
        let [a, b, c] = [0, 1, 2].map(|cell| bench.addresses(cell));
        let flood: Vec<Vec<u8>> = (0..200).map(|mark| packet(&a, &c, 1000, mark)).collect();
        for _ in 0..(2 * QUEUE_BYTES / 200_000) {
            bench.send(0, &flood);
        }
        bench.send(1, &[packet(&b, &c, 60, 1)]);
        let waiting = bench.traffic(2).waiting;
        assert!(waiting.bytes <= QUEUE_BYTES as u64 && waiting.frames <= QUEUE_FRAMES as u64 && bench.traffic(2).overrun > 0);
        // Senders take turns, so the other cell's frame is among the first two.
        bench.listen(2, 1);
        bench.kick(2);
        assert!(bench.received(2)[0][..2].contains(&packet(&b, &c, 60, 1)));
        bench.close();
    }
}

#[test]
fn an_invalid_batch_sends_the_frames_before_the_error() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        bench.listen(1, 1);
        let mut bytes = batch(&[packet(&a, &b, 60, 1)]);
        bytes.extend([0xff; 40]);
        bench.write(0, SENT, &bytes);
        bench.post(0, TestRing::Transmit, SENT, bytes.len() as u32);
        // Memory that is not mapped, memory that wraps, and an empty batch.
        bench.post(0, TestRing::Transmit, 0x1234_5000, 100);
        bench.post(0, TestRing::Transmit, u64::MAX - 10, 100);
        bench.post(0, TestRing::Transmit, SENT, 0);
        bench.kick(0);
        assert_eq!([0, 1, 2, 3].map(|index| bench.descriptor(0, TestRing::Transmit, index).length), [FAULTED, FAULTED, FAULTED, 0]);
        assert_eq!(bench.received(1), [[packet(&a, &b, 60, 1)]]);
        // Receive memory that the cell may not write: the frame waits for another descriptor.
        bench.post(1, TestRing::Receive, VIRTUAL_REGISTERS - 0x10_0000, ROOM);
        bench.post(1, TestRing::Receive, RECEIVED, ROOM);
        bench.send(0, &[packet(&a, &b, 60, 2)]);
        assert_eq!(bench.descriptor(1, TestRing::Receive, 1).length, FAULTED);
        assert_eq!(bench.read(1, RECEIVED + 8, 60), packet(&a, &b, 60, 2));
        bench.close();
    }
}

#[test]
fn more_frames_than_are_carried_at_once_all_go_out() {
    for mut bench in NetworkLab::both(2) {
        let a = bench.addresses(0);
        let mut everybody = packet(&a, &a, 34, 1);
        everybody[..6].fill(0xff);
        let many = CARD_STEP;
        // A batch of frames, then invalid data, and another batch: a pass that ends in the middle of the first batch continues
        // there.
        let mut bytes = batch(&vec![everybody; many]);
        let length = bytes.len() as u32;
        bytes.extend([0xff; 16]);
        bench.write(0, SENT, &bytes);
        bench.post(0, TestRing::Transmit, SENT, length + 16);
        bench.post(0, TestRing::Transmit, SENT, length);
        bench.kick(0);
        assert_eq!((bench.taken(0, TestRing::Transmit), bench.traffic(0).sent.frames), (2, 2 * many as u64));
        assert_eq!([0, 1].map(|index| bench.descriptor(0, TestRing::Transmit, index).length), [FAULTED, length]);
        bench.close();
    }
}

#[test]
fn random_rings_and_random_frames_disturb_no_other_cell() {
    for mut bench in NetworkLab::both(3) {
        let [a, b, c] = [0, 1, 2].map(|cell| bench.addresses(cell));
        let mut random = fastrand::Rng::with_seed(6);
        bench.listen(2, 4);
        for round in 0..repetitions(20, 60, 5000) {
            // Half of it is valid, so that some frames get far.
            let mut bytes =
                batch(&(0..4).map(|_| packet(&a, if random.bool() { &b } else { &c }, random.usize(34..2000), 1)).collect::<Vec<_>>());
            for _ in 0..random.usize(0..8) {
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
            }
            bench.write(0, SENT, &bytes);
            for ring in [TestRing::Transmit, TestRing::Receive] {
                // With a count that is always ahead, the cell would run for ever.
                let posted = bench.taken(0, ring).wrapping_add(random.u64(0..9));
                bench.write(0, ring.address(), &posted.to_le_bytes());
                for word in 2..18 {
                    let value = match random.u8(0..6) {
                        0 => random.u64(..),
                        1 => SENT + random.u64(0..4096),
                        2 => random.u64(0..1 << 20),
                        3 => u64::from(random.u8(0..20)),
                        4 => bytes.len() as u64,
                        _ => continue,
                    };
                    bench.write(0, ring.address() + 8 * word, &value.to_le_bytes());
                }
            }
            bench.kick(0);
            // The other two cells communicate undisturbed.
            let mark = round as u8;
            bench.send(1, &[packet(&b, &c, 70, mark)]);
            assert!(bench.receive_all(2).contains(&packet(&b, &c, 70, mark)), "round {round}");
        }
        bench.close();
    }
}
