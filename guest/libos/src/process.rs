// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process: all that the libOS knows about the one program that it runs.

use alloc::format;

use pando_rt::hypercall::exit;
use pando_rt::{clock, console};

use crate::files::Files;
use crate::memory::AddressSpace;
use crate::random::Random;
use crate::signals::{Signal, Signals};

/// The number of the cell's one process, and of its one thread.
pub const NUMBER: u64 = 1;

/// The one process of the cell.
#[derive(Debug)]
pub struct Process {
    /// Its memory.
    pub memory: AddressSpace,
    /// Its open files.
    pub files: Files,
    /// Its signals.
    pub signals: Signals,
    /// The cell's randomness.
    pub random: Random,
    /// Its name, as `PR_GET_NAME` gives it.
    pub name: [u8; 16],
    /// When it started, in nanoseconds of the cell's clock.
    pub started: u64,
}

impl Process {
    /// A process that has not been loaded yet.
    #[must_use]
    pub fn new(files: Files, random: Random) -> Process {
        Process { memory: AddressSpace::default(), files, signals: Signals::default(), random, name: [0; 16], started: clock::now() }
    }

    /// Sets the process's name, cut to what fits.
    pub fn set_name(&mut self, name: &[u8]) {
        let length = name.len().min(self.name.len() - 1);
        self.name.fill(0);
        self.name[..length].copy_from_slice(&name[..length]);
    }

    /// Nanoseconds since it started.
    #[must_use]
    pub fn age(&self) -> u64 {
        clock::now().saturating_sub(self.started)
    }
}

/// Ends the cell as a program ends itself.
pub fn leave(status: u64) -> ! {
    console::flush();
    exit(status, 0, 0, 0)
}

/// Ends the cell as a signal ends a program. `address` is what it touched, `instruction` where it stood; 0 where that says nothing.
pub fn die(signal: Signal, address: u64, instruction: u64) -> ! {
    console::flush();
    kill(signal, address, instruction)
}

/// The same at once: what was not taken of the output is lost.
pub fn kill(signal: Signal, address: u64, instruction: u64) -> ! {
    exit(0, signal.0.into(), address, instruction)
}

/// Ends the cell before its program ran, with a message.
pub fn refuse(status: u64, path: &[u8], why: &dyn core::fmt::Display) -> ! {
    let path = alloc::string::String::from_utf8_lossy(path);
    console::send_bytes(console::Stream::Errors, format!("pando: {path}: {why}\n").as_bytes());
    exit(status, 0, 0, 0)
}
