// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path lookup: from paths to inodes, along names and symbolic links, as in Linux.

use alloc::vec::Vec;

use super::Files;
use super::tree::{InodeRef, NAME_MAX};
use crate::credentials::EXECUTE;
use crate::credentials::Owner;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::uapi::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, CAP_DAC_OVERRIDE, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};

/// Upper limit on the symbolic links followed in one path, as on Linux.
const LINKS_MAX: usize = 40;
/// Maximum depth of directories when the path of an inode is determined.
const DEPTH_MAX: usize = 4096;

/// A copy of a name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    bytes: [u8; NAME_MAX],
    length: u8,
}

impl Name {
    /// A copy of a name.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub fn new(name: &[u8]) -> Result<Name, Errno> {
        let mut bytes = [0; NAME_MAX];
        bytes.get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
        Ok(Name { bytes, length: name.len() as u8 })
    }

    /// The name.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The last component of a path.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack, where a box would cost more")]
#[derive(Clone, Copy, Debug)]
pub enum LastComponent {
    /// A name.
    Name(Name),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// None: the path is the root.
    Root,
}

/// Flags of a lookup.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupFlags {
    /// Follow a symbolic link at the end.
    pub follow: bool,
    /// A trailing slash requires a directory, following a link if necessary; otherwise the caller handles the slash.
    pub strict: bool,
    /// Bits of [`resolve`].
    pub resolve: u64,
}

impl LookupFlags {
    /// The file at a path, following a link at its end.
    pub const FOLLOW: LookupFlags = LookupFlags { follow: true, strict: true, resolve: 0 };
    /// The file at a path, which may be a link.
    pub const KEEP: LookupFlags = LookupFlags { follow: false, strict: true, resolve: 0 };
    /// The name at a path, to be created, removed or moved.
    pub const NAME: LookupFlags = LookupFlags { follow: false, strict: false, resolve: 0 };

    /// The file at a path, by flags of the `at` calls.
    #[must_use]
    pub const fn of(flags: u64) -> LookupFlags {
        if flags & AT_SYMLINK_NOFOLLOW != 0 { LookupFlags::KEEP } else { LookupFlags::FOLLOW }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct LookupResult {
    /// The directory of the last component.
    pub directory: InodeRef,
    /// The last component.
    pub last: LastComponent,
    /// Its file, if it exists.
    pub inode: Option<InodeRef>,
    /// A trailing slash follows.
    pub slash: bool,
}

/// The last component of a path, borrowed from the path.
#[derive(Clone, Copy, Debug)]
enum RawLastComponent<'a> {
    Name(&'a [u8]),
    Dot,
    DotDot,
    Root,
}

/// The result of a lookup, borrowing from the path and from link targets.
#[derive(Clone, Copy, Debug)]
struct ParentLookup<'a> {
    directory: InodeRef,
    last: RawLastComponent<'a>,
    inode: Option<InodeRef>,
    slash: bool,
}

/// The target of a symbolic link.
#[derive(Clone, Copy, Debug)]
pub enum LinkTarget<'a> {
    /// A path.
    Path(&'a [u8]),
    /// An inode, for magic links.
    Inode(InodeRef),
}

impl Files {
    /// The directory from which a path is looked up.
    fn base(&self, directory: u64, path: &[u8]) -> Result<InodeRef, Errno> {
        if path.starts_with(b"/") {
            return Ok(self.current.root);
        }
        if directory as i32 == AT_FDCWD as i32 {
            return Ok(self.current.working_directory);
        }
        self.raw_file(directory)?.operations().lookup_base()
    }

    /// The type of an inode, and its owner and permissions.
    fn type_and_owner(&self, inode: InodeRef) -> Result<(Option<FileType>, Owner), Errno> {
        let status = self.status(inode)?;
        Ok((status.kind(), status.owner()))
    }

    /// Finds a name in a directory; neither `.` nor `..`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, directory: InodeRef, name: &[u8]) -> Result<InodeRef, Errno> {
        match directory {
            InodeRef::Proc(entry) => self.lookup_proc(entry, name),
            _ => self.tree.lookup(directory, name),
        }
    }

