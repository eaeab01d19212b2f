// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged images: the reader refuses them without panic and in bounded time.

use std::{collections::BTreeSet, sync::LazyLock};

use pando_image::{Attributes, Builder};
use pando_libos::erofs::{FileType, Image, Inode, LastLink, Nid, Position};
use proptest::prelude::*;

use crate::{image_bytes, linux, model};

/// Images of both writers, small so that damage hits relevant bytes.
pub(crate) static SOUND: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
    let mut builder = Builder::new();
    let attributes = Attributes::root(0o755);
    for number in 0..300 {
        builder.file(format!("/many/a-long-name-to-fill-blocks-{number}"), attributes, "").unwrap();
    }
    builder.file("/file", attributes, vec![7; 5000]).unwrap();
    builder.symlink("/link", attributes, "many/../link").unwrap();
    builder.symlink("/sub/up", attributes, "../../../file").unwrap();
    [image_bytes(builder), linux::compact_image()]
});

/// A kind of damage to an image.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    /// Overwrites bytes at an offset, taken modulo the size.
    Bytes(usize, Vec<u8>),
    /// Flips one bit.
    Bit(usize, u8),
    /// Copies one field of eight bytes over another.
    Copy(usize, usize),
    /// Truncates to this size, taken modulo the size.
    Cut(usize),
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    // Damage to the superblock, inodes and the first directories has the most effect.
    let offset = || prop_oneof![4 => 1024..1152usize, 8 => 1152..8192usize, 1 => any::<usize>()];
    let extreme = prop::sample::select(vec![vec![0], vec![0xff], vec![0; 2], vec![0xff; 2], vec![0xff; 4], vec![0; 8], vec![0xff; 8]]);
    prop_oneof![
        4 => (offset(), extreme).prop_map(|(offset, bytes)| Damage::Bytes(offset, bytes)),
        4 => (offset(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(offset, bytes)| Damage::Bytes(offset, bytes)),
        8 => (offset(), 0..8u8).prop_map(|(offset, bit)| Damage::Bit(offset, bit)),
        2 => (offset(), offset()).prop_map(|(from, to)| Damage::Copy(from, to)),
        1 => any::<usize>().prop_map(Damage::Cut),
    ]
}

pub(crate) fn apply(image: &mut Vec<u8>, damage: &Damage) {
    let size = image.len().max(1);
    let mut put = |offset: usize, bytes: &[u8]| {
        let places = image.iter_mut().skip(offset % size);
        places.zip(bytes).for_each(|(place, byte)| *place = *byte);
    };
    match *damage {
        Damage::Bytes(offset, ref bytes) => put(offset, bytes),
        Damage::Bit(offset, bit) => {
            let byte = image.get(offset % size).map(|byte| byte ^ 1 << bit);
            image.iter_mut().skip(offset % size).zip(byte).for_each(|(place, byte)| *place = byte);
        }
        Damage::Copy(from, to) => {
            let field: Vec<u8> = image.iter().skip((from % size) & !7).take(8).copied().collect();
            image.iter_mut().skip((to % size) & !7).zip(field).for_each(|(place, byte)| *place = byte);
        }
        Damage::Cut(at) => image.truncate(at % size),
    }
}

/// Uses every operation on an image. Returns the number of inodes found and the number of paths that resolved.
pub(crate) fn exercise(image: &Image<'_>) -> (usize, usize) {
    let (mut inodes, mut paths) = (0, 0);
    let (mut seen, mut pending) = (BTreeSet::new(), vec![image.root(), Nid::new(0), Nid::new(u64::MAX), Nid::new(u64::MAX / 32)]);
    while let Some(nid) = pending.pop() {
        if seen.insert(nid)
            && let Ok(inode) = image.inode(nid)
        {
            inodes += 1;
            use_inode(image, &inode, &mut pending);
        }
    }
    for path in ["file", "/link", "sub/up", "many/a-long-name-to-fill-blocks-77", "many/../..//./file/", "directory/small", "link/x"] {
        for last_link in [LastLink::Follow, LastLink::Keep] {
            paths += usize::from(image.resolve(image.root(), path.as_bytes(), last_link).is_ok());
        }
    }
    (inodes, paths)
}

fn use_inode(image: &Image<'_>, inode: &Inode, pending: &mut Vec<Nid>) {
    if let Ok(data) = image.data(inode) {
        assert!(data.size() == inode.size && data.extent().end <= image.size() && data.size() <= 2 * image.size());
        let mut buffer = [0; 5000];
        for offset in [0, 1, inode.size.saturating_sub(1), inode.size, inode.size / 2, u64::MAX] {
            let count = data.read(offset, &mut buffer);
            assert_eq!(count as u64, inode.size.saturating_sub(offset).min(5000));
        }
    }
    if let Ok(target) = image.link_target(inode) {
        assert!(inode.kind == FileType::Symlink && target.len() as u64 == inode.size);
    }
    if let Ok(directory) = image.directory(inode) {
        for entry in directory.entries(Position::default()).flatten() {
            assert!((1..=255).contains(&entry.name.len()));
            pending.push(entry.nid);
            let _ = directory.lookup(entry.name);
        }
        for position in [1, 11, 13, 4095, 4096, 4097, inode.size, u64::MAX] {
            assert!(directory.entries(Position(position)).count() as u64 <= inode.size);
        }
    }
}

proptest! {
    #![proptest_config(model::config(4096))]

    #[test]
    fn damage_is_refused(which in 0..2usize, damages in prop::collection::vec(damage(), 1..6)) {
        let mut bytes = SOUND[which].clone();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        if let Ok(image) = Image::new(&bytes) {
            exercise(&image);
        }
    }

    #[test]
    fn noise_is_refused(mut bytes in prop::collection::vec(any::<u8>(), 4096..16_384)) {
        // A valid superblock, followed by inodes and directories made of noise.
        bytes.resize(16_384, 0xa5);
        bytes[1024..1152].copy_from_slice(&SOUND[0][1024..1152]);
        bytes[1024 + 36..][..4].copy_from_slice(&4u32.to_le_bytes());
        bytes[4096..4160].copy_from_slice(&SOUND[0][4096..4160]);
        exercise(&Image::new(&bytes).unwrap());
    }
}

/// Ensures that the tests above reach every operation.
#[test]
fn sound_images_are_used_throughout() {
    assert_eq!(exercise(&Image::new(&SOUND[0]).unwrap()), (306, 7));
    assert_eq!(exercise(&Image::new(&SOUND[1]).unwrap()), (5, 5));
}

#[test]
fn every_truncation_is_noticed() {
    for image in SOUND.iter() {
        for size in (0..image.len()).step_by(97) {
            assert!(Image::new(&image[..size]).is_err());
        }
    }
}
