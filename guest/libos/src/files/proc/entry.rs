// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of `/proc` and `/sys`: rows of the table, global or per process and thread, and descriptors.

use super::table::{
    DESCRIPTOR_INFOS, DESCRIPTORS, NOWHERE, PROCESS, ProcLink, ProcNode, ProcRow, ProcText, ROOT, ROWS, SYS, SYSTEM, THREADS,
};
use crate::erofs::FileType;
use crate::pid::Pid;
use crate::wait::Tid;

/// Bytes of every text of `/sys`, as Linux tells them.
pub(super) const SYSTEM_SIZE: u64 = 4096;

/// The process or thread whose directory holds an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The process.
    pub process: Pid,
    /// The thread, if the entry is in a thread's directory.
    pub thread: Option<Tid>,
}

/// An entry of `/proc` or `/sys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcEntry(pub(super) ProcEntryKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcEntryKind {
    /// A global entry.
    Row(u8),
    /// An entry of each process and thread.
    Of(Subject, u8),
    /// The link of a descriptor.
    Descriptor(Subject, u32),
    /// The information about a descriptor (`fdinfo`).
    Info(Subject, u32),
}

impl ProcEntry {
    /// `/proc` itself.
    pub const ROOT: ProcEntry = ProcEntry(ProcEntryKind::Row(ROOT));
    /// `/sys` itself.
    pub const SYSTEM: ProcEntry = ProcEntry(ProcEntryKind::Row(SYSTEM));

    /// The directory of a process.
    pub(super) fn of(process: Pid) -> ProcEntry {
        ProcEntry(ProcEntryKind::Of(Subject { process, thread: None }, PROCESS))
    }

