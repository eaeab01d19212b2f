// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of a halted child, as its libOS lists them: a claim, of which nothing is trusted.

use crate::watched_child::WatchedChild;
use pando_abi::thread_table::{HEAD_WORDS, MAX_THREADS, RECORD_WORDS, TableHead, ThreadRecord, VERSION};
use pando_abi::watch::VECTOR_BYTES;
use pando_abi::{HoldingName, Registers, SavedContext};
use std::io::{Error, Result};

/// The threads of all processes of a child.
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
    /// Reads the table at an address of a child.
    ///
    /// # Errors
    /// There is no table of this version.
    pub(crate) fn read(child: &WatchedChild<'_>, table: u64) -> Result<Threads> {
        let space = child.name.current_space();
        let head = child.words::<HEAD_WORDS>(space, table)?.map(TableHead::from_words);
        let head = head.filter(|head| head.version == VERSION).ok_or_else(|| Error::other("the cell's table of threads is damaged"))?;
        let mut records = Vec::new();
        for index in 0..head.threads.min(MAX_THREADS as u64) {
            let address = table + (HEAD_WORDS as u64 + index * RECORD_WORDS as u64) * 8;
            let Some(words) = child.words(space, address)? else { break };
            records.push(ThreadRecord::from_words(words));
        }
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

/// The name of the space of a thread, as calls of the parent name it.
pub(crate) fn space_of(child: HoldingName, record: &ThreadRecord) -> u64 {
    child.space(record.space as u32)
}

/// The registers of a thread.
///
/// # Errors
/// They cannot be read where the table says.
pub(crate) fn read_state(child: &WatchedChild<'_>, threads: &Threads, number: u64) -> Result<ThreadState> {
    if number == threads.running {
        return Ok(ThreadState { registers: child.registers()?, bases: child.bases()?, vectors: child.vectors()? });
    }
    let record = threads.get(number).ok_or_else(|| damaged(number))?;
    let space = child.name.current_space();
    let saved = child.words(space, record.context)?.map(SavedContext::from_words).ok_or_else(|| damaged(number))?;
    let bases = child.words(space, record.bases)?.ok_or_else(|| damaged(number))?;
    let mut vectors = vec![0; VECTOR_BYTES];
    if record.vectors != 0 {
        let count = (record.vector_bytes as usize).min(VECTOR_BYTES);
        child.device.read(space, record.vectors, &mut vectors[..count])?;
    }
    Ok(ThreadState { registers: saved.registers(), bases, vectors })
}

/// Sets the registers of a thread. The vector state of a thread that has none yet stays initial.
///
/// # Errors
/// They cannot be written where the table says.
pub(crate) fn write_state(child: &WatchedChild<'_>, threads: &Threads, number: u64, state: &ThreadState) -> Result<()> {
    let ThreadState { registers, bases, vectors } = state;
    if number == threads.running {
        child.set_registers(registers)?;
        child.set_bases(*bases)?;
        return child.set_vectors(vectors);
    }
    let record = threads.get(number).ok_or_else(|| damaged(number))?;
    let space = child.name.current_space();
    let SavedContext { cause, error, address, .. } =
        child.words(space, record.context)?.map(SavedContext::from_words).ok_or_else(|| damaged(number))?;
    child.set_words(space, record.context, &SavedContext::new(registers, cause, error, address).to_words())?;
    child.set_words(space, record.bases, bases)?;
    if record.vectors != 0 {
        let count = (record.vector_bytes as usize).min(vectors.len());
        child.device.write_space(space, record.vectors, &vectors[..count])?;
    }
    Ok(())
}

fn damaged(number: u64) -> Error {
    Error::other(format!("the registers of thread {number} cannot be found: the cell's table of threads is damaged"))
}
