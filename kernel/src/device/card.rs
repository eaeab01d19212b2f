// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network card: moves batches of frames between a cell's rings and its port.
//!
//! A frame to send lies in the sender's memory. If the switch offers a shortcut, and the receiver is not running and has room, one
//! copy moves the frame into the receiver's memory; otherwise it goes through a queue. A receive descriptor filled in part by
//! shortcuts is completed when its cell next runs, and later frames from the queue follow it.

use super::ring::RingState;
use crate::limits::CARD_STEP;
use crate::memory::{CopyAuthority, CopyBetweenError, CopyError, Frames, SpaceSet, copy_between};
use crate::network::{Networks, Owner, PortId};
use pando_abi::frame::{self, HEADER};
use pando_abi::layout::NETWORK_RINGS;
use pando_abi::limits::{MAX_DESCRIPTOR_BYTES, NETWORK_DESCRIPTORS};
use pando_abi::ring::{Descriptor, FAULTED, NetworkRings};
use pando_machine::Nanos;
use std::mem::offset_of;

/// Bytes of a batch that are read at first: the length of its next frame, and the headers of that frame or all of a small one.
const HEAD: usize = 128;

/// A cell's network card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) port: PortId,
    transmit: RingState,
    receive: RingState,
    /// Bytes of the next transmit descriptor whose frames are already sent.
    sent: usize,
    /// Bytes of the next receive descriptor that are already filled.
    filled: u32,
    /// The transmit ring was full, and the cell was not yet notified that it has room.
    room_event_due: bool,
}

/// Access to the cards and the memory of the other cells.
pub(crate) trait PeerCells {
    /// The card and the memory of a cell that is not running.
    fn find_stopped(&mut self, owner: &Owner) -> Option<(&mut Card, &mut SpaceSet)>;
}

/// Kernel state that cards use besides the memory of their cells.
pub(crate) struct CardContext<'a> {
    pub(crate) frames: &'a mut Frames,
    pub(crate) networks: &'a mut Networks,
    pub(crate) peers: &'a mut dyn PeerCells,
    pub(crate) now: Nanos,
}

/// A frame in its sender's memory.
struct TxFrame<'a> {
    /// Its first bytes, or all of them.
    head: &'a [u8],
    address: u64,
    length: usize,
}

impl TxFrame<'_> {
    /// Address of the bytes behind the head.
    fn tail_address(&self) -> u64 {
        self.address.wrapping_add(self.head.len() as u64)
    }
}

impl Card {
    /// A card plugged in at a port.
    pub(crate) fn new(port: PortId) -> Card {
        let ring = |offset: usize| RingState::new(NETWORK_RINGS + offset as u64, NETWORK_DESCRIPTORS);
        let [transmit, receive] = [offset_of!(NetworkRings, transmit), offset_of!(NetworkRings, receive)].map(ring);
        Card { port, transmit, receive, sent: 0, filled: 0, room_event_due: false }
    }

    /// Empties the rings for a new card: if the source of a clone had one, they are not empty.
    ///
    /// # Errors
    /// No memory for their page, or it is a block of a disk that must be read first.
    pub(crate) fn empty_rings(frames: &mut Frames, memory: &mut SpaceSet) -> Result<(), CopyError> {
        let mut rings = [0; size_of::<NetworkRings>()];
        memory.read(frames, NETWORK_RINGS, &mut rings, CopyAuthority::Operator)?;
        // Most rings are empty already, and writing would cost a page.
        if rings.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        rings.fill(0);
        memory.write(frames, NETWORK_RINGS, &rings, CopyAuthority::Operator)
    }

    /// Whether the cell has posted frames that are not sent yet.
    pub(crate) fn has_posted_frames(&self, frames: &Frames, memory: &mut SpaceSet) -> bool {
        self.transmit.next(frames, memory).is_some()
    }

    /// Moves frames in both directions, in steps of [`CARD_STEP`]. Returns `true` if the cell should look at its rings: frames
    /// have arrived, a full ring has room again, or more is to be moved. A cell with an event does not idle.
    ///
    /// # Errors
    /// No memory for a page of the cell that must be made, or a block of a disk must be read first: the rest follows at the next
    /// call.
    pub(crate) fn serve(&mut self, memory: &mut SpaceSet, context: &mut CardContext<'_>) -> Result<bool, CopyError> {
        let more = self.serve_transmit(memory, context)?;
        let received = self.serve_receive(context.frames, memory, context.networks)?;
        Ok(std::mem::take(&mut self.room_event_due) || more || received)
    }

    /// Returns `true` if more frames are to be sent.
    fn serve_transmit(&mut self, memory: &mut SpaceSet, context: &mut CardContext<'_>) -> Result<bool, CopyError> {
        // Room is reported only after the ring was full.
        self.room_event_due |= self.transmit.is_full(context.frames, memory);
        let mut budget = CARD_STEP;
        for _ in 0..self.transmit.length() {
            let Some(descriptor) = self.transmit.next(context.frames, memory) else { return Ok(false) };
            let length = match self.send(&descriptor, memory, context, &mut budget) {
                Ok(true) => self.sent as u32,
                Ok(false) => return Ok(true),
                Err(CopyError::Refused | CopyError::Unreadable) => FAULTED,
                Err(later) => return Err(later),
            };
            self.transmit.complete(context.frames, memory, length)?;
            self.sent = 0;
        }
        // The cell may have posted more meanwhile.
        Ok(true)
    }

