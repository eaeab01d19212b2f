// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends what calls need from file servers, and brings their answers into the cache.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::freshness::ENTRY_VALID;
use super::protocol::{
    Attributes, Body, DATA_MAX, NO_HANDLE, OUT_HEADER, PANDO_NOTIFY_CHANGE, PANDO_NOTIFY_END, ServerEntry, listing, long, word,
};
use super::{CacheMiss, Outcome, Purpose, Scan, answer_header};
use pando_rt::clock;

use crate::errno::Errno;
use crate::files::Files;
use crate::files::tree::InodeRef;
use crate::files::tree::content::PAGE;
use crate::files::tree::directory::Dentry;
use crate::files::tree::node::{Body as NodeBody, NodeId, Validity};
use crate::uapi::{FUSE_GETATTR, FUSE_LOOKUP, FUSE_READ, FUSE_READDIRPLUS, FUSE_READLINK, IN_Q_OVERFLOW};

/// Most bytes of content that one call asks for at once: requests are sent in one go.
const AHEAD: u64 = 2 << 20;
/// Most bytes of a file whose content is asked for together with its name.
const SMALL: u64 = 64 << 10;
/// Files that are asked for ahead of a program that reads those of a directory in the order of its listing.
const SCAN: usize = 32;
/// How long their names then need no new question.
const SCAN_VALID: u64 = 20_000_000;
/// Files that a program has asked for in that order before.
const SCAN_MIN: u32 = 3;

/// A request for a part of a directory's names.
fn read_directory(offset: u64) -> Body {
    Body::default().longs(&[NO_HANDLE, offset]).words(&[DATA_MAX as u32, 0]).longs(&[0]).words(&[0, 0])
}

impl Files {
    /// Queues the requests for what the running call misses. Returns the number of the request on whose answer it waits.
    pub fn request_misses(&mut self, now: u64) -> Option<u64> {
        let mut last = self.mounts.take_awaited();
        for miss in self.mounts.take_misses() {
            last = self.request_miss(miss, now).or(last);
        }
        last
    }

    fn request_miss(&mut self, miss: CacheMiss, now: u64) -> Option<u64> {
        let id = match &miss {
            CacheMiss::Name(id, _)
            | CacheMiss::Attributes(id)
            | CacheMiss::Listing(id)
            | CacheMiss::Content(id, ..)
            | CacheMiss::Target(id)
            | CacheMiss::Handle(id) => *id,
            CacheMiss::Writes(of) => {
                let is_awaited = |purpose: &Purpose| matches!(purpose, Purpose::Write(id, _) if of.is_none_or(|of| of == *id));
                return self.mounts.requests.iter().rev().find(|(_, (_, purpose))| is_awaited(purpose)).map(|(unique, _)| *unique);
            }
        };
        let live = self.tree.node(id).ok()?.live.as_deref()?;
        let (mount, nodeid) = (live.mount, live.nodeid);
        let mounts = &mut self.mounts;
        Some(match &miss {
            CacheMiss::Name(directory, name) => {
                let last = self.request_file((mount, nodeid), *directory, name, Validity { at: now, until: 0 });
                self.prefetch_names((mount, nodeid), *directory, name, now);
                return Some(last);
            }
            CacheMiss::Attributes(_) => {
                mounts.request(mount, FUSE_GETATTR, nodeid, &Body::default().longs(&[0, 0]), Purpose::Cache(miss, now))
            }
            CacheMiss::Listing(_) => {
                mounts.request(mount, FUSE_READDIRPLUS, nodeid, &read_directory(0), Purpose::Listing(id, BTreeSet::new(), now))
            }
            CacheMiss::Target(_) => mounts.request(mount, FUSE_READLINK, nodeid, &Body::default(), Purpose::Cache(miss, now)),
            CacheMiss::Content(_, offset, length) => {
                let last = self.request_content((mount, nodeid), id, *offset, *length, now);
                self.prefetch_content(mount, id, now);
                return last;
            }
            CacheMiss::Handle(_) | CacheMiss::Writes(_) => return None,
        })
    }

