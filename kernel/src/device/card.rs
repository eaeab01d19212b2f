// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network card: moves batches of frames between a cell's rings and its port.
//!
//! What a cell sends stands in its memory. Where the switch knows a shortcut, and who gets the frame is at rest and has room, the frame goes from there into that cell's memory in one copy; otherwise through a
//! queue. A descriptor that was begun so is handed over when its cell next runs, with what came otherwise meanwhile behind it.

use super::ring::RingState;
use crate::limits::CARD_PIECE;
use crate::memory::copy::{Behalf, CarryError, CopyError, carry};
use crate::memory::{Frames, SpaceSet};
use crate::network::{Networks, Owner, PortId};
use pando_abi::frame::{self, HEADER};
use pando_abi::layout::NETWORK_RINGS;
use pando_abi::limits::{MAX_DESCRIPTOR_BYTES, NETWORK_DESCRIPTORS};
use pando_abi::ring::{Descriptor, FAULTED, NetworkRings};
use pando_machine::Nanos;
use std::mem::offset_of;

/// Bytes that are read first of what is left of a batch: a frame's header in it, and of the frame what says where it goes, or all of a small one.
const HEAD: usize = 128;

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
    /// The cell found its transmit ring full, and was not told yet that there is room.
    owes_news: bool,
}

/// Who else has a card.
pub(crate) trait Neighbours {
    /// The card and the memory of a cell that is at rest.
    fn at_rest(&mut self, owner: &Owner) -> Option<(&mut Card, &mut SpaceSet)>;
}

/// What cards work with, beside the memory of their cells.
pub(crate) struct Means<'a> {
    pub(crate) frames: &'a mut Frames,
    pub(crate) networks: &'a mut Networks,
    pub(crate) neighbours: &'a mut dyn Neighbours,
    pub(crate) now: Nanos,
}

/// A frame in its sender's memory.
struct Sent<'a> {
    /// Its first bytes, or all of them.
    head: &'a [u8],
    address: u64,
    length: usize,
}

impl Sent<'_> {
    /// Where the bytes behind the head are.
    fn rest(&self) -> u64 {
        self.address.wrapping_add(self.head.len() as u64)
    }
}

impl Card {
    /// A card that is plugged in at a port.
    pub(crate) fn new(port: PortId) -> Card {
        let ring = |offset: usize| RingState::new(NETWORK_RINGS + offset as u64, NETWORK_DESCRIPTORS);
        let [transmit, receive] = [offset_of!(NetworkRings, transmit), offset_of!(NetworkRings, receive)].map(ring);
        Card { port, transmit, receive, sent: 0, filled: 0, owes_news: false }
    }

    /// Empties the rings for a card that is about to be plugged in: where the source of a clone had one, they are not.
    ///
    /// # Errors
    /// No memory for their page, or it is a block of a disk that must be read first.
    pub(crate) fn empty_rings(frames: &mut Frames, memory: &mut SpaceSet) -> Result<(), CopyError> {
        let mut rings = [0; size_of::<NetworkRings>()];
        memory.read(frames, NETWORK_RINGS, &mut rings, Behalf::Operator)?;
        // Most have none to empty, and a page that is written is a page more.
        if rings.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        rings.fill(0);
        memory.write(frames, NETWORK_RINGS, &rings, Behalf::Operator)
    }

    /// Moves what can be moved, in pieces of [`CARD_PIECE`]; `true` if the cell should look, because frames have arrived or a full ring has room again, and so if there is more: a cell with an event does not
    /// idle.
    ///
    /// # Errors
    /// No memory for a page of the cell's that would have to be made, or a block of a disk that must be read first: what is left is for the next time.
    pub(crate) fn serve(&mut self, memory: &mut SpaceSet, means: &mut Means<'_>) -> Result<bool, CopyError> {
        let more = self.serve_transmit(memory, means)?;
        let received = self.serve_receive(means.frames, memory, means.networks)?;
        Ok(std::mem::take(&mut self.owes_news) || more || received)
    }

    /// `true`: there is more.
    fn serve_transmit(&mut self, memory: &mut SpaceSet, means: &mut Means<'_>) -> Result<bool, CopyError> {
        // Room where there was some is no news.
        self.owes_news |= self.transmit.is_full(means.frames, memory);
        let mut budget = CARD_PIECE;
        for _ in 0..self.transmit.length() {
            let Some(descriptor) = self.transmit.next(means.frames, memory) else { return Ok(false) };
            let length = match self.send(&descriptor, memory, means, &mut budget) {
                Ok(true) => self.sent as u32,
                Ok(false) => return Ok(true),
                Err(CopyError::Refused | CopyError::Unreadable) => FAULTED,
                Err(later) => return Err(later),
            };
            self.transmit.take(means.frames, memory, length)?;
            self.sent = 0;
        }
        // The cell may have posted more meanwhile.
        Ok(true)
    }

