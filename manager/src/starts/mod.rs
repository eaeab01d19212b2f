// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start records: the blocks of its files that a program accesses at first, for its next start.
//!
//! A program has two records in the cache. The *common* one has what all starts of the program that were learned have in common. The one of
//! its command, with all arguments, has what starts of that command access. A command gets a record of its own if the common one does not
//! suffice.
//!
//! A record names blocks of images, and has no content. It is a hint: it counts only for images that are the same, the blocks are read and
//! compared with the host as at any access, and its size is limited. It is read before the process is confined, and written after the
//! program has ended; cells neither read nor write it. Without a usable file in the cache, a program starts as it did the first time.

mod record;
#[cfg(test)]
mod tests;

use pando_image::Fingerprint;
use pando_kernel::{StartMode, StartTrace};
use pando_launch::{Program, VolumeStart, traced_start};
use record::{Origin, Record, is_within_limits};
use std::fs::DirBuilder;
use std::hash::Hasher;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of records in the cache.
const DIRECTORY: &str = "starts";
/// Number of files in it. The hash of a record's key selects its file, so that the directory is bounded and nothing must be removed.
const FILES: u64 = 512;
/// Faults and reads of a start, in spite of its record, that are worth another record: each costs about as much as its file.
const WORTH_LEARNING: u64 = 8;
/// Blocks of a command's record that is not extended any more, 4 MiB. A command that accesses other files at each start, or more than a
/// record holds, would otherwise be learned at every second start.
const WORTH_EXTENDING: u64 = 1024;
/// Commands whose starts are learned for the common record.
const COMMANDS: u32 = 3;

/// The records of a program, for one of its starts.
#[derive(Debug, Default)]
pub struct ProgramStart {
    /// The directory of records; `None`: there is no cache.
    directory: Option<PathBuf>,
    common: KeyedRecord,
    command: KeyedRecord,
    /// The fingerprints of the volumes.
    fingerprints: Vec<u64>,
    /// The blocks to read in advance, by volume.
    starts: Vec<VolumeStart>,
}

/// A record with its key; the default where there is none.
#[derive(Debug, Default)]
struct KeyedRecord {
    key: Vec<u8>,
    record: Option<Record>,
}

impl ProgramStart {
    /// Reads the records of a program, if the cache has some. `fingerprints` are those of its volumes.
    pub fn open(cache: Option<&Path>, program: &Program, fingerprints: Vec<u64>) -> ProgramStart {
        let directory = cache.map(|cache| cache.join(DIRECTORY));
        let open = |key: Vec<u8>| {
            let read = |directory: &PathBuf| Record::read(&directory.join(file_name(&key)));
            let record = directory.as_ref().and_then(read).filter(|record| record.key == key && record.concerns(&fingerprints));
            KeyedRecord { key, record }
        };
        let (common, command) = (open(common_key(program)), open(command_key(program)));
        if let (Some(directory), None) = (&directory, &common.record) {
            // A confined process may write in a cache that exists, and cannot create it. If this fails, nothing will be remembered.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        }
        let best = command.record.as_ref().filter(|record| !record.is_empty()).or(common.record.as_ref());
        let starts = fingerprints.iter().map(|fingerprint| best.map(|record| record.start(*fingerprint)).unwrap_or_default()).collect();
        ProgramStart { directory, common, command, fingerprints, starts }
    }

    /// The blocks to read in advance, by volume.
    pub fn starts(&self) -> &[VolumeStart] {
        &self.starts
    }

    /// How to trace the start. `None`: there is no cache.
    pub fn mode(&self) -> Option<StartMode> {
        self.directory.as_ref()?;
        let is_incomplete = self.command.record.as_ref().is_some_and(|record| record.origin == Origin::Incomplete);
        let is_known = self.common.record.as_ref().is_some_and(|common| common.is_learned_from(&self.command.key, COMMANDS));
        Some(if is_incomplete || !is_known { StartMode::Record } else { StartMode::Prefetched })
    }

    /// Stores what this start has shown. The files are a cache: if one cannot be written, the next start is as slow as this.
    pub fn update(&self, trace: &StartTrace) {
        match trace.mode {
            StartMode::Prefetched if trace.misses >= WORTH_LEARNING && self.may_extend() => {
                let before = |fingerprint: &u64| self.command.record.as_ref().map(|record| record.start(*fingerprint)).unwrap_or_default();
                let starts: Vec<VolumeStart> = self.fingerprints.iter().map(before).collect();
                self.write(&Record::new(self.command.key.clone(), Origin::Incomplete, &self.fingerprints, &starts));
            }
            StartMode::Prefetched => {}
            StartMode::Record => self.learn(&traced_start(trace)),
        }
    }

    /// Whether the command's own record may be extended: so each command is learned a limited number of times, unless it accesses very
    /// little.
    fn may_extend(&self) -> bool {
        self.command.record.as_ref().is_none_or(|record| record.blocks() < WORTH_EXTENDING)
    }

    /// Stores what a start has accessed.
    fn learn(&self, learned: &[VolumeStart]) {
        let known = self.common.record.as_ref().filter(|record| !record.is_learned_from(&self.command.key, COMMANDS));
        if known.is_some() || self.common.record.is_none() {
            let both = |(fingerprint, now): (&u64, &VolumeStart)| {
                known.map_or_else(|| now.clone(), |known| known.start(*fingerprint).intersection(now))
            };
            let common: Vec<VolumeStart> = self.fingerprints.iter().zip(learned).map(both).collect();
            let origin = Record::learned_from(known, &self.command.key);
            self.write(&Record::new(self.common.key.clone(), origin, &self.fingerprints, &common));
        }
        if let Some(before) = &self.command.record {
            let with = |(fingerprint, now): (&u64, &VolumeStart)| before.start(*fingerprint).union(now);
            let together: Vec<VolumeStart> = self.fingerprints.iter().zip(learned).map(with).collect();
            let starts = if is_within_limits(&together) { &together } else { learned };
            self.write(&Record::new(self.command.key.clone(), Origin::Complete, &self.fingerprints, starts));
        }
    }

    fn write(&self, record: &Record) {
        if let Some(directory) = &self.directory {
            record.write(&directory.join(file_name(&record.key)));
        }
    }
}

/// The identity of a program: its path, and, unless it is an option, its first argument with the directory in which it is a file's name.
fn common_key(program: &Program) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = vec![b"program", &program.path];
    if let Some(script) = program.arguments.get(1).filter(|argument| !argument.starts_with(b"-")) {
        parts.extend([&script[..], &program.directory]);
    }
    parts.join(&0)
}

/// The identity of a command: its program, directory and arguments.
fn command_key(program: &Program) -> Vec<u8> {
    let parts: Vec<&[u8]> = [&program.path, &program.directory].into_iter().chain(&program.arguments).map(Vec::as_slice).collect();
    let mut hasher = Fingerprint::default();
    hasher.write(&parts.join(&0));
    [&b"command"[..], &hasher.finish().to_le_bytes()].concat()
}

/// The name of a record's file.
fn file_name(key: &[u8]) -> String {
    let mut hasher = Fingerprint::default();
    hasher.write(key);
    format!("{:03x}", hasher.finish() % FILES)
}
