// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees of the host, looked at but not read: level by level, the directories of a level by several threads.
//!
//! What is found does not depend on who finds it: a level's directories are listed in any order and taken in that of
//! the level. A directory is opened without following a link and must be the one that its parent named, so nobody who
//! renames things meanwhile can lead the walk elsewhere.

use std::{
    collections::HashMap,
    ffi::{CStr, OsStr},
    fs::File,
    io,
    num::NonZero,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use rustix::fs::{Access, AtFlags, FileType, OFlags, RawDir, Stat, accessat, fstat, fstatfs, readlinkat, statat, statfs};
use rustix::io::Errno;

use crate::{
    Attributes, Builder, Error,
    builder::{NAME_MAX, components, is_target, shown},
    format,
    host::{attributes, look, open_at},
    tables::{DirectoryRecord, FileRecord, NONE, Name, Version},
    tree::{Content, InodeId},
};

/// Threads that list directories.
const THREADS_MAX: usize = 8;
/// Directories that are worth a thread.
const SHARE: usize = 16;
/// Bytes of directory entries that are fetched at a time.
const FETCHED: usize = 32 << 10;

/// File systems that show the kernel's state instead of files: proc, sysfs, cgroup and cgroup2, debugfs, tracefs,
/// securityfs, bpf, efivarfs, pstore, configfs, fusectl, binfmt_misc, mqueue, devpts, selinuxfs.
const KERNEL_FILE_SYSTEMS: [u64; 16] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0xde5e_81e4,
    0x6165_676c,
    0x6265_6570,
    0x6573_5543,
    0x4249_4e4d,
    0x1980_0202,
    0x1cd1,
    0xf97c_ff8c,
];

/// Whether a file or directory of the host shows the kernel's state, so that its content is made up whenever it is read.
///
/// # Errors
/// It cannot be looked at.
pub fn shows_kernel(path: &Path) -> io::Result<bool> {
    Ok(is_kernels(statfs(path)?.f_type.cast_unsigned()))
}

fn is_kernels(kind: u64) -> bool {
    KERNEL_FILE_SYSTEMS.contains(&(kind & 0xffff_ffff))
}

/// Which files of the host are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Those that everyone on the host may read, in directories that everyone may list and enter.
    ByEveryone,
    /// Those that the caller may read.
    ByCaller,
    /// None: only directories with their owners and modes, and links that lead to directories. What lies in a directory that not everyone may list and
    /// enter, or that is for everyone's temporary files, is not looked at.
    None,
    /// All; what the caller may not list is an error, and what he may not read will be one when it is read.
    All,
}

/// How a tree of the host is looked at.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    /// Which files are taken.
    pub readable: Readable,
    /// Files and directories, more than which are an error.
    pub limit: u64,
    /// With as many threads as the host has CPUs, not one.
    pub parallel: bool,
    /// Told from time to time how many files and directories were found.
    pub progress: &'a dyn Fn(u64),
}

