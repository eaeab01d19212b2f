// SPDX-License-Identifier: MIT OR Apache-2.0
//! An overlay above an image, and a directory of the host that started with the same files.

use crate::operation::{InitialFile, Operation};
use pando_image::{Attributes, Builder};
use pando_libos::credentials::Credentials;
use pando_libos::erofs::{FileType, Image, Time};
use pando_libos::errno::Errno;
use pando_libos::files::Files;
use pando_libos::files::change::{NewNode, at_cwd};
use pando_libos::files::namei::LookupFlags;
use pando_libos::files::tree::{InodeRef, Tree};
use pando_libos::uapi::{AT_FDCWD, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// The clock of the overlay: no two calls return the same time.
fn now() -> Time {
    static PASSED: AtomicU32 = AtomicU32::new(0);
    Time { seconds: 1_000_000_000, nanoseconds: PASSED.fetch_add(1, Ordering::Relaxed) }
}

/// A tree as listed from outside: the mode, the link count (except of directories) and the bytes of each path.
pub(crate) type TreeListing = BTreeMap<String, (u32, u64, Vec<u8>)>;

/// An error number; the output of an operation is part of its answer.
pub(crate) type CallResult = Result<(), i32>;

pub(crate) struct ComparedTrees {
    files: Files,
    host: TempDir,
    /// The output of the last operation on each.
    shown: [Vec<u8>; 2],
}

/// Bytes that differ from offset to offset.
fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 31 + seed * 7 + index / 256) as u8 | 1).collect()
}

fn image(files: &[(String, InitialFile)]) -> Vec<u8> {
    let mut builder = Builder::new();
    builder.directory("/", Attributes::root(0o755)).expect("it is the first");
    for (path, given) in files {
        match given {
            InitialFile::Directory => builder.directory(path, Attributes::root(0o755)),
            InitialFile::File(size) => builder.file(path, Attributes::root(0o644), bytes(*size, *size)),
            InitialFile::Symlink(target) => builder.symlink(path, Attributes::root(0o777), target.clone()),
        }
        .expect("the paths are sound");
    }
    let image = builder.image().expect("the tree is sound");
    let mut bytes = Vec::new();
    image
        .write_to(&mut |_, piece| {
            bytes.extend_from_slice(piece);
            Ok::<(), pando_image::Error>(())
        })
        .expect("memory takes everything");
    bytes
}

/// Creates the files in a directory of the host.
pub(crate) fn on_host(files: &[(String, InitialFile)]) -> TempDir {
    let host = tempfile::tempdir().expect("the host has room");
    for (path, given) in files {
        let path = host.path().join(&path[1..]);
        match given {
            InitialFile::Directory => fs::create_dir(path),
            InitialFile::File(size) => fs::write(path, bytes(*size, *size)),
            InitialFile::Symlink(target) => symlink(target, path),
        }
        .expect("the host takes what the image takes");
    }
    host
}

/// The file table of a process above an empty image.
pub(crate) fn empty_files() -> Files {
    let bytes: &'static [u8] = image(&[]).leak();
    let tree = Tree::new(Image::new(bytes).expect("the image is sound"), bytes).expect("there is memory");
    Files::new(tree, Credentials::new(0, 0), 0, 0)
}

impl ComparedTrees {
    pub(crate) fn new(given: &[(String, InitialFile)]) -> ComparedTrees {
        let bytes_of_image: &'static [u8] = image(given).leak();
        let tree = Tree::new(Image::new(bytes_of_image).expect("the image is sound"), bytes_of_image).expect("there is memory");
        let host = on_host(given);
        let files = Files::new(tree, Credentials::new(0, 0), 0, 0);
        ComparedTrees { files, host, shown: [Vec::new(), Vec::new()] }
    }

    /// Performs an operation on both. Returns the answers and the operation's output.
    pub(crate) fn perform(&mut self, operation: &Operation) -> ((CallResult, Vec<u8>), (CallResult, Vec<u8>)) {
        self.shown = [Vec::new(), Vec::new()];
        let answers = (self.overlay(operation), self.on_host(operation).map_err(|error| error.raw_os_error().unwrap_or_default()));
        let [overlay, host] = std::mem::take(&mut self.shown);
        ((answers.0, overlay), (answers.1, host))
    }

    /// Performs an operation on the overlay.
    pub(crate) fn overlay(&mut self, operation: &Operation) -> CallResult {
        self.try_overlay(operation).map_err(|error| i32::from(error as u16))
    }

