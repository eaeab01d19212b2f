// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/cells`: the calls about held cells that programs make.

use alloc::vec::Vec;

use pando_abi::cells_device::{BATCH, CALL, CALL_WORDS};
use pando_abi::holding::{ConsoleReadResult, holding_of_space};
use pando_abi::limits::{HOST_NAME_BYTES, MAX_CONSOLE_BYTES, MAX_SWAP_PAGES, MAX_WRITE_BYTES};
use pando_abi::{HoldingName, Hypercall, PAGE_SIZE, Refusal};
use pando_rt::user::UserRange;
use pando_rt::{cells, user};

use crate::calls::file_operations::CallOperations;
use crate::errno::Errno;
use crate::files::cells_file::CellsFile;
use crate::system::System;

impl CallOperations for CellsFile {
    /// Makes a call, whose record lies at `argument`.
    ///
    /// # Errors
    /// `ENOTTY`: another request. `EFAULT`. `EPERM`: the call does not name a held cell that was made through this file. `EINVAL`,
    /// `ENOMEM`.
    fn ioctl(&self, system: &mut System, _fd: u64, request: u32, argument: u64) -> Result<u64, Errno> {
        match request {
            CALL => {}
            BATCH => return self.batch(system, argument),
            _ => return Err(Errno::ENOTTY),
        }
        let call = Hypercall::from_record(read_words(argument)?).ok_or(Errno::EPERM)?;
        check(*self, system, call)?;
        let made = match self.message_call(system, call, argument)? {
            Some(result) => result,
            None => make(call)?,
        };
        let result = match made {
            Ok(result) => {
                self.note(system, call, result);
                result
            }
            Err(refusal) => refusal.to_result(),
        };
        user::write(argument + (CALL_WORDS as u64 - 1) * 8, &result.to_le_bytes())?;
        Ok(0)
    }
}

impl CellsFile {
    /// Records what a successful call means for the holdings of this file.
    fn note(self, system: &mut System, call: Hypercall, result: u64) {
        let files = &mut system.files.cells_files;
        match (call, HoldingName::from_bits(result)) {
            (
                Hypercall::CellClone { .. } | Hypercall::CellChild { .. } | Hypercall::PortCreate {} | Hypercall::Grant { cell: 0, .. },
                Some(made),
            ) => self.add(files, made),
            (Hypercall::Drop { holding }, _) => {
                if let Some(child) = HoldingName::from_bits(holding) {
                    self.remove(files, child);
                }
            }
            _ => {}
        }
    }
}