    /// Queues the requests for files that a program will ask for next: if it has asked for files of a directory in the order of their
    /// listing, those that follow `name`.
    fn prefetch_names(&mut self, server: (u8, u64), directory: NodeId, name: &[u8], now: u64) {
        let number = self.tree.node(directory).ok().and_then(|node| node.directory().ok()?.number(name));
        let Some(number) = number else { return self.mounts.named = None };
        let before = self.mounts.named.filter(|before| before.directory == directory);
        if before.is_some_and(|before| before.number == number) {
            return;
        }
        let follows = |before: &Scan| number == before.number + 1;
        let opened = before.filter(follows).map_or(0, |before| before.opened + 1);
        self.mounts.named = Some(Scan { directory, number, opened });
        if opened < SCAN_MIN {
            return;
        }
        let Ok(entries) = self.tree.node(directory).and_then(|node| node.directory()) else { return };
        let next: Vec<(u64, Box<[u8]>)> = entries.added(number + 1).take(SCAN).map(|(number, name, _)| (number, name.into())).collect();
        let valid = Validity { at: now, until: now.saturating_add(SCAN_VALID) };
        for (_, name) in &next {
            self.request_file(server, directory, name, valid);
        }
        if let Some((last, _)) = next.last() {
            self.mounts.named = Some(Scan { directory, number: *last, opened });
        }
    }

    /// Queues the requests for a name, and for its content if it is a small file. Returns the number of the last one.
    fn request_file(&mut self, (mount, nodeid): (u8, u64), directory: NodeId, name: &[u8], valid: Validity) -> u64 {
        let known = self.tree.node(directory).ok().and_then(|node| match node.directory().ok()?.get(name) {
            Dentry::Positive(InodeRef::Node(id)) => Some(id),
            _ => None,
        });
        let entry = known.and_then(|id| self.tree.node(id).ok()?.live.as_deref()?.entry.as_ref().map(|(.., entry)| *entry));
        // A listing has brought attributes that hold longer.
        let first = if valid.until > 0 && entry.is_some_and(|entry| entry.until > valid.until) {
            0
        } else {
            let purpose = Purpose::Name(CacheMiss::Name(directory, name.into()), valid);
            self.mounts.request(mount, FUSE_LOOKUP, nodeid, &Body::default().string(name), purpose)
        };
        let content = known.and_then(|id| {
            let node = self.tree.node(id).ok()?;
            let (size, nodeid) = (node.content().ok()?.size(), node.live.as_deref()?.nodeid);
            let missing = node.content().ok()?.missing(0..size).filter(|_| size <= SMALL)?;
            self.request_content((mount, nodeid), id, missing.start, missing.end - missing.start, valid.at)
        });
        content.unwrap_or(first)
    }

    /// The same for a small file whose content is asked for.
    fn prefetch_content(&mut self, mount: u8, id: NodeId, now: u64) {
        let Some(live) = self.tree.node(id).ok().and_then(|node| node.live.as_deref()) else { return };
        if live.size() > SMALL {
            return;
        }
        let Some((directory, name, _)) = live.entry.clone() else { return };
        let above = self.tree.node(directory).ok().and_then(|node| node.live.as_deref()).map(|live| live.nodeid);
        if let Some(above) = above {
            self.prefetch_names((mount, above), directory, &name, now);
        }
    }

    /// Queues requests for a part of a file, in whole pages.
    fn request_content(&mut self, (mount, nodeid): (u8, u64), id: NodeId, offset: u64, length: u64, now: u64) -> Option<u64> {
        // Whole pages: the file may have grown.
        let end = offset.saturating_add(length.min(AHEAD)).next_multiple_of(PAGE);
        let (mut at, mut last) = (offset, None);
        while at < end {
            let size = (end - at).min(DATA_MAX as u64);
            let body = Body::default().longs(&[NO_HANDLE, at]).words(&[size as u32, 0]).longs(&[0]).words(&[0, 0]);
            last = Some(self.mounts.request(mount, FUSE_READ, nodeid, &body, Purpose::Cache(CacheMiss::Content(id, at, size), now)));
            at += size;
        }
        last
    }

