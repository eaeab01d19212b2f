// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid rings: each bad descriptor is refused by itself, and good ones are served.

use crate::bench::{Bench, FAULTED, MEMORY, TestRing};
use pando_abi::layout::{CONSOLE_RINGS, SLOT_SIZE, USER_END, VIRTUAL_REGISTERS};
use pando_abi::limits::MAX_DESCRIPTOR_BYTES;
use pando_abi::ring::{Descriptor, ERRORS, OUTPUT};
use pando_abi::{MapFlags, Permissions};
use pando_kernel::Stream;
use pando_kernel::limits::CONSOLE_BYTES;
use pando_machine::{PageCount, SUPERVISOR_BASE};
use pando_testing::lab::CODE;

/// A page that may only be read, and one that may not be accessed.
const READ_ONLY: u64 = 0x3000_0000;
const FORBIDDEN: u64 = 0x3000_1000;

/// Ranges that the cell may not read completely.
fn unreadable() -> Vec<(u64, u32)> {
    let end = MEMORY + 1024 * 0x1000;
    vec![
        (0, 1),
        (0x1000, 0x1000),
        (end, 1),
        (end - 1, 2),
        (end - 0x1000, 0x2000),
        (FORBIDDEN, 1),
        (FORBIDDEN - 1, 2),
        (USER_END, 1),
        (USER_END - 1, 2),
        (SLOT_SIZE - 1, 2),
        (1 << 47, 8),
        (1 << 63, 8),
        (SUPERVISOR_BASE + 0x2000, 8),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (u64::MAX - 100, 1000),
        (end - 10, MAX_DESCRIPTOR_BYTES),
    ]
}

fn with_odd_pages(bench: &Bench) {
    let (kernel, id) = (&bench.lab.kernel, bench.id);
    kernel.map(id, READ_ONLY, PageCount(1), MapFlags::lazy(Permissions::READ)).expect("room for a page");
    kernel.map(id, FORBIDDEN, PageCount(1), MapFlags::lazy(Permissions::NONE)).expect("room for a page");
}

#[test]
fn memory_that_is_not_the_cells_to_read_is_refused() {
    for mut bench in Bench::both() {
        with_odd_pages(&bench);
        bench.write(MEMORY, b"good");
        for (address, length) in unreadable() {
            let bad = bench.post(TestRing::Transmit, address, length, OUTPUT);
            let good = bench.post(TestRing::Transmit, MEMORY, 4, ERRORS);
            bench.kick();
            assert_eq!(bench.taken(TestRing::Transmit), good + 1, "{length} bytes at {address:#x}");
            assert_eq!(bench.descriptor(TestRing::Transmit, bad).length, FAULTED, "{length} bytes at {address:#x}");
            assert_eq!(bench.receive_from(Stream::Stderr, 4), b"good");
        }
        // Pages that may only be read or executed can be sent.
        bench.post(TestRing::Transmit, READ_ONLY, 8, OUTPUT);
        bench.post(TestRing::Transmit, CODE, 8, OUTPUT);
        bench.kick();
        bench.receive_from(Stream::Stdout, 16);
        bench.close();
    }
}

#[test]
fn memory_that_is_not_the_cells_to_write_is_refused_and_the_input_waits() {
    for mut bench in Bench::both() {
        with_odd_pages(&bench);
        bench.send(&[7; 0x3000]);
        let read_only = [(READ_ONLY, 8), (CODE, 4), (pando_abi::layout::CPUID_TABLE, 4)];
        for (address, length) in unreadable().into_iter().chain(read_only) {
            let bad = bench.post(TestRing::Receive, address, length, 0);
            bench.kick();
            assert_eq!(bench.descriptor(TestRing::Receive, bad).length, FAULTED, "{length} bytes at {address:#x}");
        }
        let good = bench.post(TestRing::Receive, MEMORY, 0x4000, 0);
        bench.kick();
        assert_eq!(bench.descriptor(TestRing::Receive, good).length, 0x3000, "the input is all there");
        assert_eq!(bench.read(MEMORY, 0x3000), [7; 0x3000]);
        bench.close();
    }
}

#[test]
fn unknown_streams_are_refused() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"good");
        for tag in [0, 4, 0x101, 1 << 31, u32::MAX] {
            let bad = bench.post(TestRing::Transmit, MEMORY, 4, tag);
            bench.post(TestRing::Transmit, MEMORY, 4, OUTPUT);
            bench.kick();
            assert_eq!(bench.descriptor(TestRing::Transmit, bad).length, FAULTED, "tag {tag:#x}");
            assert_eq!(bench.receive_from(Stream::Stdout, 4), b"good");
        }
        bench.close();
    }
}

#[test]
fn empty_descriptors_are_taken_and_transfer_nothing() {
    for mut bench in Bench::both() {
        for _ in 0..3 {
            bench.post(TestRing::Transmit, MEMORY, 0, OUTPUT);
        }
        bench.kick();
        assert_eq!((bench.taken(TestRing::Transmit), bench.descriptor(TestRing::Transmit, 2).length), (3, 0));
        // A receive descriptor of length 0 takes nothing.
        bench.send(b"x");
        let none = bench.post(TestRing::Receive, MEMORY, 0, 0);
        let some = bench.post(TestRing::Receive, MEMORY, 1, 0);
        bench.kick();
        assert_eq!([none, some].map(|index| bench.descriptor(TestRing::Receive, index).length), [0, 1]);
        bench.close();
    }
}

