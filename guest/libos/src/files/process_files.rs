// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file state of each process: descriptors, directories, credentials.

use alloc::vec::Vec;

use super::id_table::IdTable;
use super::pidfd::PidState;
use super::{Descriptor, ExecutableFile, Files, OpenFile};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::files::tree::InodeRef;
use crate::limits::OPEN_LIMIT;
use crate::process::{FIRST, Pid};

/// Minimum capacity of a descriptor table.
const TABLE_MIN: usize = 64;

/// The file state of one process.
#[derive(Clone, Debug)]
pub struct ProcessFiles {
    /// The process.
    pub process: Pid,
    /// The root directory of paths.
    pub root: InodeRef,
    /// The working directory.
    pub working_directory: InodeRef,
    /// The program.
    pub program: ExecutableFile,
    /// The process's credentials.
    pub credentials: Credentials,
    /// The permission bits removed from new files.
    pub umask: u64,
    /// When the process started, in nanoseconds since 1970.
    pub started: u64,
    /// Upper limit (exclusive) on descriptors.
    pub descriptors_max: u64,
    /// Upper limit on the size of files that it writes, in bytes.
    pub file_size_max: u64,
    pub(super) descriptors: IdTable<Descriptor>,
}

impl ProcessFiles {
    /// Capacity of its descriptor table, which grows as on Linux.
    #[must_use]
    pub fn table_size(&self) -> u64 {
        self.descriptors.end().next_power_of_two().max(TABLE_MIN) as u64
    }

    /// The file state of the first process, with the root as working directory.
    pub(super) fn new(root: InodeRef, credentials: Credentials, started: u64) -> ProcessFiles {
        ProcessFiles {
            process: FIRST,
            root,
            working_directory: root,
            program: ExecutableFile { inode: root, name: None },
            credentials,
            umask: 0o022,
            started,
            descriptors_max: OPEN_LIMIT,
            file_size_max: u64::MAX,
            descriptors: IdTable::default(),
        }
    }

    /// The numbers of all descriptors.
    pub fn open_descriptors(&self) -> impl Iterator<Item = u32> {
        self.descriptors.iter().map(|(fd, _)| fd as u32)
    }

    /// The number of a descriptor's open file.
    pub(super) fn open_file(&self, fd: u32) -> Option<usize> {
        self.descriptors.get(fd as usize).map(|descriptor| descriptor.file)
    }

    /// Whether a descriptor is closed on `execve`.
    #[must_use]
    pub fn closes_on_exec(&self, fd: u32) -> bool {
        self.descriptors.get(fd as usize).is_some_and(|descriptor| descriptor.close_on_exec)
    }
}

impl Files {
    /// Switches to the file state of another process.
    pub fn switch_to(&mut self, process: Pid) {
        if let Some(process_files) = self.others.remove(&process) {
            let before = core::mem::replace(&mut self.current, process_files);
            self.others.insert(before.process, before);
        }
    }

    /// Copies the running process's file state for a new process.
    pub fn fork(&mut self, process: Pid) {
        for (_, descriptor) in self.current.descriptors.iter() {
            if let Some((_, references)) = self.open.get_mut(descriptor.file) {
                *references += 1;
            }
        }
        self.others.insert(process, ProcessFiles { process, ..self.current.clone() });
    }

    /// Sets the running process's program.
    pub fn set_program(&mut self, program: ExecutableFile) {
        let before = core::mem::replace(&mut self.current.program, program);
        self.release(before.inode);
    }

    /// Checks that no process runs a file that is about to be written.
    ///
    /// # Errors
    /// `ETXTBSY`.
    pub fn check_not_running(&self, inode: InodeRef) -> Result<(), Errno> {
        let inode = self.tree.real_inode(inode);
        let mut all = self.others.values().chain([&self.current]);
        if all.any(|process_files| self.tree.real_inode(process_files.program.inode) == inode) { Err(Errno::ETXTBSY) } else { Ok(()) }
    }

    /// Checks that no open file may write a file that is about to run.
    ///
    /// # Errors
    /// `ETXTBSY`.
    pub fn check_not_written(&self, inode: InodeRef) -> Result<(), Errno> {
        let inode = self.tree.real_inode(inode);
        let writes = |file: &OpenFile| file.writable() && self.inode_of(file) == Some(inode);
        if self.open.iter().any(|(_, (file, _))| writes(file)) { Err(Errno::ETXTBSY) } else { Ok(()) }
    }

    /// Closes all files of the running process, and releases its program.
    pub fn close_descriptors(&mut self) {
        self.set_program(ExecutableFile { inode: self.current.root, name: None });
        for fd in self.open_descriptors().collect::<Vec<u32>>() {
            // It is open.
            let _ = self.close(fd.into());
        }
    }

    /// Whether a descriptor is closed on `execve`.
    #[must_use]
    pub fn closes_on_exec(&self, fd: u64) -> bool {
        self.current.closes_on_exec(fd as u32)
    }

    /// Closes the descriptors marked close-on-exec.
    pub fn close_on_exec(&mut self) {
        for fd in self.open_descriptors().collect::<Vec<u32>>() {
            if self.descriptor(fd.into()).is_ok_and(|descriptor| descriptor.close_on_exec) {
                // It is open.
                let _ = self.close(fd.into());
            }
        }
    }

    /// Removes a process that has been waited for.
    pub fn forget_process(&mut self, process: Pid) {
        self.notify_exit(process, PidState::Gone);
        self.others.remove(&process);
    }

    /// The file state of a process.
    #[must_use]
    pub fn of(&self, process: Pid) -> Option<&ProcessFiles> {
        if self.current.process == process { Some(&self.current) } else { self.others.get(&process) }
    }

    /// The file state of a process, mutably.
    pub fn of_mut(&mut self, process: Pid) -> Option<&mut ProcessFiles> {
        if self.current.process == process { Some(&mut self.current) } else { self.others.get_mut(&process) }
    }

    /// The numbers of all processes, in order.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        let mut numbers: Vec<Pid> = self.others.keys().copied().chain([self.current.process]).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The user of a process; root if it does not exist.
    #[must_use]
    pub fn user_of(&self, process: Pid) -> u32 {
        self.of(process).map_or(0, |process_files| process_files.credentials.user.real)
    }
}
