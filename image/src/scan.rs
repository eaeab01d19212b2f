// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans of host trees, without file contents: level by level, the directories of a level by several threads.
//!
//! The result does not depend on the threads: a level's directories are listed in any order and added in the level's order. A directory
//! is opened without following a link and must be the one that its parent named, so concurrent renames cannot redirect the scan.

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

use pando_erofs::NAME_LEN;
use rustix::fs::{Access, AtFlags, FileType, OFlags, RawDir, RawDirEntry, Stat, accessat, fstat, fstatfs, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::getuid;

use crate::{
    Attributes, Builder, Error,
    file_systems::{has_change_times, is_kernels},
    host_stat::{attributes, host_identity, lstat, open_at},
    path::{components, is_target, shown},
    tables::{DirectoryRecord, FileRecord, NONE, Name},
    tree::{Content, InodeId},
    version::Version,
};

/// Threads that list directories.
const THREADS_MAX: usize = 8;
/// Directories per thread.
const SHARE: usize = 16;
/// Bytes of directory entries per call.
const FETCHED: usize = 32 << 10;

/// The files of the host to include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Those that everyone on the host may read, in directories that everyone may list and enter.
    ByEveryone,
    /// Those that the caller may read.
    ByCaller,
    /// None: only directories with their owners and modes, and links to directories. Directories that not everyone may list and enter, or
    /// that are for everyone's temporary files, are not scanned.
    None,
    /// All; a directory that the caller may not list is an error, and a file that the caller may not read is one when it is read.
    All,
}

/// Options of a scan.
#[derive(Clone, Copy)]
pub struct Scan<'a> {
    /// The files to include.
    pub readable: Readable,
    /// Maximal number of files and directories; more are an error.
    pub limit: u64,
    /// Use as many threads as the host has CPUs instead of one.
    pub parallel: bool,
    /// Called from time to time with the number of files and directories found.
    pub progress: &'a dyn Fn(u64),
}

