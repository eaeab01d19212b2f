// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings: bytes arrive in order, each stream by its tag, with back-pressure.

use crate::bench::{Bench, MEMORY, TestRing};
use pando_abi::limits::MAX_DESCRIPTOR_BYTES;
use pando_abi::ring::{Descriptor, ERRORS, NO_READER, OUTPUT};
use pando_kernel::limits::CONSOLE_BYTES;
use pando_kernel::{End, Stream};
use pando_testing::lab::QUOTA;

/// Bytes without a short period.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn output_arrives_in_order_and_by_stream() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"hello, world\nalas\n");
        for (offset, length, tag) in [(0, 6, OUTPUT), (13, 5, ERRORS), (6, 7, OUTPUT)] {
            bench.post(TestRing::Transmit, MEMORY + offset, length, tag);
        }
        bench.kick();
        assert_eq!(bench.taken(TestRing::Transmit), 3);
        let wanted = [(Stream::Stdout, &b"hello,"[..]), (Stream::Stderr, b"alas\n"), (Stream::Stdout, b" world\n")];
        for (received, (stream, bytes)) in bench.receive(18).into_iter().zip(wanted) {
            assert_eq!(received, (stream, bytes.to_vec()));
        }
        let lengths = [0, 1, 2].map(|index| bench.descriptor(TestRing::Transmit, index).length);
        assert_eq!(lengths, [6, 5, 7]);
        bench.close();
    }
}

#[test]
fn input_is_written_to_the_posted_address() {
    for mut bench in Bench::both() {
        // Sent before and after a buffer is posted.
        bench.send(b"first ");
        bench.post(TestRing::Receive, MEMORY + 10, 4, 0);
        bench.post(TestRing::Receive, MEMORY + 0x1000, 100, 0);
        bench.kick();
        assert_eq!(bench.taken(TestRing::Receive), 2);
        assert_eq!((bench.read(MEMORY + 10, 5), bench.read(MEMORY + 0x1000, 3)), (b"firs\0".to_vec(), b"t \0".to_vec()));
        assert_eq!([0, 1].map(|index| bench.descriptor(TestRing::Receive, index).length), [4, 2]);
        bench.post(TestRing::Receive, MEMORY + 0x1ffe, 8, 0);
        bench.kick();
        assert_eq!(bench.taken(TestRing::Receive), 2, "there is nothing to take it");
        bench.send(b"second");
        assert_eq!((bench.taken(TestRing::Receive), bench.read(MEMORY + 0x1ffe, 6)), (3, b"second".to_vec()));
        bench.close();
    }
}

#[test]
fn the_end_of_the_input_is_a_length_of_zero_and_stays() {
    for mut bench in Bench::both() {
        bench.send(b"abc");
        bench.port.close_input();
        bench.lab.run_all();
        for length in [2, 5, 5, 5] {
            bench.post(TestRing::Receive, MEMORY, length, 0);
        }
        bench.kick();
        assert_eq!(bench.taken(TestRing::Receive), 4);
        assert_eq!([0, 1, 2, 3].map(|index| bench.descriptor(TestRing::Receive, index).length), [2, 1, 0, 0]);
        bench.close();
    }
}

#[test]
fn a_cell_whose_output_is_not_read_is_held_back() {
    for mut bench in Bench::both() {
        let said = pattern(2 * CONSOLE_BYTES);
        bench.write(MEMORY, &said);
        let piece = 150_000;
        let count = said.len().div_ceil(piece);
        for index in 0..count {
            let start = index * piece;
            bench.post(TestRing::Transmit, MEMORY + start as u64, piece.min(said.len() - start) as u32, OUTPUT);
        }
        bench.kick();
        // As many as fit; the next one is taken in part.
        assert_eq!(bench.taken(TestRing::Transmit), (CONSOLE_BYTES / piece) as u64);
        for _ in 0..3 {
            bench.kick();
        }
        assert_eq!(bench.taken(TestRing::Transmit), (CONSOLE_BYTES / piece) as u64);
        // Receiving makes room, and wakes the cell once there is much.
        let mut received = bench.receive_from(Stream::Stdout, CONSOLE_BYTES);
        bench.lab.run_all();
        assert_eq!(bench.taken(TestRing::Transmit), count as u64);
        received.extend(bench.receive_from(Stream::Stdout, CONSOLE_BYTES));
        assert!(received == said, "bytes were lost, repeated or changed");
        bench.close();
    }
}

