// SPDX-License-Identifier: MIT OR Apache-2.0
//! From paths to places: the walk along names and links, as Linux walks.

use alloc::vec::Vec;

use super::tree::node::Owner;
use super::tree::{NAME_MAX, Place};
use super::{Files, Kind};
use crate::credentials::EXECUTE;
use crate::credentials::capabilities::DAC_OVERRIDE;
use crate::erofs::FileType;
use crate::errno::Errno;

/// Stands for the working directory in place of a descriptor.
pub const AT_FDCWD: i32 = -100;
/// The same as an argument register holds it.
pub const CURRENT: u64 = AT_FDCWD as u64;
/// Do not follow a symbolic link at the end.
pub const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
/// Follow it, where that is not usual.
pub const AT_SYMLINK_FOLLOW: u64 = 0x400;
/// An empty path names the descriptor itself.
pub const AT_EMPTY_PATH: u64 = 0x1000;

/// As many symbolic links as Linux follows in one path.
const LINKS_MAX: usize = 40;
/// Directories may be nested this deep when a path is made from a place.
const DEPTH_MAX: usize = 4096;

/// A name of a directory, copied.
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

/// What a path ends with.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack, where a box would cost more")]
#[derive(Clone, Copy, Debug)]
pub enum Last {
    /// A name.
    Name(Name),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Nothing: it is the root.
    Root,
}

/// How to walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// Follow a symbolic link at the end.
    pub follow: bool,
    /// A slash at the end asks for a directory, through a link if need be; else it is for the caller to look at.
    pub strict: bool,
    /// Bits of [`resolve`].
    pub resolve: u64,
}

/// Bits of `RESOLVE_`.
pub mod resolve {
    /// Stay on one volume.
    pub const NO_XDEV: u64 = 1;
    /// Follow no link of `/proc` that is more than a path.
    pub const NO_MAGICLINKS: u64 = 2;
    /// Follow no link.
    pub const NO_SYMLINKS: u64 = 4;
    /// Stay below the directory.
    pub const BENEATH: u64 = 8;
    /// The directory is the root.
    pub const IN_ROOT: u64 = 16;
    /// Do not wait for a disk; nothing here could tell.
    pub const CACHED: u64 = 32;
}

impl Way {
    /// To what a path names, through a link at its end.
    pub const FOLLOW: Way = Way { follow: true, strict: true, resolve: 0 };
    /// To what a path names, be it a link.
    pub const KEEP: Way = Way { follow: false, strict: true, resolve: 0 };
    /// To a name that shall be made, removed or moved.
    pub const NAME: Way = Way { follow: false, strict: false, resolve: 0 };

    /// To what a path names, with flags of the `at` calls.
    #[must_use]
    pub const fn of(flags: u64) -> Way {
        if flags & AT_SYMLINK_NOFOLLOW != 0 { Way::KEEP } else { Way::FOLLOW }
    }
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The directory of the last name.
    pub directory: Place,
    /// The last name.
    pub last: Last,
    /// Where it leads, if anywhere.
    pub place: Option<Place>,
    /// A slash followed.
    pub slash: bool,
}

/// What a path ends with, where it lies.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    Name(&'a [u8]),
    Dot,
    DotDot,
    Root,
}

/// Where a walk has led, while what it went along stays.
#[derive(Clone, Copy, Debug)]
struct Reached<'a> {
    directory: Place,
    last: End<'a>,
    place: Option<Place>,
    slash: bool,
}

/// Where a symbolic link leads.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Along a path.
    Path(&'a [u8]),
    /// Here.
    Place(Place),
}