/// Words of the program.
pub(super) fn read_words<const N: usize>(address: u64) -> Result<[u64; N], Errno> {
    let mut words = [0; N];
    for (index, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        user::read(address.checked_add(index as u64 * 8).ok_or(Errno::EFAULT)?, &mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}

/// Whether a program may give the holding away: it was made through the file, or given to this cell.
pub(super) fn may_pass_on(file: CellsFile, system: &System, bits: u64) -> bool {
    let files = &system.files.cells_files;
    HoldingName::from_bits(bits).is_some_and(|name| file.owns(files, name) || files.is_given(name))
}

/// Checks that a call is about a holding that was made through the file. Some may also name what was given to this cell.
pub(super) fn check(file: CellsFile, system: &System, call: Hypercall) -> Result<(), Errno> {
    let owns = |bits: u64| HoldingName::from_bits(bits).is_some_and(|name| file.owns(&system.files.cells_files, name));
    let is_root = |bits: u64| bits == HoldingName::ROOT.bits();
    let is_allowed = match call {
        Hypercall::CellClone { source, .. } => is_root(source) || owns(source),
        Hypercall::Grant { cell, holding, .. } => (cell == 0 || owns(cell)) && may_pass_on(file, system, holding),
        Hypercall::Call { reference, .. } => may_pass_on(file, system, reference),
        Hypercall::Receive { port, reply, .. } => owns(port) && (reply == 0 || owns(reply)),
        Hypercall::Reply { reply, .. } => owns(reply),
        Hypercall::ImageList { cell, base, .. } => owns(cell) && (base == 0 || owns(base)),
        Hypercall::PortCreate {} => true,
        Hypercall::Drop { holding } => owns(holding),
        Hypercall::CellRun { cell }
        | Hypercall::CellStop { cell, .. }
        | Hypercall::CellEnd { cell }
        | Hypercall::CellState { cell, .. }
        | Hypercall::CellLimit { cell, .. }
        | Hypercall::CellName { cell, .. }
        | Hypercall::CellRaise { cell, .. }
        | Hypercall::CellWatch { cell, .. }
        | Hypercall::CellResume { cell, .. }
        | Hypercall::CellChild { cell, .. }
        | Hypercall::StateRead { cell, .. }
        | Hypercall::StateWrite { cell, .. }
        | Hypercall::Donate { cell, .. }
        | Hypercall::ConsoleRead { cell, .. }
        | Hypercall::ConsoleWrite { cell, .. } => owns(cell),
        call => call.space().and_then(holding_of_space).is_some_and(owns),
    };
    if is_allowed { Ok(()) } else { Err(Errno::EPERM) }
}

/// Makes a call. The program's bytes go through a buffer, so that the program's memory faults as in any other call.
fn make(call: Hypercall) -> Result<Result<u64, Refusal>, Errno> {
    Ok(match call {
        Hypercall::Write { space, address, source, bytes } => cells::write(space, address, &copied(source, bytes, MAX_WRITE_BYTES)?),
        Hypercall::CellName { cell, address, bytes } => cells::set_name(cell, &copied(address, bytes, HOST_NAME_BYTES as u64)?),
        Hypercall::ConsoleWrite { cell, address, bytes, port } => {
            cells::write_console(cell, port, &copied(address, bytes, MAX_CONSOLE_BYTES)?)
        }
        Hypercall::StateWrite { cell, kind, address, bytes } => cells::write_state(cell, kind, &copied(address, bytes, MAX_CONSOLE_BYTES)?),
        Hypercall::StateRead { cell, kind, address, bytes } => {
            let mut buffer = buffer(bytes, MAX_CONSOLE_BYTES)?;
            let result = cells::read_state(cell, kind, &mut buffer);
            if let Ok(count) = result {
                user::write(address, &buffer[..buffer.len().min(count as usize)])?;
            }
            result
        }
        Hypercall::ImageList { cell, base, position, address, bytes } => {
            let mut buffer = buffer(bytes, MAX_CONSOLE_BYTES)?;
            let result = cells::list_image(cell, base, position, &mut buffer);
            if let Ok(count) = result {
                user::write(address, &buffer[..buffer.len().min(count as usize)])?;
            }
            result
        }
        Hypercall::Read { space, address, target, bytes } => {
            let mut buffer = buffer(bytes, MAX_WRITE_BYTES)?;
            let result = cells::read(space, address, &mut buffer);
            if result.is_ok() {
                user::write(target, &buffer)?;
            }
            result
        }
        // Many pages: they move between the kernel and the program's memory, which is made present before.
        Hypercall::Take { space, address, pages, buffer, swap } => {
            let target = swap_buffer(buffer, pages)?;
            check_writable(target.start(), target.length())?;
            cells::take(space, address, target, swap)
        }
        Hypercall::Give { space, address, pages, buffer, swap } => {
            let source = swap_buffer(buffer, pages)?;
            for page in 0..pages {
                user::read(source.start() + page * PAGE_SIZE, &mut [0])?;
            }
            cells::give(space, address, source, swap)
        }
        Hypercall::PagesRead { space, address, pages, buffer } => {
            let target = swap_buffer(buffer, pages)?;
            check_writable(target.start(), target.length())?;
            cells::read_pages(space, address, target)
        }
        Hypercall::PagesWrite { space, address, pages, buffer } => {
            let source = swap_buffer(buffer, pages)?;
            for page in 0..pages {
                user::read(source.start() + page * PAGE_SIZE, &mut [0])?;
            }
            cells::write_pages(space, address, source)
        }
        Hypercall::ConsoleRead { cell, address, bytes, port } if bytes > 0 => {
            let mut buffer = buffer(bytes, MAX_CONSOLE_BYTES)?;
            check_writable(address, bytes)?;
            let result = cells::read_console(cell, port, &mut buffer);
            if let Ok(ConsoleReadResult::Bytes { count, .. }) = result.map(ConsoleReadResult::from_bits) {
                user::write(address, &buffer[..buffer.len().min(count as usize)])?;
            }
            result
        }
        call => cells::call(call),
    })
}

/// The program's memory for the content of pages.
fn swap_buffer(address: u64, pages: u64) -> Result<UserRange, Errno> {
    if !(1..=MAX_SWAP_PAGES).contains(&pages) {
        return Err(Errno::EINVAL);
    }
    Ok(UserRange::new(address, pages * PAGE_SIZE)?)
}

/// A buffer of zeros, of at most `max` bytes.
pub(super) fn buffer(bytes: u64, max: u64) -> Result<Vec<u8>, Errno> {
    if bytes > max {
        return Err(Errno::EINVAL);
    }
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes as usize).map_err(|_| Errno::ENOMEM)?;
    buffer.resize(bytes as usize, 0);
    Ok(buffer)
}

/// The program's bytes.
pub(super) fn copied(address: u64, bytes: u64, max: u64) -> Result<Vec<u8>, Errno> {
    let mut buffer = buffer(bytes, max)?;
    user::read(address, &mut buffer)?;
    Ok(buffer)
}

/// Faults in the program's memory now, before output is taken that would then be lost. Its content stays.
pub(super) fn check_writable(address: u64, bytes: u64) -> Result<(), Errno> {
    let last = address.checked_add(bytes.saturating_sub(1)).ok_or(Errno::EFAULT)?;
    let pages = (address / PAGE_SIZE + 1..=last / PAGE_SIZE).map(|page| page * PAGE_SIZE);
    for place in core::iter::once(address).chain(pages) {
        let mut byte = [0];
        user::read(place, &mut byte)?;
        user::write(place, &byte)?;
    }
    Ok(())
}