    /// Takes the answers that have come.
    pub fn take_answers(&mut self) {
        if self.mounts.list.iter().all(|mount| mount.is_dead) {
            return;
        }
        let (messages, is_open) = self.mounts.receive();
        for message in messages {
            let (mount, message) = (word(&message, 0), &message[4..]);
            match u8::try_from(mount) {
                Ok(mount) => self.take_answer(mount, message),
                Err(_) => self.mounts.synced.push_back(pando_rt::abi::channel::Answer { errno: word(message, 4) }),
            }
        }
        if !is_open {
            self.mounts.disconnect();
        }
        // The answers make room for more writes.
        self.write_back();
        self.mounts.send();
    }

    fn take_answer(&mut self, mount: u8, message: &[u8]) {
        let (unique, error) = answer_header(message);
        let body = message.get(OUT_HEADER..).unwrap_or_default();
        match (unique, error) {
            (0, PANDO_NOTIFY_CHANGE) => return self.take_change(mount, body),
            (0, PANDO_NOTIFY_END) => {
                if let Some(dead) = self.mounts.list.get_mut(usize::from(mount)) {
                    dead.is_dead = true;
                }
                return self.mounts.fail_requests(Some(mount));
            }
            _ => {}
        }
        // An answer that nobody has asked for.
        let Some((of, purpose)) = self.mounts.requests.remove(&unique) else { return };
        if of != mount {
            return;
        }
        let outcome = match error {
            0 => Ok(body),
            error => Err(Errno::from_number(error.unsigned_abs())
                .filter(|error| !matches!(error, Errno::WAITS | Errno::QUEUED))
                .unwrap_or(Errno::EIO)),
        };
        match purpose {
            Purpose::Nothing => {}
            Purpose::Call(thread, key, names) => {
                let outcome = Outcome { key, answer: outcome.map(Vec::from), names, at: clock::now() };
                self.mounts.outcomes.insert(thread, outcome);
            }
            Purpose::Write(id, length) => {
                // The rest of a short write found no space.
                let is_whole = |answer: &[u8]| length == 0 || word(answer, 0) >= length;
                self.take_written(id, outcome.map_or_else(Some, |answer| (!is_whole(answer)).then_some(Errno::ENOSPC)));
            }
            // The listing goes on with a new request, and the call waits for its last one.
            Purpose::Listing(id, names, at) => return self.take_listing(unique, id, names, at, outcome),
            Purpose::Cache(miss, at) => self.take_cached(miss, Validity { at, until: 0 }, outcome),
            Purpose::Name(miss, valid) => self.take_cached(miss, valid, outcome),
        }
        self.mounts.answered.push(unique);
    }

