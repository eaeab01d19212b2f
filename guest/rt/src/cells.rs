// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls about the cells that this cell holds. They change no memory of this cell, but for the buffers that they are given.

use alloc::vec::Vec;
use core::marker::PhantomData;

use pando_abi::holding::holding_of_space;
use pando_abi::hypercall::RECORD_WORDS;
use pando_abi::{Hypercall, PAGE_SIZE, Refusal};

use crate::hypercall::perform;
use crate::user::UserRange;

/// Whether a call is about a holding, and takes no address of this cell.
#[must_use]
pub fn takes_no_address(call: Hypercall) -> bool {
    match call {
        Hypercall::CellClone { .. }
        | Hypercall::CellRun { .. }
        | Hypercall::CellStop { .. }
        | Hypercall::CellEnd { .. }
        | Hypercall::Drop { .. }
        | Hypercall::CellState { .. }
        | Hypercall::CellLimit { .. }
        | Hypercall::CellRaise { .. }
        | Hypercall::Grant { .. }
        | Hypercall::CellWatch { .. }
        | Hypercall::CellResume { .. }
        | Hypercall::CellChild { .. }
        | Hypercall::Donate { .. }
        | Hypercall::PortCreate {}
        // Without room for bytes it closes a stream.
        | Hypercall::ConsoleRead { bytes: 0, .. } => true,
        Hypercall::Write { .. } | Hypercall::Read { .. } | Hypercall::Take { .. } | Hypercall::Give { .. } => false,
        Hypercall::PagesRead { .. } | Hypercall::PagesWrite { .. } => false,
        call => call.space().and_then(holding_of_space).is_some(),
    }
}

/// Performs a call about a holding.
///
/// # Errors
/// The reason for the refusal; `NoSuchCall`: the call [takes an address](takes_no_address), or is about this cell.
pub fn call(call: Hypercall) -> Result<u64, Refusal> {
    if !takes_no_address(call) {
        return Err(Refusal::NoSuchCall);
    }
    // SAFETY: 1: the call is about another cell. 2: vector registers survive it.
    unsafe { perform(call) }
}

/// Calls about held cells that are performed in order at one exit.
#[derive(Debug, Default)]
pub struct CellBatch<'a> {
    records: Vec<[u64; RECORD_WORDS]>,
    /// The bytes that the calls read.
    sources: PhantomData<&'a [u8]>,
}

impl<'a> CellBatch<'a> {
    /// Adds a call that [takes no address](takes_no_address).
    ///
    /// # Errors
    /// `NoSuchCall`: it takes an address, or is about this cell.
    pub fn call(&mut self, call: Hypercall) -> Result<(), Refusal> {
        if !takes_no_address(call) {
            return Err(Refusal::NoSuchCall);
        }
        self.records.push(call.record());
        Ok(())
    }

    /// Adds a copy of bytes to an address of a space of a child.
    ///
    /// # Errors
    /// `NoSuchHolding`: the space is not that of a child.
    pub fn write(&mut self, space: u64, address: u64, bytes: &'a [u8]) -> Result<(), Refusal> {
        if holding_of_space(space).is_none() {
            return Err(Refusal::NoSuchHolding);
        }
        let source = bytes.as_ptr().expose_provenance() as u64;
        self.records.push(Hypercall::Write { space, address, source, bytes: bytes.len() as u64 }.record());
        Ok(())
    }

    /// Adds a host name of a child.
    pub fn set_name(&mut self, cell: u64, name: &'a [u8]) {
        let address = name.as_ptr().expose_provenance() as u64;
        self.records.push(Hypercall::CellName { cell, address, bytes: name.len() as u64 }.record());
    }

    /// Performs the calls up to the first refused one. Returns the result of `batch`.
    ///
    /// # Errors
    /// The reason for the refusal of the first call; `BadArgument`: there are none, or more than
    /// [`MAX_BATCH_CALLS`](pando_abi::limits::MAX_BATCH_CALLS).
    pub fn perform(&self) -> Result<u64, Refusal> {
        let call = Hypercall::Batch { address: self.records.as_ptr().expose_provenance() as u64, calls: self.records.len() as u64 };
        // SAFETY: 1: the calls are about other cells; they only read memory of this one. 2: as in `call`.
        unsafe { perform(call) }
    }
}

/// Copies bytes to an address of a space of a child.
///
/// # Errors
/// The reason for the refusal; `NoSuchHolding`: the space is not that of a child.
pub fn write(space: u64, address: u64, bytes: &[u8]) -> Result<u64, Refusal> {
    if holding_of_space(space).is_none() {
        return Err(Refusal::NoSuchHolding);
    }
    let source = bytes.as_ptr().expose_provenance() as u64;
    // SAFETY: 1: it changes another cell's memory. 2: as in `call`.
    unsafe { perform(Hypercall::Write { space, address, source, bytes: bytes.len() as u64 }) }
}

/// Copies bytes at an address of a space of a child.
///
/// # Errors
/// The reason for the refusal; `NoSuchHolding`: the space is not that of a child.
pub fn read(space: u64, address: u64, buffer: &mut [u8]) -> Result<u64, Refusal> {
    if holding_of_space(space).is_none() {
        return Err(Refusal::NoSuchHolding);
    }
    let target = buffer.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: 1: it writes into the buffer, which is exclusively the caller's. 2: as in `call`.
    unsafe { perform(Hypercall::Read { space, address, target, bytes: buffer.len() as u64 }) }
}

