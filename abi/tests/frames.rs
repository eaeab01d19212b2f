// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of frames: valid frames are returned, and an invalid one ends the batch.

use pando_abi::frame::{ETHERNET_HEADER, FRAME_MAX, Frames, header, room};

fn batch(lengths: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for length in lengths {
        let end = bytes.len() + room(*length);
        bytes.extend(header(*length));
        bytes.resize(end, 7);
    }
    bytes
}

#[test]
fn frames_of_every_size_come_out_of_a_batch() {
    let lengths = [ETHERNET_HEADER, 60, 61, 1514, FRAME_MAX, 64];
    let bytes = batch(&lengths);
    let mut frames = Frames::of(&bytes);
    assert_eq!(frames.by_ref().map(|frame| frame.len()).collect::<Vec<_>>(), lengths);
    assert!(frames.is_over());
    // The last need not be padded.
    let short = &batch(&[61, 61])[..room(61) + 8 + 61];
    assert_eq!(Frames::of(short).count(), 2);
}

#[test]
fn an_invalid_frame_ends_a_batch() {
    for wrong in [0, ETHERNET_HEADER - 1, FRAME_MAX + 1, usize::MAX] {
        let mut bytes = batch(&[60]);
        bytes.extend((wrong as u64).to_le_bytes());
        bytes.resize(bytes.len() + 100, 0);
        let mut frames = Frames::of(&bytes);
        assert_eq!(frames.by_ref().count(), 1, "{wrong}");
        assert!(!frames.is_over());
    }
    let mut cut = batch(&[1514]);
    cut.truncate(1000);
    assert_eq!(Frames::of(&cut).count(), 0);
    assert_eq!(Frames::of(&[1, 2, 3]).count(), 0);
}