impl Builder {
    /// Adds what is at a path of the host, and if that is a directory all that is in it, with the attributes that it
    /// has there. Links stay links. Devices, FIFOs and sockets are added by name.
    ///
    /// # Errors
    /// [`Error::Host`], [`Error::TooMany`], [`Error::Changed`]; those of [`Builder::file`].
    pub fn host(&mut self, path: impl AsRef<[u8]>, host: &Path, walk: &Walk<'_>) -> Result<(), Error> {
        let path = path.as_ref();
        let stat = look(host).map_err(|errno| Error::Host { path: host.into(), source: errno.into() })?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.directory(path, walk.attributes(&stat))?;
            let id = self.find(path)?;
            return self.walk(id, host, &stat, walk);
        }
        let (parent, name) = self.place(path)?;
        if self.tree.find(parent, name).is_some() {
            return Err(Error::Duplicate { path: shown(path) });
        }
        let target = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => std::fs::read_link(host).map_err(|source| Error::Host { path: host.into(), source })?,
            _ => PathBuf::new(),
        };
        let found = Found { name: name.into(), target: target.into_os_string().into_vec().into(), stat };
        let host_name = self.tree.intern(host.as_os_str().as_bytes())?;
        let content = self.content(&found, parent, NONE, host_name)?;
        let id = self.tree.add(attributes(&found.stat), content)?;
        self.tree.link(parent, name, id).map(|_| ())
    }

    fn find(&self, path: &[u8]) -> Result<InodeId, Error> {
        let names = components(path)?;
        let found = names.iter().try_fold(InodeId::ROOT, |here, name| self.tree.find(here, name));
        Ok(found.expect("the directory was just added"))
    }

    fn walk(&mut self, top: InodeId, host: &Path, stat: &Stat, walk: &Walk<'_>) -> Result<(), Error> {
        let too_many = || Error::TooMany { path: host.into(), limit: walk.limit };
        let name = self.tree.intern(host.as_os_str().as_bytes())?;
        let record = self.record(walk, NONE, name, stat)?;
        let mut level = vec![Directory { id: top, record, path: host.into(), device: stat.st_dev, inode: stat.st_ino, crossed: true }];
        // Files with several names, by device and number.
        let mut linked = HashMap::new();
        let mut total = 0;
        while !level.is_empty() {
            let listings = list_all(&level, walk, walk.limit - total);
            let mut next = Vec::new();
            for (directory, listing) in level.iter().zip(listings) {
                let listing = match listing {
                    Ok(listing) => listing,
                    Err(Unlisted::TooMany) => return Err(too_many()),
                    // It is gone or closed since its parent was listed: then it is shown empty.
                    Err(Unlisted::Changed | Unlisted::Host(_)) if walk.readable != Readable::All => Vec::new(),
                    Err(Unlisted::Changed) => return Err(Error::Changed(directory.path.clone())),
                    Err(Unlisted::Host(source)) => return Err(Error::Host { path: directory.path.clone(), source }),
                };
                total += listing.len() as u64;
                if total > walk.limit {
                    return Err(too_many());
                }
                for found in listing {
                    next.extend(self.take(directory, &found, walk, &mut linked)?);
                }
                (walk.progress)(total);
            }
            level = next;
        }
        Ok(())
    }

    /// Adds what was found in a directory; returns it if it is a directory in turn.
    fn take(
        &mut self,
        directory: &Directory,
        found: &Found,
        walk: &Walk<'_>,
        linked: &mut HashMap<(u64, u64), InodeId>,
    ) -> Result<Option<Directory>, Error> {
        // A directory that changes while it is listed may give a name twice.
        if self.tree.find(directory.id, &found.name).is_some() {
            return Ok(None);
        }
        let stat = &found.stat;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let has_several_names = !is_directory && stat.st_nlink > 1;
        if has_several_names && let Some(&known) = linked.get(&(stat.st_dev, stat.st_ino)) {
            self.tree.link(directory.id, &found.name, known)?;
            return Ok(None);
        }
        let name = self.tree.intern(&found.name)?;
        let content = self.content(found, directory.id, directory.record, name)?;
        let id = self.tree.add(walk.attributes(stat), content)?;
        self.tree.link_new(directory.id, name, id)?;
        if has_several_names {
            linked.insert((stat.st_dev, stat.st_ino), id);
        }
        if !is_directory {
            return Ok(None);
        }
        let record = self.record(walk, directory.record, name, stat)?;
        let path = directory.path.join(OsStr::from_bytes(&found.name));
        Ok(Some(Directory { id, record, path, device: stat.st_dev, inode: stat.st_ino, crossed: stat.st_dev != directory.device }))
    }

    /// Takes note of a directory of the host, which names files and shows by its time when they come and go.
    fn record(&mut self, walk: &Walk<'_>, parent: u32, name: Name, stat: &Stat) -> Result<u32, Error> {
        if walk.readable == Readable::None {
            return Ok(NONE);
        }
        self.tree.add_directory(DirectoryRecord { parent, name, modified: Version::of(stat).modified })
    }

    /// What the tree says of something that was found; `directory` and `name` are how it is named on the host.
    fn content(&mut self, found: &Found, parent: InodeId, directory: u32, name: Name) -> Result<Content, Error> {
        let stat = &found.stat;
        Ok(match format::FileType::from_mode(stat.st_mode) {
            Some(format::FileType::Directory) => Content::Directory { parent, implied: false },
            Some(format::FileType::Symlink) => Content::Symlink(self.tree.intern(&found.target)?),
            Some(format::FileType::Regular) | None => {
                let version = Version::of(stat);
                Content::Host { file: self.tree.add_file(FileRecord { directory, name, version })?, offset: 0, size: version.size }
            }
            Some(kind @ (format::FileType::CharacterDevice | format::FileType::BlockDevice)) => {
                Content::Special { kind, device: stat.st_rdev as u32 }
            }
            Some(kind) => Content::Special { kind, device: 0 },
        })
    }
}

