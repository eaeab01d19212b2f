// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees from tar archives: reads the headers; file contents stay in the archive until they are needed.
//!
//! Archives are not trusted. Names and hard links that leave the archive are refused, and so are conflicting entries. Symbolic links may
//! point anywhere, because a cell follows them inside its own root.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek},
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use pando_erofs::{FileType, encode_xattrs};
use rustix::fs::fstat;
use tar::{Entry, EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::{
    Attributes, BLOCK_SIZE, BoundedHeaders, Builder, Error, Timestamp,
    image::open_held,
    layers::ENTRIES_MAX,
    path::{check_target, shown},
    tables::{FileRecord, NONE},
    tree::{Content, InodeId},
    version::Version,
};

/// Bytes per copy.
const PIECE: usize = 64 << 10;
/// Maximal bytes of a member's name: Linux accepts no longer path. It bounds the depth of the tree.
const NAME_MAX: usize = 4096;
/// Maximal bytes of a file's extended attributes: they are in one block with its inode.
const XATTRS_MAX: usize = 2048;
/// The prefix of extended attributes in POSIX archives.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// Bytes of a tar header, of which everything in an archive is a multiple.
const RECORD: u64 = 512;
/// Maximal bytes of all sparse files of a layer together: few bytes of an archive can stand for any number of zeros, which take time.
const LAYER_SPARSE_MAX: u64 = 64 << 30;
/// The largest file that an image can hold.
const SIZE_MAX: u64 = u32::MAX as u64 * BLOCK_SIZE;

/// Files in the root of archives of container images: those of `docker save`, and OCI layouts.
const CONTAINER_IMAGES: [&str; 2] = ["manifest.json", "oci-layout"];
/// Directories, one of which every root file system has.
const ROOT_DIRECTORIES: [&str; 4] = ["bin", "etc", "sbin", "usr"];

/// Magic numbers of compressed files, and the commands that decompress them.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip -dc"),
    (b"\xfd7zXZ\0", "xz -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd -dc"),
    (b"BZh", "bzip2 -dc"),
    (b"\x04\x22\x4d\x18", "lz4 -dc"),
];

impl Builder {
    /// Adds the content of a tar archive: old, GNU and POSIX forms, with long names, hard links and GNU's sparse files.
    ///
    /// # Errors
    /// [`Error::Host`], [`Error::NotAFile`], [`Error::Archive`]; those of [`Builder::file`] and [`Builder::symlink`].
    pub fn archive(&mut self, path: &Path) -> Result<(), Error> {
        let (file, version) = open_held(path)?;
        self.read_archive(path, file, version, None)
    }

    /// Adds the content of a container image's layer: an open tar archive, called `name` in errors. Absolute names are relative to its
    /// root, as container tools take them, and whiteouts are files. Directories that the archive does not have itself get the attribute
    /// [`IMPLIED`](crate::layers::IMPLIED). Temporary files are in the directory `scratch`.
    ///
    /// # Errors
    /// As [`Builder::archive`].
    pub fn layer(&mut self, name: &Path, file: File, scratch: &Path) -> Result<(), Error> {
        let version = version_of(&file)?;
        self.read_archive(name, file, version, Some(scratch))?;
        self.mark_implied()
    }

    /// Adds the content of a tar archive from a stream, by way of a temporary file.
    ///
    /// # Errors
    /// As [`Builder::archive`]; [`Error::Write`] for the temporary file.
    pub fn archive_stream(&mut self, name: &Path, mut stream: impl Read) -> Result<(), Error> {
        let mut file = spool(None)?;
        io::copy(&mut stream, &mut file).map_err(|source| Error::Host { path: name.into(), source })?;
        let version = version_of(&file)?;
        self.read_archive(name, file, version, None)
    }

