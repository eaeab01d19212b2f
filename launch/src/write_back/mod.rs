// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing back: what a cell says about its exports becomes so on the host, each file atomically.
//!
//! The cell is hostile: it controls every byte of every record. So records are of bounded length, names are checked and resolved below the export without following any
//! link ([`place`]), and what the host would regret (devices, set-user-id bits, other owners) cannot even be said. The worst that a cell can do is what its
//! operator allowed: change whatever lies in the export.

mod leftovers;
mod place;
mod quota;
mod replace;
mod stream;
#[cfg(test)]
mod tests;

pub use place::Export;

use pando_abi::channel::{Answer, Entry, Header, Kind, MAX_PATH};
use pando_image::{Replaced, escaped};
use pando_kernel::ConsolePort;
use place::Place;
use quota::Quota;
use replace::Replacement;
use rustix::fs::{Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use stream::Incoming;

/// The bits of a mode that lend a program to whoever owns its file: nothing that a cell may give away.
const SET_ID: u32 = 0o6000;
/// Failures that are told one by one; the others are only counted.
const TOLD: usize = 10;

/// Why something is not on the host as the cell has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was not written: the host, or the cell itself, said no.
    Refused(Errno),
    /// It was written without its set-user-ID and set-group-ID.
    WithoutSetId,
}

/// Something that could not be written back as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The number of the export.
    pub export: u32,
    /// The path in it, with everything escaped that a terminal might obey.
    pub path: String,
    /// Why.
    pub why: Why,
}

/// What came of writing back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What could not be written: the first few.
    pub failures: Vec<Failed>,
    /// How many there were in all.
    pub failed: u64,
    /// Why nothing more was written back at all, if that is so.
    pub stopped: Option<&'static str>,
}

impl Report {
    fn note(&mut self, export: u32, path: &[u8], why: Why) {
        self.failed += 1;
        if self.failures.len() < TOLD {
            let path = escaped(OsStr::from_bytes(path));
            self.failures.push(Failed { export, path, why });
        }
    }
}

/// A thread that writes back what a cell says, until the cell has ended.
#[derive(Debug)]
pub struct WriteBack {
    thread: JoinHandle<Report>,
}

impl WriteBack {
    /// Starts it. The cell knows the exports by their place in this list. What is replaced or removed is kept readable for images. All exports together grow by `most` bytes at most.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(channel: Arc<ConsolePort>, exports: Vec<Export>, replaced: Arc<Replaced>, most: u64) -> std::io::Result<WriteBack> {
        let body = move || {
            let report = obey(exports, replaced, most, Incoming::new(&channel), |answer| channel.send(answer));
            // Whoever still waits for an answer learns that none comes. What else is said is taken and forgotten, so that the cell goes on.
            channel.close_input();
            while channel.receive().is_some() {}
            report
        };
        Ok(WriteBack { thread: std::thread::Builder::new().name("write back".into()).spawn(body)? })
    }

    /// Waits until all that the cell said is done; call it when the cell has ended.
    #[must_use]
    pub fn finish(self) -> Report {
        let fault = "writing back has failed: this is a fault in Pando";
        self.thread.join().unwrap_or_else(|_| Report { stopped: Some(fault), ..Report::default() })
    }
}

/// Does what a cell says, byte for byte, until nothing more comes; all exports together grow by `most` bytes at most. `answer` takes the answers, and says whether anybody still listens.
pub fn obey(exports: Vec<Export>, replaced: Arc<Replaced>, most: u64, said: impl Read, mut answer: impl FnMut(&[u8]) -> bool) -> Report {
    let mut writer = Writer::new(exports, replaced, most);
    if writer.serve(said, |given| answer(&given.to_bytes())).is_err() {
        writer.report.stopped = Some("the cell sent what makes no sense: nothing more is written back");
    }
    writer.report
}

/// The cell said what no libOS says.
#[derive(Debug)]
struct Nonsense;

struct Writer {
    exports: Vec<Export>,
    replaced: Arc<Replaced>,
    quota: Quota,
    /// The file that is being received; `None` as well if it has failed, so that its data goes nowhere.
    file: Option<Replacement>,
    /// The first error since the last answer.
    error: Option<Errno>,
    report: Report,
}

