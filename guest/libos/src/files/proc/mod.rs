// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of `/proc` and `/sys`: the table, the processes with their threads, and their descriptors.
//!
//! Texts are generated elsewhere, when they are opened.

pub mod entry;
pub mod file;
pub mod table;

use alloc::format;
use alloc::vec::Vec;

use super::namei::LinkTarget;
use super::process_files::ProcessFiles;
use super::status::{Status, minor, time};
use super::tree::{DirectoryEntry, InodeRef};
use super::{Files, OpenFile};
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::pid::Pid;
use entry::{ProcEntry, ProcEntryKind, Subject};
use table::{PROCESS, ProcLink, ProcNode};

/// The position in a listing at which the numbers of processes, threads and descriptors begin.
const NUMBERS: u64 = 1 << 16;

/// The number that a name stands for, in the notation of `/proc`.
fn number(name: &[u8]) -> Option<u32> {
    let is_plain = name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name.first() != Some(&b'0'));
    core::str::from_utf8(name).ok().filter(|_| is_plain)?.parse().ok()
}

impl Files {
    /// Finds a name in a directory of `/proc`.
    pub(super) fn lookup_proc(&self, directory: ProcEntry, name: &[u8]) -> Result<InodeRef, Errno> {
        let kind = directory.node().filter(|node| node.is_directory()).ok_or(Errno::ENOTDIR)?;
        if let Some(subject) = directory.subject() {
            self.of(subject.process).ok_or(Errno::ENOENT)?;
        }
        if kind == ProcNode::DescriptorInfos {
            self.inspected(directory.subject())?;
        }
        let listed = directory.children().find(|(_, row)| row.name.as_bytes() == name).map(|(entry, _)| entry);
        let numbered = || self.numbered(directory, kind, number(name)?);
        listed.or_else(numbered).map(InodeRef::Proc).ok_or(Errno::ENOENT)
    }

    /// The entry in a directory whose name is a number.
    fn numbered(&self, directory: ProcEntry, kind: ProcNode, number: u32) -> Option<ProcEntry> {
        match (kind, directory.subject()) {
            (ProcNode::Descriptors, Some(subject)) => {
                self.file_of(subject.process, number).map(|_| ProcEntry(ProcEntryKind::Descriptor(subject, number)))
            }
            (ProcNode::DescriptorInfos, Some(subject)) => {
                self.file_of(subject.process, number).map(|_| ProcEntry(ProcEntryKind::Info(subject, number)))
            }
            (ProcNode::Threads, Some(Subject { process, .. })) => {
                let is_there = number == process || self.threads.contains(&(process, number));
                is_there.then_some(ProcEntry(ProcEntryKind::Of(Subject { process, thread: Some(number) }, PROCESS)))
            }
            // A thread's number is an unlisted name of its process.
            _ if directory == ProcEntry::ROOT => {
                let thread = || self.threads.iter().find(|(_, thread)| *thread == number).map(|(process, _)| *process);
                self.of(number).map(|process_files| process_files.process).or_else(thread).map(ProcEntry::of)
            }
            _ => None,
        }
    }

    /// The numbers that are names in a directory, in order.
    fn numbers(&self, directory: ProcEntry) -> Vec<u32> {
        match (directory.node(), directory.subject()) {
            (Some(ProcNode::Descriptors | ProcNode::DescriptorInfos), Some(subject)) => {
                self.of(subject.process).map(ProcessFiles::open_descriptors).into_iter().flatten().collect()
            }
            (Some(ProcNode::Threads), Some(Subject { process, .. })) => {
                let others = self.threads.range((process, 0)..=(process, u32::MAX)).map(|(_, thread)| *thread);
                [process].into_iter().chain(others).collect()
            }
            _ if directory == ProcEntry::ROOT => self.processes(),
            _ => Vec::new(),
        }
    }

    /// The open file of a process's descriptor.
    #[must_use]
    pub fn file_of(&self, process: Pid, fd: u32) -> Option<&OpenFile> {
        let index = self.of(process)?.open_file(fd)?;
        self.open.get(index).map(|(file, _)| file)
    }

    /// The metadata of an entry of `/proc`.
    pub(super) fn proc_status(&self, entry: ProcEntry) -> Status {
        let kind = entry.kind();
        let device = if entry.is_of_system() { minor::SYSTEM } else { minor::PROC };
        let process_files = entry.subject().and_then(|subject| self.of(subject.process));
        let now = time(process_files.unwrap_or(&self.current).started);
        let mut status = Status::anonymous_device(device, entry.number(), kind.mode() | entry.permissions(), now);
        if let Some(process_files) = process_files {
            (status.uid, status.gid) = (process_files.credentials.user.effective, process_files.credentials.group.effective);
        }
        if let ProcEntryKind::Descriptor(Subject { process, .. }, fd) = entry.0 {
            status.size = 64;
            if let Some(file) = self.file_of(process, fd) {
                status.mode |= 0o100 | u32::from(file.readable()) << 8 | u32::from(file.writable()) << 7;
            }
        } else if kind == FileType::Directory {
            status.links = 2 + entry.children().filter(|(_, row)| row.node.is_directory()).count() as u32;
        } else if device == minor::SYSTEM {
            status.size = entry::SYSTEM_SIZE;
        }
        status
    }

