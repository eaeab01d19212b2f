// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory of the overlay: the names that were added to what an image has, and those that are gone.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use super::Place;
use super::volume::ImagePlace;

/// What a directory of the overlay knows of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It leads here.
    Leads(Place),
    /// It is gone.
    Gone,
    /// Nothing: the image decides.
    Nothing,
}

/// What stands for a name.
#[derive(Clone, Copy, Debug)]
struct Name {
    /// Where it leads; `None`: it is gone.
    place: Option<Place>,
    /// Its number in `order`; `None`: the image has the name too, and it is listed where the image has it.
    number: Option<u64>,
}

/// A directory of the overlay.
#[derive(Debug)]
pub struct Directory {
    /// The directory above, as it was found.
    pub parent: Place,
    /// The image's directory below.
    pub below: Option<ImagePlace>,
    names: BTreeMap<Arc<[u8]>, Name>,
    /// The names that only the overlay has, numbered as they came, so that a reader goes on where it was whatever comes and goes.
    order: BTreeMap<u64, Arc<[u8]>>,
    next: u64,
}

impl Directory {
    /// An empty directory.
    #[must_use]
    pub fn new(parent: Place, below: Option<ImagePlace>) -> Directory {
        Directory { parent, below, names: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }

    /// What is known of a name.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Known {
        match self.names.get(name) {
            Some(Name { place: Some(place), .. }) => Known::Leads(*place),
            Some(Name { place: None, .. }) => Known::Gone,
            None => Known::Nothing,
        }
    }

    /// Lets a name lead somewhere. `is_below`: the image has it too.
    pub fn put(&mut self, name: &[u8], place: Place, is_below: bool) {
        if let Some(known) = self.names.get_mut(name) {
            known.place = Some(place);
            return;
        }
        let name: Arc<[u8]> = name.into();
        let number = if is_below {
            None
        } else {
            self.order.insert(self.next, Arc::clone(&name));
            self.next += 1;
            Some(self.next - 1)
        };
        self.names.insert(name, Name { place: Some(place), number });
    }

    /// Lets a name lead nowhere. `is_below`: the image has it.
    pub fn remove(&mut self, name: &[u8], is_below: bool) {
        if is_below {
            match self.names.get_mut(name) {
                Some(known) => known.place = None,
                None => drop(self.names.insert(name.into(), Name { place: None, number: None })),
            }
        } else if let Some(Name { number: Some(number), .. }) = self.names.remove(name) {
            self.order.remove(&number);
        }
    }

    /// The names that only the overlay has, from the one with this number on.
    pub fn added(&self, from: u64) -> impl Iterator<Item = (u64, &[u8], Place)> {
        self.order.range(from..).filter_map(|(&number, name)| match self.get(name) {
            Known::Leads(place) => Some((number, &**name, place)),
            Known::Gone | Known::Nothing => None,
        })
    }
}
