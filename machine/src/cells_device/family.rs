// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls about cells below children, and about the holdings of children.

use super::CellsDevice;
use pando_abi::holding_record::{HOLDING_WORDS, HoldingRecord, MAX_HOLDINGS_WRITTEN};
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_abi::watch::state;
use pando_abi::{HoldingName, Hypercall};
use std::io::{Error, Result};

impl CellsDevice {
    /// Makes a view of the cell that a child holds as its child `name`. `cell` may be a view. It is given up as a child is.
    ///
    /// # Errors
    /// There is no such cell.
    pub fn view(&self, cell: HoldingName, name: HoldingName) -> Result<HoldingName> {
        let view = self.perform("look at a cell below a nested cell", Hypercall::CellChild { cell: cell.bits(), name: name.bits() })?;
        HoldingName::from_bits(view).ok_or_else(|| Error::other("the kernel has returned an invalid name of a cell"))
    }

    /// The table of holdings of a child that is halted or was not started, in order.
    ///
    /// # Errors
    /// It runs, or there is no such child.
    pub fn holdings(&self, child: HoldingName) -> Result<Vec<HoldingRecord>> {
        let (mut records, mut bytes) = (Vec::new(), vec![0; MAX_CONSOLE_BYTES as usize]);
        loop {
            let count = self.read_state(child, state::HOLDINGS | (records.len() as u64) << 32, &mut bytes)?;
            let words: Vec<u64> = bytes[..count].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            for words in words.as_chunks::<HOLDING_WORDS>().0 {
                let record = HoldingRecord::from_words(*words);
                records.push(record.ok_or_else(|| Error::other("the kernel has returned an invalid holding"))?);
            }
            if count < bytes.len() {
                return Ok(records);
            }
        }
    }

    /// Adds the next holdings of a child that was not started.
    ///
    /// # Errors
    /// It was started, its table has others, or its children cannot be made.
    pub fn add_holdings(&self, child: HoldingName, records: &[HoldingRecord]) -> Result<()> {
        records.chunks(MAX_HOLDINGS_WRITTEN).try_for_each(|records| {
            let bytes: Vec<u8> = records.iter().flat_map(|record| record.to_words()).flat_map(u64::to_le_bytes).collect();
            self.write_state(child, state::HOLDINGS, &bytes)
        })
    }
}
