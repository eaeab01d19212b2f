// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives and directories that hold images: their members by name.
//!
//! Names come from the archive itself. They are looked up in an index of its members, or below its directory by a lookup that neither
//! leaves it nor follows links.

use crate::compression::decompressed;
use crate::error::{Error, plain};
use crate::limits::{LINKS_MAX, MEMBERS_MAX, NAME_MAX};
use crate::scratch::Scratch;
use pando_image::BoundedHeaders;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;
use tar::EntryType;

/// An archive or a directory.
pub(crate) struct Blobs {
    /// Its name in errors.
    pub(crate) name: String,
    content: Content,
}

enum Content {
    Directory(OwnedFd),
    Archive { file: Arc<File>, members: BTreeMap<String, Member> },
}

/// A member of an archive.
enum Member {
    File { offset: u64, size: u64 },
    Link(String),
}

/// The content of a member.
pub(crate) struct Blob {
    file: Arc<File>,
    position: u64,
    /// Bytes that are left.
    pub(crate) left: u64,
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.position)?;
        if count == 0 && most > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is truncated"));
        }
        self.position += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

impl Blobs {
    /// Opens a directory, or an archive, which may be compressed.
    pub(crate) fn open(path: &Path, scratch: &Scratch) -> Result<Blobs, Error> {
        let name = path.display().to_string();
        let failed = Error::read(path);
        let metadata = path.metadata().map_err(&failed)?;
        if metadata.is_dir() {
            let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
            let directory = openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
            return Ok(Blobs { name, content: Content::Directory(directory) });
        }
        let file = File::open(path).map_err(&failed)?;
        if metadata.file_type().is_fifo() || metadata.file_type().is_char_device() {
            return Blobs::read(&name, file, scratch);
        }
        if !metadata.is_file() {
            return Err(Error::NotAnImage { path: path.into(), found: "it is neither a file nor a directory".into() });
        }
        let mut magic = [0; 4];
        let length = file.read_at(&mut magic, 0).map_err(&failed)?;
        // A file that is not compressed is used where it is.
        let is_plain =
            length == 4 && !matches!(magic, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd] | [0xfd, b'7', ..] | [b'B', b'Z', b'h', _]);
        if is_plain { Blobs::of_archive(name, file) } else { Blobs::read(&name, file, scratch) }
    }

    /// Reads an archive from a stream, which may be compressed.
    pub(crate) fn read(name: &str, stream: impl Read, scratch: &Scratch) -> Result<Blobs, Error> {
        let mut stream = decompressed(stream).map_err(|error| Error::NotAnImage { path: name.into(), found: plain(&error) })?;
        let file = scratch.copy(name, &mut stream, &mut |_| ())?;
        drop(stream);
        Blobs::of_archive(name.into(), file)
    }

    fn of_archive(name: String, file: File) -> Result<Blobs, Error> {
        let failed = |error: io::Error| Error::NotAnImage { path: (&name).into(), found: describe(&file, &error) };
        let size = file.metadata().map_err(failed)?.len();
        let headers = BoundedHeaders::new(&file);
        let mut archive = tar::Archive::new(headers.clone());
        let mut members = BTreeMap::new();
        let damaged = |problem: &str| Error::damaged(&name, problem);
        for (number, entry) in archive.entries_with_seek().map_err(failed)?.enumerate() {
            let entry = entry.map_err(failed)?;
            headers.renew();
            if number >= MEMBERS_MAX {
                return Err(damaged("the archive has more than 100,000 members"));
            }
            if entry.path_bytes().len() > NAME_MAX || entry.link_name_bytes().is_some_and(|target| target.len() > NAME_MAX) {
                return Err(damaged("the archive has a name of more than 4,096 bytes"));
            }
            // A name that is not text names nothing that is asked for.
            let Ok(path) = String::from_utf8(entry.path_bytes().into_owned()) else { continue };
            let path = path.trim_start_matches("./").to_string();
            let target = entry.link_name_bytes().and_then(|target| String::from_utf8(target.into_owned()).ok());
            let member = match (entry.header().entry_type(), target) {
                (EntryType::Regular | EntryType::Continuous, _) => Member::File { offset: entry.raw_file_position(), size: entry.size() },
                (EntryType::Symlink, Some(target)) => Member::Link(beside(&path, &target)),
                (EntryType::Link, Some(target)) => Member::Link(target.trim_start_matches("./").to_string()),
                _ => continue,
            };
            if let Member::File { offset, size: length } = member
                && offset.checked_add(length).is_none_or(|end| end > size)
            {
                return Err(damaged(&format!("the archive is truncated: the content of {path} is missing")));
            }
            members.insert(path, member);
        }
        if members.is_empty() {
            return Err(failed(io::Error::other("it has no members")));
        }
        Ok(Blobs { name, content: Content::Archive { file: Arc::new(file), members } })
    }

    /// Whether there is a member of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.content {
            Content::Directory(_) => self.open_in_directory(name).is_ok_and(|file| file.is_some()),
            Content::Archive { members, .. } => members.contains_key(name),
        }
    }

    /// Some names that it has, for errors.
    pub(crate) fn sample(&self) -> String {
        let mut names: Vec<String> = match &self.content {
            Content::Directory(_) => {
                let entries = std::fs::read_dir(&self.name).into_iter().flatten().flatten();
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            }
            Content::Archive { members, .. } => members.keys().map(|name| name.split('/').next().unwrap_or_default().to_string()).collect(),
        };
        names.sort();
        names.dedup();
        names.retain(|name| !name.is_empty());
        let more = if names.len() > 8 { ", ..." } else { "" };
        names.truncate(8);
        if names.is_empty() { "nothing".into() } else { names.join(", ") + more }
    }

    /// The content of a member.
    pub(crate) fn blob(&self, name: &str) -> Result<Blob, Error> {
        let missing = || Error::damaged(&self.name, format!("{name} is missing"));
        match &self.content {
            Content::Directory(_) => {
                let file = self.open_in_directory(name)?.ok_or_else(missing)?;
                let left = file.metadata().map_err(Error::read(Path::new(&self.name)))?.len();
                Ok(Blob { file: Arc::new(file), position: 0, left })
            }
            Content::Archive { file, members } => {
                let mut name = name;
                for _ in 0..LINKS_MAX {
                    match members.get(name).ok_or_else(missing)? {
                        Member::File { offset, size } => return Ok(Blob { file: Arc::clone(file), position: *offset, left: *size }),
                        Member::Link(target) => name = target,
                    }
                }
                Err(Error::damaged(&self.name, format!("{name} is a link that leads through too many others")))
            }
        }
    }

    /// All of a small member.
    pub(crate) fn small(&self, name: &str, max: u64) -> Result<Vec<u8>, Error> {
        let mut blob = self.blob(name)?;
        if blob.left > max {
            return Err(Error::damaged(&self.name, format!("{name} has more than {max} bytes")));
        }
        let mut bytes = Vec::new();
        blob.read_to_end(&mut bytes).map_err(|error| Error::damaged(&self.name, format!("{name}: {}", plain(&error))))?;
        Ok(bytes)
    }

    /// Opens a regular file in the directory; `None` if there is none.
    fn open_in_directory(&self, name: &str) -> Result<Option<File>, Error> {
        let Content::Directory(directory) = &self.content else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file: File = match openat2(directory, name, flags, Mode::empty(), resolve) {
            Ok(file) => file.into(),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => {
                let problem = format!("{name}: {}", plain(&errno.into()));
                return Err(Error::damaged(&self.name, problem));
            }
        };
        Ok(file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file))
    }
}

