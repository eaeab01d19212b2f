// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks the layers of a container image, as the [image specification] describes them.
//!
//! A layer is an image with all its content, made by [`Builder::layer`]. Stacking reads the layers' metadata only: the content of the stack
//! stays in the layers' files, where all images with these layers share it. Names are looked up as overlayfs does: the entry of the topmost
//! layer wins, and directories are merged down to the first layer in which the name is something else, or hidden by a whiteout.
//!
//! Layers were made by this program, but of data from elsewhere: every position is checked.
//!
//! [image specification]: https://github.com/opencontainers/image-spec/blob/main/layer.md

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use pando_erofs::{BLOCK_SIZE, Corrupt, DataLayout, FileType, NULL_ADDR, Nid, Xattr, XattrHeader, encode_xattrs, xattr_ibody_size};

use crate::{
    Attributes, Builder, Error, Image, Timestamp,
    image::open_held,
    inspect::{Node, entries},
    tables::{FileRecord, NONE},
    tree::{Content, InodeId},
};

#[cfg(test)]
mod tests;

/// The extended attribute of directories that a layer has only as parents of its members: it does not define their attributes.
pub(crate) const IMPLIED: &[u8] = b"trusted.pando.implied";
/// The prefix of whiteouts: `.wh.NAME` hides NAME of the layers below.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout that hides everything in its directory of the layers below.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of other special files of AUFS, which container tools leave out.
const AUFS: &[u8] = b".wh..wh.";
/// Maximal number of entries of all layers together, hidden ones included: their names take about a gigabyte.
pub(crate) const ENTRIES_MAX: usize = 8_000_000;

/// The whole name and the value of an extended attribute.
type NamedValue = (Vec<u8>, Vec<u8>);

/// A layer whose metadata is read.
struct Layer {
    image: Image,
    /// Its file's number in the tree.
    file: u32,
    /// The inodes that are in the stack, by number: a file with several names is one file.
    known: HashMap<Nid, InodeId>,
}

/// A name in a directory of the stack.
enum Name {
    /// Directories, the topmost first, and whether lower layers may still add to them.
    Directory(Vec<(usize, Node)>, bool),
    /// Another file.
    File(usize, Node),
    /// Hidden by a whiteout.
    Hidden,
}

/// A directory whose content is not in the stack yet.
struct Pending {
    id: InodeId,
    /// The directories that it merges, the topmost first.
    parts: Vec<(usize, Node)>,
}

impl Builder {
    /// Marks the directories that were added only as parents.
    pub(crate) fn mark_implied(&mut self) -> Result<(), Error> {
        let encoded = encode_xattrs([(IMPLIED, &b"y"[..])]).unwrap_or_default();
        let implied = |content: &Content| matches!(content, Content::Directory { implied: true, .. });
        for id in self.tree.ids().filter(|id| implied(&self.tree.inode(*id).content)).collect::<Vec<_>>() {
            self.tree.set_xattrs(id, encoded.clone())?;
        }
        Ok(())
    }

    /// The stack of these layers' files, the lowest first. They must not change as long as the image is used.
    ///
    /// # Errors
    /// A layer cannot be read, or is damaged; there are too many entries.
    pub fn layers<'a>(layers: impl IntoIterator<Item = &'a Path>) -> Result<Builder, Error> {
        let mut builder = Builder::new();
        let layers = layers.into_iter().map(|path| builder.open_layer(path)).collect::<Result<Vec<_>, _>>()?;
        Stack { builder, layers, entries: 0 }.merge()
    }

    fn open_layer(&mut self, path: &Path) -> Result<Layer, Error> {
        let (_, version) = open_held(path)?;
        let image = Image::open(path)?;
        let path = path.canonicalize().map_err(|source| Error::Host { path: path.into(), source })?;
        let name = self.tree.intern(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))?;
        let file = self.tree.add_file(FileRecord { directory: NONE, name, version })?;
        Ok(Layer { image, file, known: HashMap::new() })
    }
}

