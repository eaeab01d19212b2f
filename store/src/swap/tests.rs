// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swap space that works, fills up, fails and lies.

use super::{SwapSpace, create_swap_file};
use pando_kernel::{Swap, SwapError, SwapSlot};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A record that is hard to compress.
fn record(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Swap space in a file, and the file.
fn in_file(size: u64) -> (SwapSpace, File) {
    let file = create_swap_file(&std::env::temp_dir()).expect("a file system with unnamed files");
    let copy = file.try_clone().expect("a descriptor");
    (SwapSpace::in_files(vec![(file, size)]), copy)
}

#[test]
fn records_read_as_they_were_put_and_leave_nothing() {
    let two = [1 << 20, 1 << 20].map(|size| (create_swap_file(&std::env::temp_dir()).expect("a file"), size));
    for swap in [SwapSpace::in_memory(2 << 20), SwapSpace::in_files(two.into())] {
        let lengths = [0, 1, 255, 256, 257, 4096, 300_000];
        for round in 0..3 {
            let slots: Vec<_> = (0..).zip(lengths).map(|(seed, length)| swap.put(&record(seed + round, length)).expect("room")).collect();
            assert_eq!(swap.usage().records, lengths.len() as u64);
            for ((slot, length), seed) in slots.iter().zip(lengths).zip(0..) {
                assert!(swap.read(slot) == Ok(record(seed + round, length)), "{length} bytes");
            }
            slots.into_iter().for_each(|slot| swap.discard(slot));
            assert_eq!((swap.usage().used, swap.usage().records), (0, 0));
        }
    }
}

#[test]
fn compressed_records_count_and_no_more_fit_than_there_is_room_for() {
    for (swap, overhead) in [(SwapSpace::in_memory(1 << 20), 1 << 16), (in_file(1 << 20).0, 1 << 16)] {
        assert!(swap.put(&vec![7; 8 << 20]).is_ok(), "8 MiB of one byte take little room");
        let slots: Vec<SwapSlot> = (0..).map_while(|seed| swap.put(&record(seed, 100_000)).ok()).collect();
        assert_eq!((slots.len(), swap.put(&record(0, 100_000))), (10, Err(SwapError::Full)));
        assert!(swap.usage().used <= swap.usage().size && swap.usage().used > (1 << 20) - overhead);
        slots.into_iter().for_each(|slot| swap.discard(slot));
        assert!(swap.put(&record(0, 100_000)).is_ok());
    }
}

#[test]
fn every_flipped_byte_and_every_short_read_is_noticed() {
    let (swap, file) = in_file(1 << 20);
    let (slot, other) = (swap.put(&record(1, 3000)).expect("room"), swap.put(&record(2, 3000)).expect("room"));
    for at in 0..3000 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("it was written");
        file.write_all_at(&[byte[0] ^ 1 << (at % 8)], at).expect("it can be written");
        assert_eq!(swap.read(&slot), Err(SwapError::Damaged), "byte {at}");
        file.write_all_at(&byte, at).expect("it can be written");
    }
    assert!(swap.read(&slot) == Ok(record(1, 3000)) && swap.read(&other) == Ok(record(2, 3000)));
    file.set_len(3500).expect("it can be cut");
    assert!(matches!(swap.read(&other), Err(SwapError::Host(words)) if words.starts_with("the swap file cannot be read")));
    assert!(swap.read(&slot) == Ok(record(1, 3000)), "nothing else is touched");
    swap.discard(other);
    assert_eq!(swap.read(&SwapSlot(1)), Err(SwapError::Damaged), "a stale slot has no record");
}

#[test]
fn a_failed_write_leaves_the_room_free() {
    let full = File::options().read(true).write(true).open("/dev/full").expect("Linux has it");
    let swap = SwapSpace::in_files(vec![(full, 1 << 20)]);
    for _ in 0..100 {
        assert!(
            matches!(swap.put(&record(1, 100_000)), Err(SwapError::Host(words)) if words.starts_with("the swap file cannot be written"))
        );
    }
    assert_eq!((swap.usage().used, swap.usage().records), (0, 0));
}