    /// The parent of a directory.
    pub(super) fn parent(&self, directory: InodeRef) -> Result<InodeRef, Errno> {
        match directory {
            InodeRef::Proc(entry) => Ok(entry.parent().map_or_else(|| self.tree.root(), InodeRef::Proc)),
            _ => self.tree.parent(directory),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL`: it is no link. `ENOENT`: it has no target.
    pub fn target(&self, link: InodeRef) -> Result<LinkTarget<'_>, Errno> {
        match link {
            InodeRef::Proc(entry) => self.proc_target(entry),
            _ => self.tree.target(link).map(LinkTarget::Path),
        }
    }

    /// Looks up a path from a directory (a descriptor, or [`AT_FDCWD`]).
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EIO`; `EBADF`; `EXDEV`: the flags forbid a step of it.
    pub fn walk(&self, directory: u64, path: &[u8], flags: LookupFlags) -> Result<LookupResult, Errno> {
        let ParentLookup { directory, last, inode, slash } = self.reach(directory, path, flags)?;
        let last = match last {
            RawLastComponent::Name(name) => LastComponent::Name(Name::new(name)?),
            RawLastComponent::Dot => LastComponent::Dot,
            RawLastComponent::DotDot => LastComponent::DotDot,
            RawLastComponent::Root => LastComponent::Root,
        };
        Ok(LookupResult { directory, last, inode, slash })
    }

    fn reach<'a>(&'a self, directory: u64, path: &'a [u8], flags: LookupFlags) -> Result<ParentLookup<'a>, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let base = if flags.resolve & RESOLVE_IN_ROOT == 0 { self.base(directory, path)? } else { self.base(directory, b".")? };
        let base = self.tree.real_inode(base);
        let confined = flags.resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH) != 0;
        let root = if confined { base } else { self.tree.real_inode(self.current.root) };
        if path.starts_with(b"/") && flags.resolve & RESOLVE_BENEATH != 0 {
            return Err(Errno::EXDEV);
        }
        let mut walk = PathWalk::new(self, flags, root);
        // Root needs no permission checks, so the directory found last time suffices.
        let split = split(path).filter(|_| flags.resolve == 0 && self.current.credentials.is_capable(CAP_DAC_OVERRIDE));
        let cached = split.and_then(|(above, _)| self.lookup_cache.borrow().directory((root, base), above, self.tree.changes()));
        let found = match (split, cached) {
            (Some((_, name)), Some(directory)) => walk.run(directory, DIRECTORY, name)?,
            _ => walk.run(base, self.type_and_owner(base)?, path)?,
        };
        if let (Some((above, _)), None, Some(directory)) = (split, cached, walk.above.filter(|above| !self.is_live(*above))) {
            self.lookup_cache.borrow_mut().note((root, base), above, directory, self.tree.changes());
        }
        if flags.resolve & RESOLVE_NO_XDEV != 0 && found.inode.is_some_and(|inode| self.tree.volume_of(inode) != self.tree.volume_of(base))
        {
            return Err(Errno::EXDEV);
        }
        Ok(found)
    }

    /// Finds the file at a path.
    ///
    /// # Errors
    /// Those of [`Files::walk`].
    pub fn find(&self, directory: u64, path: &[u8], flags: LookupFlags) -> Result<InodeRef, Errno> {
        self.reach(directory, path, flags)?.inode.ok_or(Errno::ENOENT)
    }

    /// Finds the file at a path, by flags of the `at` calls: the descriptor's own if the path is empty and that is allowed.
    ///
    /// # Errors
    /// Those of [`Files::walk`].
    pub fn find_at(&self, directory: u64, path: &[u8], flags: u64) -> Result<InodeRef, Errno> {
        if !path.is_empty() || flags & AT_EMPTY_PATH == 0 {
            return self.find(directory, path, LookupFlags::of(flags));
        }
        if directory as i32 == AT_FDCWD as i32 { Ok(self.current.working_directory) } else { self.inode(directory) }
    }

