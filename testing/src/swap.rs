// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swap space in memory for tests, which fills up, fails and lies on request.

use pando_kernel::{Swap, SwapError, SwapSlot, SwapUsage};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// The misbehaviour of a [`TestSwap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapFault {
    /// None.
    #[default]
    None,
    /// It has no room.
    Full,
    /// It has room for this many bytes more.
    Room(usize),
    /// Writes fail.
    Write,
    /// Reads fail.
    Read,
    /// Reads report that a record is damaged.
    Damaged,
    /// Reads return the record with one changed byte at this position, modulo its length.
    FlippedByte(usize),
    /// Reads return the first bytes of the record, this many.
    Short(usize),
    /// Freed slots stay in use: for a canary.
    Leak,
}

#[derive(Default)]
struct Records {
    records: HashMap<u64, Vec<u8>>,
    next: u64,
    fault: SwapFault,
    /// Called once, before a record is put.
    before_put: Option<Box<dyn FnOnce() + Send>>,
    /// Called once, before a record is read.
    before_read: Option<Box<dyn FnOnce() + Send>>,
}

/// Swap space in memory.
#[derive(Default)]
pub struct TestSwap(Mutex<Records>);

impl TestSwap {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().expect("no holder panics")
    }

    /// Misbehaves from now on.
    pub fn fail(&self, fault: SwapFault) {
        self.lock().fault = fault;
    }

    /// Calls `action` before the next record is put: something happens while a cell falls asleep.
    pub fn before_put(&self, action: impl FnOnce() + Send + 'static) {
        self.lock().before_put = Some(Box::new(action));
    }

    /// Calls `action` before the next record is read: one read is slow.
    pub fn before_read(&self, action: impl FnOnce() + Send + 'static) {
        self.lock().before_read = Some(Box::new(action));
    }

    /// Lengths of all records.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        self.lock().records.values().map(Vec::len).collect()
    }
}

impl Swap for TestSwap {
    fn put(&self, record: &[u8]) -> Result<SwapSlot, SwapError> {
        let action = self.lock().before_put.take();
        if let Some(action) = action {
            action();
        }
        let mut records = self.lock();
        match records.fault {
            SwapFault::Full => return Err(SwapError::Full),
            SwapFault::Room(room) => records.fault = SwapFault::Room(room.checked_sub(record.len()).ok_or(SwapError::Full)?),
            SwapFault::Write => return Err(SwapError::Host("the disk of the test fails".into())),
            _ => {}
        }
        records.next += 1;
        let slot = records.next;
        records.records.insert(slot, record.to_vec());
        Ok(SwapSlot(slot))
    }

    fn read(&self, slot: &SwapSlot) -> Result<Vec<u8>, SwapError> {
        let action = self.lock().before_read.take();
        if let Some(action) = action {
            action();
        }
        let records = self.lock();
        let mut record = records.records.get(&slot.0).cloned().ok_or(SwapError::Damaged)?;
        match records.fault {
            SwapFault::Read => return Err(SwapError::Host("the disk of the test fails".into())),
            SwapFault::Damaged => return Err(SwapError::Damaged),
            SwapFault::FlippedByte(at) => {
                let at = at % record.len();
                record[at] ^= 0x55;
            }
            SwapFault::Short(length) => record.truncate(length % record.len()),
            _ => {}
        }
        Ok(record)
    }

    fn discard(&self, slot: SwapSlot) {
        let mut records = self.lock();
        if records.fault != SwapFault::Leak {
            records.records.remove(&slot.0);
        }
    }

    fn usage(&self) -> SwapUsage {
        let records = self.lock();
        let used = records.records.values().map(|record| record.len() as u64).sum();
        SwapUsage { used, size: u64::MAX, records: records.records.len() as u64 }
    }
}