/// A record's entry, its path, and what follows.
struct Named<'a> {
    entry: Entry,
    path: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Named<'a> {
    fn parse(body: &'a [u8]) -> Result<Named<'a>, Nonsense> {
        let (entry, rest) = body.split_first_chunk().ok_or(Nonsense)?;
        let entry = Entry::from_bytes(*entry);
        let length = entry.path_length as usize;
        if length > MAX_PATH {
            return Err(Nonsense);
        }
        let (path, rest) = rest.split_at_checked(length).ok_or(Nonsense)?;
        Ok(Named { entry, path, rest })
    }

    /// Why the cell cannot say what it has there.
    fn lost(&self) -> Errno {
        let number = i32::try_from(self.entry.size).ok().filter(|number| (1..=Errno::HWPOISON.raw_os_error()).contains(number));
        number.map_or(Errno::INVAL, Errno::from_raw_os_error)
    }

    fn times(&self) -> Result<Timestamps, Errno> {
        if self.entry.modified_nanoseconds >= 1_000_000_000 {
            return Err(Errno::INVAL);
        }
        let time = Timespec { tv_sec: self.entry.modified_seconds, tv_nsec: self.entry.modified_nanoseconds.into() };
        let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Ok(Timestamps { last_access: untouched, last_modification: time })
    }
}

impl Writer {
    fn new(exports: Vec<Export>, replaced: Arc<Replaced>, most: u64) -> Writer {
        Writer { exports, replaced, quota: Quota::new(most), file: None, error: None, report: Report::default() }
    }

    /// Does what is said until nothing more is. `answer` says whether anybody still listens.
    fn serve(&mut self, mut incoming: impl Read, mut answer: impl FnMut(Answer) -> bool) -> Result<(), Nonsense> {
        let mut body = Vec::new();
        loop {
            let mut head = [0; Header::SIZE];
            // A cell that ends in the middle of a record has said nothing.
            if incoming.read_exact(&mut head).is_err() {
                return Ok(());
            }
            let header = Header::from_bytes(head).ok_or(Nonsense)?;
            body.resize(header.length as usize, 0);
            if incoming.read_exact(&mut body).is_err() {
                return Ok(());
            }
            self.record(header.kind, &body)?;
            if header.kind == Kind::Sync && !answer(self.answer()) {
                return Ok(());
            }
        }
    }

    fn record(&mut self, kind: Kind, body: &[u8]) -> Result<(), Nonsense> {
        match kind {
            Kind::Data => {
                let (offset, bytes) = body.split_first_chunk().ok_or(Nonsense)?;
                self.with_file(|file| file.write(u64::from_le_bytes(*offset), bytes).map(|()| Some(file)));
            }
            Kind::Close => {
                let replaced = Arc::clone(&self.replaced);
                self.with_file(|file| file.finish(&replaced).map(|()| None));
            }
            Kind::Sync => {}
            Kind::File | Kind::Directory | Kind::Symlink | Kind::Remove | Kind::Lost => {
                let named = Named::parse(body)?;
                // One that was not complete never will be.
                self.file = None;
                let done = self.named(kind, &named);
                self.note(named.entry.export, named.path, done);
            }
        }
        Ok(())
    }

    /// Does something with the file that is being received.
    fn with_file(&mut self, action: impl FnOnce(Replacement) -> Result<Option<Replacement>, Errno>) {
        let Some(file) = self.file.take() else { return };
        let (export, path) = (file.export(), file.path().to_vec());
        let done = action(file).map(|file| self.file = file);
        self.note(export, &path, done);
    }

    fn named(&mut self, kind: Kind, named: &Named<'_>) -> Result<(), Errno> {
        if kind == Kind::Lost {
            return Err(named.lost());
        }
        let times = named.times()?;
        let export = self.exports.get(named.entry.export as usize).ok_or(Errno::INVAL)?;
        let place = Place::find(export, named.path)?;
        // What fails later stays charged: who makes it fail must not get more than others.
        match kind {
            Kind::File => self.quota.charge(named.entry.size, place.look()?)?,
            Kind::Directory | Kind::Symlink => self.quota.charge(0, place.look()?)?,
            _ => {}
        }
        match kind {
            Kind::File => {
                self.file = Some(Replacement::begin(place, named.path, &named.entry, times)?);
                if named.entry.permissions & SET_ID != 0 {
                    self.error.get_or_insert(Errno::PERM);
                    self.report.note(named.entry.export, named.path, Why::WithoutSetId);
                }
            }
            Kind::Directory => place.make_directory(named.entry.permissions, &times)?,
            Kind::Symlink => replace::symlink(place, named.rest, &times, &self.replaced)?,
            _ => {
                let before = place.look()?;
                place.remove(&self.replaced)?;
                self.quota.credit(before);
            }
        }
        Ok(())
    }

    fn note(&mut self, export: u32, path: &[u8], done: Result<(), Errno>) {
        if let Err(errno) = done {
            self.error.get_or_insert(errno);
            self.report.note(export, path, Why::Refused(errno));
        }
    }

    fn answer(&mut self) -> Answer {
        // Linux's numbers are positive.
        Answer { errno: self.error.take().map_or(0, |errno| errno.raw_os_error().unsigned_abs()) }
    }
}
