// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes: `struct erofs_xattr_ibody_header` and `struct erofs_xattr_entry`.
//!
//! After an inode come the header, the numbers of its shared attributes (32 bits each), then its other attributes.

use alloc::{vec, vec::Vec};

use crate::fields::Fields;

/// The unit of an inode's `xattr_icount` and of the numbers of shared attributes, in bytes; attributes are padded to it.
const UNIT: u64 = 4;

/// The prefixes of names, with their numbers. In the order of Linux's `erofs_xattr_prefix`; longer ones come before their own prefixes.
const PREFIXES: [(u8, &[u8]); 5] =
    [(1, b"user."), (2, b"system.posix_acl_access"), (3, b"system.posix_acl_default"), (4, b"trusted."), (6, b"security.")];

/// The size of the extended attributes between an inode and its inline data, in bytes, for the `xattr_icount` of the inode.
pub fn xattr_ibody_size(xattr_icount: u16) -> u64 {
    match xattr_icount.checked_sub(1) {
        None => 0,
        Some(units) => XattrHeader::SIZE + UNIT * u64::from(units),
    }
}

/// The header of an inode's extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrHeader {
    /// The number of shared attributes, whose numbers follow.
    pub shared_count: u8,
}

impl XattrHeader {
    /// The size in bytes.
    pub const SIZE: u64 = 12;

    /// Decodes a header; `None` if the bytes are too few.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(XattrHeader { shared_count: Fields(bytes.get(..Self::SIZE as usize)?).u8(4)? })
    }

    /// The size of the header and of the numbers after it, in bytes.
    pub fn size(self) -> u64 {
        Self::SIZE + u64::from(self.shared_count) * UNIT
    }

    /// The distance of a shared attribute from the start of all shared attributes, in bytes, for its encoded number; `None` if the bytes
    /// are too few.
    pub fn shared_offset(number: &[u8]) -> Option<u64> {
        Fields(number).u32(0).map(|number| u64::from(number) * UNIT)
    }
}

/// An extended attribute. Its value is uninterpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// The prefix of its name, up to and including the dot.
    pub prefix: &'static [u8],
    /// The rest of its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Xattr<'a> {
    /// The size of the entry before the name, in bytes.
    const ENTRY_SIZE: usize = 4;

    /// Decodes the attribute that begins with these bytes; ignores bytes after it. Returns the attribute, or `None` if its prefix is
    /// unknown, and the distance to the next one in bytes. `None` if the bytes are too few.
    pub fn decode(bytes: &'a [u8]) -> Option<(Option<Self>, u64)> {
        let (entry, rest) = bytes.split_at_checked(Self::ENTRY_SIZE)?;
        let entry = Fields(entry);
        let (name, rest) = rest.split_at_checked(entry.u8(0)?.into())?;
        let value = rest.get(..entry.u16(2)?.into())?;
        let size = ((Self::ENTRY_SIZE + name.len() + value.len()) as u64).next_multiple_of(UNIT);
        let number = entry.u8(1)?;
        let prefix = PREFIXES.iter().find(|(known, _)| *known == number).map(|(_, prefix)| *prefix);
        Some((prefix.map(|prefix| Xattr { prefix, name, value }), size))
    }
}

/// Encodes the extended attributes of an inode, none of them shared: pairs of a whole name and a value, in order. Empty for none. `None`
/// if a name has an unknown prefix or is too long, or a value is too long.
pub fn encode_xattrs<'a>(xattrs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; XattrHeader::SIZE as usize];
    for (name, value) in xattrs {
        let (number, rest) = PREFIXES.iter().find_map(|(number, prefix)| Some((*number, name.strip_prefix(*prefix)?)))?;
        bytes.extend([u8::try_from(rest.len()).ok()?, number]);
        bytes.extend(u16::try_from(value.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(rest);
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(UNIT as usize), 0);
    }
    if bytes.len() == XattrHeader::SIZE as usize {
        bytes.clear();
    }
    Some(bytes)
}

/// The `xattr_icount` of an inode with extended attributes of this size in bytes, as [`encode_xattrs`] returns them; `None` if they are
/// too large.
pub fn xattr_icount(size: usize) -> Option<u16> {
    match (size as u64).checked_sub(XattrHeader::SIZE) {
        None => Some(0),
        Some(rest) => u16::try_from(rest / UNIT + 1).ok(),
    }
}
