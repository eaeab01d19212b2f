// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of `/proc`: one table, and the descriptors.
//!
//! What the texts say is known elsewhere: an open text is filled when it is opened.

use alloc::format;
use alloc::vec::Vec;

use super::names::Target;
use super::status::{Status, minor, time};
use super::tree::{Listed, Place};
use super::{Files, Kind};
use crate::erofs::FileType;
use crate::errno::Errno;

/// A text that is written when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the rows of the table name the files")]
pub enum Text {
    CommandLine,
    Environment,
    Auxiliary,
    Maps,
    Status,
    Stat,
    MemoryStatus,
    Comm,
    Limits,
    Mounts,
    MountInfo,
    CpuInfo,
    MemoryInfo,
    Uptime,
    Version,
    LoadAverage,
    FileSystems,
    Statistics,
    Fixed(&'static str),
    HostName,
    Release,
    KernelVersion,
    Uuid,
    BootId,
}

/// A link to what the process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Path(&'static str),
    Program,
    WorkingDirectory,
    Root,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Directory,
    /// The directory of descriptors.
    Descriptors,
    Link(Link),
    Text(Text),
}

struct Row {
    parent: u8,
    name: &'static str,
    what: What,
}

const fn row(parent: u8, name: &'static str, what: What) -> Row {
    Row { parent, name, what }
}

/// Numbers of rows that others lie in.
const ROOT: u8 = 0;
const PROCESS: u8 = 1;
const DESCRIPTORS: u8 = 2;
const SYS: u8 = 3;
const KERNEL: u8 = 4;
const RANDOM: u8 = 5;
const VM: u8 = 6;
const FS: u8 = 7;

/// The names, in the order in which they are listed.
const ROWS: &[Row] = &[
    row(ROOT, "", What::Directory),
    row(ROOT, "1", What::Directory),
    row(PROCESS, "fd", What::Descriptors),
    row(ROOT, "sys", What::Directory),
    row(SYS, "kernel", What::Directory),
    row(KERNEL, "random", What::Directory),
    row(SYS, "vm", What::Directory),
    row(SYS, "fs", What::Directory),
    row(ROOT, "self", What::Link(Link::Path("1"))),
    row(ROOT, "mounts", What::Link(Link::Path("self/mounts"))),
    row(ROOT, "cpuinfo", What::Text(Text::CpuInfo)),
    row(ROOT, "filesystems", What::Text(Text::FileSystems)),
    row(ROOT, "loadavg", What::Text(Text::LoadAverage)),
    row(ROOT, "meminfo", What::Text(Text::MemoryInfo)),
    row(ROOT, "stat", What::Text(Text::Statistics)),
    row(ROOT, "uptime", What::Text(Text::Uptime)),
    row(ROOT, "version", What::Text(Text::Version)),
    row(PROCESS, "auxv", What::Text(Text::Auxiliary)),
    row(PROCESS, "cmdline", What::Text(Text::CommandLine)),
    row(PROCESS, "comm", What::Text(Text::Comm)),
    row(PROCESS, "cwd", What::Link(Link::WorkingDirectory)),
    row(PROCESS, "environ", What::Text(Text::Environment)),
    row(PROCESS, "exe", What::Link(Link::Program)),
    row(PROCESS, "limits", What::Text(Text::Limits)),
    row(PROCESS, "maps", What::Text(Text::Maps)),
    row(PROCESS, "mountinfo", What::Text(Text::MountInfo)),
    row(PROCESS, "mounts", What::Text(Text::Mounts)),
    row(PROCESS, "root", What::Link(Link::Root)),
    row(PROCESS, "stat", What::Text(Text::Stat)),
    row(PROCESS, "statm", What::Text(Text::MemoryStatus)),
    row(PROCESS, "status", What::Text(Text::Status)),
    row(KERNEL, "cap_last_cap", What::Text(Text::Fixed("40\n"))),
    row(KERNEL, "hostname", What::Text(Text::HostName)),
    row(KERNEL, "ngroups_max", What::Text(Text::Fixed("65536\n"))),
    row(KERNEL, "osrelease", What::Text(Text::Release)),
    row(KERNEL, "ostype", What::Text(Text::Fixed("Linux\n"))),
    row(KERNEL, "pid_max", What::Text(Text::Fixed("32768\n"))),
    row(KERNEL, "version", What::Text(Text::KernelVersion)),
    row(RANDOM, "boot_id", What::Text(Text::BootId)),
    row(RANDOM, "uuid", What::Text(Text::Uuid)),
    row(VM, "max_map_count", What::Text(Text::Fixed("65530\n"))),
    row(VM, "overcommit_memory", What::Text(Text::Fixed("0\n"))),
    row(FS, "file-max", What::Text(Text::Fixed("1024\n"))),
    row(FS, "pipe-max-size", What::Text(Text::Fixed("1048576\n"))),
];