    fn try_overlay(&mut self, operation: &Operation) -> Result<(), Errno> {
        let files = &mut self.files;
        match operation {
            Operation::Write(path, offset, count) => {
                let fd = open(files, path, O_CREAT | O_WRONLY)?;
                let id = files.writable_node(fd)?.ok_or(Errno::EINVAL)?;
                let all = bytes(*count, *count);
                let mut rest = &all[..];
                let node = files.tree.node_mut(id)?;
                node.touch(now());
                node.content_mut()?.write(*offset, *count as u64, |room| {
                    let (piece, left) = rest.split_at(room.len());
                    room.copy_from_slice(piece);
                    rest = left;
                    Ok(piece.len())
                })?;
                files.close(fd)
            }
            Operation::Create(path) => open(files, path, O_CREAT | O_EXCL | O_RDWR).and_then(|fd| files.close(fd)),
            Operation::Empty(path) => open(files, path, O_TRUNC | O_WRONLY).and_then(|fd| files.close(fd)),
            Operation::Read(path) => {
                let fd = open(files, path, O_RDONLY)?;
                self.shown[0] = read(files, fd)?;
                files.close(fd)
            }
            Operation::Resize(path, size) => {
                let fd = open(files, path, O_WRONLY)?;
                let id = files.writable_node(fd)?.ok_or(Errno::EINVAL)?;
                let node = files.tree.node_mut(id)?;
                node.touch(now());
                node.content_mut()?.resize(*size)?;
                files.close(fd)
            }
            Operation::Directory(path) => files.make(at_cwd(path.as_bytes()), NewNode::Directory, 0o755, now()),
            Operation::Symlink(target, path) => files.make(at_cwd(path.as_bytes()), NewNode::Symlink(target.as_bytes()), 0, now()),
            Operation::Link(from, to) => files.link(at_cwd(from.as_bytes()), at_cwd(to.as_bytes()), false, false, now()),
            Operation::Unlink(path) => files.unlink(at_cwd(path.as_bytes()), now()),
            Operation::RemoveDirectory(path) => files.remove_directory(at_cwd(path.as_bytes()), now()),
            Operation::Rename(from, to) => files.rename(at_cwd(from.as_bytes()), at_cwd(to.as_bytes()), 0, now()),
            Operation::Permissions(path, mode) => {
                let place = files.find(AT_FDCWD, path.as_bytes(), LookupFlags::FOLLOW)?;
                files.owner_mut(place, now())?.permissions = *mode as u16;
                Ok(())
            }
            Operation::Status(path) | Operation::LinkStatus(path) => {
                let way = if matches!(operation, Operation::Status(_)) { LookupFlags::FOLLOW } else { LookupFlags::KEEP };
                let status = files.status(files.find(AT_FDCWD, path.as_bytes(), way)?)?;
                let size = if status.is_directory() { 0 } else { status.size };
                let links = if status.is_directory() { 0 } else { status.links.into() };
                self.shown[0] = shown(status.mode, links, size);
                Ok(())
            }
            Operation::ReadLink(path) => {
                let place = files.find(AT_FDCWD, path.as_bytes(), LookupFlags::KEEP)?;
                self.shown[0] = files.tree.target(place)?.to_vec();
                Ok(())
            }
            Operation::List(path) => {
                let place = files.find(AT_FDCWD, path.as_bytes(), LookupFlags::FOLLOW)?;
                self.shown[0] = sorted(list(files, place)?);
                Ok(())
            }
        }
    }

    fn on_host(&mut self, operation: &Operation) -> io::Result<()> {
        let at = |path: &String| format!("{}{path}", self.host.path().display());
        match operation {
            Operation::Write(path, offset, count) => {
                let file = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o644).open(at(path))?;
                file.write_all_at(&bytes(*count, *count), *offset)
            }
            Operation::Create(path) => fs::OpenOptions::new().create_new(true).read(true).write(true).open(at(path)).map(|_| ()),
            Operation::Empty(path) => fs::OpenOptions::new().truncate(true).write(true).open(at(path)).map(|_| ()),
            Operation::Read(path) => {
                self.shown[1] = fs::read(at(path))?;
                Ok(())
            }
            Operation::Resize(path, size) => fs::OpenOptions::new().write(true).open(at(path))?.set_len(*size),
            Operation::Directory(path) => fs::create_dir(at(path)),
            Operation::Symlink(target, path) => symlink(target, at(path)),
            Operation::Link(from, to) => fs::hard_link(at(from), at(to)),
            Operation::Unlink(path) => fs::remove_file(at(path)),
            Operation::RemoveDirectory(path) => fs::remove_dir(at(path)),
            Operation::Rename(from, to) => fs::rename(at(from), at(to)),
            Operation::Permissions(path, mode) => fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)),
            Operation::Status(path) | Operation::LinkStatus(path) => {
                let follow = matches!(operation, Operation::Status(_));
                let status = if follow { fs::metadata(at(path)) } else { fs::symlink_metadata(at(path)) }?;
                let (size, links) = if status.is_dir() { (0, 0) } else { (status.len(), status.nlink()) };
                self.shown[1] = shown(status.mode(), links, size);
                Ok(())
            }
            Operation::ReadLink(path) => {
                self.shown[1] = fs::read_link(at(path))?.into_os_string().into_encoded_bytes();
                Ok(())
            }
            Operation::List(path) => {
                let names =
                    fs::read_dir(at(path))?.map(|entry| entry.map(|entry| entry.file_name().into_string().expect("names are text")));
                self.shown[1] = sorted(names.collect::<io::Result<_>>()?);
                Ok(())
            }
        }
    }

    /// Lists at most `max` names of the overlay's root from a position on, each with the position after it.
    pub(crate) fn names(&self, position: u64, max: usize) -> Vec<(String, u64)> {
        let mut names = Vec::new();
        let take = |listed: pando_libos::files::tree::DirectoryEntry<'_>| {
            names.push((String::from_utf8_lossy(listed.name).into_owned(), listed.next));
            names.len() < max
        };
        self.files.list(self.files.current.root, position, take).expect("the root is a directory");
        names
    }

    /// The overlay's files.
    pub(crate) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Lists both trees from outside.
    pub(crate) fn trees(&mut self) -> (TreeListing, TreeListing) {
        let (mut overlay, mut host) = (TreeListing::new(), TreeListing::new());
        let root = self.files.current.root;
        see_overlay(&mut self.files, root, "", &mut overlay);
        see_host(self.host.path(), "", &mut host);
        (overlay, host)
    }
}

