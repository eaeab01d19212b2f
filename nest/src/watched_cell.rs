// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell that a debugger watches, however it is reached: a child through `/dev/cells`, or a cell of an operator in this process.

use pando_abi::holding::ChildState;
use pando_abi::watch::{CONTEXT_WORDS, HaltReason, REASON_WORDS, VECTOR_BYTES, state};
use pando_abi::{Registers, SavedContext};
use std::fmt::Debug;
use std::io::{Error, ErrorKind, Result};

/// The position of FS base in a context, which GS base follows.
const FS_BASE: usize = Registers::WORDS;

/// A cell whose events halt it for a debugger. The calls are the verbs that an operator has for a cell, and a parent for a child.
pub trait WatchedCell: Debug {
    /// Its state.
    ///
    /// # Errors
    /// There is no such cell.
    fn state(&self) -> Result<ChildState>;

    /// Requests a halt. It may halt for another reason, or end, instead.
    ///
    /// # Errors
    /// The operator does not allow it.
    fn halt(&self) -> Result<()>;

    /// Lets it continue after a halt ([`pando_abi::watch::resume`]).
    ///
    /// # Errors
    /// It is not halted.
    fn resume(&self, how: u64) -> Result<()>;

    /// Ends the watch. A halted cell stays halted.
    ///
    /// # Errors
    /// There is no such cell.
    fn unwatch(&self) -> Result<()>;

    /// Raises event `Debug`, so that its libOS begins to report to the watcher, or notices that there is none any more.
    ///
    /// # Errors
    /// There is no such cell.
    fn raise_debug_event(&self) -> Result<()>;

    /// Ends it.
    ///
    /// # Errors
    /// There is no such cell.
    fn end(&self) -> Result<()>;

    /// Copies state of the halted cell ([`pando_abi::watch::state`]). Returns the number of bytes.
    ///
    /// # Errors
    /// It is not halted.
    fn read_state(&self, kind: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Sets state of the halted cell.
    ///
    /// # Errors
    /// It is not halted, or no cell can have this state.
    fn write_state(&self, kind: u64, bytes: &[u8]) -> Result<()>;

    /// Copies bytes out of a space of the halted cell; `None`: the one in which it continues. Returns how many there were before the first
    /// page that has none.
    ///
    /// # Errors
    /// The operator does not allow it.
    fn read(&self, space: Option<u32>, address: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Copies bytes to a space of the halted cell, whatever a program may write there.
    ///
    /// # Errors
    /// It is not halted, or has nothing mapped there.
    fn write(&self, space: Option<u32>, address: u64, bytes: &[u8]) -> Result<()>;
}

/// Access to parts of the state of a watched cell.
pub(crate) trait StateAccess: WatchedCell {
    /// Why it is halted.
    fn reason(&self) -> Result<HaltReason> {
        HaltReason::from_words(self.state_words::<REASON_WORDS>(state::REASON)?)
            .ok_or_else(|| Error::other("the kernel has returned an invalid reason for a halt"))
    }

    /// Why it is halted; `None`: it is not. One call of the kernel.
    fn reason_if_halted(&self) -> Result<Option<HaltReason>> {
        match self.reason() {
            Ok(reason) => Ok(Some(reason)),
            // It runs, or it has ended.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(_) if self.state()?.is_ended() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The result of calls about it while it was halted. `None`: they failed because it has ended, which its ancestors and its limits can
    /// cause at any time.
    fn unless_ended<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(_) if self.state()?.is_ended() => Ok(None),
            result => result.map(Some),
        }
    }

    /// The registers of its running thread.
    fn registers(&self) -> Result<Registers> {
        self.state_words(state::PROGRAM).map(Registers::from_words)
    }

    /// Sets the registers of its running thread.
    fn set_registers(&self, registers: &Registers) -> Result<()> {
        self.write_state(state::PROGRAM, &to_bytes(&registers.to_words()))
    }

    /// The bases of FS and GS on the CPU.
    fn bases(&self) -> Result<[u64; 2]> {
        let context = self.state_words::<CONTEXT_WORDS>(state::CONTEXT)?;
        Ok([context[FS_BASE], context[FS_BASE + 1]])
    }

    /// Sets the bases of FS and GS.
    fn set_bases(&self, bases: [u64; 2]) -> Result<()> {
        let mut context = self.state_words::<CONTEXT_WORDS>(state::CONTEXT)?;
        context[FS_BASE..FS_BASE + 2].copy_from_slice(&bases);
        self.write_state(state::CONTEXT, &to_bytes(&context))
    }

    /// The vector state on the CPU.
    fn vectors(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; VECTOR_BYTES];
        let count = self.read_state(state::VECTOR, &mut bytes)?;
        if count == VECTOR_BYTES { Ok(bytes) } else { Err(incomplete_state(count, VECTOR_BYTES)) }
    }

    /// Sets the vector state on the CPU.
    fn set_vectors(&self, bytes: &[u8]) -> Result<()> {
        self.write_state(state::VECTOR, bytes)
    }

    /// Answers a report: the value that the call returns.
    fn answer(&self, value: u64) -> Result<()> {
        let mut context = self.state_words::<CONTEXT_WORDS>(state::CONTEXT)?;
        // The first register is `rax`.
        context[0] = value;
        self.write_state(state::CONTEXT, &to_bytes(&context))
    }

    /// The words of a part of its state.
    fn state_words<const N: usize>(&self, kind: u64) -> Result<[u64; N]> {
        let mut bytes = vec![0; N * 8];
        let count = self.read_state(kind, &mut bytes)?;
        if count == bytes.len() { Ok(to_words(&bytes)) } else { Err(incomplete_state(count, bytes.len())) }
    }

    /// Words of the space in which it continues. `None`: nothing is mapped there.
    fn words<const N: usize>(&self, address: u64) -> Result<Option<[u64; N]>> {
        let mut bytes = vec![0; N * 8];
        let count = self.read(None, address, &mut bytes)?;
        Ok((count == bytes.len()).then(|| to_words(&bytes)))
    }

    /// Writes words to the space in which it continues.
    fn set_words(&self, address: u64, words: &[u64]) -> Result<()> {
        self.write(None, address, &to_bytes(words))
    }

    /// The registers of a thread that its libOS has saved at an address. `None`: nothing is mapped there.
    fn saved_context(&self, address: u64) -> Result<Option<SavedContext>> {
        Ok(self.words(address)?.map(SavedContext::from_words))
    }
}

impl<C: WatchedCell + ?Sized> StateAccess for C {}

/// The error of a state that the kernel returned with another length.
fn incomplete_state(count: usize, expected: usize) -> Error {
    Error::other(format!("cannot read the state of a cell: the kernel returned {count} bytes, not {expected}"))
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn to_words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|index| chunks.get(index).map_or(0, |chunk| u64::from_le_bytes(*chunk)))
}
