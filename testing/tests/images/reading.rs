// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads whole images with the library OS's reader.

use pando_image::{Attributes, Timestamp};
use pando_libos::erofs::{FileType, Image, Inode, Nid, Position};

use crate::model::{ModelNode, ModelTree};

/// The attributes of an inode in the writer's terms.
pub(crate) fn attributes(inode: &Inode) -> Attributes {
    let modified = Timestamp { seconds: inode.modified.seconds, nanoseconds: inode.modified.nanoseconds };
    Attributes { permissions: inode.permissions, uid: inode.uid, gid: inode.gid, modified }
}

/// Reads a file's data piece by piece.
pub(crate) fn data(image: &Image<'_>, inode: &Inode) -> Vec<u8> {
    let data = image.data(inode).unwrap();
    let (mut read, mut piece) = (Vec::new(), [0; 1000]);
    loop {
        match data.read(read.len() as u64, &mut piece) {
            0 => break,
            count => read.extend_from_slice(&piece[..count]),
        }
    }
    assert_eq!(read.len() as u64, inode.size);
    read
}

/// Reads all valid entries of an image; entries that contradict their inodes fail the test.
pub(crate) fn tree(image: &Image<'_>) -> ModelTree {
    let mut tree = ModelTree::new();
    let mut pending = vec![(b"/".to_vec(), image.root(), image.root())];
    while let Some((path, nid, parent)) = pending.pop() {
        let inode = image.inode(nid).unwrap();
        let node = match inode.kind {
            FileType::Directory => {
                let subdirectories = list(image, &path, &inode, parent, &mut pending);
                assert_eq!(inode.links, 2 + subdirectories, "{}", path.escape_ascii());
                ModelNode::Directory
            }
            FileType::Regular => ModelNode::File(data(image, &inode)),
            FileType::Symlink => ModelNode::Symlink(image.link_target(&inode).unwrap().to_vec()),
            FileType::Fifo => ModelNode::Special(0o01),
            FileType::CharacterDevice => ModelNode::Special(0o02),
            FileType::BlockDevice => ModelNode::Special(0o06),
            FileType::Socket => ModelNode::Special(0o14),
        };
        tree.insert(path, (attributes(&inode), node));
    }
    tree
}

/// Appends a directory's children to the list; returns the number of directories among them.
fn list(image: &Image<'_>, path: &[u8], inode: &Inode, parent: Nid, pending: &mut Vec<(Vec<u8>, Nid, Nid)>) -> u32 {
    let directory = image.directory(inode).unwrap();
    let (mut last, mut dots, mut subdirectories) = (Vec::new(), Vec::new(), 0);
    for entry in directory.entries(Position::default()) {
        let entry = entry.unwrap();
        assert!(entry.name > last.as_slice(), "sorted");
        last = entry.name.to_vec();
        assert_eq!(directory.lookup(entry.name), Ok(entry.nid));
        if matches!(entry.name, b"." | b"..") {
            dots.push(entry.nid);
            continue;
        }
        let kind = image.inode(entry.nid).unwrap().kind;
        assert_eq!(entry.kind, Some(kind));
        subdirectories += u32::from(kind == FileType::Directory);
        let separator: &[u8] = if path == b"/" { b"" } else { b"/" };
        pending.push(([path, separator, entry.name].concat(), entry.nid, inode.nid));
    }
    assert_eq!(dots, [inode.nid, parent]);
    subdirectories
}