#[test]
fn output_posted_before_the_end_is_received() {
    for mut bench in Bench::both() {
        // As much as the host's buffer holds, and then some more output.
        bench.write(MEMORY, &pattern(CONSOLE_BYTES));
        for start in (0..CONSOLE_BYTES).step_by(MAX_DESCRIPTOR_BYTES as usize) {
            bench.post(TestRing::Transmit, MEMORY + start as u64, MAX_DESCRIPTOR_BYTES, OUTPUT);
        }
        bench.kick();
        bench.write(MEMORY, b"step 1\nalas\n");
        bench.post(TestRing::Transmit, MEMORY, 7, OUTPUT);
        bench.post(TestRing::Transmit, MEMORY + 7, 5, ERRORS);
        // An invalid address, and more than there is room for.
        bench.post(TestRing::Transmit, 0x1000, 7, OUTPUT);
        for _ in 0..50 {
            bench.post(TestRing::Transmit, MEMORY, MAX_DESCRIPTOR_BYTES, ERRORS);
        }
        bench.lab.kernel.end(bench.id, End::TimedOut).expect("it lives");
        assert!(bench.receive_from(Stream::Stdout, CONSOLE_BYTES) == pattern(CONSOLE_BYTES));
        assert_eq!(bench.port.receive(), Some((Stream::Stdout, b"step 1\n".to_vec())));
        let mut rest = Vec::new();
        while let Some((stream, bytes)) = bench.port.receive() {
            assert_eq!(stream, Stream::Stderr);
            rest.extend(bytes);
        }
        assert!(rest.starts_with(b"alas\nstep 1\n") && rest.len() <= CONSOLE_BYTES, "{}", rest.len());
    }
}

#[test]
fn a_descriptor_reaches_so_far_and_no_further() {
    for mut bench in Bench::both() {
        let most = MAX_DESCRIPTOR_BYTES as usize;
        let said = pattern(most + 100);
        bench.write(MEMORY, &said);
        bench.post(TestRing::Transmit, MEMORY, most as u32, OUTPUT);
        bench.post(TestRing::Transmit, MEMORY, most as u32 + 100, OUTPUT);
        bench.post(TestRing::Transmit, MEMORY, u32::MAX - 1, OUTPUT);
        bench.kick();
        let received = bench.receive_from(Stream::Stdout, 3 * most);
        assert!(received.chunks(most).all(|chunk| chunk == &said[..most]));
        // Each has the number of taken bytes as its length.
        assert_eq!([0, 1, 2].map(|index| bench.descriptor(TestRing::Transmit, index).length), [most as u32; 3]);
        bench.send(&said);
        bench.post(TestRing::Receive, MEMORY, u32::MAX, 0);
        bench.kick();
        assert_eq!(bench.descriptor(TestRing::Receive, 0).length, most as u32);
        bench.close();
    }
}

#[test]
fn little_pieces_do_not_pile_up() {
    use pando_kernel::limits::CONSOLE_BUFFERS;
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"ab");
        // On one stream they are joined. On two they are limited in number, and then the cell is held back.
        for (tags, most) in [([OUTPUT, OUTPUT], 1), ([OUTPUT, ERRORS], CONSOLE_BUFFERS)] {
            let mut said = 0;
            for _ in 0..CONSOLE_BUFFERS / 32 {
                for index in 0..64u64 {
                    bench.post(TestRing::Transmit, MEMORY + index % 2, 1, tags[index as usize % 2]);
                }
                bench.kick();
                said += 64;
                let waiting = bench.posted(TestRing::Transmit) - bench.taken(TestRing::Transmit);
                if waiting > 0 {
                    // Withdraws descriptors that the kernel has not seen.
                    said -= waiting as usize;
                    bench.set_posted(TestRing::Transmit, bench.taken(TestRing::Transmit));
                    break;
                }
            }
            let received = bench.receive(said);
            assert!(received.len() <= most, "{} pieces", received.len());
            let letters: Vec<u8> = received.into_iter().flat_map(|(_, bytes)| bytes).collect();
            assert!(letters.iter().enumerate().all(|(index, letter)| *letter == b"ab"[index % 2]));
        }
        bench.close();
    }
}

