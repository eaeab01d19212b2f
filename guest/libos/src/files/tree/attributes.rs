// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended attributes: a volume's as they are, the overlay's once a file is a node.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use pando_rt::user::fetch;

use super::volume::ImagePlace;
use super::{Place, Tree, room};
use crate::erofs::{Attribute, Time};
use crate::errno::Errno;

/// Bytes that the value of an attribute may have.
pub const VALUE_MAX: usize = 64 << 10;
/// Bytes of all names that a file may have.
const LIST_MAX: usize = 64 << 10;

/// Attributes by their names.
pub type Values = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// How an attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Whether it is there or not.
    Always,
    /// Only if it is not there yet.
    New,
    /// Only if it is there.
    Replace,
}

/// Whether this is the attribute's name.
fn is_named(attribute: &Attribute<'_>, name: &[u8]) -> bool {
    name.strip_prefix(attribute.prefix) == Some(attribute.name)
}

impl Tree {
    /// Copies of a volume's attributes.
    pub(super) fn attributes_below(&self, place: ImagePlace) -> Result<Values, Errno> {
        let inode = self.inode(place)?;
        let attributes = self.volume(place.volume)?.image.attributes(&inode);
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
    /// `ENODATA`: there is none of that name.
    pub fn attribute(&self, place: Place, name: &[u8]) -> Result<&[u8], Errno> {
        match self.settle(place) {
            Place::Image(image) => {
                let inode = self.inode(image)?;
                let mut attributes = self.volume(image.volume)?.image.attributes(&inode);
                attributes.find(|attribute| is_named(attribute, name)).map(|attribute| attribute.value).ok_or(Errno::ENODATA)
            }
            Place::Node(id) => self.node(id)?.attributes.get(name).map(|value| &**value).ok_or(Errno::ENODATA),
            Place::Proc(_) | Place::Descriptor(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Hands the names of all attributes to `take`, each in two parts.
    ///
    /// # Errors
    /// Those of `take`; `EIO`.
    pub fn attribute_names(&self, place: Place, mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Errno>) -> Result<(), Errno> {
        match self.settle(place) {
            Place::Image(image) => {
                let inode = self.inode(image)?;
                self.volume(image.volume)?.image.attributes(&inode).try_for_each(|attribute| take(attribute.prefix, attribute.name))
            }
            Place::Node(id) => self.node(id)?.attributes.keys().try_for_each(|name| take(name, b"")),
            Place::Proc(_) | Place::Descriptor(_) => Ok(()),
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA`: it is there, or is not, against what was said. `ENOSPC`.
    pub fn set_attribute(&mut self, place: Place, name: &[u8], value: Box<[u8]>, how: Setting, now: Time) -> Result<(), Errno> {
        let is_there = self.attribute(place, name).is_ok();
        match how {
            Setting::New if is_there => return Err(Errno::EEXIST),
            Setting::Replace if !is_there => return Err(Errno::ENODATA),
            _ => {}
        }
        room()?;
        let id = self.own(place)?;
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
    /// `ENODATA`: there is none of that name.
    pub fn remove_attribute(&mut self, place: Place, name: &[u8], now: Time) -> Result<(), Errno> {
        self.attribute(place, name)?;
        let id = self.own(place)?;
        let node = self.node_mut(id)?;
        node.attributes.remove(name);
        node.times.changed = now;
        Ok(())
    }
}