impl Builder {
    /// Adds a file or directory tree of the host, with its attributes. Links stay links. Devices, FIFOs and sockets are added by name.
    ///
    /// # Errors
    /// [`Error::Host`], [`Error::TooMany`], [`Error::Changed`]; those of [`Builder::file`].
    pub fn host(&mut self, path: impl AsRef<[u8]>, host: &Path, walk: &Scan<'_>) -> Result<(), Error> {
        let path = path.as_ref();
        let stat = lstat(host).map_err(|errno| Error::Host { path: host.into(), source: errno.into() })?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.directory(path, walk.attributes(&stat))?;
            let id = self.find(path)?;
            self.identify(id, &stat, walk);
            return self.walk(id, host, &stat, walk);
        }
        let (parent, name) = self.parent_of(path)?;
        if self.tree.find(parent, name).is_some() {
            return Err(Error::Duplicate { path: shown(path) });
        }
        let target = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => std::fs::read_link(host).map_err(|source| Error::Host { path: host.into(), source })?,
            _ => PathBuf::new(),
        };
        let found = FoundEntry { name: name.into(), target: target.into_os_string().into_vec().into(), stat, is_taken: true };
        let host_name = self.tree.intern(host.as_os_str().as_bytes())?;
        let content = self.content(&found, parent, NONE, host_name)?;
        let id = self.tree.add(attributes(&found.stat), content)?;
        self.identify(id, &found.stat, walk);
        self.tree.link(parent, name, id).map(|_| ())
    }

    /// Takes note of which file of the host an inode is, where the image is to say that.
    pub(crate) fn identify(&mut self, id: InodeId, stat: &Stat, walk: &Scan<'_>) {
        if self.tree.identified && walk.readable != Readable::None {
            self.tree.inode_mut(id).identity = host_identity(stat);
        }
    }

    fn find(&self, path: &[u8]) -> Result<InodeId, Error> {
        let names = components(path)?;
        let found = names.iter().try_fold(InodeId::ROOT, |current, name| self.tree.find(current, name));
        Ok(found.expect("the directory was just added"))
    }

    fn walk(&mut self, top: InodeId, host: &Path, stat: &Stat, walk: &Scan<'_>) -> Result<(), Error> {
        let name = self.tree.intern(host.as_os_str().as_bytes())?;
        let record = self.record(walk, NONE, name, stat, top)?;
        let level = vec![Directory { id: top, record, path: host.into(), device: stat.st_dev, inode: stat.st_ino, crossed: true }];
        self.walk_levels(host, level, walk, 0, &mut HashMap::new())
    }

    /// Adds the content of directories, level by level. `total` files and directories were found before; `linked` has the files with
    /// several names, by device and inode.
    pub(crate) fn walk_levels(
        &mut self,
        host: &Path,
        mut level: Vec<Directory>,
        walk: &Scan<'_>,
        mut total: u64,
        linked: &mut Linked,
    ) -> Result<(), Error> {
        let too_many = || Error::TooMany { path: host.into(), limit: walk.limit };
        while !level.is_empty() {
            let crossed = level.iter().filter(|directory| directory.crossed);
            self.tree.has_change_times &= crossed.map(|directory| &directory.path).all(|path| has_change_times(path));
            let listings = list_all(&level, walk, walk.limit - total);
            let mut next = Vec::new();
            for (directory, listing) in level.iter().zip(listings) {
                let listing = match listing {
                    Ok(listing) => listing,
                    Err(ListError::TooMany) => return Err(too_many()),
                    // It was removed or became unreadable since its parent was listed: it is shown empty.
                    Err(ListError::Changed | ListError::Host(_)) if walk.readable != Readable::All => {
                        self.tree.unsettle(directory.record);
                        Vec::new()
                    }
                    Err(ListError::Changed) => return Err(Error::Changed(directory.path.clone())),
                    Err(ListError::Host(source)) => return Err(Error::Host { path: directory.path.clone(), source }),
                };
                total += listing.len() as u64;
                if total > walk.limit {
                    return Err(too_many());
                }
                for found in listing {
                    if !found.is_taken {
                        self.tree.unsettle(directory.record);
                        continue;
                    }
                    next.extend(self.take(directory, &found, walk, linked)?);
                }
                (walk.progress)(total);
            }
            level = next;
        }
        Ok(())
    }

    /// Adds a directory's entry; returns it if it is a directory in turn.
    pub(crate) fn take(
        &mut self,
        directory: &Directory,
        found: &FoundEntry,
        walk: &Scan<'_>,
        linked: &mut Linked,
    ) -> Result<Option<Directory>, Error> {
        // A directory that changes while it is listed may contain a name twice.
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
        self.identify(id, stat, walk);
        self.tree.link_new(directory.id, name, id)?;
        if has_several_names {
            linked.insert((stat.st_dev, stat.st_ino), id);
        }
        if !is_directory {
            return Ok(None);
        }
        let record = self.record(walk, directory.record, name, stat, id)?;
        let path = directory.path.join(OsStr::from_bytes(&found.name));
        Ok(Some(Directory { id, record, path, device: stat.st_dev, inode: stat.st_ino, crossed: stat.st_dev != directory.device }))
    }

    /// Records a directory of the host, which names files, and whose change time shows when they are added or removed.
    pub(crate) fn record(&mut self, walk: &Scan<'_>, parent: u32, name: Name, stat: &Stat, id: InodeId) -> Result<u32, Error> {
        if walk.readable == Readable::None {
            return Ok(NONE);
        }
        let Version { device, inode, changed, .. } = Version::of(stat);
        let record = DirectoryRecord { parent, name, device, inode, changed, is_settled: true, slot: 0 };
        let number = self.tree.add_directory(record, id)?;
        if !changed.is_settled() {
            self.tree.unsettle(number);
        }
        Ok(number)
    }

    /// The content of a found file for the tree; `directory` and `name` are its name on the host.
    fn content(&mut self, found: &FoundEntry, parent: InodeId, directory: u32, name: Name) -> Result<Content, Error> {
        let stat = &found.stat;
        Ok(match pando_erofs::FileType::from_mode(stat.st_mode) {
            Some(pando_erofs::FileType::Directory) => Content::Directory { parent, implied: false },
            Some(pando_erofs::FileType::Symlink) => Content::Symlink(self.tree.intern(&found.target)?),
            Some(pando_erofs::FileType::Regular) | None => {
                let version = Version::of(stat);
                Content::Host { file: self.tree.add_file(FileRecord { directory, name, version })?, offset: 0, size: version.size }
            }
            Some(kind @ (pando_erofs::FileType::CharacterDevice | pando_erofs::FileType::BlockDevice)) => {
                Content::Special { kind, device: stat.st_rdev as u32 }
            }
            Some(kind) => Content::Special { kind, device: 0 },
        })
    }
}

impl Scan<'_> {
    /// The attributes of a file. The modification time of a directory is omitted if nothing else in it is included.
    fn attributes(&self, stat: &Stat) -> Attributes {
        let all = attributes(stat);
        if self.readable == Readable::None { Attributes { modified: Attributes::root(0).modified, ..all } } else { all }
    }
}

