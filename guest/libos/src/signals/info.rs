// SPDX-License-Identifier: MIT OR Apache-2.0
//! `siginfo_t`: information about a signal.

use super::{Signal, SignalSet};
use crate::uapi::{BUS_ADRERR, SI_KERNEL, SI_TIMER, SI_USER, SIGCHLD};

const ERROR: usize = 4;
const CODE: usize = 8;
/// Offset of the fields that depend on the code.
const FIELDS: usize = 16;
const VALUE: usize = 24;

/// The cause of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A memory access of an instruction.
    Touched,
    /// An instruction itself.
    Instruction,
    /// Another cause.
    Other,
}

/// A `siginfo_t`, as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigInfo([u8; SigInfo::SIZE]);

impl SigInfo {
    /// Bytes of the structure.
    pub const SIZE: usize = 128;

    fn new(signal: Signal, code: i32) -> SigInfo {
        let mut bytes = [0; SigInfo::SIZE];
        bytes[0] = signal.0;
        bytes[CODE..][..4].copy_from_slice(&code.to_le_bytes());
        SigInfo(bytes)
    }

    fn with32(mut self, offset: usize, value: u32) -> SigInfo {
        self.0[offset..][..4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn with64(mut self, offset: usize, value: u64) -> SigInfo {
        self.0[offset..][..8].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn word32(&self, offset: usize) -> u32 {
        u32::from_le_bytes([self.0[offset], self.0[offset + 1], self.0[offset + 2], self.0[offset + 3]])
    }

    /// A signal that a process sent.
    #[must_use]
    pub fn sent(signal: Signal, code: i32, process: u32, user: u32) -> SigInfo {
        SigInfo::new(signal, code).with32(FIELDS, process).with32(FIELDS + 4, user)
    }

    /// `SIGCHLD` for a child's change of state.
    #[must_use]
    pub fn child(process: u32, user: u32, code: i32, status: u32) -> SigInfo {
        SigInfo::new(Signal::SIGCHLD, code).with32(FIELDS, process).with32(FIELDS + 4, user).with32(VALUE, status)
    }

    /// The same information with another signal.
    #[must_use]
    pub fn by(mut self, signal: Signal) -> SigInfo {
        self.0[0] = signal.0;
        self
    }

    /// A signal that the system sent.
    #[must_use]
    pub fn kernel(signal: Signal) -> SigInfo {
        SigInfo::new(signal, SI_KERNEL)
    }

    /// A signal that an instruction caused.
    #[must_use]
    pub fn fault(signal: Signal, code: i32, address: u64) -> SigInfo {
        SigInfo::new(signal, code).with64(FIELDS, address)
    }

    /// The signal of a timer.
    #[must_use]
    pub fn timer(signal: Signal, timer: u32, value: u64) -> SigInfo {
        SigInfo::new(signal, SI_TIMER).with32(FIELDS, timer).with64(VALUE, value)
    }

    /// The same with a `si_value`.
    #[must_use]
    pub fn with_value(self, value: u64) -> SigInfo {
        self.with64(VALUE, value)
    }

    /// The same with the timer's overrun count.
    #[must_use]
    pub fn with_overrun(self, count: u32) -> SigInfo {
        self.with32(FIELDS + 4, count)
    }

    /// A `siginfo_t` from a program, with the signal set.
    #[must_use]
    pub fn from_program(signal: Signal, bytes: [u8; SigInfo::SIZE]) -> SigInfo {
        SigInfo(bytes).with32(0, signal.0.into())
    }

    /// The signal.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal(self.0[0])
    }

    /// `si_code`.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.word32(CODE).cast_signed()
    }

    /// `si_errno`.
    #[must_use]
    pub fn error(&self) -> u32 {
        self.word32(ERROR)
    }

    /// `si_pid`, `si_timerid`.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.word32(FIELDS)
    }

    /// `si_uid`, `si_overrun`.
    #[must_use]
    pub fn second(&self) -> u32 {
        self.word32(FIELDS + 4)
    }

    /// `si_value`.
    #[must_use]
    pub fn value(&self) -> u64 {
        u64::from(self.word32(VALUE)) | u64::from(self.word32(VALUE + 4)) << 32
    }

    /// `si_addr`.
    #[must_use]
    pub fn address(&self) -> u64 {
        u64::from(self.word32(FIELDS)) | u64::from(self.word32(FIELDS + 4)) << 32
    }

    /// Whether this timer sent it.
    #[must_use]
    pub fn is_from_timer(&self, timer: u32) -> bool {
        self.code() == SI_TIMER && self.first() == timer
    }

    /// Whether an instruction caused it, and by what.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let synchronous = SignalSet::SYNCHRONOUS.contains(self.signal());
        match self.code() {
            ..=SI_USER => Cause::Other,
            SI_KERNEL if synchronous => Cause::Instruction,
            _ if self.signal() == Signal::SIGSEGV => Cause::Touched,
            BUS_ADRERR if self.signal() == Signal::SIGBUS => Cause::Touched,
            _ if synchronous => Cause::Instruction,
            _ => Cause::Other,
        }
    }

    /// The same as a `struct signalfd_siginfo`.
    #[must_use]
    pub fn for_file(&self) -> [u8; SigInfo::SIZE] {
        /// Offsets of a field in both structures, and its bytes.
        type Moved = (usize, usize, usize);
        const SENT: [Moved; 2] = [(FIELDS, 12, 4), (FIELDS + 4, 16, 4)];
        const CARRIED: [Moved; 2] = [(VALUE, 44, 4), (VALUE, 48, 8)];
        const CHILD: [Moved; 3] = [(VALUE, 40, 4), (32, 56, 8), (40, 64, 8)];
        // For these codes the kernel fills in fields of their own.
        let is_told = |code: i32| code > SI_USER && code < SI_KERNEL;
        let mut bytes = [0; SigInfo::SIZE];
        bytes[..12].copy_from_slice(&self.0[..12]);
        let mut copy = |fields: &[Moved]| {
            for &(from, to, length) in fields {
                bytes[to..to + length].copy_from_slice(&self.0[from..from + length]);
            }
        };
        match self.code() {
            SI_TIMER => {
                copy(&[(FIELDS, 24, 4), (FIELDS + 4, 32, 4)]);
                copy(&CARRIED);
            }
            code if code < SI_USER => {
                copy(&SENT);
                copy(&CARRIED);
            }
            code if is_told(code) && self.signal().0 == SIGCHLD => {
                copy(&SENT);
                copy(&CHILD);
            }
            code if is_told(code) && SignalSet::SYNCHRONOUS.contains(self.signal()) => copy(&[(FIELDS, 72, 8)]),
            _ => copy(&SENT),
        }
        bytes
    }

    /// The structure's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SigInfo::SIZE] {
        &self.0
    }
}
