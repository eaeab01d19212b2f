// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes: unchanged from a volume, or those of an overlay node.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use pando_rt::user::fetch;

use super::volume::ImageInode;
use super::{InodeRef, Tree, room};
use crate::erofs::{Time, Xattr};
use crate::errno::Errno;

/// Upper limit on the bytes of a value.
pub const VALUE_MAX: usize = 64 << 10;
/// Upper limit on the bytes of all names of a file.
const LIST_MAX: usize = 64 << 10;

/// Attributes by their names.
pub type Values = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The condition for setting an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrCondition {
    /// None.
    Always,
    /// Only if it does not exist (`XATTR_CREATE`).
    New,
    /// Only if it exists (`XATTR_REPLACE`).
    Replace,
}

/// Whether this is the attribute's name.
fn is_named(attribute: &Xattr<'_>, name: &[u8]) -> bool {
    name.strip_prefix(attribute.prefix) == Some(attribute.name)
}

impl Tree {
    /// Copies the attributes of a volume's file.
    pub(super) fn attributes_below(&self, image: ImageInode) -> Result<Values, Errno> {
        let inode = self.inode(image)?;
        let attributes = self.volume(image.volume)?.image.xattrs(&inode);
        attributes
            .map(|attribute| {
                let mut value = alloc::vec![0; attribute.value.len()];
                if fetch(attribute.value, &mut value) < value.len() {
                    return Err(Errno::EIO);
                }
                Ok(([attribute.prefix, attribute.name].concat().into(), value.into()))
            })
            .collect()
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA`: it does not exist.
    pub fn attribute(&self, inode: InodeRef, name: &[u8]) -> Result<&[u8], Errno> {
        match self.real_inode(inode) {
            InodeRef::Image(image) => {
                let inode = self.inode(image)?;
                let mut attributes = self.volume(image.volume)?.image.xattrs(&inode);
                attributes.find(|attribute| is_named(attribute, name)).map(|attribute| attribute.value).ok_or(Errno::ENODATA)
            }
            InodeRef::Node(id) => self.node(id)?.attributes.get(name).map(|value| &**value).ok_or(Errno::ENODATA),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Passes the names of all attributes to `take`, each in two parts.
    ///
    /// # Errors
    /// Those of `take`; `EIO`.
    pub fn attribute_names(&self, inode: InodeRef, mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
        match self.real_inode(inode) {
            InodeRef::Image(image) => {
                let inode = self.inode(image)?;
                self.volume(image.volume)?.image.xattrs(&inode).try_for_each(|attribute| take(attribute.prefix, attribute.name))
            }
            InodeRef::Node(id) => self.node(id)?.attributes.keys().try_for_each(|name| take(name, b"")),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Ok(()),
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`: the condition is not met. `ENOSPC`.
    pub fn set_attribute(
        &mut self,
        inode: InodeRef,
        name: &[u8],
        value: Box<[u8]>,
        condition: XattrCondition,
        now: Time,
    ) -> Result<(), Errno> {
        let is_there = self.attribute(inode, name).is_ok();
        match condition {
            XattrCondition::New if is_there => return Err(Errno::EEXIST),
            XattrCondition::Replace if !is_there => return Err(Errno::ENODATA),
            _ => {}
        }
        room()?;
        let id = self.copy_up(inode)?;
        let node = self.node_mut(id)?;
        let names: usize = node.attributes.keys().map(|name| name.len() + 1).sum();
        if !is_there && names + name.len() >= LIST_MAX {
            return Err(Errno::ENOSPC);
        }
        node.attributes.insert(name.into(), value);
        node.times.changed = now;
        Ok(())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `ENODATA`: it does not exist.
    pub fn remove_attribute(&mut self, inode: InodeRef, name: &[u8], now: Time) -> Result<(), Errno> {
        self.attribute(inode, name)?;
        let id = self.copy_up(inode)?;
        let node = self.node_mut(id)?;
        node.attributes.remove(name);
        node.times.changed = now;
        Ok(())
    }
}