    /// Sends the frames of a batch that were not sent yet. `false`: there are more, for which the budget is too small.
    ///
    /// # Errors
    /// What follows is no frame, or cannot be read now.
    fn send(
        &mut self,
        descriptor: &Descriptor,
        memory: &mut SpaceSet,
        means: &mut Means<'_>,
        budget: &mut usize,
    ) -> Result<bool, CopyError> {
        let end = descriptor.length.min(MAX_DESCRIPTOR_BYTES) as usize;
        // The cell may have made the descriptor shorter since its first frames went out.
        while self.sent < end {
            if *budget == 0 {
                return Ok(false);
            }
            let (address, left) = (descriptor.address.wrapping_add(self.sent as u64), end - self.sent);
            let mut head = [0; HEAD];
            let head = &mut head[..left.min(HEAD)];
            memory.read(means.frames, address, head, Behalf::Cell)?;
            let (header, head) = head.split_first_chunk().ok_or(CopyError::Refused)?;
            let length = frame::length(header, left - HEADER).ok_or(CopyError::Refused)?;
            let head = &head[..length.min(head.len())];
            let sent = Sent { head, address: address.wrapping_add(HEADER as u64), length };
            let cost = if self.pass(&sent, memory, means)? { 1 } else { self.queue(&sent, memory, means)? };
            *budget = budget.saturating_sub(cost);
            // The last frame need not be filled up.
            self.sent = (self.sent + frame::room(length)).min(end);
        }
        Ok(true)
    }

    /// Sends a frame through the switch. Returns what that costs.
    fn queue(&self, sent: &Sent<'_>, memory: &mut SpaceSet, means: &mut Means<'_>) -> Result<usize, CopyError> {
        let frame = means.networks.buffers.filled(sent.length, |bytes| {
            let (head, rest) = bytes.split_at_mut(sent.head.len());
            head.copy_from_slice(sent.head);
            memory.read(means.frames, sent.rest(), rest, Behalf::Cell)
        })?;
        Ok(means.networks.send(self.port, frame, means.now))
    }

    /// Copies a frame into the memory of who gets it, if it may go there at once and there is room. What was copied is what the guard has seen.
    ///
    /// # Errors
    /// The frame cannot be read.
    fn pass(&self, sent: &Sent<'_>, memory: &mut SpaceSet, means: &mut Means<'_>) -> Result<bool, CopyError> {
        let Some((port, owner)) = means.networks.shortcut(self.port, sent.head, sent.length) else { return Ok(false) };
        let Some((card, target)) = means.neighbours.at_rest(owner) else { return Ok(false) };
        let is_news = card.filled == 0;
        match card.accept(sent, memory, means.frames, target) {
            Ok(true) => {
                means.networks.note_shortcut(self.port, port, sent.length, is_news);
                Ok(true)
            }
            // Whatever is wrong there shows when that cell runs.
            Ok(false) | Err(CarryError::To(_)) => Ok(false),
            Err(CarryError::From(error)) => Err(error),
        }
    }

    /// Takes a frame out of another cell's memory, `source`, into its own cell's. `false`: there is no room.
    ///
    /// # Errors
    /// One of the two memories is in the way; nothing has arrived.
    fn accept(&mut self, sent: &Sent<'_>, source: &mut SpaceSet, frames: &mut Frames, memory: &mut SpaceSet) -> Result<bool, CarryError> {
        let Some((place, room)) = self.room(HEADER + sent.length, frames, memory).map_err(CarryError::To)? else { return Ok(false) };
        memory.write(frames, place, &frame::header(sent.length), Behalf::Cell).map_err(CarryError::To)?;
        let place = place.wrapping_add(HEADER as u64);
        memory.write(frames, place, sent.head, Behalf::Cell).map_err(CarryError::To)?;
        let rest = sent.length - sent.head.len();
        carry(frames, (source, sent.rest()), (memory, place.wrapping_add(sent.head.len() as u64)), rest)?;
        self.filled += frame::room(sent.length).min(room) as u32;
        Ok(true)
    }

    /// Where so many bytes have room, and how much there is: in the next receive descriptor, or, where that has no more, in the one after it.
    fn room(&mut self, length: usize, frames: &mut Frames, memory: &mut SpaceSet) -> Result<Option<(u64, usize)>, CopyError> {
        for _ in 0..2 {
            let Some(descriptor) = self.receive.next(frames, memory) else { break };
            let room = descriptor.length.min(MAX_DESCRIPTOR_BYTES).saturating_sub(self.filled) as usize;
            if length <= room {
                return Ok(Some((descriptor.address.wrapping_add(self.filled.into()), room)));
            }
            if self.filled == 0 {
                break;
            }
            self.receive.take(frames, memory, self.filled)?;
            self.filled = 0;
        }
        Ok(None)
    }

    fn serve_receive(&mut self, frames: &mut Frames, memory: &mut SpaceSet, networks: &mut Networks) -> Result<bool, CopyError> {
        let mut moved = false;
        for _ in 0..self.receive.length() {
            if networks.peek(self.port).is_none() && self.filled == 0 {
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