/// The layers, and what is made of them.
struct Stack {
    builder: Builder,
    layers: Vec<Layer>,
    /// Entries that were read.
    entries: usize,
}

impl Stack {
    /// Adds all directories, from the root on. A list instead of recursion, so that a deep tree does not overflow the stack.
    fn merge(mut self) -> Result<Builder, Error> {
        let mut roots = Vec::new();
        for (number, layer) in self.layers.iter().enumerate().rev() {
            let root = layer.image.node(layer.image.superblock()?.root_nid)?;
            if !root.is_directory() {
                return Err(Corrupt("its root is not a directory").into());
            }
            roots.push((number, root));
        }
        self.set_attributes(InodeId::ROOT, &roots)?;
        let mut pending = vec![Pending { id: InodeId::ROOT, parts: roots }];
        while let Some(directory) = pending.pop() {
            for (name, found) in self.names(&directory.parts)? {
                let id = match &found {
                    Name::Hidden => continue,
                    Name::File(layer, node) => self.file(*layer, node)?,
                    Name::Directory(parts, _) => {
                        self.check_names(parts)?;
                        let content = Content::Directory { parent: directory.id, implied: false };
                        let id = self.builder.tree.add(Attributes::root(0o755), content)?;
                        self.set_attributes(id, parts)?;
                        id
                    }
                };
                let name = self.builder.tree.intern(&name)?;
                self.builder.tree.link_new(directory.id, name, id)?;
                if let Name::Directory(parts, _) = found {
                    pending.push(Pending { id, parts });
                }
            }
        }
        Ok(self.builder)
    }

    /// Checks that directories have one name each: others could contain themselves.
    fn check_names(&mut self, parts: &[(usize, Node)]) -> Result<(), Error> {
        for (number, node) in parts {
            if self.layers[*number].known.insert(node.nid, InodeId::ROOT).is_some() {
                return Err(Corrupt("a directory has two names").into());
            }
        }
        Ok(())
    }

    /// The names in a directory that merges these.
    fn names(&mut self, parts: &[(usize, Node)]) -> Result<BTreeMap<Vec<u8>, Name>, Error> {
        let mut names: BTreeMap<Vec<u8>, Name> = BTreeMap::new();
        for &(number, node) in parts {
            let image = &self.layers[number].image;
            let data = image.data(&node)?;
            let (mut hidden, mut is_opaque) = (Vec::new(), false);
            for entry in entries(&data)? {
                self.entries += 1;
                if self.entries > ENTRIES_MAX {
                    return Err(Corrupt("its layers have more than 8,000,000 entries").into());
                }
                match entry.name {
                    b"." | b".." => {}
                    OPAQUE => is_opaque = true,
                    name if name.starts_with(AUFS) => {}
                    name => match name.strip_prefix(WHITEOUT) {
                        Some(name) => hidden.push(name.to_vec()),
                        None => add(&mut names, name, number, image.node(entry.nid)?),
                    },
                }
            }
            // Whiteouts hide names of the layers below, not those of their own layer, in whatever order the archive had them.
            for name in hidden {
                hide_lower_layers(names.entry(name).or_insert(Name::Hidden));
            }
            if is_opaque {
                break;
            }
        }
        Ok(names)
    }

    /// Sets the attributes of a directory: those of the topmost layer that defines them.
    fn set_attributes(&mut self, id: InodeId, parts: &[(usize, Node)]) -> Result<(), Error> {
        for (number, node) in parts {
            let xattrs = self.layers[*number].xattrs(node)?;
            if !xattrs.iter().any(|(name, _)| name == IMPLIED) {
                self.builder.tree.inode_mut(id).attributes = attributes(node);
                return self.set_xattrs(id, &xattrs);
            }
        }
        Ok(())
    }