    fn take_cached(&mut self, miss: CacheMiss, valid: Validity, outcome: Result<&[u8], Errno>) {
        match miss {
            CacheMiss::Name(directory, name) if self.mounts.is_changing(directory, &name, clock::now()) => {
                self.confirm_name(directory, name, valid);
            }
            CacheMiss::Name(directory, name) => {
                let entered = match outcome.map(ServerEntry::parse) {
                    Ok(Some(entry)) if entry.nodeid != 0 => self.insert_entry(directory, &name, &entry, valid).map(drop),
                    Ok(_) => Err(Errno::ENOENT),
                    Err(error) => Err(error),
                };
                if let Err(error) = entered {
                    self.remove_entry(directory, &name);
                    self.mounts.note_missing(directory, name, error, valid.at);
                }
            }
            CacheMiss::Attributes(id) => match outcome.ok().and_then(Attributes::of_answer) {
                Some(attributes) => self.set_attributes(id, &attributes, valid),
                // The last ones stay: the file is gone, or its server fails at the next call.
                None => {
                    if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
                        live.checked = valid;
                    }
                }
            },
            CacheMiss::Target(id) => {
                if let Ok(node) = self.tree.node_mut(id) {
                    node.body = NodeBody::Symlink(outcome.ok().filter(|target| !target.is_empty()).unwrap_or(b"?").into());
                }
            }
            CacheMiss::Content(id, offset, length) => {
                if let Ok(content) = self.tree.node_mut(id).and_then(|node| node.content_mut()) {
                    content.fill(offset, length, outcome);
                }
            }
            CacheMiss::Listing(_) | CacheMiss::Handle(_) | CacheMiss::Writes(_) => {}
        }
    }

    /// Confirms the state of a name in the cache: present, or missing.
    fn confirm_name(&mut self, directory: NodeId, name: Box<[u8]>, valid: Validity) {
        let found = self.tree.node(directory).and_then(|node| Ok(node.directory()?.get(&name)));
        let Ok(Dentry::Positive(InodeRef::Node(id))) = found else {
            return self.mounts.note_missing(directory, name, Errno::ENOENT, valid.at);
        };
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.entry = Some((directory, name, valid));
        }
    }

    fn take_listing(&mut self, unique: u64, id: NodeId, mut names: BTreeSet<Box<[u8]>>, at: u64, outcome: Result<&[u8], Errno>) {
        let (entries, next) = match outcome {
            Ok(answer) => listing(answer),
            Err(error) => {
                self.fail_listing(id, error);
                return self.mounts.answered.push(unique);
            }
        };
        let (is_complete, now) = (next == 0, clock::now());
        let valid = Validity { at, until: at.saturating_add(ENTRY_VALID) };
        for (name, entry) in entries {
            if !self.mounts.is_changing(id, &name, now) {
                match self.insert_entry(id, &name, &entry, valid) {
                    // Something of the cell is mounted there.
                    Ok(_) | Err(Errno::EBUSY) => {}
                    // Without memory for a name, there is no listing.
                    Err(error) => self.fail_listing(id, error),
                }
            }
            names.insert(name);
        }
        let Some(live) = self.tree.node(id).ok().and_then(|node| node.live.as_deref()) else { return self.mounts.answered.push(unique) };
        let (mount, nodeid) = (live.mount, live.nodeid);
        if !is_complete {
            // It takes the place of the answered request, so that the call waits for the whole.
            let next = self.mounts.request(mount, FUSE_READDIRPLUS, nodeid, &read_directory(next), Purpose::Nothing);
            self.mounts.requests.remove(&next);
            self.mounts.renumber_last(unique);
            self.mounts.requests.insert(unique, (mount, Purpose::Listing(id, names, at)));
            return;
        }
        let known: Vec<Box<[u8]>> = self.tree.node(id).and_then(|node| node.directory()).map_or_else(
            |_| Vec::new(),
            |directory| directory.added(0).filter(|(_, name, _)| !names.contains(*name)).map(|(_, name, _)| name.into()).collect(),
        );
        for name in known {
            if !self.mounts.is_changing(id, &name, now) {
                self.remove_entry(id, &name);
            }
        }
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.listed = valid;
        }
        self.mounts.answered.push(unique);
    }

    /// Keeps the error of a listing for the call that has asked for it.
    fn fail_listing(&mut self, id: NodeId, error: Errno) {
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            live.listing_error.set(Some(error));
        }
    }

    /// Takes over a change that others made: tells it to watches, and lets the cache ask again.
    fn take_change(&mut self, mount: u8, body: &[u8]) {
        let (nodeid, mask, cookie, name) = (long(body, 0), word(body, 8), word(body, 12), body.get(16..).unwrap_or_default());
        let Some(nodes) = self.mounts.list.get(usize::from(mount)).map(|mount| &mount.nodes) else { return };
        if mask & IN_Q_OVERFLOW != 0 {
            let all: Vec<NodeId> = nodes.values().copied().collect();
            all.into_iter().for_each(|id| self.expire(id));
            return self.notify_overflow();
        }
        let Some(id) = nodes.get(&nodeid).copied() else { return };
        self.expire(id);
        self.notify_outside(InodeRef::Node(id), name, mask, cookie);
    }

    /// Lets the cache ask for the attributes and the listing of a file again.
    fn expire(&mut self, id: NodeId) {
        if let Some(live) = self.tree.node_mut(id).ok().and_then(|node| node.live.as_deref_mut()) {
            (live.checked, live.listed) = (Validity { at: live.checked.at, until: 0 }, Validity { at: live.listed.at, until: 0 });
        }
    }
}
