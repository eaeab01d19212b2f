// SPDX-License-Identifier: MIT OR Apache-2.0
//! Round trips, and arbitrary bytes. The tests of the reader in the libOS check each field against an image assembled by hand.

use alloc::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;

fn any_bytes(size: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), size)
}

proptest! {
    #[test]
    fn superblocks_preserve_unknown_fields(mut image in any_bytes(1400)) {
        image[SUPER_OFFSET..][..4].copy_from_slice(&SUPER_MAGIC_V1.to_le_bytes());
        let superblock = SuperBlock::decode(&image).unwrap();
        let before = image.clone();
        superblock.encode_into(&mut image);
        prop_assert_eq!(image, before);
    }

    #[test]
    fn inodes_preserve_unknown_fields(mut bytes in any_bytes(64), version in 0..2u16, layout in 0..5u16, kind in 1..8usize) {
        bytes[..2].copy_from_slice(&(version | layout << 1).to_le_bytes());
        let kinds = [0o01, 0o02, 0o04, 0o06, 0o10, 0o12, 0o14];
        bytes[5] = bytes[5] & 0xf | kinds[kind - 1] << 4;
        let inode = DiskInode::decode(&bytes).unwrap();
        let before = bytes.clone();
        inode.encode_into(&mut bytes);
        prop_assert_eq!(bytes, before);
    }

    #[test]
    fn identities_survive_a_round_trip(bytes in any_bytes(32), position in any_bytes(8)) {
        let identity = HostIdentity::decode(&bytes).unwrap();
        prop_assert_eq!(&identity.encode()[..], &bytes[..]);
        let name: [u8; 16] = [&b"pando-id"[..], &position].concat().try_into().unwrap();
        prop_assert_eq!(IdentityTable::decode(&name).unwrap().encode(), name);
    }

    #[test]
    fn directories_survive_a_round_trip(names in proptest::collection::btree_set("[a-z.]{1,255}", 0..60)) {
        let entries: Vec<Dirent<'_>> = (7..).zip(&names)
            .map(|(number, name)| Dirent { name: name.as_bytes(), nid: Nid::new(number), file_type: FileType::from_dirent(number as u8 % 9) })
            .collect();
        let encoded = encode_directory(&entries);
        prop_assert_eq!(encoded.len(), directory_size(entries.iter().map(|entry| entry.name)));
        let blocks = encoded.chunks(BLOCK_SIZE as usize).map(|block| DirectoryBlock::decode(block).unwrap());
        let decoded: Result<Vec<Dirent<'_>>, Corrupt> = blocks.flat_map(DirectoryBlock::dirents).collect();
        prop_assert_eq!(decoded.unwrap(), entries);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0..20u8) {
        let _ = DiskInode::decode(&bytes);
        let _ = HostIdentity::decode(&bytes);
        let _ = XattrHeader::decode(&bytes);
        let _ = XattrHeader::shared_offset(&bytes);
        let _ = Xattr::decode(&bytes);
        let _ = SuperBlock::decode(&bytes);
        let mut block = bytes;
        if let Some(names) = block.get_mut(8..10) {
            names.copy_from_slice(&(u16::from(count) * 12).to_le_bytes());
        }
        if let Ok(directory) = DirectoryBlock::decode(&block) {
            prop_assert_eq!(directory.dirents().count(), directory.count());
            prop_assert!(directory.dirent(directory.count()).is_err());
        }
    }
}

#[test]
fn compact_inodes_saturate() {
    let mut bytes = vec![0; 32];
    bytes[5] = 0o04 << 4;
    let inode = DiskInode { size: 1 << 40, nlink: 70_000, uid: 70_000, ..DiskInode::decode(&bytes).unwrap() };
    inode.encode_into(&mut bytes);
    let stored = DiskInode::decode(&bytes).unwrap();
    assert_eq!((stored.size, stored.nlink, stored.uid), (u32::MAX.into(), u16::MAX.into(), u16::MAX.into()));
}

#[test]
fn names_of_attributes_have_known_prefixes() {
    let attribute = |index| [3, index, 2, 0, b'a', b'b', b'c', b'x', b'y', 99];
    let (xattr, size) = (Some(Xattr { prefix: b"user.", name: b"abc", value: b"xy" }), 12);
    assert_eq!(Xattr::decode(&attribute(1)), Some((xattr, size)));
    assert_eq!(Xattr::decode(&attribute(5)), Some((None, size)));
    assert_eq!(Xattr::decode(&attribute(1)[..8]), None);
}