    /// Sends the unsent frames of a batch. `false`: the budget is too small for the rest.
    ///
    /// # Errors
    /// The rest is not a frame, or cannot be read now.
    fn send(
        &mut self,
        descriptor: &Descriptor,
        memory: &mut SpaceSet,
        context: &mut CardContext<'_>,
        budget: &mut usize,
    ) -> Result<bool, CopyError> {
        let end = descriptor.length.min(MAX_DESCRIPTOR_BYTES) as usize;
        // The cell may have shortened the descriptor since its first frames were sent.
        while self.sent < end {
            if *budget == 0 {
                return Ok(false);
            }
            let (address, left) = (descriptor.address.wrapping_add(self.sent as u64), end - self.sent);
            let mut head = [0; HEAD];
            let head = &mut head[..left.min(HEAD)];
            memory.read(context.frames, address, head, CopyAuthority::Cell)?;
            let (header, head) = head.split_first_chunk().ok_or(CopyError::Refused)?;
            let length = frame::length(header, left - HEADER).ok_or(CopyError::Refused)?;
            let head = &head[..length.min(head.len())];
            let sent = TxFrame { head, address: address.wrapping_add(HEADER as u64), length };
            let cost = if self.send_by_copy(&sent, memory, context)? { 1 } else { self.send_by_switch(&sent, memory, context)? };
            *budget = budget.saturating_sub(cost);
            // The last frame may lack its padding.
            self.sent = (self.sent + frame::room(length)).min(end);
        }
        Ok(true)
    }

    /// Sends a frame through the switch. Returns its cost.
    fn send_by_switch(&self, sent: &TxFrame<'_>, memory: &mut SpaceSet, context: &mut CardContext<'_>) -> Result<usize, CopyError> {
        let frame = context.networks.buffers.allocate_filled(sent.length, |bytes| {
            let (head, rest) = bytes.split_at_mut(sent.head.len());
            head.copy_from_slice(sent.head);
            memory.read(context.frames, sent.tail_address(), rest, CopyAuthority::Cell)
        })?;
        Ok(context.networks.send(self.port, frame, context.now))
    }

    /// Copies a frame into the receiver's memory, if the shortcut is allowed and there is room. The copied header is the one that
    /// the anti-spoofing filter checked.
    ///
    /// # Errors
    /// The frame cannot be read.
    fn send_by_copy(&self, sent: &TxFrame<'_>, memory: &mut SpaceSet, context: &mut CardContext<'_>) -> Result<bool, CopyError> {
        let Some((port, owner)) = context.networks.shortcut(self.port, sent.head, sent.length) else { return Ok(false) };
        let Some((card, target)) = context.peers.find_stopped(owner) else { return Ok(false) };
        let must_notify = card.filled == 0;
        match card.receive_copy(sent, memory, context.frames, target) {
            Ok(true) => {
                context.networks.note_shortcut(self.port, port, sent.length, must_notify);
                Ok(true)
            }
            // An error in the receiver's memory is handled when that cell runs.
            Ok(false) | Err(CopyBetweenError::Destination(_)) => Ok(false),
            Err(CopyBetweenError::Source(error)) => Err(error),
        }
    }

    /// Copies a frame from another cell's memory, `source`, into its own cell's. `false`: there is no room.
    ///
    /// # Errors
    /// One of the two memories cannot be accessed; nothing has arrived.
    fn receive_copy(
        &mut self,
        sent: &TxFrame<'_>,
        source: &mut SpaceSet,
        frames: &mut Frames,
        memory: &mut SpaceSet,
    ) -> Result<bool, CopyBetweenError> {
        let Some((address, room)) = self.room(HEADER + sent.length, frames, memory).map_err(CopyBetweenError::Destination)? else {
            return Ok(false);
        };
        memory.write(frames, address, &frame::header(sent.length), CopyAuthority::Cell).map_err(CopyBetweenError::Destination)?;
        let address = address.wrapping_add(HEADER as u64);
        memory.write(frames, address, sent.head, CopyAuthority::Cell).map_err(CopyBetweenError::Destination)?;
        let rest = sent.length - sent.head.len();
        copy_between(frames, (source, sent.tail_address()), (memory, address.wrapping_add(sent.head.len() as u64)), rest)?;
        self.filled += frame::room(sent.length).min(room) as u32;
        Ok(true)
    }

    /// Finds room for `length` bytes: its address and how much there is, in the next receive descriptor or, if that has too little,
    /// in the one after it.
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
            self.receive.complete(frames, memory, self.filled)?;
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
            self.receive.complete(frames, memory, length)?;
            self.filled = 0;
            moved = true;
        }
        Ok(moved)
    }

    /// Fills a receive descriptor with queued frames, as far as they fit.
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
                networks.drop_oversized(self.port);
                continue;
            }
            let address = address.wrapping_add(at as u64);
            memory.write(frames, address, &frame::header(frame.len()), CopyAuthority::Cell)?;
            memory.write(frames, address.wrapping_add(HEADER as u64), frame, CopyAuthority::Cell)?;
            self.filled = (at + frame::room(frame.len())).min(room) as u32;
            networks.take(self.port);
        }
        Ok(())
    }
}
