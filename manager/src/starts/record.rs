// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start records and their files. Reading checks every bound, and what a record says is only a hint: it names blocks, and contains none.
//!
//! ```text
//! magic number, with the version of the format
//! a fingerprint of the rest
//! the record, encoded with postcard
//! ```

use pando_image::{Fingerprint, open_cache_file, replace_cache_file};
use pando_kernel::limits::{START_BLOCKS, START_TABLES};
use pando_launch::VolumeStart;
use serde::{Deserialize, Serialize};
use std::hash::Hasher;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

/// The magic number, with the version of the format.
const MAGIC: &[u8; 16] = b"Pando start   1\n";
const HEADER: usize = MAGIC.len() + size_of::<u64>();
/// Maximal bytes of a record.
pub(super) const RECORD_BYTES: usize = 256 << 10;

/// Blocks that starts access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The identity of the program or command.
    pub(super) key: Vec<u8>,
    pub(super) origin: Origin,
    /// The volumes, the root first.
    pub(super) volumes: Vec<VolumeRecord>,
}

/// How a record came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Origin {
    /// It has what starts of these commands of a program have in common.
    Common { commands: Vec<Vec<u8>> },
    /// It has what starts of a command access.
    Complete,
    /// The next start of its command is to be learned.
    Incomplete,
}

/// Blocks of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    /// The fingerprint of the image and its mount point.
    fingerprint: u64,
    blocks: Vec<Range<u32>>,
    spans: Vec<u32>,
}

/// Whether starts are within the limits: what a wrong record costs is bounded by them.
pub(super) fn is_within_limits<'a>(starts: impl IntoIterator<Item = &'a VolumeStart>) -> bool {
    let sums = starts.into_iter().fold((0u64, 0), |(blocks, spans), start| (blocks + start.count(), spans + start.spans.len()));
    sums.0 <= START_BLOCKS && sums.1 <= START_TABLES
}

impl Record {
    /// A record of starts of volumes with these fingerprints.
    pub(super) fn new(key: Vec<u8>, origin: Origin, fingerprints: &[u64], starts: &[VolumeStart]) -> Record {
        let volume = |(fingerprint, start): (&u64, &VolumeStart)| VolumeRecord {
            fingerprint: *fingerprint,
            blocks: start.blocks.clone(),
            spans: start.spans.clone(),
        };
        Record { key, origin, volumes: fingerprints.iter().zip(starts).map(volume).collect() }
    }

    /// The origin of a common record after a start of another command was learned.
    pub(super) fn learned_from(before: Option<&Record>, command: &[u8]) -> Origin {
        let mut commands = match before.map(|record| &record.origin) {
            Some(Origin::Common { commands }) => commands.clone(),
            _ => Vec::new(),
        };
        commands.push(command.to_vec());
        Origin::Common { commands }
    }

    /// Whether it is a common record that starts of this command do not change: it was learned from it, or from `max` others.
    pub(super) fn is_learned_from(&self, command: &[u8], max: u32) -> bool {
        match &self.origin {
            Origin::Common { commands } => commands.len() >= max as usize || commands.iter().any(|known| known == command),
            Origin::Complete | Origin::Incomplete => false,
        }
    }

    /// Whether it is about the root with the first of these fingerprints.
    pub(super) fn concerns(&self, fingerprints: &[u64]) -> bool {
        self.volumes.first().map(|root| root.fingerprint) == fingerprints.first().copied()
    }

    /// The blocks that starts access of the volume with this fingerprint.
    pub(super) fn start(&self, fingerprint: u64) -> VolumeStart {
        self.volumes.iter().find(|volume| volume.fingerprint == fingerprint).map(VolumeRecord::start).unwrap_or_default()
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.volumes.iter().flat_map(|volume| volume.start().blocks).map(|range| u64::from(range.end - range.start)).sum()
    }

    /// Whether it names no blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.volumes.iter().all(|volume| volume.blocks.is_empty())
    }

    /// Reads a record. `None`: there is none, it is of another version, damaged or beyond the limits, or another user could have written
    /// it.
    pub(super) fn read(path: &Path) -> Option<Record> {
        let (file, metadata) = open_cache_file(path)?;
        let length = usize::try_from(metadata.len()).ok().filter(|length| *length <= RECORD_BYTES)?;
        let mut bytes = Vec::with_capacity(length);
        file.take(RECORD_BYTES as u64).read_to_end(&mut bytes).ok()?;
        Record::decode(&bytes)
    }

    /// Writes it, if that is possible and it is not too large.
    pub(super) fn write(&self, path: &Path) {
        if let Some(bytes) = self.encode() {
            let _ = replace_cache_file(path, &[&bytes]);
        }
    }

    /// The bytes of its file. `None`: they are too many.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let body = postcard::to_allocvec(self).ok().filter(|body| HEADER + body.len() <= RECORD_BYTES)?;
        Some([&MAGIC[..], &checksum(&body), &body].concat())
    }

    /// Decodes a file.
    pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
        let rest = bytes.strip_prefix(MAGIC).filter(|_| bytes.len() <= RECORD_BYTES)?;
        let (sum, body) = rest.split_first_chunk::<8>()?;
        if *sum != checksum(body) {
            return None;
        }
        let (record, left) = postcard::take_from_bytes::<Record>(body).ok()?;
        let starts: Vec<VolumeStart> = record.volumes.iter().map(VolumeRecord::start).collect();
        (left.is_empty() && is_within_limits(&starts)).then_some(record)
    }
}

impl VolumeRecord {
    /// The blocks that it names, in order.
    fn start(&self) -> VolumeStart {
        VolumeStart::new(self.blocks.clone(), self.spans.clone())
    }
}

fn checksum(body: &[u8]) -> [u8; 8] {
    let mut hasher = Fingerprint::default();
    hasher.write(body);
    hasher.finish().to_le_bytes()
}