    fn row(self) -> Option<&'static ProcRow> {
        match self.0 {
            ProcEntryKind::Row(index) | ProcEntryKind::Of(_, index) => ROWS.get(usize::from(index)),
            ProcEntryKind::Descriptor(..) | ProcEntryKind::Info(..) => None,
        }
    }

    pub(super) fn node(self) -> Option<ProcNode> {
        match self.0 {
            ProcEntryKind::Info(..) => Some(ProcNode::Text(ProcText::DescriptorInfo)),
            _ => self.row().map(|row| row.node),
        }
    }

    /// The process or thread to which it belongs.
    #[must_use]
    pub fn subject(self) -> Option<Subject> {
        match self.0 {
            ProcEntryKind::Row(_) => None,
            ProcEntryKind::Of(subject, _) | ProcEntryKind::Descriptor(subject, _) | ProcEntryKind::Info(subject, _) => Some(subject),
        }
    }

    /// The process whose directory it is.
    #[must_use]
    pub fn process(self) -> Option<Pid> {
        if let ProcEntryKind::Of(Subject { process, thread: None }, PROCESS) = self.0 { Some(process) } else { None }
    }

    /// The descriptor to which it belongs.
    #[must_use]
    pub fn descriptor(self) -> Option<u32> {
        if let ProcEntryKind::Descriptor(_, fd) | ProcEntryKind::Info(_, fd) = self.0 { Some(fd) } else { None }
    }

    /// The inode number.
    #[must_use]
    pub fn number(self) -> u64 {
        let low = match self.0 {
            ProcEntryKind::Row(index) | ProcEntryKind::Of(_, index) => 1 + u64::from(index),
            ProcEntryKind::Descriptor(_, fd) => 1 << 24 | u64::from(fd),
            ProcEntryKind::Info(_, fd) => 1 << 25 | u64::from(fd),
        };
        self.subject().map_or(0, |Subject { process, thread }| u64::from(process) << 47 | u64::from(thread.unwrap_or_default()) << 28) | low
    }

    /// Its file type.
    pub(super) fn kind(self) -> FileType {
        match self.node() {
            Some(ProcNode::Text(_)) => FileType::Regular,
            Some(ProcNode::Link(_)) | None => FileType::Symlink,
            Some(_) => FileType::Directory,
        }
    }

    /// Its parent directory; `None`: it is `/proc` or `/sys` itself.
    #[must_use]
    pub fn parent(self) -> Option<ProcEntry> {
        match self.0 {
            ProcEntryKind::Row(_) => self.row().filter(|row| row.parent != NOWHERE).map(|row| ProcEntry(ProcEntryKind::Row(row.parent))),
            ProcEntryKind::Of(Subject { thread: None, .. }, PROCESS) => Some(ProcEntry::ROOT),
            ProcEntryKind::Of(Subject { process, .. }, PROCESS) => {
                Some(ProcEntry(ProcEntryKind::Of(Subject { process, thread: None }, THREADS)))
            }
            ProcEntryKind::Of(subject, _) => self.row().map(|row| ProcEntry(ProcEntryKind::Of(subject, row.parent))),
            ProcEntryKind::Descriptor(subject, _) => Some(ProcEntry(ProcEntryKind::Of(subject, DESCRIPTORS))),
            ProcEntryKind::Info(subject, _) => Some(ProcEntry(ProcEntryKind::Of(subject, DESCRIPTOR_INFOS))),
        }
    }

    /// The text that it contains.
    #[must_use]
    pub fn text(self) -> Option<ProcText> {
        if let Some(ProcNode::Text(text)) = self.node() { Some(text) } else { None }
    }

    /// Whether it is the directory of descriptor information (`fdinfo`).
    #[must_use]
    pub fn lists_descriptors(self) -> bool {
        self.node() == Some(ProcNode::DescriptorInfos)
    }

    /// The size to which `SEEK_END` is relative; `None`: a `seq_file`, for which `SEEK_END` fails.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        let above = || core::iter::successors(Some(self), |entry| entry.parent());
        match self.text()? {
            _ if self.is_of_system() => Some(SYSTEM_SIZE),
            ProcText::Auxiliary | ProcText::CommandLine | ProcText::Environment | ProcText::Login | ProcText::OutOfMemoryScore => Some(0),
            _ if self.row().is_some_and(|row| row.name == "sessionid") => Some(0),
            _ => above().any(|entry| entry == ProcEntry(ProcEntryKind::Row(SYS))).then_some(0),
        }
    }

    /// Whether it is a link that is no more than a path.
    #[must_use]
    pub fn is_plain_link(self) -> bool {
        matches!(self.node(), Some(ProcNode::Link(ProcLink::Own | ProcLink::OwnThread | ProcLink::Path(_))))
    }

    /// Whether it is in `/sys`.
    #[must_use]
    pub fn is_of_system(self) -> bool {
        core::iter::successors(Some(self), |entry| entry.parent()).last() == Some(ProcEntry::SYSTEM)
    }

    /// Its permissions.
    pub(super) fn permissions(self) -> u32 {
        match self.node() {
            Some(ProcNode::Descriptors | ProcNode::DescriptorInfos) | None => 0o500,
            Some(ProcNode::Link(_)) => 0o777,
            Some(ProcNode::Text(ProcText::Environment | ProcText::Auxiliary | ProcText::InputOutput)) => 0o400,
            Some(ProcNode::Text(ProcText::Comm | ProcText::OutOfMemoryScore | ProcText::Login)) => 0o644,
            Some(ProcNode::Text(ProcText::TimerSlack)) => 0o666,
            Some(ProcNode::Text(_)) => 0o444,
            Some(_) => 0o555,
        }
    }

    /// Whether privileged users can write it.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.permissions() & 0o200 != 0
    }

    /// The rows of the table in this directory.
    pub(super) fn children(self) -> impl Iterator<Item = (ProcEntry, &'static ProcRow)> {
        let (directory, subject) = match self.0 {
            ProcEntryKind::Row(index) => (index, None),
            ProcEntryKind::Of(subject, index) => (index, Some(subject)),
            ProcEntryKind::Descriptor(..) | ProcEntryKind::Info(..) => (NOWHERE, None),
        };
        let is_thread = subject.is_some_and(|subject| subject.thread.is_some());
        let rows = (0..).zip(ROWS).filter(move |(_, row)| row.parent == directory && directory != NOWHERE);
        let rows = rows.filter(move |(_, row)| (row.node != ProcNode::Threads || !is_thread) && (row.name != "children" || is_thread));
        rows.map(move |(index, row)| {
            (ProcEntry(subject.map_or(ProcEntryKind::Row(index), |subject| ProcEntryKind::Of(subject, index))), row)
        })
    }
}