/// Something of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(Kept);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Row(u8),
    /// The link that stands for a descriptor.
    Descriptor(u32),
}

impl Entry {
    /// `/proc` itself.
    pub const ROOT: Entry = Entry(Kept::Row(ROOT));

    fn what(self) -> Option<What> {
        match self.0 {
            Kept::Row(index) => ROWS.get(usize::from(index)).map(|row| row.what),
            Kept::Descriptor(_) => None,
        }
    }

    /// The inode number.
    #[must_use]
    pub fn number(self) -> u64 {
        match self.0 {
            Kept::Row(index) => 1 + u64::from(index),
            Kept::Descriptor(fd) => 1 << 16 | u64::from(fd),
        }
    }

    /// What it is.
    fn kind(self) -> FileType {
        match self.what() {
            Some(What::Directory | What::Descriptors) => FileType::Directory,
            Some(What::Text(_)) => FileType::Regular,
            Some(What::Link(_)) | None => FileType::Symlink,
        }
    }

    /// The directory that it lies in; `None`: it is `/proc` itself.
    #[must_use]
    pub fn parent(self) -> Option<Entry> {
        match self.0 {
            Kept::Row(ROOT) => None,
            Kept::Row(index) => ROWS.get(usize::from(index)).map(|row| Entry(Kept::Row(row.parent))),
            Kept::Descriptor(_) => Some(Entry(Kept::Row(DESCRIPTORS))),
        }
    }

    /// The text that it is.
    #[must_use]
    pub fn text(self) -> Option<Text> {
        if let Some(What::Text(text)) = self.what() { Some(text) } else { None }
    }

    /// Permissions.
    fn permissions(self) -> u32 {
        match self.what() {
            Some(What::Directory) => 0o555,
            Some(What::Descriptors) | None => 0o500,
            Some(What::Link(_)) => 0o777,
            Some(What::Text(Text::Environment | Text::Auxiliary)) => 0o400,
            Some(What::Text(_)) => 0o444,
        }
    }

    /// The rows that lie in it, with their numbers.
    fn rows(self) -> impl Iterator<Item = (u8, &'static Row)> {
        let own = if let Kept::Row(index) = self.0 { index } else { u8::MAX };
        (1..).zip(&ROWS[1..]).filter(move |(_, row)| row.parent == own)
    }
}