    /// The path of a directory, found by walking up. `None`: it cannot be reached from the root.
    ///
    /// # Errors
    /// `ENOENT`: it was removed. `ENAMETOOLONG`, `EIO`.
    pub fn path_of(&self, directory: InodeRef) -> Result<Option<Vec<u8>>, Errno> {
        let (root, top) = (self.tree.real_inode(self.current.root), self.tree.root());
        let mut reversed: Vec<u8> = Vec::new();
        let mut here = self.tree.real_inode(directory);
        let mut depth = 0;
        while here != root {
            if here == top {
                return Ok(None);
            }
            depth += 1;
            if depth > DEPTH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let parent = self.tree.real_inode(self.parent(here)?);
            let number = self.status(here)?.number;
            let mut found = false;
            self.list(parent, 0, |listed| {
                let is_candidate = listed.number == number && !matches!(listed.name, b"." | b"..");
                found = is_candidate && self.lookup(parent, listed.name).is_ok_and(|inode| inode == here);
                if found {
                    reversed.extend(listed.name.iter().rev());
                    reversed.push(b'/');
                }
                !found
            })?;
            if !found {
                return Err(Errno::ENOENT);
            }
            here = parent;
        }
        if reversed.is_empty() {
            reversed.push(b'/');
        }
        reversed.reverse();
        Ok(Some(reversed))
    }
}

/// Splits a path that ends with a name at its last slash, if the part before is not empty.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (above, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/')? + 1);
    (!matches!(name, b"" | b"." | b"..")).then_some((above, name))
}

/// The assumed metadata of a directory found before.
const DIRECTORY: (Option<FileType>, Owner) = (Some(FileType::Directory), Owner { uid: 0, gid: 0, permissions: 0 });

/// The directory of the last path lookup: programs often look up several names of one directory in a row.
#[derive(Debug)]
pub(super) struct LookupCache {
    /// The root, and the directory from which it was looked up.
    start: (InodeRef, InodeRef),
    above: Vec<u8>,
    directory: InodeRef,
    /// The value of [`super::Tree::changes`] at that time, or an impossible value: nothing is recorded.
    changes: u64,
}

impl Default for LookupCache {
    fn default() -> LookupCache {
        let nowhere = InodeRef::Descriptor(0);
        LookupCache { start: (nowhere, nowhere), above: Vec::new(), directory: nowhere, changes: u64::MAX }
    }
}

impl LookupCache {
    /// The directory to which `above` led from `start`, if nothing has changed since.
    fn directory(&self, start: (InodeRef, InodeRef), above: &[u8], changes: u64) -> Option<InodeRef> {
        (self.changes == changes && self.start == start && self.above == above).then_some(self.directory)
    }

    fn note(&mut self, start: (InodeRef, InodeRef), above: &[u8], directory: InodeRef, changes: u64) {
        if matches!(directory, InodeRef::Image(_) | InodeRef::Node(_)) {
            self.above.clear();
            self.above.extend_from_slice(above);
            (self.start, self.directory, self.changes) = (start, directory, changes);
        }
    }
}

/// The state of a path lookup.
struct PathWalk<'a> {
    files: &'a Files,
    flags: LookupFlags,
    root: InodeRef,
    /// The rest of the path or, while a link is followed, of the link's target.
    rest: &'a [u8],
    /// The rests of the paths that led to it, the outermost first.
    below: Vec<&'a [u8]>,
    links: usize,
    here: InodeRef,
    metadata: (Option<FileType>, Owner),
    /// The directory in which the path's own last component was looked up, if that stays valid until names change.
    above: Option<InodeRef>,
    /// A magic link of `/proc` was followed, whose target may change at any time.
    by_magic: bool,
}

