// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live bind mounts: directories of the host that a file server serves to the cell, by the messages of FUSE.
//!
//! The files of a mount are nodes of the overlay like all others: a cache of the host's. Before a call uses a name, attributes, a listing
//! or content, it checks that the cache has it and that it is new enough ([`freshness`]). If not, it records what it misses and fails with
//! [`Errno::QUEUED`]. The dispatcher sends the requests and lets the thread wait; the answers update the nodes ([`answers`]), and the call
//! is made again. Changes of names and attributes go to the server first ([`changes`]). Changes of content are made in the cache, and
//! written back at the end of the call ([`content`]).

pub mod changes;
pub mod content;
mod evict;
pub mod freshness;
mod nodes;
pub mod protocol;
pub mod replies;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cell::RefCell;

use pando_rt::abi::channel::{Answer, Header, Kind};
use pando_rt::console::channel;

use super::tree::node::{NodeId, Validity};
use super::tree::volume::VolumeIndex;
use crate::errno::Errno;
use crate::wait::Tid;
use protocol::{Body, IN_HEADER, OUT_HEADER, long, word};

/// Bytes of answers that are read at once.
const PIECE: usize = 64 << 10;

/// Something that a call needs from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheMiss {
    /// The file of a name.
    Name(NodeId, Box<[u8]>),
    /// The attributes of a file.
    Attributes(NodeId),
    /// All names of a directory.
    Listing(NodeId),
    /// The content of a file: offset and length.
    Content(NodeId, u64, u64),
    /// The target of a symbolic link.
    Target(NodeId),
    /// The handle for writing a file.
    Handle(NodeId),
    /// The answers to the writes of a file, or of all.
    Writes(Option<NodeId>),
}

/// The purpose of a request that is not answered yet.
#[derive(Debug)]
enum Purpose {
    /// An answer for the cache, asked for at this time.
    Cache(CacheMiss, u64),
    /// A name for the cache, with its validity.
    Name(CacheMiss, Validity),
    /// A listing that goes on: the names so far.
    Listing(NodeId, BTreeSet<Box<[u8]>>, u64),
    /// An answer for the call of a thread, with the key of the request, and the names that it changes.
    Call(Tid, u64, Vec<ChangedName>),
    /// A write of so many bytes, or a change of the size, of this file.
    Write(NodeId, u32),
    /// None: the answer does not matter.
    Nothing,
}

/// A name that did not exist, with its directory, the error, and the time of the question.
type MissingName = (NodeId, Box<[u8]>, Errno, u64);

/// A name that a request changes, with its directory.
type ChangedName = (NodeId, Box<[u8]>);

/// The outcome of a request, for the call that is made again.
#[derive(Debug)]
struct Outcome {
    /// The key of the request.
    key: u64,
    answer: Result<Vec<u8>, Errno>,
    /// The names that it has changed at the server, but not yet in the cache.
    names: Vec<ChangedName>,
    /// When it came.
    at: u64,
}

/// How long an outcome waits for its call at most: the thread can have ended.
const OUTCOME_MAX: u64 = 10_000_000_000;

/// Names of a directory that are asked for in the order of its listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scan {
    directory: NodeId,
    /// The number of the last name.
    number: u64,
    /// How many names before it were asked for in order.
    opened: u32,
}

/// A mount.
#[derive(Debug)]
struct Mount {
    /// The nodes of the server's inodes.
    nodes: BTreeMap<u64, NodeId>,
    volume: VolumeIndex,
    /// The server is gone.
    is_dead: bool,
    /// The number of nodes after which the next eviction comes.
    kept: usize,
}

/// All mounts, and the requests to their servers.
#[derive(Debug, Default)]
pub struct Mounts {
    list: Vec<Mount>,
    requests: BTreeMap<u64, (u8, Purpose)>,
    last: u64,
    misses: RefCell<Vec<CacheMiss>>,
    /// The request on whose answer the running call waits.
    awaited: Option<u64>,
    outcomes: BTreeMap<Tid, Outcome>,
    /// Names that did not exist when the server was asked.
    missing: RefCell<VecDeque<MissingName>>,
    /// The name that was asked for last.
    named: Option<Scan>,
    /// When the running call was first made.
    pub began: u64,
    /// Files that may have changes to be written back.
    writable: BTreeSet<NodeId>,
    /// Records that were not sent yet.
    out: Vec<u8>,
    /// Bytes of answers that are not complete.
    incoming: Vec<u8>,
    /// Answers to [`Kind::Sync`].
    synced: VecDeque<Answer>,
    /// Requests that were answered since the scheduler last looked.
    pub answered: Vec<u64>,
}

