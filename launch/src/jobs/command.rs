// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a job runs.

use crate::LaunchError;
use pando_abi::control::{START_MAX, Start};

/// A program that is to run in a cell that runs already, with all that it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
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