/// Files with several names, by device and inode.
pub(crate) type Linked = HashMap<(u64, u64), InodeId>;

/// A directory to be listed.
pub(crate) struct Directory {
    /// Its inode in the tree.
    pub(crate) id: InodeId,
    /// Its record of the host's directory.
    pub(crate) record: u32,
    pub(crate) path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// It is on another file system than its parent, or its parent is not scanned.
    pub(crate) crossed: bool,
}

/// A directory's entry.
pub(crate) struct FoundEntry {
    pub(crate) name: Box<[u8]>,
    /// The target of a symbolic link.
    target: Box<[u8]>,
    pub(crate) stat: Stat,
    /// The caller may read it. A file that the caller may not read is not shown, but may become readable.
    pub(crate) is_taken: bool,
}

/// Why a directory could not be listed.
pub(crate) enum ListError {
    /// It is not the one that its parent named, or was renamed while it was listed.
    Changed,
    TooMany,
    Host(io::Error),
}

impl From<Errno> for ListError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => ListError::Changed,
            errno => ListError::Host(errno.into()),
        }
    }
}

pub(crate) type ListResult = Result<Vec<FoundEntry>, ListError>;

/// Lists directories. The listings have the directories' order.
fn list_all(level: &[Directory], walk: &Scan<'_>, limit: u64) -> Vec<ListResult> {
    let cpus = if walk.parallel { thread::available_parallelism().map_or(1, NonZero::get) } else { 1 };
    let readable = walk.readable;
    let list_one = |directory: &Directory| list(directory, readable, limit, &mut |_| false);
    let threads = cpus.min(THREADS_MAX).min(level.len().div_ceil(SHARE));
    if threads < 2 {
        return level.iter().map(list_one).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut listings = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(directory) = level.get(index) else { return listings };
            listings.push((index, list_one(directory)));
        }
    };
    let mut listings = thread::scope(|scope| {
        // A process that cannot start threads lists them alone.
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

/// Lists a directory. Entries that `is_known` are left out, at no cost.
pub(crate) fn list(
    directory: &Directory,
    readable: Readable,
    limit: u64,
    is_known: &mut dyn FnMut(&RawDirEntry<'_>) -> bool,
) -> ListResult {
    let opened = open_at(&directory.path, OFlags::DIRECTORY)?;
    let stat = fstat(&opened)?;
    if (stat.st_dev, stat.st_ino) != (directory.device, directory.inode) {
        return Err(ListError::Changed);
    }
    if directory.crossed && is_kernels(fstatfs(&opened)?.f_type.cast_unsigned()) {
        return Ok(Vec::new());
    }
    if readable == Readable::None && stat.st_mode & (0o1000 | 0o005) != 0o005 {
        return Ok(Vec::new());
    }
    let caller = getuid().as_raw();
    let mut found = Vec::new();
    let mut buffer = Vec::with_capacity(FETCHED);
    let mut entries = RawDir::new(&opened, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown);
        if matches!(name.to_bytes(), b"." | b"..") || readable == Readable::None && !may_be_directory || is_known(&entry) {
            continue;
        }
        if found.len() as u64 == limit {
            return Err(ListError::TooMany);
        }
        match look_at(&opened, name, readable, caller) {
            Ok(some) => found.extend(some),
            // It was removed since it was listed.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(found)
}

/// Reads the status of a directory's entry; `None` if it is not to be included. `caller` is the calling user.
fn look_at(directory: &File, name: &CStr, readable: Readable, caller: u32) -> Result<Option<FoundEntry>, Errno> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let may = |needed: u32, access: Access| match readable {
        Readable::All | Readable::None => true,
        Readable::ByEveryone => stat.st_mode & needed == needed,
        // An access control list does not change what the owner may do.
        Readable::ByCaller if stat.st_uid == caller && stat.st_mode & needed << 6 == needed << 6 => true,
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
    if name.to_bytes().len() > NAME_LEN || !taken && readable != Readable::ByCaller {
        return Ok(None);
    }
    let mut target = Vec::new();
    if kind == FileType::Symlink {
        target = readlinkat(directory, name, Vec::new())?.into_bytes();
        if !is_target(&target) {
            return Ok(None);
        }
    }
    Ok(Some(FoundEntry { name: name.to_bytes().into(), target: target.into(), stat, is_taken: taken }))
}
