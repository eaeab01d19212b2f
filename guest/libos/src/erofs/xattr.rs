// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extended attributes of an inode: the shared ones, then its own.

use pando_erofs::{Xattr, XattrHeader};

use super::{Image, Inode};

/// The size of a shared attribute's number in bytes.
const NUMBER_SIZE: u64 = 4;

/// Iterator over the extended attributes of an inode; ends at the first malformed one.
#[derive(Clone, Debug)]
pub struct Xattrs<'a> {
    image: Image<'a>,
    /// The offset of the next shared attribute's number, and how many are left.
    shared: u64,
    shared_left: u8,
    /// The offset of the next attribute after the shared ones, and the end of these.
    unshared: u64,
    end: u64,
}

impl<'a> Image<'a> {
    /// The extended attributes of an inode.
    #[must_use]
    pub fn xattrs(&self, inode: &Inode) -> Xattrs<'a> {
        let (start, bytes) = inode.xattrs;
        let header = self.slice(start, bytes).and_then(XattrHeader::decode).unwrap_or(XattrHeader { shared_count: 0 });
        Xattrs {
            image: *self,
            shared: start + XattrHeader::SIZE,
            shared_left: header.shared_count,
            unshared: start + header.size(),
            end: start + bytes,
        }
    }
}

impl<'a> Xattrs<'a> {
    /// The next attribute; the inner `None` stands for an attribute with an unknown prefix.
    fn step(&mut self) -> Option<Option<Xattr<'a>>> {
        if let Some(left) = self.shared_left.checked_sub(1) {
            let distance = XattrHeader::shared_offset(self.image.slice(self.shared, NUMBER_SIZE)?)?;
            (self.shared, self.shared_left) = (self.shared + NUMBER_SIZE, left);
            let (xattr, _) = Xattr::decode(self.image.tail(self.image.shared_xattrs + distance))?;
            return Some(xattr);
        }
        if self.unshared >= self.end {
            return None;
        }
        let (xattr, size) = Xattr::decode(self.image.tail(self.unshared))?;
        self.unshared += size;
        Some(xattr)
    }
}

impl<'a> Iterator for Xattrs<'a> {
    type Item = Xattr<'a>;

    fn next(&mut self) -> Option<Xattr<'a>> {
        loop {
            if let Some(xattr) = self.step()? {
                return Some(xattr);
            }
        }
    }
}
