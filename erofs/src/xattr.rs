// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes: `struct erofs_xattr_ibody_header` and `struct erofs_xattr_entry`.
//!
//! After an inode come the header, the numbers of its shared attributes (32 bits each), then its other attributes.

use crate::fields::Fields;

/// The unit of an inode's `xattr_icount` and of the numbers of shared attributes, in bytes; attributes are padded to it.
const UNIT: u64 = 4;

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
        let prefix: Option<&'static [u8]> = match entry.u8(1)? {
            1 => Some(b"user."),
            2 => Some(b"system.posix_acl_access"),
            3 => Some(b"system.posix_acl_default"),
            4 => Some(b"trusted."),
            6 => Some(b"security."),
            _ => None,
        };
        Some((prefix.map(|prefix| Xattr { prefix, name, value }), size))
    }
}
