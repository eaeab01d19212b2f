// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network card: moves batches of frames between a cell's rings and its port.

use super::ring::RingState;
use crate::limits::CARD_PIECE;
use crate::memory::copy::{Behalf, CopyError};
use crate::memory::{Frames, SpaceSet};
use crate::network::{Networks, PortId};
use bytes::Bytes;
use pando_abi::frame::{self, HEADER};
use pando_abi::layout::NETWORK_RINGS;
use pando_abi::limits::{MAX_DESCRIPTOR_BYTES, NETWORK_DESCRIPTORS};
use pando_abi::ring::{FAULTED, NetworkRings};
use pando_machine::Nanos;
use std::mem::offset_of;
use std::ops::Range;

/// What part of its batch a frame is at least that keeps all of the batch's bytes: one in so many. So no queue keeps more than so many times what it counts.
const PART: usize = 4;

/// A cell's network card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) port: PortId,
    transmit: RingState,
    receive: RingState,
    /// Bytes of the next transmit descriptor whose frames are sent already.
    sent: usize,
    /// Bytes of the next receive descriptor that are filled already.
    filled: u32,
}

impl Card {
    /// A card that is plugged in at a port.
    pub(crate) fn new(port: PortId) -> Card {
        let ring = |offset: usize| RingState::new(NETWORK_RINGS + offset as u64, NETWORK_DESCRIPTORS);
        let [transmit, receive] = [offset_of!(NetworkRings, transmit), offset_of!(NetworkRings, receive)].map(ring);
        Card { port, transmit, receive, sent: 0, filled: 0 }
    }

    /// Moves what can be moved, in pieces of [`CARD_PIECE`]; `true` if the cell should look, because frames have arrived or a full ring has room again, and so if there is more: a cell with an event does not
    /// idle.
    ///
    /// # Errors
    /// No memory for a page of the cell's that would have to be made, or a block of a disk that must be read first: what is left is for the next time.
    pub(crate) fn serve(
        &mut self,
        frames: &mut Frames,
        memory: &mut SpaceSet,
        networks: &mut Networks,
        now: Nanos,
    ) -> Result<bool, CopyError> {
        let sent = self.serve_transmit(frames, memory, networks, now)?;
        let received = self.serve_receive(frames, memory, networks)?;
        Ok(sent || received)
    }

    fn serve_transmit(
        &mut self,
        frames: &mut Frames,
        memory: &mut SpaceSet,
        networks: &mut Networks,
        now: Nanos,
    ) -> Result<bool, CopyError> {
        // Room where there was some is no news.
        let was_full = self.transmit.is_full(frames, memory);
        let mut budget = CARD_PIECE;
        for _ in 0..self.transmit.length() {
            let Some(descriptor) = self.transmit.next(frames, memory) else { return Ok(was_full) };
            let mut batch = vec![0; descriptor.length.min(MAX_DESCRIPTOR_BYTES) as usize];
            let length = match memory.read(frames, descriptor.address, &mut batch, Behalf::Cell) {
                // The cell may have made the descriptor shorter since its first frames went out.
                Ok(()) => {
                    let start = self.sent.min(batch.len());
                    let batch = Bytes::from(batch).slice(start..);
                    let mut inside = frame::Frames::of(&batch);
                    while budget > 0
                        && let Some(place) = inside.next()
                    {
                        budget = budget.saturating_sub(networks.send(self.port, cut(&batch, place), now));
                    }
                    if budget == 0 && !inside.is_over() {
                        self.sent = start + inside.passed();
                        return Ok(true);
                    }
                    if inside.is_over() { (start + batch.len()) as u32 } else { FAULTED }
                }
                Err(CopyError::Refused | CopyError::Unreadable) => FAULTED,
                Err(later) => return Err(later),
            };
            self.transmit.take(frames, memory, length)?;
            self.sent = 0;
        }
        // The cell may have posted more meanwhile.
        Ok(true)
    }

    fn serve_receive(&mut self, frames: &mut Frames, memory: &mut SpaceSet, networks: &mut Networks) -> Result<bool, CopyError> {
        let mut moved = false;
        for _ in 0..self.receive.length() {
            if networks.peek(self.port).is_none() {
                break;
            }
            let Some(descriptor) = self.receive.next(frames, memory) else { break };
            let room = descriptor.length.min(MAX_DESCRIPTOR_BYTES) as usize;
            let length = match self.fill(frames, memory, networks, descriptor.address, room) {
                Ok(()) => self.filled,
                Err(CopyError::Refused | CopyError::Unreadable) => FAULTED,
                Err(later) => return Err(later),
            };
            self.receive.take(frames, memory, length)?;
            self.filled = 0;
            moved = true;
        }
        Ok(moved)
    }

    /// Fills a cell's room with the frames that wait, as far as they fit.
    fn fill(
        &mut self,
        frames: &mut Frames,
        memory: &mut SpaceSet,
        networks: &mut Networks,
        address: u64,
        room: usize,
    ) -> Result<(), CopyError> {
        while let Some(frame) = networks.peek(self.port) {
            let at = self.filled as usize;
            if at + HEADER + frame.len() > room {
                if at > 0 {
                    break;
                }
                // It would never fit.
                networks.drop_large(self.port);
                continue;
            }
            let place = address.wrapping_add(at as u64);
            memory.write(frames, place, &frame::header(frame.len()), Behalf::Cell)?;
            memory.write(frames, place.wrapping_add(HEADER as u64), frame, Behalf::Cell)?;
            self.filled = (at + frame::room(frame.len())).min(room) as u32;
            networks.take(self.port);
        }
        Ok(())
    }
}

/// Takes a frame out of a batch. Small ones are copied: a frame that waits must not keep a batch of which nothing else is left.
fn cut(batch: &Bytes, place: Range<usize>) -> Bytes {
    if place.len() >= batch.len() / PART { batch.slice(place) } else { Bytes::copy_from_slice(&batch[place]) }
}

#[cfg(test)]
mod tests {
    use super::{PART, cut};
    use bytes::Bytes;

    #[test]
    fn a_small_frame_does_not_keep_its_batch() {
        let batch = Bytes::from((0..=255).cycle().take(64 << 10).collect::<Vec<u8>>());
        let small = cut(&batch, 8..68);
        assert!(small == batch[8..68] && batch.is_unique());
        let large = cut(&batch, 8..8 + batch.len() / PART);
        assert!(large == batch[8..8 + batch.len() / PART] && !batch.is_unique());
    }
}
