// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a job runs.

use crate::LaunchError;
use pando_abi::control::{READ, RUN, START_MAX, Start, WRITE};

/// What a job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// It runs the program at its path.
    #[default]
    Run,
    /// It says what the file at its path holds, on its standard output; nothing runs in the cell.
    Read,
    /// It puts a file that holds its standard input in the place of that at its path, once that has ended; nothing runs in the cell.
    Write,
}

impl Task {
    pub(super) fn detail(self) -> u32 {
        match self {
            Task::Run => RUN,
            Task::Read => READ,
            Task::Write => WRITE,
        }
    }
}

/// A program that is to run in a cell that runs already, with all that it is given; or a file there that is to be read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// What to do with the path. A file has no arguments and no environment; what goes wrong with it is said on the standard error stream, and the status is then 1.
    pub task: Task,
    /// Where it lies, as the cell sees it.
    pub path: Vec<u8>,
    /// Its working directory, as the cell sees it.
    pub directory: Vec<u8>,
    /// Its arguments; the first is its own name as it will see it.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, each as NAME=VALUE.
    pub environment: Vec<Vec<u8>>,
    /// The user that it is.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl Command {
    /// What the libOS is told.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, LaunchError> {
        let start = Start {
            user: self.user,
            group: self.group,
            // What fits into a frame can be counted in 32 bits.
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
