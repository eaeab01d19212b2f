// SPDX-License-Identifier: MIT OR Apache-2.0
//! A halted child: its registers and its memory.

use pando_abi::watch::{CONTEXT_WORDS, HaltReason, REASON_WORDS, VECTOR_BYTES, state};
use pando_abi::{HoldingName, Registers};
use pando_machine::CellsDevice;
use std::io::{Error, ErrorKind, Result};

/// The position of FS base in a context, which GS base follows.
const FS_BASE: usize = Registers::WORDS;

/// A child that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedChild<'a> {
    pub(crate) device: &'a CellsDevice,
    pub(crate) name: HoldingName,
}

impl WatchedChild<'_> {
    /// Why it is halted.
    pub(crate) fn reason(&self) -> Result<HaltReason> {
        HaltReason::from_words(self.state::<REASON_WORDS>(state::REASON)?)
            .ok_or_else(|| Error::other("the kernel has returned an invalid reason for a halt"))
    }

    /// Why it is halted; `None`: it is not. One call of the kernel.
    pub(crate) fn reason_if_halted(&self) -> Result<Option<HaltReason>> {
        match self.reason() {
            Ok(reason) => Ok(Some(reason)),
            // It runs, or it has ended.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(_) if self.device.state(self.name)?.is_ended() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The result of calls about it while it was halted. `None`: they failed because it has ended, which its ancestors and its limits can
    /// cause at any time.
    pub(crate) fn unless_ended<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(_) if self.device.state(self.name)?.is_ended() => Ok(None),
            result => result.map(Some),
        }
    }

    /// The registers of its running thread.
    pub(crate) fn registers(&self) -> Result<Registers> {
        self.state(state::PROGRAM).map(Registers::from_words)
    }

    /// Sets the registers of its running thread.
    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<()> {
        self.device.write_state(self.name, state::PROGRAM, &to_bytes(&registers.to_words()))
    }

    /// The bases of FS and GS on the CPU.
    pub(crate) fn bases(&self) -> Result<[u64; 2]> {
        let context = self.state::<CONTEXT_WORDS>(state::CONTEXT)?;
        Ok([context[FS_BASE], context[FS_BASE + 1]])
    }

    /// Sets the bases of FS and GS.
    pub(crate) fn set_bases(&self, bases: [u64; 2]) -> Result<()> {
        let mut context = self.state::<CONTEXT_WORDS>(state::CONTEXT)?;
        context[FS_BASE..FS_BASE + 2].copy_from_slice(&bases);
        self.device.write_state(self.name, state::CONTEXT, &to_bytes(&context))
    }

    /// The vector state on the CPU.
    pub(crate) fn vectors(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; VECTOR_BYTES];
        let count = self.device.read_state(self.name, state::VECTOR, &mut bytes)?;
        if count == VECTOR_BYTES { Ok(bytes) } else { Err(incomplete_state(count, VECTOR_BYTES)) }
    }

    /// Sets the vector state on the CPU.
    pub(crate) fn set_vectors(&self, bytes: &[u8]) -> Result<()> {
        self.device.write_state(self.name, state::VECTOR, bytes)
    }

    /// Answers a report: the value that the call returns.
    pub(crate) fn answer(&self, value: u64) -> Result<()> {
        let mut context = self.state::<CONTEXT_WORDS>(state::CONTEXT)?;
        // The first register is `rax`.
        context[0] = value;
        self.device.write_state(self.name, state::CONTEXT, &to_bytes(&context))
    }

    fn state<const N: usize>(&self, kind: u64) -> Result<[u64; N]> {
        let mut bytes = vec![0; N * 8];
        let count = self.device.read_state(self.name, kind, &mut bytes)?;
        if count == bytes.len() { Ok(to_words(&bytes)) } else { Err(incomplete_state(count, bytes.len())) }
    }

    /// Words of a space. `None`: nothing is mapped there.
    pub(crate) fn words<const N: usize>(&self, space: u64, address: u64) -> Result<Option<[u64; N]>> {
        let mut bytes = vec![0; N * 8];
        let count = self.device.read(space, address, &mut bytes)?;
        Ok((count == bytes.len()).then(|| to_words(&bytes)))
    }

    /// Writes words to a space.
    pub(crate) fn set_words(&self, space: u64, address: u64, words: &[u64]) -> Result<()> {
        self.device.write_space(space, address, &to_bytes(words))
    }
}

/// The error of a state that the kernel returned with another length.
fn incomplete_state(count: usize, expected: usize) -> Error {
    Error::other(format!("cannot read the state of a nested cell: the kernel returned {count} bytes, not {expected}"))
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn to_words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|index| chunks.get(index).map_or(0, |chunk| u64::from_le_bytes(*chunk)))
}