    fn read_archive(&mut self, path: &Path, file: File, version: Version, layer: Option<&Path>) -> Result<(), Error> {
        let name = self.tree.intern(path.as_os_str().as_bytes())?;
        let number = self.tree.add_file(FileRecord { directory: NONE, name, version })?;
        let file = Arc::new(file);
        self.tree.held.push((number, Arc::clone(&file)));
        let mut reading = Reading { path, file: Arc::clone(&file), size: version.size, number, sparse: None, layer };
        reading.refuse_compressed()?;
        let failed = |error: io::Error| Error::Archive { path: path.into(), problem: plain(&error) };
        let mut position = &*file;
        position.rewind().map_err(failed)?;
        let headers = BoundedHeaders::new(&file);
        let mut archive = tar::Archive::new(headers.clone());
        for entry in archive.entries_with_seek().map_err(failed)? {
            reading.add(self, entry.map_err(failed)?)?;
            headers.renew();
            // A member may imply directories: up to half as many as its path has bytes.
            if layer.is_some() && self.tree.inodes.len() > ENTRIES_MAX {
                return Err(reading.error("it has more than 8,000,000 files and directories"));
            }
        }
        if layer.is_none() && self.is_container_image() {
            let advice = "`pando image load` loads it, and `pando run --image` runs it";
            return Err(reading.error(format!("it is a container image and no root file system: {advice}")));
        }
        reading.check_end(position.stream_position().map_err(failed)?)?;
        if let Some(sparse) = reading.sparse {
            let version = version_of(&sparse.file)?;
            self.tree.files[sparse.number as usize].version = version;
            self.tree.held.push((sparse.number, Arc::new(sparse.file)));
        }
        Ok(())
    }

    /// Whether it has the files of an archive of container images, and not those of a root file system.
    fn is_container_image(&self) -> bool {
        let has = |name: &&str| self.tree.find(InodeId::ROOT, name.as_bytes()).is_some();
        CONTAINER_IMAGES.iter().any(&has) && !ROOT_DIRECTORIES.iter().any(has)
    }

    /// Adds a member of the archive; a later member replaces an earlier one at the same path.
    fn put_again(&mut self, path: &[u8], attributes: Attributes, content: Content) -> Result<InodeId, Error> {
        let (parent, name) = self.parent_of(path)?;
        let id = self.tree.add(attributes, content)?;
        self.link_again(path, parent, name, id)?;
        Ok(id)
    }

    fn link_again(&mut self, path: &[u8], parent: InodeId, name: &[u8], id: InodeId) -> Result<(), Error> {
        if let Some(old) = self.tree.find(parent, name)
            && matches!(self.tree.inode(old).content, Content::Directory { .. })
        {
            return Err(Error::Duplicate { path: shown(path) });
        }
        self.tree.link(parent, name, id).map(|_| ())
    }
}

/// The state of reading an archive.
struct Reading<'a> {
    path: &'a Path,
    file: Arc<File>,
    size: u64,
    /// Its number among the files of the tree.
    number: u32,
    sparse: Option<Sparse>,
    /// The directory for temporary files, if it is a layer of a container image.
    layer: Option<&'a Path>,
}

/// A temporary file for sparse files, whose pieces in the archive an image cannot refer to.
struct Sparse {
    file: File,
    number: u32,
    end: u64,
}

/// The error text of the archive reader without the bytes that it quotes: they may be anything.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    match line.split_once(" was not a number") {
        Some((field, _)) => format!("{field} is not a number: is it a tar archive, and not compressed?"),
        None => line.escape_debug().to_string(),
    }
}

