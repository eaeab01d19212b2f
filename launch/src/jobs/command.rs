// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command of a job.

use crate::LaunchError;
use pando_abi::control::{LAYER, READ, RUN, RUN_IN_TERMINAL, START_MAX, Start, WATCH, WRITE};

/// The task of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Run the program at the path.
    #[default]
    Run,
    /// Run the program at the path in a new pseudo terminal. All its output is standard output. The end of its input is typed as the
    /// end-of-file character.
    RunInTerminal(TerminalSize),
    /// Write the content of the file at the path to standard output; no program runs.
    Read,
    /// Replace the file at the path by the content of standard input, once that has ended; no program runs.
    Write,
    /// Write the changes of the root volume to standard output, as a layer of a container image; no program of the cell runs meanwhile, and
    /// the path is not used.
    Layer,
    /// Write the events of the file or directory at the path to standard output, in the records of [`pando_abi::control::WATCH`]; no
    /// program runs. With the argument `recursive`, directories below it are watched, too.
    Watch,
}

impl Task {
    pub(super) fn detail(self) -> u32 {
        match self {
            Task::Run => RUN,
            Task::RunInTerminal(_) => RUN_IN_TERMINAL,
            Task::Read => READ,
            Task::Write => WRITE,
            Task::Layer => LAYER,
            Task::Watch => WATCH,
        }
    }
}

/// The size of a job's terminal in characters. 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of rows.
    pub rows: u16,
    /// The number of columns.
    pub columns: u16,
}

impl TerminalSize {
    /// The size as a parameter of a frame.
    pub(super) fn detail(self) -> u32 {
        u32::from(self.rows) << 16 | u32::from(self.columns)
    }
}

/// A program to start in a running cell, with its arguments and environment; or a file there to read or write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The task for the path. A file task uses no arguments and no environment; it reports errors on the standard error stream, with
    /// status 1.
    pub task: Task,
    /// Its path in the cell; a program's name without a slash is found in the PATH of its environment.
    pub path: Vec<u8>,
    /// Its working directory in the cell.
    pub directory: Vec<u8>,
    /// Its arguments, its own name first.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, each as NAME=VALUE.
    pub environment: Vec<Vec<u8>>,
    /// Its user ID.
    pub user: u32,
    /// Its group ID.
    pub group: u32,
}

impl Command {
    /// Encodes the request to the libOS.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, LaunchError> {
        let start = Start {
            user: self.user,
            group: self.group,
            // Sizes within a frame fit into 32 bits.
            arguments: self.arguments.len() as u32,
            environment: self.environment.len() as u32,
        };
        let mut bytes = start.to_bytes().to_vec();
        for string in [&self.path, &self.directory].into_iter().chain(&self.arguments).chain(&self.environment) {
            if string.contains(&0) {
                return Err(LaunchError::ZeroByte);
            }
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        if bytes.len() > START_MAX {
            return Err(LaunchError::ArgumentsTooLong { given: bytes.len(), most: START_MAX });
        }
        Ok(bytes)
    }
}