impl Mounts {
    /// Whether there is no mount.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there are answers to be expected.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Forgets the requests: the servers are another cell's. All uses of the mounts fail from now on.
    pub fn disconnect(&mut self) {
        self.list.iter_mut().for_each(|mount| mount.is_dead = true);
        self.fail_requests(None);
    }

    /// Fails the requests to a mount, or to all.
    fn fail_requests(&mut self, mount: Option<u8>) {
        let failed: Vec<u64> =
            self.requests.iter().filter(|(_, (of, _))| mount.is_none_or(|mount| mount == *of)).map(|(unique, _)| *unique).collect();
        for unique in failed {
            if let Some((_, Purpose::Call(thread, key, _))) = self.requests.remove(&unique) {
                self.outcomes.insert(thread, Outcome { key, answer: Err(Errno::EIO), names: Vec::new(), at: 0 });
            }
            self.answered.push(unique);
        }
    }

    /// Records what a call needs. Returns the error with which it ends for now.
    fn note_miss(&self, miss: CacheMiss) -> Errno {
        let mut misses = self.misses.borrow_mut();
        if !misses.contains(&miss) {
            misses.push(miss);
        }
        Errno::QUEUED
    }

    /// Removes what the running call needs.
    fn take_misses(&mut self) -> Vec<CacheMiss> {
        core::mem::take(&mut *self.misses.borrow_mut())
    }

    /// Queues a request. Returns its number.
    fn request(&mut self, mount: u8, opcode: u32, nodeid: u64, body: &Body, purpose: Purpose) -> u64 {
        self.last += 1;
        let (unique, length) = (self.last, IN_HEADER + body.0.len());
        if self.check_alive(mount).is_err() {
            // No answer would come.
            self.answered.push(unique);
            return unique;
        }
        let header = Header { kind: Kind::Message, length: (4 + length) as u32 };
        self.out.extend_from_slice(&header.to_bytes());
        self.out.extend_from_slice(&u32::from(mount).to_le_bytes());
        let message = Body::default().words(&[length as u32, opcode]).longs(&[unique, nodeid]).words(&[0; 4]);
        self.out.extend_from_slice(&message.0);
        self.out.extend_from_slice(&body.0);
        self.requests.insert(unique, (mount, purpose));
        unique
    }

    /// Asks a server to do something for the running call, which is made again at the answer.
    ///
    /// # Errors
    /// The server's; `QUEUED`: it has not answered yet. `EIO`: it is gone.
    fn ask(&mut self, thread: Tid, mount: u8, opcode: u32, nodeid: u64, body: &Body) -> Result<Vec<u8>, Errno> {
        self.ask_to_change(thread, mount, (opcode, nodeid, body), Vec::new)
    }

    /// The same for a request (opcode, inode and body) that changes names.
    ///
    /// # Errors
    /// The server's; `QUEUED`: it has not answered yet. `EIO`: it is gone.
    fn ask_to_change(
        &mut self,
        thread: Tid,
        mount: u8,
        (opcode, nodeid, body): (u32, u64, &Body),
        names: impl FnOnce() -> Vec<ChangedName>,
    ) -> Result<Vec<u8>, Errno> {
        let key = request_hash(opcode, nodeid, &body.0);
        if let Some(outcome) = self.outcomes.remove(&thread)
            && outcome.key == key
        {
            return outcome.answer;
        }
        self.check_alive(mount)?;
        self.awaited = Some(self.request(mount, opcode, nodeid, body, Purpose::Call(thread, key, names())));
        Err(Errno::QUEUED)
    }

    /// Whether a call changes a name, and has not seen the outcome yet. Until then, the cache keeps the name as it was: the call, which is
    /// made again, would take its own change for another's. A listing that began before the change may still be under way.
    fn is_changing(&self, directory: NodeId, name: &[u8], now: u64) -> bool {
        let is_among = |names: &[ChangedName]| names.iter().any(|(above, other)| *above == directory && **other == *name);
        let is_recent = |outcome: &&Outcome| outcome.at.saturating_add(OUTCOME_MAX) >= now;
        self.outcomes.values().filter(is_recent).any(|outcome| is_among(&outcome.names))
            || self.requests.values().any(|(_, purpose)| matches!(purpose, Purpose::Call(.., names) if is_among(names)))
    }

