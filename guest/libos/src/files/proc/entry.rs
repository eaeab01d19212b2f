// SPDX-License-Identifier: MIT OR Apache-2.0
//! Things of `/proc` and `/sys`: what stands in the table, once or for each process and thread, and descriptors.

use super::table::{DESCRIPTOR_INFOS, DESCRIPTORS, Link, NOWHERE, PROCESS, ROOT, ROWS, Row, SYSTEM, THREADS, Text, What};
use crate::erofs::FileType;
use crate::process::ProcessNumber;
use crate::wait::ThreadNumber;

/// Whose directory something lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The process.
    pub process: ProcessNumber,
    /// The thread, if it is its directory.
    pub thread: Option<ThreadNumber>,
}

/// Something of `/proc` or `/sys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub(super) Kept);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// What there is once.
    Row(u8),
    /// What each process and thread has.
    Of(Subject, u8),
    /// The link that stands for a descriptor.
    Descriptor(Subject, u32),
    /// What is known of a descriptor.
    Info(Subject, u32),
}

impl Entry {
    /// `/proc` itself.
    pub const ROOT: Entry = Entry(Kept::Row(ROOT));
    /// `/sys` itself.
    pub const SYSTEM: Entry = Entry(Kept::Row(SYSTEM));

    /// The directory of a process.
    pub(super) fn of(process: ProcessNumber) -> Entry {
        Entry(Kept::Of(Subject { process, thread: None }, PROCESS))
    }

    fn row(self) -> Option<&'static Row> {
        match self.0 {
            Kept::Row(index) | Kept::Of(_, index) => ROWS.get(usize::from(index)),
            Kept::Descriptor(..) | Kept::Info(..) => None,
        }
    }

    pub(super) fn what(self) -> Option<What> {
        match self.0 {
            Kept::Info(..) => Some(What::Text(Text::DescriptorInfo)),
            _ => self.row().map(|row| row.what),
        }
    }

    /// Whose directory it lies in.
    #[must_use]
    pub fn subject(self) -> Option<Subject> {
        match self.0 {
            Kept::Row(_) => None,
            Kept::Of(subject, _) | Kept::Descriptor(subject, _) | Kept::Info(subject, _) => Some(subject),
        }
    }

    /// The process whose directory it is.
    #[must_use]
    pub fn process(self) -> Option<ProcessNumber> {
        if let Kept::Of(Subject { process, thread: None }, PROCESS) = self.0 { Some(process) } else { None }
    }

    /// The descriptor that it stands for, or tells of.
    #[must_use]
    pub fn descriptor(self) -> Option<u32> {
        if let Kept::Descriptor(_, fd) | Kept::Info(_, fd) = self.0 { Some(fd) } else { None }
    }

    /// The inode number.
    #[must_use]
    pub fn number(self) -> u64 {
        let low = match self.0 {
            Kept::Row(index) | Kept::Of(_, index) => 1 + u64::from(index),
            Kept::Descriptor(_, fd) => 1 << 24 | u64::from(fd),
            Kept::Info(_, fd) => 1 << 25 | u64::from(fd),
        };
        self.subject().map_or(0, |Subject { process, thread }| u64::from(process) << 47 | u64::from(thread.unwrap_or_default()) << 28) | low
    }

    /// What it is.
    pub(super) fn kind(self) -> FileType {
        match self.what() {
            Some(What::Text(_)) => FileType::Regular,
            Some(What::Link(_)) | None => FileType::Symlink,
            Some(_) => FileType::Directory,
        }
    }

    /// The directory that it lies in; `None`: it is `/proc` or `/sys` itself.
    #[must_use]
    pub fn parent(self) -> Option<Entry> {
        match self.0 {
            Kept::Row(_) => self.row().filter(|row| row.parent != NOWHERE).map(|row| Entry(Kept::Row(row.parent))),
            Kept::Of(Subject { thread: None, .. }, PROCESS) => Some(Entry::ROOT),
            Kept::Of(Subject { process, .. }, PROCESS) => Some(Entry(Kept::Of(Subject { process, thread: None }, THREADS))),
            Kept::Of(subject, _) => self.row().map(|row| Entry(Kept::Of(subject, row.parent))),
            Kept::Descriptor(subject, _) => Some(Entry(Kept::Of(subject, DESCRIPTORS))),
            Kept::Info(subject, _) => Some(Entry(Kept::Of(subject, DESCRIPTOR_INFOS))),
        }
    }

    /// The text that it is.
    #[must_use]
    pub fn text(self) -> Option<Text> {
        if let Some(What::Text(text)) = self.what() { Some(text) } else { None }
    }

    /// Whether it is a link that is no more than a path.
    #[must_use]
    pub fn is_plain_link(self) -> bool {
        matches!(self.what(), Some(What::Link(Link::Own | Link::OwnThread | Link::Path(_))))
    }

    /// Whether it is of `/sys`.
    #[must_use]
    pub fn is_of_system(self) -> bool {
        core::iter::successors(Some(self), |entry| entry.parent()).last() == Some(Entry::SYSTEM)
    }

    /// Permissions.
    pub(super) fn permissions(self) -> u32 {
        match self.what() {
            Some(What::Descriptors | What::DescriptorInfos) | None => 0o500,
            Some(What::Link(_)) => 0o777,
            Some(What::Text(Text::Environment | Text::Auxiliary | Text::InputOutput)) => 0o400,
            Some(What::Text(Text::Comm | Text::OutOfMemoryScore | Text::Login)) => 0o644,
            Some(What::Text(Text::TimerSlack)) => 0o666,
            Some(What::Text(_)) => 0o444,
            Some(_) => 0o555,
        }
    }

    /// Whether it can be written, by those who may.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.permissions() & 0o200 != 0
    }

    /// What of the table lies in it.
    pub(super) fn children(self) -> impl Iterator<Item = (Entry, &'static Row)> {
        let (own, subject) = match self.0 {
            Kept::Row(index) => (index, None),
            Kept::Of(subject, index) => (index, Some(subject)),
            Kept::Descriptor(..) | Kept::Info(..) => (NOWHERE, None),
        };
        let is_thread = subject.is_some_and(|subject| subject.thread.is_some());
        let rows = (0..).zip(ROWS).filter(move |(_, row)| row.parent == own && own != NOWHERE);
        let rows = rows.filter(move |(_, row)| (row.what != What::Threads || !is_thread) && (row.name != "children" || is_thread));
        rows.map(move |(index, row)| (Entry(subject.map_or(Kept::Row(index), |subject| Kept::Of(subject, index))), row))
    }
}
