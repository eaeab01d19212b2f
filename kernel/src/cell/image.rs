// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell as plain data: what clones, exports and imports carry over.

use super::registers::{KEPT_BYTES, KEPT_PAGES};
use super::{Resumption, Vector};
use crate::memory::BadImage;
use crate::memory::image::MemoryImage;
use pando_abi::EventSet;
use pando_abi::limits::{HOST_NAME_BYTES, MAX_DESCRIPTOR_BYTES};
use pando_machine::{Context, Nanos, VectorState};
use serde::{Deserialize, Serialize};

/// Clones that a file may say were made, and generations that it may say there were: counting on does not overflow.
const COUNT_MAX: u64 = 1 << 62;

/// A frozen cell as plain data, without the bytes of its pages: they are numbered from 0 on and stand elsewhere.
///
/// One that comes from a file is a claim, and checked when a cell is made of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellImage {
    pub(crate) carried: Carried,
    pub(crate) console: RingPlaces,
    pub(crate) channel: Option<RingPlaces>,
    /// The virtual registers and the rings.
    pub(crate) kept: Vec<u8>,
    pub(crate) memory: MemoryImage,
}

impl std::fmt::Debug for CellImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CellImage({:?} with {} pages)", self.carried.host_name, self.contents())
    }
}

impl CellImage {
    /// How many pages of content there are.
    #[must_use]
    pub fn contents(&self) -> u64 {
        self.memory.contents
    }

    /// How many disks are attached to the cell.
    #[must_use]
    pub fn disks(&self) -> usize {
        self.memory.disks.len()
    }

    /// Whether the cell, or one that it is a clone of, was frozen as it stood ([`crate::Kernel::freeze_as_it_stands`]), or while programs ran that did not notice: nothing promises that its clones' random numbers are distinct.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.carried.forced
    }

    /// Makes every check that does not depend on where the cell is to be.
    ///
    /// # Errors
    /// No cell can be like this.
    pub(crate) fn check(&self) -> Result<(), BadImage> {
        let Carried { generation, clone_index, clones_made, host_name, .. } = &self.carried;
        if [generation, clone_index, clones_made].into_iter().any(|count| *count > COUNT_MAX) || host_name.len() > HOST_NAME_BYTES {
            return Err(BadImage("its identity is none that a cell can have"));
        }
        let places = [Some(self.console), self.channel].into_iter().flatten();
        if self.kept.len() != KEPT_BYTES || places.into_iter().any(|places| places.progress > MAX_DESCRIPTOR_BYTES) {
            return Err(BadImage("its rings are none that a cell can have"));
        }
        self.memory.check(KEPT_PAGES)
    }
}

/// How far the kernel has come in the two rings of a console or a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingPlaces {
    pub(crate) transmit: u64,
    pub(crate) receive: u64,
    /// Bytes of the next transmit descriptor that are already out.
    pub(crate) progress: u32,
}

/// All that a cell is besides its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carried {
    #[serde(with = "context")]
    pub(crate) context: Context,
    #[serde(with = "vector")]
    pub(crate) vector: Vector,
    pub(crate) resumption: Resumption,
    #[serde(with = "events")]
    pub(crate) events: EventSet,
    pub(crate) window: Option<[u16; 2]>,
    pub(crate) generation: u64,
    pub(crate) clone_index: u64,
    pub(crate) clones_made: u64,
    pub(crate) forced: bool,
    #[serde(with = "moment")]
    pub(crate) stopped: Option<Nanos>,
    pub(crate) host_name: String,
}

mod context {
    use super::Context;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(context: &Context, serializer: S) -> Result<S::Ok, S::Error> {
        context.to_words().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Context, D::Error> {
        let words = <[u64; Context::WORDS]>::deserialize(deserializer)?;
        Context::from_words(words).ok_or_else(|| D::Error::custom("no cell can have these registers"))
    }
}

mod vector {
    use super::{Vector, VectorState};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(vector: &Vector, serializer: S) -> Result<S::Ok, S::Error> {
        let words = match vector {
            Vector::Dead => None,
            Vector::Saved(saved) => Some(saved.words().as_slice()),
        };
        words.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vector, D::Error> {
        let Some(words) = Option::<Vec<u32>>::deserialize(deserializer)? else { return Ok(Vector::Dead) };
        let saved = VectorState::from_untrusted(&words);
        saved.map(Vector::Saved).ok_or_else(|| D::Error::custom("no CPU loads this vector state"))
    }
}

mod moment {
    use super::Nanos;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(moment: &Option<Nanos>, serializer: S) -> Result<S::Ok, S::Error> {
        moment.map(|moment| moment.0).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Nanos))
    }
}

mod events {
    use super::EventSet;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(events: &EventSet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(events.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EventSet, D::Error> {
        u64::deserialize(deserializer).map(EventSet)
    }
}
