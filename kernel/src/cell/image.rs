// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell as plain data: what clones, exports and imports carry over.

use super::execution::{ExecutionContext, Resumption, SavedVector};
use super::freeze::FreezeHistory;
use super::virtual_registers::{RESERVED_BYTES, RESERVED_PAGES};
use super::{Cell, CellIdentity};
use crate::memory::{BadImage, MemoryImage};
use pando_abi::EventSet;
use pando_abi::limits::{HOST_NAME_BYTES, MAX_DESCRIPTOR_BYTES};
use pando_machine::{Context, VectorState};
use serde::{Deserialize, Serialize};

/// Largest clone count and generation that a file may contain: further counting does not overflow.
const COUNT_MAX: u64 = 1 << 62;

/// A frozen cell as plain data, without its pages' bytes: pages are numbered from 0, and their bytes are stored separately.
///
/// An image from a file is not trusted; it is checked when a cell is made from it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellImage {
    pub(crate) record: CellRecord,
    pub(crate) console: RingPositions,
    pub(crate) channel: Option<RingPositions>,
    /// The virtual registers and the rings.
    pub(crate) reserved: Vec<u8>,
    pub(crate) memory: MemoryImage,
}

impl std::fmt::Debug for CellImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CellImage({:?} with {} pages)", self.record.host_name, self.contents())
    }
}

impl CellImage {
    /// Number of content pages.
    #[must_use]
    pub fn contents(&self) -> u64 {
        self.memory.contents
    }

    /// How many disks are attached to the cell.
    #[must_use]
    pub fn disks(&self) -> usize {
        self.memory.disks.len()
    }

    /// The blocks of an attached disk that the cell's programs have mapped as files. A disk that is mapped as a whole, block by block from
    /// its first page on, does not count.
    #[must_use]
    pub fn mapped_blocks(&self, disk: usize) -> Vec<std::ops::Range<u64>> {
        self.memory.mapped_blocks(disk)
    }

    /// Whether the cell, or one that it is a clone of, was frozen by force ([`crate::Kernel::force_freeze`]), or while
    /// programs ran that did not notice. Its clones' random numbers may then be equal.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.record.freeze_history.is_unnoticed()
    }

    /// Makes every check that does not depend on the cell's destination.
    ///
    /// # Errors
    /// No cell can have this state.
    pub(crate) fn check(&self) -> Result<(), BadImage> {
        self.record.check()?;
        check_rings(&self.reserved, [Some(self.console), self.channel])?;
        self.memory.check(RESERVED_PAGES)
    }
}

/// Checks the pages that the kernel keeps for a cell, and its own positions in their rings.
fn check_rings(reserved: &[u8], positions: [Option<RingPositions>; 2]) -> Result<(), BadImage> {
    let is_sound = positions.into_iter().flatten().all(|positions| positions.progress <= MAX_DESCRIPTOR_BYTES);
    if reserved.len() == RESERVED_BYTES && is_sound { Ok(()) } else { Err(BadImage("its ring state is invalid")) }
}

/// All state of a cell but the content of its memory, as its parent reads and sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellStateImage {
    pub(crate) record: CellRecord,
    pub(crate) console: RingPositions,
    /// The virtual registers and the rings.
    pub(crate) reserved: Vec<u8>,
}

impl CellStateImage {
    /// The bytes that the parent gets.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self).ok()
    }

    /// Decodes bytes of the parent. `None`: no cell can have this state.
    pub(crate) fn decode(bytes: &[u8]) -> Option<CellStateImage> {
        let (state, rest): (CellStateImage, _) = postcard::take_from_bytes(bytes).ok()?;
        let is_sound = rest.is_empty() && state.record.check().is_ok() && check_rings(&state.reserved, [Some(state.console), None]).is_ok();
        is_sound.then_some(state)
    }
}

/// The kernel's positions in the two rings of a console or a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingPositions {
    pub(crate) transmit: u64,
    pub(crate) receive: u64,
    /// Bytes of the next transmit descriptor that are already sent.
    pub(crate) progress: u32,
}

/// The state of a cell besides its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellRecord {
    #[serde(with = "context")]
    pub(crate) context: Context,
    #[serde(with = "vector")]
    pub(crate) vector: SavedVector,
    pub(crate) resumption: Resumption,
    #[serde(with = "events")]
    pub(crate) events: EventSet,
    pub(crate) window: Option<[u16; 2]>,
    pub(crate) generation: u64,
    pub(crate) clone_index: u64,
    pub(crate) clones_made: u64,
    pub(crate) freeze_history: FreezeHistory,
    pub(crate) host_name: String,
}

impl CellRecord {
    /// Records a cell whose context does not run.
    pub(crate) fn of(cell: &Cell, execution: &ExecutionContext) -> CellRecord {
        CellRecord {
            context: execution.context,
            vector: execution.vector.clone(),
            resumption: execution.resumption,
            events: cell.events,
            window: cell.window,
            generation: cell.identity.generation,
            clone_index: cell.identity.clone_index,
            clones_made: cell.clones_made,
            freeze_history: cell.freeze_history,
            host_name: cell.identity.host_name.to_string(),
        }
    }

    /// Checks the counts and the name.
    fn check(&self) -> Result<(), BadImage> {
        let CellRecord { generation, clone_index, clones_made, host_name, .. } = self;
        if [generation, clone_index, clones_made].into_iter().any(|count| *count > COUNT_MAX) || host_name.len() > HOST_NAME_BYTES {
            return Err(BadImage("its clone count, generation or host name is out of range"));
        }
        Ok(())
    }

    /// Gives a new cell the recorded state. Returns its execution context, which was not started.
    pub(crate) fn restore(self, cell: &mut Cell) -> ExecutionContext {
        let CellRecord { context, vector, resumption, events, window, generation, clone_index, clones_made, freeze_history, host_name } =
            self;
        // Its card is plugged in again later, or not at all.
        cell.identity = CellIdentity { generation, clone_index, host_name: host_name.into(), card: None, is_stale: true };
        (cell.events, cell.window, cell.clones_made, cell.freeze_history) = (events, window, clones_made, freeze_history);
        ExecutionContext::with(context, vector, resumption)
    }
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
        Context::from_words(words).ok_or_else(|| D::Error::custom("the registers are invalid"))
    }
}

mod vector {
    use super::{SavedVector, VectorState};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(vector: &SavedVector, serializer: S) -> Result<S::Ok, S::Error> {
        let words = match vector {
            SavedVector::Dead => None,
            SavedVector::Saved(saved) => Some(saved.words().as_slice()),
        };
        words.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SavedVector, D::Error> {
        let Some(words) = Option::<Vec<u32>>::deserialize(deserializer)? else { return Ok(SavedVector::Dead) };
        let saved = VectorState::from_untrusted(&words);
        saved.map(SavedVector::Saved).ok_or_else(|| D::Error::custom("the vector state is invalid"))
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