/// The member that a link beside another one leads to.
fn beside(link: &str, target: &str) -> String {
    let directory = link.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut names: Vec<&str> = if target.starts_with('/') { Vec::new() } else { directory.split('/').collect() };
    for name in target.split('/') {
        match name {
            ".." => _ = names.pop(),
            "." | "" => {}
            name => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty());
    names.join("/")
}

/// Says what a file is that cannot be read as an archive.
fn describe(file: &File, error: &io::Error) -> String {
    let mut start = [0; 2048];
    let length = file.read_at(&mut start, 0).unwrap_or(0);
    let start = &start[..length];
    let known: [(&[u8], &str); 6] = [
        (b"\x7fELF", "it is a program (ELF)"),
        (b"PK\x03\x04", "it is a zip archive"),
        (b"QFI\xfb", "it is a disk of a virtual machine (qcow2)"),
        (b"hsqs", "it is a squashfs file system"),
        (b"!<arch>", "it is a Debian package or an ar archive"),
        (b"{", "it is JSON: give the archive or the directory that it belongs to"),
    ];
    if start.is_empty() {
        return "it is empty".into();
    }
    if start.get(1024..1028) == Some(&0xe0f5_e1e2_u32.to_le_bytes()) {
        return "it is a root image (EROFS): `pando run --root` uses it".into();
    }
    match known.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, found)) => (*found).into(),
        None if start.get(257..262) == Some(b"ustar") => format!("the archive is damaged: {}", first_line(error)),
        None => "it is no tar archive".into(),
    }
}

/// The first line of an archive reader's error: what follows quotes bytes of the archive.
fn first_line(error: &io::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