fn open(files: &mut Files, path: &str, flags: u64) -> Result<u64, Errno> {
    let file = files.open_path(AT_FDCWD, path.as_bytes(), flags, 0o644, 0, now())?;
    files.insert(file, false)
}

/// Reads a whole file, in pieces of an odd size.
fn read(files: &Files, fd: u64) -> Result<Vec<u8>, Errno> {
    let status = files.status_of(files.raw_file(fd)?)?;
    if status.is_directory() {
        return Err(Errno::EISDIR);
    }
    let (mut all, mut piece) = (Vec::new(), [0; 1021]);
    loop {
        match files.kernel_read(fd, all.len() as u64, &mut piece)? {
            0 => return Ok(all),
            read => all.extend_from_slice(&piece[..read]),
        }
    }
}

/// The names of a directory: all at once, and one by one from the position after the last.
fn list(files: &Files, place: InodeRef) -> Result<Vec<String>, Errno> {
    let (mut names, mut one_by_one, mut position) = (Vec::new(), Vec::new(), 0);
    let name_of = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    files.list(place, 0, |listed| {
        names.push(name_of(listed.name));
        true
    })?;
    loop {
        let before = one_by_one.len();
        files.list(place, position, |listed| {
            one_by_one.push(name_of(listed.name));
            position = listed.next;
            false
        })?;
        if one_by_one.len() == before {
            break;
        }
    }
    assert_eq!(names, one_by_one, "a listing that is taken up again goes on where it was");
    names.retain(|name| name != "." && name != "..");
    Ok(names)
}

fn sorted(mut names: Vec<String>) -> Vec<u8> {
    names.sort_unstable();
    names.join(" ").into_bytes()
}

fn shown(mode: u32, links: u64, size: u64) -> Vec<u8> {
    format!("{mode:o} {links} {size}").into_bytes()
}

fn see_overlay(files: &mut Files, directory: InodeRef, path: &str, seen: &mut TreeListing) {
    for name in list(files, directory).expect("it is a directory") {
        let path = format!("{path}/{name}");
        let place = files.lookup(directory, name.as_bytes()).expect("it was listed");
        let status = files.status(place).expect("it was found");
        let bytes = match status.kind() {
            Some(FileType::Symlink) => files.tree.target(place).expect("it is a link").to_vec(),
            Some(FileType::Regular) => {
                let fd = open(files, &path, O_RDONLY).expect("it was found");
                let bytes = read(files, fd).expect("it is regular");
                files.close(fd).expect("it is open");
                bytes
            }
            _ => Vec::new(),
        };
        let links = if status.is_directory() { 0 } else { status.links.into() };
        seen.insert(path.clone(), (status.mode, links, bytes));
        if status.is_directory() {
            see_overlay(files, place, &path, seen);
        }
    }
}

/// Lists a directory of the host from outside.
pub(crate) fn see_host(directory: &Path, path: &str, seen: &mut TreeListing) {
    for entry in fs::read_dir(directory).expect("it is a directory") {
        let entry = entry.expect("it can be read");
        let path = format!("{path}/{}", entry.file_name().to_str().expect("names are text"));
        let status = entry.metadata().expect("it was listed");
        let bytes = if status.is_symlink() {
            fs::read_link(entry.path()).expect("it is a link").into_os_string().into_encoded_bytes()
        } else if status.is_file() {
            fs::read(entry.path()).expect("it is regular")
        } else {
            Vec::new()
        };
        let links = if status.is_dir() { 0 } else { status.nlink() };
        seen.insert(path.clone(), (status.mode(), links, bytes));
        if status.is_dir() {
            see_host(&entry.path(), &path, seen);
        }
    }
}
