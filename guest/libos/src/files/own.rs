// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each process has of its own: descriptors, directories, who it is.

use alloc::vec::Vec;

use super::numbered::Numbered;
use super::watched::Fate;
use super::{Descriptor, Files, OpenFile, Program};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::files::tree::Place;
use crate::limits::OPEN_LIMIT;
use crate::process::{FIRST, ProcessNumber};

/// Descriptors that a table has room for at least.
const TABLE_MIN: usize = 64;

/// The files of one process.
#[derive(Clone, Debug)]
pub struct Own {
    /// Whose they are.
    pub process: ProcessNumber,
    /// The root directory of paths.
    pub root: Place,
    /// The working directory.
    pub working_directory: Place,
    /// The program.
    pub program: Program,
    /// Who the process is.
    pub who: Credentials,
    /// Permissions that new files would not get.
    pub umask: u64,
    /// When the process started, in nanoseconds since 1970.
    pub started: u64,
    /// Descriptors below this may be used.
    pub descriptors_max: u64,
    /// Bytes that a file may have that it writes.
    pub file_size_max: u64,
    pub(super) descriptors: Numbered<Descriptor>,
}

impl Own {
    /// How many descriptors its table has room for: it grows as Linux's does.
    #[must_use]
    pub fn table_size(&self) -> u64 {
        self.descriptors.end().next_power_of_two().max(TABLE_MIN) as u64
    }

    /// Those of the first process, which stands in the root directory.
    pub(super) fn new(root: Place, who: Credentials, started: u64) -> Own {
        Own {
            process: FIRST,
            root,
            working_directory: root,
            program: Program { place: root, name: None },
            who,
            umask: 0o022,
            started,
            descriptors_max: OPEN_LIMIT,
            file_size_max: u64::MAX,
            descriptors: Numbered::default(),
        }
    }

    /// The numbers of all descriptors.
    pub fn open_descriptors(&self) -> impl Iterator<Item = u32> {
        self.descriptors.iter().map(|(fd, _)| fd as u32)
    }

    /// The number of the open file that a descriptor stands for.
    pub(super) fn open_file(&self, fd: u32) -> Option<usize> {
        self.descriptors.get(fd as usize).map(|descriptor| descriptor.file)
    }

    /// Whether a descriptor is closed when another program is executed.
    #[must_use]
    pub fn closes_on_exec(&self, fd: u32) -> bool {
        self.descriptors.get(fd as usize).is_some_and(|descriptor| descriptor.close_on_exec)
    }
}

impl Files {
    /// Puts the files of another process in place.
    pub fn enter(&mut self, process: ProcessNumber) {
        if let Some(own) = self.others.remove(&process) {
            let before = core::mem::replace(&mut self.own, own);
            self.others.insert(before.process, before);
        }
    }

    /// Gives a new process what the running one has.
    pub fn fork(&mut self, process: ProcessNumber) {
        for (_, descriptor) in self.own.descriptors.iter() {
            if let Some((_, references)) = self.open.get_mut(descriptor.file) {
                *references += 1;
            }
        }
        self.others.insert(process, Own { process, ..self.own.clone() });
    }

    /// Puts another program in place of the running process's.
    pub fn set_program(&mut self, program: Program) {
        let before = core::mem::replace(&mut self.own.program, program);
        self.release(before.place);
    }

    /// Checks that no process runs a file, which is about to be written.
    ///
    /// # Errors
    /// `ETXTBSY`.
    pub fn check_not_running(&self, place: Place) -> Result<(), Errno> {
        let place = self.tree.settle(place);
        let mut all = self.others.values().chain([&self.own]);
        if all.any(|own| self.tree.settle(own.program.place) == place) { Err(Errno::ETXTBSY) } else { Ok(()) }
    }

    /// Checks that nobody has a file open to write it, which is about to run.
    ///
    /// # Errors
    /// `ETXTBSY`.
    pub fn check_not_written(&self, place: Place) -> Result<(), Errno> {
        let place = self.tree.settle(place);
        let writes = |file: &OpenFile| file.writable() && self.place_of(file) == Some(place);
        if self.open.iter().any(|(_, (file, _))| writes(file)) { Err(Errno::ETXTBSY) } else { Ok(()) }
    }

    /// Closes all that the running process has open, and lets go of its program.
    pub fn leave(&mut self) {
        self.set_program(Program { place: self.own.root, name: None });
        for fd in self.open_descriptors().collect::<Vec<u32>>() {
            // It is open.
            let _ = self.close(fd.into());
        }
    }

    /// Whether a descriptor is not for a program that is executed.
    #[must_use]
    pub fn closes_on_exec(&self, fd: u64) -> bool {
        self.own.closes_on_exec(fd as u32)
    }

    /// Closes what is not for the program that is executed.
    pub fn close_on_exec(&mut self) {
        for fd in self.open_descriptors().collect::<Vec<u32>>() {
            if self.descriptor(fd.into()).is_ok_and(|descriptor| descriptor.close_on_exec) {
                // It is open.
                let _ = self.close(fd.into());
            }
        }
    }

    /// Forgets a process that is gone.
    pub fn forget_process(&mut self, process: ProcessNumber) {
        self.tell_fate(process, Fate::Gone);
        self.others.remove(&process);
    }

    /// What a process has.
    #[must_use]
    pub fn of(&self, process: ProcessNumber) -> Option<&Own> {
        if self.own.process == process { Some(&self.own) } else { self.others.get(&process) }
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, process: ProcessNumber) -> Option<&mut Own> {
        if self.own.process == process { Some(&mut self.own) } else { self.others.get_mut(&process) }
    }

    /// The numbers of all processes, in order.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessNumber> {
        let mut numbers: Vec<ProcessNumber> = self.others.keys().copied().chain([self.own.process]).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The user that a process is; root if there is no such process.
    #[must_use]
    pub fn user_of(&self, process: ProcessNumber) -> u32 {
        self.of(process).map_or(0, |own| own.who.user.real)
    }
}
