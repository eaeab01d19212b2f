// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs, and the cells that are created for them.

use crate::{LaunchError, Nesting, Operator, Root};
use pando_abi::boot_info::{ArgumentsHeader, options};
use pando_abi::layout::ARGUMENTS_SIZE;
use pando_kernel::CellId;
use pando_machine::PageCount;

/// Which standard streams are terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    /// Standard input.
    pub input: bool,
    /// Standard output.
    pub output: bool,
    /// Standard error.
    pub errors: bool,
    /// The host's terminal is in raw mode: the libOS implements the line discipline.
    pub raw: bool,
    /// Rows of the terminal; 0 if there is none.
    pub rows: u16,
    /// Columns of the terminal; 0 if there is none.
    pub columns: u16,
}

/// How a program's system calls are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Let each trap; patch nothing.
    pub trap: bool,
    /// Print each on the standard error stream.
    pub trace: bool,
}

/// A program with its arguments, environment and options. The default has none, and runs as root.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its path in the cell.
    pub path: Vec<u8>,
    /// Its working directory in the cell.
    pub directory: Vec<u8>,
    /// Its arguments, its own name first.
    pub arguments: Vec<Vec<u8>>,
    /// Its environment, each as NAME=VALUE.
    pub environment: Vec<Vec<u8>>,
    /// Files and directories whose changes the cell exports on its channel, as paths in the cell.
    pub exports: Vec<Vec<u8>>,
    /// Mount points of volumes, and files, that the cell's programs may not change.
    pub read_only: Vec<Vec<u8>>,
    /// The mount points of live mounts, in the order of their indices on the channel.
    pub mounts: Vec<Vec<u8>>,
    /// Directories that are file systems of their own, as a tmpfs is. They exist in the cell.
    pub temporary: Vec<Vec<u8>>,
    /// Which of its streams are terminals.
    pub terminals: Terminals,
    /// How its system calls are handled.
    pub calls: Calls,
    /// Its user ID.
    pub user: u32,
    /// Its group ID.
    pub group: u32,
    /// The IDs of its supplementary groups.
    pub groups: Vec<u32>,
    /// Its memory limit, tables included.
    pub memory: PageCount,
    /// The signal that a request to end becomes; 0: `SIGTERM`. Ignored for clones of a frozen program.
    pub stop_signal: u8,
    /// Freeze it when it reports that it is ready ([`Root::frozen`]).
    pub is_template: bool,
    /// A debugger in the parent cell watches it.
    pub is_debugged: bool,
    /// A pager in the parent cell makes room when its memory is short.
    pub is_paged: bool,
    /// The right to cells of its own.
    pub nesting: Option<Nesting>,
}

impl Program {
    /// Creates the program's cell: a clone of `root` with its arguments that has not started yet. If the root is a frozen program, the
    /// clone continues that program: the new arguments and environment can be queried, and all the rest is unchanged.
    ///
    /// # Errors
    /// The arguments are too long, or there is not enough memory.
    pub fn prepare(&self, operator: &dyn Operator, root: &Root) -> Result<CellId, LaunchError> {
        let block = self.argument_block()?;
        operator.prepare_cell(root.cell, self.memory, self.nesting, block)
    }

    /// The bytes of the argument block, which the cell finds at [`ARGUMENTS`].
    ///
    /// # Errors
    /// The arguments are too long, or contain a zero byte.
    pub fn argument_block(&self) -> Result<Vec<u8>, LaunchError> {
        let words = [&self.path, &self.directory].into_iter().chain(&self.arguments).chain(&self.environment);
        let groups: Vec<Vec<u8>> = self.groups.iter().map(|group| group.to_string().into_bytes()).collect();
        let strings = words.chain(&groups).chain(&self.exports).chain(&self.read_only).chain(&self.mounts).chain(&self.temporary);
        let mut bytes = Vec::new();
        for string in strings {
            if string.contains(&0) {
                return Err(LaunchError::ZeroByte);
            }
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        let most = ARGUMENTS_SIZE as usize - ArgumentsHeader::SIZE;
        if bytes.len() > most {
            return Err(LaunchError::ArgumentsTooLong { given: bytes.len(), most });
        }
        let Terminals { input, output, errors, raw, rows, columns } = self.terminals;
        let option = |set: bool, bit: u32| if set { bit } else { 0 };
        // Sizes within the block fit into 32 bits.
        let header = ArgumentsHeader {
            arguments: self.arguments.len() as u32,
            environment: self.environment.len() as u32,
            bytes: bytes.len() as u32,
            terminals: u32::from(input) | u32::from(output) << 1 | u32::from(errors) << 2,
            options: option(self.calls.trap, options::TRAP)
                | option(raw, options::RAW_TERMINAL)
                | option(self.calls.trace, options::TRACE)
                | option(self.is_template, options::TEMPLATE)
                | option(self.is_debugged, options::DEBUG)
                | option(self.is_paged, options::PAGED)
                | option(self.nesting.is_some(), options::NESTING),
            user: self.user,
            group: self.group,
            rows: rows.into(),
            columns: columns.into(),
            exports: self.exports.len() as u32,
            stop_signal: self.stop_signal.into(),
            read_only: self.read_only.len() as u32,
            groups: groups.len() as u32,
            mounts: self.mounts.len() as u32,
            temporary: self.temporary.len() as u32,
        };
        Ok(header.to_bytes().into_iter().chain(bytes).collect())
    }
}