impl<'a> PathWalk<'a> {
    fn new(files: &'a Files, flags: LookupFlags, root: InodeRef) -> PathWalk<'a> {
        PathWalk {
            files,
            flags,
            root,
            rest: &[],
            below: Vec::new(),
            links: 0,
            here: root,
            metadata: DIRECTORY,
            above: None,
            by_magic: false,
        }
    }

    /// Looks up a path from an inode with this metadata.
    fn run(&mut self, base: InodeRef, metadata: (Option<FileType>, Owner), path: &'a [u8]) -> Result<ParentLookup<'a>, Errno> {
        (self.here, self.metadata, self.rest) = (base, metadata, path);
        if path.starts_with(b"/") {
            self.jump(self.root)?;
        }
        let mut found = ParentLookup { directory: self.here, last: RawLastComponent::Root, inode: Some(self.here), slash: false };
        loop {
            let text = self.rest;
            let text = &text[text.iter().take_while(|byte| **byte == b'/').count()..];
            if text.is_empty() {
                let Some(below) = self.below.pop() else { return Ok(found) };
                self.rest = below;
                continue;
            }
            let (name, rest) = text.split_at(text.iter().position(|byte| *byte == b'/').unwrap_or(text.len()));
            self.rest = rest;
            let is_done = |rest: &[u8]| rest.iter().all(|byte| *byte == b'/');
            let at_end = is_done(rest) && self.below.iter().all(|rest| is_done(rest));
            let slash = at_end && (!rest.is_empty() || self.below.iter().any(|rest| !rest.is_empty()));
            self.check_search()?;
            if at_end && self.below.is_empty() && !self.by_magic {
                self.above = Some(self.here);
            }
            found = match name {
                b"." => ParentLookup { directory: self.here, last: RawLastComponent::Dot, inode: Some(self.here), slash },
                b".." => self.up(slash)?,
                name => match self.step(name, at_end, slash)? {
                    Some(found) => found,
                    // A link was followed: if its target has no components, it is the root.
                    None => {
                        found = ParentLookup { directory: self.here, last: RawLastComponent::Root, inode: Some(self.here), slash: false };
                        continue;
                    }
                },
            };
            if at_end {
                let wants_directory = slash && self.flags.strict && found.inode.is_some();
                return if wants_directory && self.metadata.0 != Some(FileType::Directory) { Err(Errno::ENOTDIR) } else { Ok(found) };
            }
        }
    }

    /// Continues at an inode.
    fn jump(&mut self, inode: InodeRef) -> Result<(), Errno> {
        self.metadata = self.files.type_and_owner(inode)?;
        self.here = inode;
        Ok(())
    }

    /// Checks the search permission of the current directory.
    fn check_search(&self) -> Result<(), Errno> {
        match self.metadata {
            (Some(FileType::Directory), owner) if self.files.current.credentials.may(owner, true, EXECUTE) => Ok(()),
            (Some(FileType::Directory), _) => Err(Errno::EACCES),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn up(&mut self, slash: bool) -> Result<ParentLookup<'a>, Errno> {
        if self.here == self.root {
            if self.flags.resolve & RESOLVE_BENEATH != 0 {
                return Err(Errno::EXDEV);
            }
        } else {
            self.jump(self.files.parent(self.here)?)?;
        }
        Ok(ParentLookup { directory: self.here, last: RawLastComponent::DotDot, inode: Some(self.here), slash })
    }

    /// Resolves one component. `None`: it was a link, whose target is now pending.
    fn step(&mut self, name: &'a [u8], at_end: bool, slash: bool) -> Result<Option<ParentLookup<'a>>, Errno> {
        let directory = self.here;
        if at_end && name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // Before the end, the name is not needed.
        let found = |inode| {
            let last = if at_end { RawLastComponent::Name(name) } else { RawLastComponent::Dot };
            Ok(Some(ParentLookup { directory, last, inode, slash }))
        };
        let known = self.files.check_name(directory, name, at_end);
        let inode = match known.and_then(|()| self.files.lookup(directory, name)) {
            Err(Errno::ENOENT) if at_end => return found(None),
            inode => inode?,
        };
        self.files.check_attributes(inode, at_end)?;
        let metadata = self.files.type_and_owner(inode)?;
        let follow = !at_end || if slash { self.flags.strict } else { self.flags.follow };
        if metadata.0 != Some(FileType::Symlink) || !follow {
            (self.here, self.metadata) = (inode, metadata);
            return found(Some(inode));
        }
        if self.links == LINKS_MAX || self.flags.resolve & RESOLVE_NO_SYMLINKS != 0 {
            return Err(Errno::ELOOP);
        }
        self.links += 1;
        let is_magic = !matches!(inode, InodeRef::Proc(link) if link.is_plain_link());
        self.files.check_target(inode)?;
        match self.files.target(inode)? {
            LinkTarget::Inode(_) if is_magic && self.flags.resolve & RESOLVE_NO_MAGICLINKS != 0 => Err(Errno::ELOOP),
            LinkTarget::Inode(_) if is_magic && self.flags.resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0 => Err(Errno::EXDEV),
            LinkTarget::Inode(inode) => {
                self.by_magic = true;
                self.jump(inode)?;
                found(Some(inode))
            }
            LinkTarget::Path([]) => Err(Errno::ENOENT),
            LinkTarget::Path(path) => {
                if path.starts_with(b"/") {
                    if self.flags.resolve & RESOLVE_BENEATH != 0 {
                        return Err(Errno::EXDEV);
                    }
                    self.jump(self.root)?;
                }
                self.below.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                self.below.push(core::mem::replace(&mut self.rest, path));
                Ok(None)
            }
        }
    }
}
