// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts programs in two steps. [`prepare()`] finds the program, checks everything that can fail, and changes nothing;
//! [`PreparedProgram::load`] maps it into an empty address space.
//!
//! A script is resolved to its interpreter, and that to the program that runs. A program may name an interpreter of its own, the dynamic
//! linker: then both are mapped, and the linker starts first.

mod auxiliary;
mod map;
mod prepare;
pub mod script;
mod source;
mod stack;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use pando_rt::user;
use thiserror::Error;

use crate::elf::ElfError;
use crate::errno::Errno;

pub use map::LoadedProgram;
pub use prepare::{ExecRequest, PreparedProgram, prepare, search};

/// The reason why a program cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    /// Its file is no program.
    #[error("{0}")]
    Elf(#[from] ElfError),
    /// It is a script, and the interpreter in its first line cannot be loaded.
    #[error("its interpreter {}: {reason}", String::from_utf8_lossy(path))]
    Interpreter {
        /// The interpreter's path.
        path: Vec<u8>,
        /// The reason.
        reason: Box<LoadError>,
    },
    /// It is linked dynamically, and its linker cannot be loaded.
    #[error("its dynamic linker {}: {reason}", String::from_utf8_lossy(path))]
    Linker {
        /// The linker's path.
        path: Vec<u8>,
        /// The reason.
        reason: Box<LoadError>,
    },
    /// A script without an interpreter.
    #[error("a script whose first line names no interpreter")]
    NoInterpreter,
    /// It cannot be found, read or mapped, or its arguments and environment are too long.
    #[error("{}", .0.text())]
    System(Errno),
}

impl LoadError {
    /// The error that `execve` returns for it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            LoadError::Elf(_) | LoadError::NoInterpreter => Errno::ENOEXEC,
            LoadError::Interpreter { reason, .. } => reason.errno(),
            LoadError::Linker { reason, .. } => match reason.errno() {
                Errno::ENOEXEC => Errno::ELIBBAD,
                other => other,
            },
            LoadError::System(error) => *error,
        }
    }
}

impl From<Errno> for LoadError {
    fn from(error: Errno) -> LoadError {
        LoadError::System(error)
    }
}

impl From<user::Fault> for LoadError {
    fn from(fault: user::Fault) -> LoadError {
        LoadError::System(fault.into())
    }
}