#[test]
fn a_count_that_runs_wild_costs_no_more_than_the_ring() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"x");
        for posted in [u64::MAX, 1 << 63, 1000, 1 << 32] {
            let before = bench.taken(TestRing::Transmit);
            for index in 0..TestRing::Transmit.length() {
                bench.set(TestRing::Transmit, index, Descriptor { address: MEMORY, length: 0x1000, tag: OUTPUT });
            }
            bench.set_posted(TestRing::Transmit, posted);
            bench.kick();
            // All room is used, however often the kernel serves the ring, and no more.
            let said = (bench.taken(TestRing::Transmit) - before) as usize * 0x1000;
            assert_eq!(said, CONSOLE_BYTES);
            bench.set_posted(TestRing::Transmit, bench.taken(TestRing::Transmit));
            bench.receive(CONSOLE_BYTES);
            bench.lab.run_all();
        }
        bench.close();
    }
}

/// An endless supply of invalid descriptors keeps only its own cell busy.
#[test]
fn refused_descriptors_without_end_keep_only_their_cell_busy() {
    for mut bench in Bench::both() {
        for index in 0..TestRing::Transmit.length() {
            bench.set(TestRing::Transmit, index, Descriptor { address: MEMORY + 0x3f_0000, length: u32::MAX, tag: OUTPUT });
        }
        bench.set_posted(TestRing::Transmit, u64::MAX);
        bench.lab.kernel.raise(bench.id, pando_abi::Event::Terminate);
        let other = bench.lab.launch(|asm| {
            for _ in 0..5 {
                asm.call_kernel(pando_abi::Hypercall::Relinquish {});
            }
            asm.call_kernel(pando_abi::Hypercall::Exit { status: 4, signal: 0, address: 0, instruction: 0 });
        });
        assert_eq!(bench.lab.finish(other).end, pando_kernel::End::Exited { status: 4 });
        bench.close();
    }
}

#[test]
fn a_cell_that_overwrites_the_kernels_count_changes_nothing() {
    for mut bench in Bench::both() {
        bench.write(MEMORY, b"abcdef");
        for (index, lie) in [0, 5, u64::MAX, 1 << 63].into_iter().enumerate() {
            bench.set_taken(TestRing::Transmit, lie);
            bench.post(TestRing::Transmit, MEMORY + index as u64, 1, OUTPUT);
            bench.kick();
            assert_eq!(bench.taken(TestRing::Transmit), index as u64 + 1);
        }
        assert_eq!(bench.receive_from(Stream::Stdout, 4), b"abcd");
        bench.close();
    }
}

/// The cell changes a descriptor between its first part and the rest.
#[test]
fn a_descriptor_that_changes_half_way_is_read_again_and_checked_again() {
    let half = 100_000u32;
    let changes: [(&str, Descriptor, usize, u32); 6] = [
        ("shorter than what is out", Descriptor { address: MEMORY, length: 5, tag: OUTPUT }, 0, half),
        ("just what is out", Descriptor { address: MEMORY, length: half, tag: OUTPUT }, 0, half),
        ("elsewhere", Descriptor { address: MEMORY + 0x1000, length: half + 10, tag: OUTPUT }, 10, half + 10),
        ("on the other stream", Descriptor { address: MEMORY, length: half + 10, tag: ERRORS }, 10, half + 10),
        ("on no stream", Descriptor { address: MEMORY, length: half + 10, tag: 9 }, 0, FAULTED),
        ("to nowhere", Descriptor { address: 0x5000, length: half + 10, tag: OUTPUT }, 0, FAULTED),
    ];
    for mut bench in Bench::both() {
        for (name, changed, rest, length) in changes {
            // All room except `half` is used.
            let fill = CONSOLE_BYTES - half as usize;
            let mut filled = 0;
            while filled < fill {
                let piece = (fill - filled).min(MAX_DESCRIPTOR_BYTES as usize);
                bench.post(TestRing::Transmit, MEMORY, piece as u32, OUTPUT);
                filled += piece;
            }
            let torn = bench.post(TestRing::Transmit, MEMORY, 2 * half, OUTPUT);
            bench.kick();
            assert_eq!(bench.taken(TestRing::Transmit), torn, "{name}: it is half out");
            bench.set(TestRing::Transmit, torn, changed);
            bench.receive(CONSOLE_BYTES);
            bench.lab.run_all();
            assert_eq!((bench.taken(TestRing::Transmit), bench.descriptor(TestRing::Transmit, torn).length), (torn + 1, length), "{name}");
            bench.receive(rest);
        }
        bench.close();
    }
}

/// The rings themselves as a buffer: the kernel's own writes change what it reads next.
#[test]
fn rings_that_point_at_themselves_confuse_only_their_cell() {
    for mut bench in Bench::both() {
        bench.send(&[1; 0x2000]);
        for address in [CONSOLE_RINGS, CONSOLE_RINGS + 8, CONSOLE_RINGS + 0x400, VIRTUAL_REGISTERS, VIRTUAL_REGISTERS + 0x40] {
            bench.post(TestRing::Receive, address, 64, 0);
            bench.post(TestRing::Transmit, address, 64, OUTPUT);
        }
        bench.lab.kernel.raise(bench.id, pando_abi::Event::Terminate);
        for _ in 0..20 {
            bench.lab.turn(0);
        }
        // In any case it can be ended, and another cell works.
        let Bench { mut lab, id, .. } = bench;
        let _ = lab.kernel.end(id, pando_kernel::End::Killed);
        let honest = lab.launch(|asm| {
            asm.call_kernel(pando_abi::Hypercall::Exit { status: 3, signal: 0, address: 0, instruction: 0 });
        });
        assert_eq!(lab.finish(honest).end, pando_kernel::End::Exited { status: 3 });
    }
}
