// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of the rings in one process.

use super::{FRAME_MAX, HEADER, LENGTH, RING, RingError, RingOwner, RingPeer, SKIP, Word, create_rings};
use std::sync::atomic::Ordering;

fn ends() -> (RingOwner, RingPeer) {
    let memory = create_rings().expect("the host has memory");
    (RingOwner::open(&memory).expect("it is mapped"), RingPeer::open(&memory).expect("it is mapped"))
}

fn bytes(random: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let length = random.usize(0..=most);
    let first = random.u8(..);
    (0..length).map(|at| first.wrapping_add(at as u8)).collect()
}

/// Receives a frame at the owner's end.
fn received(owner: &mut RingOwner) -> Result<Option<Vec<u8>>, RingError> {
    Ok(owner.next_length()?.map(|length| {
        let mut frame = vec![0; length];
        owner.receive(&mut frame);
        frame
    }))
}

#[test]
fn frames_of_all_lengths_arrive_in_their_order_both_ways() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut owner, mut peer) = ends();
    let (mut to_peer, mut to_owner) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let most = if random.u8(..) < 8 { FRAME_MAX } else { 3000 };
        match random.u8(0..4) {
            0 => {
                let frame = bytes(&mut random, most);
                if owner.send(&frame) {
                    to_peer.push(frame);
                }
            }
            1 => {
                let frame = bytes(&mut random, most);
                // Less may be written than there is room for.
                if let Some(room) = peer.room((frame.len() + random.usize(0..9)).min(FRAME_MAX)) {
                    room[..frame.len()].copy_from_slice(&frame);
                    peer.commit(frame.len());
                    to_owner.push(frame);
                }
            }
            2 => match peer.receive() {
                Some(frame) => {
                    assert!(peer.receive().is_none(), "one at a time");
                    assert_eq!(frame.as_ref(), &to_peer.remove(0)[..]);
                }
                None => assert!(to_peer.is_empty()),
            },
            _ => match received(&mut owner).expect("the peer keeps to the rules") {
                Some(frame) => assert_eq!(frame, to_owner.remove(0)),
                None => assert!(to_owner.is_empty()),
            },
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_and_says_when_there_is_room() {
    let (mut owner, mut peer) = ends();
    let frame = vec![7; FRAME_MAX];
    let count = (0..100).take_while(|_| owner.send(&frame)).count();
    assert!((14..16).contains(&count), "{count}");
    assert!(peer.receive().is_some() && peer.flags().peer_waits_for_space() && !peer.flags().peer_waits_for_space());
    assert!(owner.send(&frame));
    while peer.room(FRAME_MAX).is_some() {
        peer.commit(FRAME_MAX);
    }
    assert!(received(&mut owner).is_ok_and(|frame| frame.is_some()) && owner.peer_waits_for_space() && !owner.peer_waits_for_space());
}

#[test]
fn each_end_is_woken_once_until_it_looks() {
    let (owner, peer) = ends();
    let flags = peer.flags();
    assert!(!owner.is_wakeup_pending() && owner.must_wake() && !owner.must_wake() && owner.is_wakeup_pending());
    assert!(!flags.poll() && !owner.is_wakeup_pending() && owner.must_wake());
    assert!(flags.must_wake() && !flags.must_wake());
    owner.poll();
    owner.stop();
    assert!(flags.must_wake() && flags.poll());
}

#[test]
fn the_owner_believes_nothing() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..3000 {
        let (mut owner, _peer) = ends();
        let tail = random.u32(..) & !7;
        owner.receives.tail = tail;
        let word = |word: Word, value: u32| owner.map.word(word).store(value, Ordering::SeqCst);
        let filled = random.choice([8, 16, 24, 4096, RING, RING + 8, 1, 7, u32::MAX]).expect("there are some");
        word(Word::PeerHead, tail.wrapping_add(filled));
        let length =
            random.choice([0, 1, 8, 9, 4000, FRAME_MAX as u32, FRAME_MAX as u32 + 1, SKIP, SKIP - 1, 1 << 31]).expect("there are some");
        // SAFETY: the word lies in the ring and is aligned.
        unsafe { owner.map.at(1, tail).cast::<u32>().write_volatile(length) };
        // Every frame found lies in the ring.
        if let Ok(Some(found)) = owner.next_length() {
            let offset = (owner.receives.tail % RING) as usize;
            assert!(found <= FRAME_MAX && offset + 8 + found <= RING as usize, "{round}: {found} at {offset}");
            assert!(HEADER + RING as usize + offset + 8 + found <= LENGTH);
            owner.receive(&mut vec![0; found]);
        }
        // The peer's read position may be any number, too.
        owner.map.word(Word::PeerTail).store(random.u32(..), Ordering::SeqCst);
        let _ = owner.send(&[1; 100]);
    }
}

#[test]
fn other_memory_is_no_ring() {
    let file = std::fs::File::open("/dev/null").expect("it is there");
    assert!(RingOwner::open(&file).is_err());
}