impl Files {
    /// The directory from which a path is looked up.
    fn base(&self, directory: u64, path: &[u8]) -> Result<Place, Errno> {
        if path.starts_with(b"/") {
            return Ok(self.own.root);
        }
        if directory as i32 == AT_FDCWD {
            return Ok(self.own.working_directory);
        }
        match self.look(directory)?.kind {
            Kind::Directory(place) | Kind::Name(place) => Ok(place),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// What a place is, and who may do what with it.
    fn seen(&self, place: Place) -> Result<(Option<FileType>, Owner), Errno> {
        let status = self.status(place)?;
        Ok((status.kind(), status.owner()))
    }

    /// Finds a name in a directory; neither `.` nor `..`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `EIO`.
    pub fn lookup(&self, directory: Place, name: &[u8]) -> Result<Place, Errno> {
        match directory {
            Place::Proc(entry) => self.lookup_proc(entry, name),
            _ => self.tree.lookup(directory, name),
        }
    }

    /// The directory above a directory.
    pub(super) fn parent(&self, directory: Place) -> Result<Place, Errno> {
        match directory {
            Place::Proc(entry) => Ok(entry.parent().map_or_else(|| self.tree.root(), Place::Proc)),
            _ => self.tree.parent(directory),
        }
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `EINVAL`: it is none. `ENOENT`: nowhere.
    pub fn target(&self, link: Place) -> Result<Target<'_>, Errno> {
        match link {
            Place::Proc(entry) => self.proc_target(entry),
            _ => self.tree.target(link).map(Target::Path),
        }
    }

    /// Walks along a path from a directory (a descriptor, or [`CURRENT`]).
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EIO`; `EBADF`; `EXDEV`: it led where it was told not to.
    pub fn walk(&self, directory: u64, path: &[u8], way: Way) -> Result<Found, Errno> {
        let Reached { directory, last, place, slash } = self.reach(directory, path, way)?;
        let last = match last {
            End::Name(name) => Last::Name(Name::new(name)?),
            End::Dot => Last::Dot,
            End::DotDot => Last::DotDot,
            End::Root => Last::Root,
        };
        Ok(Found { directory, last, place, slash })
    }

    fn reach<'a>(&'a self, directory: u64, path: &'a [u8], way: Way) -> Result<Reached<'a>, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let base = if way.resolve & resolve::IN_ROOT == 0 { self.base(directory, path)? } else { self.base(directory, b".")? };
        let base = self.tree.settle(base);
        let confined = way.resolve & (resolve::IN_ROOT | resolve::BENEATH) != 0;
        let root = if confined { base } else { self.tree.settle(self.own.root) };
        if path.starts_with(b"/") && way.resolve & resolve::BENEATH != 0 {
            return Err(Errno::EXDEV);
        }
        let mut walk = Walk::new(self, way, root);
        // Root may go everywhere, so where it went is all there is to know.
        let split = split(path).filter(|_| way.resolve == 0 && self.own.who.is_capable(DAC_OVERRIDE));
        let known = split.and_then(|(above, _)| self.recent.borrow().directory((root, base), above, self.tree.changes()));
        let found = match (split, known) {
            (Some((_, name)), Some(directory)) => walk.run(directory, DIRECTORY, name)?,
            _ => walk.run(base, self.seen(base)?, path)?,
        };
        if let (Some((above, _)), None, Some(directory)) = (split, known, walk.above) {
            self.recent.borrow_mut().note((root, base), above, directory, self.tree.changes());
        }
        if way.resolve & resolve::NO_XDEV != 0 && found.place.is_some_and(|place| self.tree.volume_of(place) != self.tree.volume_of(base)) {
            return Err(Errno::EXDEV);
        }
        Ok(found)
    }

    /// Finds what a path names.
    ///
    /// # Errors
    /// Those of [`Files::walk`].
    pub fn find(&self, directory: u64, path: &[u8], way: Way) -> Result<Place, Errno> {
        self.reach(directory, path, way)?.place.ok_or(Errno::ENOENT)
    }

    /// Finds what a path names with flags of the `at` calls: the descriptor itself if it is empty and may be.
    ///
    /// # Errors
    /// Those of [`Files::walk`].
    pub fn find_at(&self, directory: u64, path: &[u8], flags: u64) -> Result<Place, Errno> {
        if !path.is_empty() || flags & AT_EMPTY_PATH == 0 {
            return self.find(directory, path, Way::of(flags));
        }
        if directory as i32 == AT_FDCWD { Ok(self.own.working_directory) } else { self.place(directory) }
    }

    /// The path of a directory, found by walking up. `None`: it cannot be reached from the root.
    ///
    /// # Errors
    /// `ENOENT`: it was removed. `ENAMETOOLONG`, `EIO`.
    pub fn path_of(&self, directory: Place) -> Result<Option<Vec<u8>>, Errno> {
        let (root, top) = (self.tree.settle(self.own.root), self.tree.root());
        let mut reversed: Vec<u8> = Vec::new();
        let mut here = self.tree.settle(directory);
        let mut depth = 0;
        while here != root {
            if here == top {
                return Ok(None);
            }
            depth += 1;
            if depth > DEPTH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let parent = self.tree.settle(self.parent(here)?);
            let number = self.status(here)?.number;
            let mut found = false;
            self.list(parent, 0, |listed| {
                let is_candidate = listed.number == number && !matches!(listed.name, b"." | b"..");
                found = is_candidate && self.lookup(parent, listed.name).is_ok_and(|place| place == here);
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

/// Splits a path that ends with a name after its last slash, if something stands before that.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (above, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/')? + 1);
    (!matches!(name, b"" | b"." | b"..")).then_some((above, name))
}

/// What is known of a directory that was found before.
const DIRECTORY: (Option<FileType>, Owner) = (Some(FileType::Directory), Owner { uid: 0, gid: 0, permissions: 0 });

/// Where the last path led, but for its last name: programs look at one name of a directory after the other.
#[derive(Debug)]
pub(super) struct Recent {
    /// The root, and the place from which it was looked up.
    start: (Place, Place),
    above: Vec<u8>,
    directory: Place,
    /// What [`super::Tree::changes`] said then; what it never says: nothing is known.
    changes: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        let nowhere = Place::Descriptor(0);
        Recent { start: (nowhere, nowhere), above: Vec::new(), directory: nowhere, changes: u64::MAX }
    }
}

impl Recent {
    /// The directory that `above` led to from `start`, if nothing has changed since.
    fn directory(&self, start: (Place, Place), above: &[u8], changes: u64) -> Option<Place> {
        (self.changes == changes && self.start == start && self.above == above).then_some(self.directory)
    }

    fn note(&mut self, start: (Place, Place), above: &[u8], directory: Place, changes: u64) {
        if matches!(directory, Place::Image(_) | Place::Node(_)) {
            self.above.clear();
            self.above.extend_from_slice(above);
            (self.start, self.directory, self.changes) = (start, directory, changes);
        }
    }
}

/// A walk along a path.
struct Walk<'a> {
    files: &'a Files,
    way: Way,
    root: Place,
    /// What is left of the path or, if one is followed, of a link's target.
    rest: &'a [u8],
    /// What will then be left of what led there, the path first.
    below: Vec<&'a [u8]>,
    links: usize,
    here: Place,
    seen: (Option<FileType>, Owner),
    /// The directory in which the path's own last name was looked up, if it will be the same while names do not change.
    above: Option<Place>,
    /// A link of `/proc` was followed, which may lead elsewhere any time.
    by_magic: bool,
}

impl<'a> Walk<'a> {
    fn new(files: &'a Files, way: Way, root: Place) -> Walk<'a> {
        Walk { files, way, root, rest: &[], below: Vec::new(), links: 0, here: root, seen: DIRECTORY, above: None, by_magic: false }
    }

    /// Walks along a path from a place of which this is known.
    fn run(&mut self, base: Place, seen: (Option<FileType>, Owner), path: &'a [u8]) -> Result<Reached<'a>, Errno> {
        (self.here, self.seen, self.rest) = (base, seen, path);
        if path.starts_with(b"/") {
            self.jump(self.root)?;
        }
        let mut found = Reached { directory: self.here, last: End::Root, place: Some(self.here), slash: false };
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
                b"." => Reached { directory: self.here, last: End::Dot, place: Some(self.here), slash },
                b".." => self.up(slash)?,
                name => match self.step(name, at_end, slash)? {
                    Some(found) => found,
                    // A link was followed: if its target has no name in it, it is the root.
                    None => {
                        found = Reached { directory: self.here, last: End::Root, place: Some(self.here), slash: false };
                        continue;
                    }
                },
            };
            if at_end {
                let wants_directory = slash && self.way.strict && found.place.is_some();
                return if wants_directory && self.seen.0 != Some(FileType::Directory) { Err(Errno::ENOTDIR) } else { Ok(found) };
            }
        }
    }

    /// Goes to a place.
    fn jump(&mut self, place: Place) -> Result<(), Errno> {
        self.seen = self.files.seen(place)?;
        self.here = place;
        Ok(())
    }

    /// Checks that names may be looked up here.
    fn check_search(&self) -> Result<(), Errno> {
        match self.seen {
            (Some(FileType::Directory), owner) if self.files.own.who.may(owner, true, EXECUTE) => Ok(()),
            (Some(FileType::Directory), _) => Err(Errno::EACCES),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn up(&mut self, slash: bool) -> Result<Reached<'a>, Errno> {
        if self.here == self.root {
            if self.way.resolve & resolve::BENEATH != 0 {
                return Err(Errno::EXDEV);
            }
        } else {
            self.jump(self.files.parent(self.here)?)?;
        }
        Ok(Reached { directory: self.here, last: End::DotDot, place: Some(self.here), slash })
    }

    /// Goes to what a name leads to. `None`: it was a link, whose target is pending now.
    fn step(&mut self, name: &'a [u8], at_end: bool, slash: bool) -> Result<Option<Reached<'a>>, Errno> {
        let directory = self.here;
        if at_end && name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // On the way nobody asks for the name.
        let found = |place| {
            let last = if at_end { End::Name(name) } else { End::Dot };
            Ok(Some(Reached { directory, last, place, slash }))
        };
        let place = match self.files.lookup(directory, name) {
            Err(Errno::ENOENT) if at_end => return found(None),
            place => place?,
        };
        let seen = self.files.seen(place)?;
        let follow = !at_end || if slash { self.way.strict } else { self.way.follow };
        if seen.0 != Some(FileType::Symlink) || !follow {
            (self.here, self.seen) = (place, seen);
            return found(Some(place));
        }
        if self.links == LINKS_MAX || self.way.resolve & resolve::NO_SYMLINKS != 0 {
            return Err(Errno::ELOOP);
        }
        self.links += 1;
        let is_magic = !matches!(place, Place::Proc(link) if link.is_plain_link());
        match self.files.target(place)? {
            Target::Place(_) if is_magic && self.way.resolve & resolve::NO_MAGICLINKS != 0 => Err(Errno::ELOOP),
            Target::Place(_) if is_magic && self.way.resolve & (resolve::BENEATH | resolve::IN_ROOT) != 0 => Err(Errno::EXDEV),
            Target::Place(place) => {
                self.by_magic = true;
                self.jump(place)?;
                found(Some(place))
            }
            Target::Path([]) => Err(Errno::ENOENT),
            Target::Path(path) => {
                if path.starts_with(b"/") {
                    if self.way.resolve & resolve::BENEATH != 0 {
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