    /// Records that a name does not exist.
    fn note_missing(&mut self, directory: NodeId, name: Box<[u8]>, error: Errno, at: u64) {
        /// Names that are kept, for calls that are made again.
        const MISSING_MAX: usize = 64;
        let missing = self.missing.get_mut();
        if missing.len() >= MISSING_MAX {
            missing.pop_front();
        }
        missing.push_back((directory, name, error, at));
    }

    /// The number of writes without an answer.
    fn writes(&self) -> usize {
        self.requests.values().filter(|(_, purpose)| matches!(purpose, Purpose::Write(..))).count()
    }

    /// Checks that the server of a mount is there.
    ///
    /// # Errors
    /// `EIO`.
    fn check_alive(&self, mount: u8) -> Result<(), Errno> {
        if self.list.get(usize::from(mount)).is_some_and(|mount| !mount.is_dead) { Ok(()) } else { Err(Errno::EIO) }
    }

    /// The number of the request on which the running call waits, if it does.
    pub fn take_awaited(&mut self) -> Option<u64> {
        self.awaited.take()
    }

    /// Whether a request was answered.
    #[must_use]
    pub fn is_answered(&self, unique: u64) -> bool {
        !self.requests.contains_key(&unique)
    }

    /// Drops the outcome of a call that is over.
    pub fn finish_call(&mut self, thread: Tid) {
        self.outcomes.remove(&thread);
    }

    /// Sends the queued requests.
    pub fn send(&mut self) {
        if !self.out.is_empty() {
            channel::send(&self.out);
            self.out.clear();
            self.out.shrink_to(PIECE);
        }
    }

    /// Reads the answers that have come, as messages. Returns `false` if the operator will send no more.
    fn receive(&mut self) -> (Vec<Vec<u8>>, bool) {
        let mut is_open = true;
        loop {
            let start = self.incoming.len();
            self.incoming.resize(start + PIECE, 0);
            let received = channel::try_receive(&mut self.incoming[start..]);
            self.incoming.truncate(start + received.unwrap_or(0));
            match received {
                Some(0) => is_open = false,
                Some(_) => continue,
                None => {}
            }
            break;
        }
        (self.take_messages(), is_open)
    }

    /// Removes the complete messages from the bytes that have come.
    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        let (mut messages, mut at) = (Vec::new(), 0);
        while let Some(rest) = self.incoming.get(at..).filter(|rest| rest.len() >= 4 + OUT_HEADER) {
            let length = (word(rest, 4) as usize).max(OUT_HEADER) + 4;
            let Some(message) = rest.get(..length) else { break };
            messages.push(message.to_vec());
            at += length;
        }
        self.incoming.drain(..at);
        messages
    }

    /// Waits for the answer to [`Kind::Sync`].
    ///
    /// # Errors
    /// `EIO`: the operator will send no more.
    pub fn receive_sync(&mut self) -> Result<Answer, Errno> {
        loop {
            if let Some(answer) = self.synced.pop_front() {
                return Ok(answer);
            }
            let mut piece = [0; 1024];
            let count = channel::receive(&mut piece);
            if count == 0 {
                return Err(Errno::EIO);
            }
            self.incoming.extend_from_slice(&piece[..count]);
            // Messages for mounts stay until they are read.
            self.take_sync_replies();
        }
    }

    /// Takes the answers to [`Kind::Sync`] out of the bytes that have come.
    fn take_sync_replies(&mut self) {
        let messages = self.take_messages();
        let rest = core::mem::take(&mut self.incoming);
        for message in messages {
            if word(&message, 0) == u32::MAX {
                self.synced.push_back(Answer { errno: word(&message, 8) });
            } else {
                self.incoming.extend_from_slice(&message);
            }
        }
        self.incoming.extend_from_slice(&rest);
    }
}

/// A number that tells requests of a call apart (FNV-1a).
fn request_hash(opcode: u32, nodeid: u64, body: &[u8]) -> u64 {
    let head = u64::from(opcode).to_le_bytes().into_iter().chain(nodeid.to_le_bytes());
    head.chain(body.iter().copied()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The header of an answer: number and error.
fn answer_header(message: &[u8]) -> (u64, i32) {
    (long(message, 8), word(message, 4).cast_signed())
}

impl Mounts {
    /// Gives the request that was queued last another number.
    fn renumber_last(&mut self, unique: u64) {
        let tail = self.out.iter().len();
        // The queued bytes end with the message's header and its body, a structure of forty bytes.
        let at = tail - IN_HEADER - 40 + 8;
        self.out[at..at + 8].copy_from_slice(&unique.to_le_bytes());
    }
}
