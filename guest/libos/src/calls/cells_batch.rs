// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of calls that programs make through `/dev/cells`: a child is made, prepared and started at one exit.

use alloc::vec::Vec;

use pando_abi::cells_device::BATCH_WORDS;
use pando_abi::hypercall::RECORD_WORDS;
use pando_abi::limits::{HOST_NAME_BYTES, MAX_BATCH_CALLS, MAX_WRITE_BYTES};
use pando_abi::{HoldingName, Hypercall, Refusal};
use pando_rt::cells::CellBatch;
use pando_rt::user;

use super::cells_device::{check, copied, may_pass_on, read_words};
use crate::errno::Errno;
use crate::files::cells_file::CellsFile;
use crate::system::System;

/// A call with the program's bytes that it reads.
type CallWithBytes = (Hypercall, Vec<u8>);

impl CellsFile {
    /// Makes a batch of calls, whose description lies at `argument`.
    ///
    /// # Errors
    /// `EFAULT`. `EINVAL`: there are no calls or too many. `EPERM`: a call may not be in a batch, or does not name a held cell that was
    /// made through this file. `ENOMEM`.
    pub(super) fn batch(self, system: &mut System, argument: u64) -> Result<u64, Errno> {
        let [address, count, _] = read_words::<BATCH_WORDS>(argument)?;
        if count == 0 || count > MAX_BATCH_CALLS {
            return Err(Errno::EINVAL);
        }
        let calls = read_calls(address, count)?;
        let makes_child = matches!(calls.first(), Some((Hypercall::CellClone { .. }, _)));
        calls.iter().try_for_each(|(call, _)| check_call(self, system, *call, makes_child))?;
        let mut batch = CellBatch::default();
        for (call, bytes) in &calls {
            add(&mut batch, *call, bytes).map_err(|_| Errno::EPERM)?;
        }
        let performed = batch.perform();
        if let Some(child) = performed.ok().and_then(|result| HoldingName::from_bits(result >> 32)) {
            self.add(&mut system.files.cells_files, child);
        }
        let result = performed.unwrap_or_else(Refusal::to_result);
        user::write(argument + (BATCH_WORDS as u64 - 1) * 8, &result.to_le_bytes())?;
        Ok(0)
    }
}

/// Reads the program's calls.
fn read_calls(address: u64, count: u64) -> Result<Vec<CallWithBytes>, Errno> {
    let calls = (0..count).map(|index| {
        let place = address.checked_add(index * (RECORD_WORDS as u64 * 8)).ok_or(Errno::EFAULT)?;
        let call = Hypercall::from_record(read_words(place)?).ok_or(Errno::EPERM)?;
        let bytes = match call {
            // The result has the name of one child.
            Hypercall::CellClone { .. } if index > 0 => return Err(Errno::EPERM),
            Hypercall::Write { source, bytes, .. } => copied(source, bytes, MAX_WRITE_BYTES)?,
            Hypercall::CellName { address, bytes, .. } => copied(address, bytes, HOST_NAME_BYTES as u64)?,
            _ => Vec::new(),
        };
        Ok((call, bytes))
    });
    calls.collect()
}

/// Checks that a call is about a child that was made through the file, or about the one that the batch makes.
fn check_call(file: CellsFile, system: &System, call: Hypercall, makes_child: bool) -> Result<(), Errno> {
    let is_about_newest = call.for_newest(HoldingName::ROOT) != call;
    match call {
        _ if !is_about_newest => check(file, system, call),
        Hypercall::Grant { holding, .. } if !may_pass_on(file, system, holding) => Err(Errno::EPERM),
        _ if makes_child => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

/// Adds a call that makes, prepares or starts a child.
fn add<'a>(batch: &mut CellBatch<'a>, call: Hypercall, bytes: &'a [u8]) -> Result<(), Refusal> {
    match call {
        Hypercall::Write { space, address, .. } => batch.write(space, address, bytes),
        Hypercall::CellName { cell, .. } => {
            batch.set_name(cell, bytes);
            Ok(())
        }
        Hypercall::CellClone { .. } | Hypercall::CellRun { .. } | Hypercall::CellLimit { .. } | Hypercall::Grant { .. } => batch.call(call),
        _ => Err(Refusal::NoSuchCall),
    }
}