impl Files {
    /// Finds a name in a directory of `/proc`.
    pub(super) fn lookup_proc(&self, directory: Entry, name: &[u8]) -> Result<Place, Errno> {
        match directory.what() {
            Some(What::Directory) => {
                let found = directory.rows().find(|(_, row)| row.name.as_bytes() == name);
                found.map(|(index, _)| Place::Proc(Entry(Kept::Row(index)))).ok_or(Errno::ENOENT)
            }
            Some(What::Descriptors) => {
                let digits = core::str::from_utf8(name).ok().filter(|_| !name.starts_with(b"+"));
                let fd: u32 = digits.and_then(|digits| digits.parse().ok()).ok_or(Errno::ENOENT)?;
                self.look(fd.into()).map(|_| Place::Proc(Entry(Kept::Descriptor(fd)))).map_err(|_| Errno::ENOENT)
            }
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What is known of something in `/proc`.
    pub(super) fn proc_status(&self, entry: Entry) -> Status {
        let kind = entry.kind();
        let now = time(self.started);
        let mut status = Status::made_up(minor::PROC, entry.number(), kind.mode() | entry.permissions(), now);
        (status.uid, status.gid) = (self.who.user.effective, self.who.group.effective);
        if entry == Entry::ROOT || entry.what().is_some_and(|what| matches!(what, What::Text(_))) {
            (status.uid, status.gid) = (0, 0);
        }
        if let Kept::Descriptor(fd) = entry.0 {
            status.size = 64;
            if let Ok(file) = self.look(fd.into()) {
                status.mode |= 0o100 | u32::from(file.readable()) << 8 | u32::from(file.writable()) << 7;
            }
        } else if kind == FileType::Directory {
            status.links = 2 + entry.rows().filter(|(_, row)| matches!(row.what, What::Directory | What::Descriptors)).count() as u32;
        }
        status
    }

    /// Where a link of `/proc` leads.
    pub(super) fn proc_target(&self, link: Entry) -> Result<Target<'_>, Errno> {
        match (link.0, link.what()) {
            (Kept::Descriptor(fd), _) => self.place(fd.into()).map(Target::Place).map_err(|_| Errno::ENOENT),
            (_, Some(What::Link(Link::Path(path)))) => Ok(Target::Path(path.as_bytes())),
            (_, Some(What::Link(Link::Program))) => Ok(Target::Place(self.program.place)),
            (_, Some(What::Link(Link::WorkingDirectory))) => Ok(Target::Place(self.working_directory)),
            (_, Some(What::Link(Link::Root))) => Ok(Target::Place(self.root)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What a link of `/proc` says where it leads.
    ///
    /// # Errors
    /// `EINVAL`: it is no link. `ENOENT`: it leads nowhere.
    pub fn proc_target_text(&self, link: Entry) -> Result<Vec<u8>, Errno> {
        let directory = |place| Ok(self.path_of(place)?.unwrap_or_else(|| b"(unreachable)".to_vec()));
        match (link.0, link.what()) {
            (Kept::Descriptor(fd), _) => self.descriptor_text(fd),
            (_, Some(What::Link(Link::Path(path)))) => Ok(path.as_bytes().to_vec()),
            (_, Some(What::Link(Link::Program))) => Ok(self.program.path.clone()),
            (_, Some(What::Link(Link::WorkingDirectory))) => directory(self.working_directory),
            (_, Some(What::Link(Link::Root))) => Ok(b"/".to_vec()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What the link of a descriptor says.
    fn descriptor_text(&self, fd: u32) -> Result<Vec<u8>, Errno> {
        let file = self.look(fd.into()).map_err(|_| Errno::ENOENT)?;
        let number = |file: &_| self.status_of(file).map(|status| status.number);
        Ok(match &file.kind {
            Kind::Console { terminal: true, .. } => b"/dev/console".to_vec(),
            Kind::Console { .. } | Kind::Pipe(_) => format!("pipe:[{}]", number(file)?).into_bytes(),
            Kind::Event(_) => b"anon_inode:[eventfd]".to_vec(),
            Kind::Directory(place) => self.path_of(*place)?.unwrap_or_else(|| b"(unreachable)".to_vec()),
            _ => self.path_of_open(file)?,
        })
    }

    /// Hands the names of a directory of `/proc` to `take`, from a position on.
    pub(super) fn list_proc(&self, directory: Entry, position: u64, mut take: impl FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        if directory.kind() != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let above =
            directory.parent().map_or_else(|| self.status(self.tree.root()).map(|status| status.number), |above| Ok(above.number()))?;
        let dots = [(&b"."[..], directory.number()), (b"..", above)];
        for (index, (name, number)) in (1..).zip(dots) {
            if position < index && !take(Listed { name, number, kind: Some(FileType::Directory), next: index }) {
                return Ok(());
            }
        }
        // Positions of rows are their numbers beyond the dots; those of descriptors follow.
        for (index, row) in directory.rows() {
            let (entry, next) = (Entry(Kept::Row(index)), u64::from(index) + 3);
            if position < next && !take(Listed { name: row.name.as_bytes(), number: entry.number(), kind: Some(entry.kind()), next }) {
                return Ok(());
            }
        }
        if directory.what() == Some(What::Descriptors) {
            for fd in self.open_descriptors() {
                let entry = Entry(Kept::Descriptor(fd));
                let next = entry.number() + 1;
                let name = format!("{fd}");
                if position < next && !take(Listed { name: name.as_bytes(), number: entry.number(), kind: Some(entry.kind()), next }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
