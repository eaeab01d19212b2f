// SPDX-License-Identifier: MIT OR Apache-2.0
//! Built-in files of every cell, independent of its volumes: `/dev`, `/proc`, and writable directories.

use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

use super::Files;
use super::cells_file::CELLS;
use super::proc::entry::ProcEntry;
use super::tree::content::Content;
use super::tree::node::Body;
use super::tree::volume::VolumeIndex;
use super::tree::{InodeRef, NameAt, Tree};
use crate::credentials::Owner;
use crate::erofs::{FileType, Image, Time};
use crate::errno::Errno;

const ROOT: Owner = Owner { uid: 0, gid: 0, permissions: 0o755 };

/// Directories that programs expect to be writable.
const WRITABLE: [(&[u8], u16); 5] = [(b"tmp", 0o1777), (b"var/tmp", 0o1777), (b"run", 0o755), (b"root", 0o700), (b"home", 0o755)];
/// The devices: name, numbers.
const DEVICES: [(&[u8], (u32, u32)); 9] = [
    (b"null", (1, 3)),
    (b"zero", (1, 5)),
    (b"full", (1, 7)),
    (b"random", (1, 8)),
    (b"urandom", (1, 9)),
    (b"tty", (5, 0)),
    (b"console", (5, 1)),
    (b"ptmx", (5, 2)),
    (b"pando", super::pando_file::PANDO),
];
/// The device of cells that may have descendants.
const CELLS_NAME: &[u8] = b"cells";
const LINKS: [(&[u8], &[u8]); 4] =
    [(b"fd", b"/proc/self/fd"), (b"stdin", b"/proc/self/fd/0"), (b"stdout", b"/proc/self/fd/1"), (b"stderr", b"/proc/self/fd/2")];

impl Tree {
    /// Adds the built-in files of every cell; with `nesting` those of a cell that may have descendants.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub fn populate_dev(&mut self, nesting: bool, now: Time) -> Result<(), Errno> {
        let root = self.root();
        self.graft(NameAt { directory: root, name: b"proc" }, InodeRef::Proc(ProcEntry::ROOT), now)?;
        self.graft(NameAt { directory: root, name: b"sys" }, InodeRef::Proc(ProcEntry::SYSTEM), now)?;
        // The image's own devices are not those of the cell.
        let device = self.create_directory(b"dev", ROOT, now)?;
        for (name, numbers) in DEVICES {
            self.create_device(NameAt { directory: device, name }, numbers, now)?;
        }
        if nesting {
            self.create_device(NameAt { directory: device, name: CELLS_NAME }, CELLS, now)?;
        }
        for (name, target) in LINKS {
            self.create(NameAt { directory: device, name }, Body::Symlink(target.into()), Owner { permissions: 0o777, ..ROOT }, now)?;
        }
        self.directory_at(device, b"pts", ROOT, now)?;
        self.directory_at(device, b"shm", Owner { permissions: 0o1777, ..ROOT }, now)?;
        for (path, permissions) in WRITABLE {
            match self.directory_at(root, path, Owner { permissions, ..ROOT }, now) {
                // Another file is in the way: the image takes precedence.
                Ok(_) | Err(Errno::ENOTDIR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds or removes `/dev/cells`, in a clone that may have descendants unlike its source, or the reverse.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `ENOENT`, `ENOTDIR`: the program has removed or replaced `/dev`.
    pub fn set_nesting(&mut self, nesting: bool, now: Time) -> Result<(), Errno> {
        let at = NameAt { directory: self.lookup(self.root(), b"dev")?, name: CELLS_NAME };
        match (self.lookup(at.directory, at.name), nesting) {
            (Err(Errno::ENOENT), true) => self.create_device(at, CELLS, now),
            (Ok(_), false) => self.unlink(at, now).map(drop),
            (Ok(_), true) | (Err(Errno::ENOENT), false) => Ok(()),
            (Err(error), _) => Err(error),
        }
    }

    fn create_device(&mut self, at: NameAt<'_>, numbers: (u32, u32), now: Time) -> Result<(), Errno> {
        let permissions = if numbers == (5, 1) { 0o600 } else { 0o666 };
        self.create(at, Body::Special(FileType::CharacterDevice, numbers), Owner { permissions, ..ROOT }, now).map(drop)
    }

    /// Writes the DNS resolver, if there is one, and the cell's own host names to `/etc`.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `ENOTDIR`: another file is in the way.
    pub fn write_etc_files(&mut self, resolver: Option<IpAddr>, own_hosts: &[(IpAddr, &str)], now: Time) -> Result<(), Errno> {
        let mut hosts = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
        for (address, name) in own_hosts {
            hosts += &format!("{address}\t{name}\n");
        }
        let resolvers = resolver.map(|resolver| format!("nameserver {resolver}\n"));
        let etc = self.directory_at(self.root(), b"etc", ROOT, now)?;
        for (name, text) in [(&b"hosts"[..], Some(hosts)), (b"resolv.conf", resolvers)] {
            let Some(text) = text else { continue };
            let mut content = Content::default();
            let mut rest = text.as_bytes();
            content.write(0, text.len() as u64, |room| {
                let (piece, left) = rest.split_at(room.len());
                room.copy_from_slice(piece);
                rest = left;
                Ok(room.len())
            })?;
            let at = NameAt { directory: etc, name };
            match self.unlink(at, now) {
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
            self.create(at, Body::Regular(content), Owner { permissions: 0o644, ..ROOT }, now)?;
        }
        Ok(())
    }

    /// An empty directory in the root, in place of any existing file.
    fn create_directory(&mut self, name: &[u8], owner: Owner, now: Time) -> Result<InodeRef, Errno> {
        let root = self.root();
        let directory = self.make(VolumeIndex::ROOT, Tree::empty_directory(root), owner, now)?;
        self.node_mut(directory)?.links = 2;
        self.graft(NameAt { directory: root, name }, InodeRef::Node(directory), now)?;
        Ok(InodeRef::Node(directory))
    }

    /// The directory at a path without links; missing directories are created, parents included.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; `ENOTDIR`: another file is in the way.
    fn directory_at(&mut self, from: InodeRef, path: &[u8], owner: Owner, now: Time) -> Result<InodeRef, Errno> {
        let mut here = from;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let at = NameAt { directory: here, name };
            here = match self.lookup(here, name) {
                Ok(inode) => inode,
                Err(Errno::ENOENT) => {
                    let owner = if names.peek().is_none() { owner } else { ROOT };
                    InodeRef::Node(self.create(at, Tree::empty_directory(here), owner, now)?)
                }
                Err(error) => return Err(error),
            };
        }
        Ok(here)
    }

    /// Mounts a volume at a path without links; missing parent directories are created.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `ENOTDIR`, `EINVAL`: the path is the root, `ENOMEM`: there are too many.
    pub fn mount_at(&mut self, image: Image<'static>, bytes: &'static [u8], path: &[u8], now: Time) -> Result<(), Errno> {
        let end = path.iter().rposition(|byte| *byte != b'/').ok_or(Errno::EINVAL)?;
        let path = &path[..=end];
        let (above, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1));
        let directory = self.directory_at(self.root(), above, ROOT, now)?;
        self.mount(image, bytes, NameAt { directory, name }, now)
    }
}

impl Files {
    /// Whether the process has a terminal.
    #[must_use]
    pub fn has_terminal(&self) -> bool {
        self.open
            .iter()
            .any(|(_, (file, _))| file.downcast::<super::console_file::ConsoleFile>().is_some_and(|console| console.terminal.is_some()))
    }
}