#[test]
fn a_clone_goes_on_in_its_rings_with_empty_buffers() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"mine and yours");
        bench.post(TestRing::Transmit, MEMORY, 5, OUTPUT);
        bench.kick();
        bench.send(b"for the first only");
        let clone = bench.lab.kernel.clone_cell(bench.id, QUOTA).expect("an idle cell can be cloned");
        let port = bench.lab.kernel.console(clone).expect("it lives");
        bench.post(TestRing::Transmit, MEMORY + 5, 4, OUTPUT);
        bench.kick();
        bench.lab.kernel.start(clone).expect("it was not started before");
        bench.lab.run_all();
        assert_eq!(bench.receive_from(Stream::Stdout, 9), b"mine and ");
        // The clone was made before the second descriptor was posted, and posts its own.
        let address = pando_abi::layout::CONSOLE_RINGS;
        let mut posted = [0; 8];
        bench.lab.kernel.read(clone, address, &mut posted).expect("it idles");
        assert_eq!(u64::from_le_bytes(posted), 1);
        let descriptor = pando_abi::ring::Descriptor { address: MEMORY + 9, length: 5, tag: OUTPUT };
        let bytes: Vec<u8> = descriptor.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        bench.lab.kernel.write(clone, address + 32, &bytes).expect("it idles");
        bench.lab.kernel.write(clone, address, &2u64.to_le_bytes()).expect("it idles");
        bench.lab.kernel.raise(clone, pando_abi::Event::Terminate);
        bench.lab.run_all();
        assert_eq!(port.receive(), Some((Stream::Stdout, b"yours".to_vec())));
        bench.lab.kernel.end(clone, pando_kernel::End::Killed).expect("it lives");
        assert_eq!(port.receive(), None);
        bench.close();
    }
}

#[test]
fn output_sent_before_the_end_is_received_after_it() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"last words");
        bench.post(TestRing::Transmit, MEMORY, 10, OUTPUT);
        bench.kick();
        let Bench { lab, id, port, .. } = bench;
        lab.kernel.end(id, pando_kernel::End::Killed).expect("it idles");
        assert_eq!(port.receive(), Some((Stream::Stdout, b"last words".to_vec())));
        assert_eq!(port.receive(), None);
        assert!(!port.send(b"too late"), "nobody hears it");
        port.close_input();
    }
}

#[test]
fn a_cell_withdraws_unprocessed_descriptors() {
    for mut bench in Bench::both() {
        bench.post(TestRing::Receive, MEMORY, 100, 0);
        bench.kick();
        assert_eq!(bench.taken(TestRing::Receive), 0, "there is nothing to give");
        bench.set(TestRing::Receive, 0, Descriptor { address: MEMORY, length: 0, tag: 0 });
        bench.kick();
        assert_eq!((bench.taken(TestRing::Receive), bench.descriptor(TestRing::Receive, 0).length), (1, 0));
        bench.send(b"not lost");
        bench.post(TestRing::Receive, MEMORY, 100, 0);
        bench.kick();
        assert_eq!((bench.descriptor(TestRing::Receive, 1).length, bench.read(MEMORY, 8)), (8, b"not lost".to_vec()));
        // The length of a withdrawn transmit descriptor is the number of bytes already sent.
        let said = pattern(2 * CONSOLE_BYTES);
        bench.write(MEMORY, &said);
        let pieces: Vec<u64> = (0..said.len() as u64).step_by(200_000).collect();
        for &offset in &pieces {
            bench.post(TestRing::Transmit, MEMORY + offset, 200_000, OUTPUT);
        }
        bench.kick();
        let stuck = bench.taken(TestRing::Transmit);
        assert_eq!(stuck, CONSOLE_BYTES as u64 / 200_000);
        for index in stuck..pieces.len() as u64 {
            bench.set(TestRing::Transmit, index, Descriptor { address: MEMORY, length: 0, tag: OUTPUT });
        }
        bench.kick();
        assert_eq!(bench.taken(TestRing::Transmit), pieces.len() as u64);
        let lengths: Vec<u32> = (stuck..stuck + 2).map(|index| bench.descriptor(TestRing::Transmit, index).length).collect();
        assert_eq!(lengths, [CONSOLE_BYTES as u32 % 200_000, 0]);
        assert_eq!(bench.receive_from(Stream::Stdout, CONSOLE_BYTES), said[..CONSOLE_BYTES]);
        bench.close();
    }
}

#[test]
fn a_cell_learns_that_a_stream_has_no_reader() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"unheard");
        bench.post(TestRing::Transmit, MEMORY, 7, OUTPUT);
        bench.kick();
        bench.port.close_stream(Stream::Stdout);
        bench.lab.run_all();
        bench.post(TestRing::Transmit, MEMORY, 7, OUTPUT);
        bench.post(TestRing::Transmit, MEMORY, 7, ERRORS);
        bench.kick();
        assert_eq!([0, 1, 2].map(|index| bench.descriptor(TestRing::Transmit, index).length), [7, NO_READER, 7]);
        assert_eq!(bench.port.receive(), Some((Stream::Stderr, b"unheard".to_vec())), "the other stream goes on");
        bench.close();
    }
}