/// Takes pages out of a halted child, at most as many as the target, which begins at a page, has room for. The result is
/// [`pando_abi::memory::TakenPages`].
///
/// # Errors
/// The reason for the refusal; `NoSuchHolding`: the space is not that of a child.
pub fn take(space: u64, address: u64, target: UserRange, swap: u64) -> Result<u64, Refusal> {
    if holding_of_space(space).is_none() {
        return Err(Refusal::NoSuchHolding);
    }
    let (buffer, pages) = (target.start(), target.length() / PAGE_SIZE);
    // SAFETY: 1: it writes application memory, which is never ours. 2: as in `call`.
    unsafe { perform(Hypercall::Take { space, address, pages, buffer, swap }) }
}

/// Copies pages of a child that was not started to a target, which begins at a page.
///
/// # Errors
/// The reason for the refusal; `NoSuchHolding`: the space is not that of a child.
pub fn read_pages(space: u64, address: u64, target: UserRange) -> Result<u64, Refusal> {
    if holding_of_space(space).is_none() {
        return Err(Refusal::NoSuchHolding);
    }
    let (buffer, pages) = (target.start(), target.length() / PAGE_SIZE);
    // SAFETY: 1: it writes application memory, which is never ours. 2: as in `call`.
    unsafe { perform(Hypercall::PagesRead { space, address, pages, buffer }) }
}

/// Copies the pages of a source, which begins at a page, to a child that was not started.
///
/// # Errors
/// The reason for the refusal; `NoSuchHolding`: the space is not that of a child.
pub fn write_pages(space: u64, address: u64, source: UserRange) -> Result<u64, Refusal> {
    if holding_of_space(space).is_none() {
        return Err(Refusal::NoSuchHolding);
    }
    let (buffer, pages) = (source.start(), source.length() / PAGE_SIZE);
    // SAFETY: 1: it changes another cell's memory, and only reads application memory. 2: as in `call`.
    unsafe { perform(Hypercall::PagesWrite { space, address, pages, buffer }) }
}

/// Gives pages to a halted child, at most those of the source, which begins at a page. Returns their number.
///
/// # Errors
/// The reason for the refusal; `NoSuchHolding`: the space is not that of a child.
pub fn give(space: u64, address: u64, source: UserRange, swap: u64) -> Result<u64, Refusal> {
    if holding_of_space(space).is_none() {
        return Err(Refusal::NoSuchHolding);
    }
    let (buffer, pages) = (source.start(), source.length() / PAGE_SIZE);
    // SAFETY: 1: it only reads application memory. 2: as in `call`.
    unsafe { perform(Hypercall::Give { space, address, pages, buffer, swap }) }
}

/// Copies state of a halted child ([`pando_abi::watch::state`]). Returns the number of bytes.
///
/// # Errors
/// The reason for the refusal.
pub fn read_state(cell: u64, kind: u64, buffer: &mut [u8]) -> Result<u64, Refusal> {
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: 1: it writes into the buffer, which is exclusively the caller's. 2: as in `call`.
    unsafe { perform(Hypercall::StateRead { cell, kind, address, bytes: buffer.len() as u64 }) }
}

/// Lists the memory of a child that was not started, from a position on. Returns the number of bytes.
///
/// # Errors
/// The reason for the refusal.
pub fn list_image(cell: u64, base: u64, position: u64, buffer: &mut [u8]) -> Result<u64, Refusal> {
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: 1: it writes into the buffer, which is exclusively the caller's. 2: as in `call`.
    unsafe { perform(Hypercall::ImageList { cell, base, position, address, bytes: buffer.len() as u64 }) }
}

/// Sets state of a child that is halted or was not started.
///
/// # Errors
/// The reason for the refusal.
pub fn write_state(cell: u64, kind: u64, bytes: &[u8]) -> Result<u64, Refusal> {
    let address = bytes.as_ptr().expose_provenance() as u64;
    // SAFETY: 1: the call only reads this memory. 2: as in `call`.
    unsafe { perform(Hypercall::StateWrite { cell, kind, address, bytes: bytes.len() as u64 }) }
}

/// Sets the host name of a child that has not started.
///
/// # Errors
/// The reason for the refusal.
pub fn set_name(cell: u64, name: &[u8]) -> Result<u64, Refusal> {
    let address = name.as_ptr().expose_provenance() as u64;
    // SAFETY: 1: the call only reads this memory. 2: as in `call`.
    unsafe { perform(Hypercall::CellName { cell, address, bytes: name.len() as u64 }) }
}

/// Reads output of a child from one of its ports ([`pando_abi::holding::port`]). The result is
/// [`pando_abi::holding::ConsoleReadResult`].
///
/// # Errors
/// The reason for the refusal.
pub fn read_console(cell: u64, port: u64, buffer: &mut [u8]) -> Result<u64, Refusal> {
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: 1: it writes into the buffer, which is exclusively the caller's. 2: as in `call`.
    unsafe { perform(Hypercall::ConsoleRead { cell, address, bytes: buffer.len() as u64, port }) }
}

/// Sends bytes to the input of a port of a child; none end it. Returns how many there was room for.
///
/// # Errors
/// The reason for the refusal.
pub fn write_console(cell: u64, port: u64, bytes: &[u8]) -> Result<u64, Refusal> {
    let address = bytes.as_ptr().expose_provenance() as u64;
    // SAFETY: 1: the call only reads this memory. 2: as in `call`.
    unsafe { perform(Hypercall::ConsoleWrite { cell, address, bytes: bytes.len() as u64, port }) }
}