impl Walk<'_> {
    /// What the image says of a file. When something came or went in a directory of which nothing else is taken says nothing.
    fn attributes(&self, stat: &Stat) -> Attributes {
        let all = attributes(stat);
        if self.readable == Readable::None { Attributes { modified: Attributes::root(0).modified, ..all } } else { all }
    }
}

/// A directory that is still to be listed.
struct Directory {
    /// What stands for it in the tree.
    id: InodeId,
    /// What names it on the host.
    record: u32,
    path: PathBuf,
    device: u64,
    inode: u64,
    /// It lies on another file system than its parent, or its parent is not looked at.
    crossed: bool,
}

/// What a directory names.
struct Found {
    name: Box<[u8]>,
    /// Of a symbolic link.
    target: Box<[u8]>,
    stat: Stat,
}

/// Why a directory could not be listed.
enum Unlisted {
    /// It is not the one that its parent named, or was renamed while it was listed.
    Changed,
    TooMany,
    Host(io::Error),
}

impl From<Errno> for Unlisted {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Unlisted::Changed,
            errno => Unlisted::Host(errno.into()),
        }
    }
}

type Listing = Result<Vec<Found>, Unlisted>;

/// Lists directories, each listing in its directory's place.
fn list_all(level: &[Directory], walk: &Walk<'_>, limit: u64) -> Vec<Listing> {
    let cpus = if walk.parallel { thread::available_parallelism().map_or(1, NonZero::get) } else { 1 };
    let threads = cpus.min(THREADS_MAX).min(level.len().div_ceil(SHARE));
    let readable = walk.readable;
    if threads < 2 {
        return level.iter().map(|directory| list(directory, readable, limit)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut listings = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(directory) = level.get(index) else { return listings };
            listings.push((index, list(directory, readable, limit)));
        }
    };
    let mut listings = thread::scope(|scope| {
        // A process that may start no more threads does it alone.
        let workers: Vec<_> = (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let mut listings = work();
        for worker in workers {
            listings.extend(worker.join().expect("listing a directory does not panic"));
        }
        listings
    });
    listings.sort_unstable_by_key(|(index, _)| *index);
    listings.into_iter().map(|(_, listing)| listing).collect()
}

fn list(directory: &Directory, readable: Readable, limit: u64) -> Listing {
    let opened = open_at(&directory.path, OFlags::DIRECTORY)?;
    let stat = fstat(&opened)?;
    if (stat.st_dev, stat.st_ino) != (directory.device, directory.inode) {
        return Err(Unlisted::Changed);
    }
    if directory.crossed && is_kernels(fstatfs(&opened)?.f_type.cast_unsigned()) {
        return Ok(Vec::new());
    }
    if readable == Readable::None && stat.st_mode & (0o1000 | 0o005) != 0o005 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut buffer = Vec::with_capacity(FETCHED);
    let mut entries = RawDir::new(&opened, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown);
        if matches!(name.to_bytes(), b"." | b"..") || readable == Readable::None && !may_be_directory {
            continue;
        }
        if found.len() as u64 == limit {
            return Err(Unlisted::TooMany);
        }
        match look_at(&opened, name, readable) {
            Ok(some) => found.extend(some),
            // Gone since it was named.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(found)
}

/// Looks at what a name in a directory stands for; nothing if it is not to be taken.
fn look_at(directory: &File, name: &CStr, readable: Readable) -> Result<Option<Found>, Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let may = |needed: u32, access: Access| match readable {
        Readable::All | Readable::None => true,
        Readable::ByEveryone => stat.st_mode & needed == needed,
        Readable::ByCaller => accessat(directory, name, access, AtFlags::empty()).is_ok(),
    };
    let leads_to_directory =
        || statat(directory, name, AtFlags::empty()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    let taken = match kind {
        _ if readable == Readable::None => kind == FileType::Directory || kind == FileType::Symlink && leads_to_directory(),
        FileType::Directory => may(0o005, Access::READ_OK | Access::EXEC_OK),
        FileType::RegularFile => may(0o004, Access::READ_OK),
        _ => true,
    };
    if !taken || name.to_bytes().len() > NAME_MAX {
        return Ok(None);
    }
    let mut target = Vec::new();
    if kind == FileType::Symlink {
        target = readlinkat(directory, name, Vec::new())?.into_bytes();
        if !is_target(&target) {
            return Ok(None);
        }
    }
    Ok(Some(Found { name: name.to_bytes().into(), target: target.into(), stat }))
}
