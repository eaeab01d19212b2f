// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes: a header behind the inode, the numbers of its shared attributes, then the attributes of its own.

use super::{BLOCK_SIZE, Image, Inode, fields::Fields};

const HEADER_SIZE: u64 = 12;
const ENTRY_SIZE: usize = 4;
/// Attributes are numbered by their distance from the first in units of this many bytes, and padded to it.
const UNIT: u64 = 4;

/// An extended attribute. Its value is passed on as the image has it, uninterpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The prefix of its name, up to and including the dot.
    pub prefix: &'static [u8],
    /// The rest of its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Iterator over the attributes of an inode; ends at the first malformed one.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    image: Image<'a>,
    /// Offset of the next shared attribute's number, and how many are left.
    shared: u64,
    shared_left: u8,
    /// Offset of the inode's next own attribute, and their end.
    own: u64,
    end: u64,
}

impl<'a> Image<'a> {
    /// The extended attributes of an inode.
    #[must_use]
    pub fn attributes(&self, inode: &Inode) -> Attributes<'a> {
        let (start, bytes) = inode.attributes;
        let count = self.slice(start, bytes).and_then(|header| Fields::new(header).u8(4)).unwrap_or_default();
        let shared = start + HEADER_SIZE;
        Attributes { image: *self, shared, shared_left: count, own: shared + u64::from(count) * 4, end: start + bytes }
    }

    /// Decodes the attribute at an offset; also returns its size in bytes.
    fn attribute(&self, offset: u64) -> Option<(Option<Attribute<'a>>, u64)> {
        let header = Fields::new(self.slice(offset, ENTRY_SIZE as u64)?);
        let (name, value) = (usize::from(header.u8(0)?), usize::from(header.u16(2)?));
        let bytes = (ENTRY_SIZE + name + value) as u64;
        let (name, value) = self.slice(offset, bytes)?[ENTRY_SIZE..].split_at(name);
        let prefix: Option<&'static [u8]> = match header.u8(1)? {
            1 => Some(b"user."),
            2 => Some(b"system.posix_acl_access"),
            3 => Some(b"system.posix_acl_default"),
            4 => Some(b"trusted."),
            6 => Some(b"security."),
            _ => None,
        };
        Some((prefix.map(|prefix| Attribute { prefix, name, value }), bytes.next_multiple_of(UNIT)))
    }
}

impl<'a> Attributes<'a> {
    /// The next attribute; the inner `None` stands for an attribute of an unknown kind.
    fn step(&mut self) -> Option<Option<Attribute<'a>>> {
        if let Some(left) = self.shared_left.checked_sub(1) {
            let number = Fields::new(self.image.slice(self.shared, 4)?).u32(0)?;
            (self.shared, self.shared_left) = (self.shared + 4, left);
            let offset = u64::from(self.image.shared_attributes) * BLOCK_SIZE + u64::from(number) * UNIT;
            return self.image.attribute(offset).map(|(attribute, _)| attribute);
        }
        if self.own >= self.end {
            return None;
        }
        let (attribute, bytes) = self.image.attribute(self.own)?;
        self.own += bytes;
        Some(attribute)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        loop {
            if let Some(attribute) = self.step()? {
                return Some(attribute);
            }
        }
    }
}