impl Reading<'_> {
    fn error(&self, problem: impl Into<String>) -> Error {
        Error::Archive { path: self.path.into(), problem: problem.into() }
    }

    fn io(&self, error: io::Error) -> Error {
        self.error(plain(&error))
    }

    fn refuse_compressed(&self) -> Result<(), Error> {
        let mut start = [0; 6];
        let length = self.file.read_at(&mut start, 0).map_err(|error| self.io(error))?;
        match COMPRESSED.iter().find(|(magic, _)| start[..length].starts_with(magic)) {
            Some((_, program)) => Err(self.error(format!("it is compressed: `{program} ARCHIVE | pando image build - -o IMAGE` reads it"))),
            None => Ok(()),
        }
    }

    /// Checks for the final record of zeros; an archive without one is truncated.
    fn check_end(&self, position: u64) -> Result<(), Error> {
        let mut record = [0xff; RECORD as usize];
        let at = position.checked_sub(RECORD);
        let read = at.is_some_and(|at| position <= self.size && self.file.read_exact_at(&mut record, at).is_ok());
        if read && record.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(self.error("it is truncated: its end is missing")) }
    }

    fn add(&mut self, builder: &mut Builder, mut entry: Entry<'_, impl Read>) -> Result<(), Error> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader || kind.as_byte() == b'V' {
            return Ok(());
        }
        let given = entry.path_bytes().into_owned();
        let path = self.inside(&given, "the name")?;
        let (attributes, xattrs) = self.attributes(&mut entry, &path)?;
        let id = match kind {
            EntryType::Regular | EntryType::Continuous if !given.ends_with(b"/") => {
                let content = self.content(&entry, &path)?;
                builder.put_again(&path, attributes, content)?
            }
            EntryType::Regular | EntryType::Directory => add_directory(builder, &path, attributes)?,
            EntryType::GNUSparse => {
                let content = self.sparse(builder, &entry, &path)?;
                builder.put_again(&path, attributes, content)?
            }
            EntryType::Symlink => {
                let target = self.target(&entry, &path)?;
                check_target(&path, &target)?;
                let target = builder.tree.intern(&target)?;
                builder.put_again(&path, attributes, Content::Symlink(target))?
            }
            EntryType::Link => {
                let target = self.inside(&self.target(&entry, &path)?, "the target of a hard link")?;
                return hard_link(builder, &path, &target);
            }
            EntryType::Char => builder.put_again(&path, attributes, device(FileType::CharacterDevice, entry.header()))?,
            EntryType::Block => builder.put_again(&path, attributes, device(FileType::BlockDevice, entry.header()))?,
            EntryType::Fifo => builder.put_again(&path, attributes, Content::Special { kind: FileType::Fifo, device: 0 })?,
            other => {
                let kind = other.as_byte().escape_ascii();
                return Err(self.error(format!("'{}' is of type '{kind}', which is not supported", shown(&path))));
            }
        };
        builder.tree.set_xattrs(id, xattrs)
    }

    /// Normalizes a name; `/` for the archive's root.
    fn inside(&self, name: &[u8], what: &str) -> Result<Vec<u8>, Error> {
        let refused = |why| Err(self.error(format!("{what} '{}' {why}", shown(name))));
        if name.len() > NAME_MAX {
            return refused("is longer than 4096 bytes");
        }
        if name.starts_with(b"/") && self.layer.is_none() {
            return refused("is absolute: create the archive with relative names");
        }
        let names: Vec<&[u8]> = name.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        if names.contains(&&b".."[..]) {
            return refused("is outside of it");
        }
        Ok(if names.is_empty() { b"/".to_vec() } else { names.join(&b'/') })
    }

    fn target(&self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<Vec<u8>, Error> {
        entry.link_name_bytes().map(Cow::into_owned).ok_or_else(|| self.error(format!("the link '{}' has no target", shown(path))))
    }

    /// A member's attributes, and its extended attributes in encoded form.
    fn attributes(&self, entry: &mut Entry<'_, impl Read>, path: &[u8]) -> Result<(Attributes, Vec<u8>), Error> {
        let mut modified = None;
        let mut xattrs: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for extension in entry.pax_extensions().map_err(|error| self.io(error))?.into_iter().flatten() {
            let extension = extension.map_err(|error| self.io(error))?;
            if extension.key_bytes().starts_with(b"GNU.sparse.") {
                let advice = "is sparse in POSIX form, which is not supported: create the archive with `tar --format=gnu`";
                return Err(self.error(format!("'{}' {advice}", shown(path))));
            }
            if extension.key_bytes() == b"mtime" {
                modified = extension.value().ok().and_then(parse_time);
            }
            if let Some(name) = extension.key_bytes().strip_prefix(XATTR)
                && encode_xattrs([(name, extension.value_bytes())]).is_some()
            {
                // Those of other systems are left out: Linux would refuse to set them.
                xattrs.insert(name.to_vec(), extension.value_bytes().to_vec());
            }
        }
        let encoded = encode_xattrs(xattrs.iter().map(|(name, value)| (&name[..], &value[..]))).unwrap_or_default();
        if encoded.len() > XATTRS_MAX {
            return Err(self.error(format!("'{}' has more than {XATTRS_MAX} bytes of extended attributes", shown(path))));
        }
        let header = entry.header();
        let number = |value: io::Result<u64>| {
            let value = value.map_err(|error| self.io(error))?;
            u32::try_from(value).map_err(|_| self.error(format!("'{}' has an owner number that is too large", shown(path))))
        };
        let seconds = header.mtime().map_err(|error| self.io(error))?.cast_signed();
        let attributes = Attributes {
            permissions: (header.mode().map_err(|error| self.io(error))? & 0o7777) as u16,
            uid: number(header.uid())?,
            gid: number(header.gid())?,
            modified: modified.unwrap_or(Timestamp { seconds, nanoseconds: 0 }),
        };
        Ok((attributes, encoded))
    }

    /// The position of a file's content in the archive.
    fn content(&self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<Content, Error> {
        let (offset, size) = (entry.raw_file_position(), entry.size());
        if offset.checked_add(size).is_none_or(|end| end > self.size) {
            return Err(self.error(format!("it is truncated: the content of '{}' is missing", shown(path))));
        }
        Ok(Content::Host { file: self.number, offset, size })
    }

    /// Copies a sparse file's pieces to their offsets.
    fn sparse(&mut self, builder: &mut Builder, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<Content, Error> {
        let size = entry.size();
        if size > SIZE_MAX {
            return Err(Error::TooLarge { blocks: size / BLOCK_SIZE });
        }
        let (mut from, pieces) = self.pieces(entry, path)?;
        let mut sparse = match self.sparse.take() {
            Some(sparse) => sparse,
            None => {
                let file = spool(self.layer)?;
                let version = version_of(&file)?;
                let name = builder.tree.intern(self.path.as_os_str().as_bytes())?;
                let number = builder.tree.add_file(FileRecord { directory: NONE, name, version })?;
                Sparse { file, number, end: 0 }
            }
        };
        let offset = sparse.end;
        sparse.end += size.next_multiple_of(BLOCK_SIZE);
        if self.layer.is_some() && sparse.end > LAYER_SPARSE_MAX {
            return Err(self.error("its sparse files have more than 64 GiB"));
        }
        sparse.file.set_len(sparse.end).map_err(spool_error)?;
        let mut buffer = vec![0; PIECE];
        for (to, length) in pieces {
            let mut done = 0;
            while done < length {
                let piece = &mut buffer[..(length - done).min(PIECE as u64) as usize];
                self.file.read_exact_at(piece, from + done).map_err(|error| self.io(error))?;
                // The file is zero already; an archive with holes may contain any number of zeros.
                if piece.iter().any(|byte| *byte != 0) {
                    sparse.file.write_all_at(piece, offset + to + done).map_err(spool_error)?;
                }
                done += piece.len() as u64;
            }
            from += length.next_multiple_of(RECORD);
        }
        let content = Content::Host { file: sparse.number, offset, size };
        self.sparse = Some(sparse);
        Ok(content)
    }

    /// The start of a sparse file's content in the archive, and the pieces of the file that it holds: offset and length. The archive
    /// reader has checked that they are in order and end within the file.
    fn pieces(&self, entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<(u64, Vec<(u64, u64)>), Error> {
        let gnu = entry.header().as_gnu().ok_or_else(|| self.error(format!("'{}' is sparse without a map", shown(path))))?;
        let mut from = entry.raw_file_position();
        let mut pieces = Vec::new();
        let mut take = |headers: &[GnuSparseHeader]| -> io::Result<()> {
            for header in headers.iter().filter(|header| !header.is_empty()) {
                pieces.push((header.offset()?, header.length()?));
            }
            Ok(())
        };
        take(&gnu.sparse).map_err(|error| self.io(error))?;
        let mut more = gnu.is_extended();
        while more {
            let mut extension = GnuExtSparseHeader::new();
            self.file.read_exact_at(extension.as_mut_bytes(), from).map_err(|error| self.io(error))?;
            take(&extension.sparse).map_err(|error| self.io(error))?;
            more = extension.is_extended();
            from += RECORD;
        }
        Ok((from, pieces))
    }
}

/// Adds a directory; of a repeated one, the later attributes count.
fn add_directory(builder: &mut Builder, path: &[u8], attributes: Attributes) -> Result<InodeId, Error> {
    let added = builder.directory(path, attributes);
    let id = if path == b"/" {
        Some(InodeId::ROOT)
    } else {
        let (parent, name) = builder.parent_of(path)?;
        builder.tree.find(parent, name)
    };
    match (added, id) {
        (Err(Error::Duplicate { .. }), Some(id)) if matches!(builder.tree.inode(id).content, Content::Directory { .. }) => {
            builder.tree.inode_mut(id).attributes = attributes;
            Ok(id)
        }
        (Ok(()), Some(id)) => Ok(id),
        (Err(error), _) => Err(error),
        (Ok(()), None) => Err(Error::Duplicate { path: shown(path) }),
    }
}

fn hard_link(builder: &mut Builder, path: &[u8], target: &[u8]) -> Result<(), Error> {
    let refused = |reason| Error::HardLink { path: shown(path), target: shown(target), reason };
    let (parent, name) = builder.parent_of(target)?;
    let id = builder.tree.find(parent, name).ok_or_else(|| refused("is not in the archive before it"))?;
    if matches!(builder.tree.inode(id).content, Content::Directory { .. }) {
        return Err(refused("is a directory"));
    }
    let (parent, name) = builder.parent_of(path)?;
    builder.link_again(path, parent, name, id)
}

fn device(kind: FileType, header: &Header) -> Content {
    let number = |part: io::Result<Option<u32>>| part.ok().flatten().unwrap_or(0);
    let (major, minor) = (number(header.device_major()), number(header.device_minor()));
    // As Linux stores it: 12 bits of major between the lower 8 and the upper 12 of minor.
    Content::Special { kind, device: minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12 }
}

/// Parses a time of POSIX archives: seconds, with an optional fraction.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let (seconds, nanoseconds): (i64, u32) = (whole.parse().ok()?, digits.parse().ok()?);
    if !text.starts_with('-') || nanoseconds == 0 {
        return Some(Timestamp { seconds, nanoseconds });
    }
    // Nanoseconds count forward, also before 1970.
    Some(Timestamp { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds })
}

/// A temporary file without a name, in this directory or in the host's.
fn spool(directory: Option<&Path>) -> Result<File, Error> {
    directory.map_or_else(tempfile::tempfile, tempfile::tempfile_in).map_err(spool_error)
}

fn spool_error(source: io::Error) -> Error {
    Error::Write { path: PathBuf::from("a temporary file"), source }
}

fn version_of(file: &File) -> Result<Version, Error> {
    Ok(Version::of(&fstat(file).map_err(|errno| spool_error(errno.into()))?))
}
