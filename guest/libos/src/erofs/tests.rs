// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader against an image assembled by hand, field by field. `testing/tests/images.rs` reads images from the writer, from
//! `mkfs.erofs`, and altered ones.

use alloc::{vec, vec::Vec};

use pando_erofs::SUPER_MAGIC_V1;

use super::*;

const ROOT: u64 = 64;
const HELLO: u64 = 72;
const BIG: u64 = 80;
const LINK: u64 = 88;
const LOOP: u64 = 96;

fn put(image: &mut [u8], offset: usize, bytes: &[u8]) {
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// The offset of an inode, with the inode area at the start of the image.
fn at(nid: u64) -> usize {
    nid as usize * 32
}

/// A compact inode with inline data.
fn put_inline(image: &mut [u8], nid: u64, mode: u16, data: &[u8]) {
    put(image, at(nid), &(2u16 << 1).to_le_bytes());
    put(image, at(nid) + 4, &mode.to_le_bytes());
    put(image, at(nid) + 6, &1u16.to_le_bytes());
    put(image, at(nid) + 8, &(data.len() as u32).to_le_bytes());
    put(image, at(nid) + 24, &7u16.to_le_bytes());
    put(image, at(nid) + 32, data);
}

fn directory_block(entries: &[(&str, u64, u8)]) -> Vec<u8> {
    let (mut block, mut names) = (Vec::new(), Vec::<u8>::new());
    for (name, nid, kind) in entries {
        block.extend(nid.to_le_bytes());
        block.extend(((entries.len() * 12 + names.len()) as u16).to_le_bytes());
        block.extend([*kind, 0]);
        names.extend(name.as_bytes());
    }
    block.extend(names);
    block
}

/// Three blocks: one with superblock and inodes, then the 5000 bytes of `big`.
fn sample() -> Vec<u8> {
    let mut image = vec![0; 3 * 4096];
    put(&mut image, 1024, &SUPER_MAGIC_V1.to_le_bytes());
    put(&mut image, 1024 + 12, &[12]);
    put(&mut image, 1024 + 14, &(ROOT as u16).to_le_bytes());
    put(&mut image, 1024 + 24, &1_700_000_000u64.to_le_bytes());
    put(&mut image, 1024 + 36, &3u32.to_le_bytes());
    let entries = [(".", ROOT, 2), ("..", ROOT, 2), ("big", BIG, 1), ("hello", HELLO, 1), ("link", LINK, 7), ("loop", LOOP, 7)];
    put_inline(&mut image, ROOT, 0o040755, &directory_block(&entries));
    put_inline(&mut image, HELLO, 0o104755, b"hello, world");
    put_inline(&mut image, LINK, 0o120777, b"/../../hello");
    put_inline(&mut image, LOOP, 0o120777, b"loop");
    put(&mut image, at(BIG), &1u16.to_le_bytes());
    put(&mut image, at(BIG) + 4, &0o100600u16.to_le_bytes());
    put(&mut image, at(BIG) + 8, &5000u64.to_le_bytes());
    put(&mut image, at(BIG) + 16, &1u32.to_le_bytes());
    put(&mut image, at(BIG) + 24, &100_000u32.to_le_bytes());
    put(&mut image, at(BIG) + 32, &(-5i64).to_le_bytes());
    put(&mut image, at(BIG) + 44, &1u32.to_le_bytes());
    image[4096..4096 + 5000].fill(b'x');
    image
}

fn read(image: &Image<'_>, path: &str) -> Result<Vec<u8>, Error> {
    let inode = image.resolve(image.root(), path.as_bytes(), LastLink::Follow)?;
    let data = image.data(&inode)?;
    let mut buffer = vec![0; data.size() as usize];
    assert_eq!(data.read(0, &mut buffer), buffer.len());
    Ok(buffer)
}

/// Alters a 32-bit word of the sample and returns the error with which the image, or reading `path`, is refused.
fn refused(offset: usize, word: u32, path: &str) -> Error {
    let mut bytes = sample();
    put(&mut bytes, offset, &word.to_le_bytes());
    Image::new(&bytes).and_then(|image| read(&image, path)).expect_err("the altered image must be refused")
}

#[test]
fn reads_compact_and_extended_inodes() {
    let bytes = sample();
    let image = Image::new(&bytes).unwrap();
    assert_eq!(read(&image, "hello").unwrap(), b"hello, world");
    assert_eq!(read(&image, "/big").unwrap(), vec![b'x'; 5000]);
    let hello = image.inode(Nid::new(HELLO)).unwrap();
    assert_eq!((hello.kind, hello.permissions, hello.uid, hello.links), (FileType::Regular, 0o4755, 7, 1));
    assert_eq!(hello.modified, Time { seconds: 1_700_000_000, nanoseconds: 0 });
    let big = image.inode(Nid::new(BIG)).unwrap();
    assert_eq!((big.permissions, big.uid, big.size, big.modified.seconds), (0o600, 100_000, 5000, -5));
    assert_eq!(image.data(&big).unwrap().extent(), 4096..9096);
}

#[test]
fn inline_data_lies_behind_the_attributes() {
    let mut bytes = sample();
    // Three attribute words: a header of twelve bytes and two more words before the data.
    put(&mut bytes, at(HELLO) + 2, &3u16.to_le_bytes());
    put(&mut bytes, at(HELLO) + 32 + 20, b"hello, again");
    assert_eq!(read(&Image::new(&bytes).unwrap(), "hello").unwrap(), b"hello, again");
}

#[test]
fn reads_in_pieces_and_stops_at_the_end() {
    let bytes = sample();
    let image = Image::new(&bytes).unwrap();
    let data = image.data(&image.inode(Nid::new(HELLO)).unwrap()).unwrap();
    let mut buffer = [0; 5];
    assert_eq!((data.read(7, &mut buffer), &buffer), (5, b"world"));
    assert_eq!((data.read(11, &mut buffer), buffer[0]), (1, b'd'));
    assert_eq!(data.read(12, &mut buffer), 0);
    assert_eq!(data.read(u64::MAX, &mut buffer), 0);
}

#[test]
fn walks_paths_without_leaving_the_root() {
    let bytes = sample();
    let image = Image::new(&bytes).unwrap();
    for path in ["link", "/../link", "././/hello", "../../../../hello"] {
        assert_eq!(read(&image, path).unwrap(), b"hello, world", "{path}");
    }
    let link = image.resolve(image.root(), b"link", LastLink::Keep).unwrap();
    assert_eq!(image.link_target(&link).unwrap(), b"/../../hello");
    let long = "n".repeat(256);
    for (path, error) in [
        ("", Error::NotFound),
        ("nothing", Error::NotFound),
        ("zzz", Error::NotFound),
        ("!", Error::NotFound),
        ("hello/", Error::NotADirectory),
        ("link/", Error::NotADirectory),
        ("hello/..", Error::NotADirectory),
        ("loop", Error::TooManyLinks),
        ("loop/x", Error::TooManyLinks),
        (&long, Error::NameTooLong),
        (&"./".repeat(2048), Error::NameTooLong),
    ] {
        assert_eq!(read(&image, path), Err(error), "{path}");
    }
    assert_eq!(image.link_target(&image.inode(Nid::new(BIG)).unwrap()), Err(Error::NotASymlink));
}

#[test]
fn lists_a_directory_from_any_position() {
    let bytes = sample();
    let image = Image::new(&bytes).unwrap();
    let root = image.directory(&image.inode(image.root()).unwrap()).unwrap();
    let all: Vec<ListedName<'_>> = root.entries(Position::default()).collect::<Result<_, _>>().unwrap();
    let names: Vec<&[u8]> = all.iter().map(|entry| entry.name).collect();
    assert_eq!(names, [&b"."[..], b"..", b"big", b"hello", b"link", b"loop"]);
    assert_eq!(all[4].kind, Some(FileType::Symlink));
    for (index, entry) in all.iter().enumerate() {
        let rest: Vec<ListedName<'_>> = root.entries(entry.next).collect::<Result<_, _>>().unwrap();
        assert_eq!(rest, all[index + 1..]);
    }
    assert_eq!(root.entries(Position(u64::MAX)).count(), 0);
}

#[test]
fn refuses_images_it_does_not_understand() {
    assert_eq!(Image::new(&[]).unwrap_err(), Error::NotErofs);
    assert_eq!(Image::new(&[0; 8192]).unwrap_err(), Error::NotErofs);
    assert_eq!(Image::new(&sample()[..9000]).unwrap_err(), Error::Truncated { expected: 12288, actual: 9000 });
    assert_eq!(refused(1024 + 12, u32::from_le_bytes([13, 0, ROOT as u8, 0]), "big"), Error::BlockSize { bits: 13 });
    assert_eq!(refused(1024 + 80, 0x80, "big"), Error::Features { unknown: 0x80 });
    let hello_as_root = u32::from_le_bytes([12, 0, HELLO as u8, 0]);
    assert_eq!(refused(1024 + 12, hello_as_root, "big"), Error::Corrupt { nid: Nid::new(HELLO), what: "the root is not a directory" });
}

#[test]
fn refuses_data_it_cannot_read() {
    let big = Nid::new(BIG);
    assert_eq!(refused(at(BIG), 1 | 1 << 1, "big"), Error::Compressed(big));
    assert_eq!(refused(at(BIG), 1 | 3 << 1, "big"), Error::Compressed(big));
    assert_eq!(refused(at(BIG), 1 | 4 << 1, "big"), Error::Chunked(big));
    let corrupt = |what| Error::Corrupt { nid: big, what };
    assert_eq!(refused(at(BIG), 1 | 5 << 1, "big"), corrupt("unknown data layout"));
    assert_eq!(refused(at(BIG), 1 << 4, "big"), corrupt("unknown inode format"));
    assert_eq!(refused(at(BIG) + 4, 0, "big"), corrupt("unknown file type"));
    assert_eq!(refused(at(BIG) + 8, u32::MAX, "big"), corrupt("its data lies outside the image"));
    assert_eq!(refused(at(BIG) + 12, u32::MAX, "big"), corrupt("its data lies outside the image"));
    assert_eq!(refused(at(BIG) + 16, u32::MAX, "big"), corrupt("its data lies outside the image"));
    let long_link = Error::Corrupt { nid: Nid::new(LINK), what: "a symbolic link's target is too long" };
    assert_eq!(refused(at(LINK) + 8, 4096, "link"), long_link);
    let root = |what| Error::Corrupt { nid: Nid::new(ROOT), what };
    let first_entry = at(ROOT) + 32;
    assert_eq!(refused(first_entry + 8, 13, "big"), root("a directory block has no valid number of entries"));
    assert_eq!(refused(first_entry + 8, 0xfffc, "big"), root("a directory block has no valid number of entries"));
    assert_eq!(refused(first_entry + 2 * 12 + 8, 0xffff, "big"), root("a directory entry has no valid name"));
}