    /// The inode of a file that is not a directory.
    fn file(&mut self, number: usize, node: &Node) -> Result<InodeId, Error> {
        let layer = &self.layers[number];
        if let Some(id) = layer.known.get(&node.nid) {
            return Ok(*id);
        }
        let content = match node.inode.file_type {
            FileType::Regular => layer.content(node)?,
            FileType::Symlink => Content::Symlink(self.builder.tree.intern(&layer.image.data(node)?)?),
            kind @ (FileType::CharacterDevice | FileType::BlockDevice) => Content::Special { kind, device: node.inode.startblk_or_rdev },
            kind => Content::Special { kind, device: 0 },
        };
        let xattrs = layer.xattrs(node)?;
        let id = self.builder.tree.add(attributes(node), content)?;
        self.layers[number].known.insert(node.nid, id);
        self.set_xattrs(id, &xattrs)?;
        Ok(id)
    }

    fn set_xattrs(&mut self, id: InodeId, xattrs: &[NamedValue]) -> Result<(), Error> {
        let encoded = encode_xattrs(xattrs.iter().map(|(name, value)| (&name[..], &value[..])));
        self.builder.tree.set_xattrs(id, encoded.ok_or(Corrupt("an extended attribute is invalid"))?)
    }
}

/// Adds an entry of a layer below those that are known.
fn add(names: &mut BTreeMap<Vec<u8>, Name>, name: &[u8], layer: usize, node: Node) {
    let is_directory = node.is_directory();
    match names.get_mut(name) {
        Some(Name::Directory(parts, true)) if is_directory => parts.push((layer, node)),
        // It hides what lies below.
        Some(found) => hide_lower_layers(found),
        None => {
            let found = if is_directory { Name::Directory(vec![(layer, node)], true) } else { Name::File(layer, node) };
            names.insert(name.to_vec(), found);
        }
    }
}

/// Lets no lower layer add to a name.
fn hide_lower_layers(name: &mut Name) {
    if let Name::Directory(_, is_open) = name {
        *is_open = false;
    }
}

impl Layer {
    /// The location of a regular file's content in the layer.
    fn content(&self, node: &Node) -> Result<Content, Error> {
        let inode = &node.inode;
        if inode.size == 0 {
            return Ok(Content::Bytes(Vec::new()));
        }
        let offset = u64::from(inode.startblk_or_rdev) * BLOCK_SIZE;
        let is_inside = offset.checked_add(inode.size).is_some_and(|end| end <= self.image.size());
        if inode.layout != DataLayout::FlatPlain || inode.startblk_or_rdev == NULL_ADDR || !is_inside {
            return Err(Corrupt("a file's content is outside of it").into());
        }
        Ok(Content::Host { file: self.file, offset, size: inode.size })
    }

    /// The extended attributes of an inode: whole names and values.
    fn xattrs(&self, node: &Node) -> Result<Vec<NamedValue>, Error> {
        let size = xattr_ibody_size(node.inode.xattr_icount);
        if size == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; size as usize];
        self.image.read_bytes(node.offset.saturating_add(node.inode.version.size() as u64), &mut bytes)?;
        let invalid = Corrupt("an extended attribute is invalid");
        let header = XattrHeader::decode(&bytes).filter(|header| header.shared_count == 0).ok_or(invalid)?;
        let mut rest = &bytes[header.size() as usize..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (xattr, length) = Xattr::decode(rest).ok_or(invalid)?;
            let xattr = xattr.ok_or(invalid)?;
            found.push(([xattr.prefix, xattr.name].concat(), xattr.value.to_vec()));
            rest = rest.get(length as usize..).unwrap_or_default();
        }
        Ok(found)
    }
}

fn attributes(node: &Node) -> Attributes {
    let inode = &node.inode;
    let modified = inode.mtime.unwrap_or(Timestamp { seconds: 0, nanoseconds: 0 });
    Attributes { permissions: inode.permissions, uid: inode.uid, gid: inode.gid, modified }
}