    /// The files of a process, if the caller may inspect it.
    pub(super) fn inspected(&self, subject: Option<Subject>) -> Result<&ProcessFiles, Errno> {
        let process_files = self.of(subject.ok_or(Errno::ENOENT)?.process).ok_or(Errno::ENOENT)?;
        if process_files.process == self.current.process || self.current.credentials.may_inspect(&process_files.credentials) {
            Ok(process_files)
        } else {
            Err(Errno::EACCES)
        }
    }

    /// The target of a link of `/proc`.
    pub(super) fn proc_target(&self, link: ProcEntry) -> Result<LinkTarget<'_>, Errno> {
        let process_files = || self.inspected(link.subject());
        let inode = match (link.0, link.node()) {
            (ProcEntryKind::Descriptor(Subject { process, .. }, fd), _) if process == self.current.process => {
                self.inode(fd.into()).map_err(|_| Errno::ENOENT)?
            }
            (ProcEntryKind::Descriptor(_, fd), _) => {
                let file = self.file_of(process_files()?.process, fd).ok_or(Errno::ENOENT)?;
                self.inode_of(file).ok_or(Errno::ENXIO)?
            }
            (_, Some(ProcNode::Link(ProcLink::Path(path)))) => return Ok(LinkTarget::Path(path.as_bytes())),
            (_, Some(ProcNode::Link(ProcLink::Own))) => InodeRef::Proc(ProcEntry::of(self.current.process)),
            (_, Some(ProcNode::Link(ProcLink::OwnThread))) => {
                InodeRef::Proc(ProcEntry(ProcEntryKind::Of(Subject { process: self.current.process, thread: Some(self.thread) }, PROCESS)))
            }
            (_, Some(ProcNode::Link(ProcLink::Program))) => process_files()?.program.inode,
            (_, Some(ProcNode::Link(ProcLink::WorkingDirectory))) => process_files()?.working_directory,
            (_, Some(ProcNode::Link(ProcLink::Root))) => process_files()?.root,
            _ => return Err(Errno::EINVAL),
        };
        Ok(LinkTarget::Inode(inode))
    }

    /// The path of the program of a process; empty: there is no such process.
    #[must_use]
    pub fn program_path(&self, process: Pid) -> Vec<u8> {
        self.of(process).map_or_else(Vec::new, |files| self.path_by(files.program.name.as_ref(), Some(files.program.inode)))
    }

    /// The text of a link of `/proc` (`readlink`).
    ///
    /// # Errors
    /// `EINVAL`: it is no link. `ENOENT`: it has no target. `EACCES`: it belongs to another user.
    pub fn proc_target_text(&self, link: ProcEntry) -> Result<Vec<u8>, Errno> {
        let directory = |inode| Ok(self.path_of(inode)?.unwrap_or_else(|| b"(unreachable)".to_vec()));
        let process_files = || self.inspected(link.subject());
        match (link.0, link.node()) {
            (ProcEntryKind::Descriptor(_, fd), _) => {
                let file = self.file_of(process_files()?.process, fd).ok_or(Errno::ENOENT)?;
                file.operations().link_text(self, file)
            }
            (_, Some(ProcNode::Link(ProcLink::Path(path)))) => Ok(path.as_bytes().to_vec()),
            (_, Some(ProcNode::Link(ProcLink::Own))) => Ok(format!("{}", self.current.process).into_bytes()),
            (_, Some(ProcNode::Link(ProcLink::OwnThread))) => Ok(format!("{}/task/{}", self.current.process, self.thread).into_bytes()),
            (_, Some(ProcNode::Link(ProcLink::Program))) => {
                let program = &process_files()?.program;
                Ok(self.path_by(program.name.as_ref(), Some(program.inode)))
            }
            (_, Some(ProcNode::Link(ProcLink::WorkingDirectory))) => directory(process_files()?.working_directory),
            (_, Some(ProcNode::Link(ProcLink::Root))) => directory(process_files()?.root),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Passes the names of a directory of `/proc` to `take`, from a position on.
    pub(super) fn list_proc(
        &self,
        directory: ProcEntry,
        position: u64,
        mut take: impl FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let node = directory.node().filter(|node| node.is_directory()).ok_or(Errno::ENOTDIR)?;
        let above =
            directory.parent().map_or_else(|| self.status(self.tree.root()).map(|status| status.number), |above| Ok(above.number()))?;
        let dots = [(&b"."[..], directory.number()), (b"..", above)];
        for (index, (name, number)) in (1..).zip(dots) {
            if position < index && !take(DirectoryEntry { name, number, kind: Some(FileType::Directory), next: index }) {
                return Ok(());
            }
        }
        // Positions of rows follow those of the dots; those of numbers come last.
        for (next, (entry, row)) in (3..).zip(directory.children()) {
            if position < next
                && !take(DirectoryEntry { name: row.name.as_bytes(), number: entry.number(), kind: Some(entry.kind()), next })
            {
                return Ok(());
            }
        }
        for number in self.numbers(directory) {
            let next = NUMBERS + u64::from(number);
            let Some(entry) = self.numbered(directory, node, number).filter(|_| position < next) else { continue };
            let name = format!("{number}");
            if !take(DirectoryEntry { name: name.as_bytes(), number: entry.number(), kind: Some(entry.kind()), next }) {
                return Ok(());
            }
        }
        Ok(())
    }
}
