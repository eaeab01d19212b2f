// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of a halted cell, as its libOS lists them: a claim, of which nothing is trusted.

use crate::watched_cell::{StateAccess, WatchedCell};
use pando_abi::thread_table::{HEAD_WORDS, MAX_THREADS, RECORD_WORDS, TableHead, ThreadRecord, VERSION};
use pando_abi::watch::VECTOR_BYTES;
use pando_abi::{Registers, SavedContext};
use std::io::{Error, Result};

/// The threads of all processes of a cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads {
    /// The one that runs, or ran last.
    pub(crate) running: u64,
    pub(crate) records: Vec<ThreadRecord>,
}

/// The registers of a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadState {
    pub(crate) registers: Registers,
    /// The bases of FS and GS.
    pub(crate) bases: [u64; 2],
    /// The vector state in `XSAVE`'s standard format.
    pub(crate) vectors: Vec<u8>,
}

impl Threads {
    /// Reads the table at an address of a cell.
    ///
    /// # Errors
    /// There is no table of this version.
    pub(crate) fn read(cell: &dyn WatchedCell, table: u64) -> Result<Threads> {
        let head = cell.words::<HEAD_WORDS>(table)?.map(TableHead::from_words);
        let head = head.filter(|head| head.version == VERSION).ok_or_else(|| Error::other("the cell's table of threads is damaged"))?;
        let mut bytes = vec![0; head.threads.min(MAX_THREADS as u64) as usize * RECORD_WORDS * 8];
        let count = cell.read(None, table.wrapping_add(HEAD_WORDS as u64 * 8), &mut bytes)?;
        let (words, _) = bytes[..count].as_chunks::<8>();
        let (records, _) = words.as_chunks::<RECORD_WORDS>();
        let mut records: Vec<_> = records.iter().map(|words| ThreadRecord::from_words(words.map(u64::from_le_bytes))).collect();
        // gdb numbers threads in this order.
        records.sort_by_key(|record| record.number);
        Ok(Threads { running: head.running, records })
    }

    /// The record of a thread.
    pub(crate) fn get(&self, number: u64) -> Option<&ThreadRecord> {
        self.records.iter().find(|record| record.number == number)
    }

    /// The threads of a process.
    pub(crate) fn of(&self, process: u64) -> impl Iterator<Item = &ThreadRecord> {
        self.records.iter().filter(move |record| record.process == process)
    }
}

/// The registers of a thread.
///
/// # Errors
/// They cannot be read where the table says.
pub(crate) fn read_state(cell: &dyn WatchedCell, threads: &Threads, number: u64) -> Result<ThreadState> {
    if number == threads.running {
        return Ok(ThreadState { registers: cell.registers()?, bases: cell.bases()?, vectors: cell.vectors()? });
    }
    let record = threads.get(number).ok_or_else(|| damaged(number))?;
    let saved = cell.saved_context(record.context)?.ok_or_else(|| damaged(number))?;
    let bases = cell.words(record.bases)?.ok_or_else(|| damaged(number))?;
    let mut vectors = vec![0; VECTOR_BYTES];
    if record.vectors != 0 {
        let count = (record.vector_bytes as usize).min(VECTOR_BYTES);
        cell.read(None, record.vectors, &mut vectors[..count])?;
    }
    Ok(ThreadState { registers: saved.registers(), bases, vectors })
}

/// Sets the registers of a thread. The vector state of a thread that has none yet stays initial.
///
/// # Errors
/// They cannot be written where the table says.
pub(crate) fn write_state(cell: &dyn WatchedCell, threads: &Threads, number: u64, state: &ThreadState) -> Result<()> {
    let ThreadState { registers, bases, vectors } = state;
    if number == threads.running {
        cell.set_registers(registers)?;
        cell.set_bases(*bases)?;
        return cell.set_vectors(vectors);
    }
    let record = threads.get(number).ok_or_else(|| damaged(number))?;
    let SavedContext { cause, error, address, .. } = cell.saved_context(record.context)?.ok_or_else(|| damaged(number))?;
    cell.set_words(record.context, &SavedContext::new(registers, cause, error, address).to_words())?;
    cell.set_words(record.bases, bases)?;
    if record.vectors != 0 {
        let count = (record.vector_bytes as usize).min(vectors.len());
        cell.write(None, record.vectors, &vectors[..count])?;
    }
    Ok(())
}

fn damaged(number: u64) -> Error {
    Error::other(format!("the registers of thread {number} cannot be found: the cell's table of threads is damaged"))
}
