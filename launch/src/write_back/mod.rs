// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write-back: applies a cell's changes of its exports to the host, each file atomically.
//!
//! The cell is not trusted: it controls every byte of every record. So records have bounded lengths, and names are checked and resolved
//! below the export without following any link ([`write_target`]). Devices, set-user-ID bits and other owners cannot be expressed. The
//! worst that a cell can do is what its operator allowed: change the files in the export.

mod quota;
mod replace;
mod stream;
mod temporary_files;
#[cfg(test)]
mod tests;
mod write_target;

pub use write_target::WritableVolume;

use pando_abi::channel::{Answer, ExportedFile, Header, Kind, MAX_PATH};
use pando_image::{Replaced, escaped};
use pando_kernel::ConsolePort;
use quota::Quota;
use replace::Replacement;
use rustix::fs::{Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use stream::ChannelReader;
use write_target::WriteTarget;

/// Set-user-ID and set-group-ID, which give the owner's rights to others: a cell must not set them.
const SET_ID: u32 = 0o6000;
/// Failures that are reported one by one; the others are only counted.
const REPORTED_MAX: usize = 10;

/// Why a file on the host differs from the cell's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// It was not written: the host refused it, or the cell reported an error.
    Refused(Errno),
    /// It was written without its set-user-ID and set-group-ID.
    WithoutSetId,
}

/// A file that could not be written back unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The number of the export.
    pub export: u32,
    /// The path in it, escaped for terminals.
    pub path: String,
    /// The reason.
    pub why: FailureReason,
}

/// The result of a write-back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBackReport {
    /// The first few failures.
    pub failures: Vec<WriteFailure>,
    /// The number of failures.
    pub failed: u64,
    /// Why the write-back stopped early, if it did.
    pub stopped: Option<&'static str>,
}

impl WriteBackReport {
    fn note(&mut self, export: u32, path: &[u8], why: FailureReason) {
        self.failed += 1;
        if self.failures.len() < REPORTED_MAX {
            let path = escaped(OsStr::from_bytes(path));
            self.failures.push(WriteFailure { export, path, why });
        }
    }
}

/// A thread that writes back a cell's changes, until the cell has ended.
#[derive(Debug)]
pub struct WriteBack {
    thread: JoinHandle<WriteBackReport>,
}

impl WriteBack {
    /// Starts the thread. The cell refers to exports by their index in this list. Replaced and removed files stay readable for images.
    /// All exports together may grow by `quota` bytes.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        channel: Arc<ConsolePort>,
        exports: Vec<WritableVolume>,
        replaced: Arc<Replaced>,
        quota: u64,
        mut servers: impl FileServers + 'static,
    ) -> std::io::Result<WriteBack> {
        let answers = AnswerSender { channel: Arc::clone(&channel), turn: Arc::default() };
        servers.start(answers.clone())?;
        let body = move || {
            let mut writer = Writer::new(exports, replaced, quota);
            let served = writer.serve(ChannelReader::new(&channel), |reply| answers.send(&reply.to_bytes()), &mut servers);
            let report = writer.finish(served);
            servers.end();
            // A waiting `sync` of the cell learns that no answer comes. Further records are discarded, so that the cell does not block.
            channel.close_input();
            while channel.receive().is_some() {}
            report
        };
        Ok(WriteBack { thread: std::thread::Builder::new().name("write back".into()).spawn(body)? })
    }

    /// Waits until all records are applied; call it when the cell has ended.
    #[must_use]
    pub fn finish(self) -> WriteBackReport {
        let fault = "the write-back failed: this is a bug in Pando";
        self.thread.join().unwrap_or_else(|_| WriteBackReport { stopped: Some(fault), ..WriteBackReport::default() })
    }
}

/// Sends a cell the answers on its channel, each whole.
#[derive(Clone)]
pub struct AnswerSender {
    channel: Arc<ConsolePort>,
    /// Held while an answer is sent: the channel may have room for a part only.
    turn: Arc<Mutex<()>>,
}

impl AnswerSender {
    /// Sends an answer; waits while the channel is full. `false`: the cell has ended.
    pub fn send(&self, answer: &[u8]) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.channel.send(answer)
    }
}

/// The file servers of a cell's live mounts, which get the cell's messages.
pub trait FileServers: Send {
    /// Begins to send the servers' answers, each with the index of its mount before it.
    ///
    /// # Errors
    /// No thread can be started.
    fn start(&mut self, answers: AnswerSender) -> std::io::Result<()>;

    /// Passes on a message. Never waits.
    fn send(&mut self, mount: u32, message: &[u8]);

    /// The cell sends no more.
    fn end(&mut self);
}

/// No file servers: the cell has no live mounts.
impl FileServers for () {
    fn start(&mut self, _answers: AnswerSender) -> std::io::Result<()> {
        Ok(())
    }

    fn send(&mut self, _mount: u32, _message: &[u8]) {}

    fn end(&mut self) {}
}

/// Applies the records in a stream of bytes to its end; all exports together may grow by `quota` bytes. `answer` receives the answers, and
/// returns whether the cell still reads them.
pub fn apply_records(
    exports: Vec<WritableVolume>,
    replaced: Arc<Replaced>,
    quota: u64,
    stream: impl Read,
    mut answer: impl FnMut(&[u8]) -> bool,
) -> WriteBackReport {
    let mut writer = Writer::new(exports, replaced, quota);
    let served = writer.serve(stream, |reply| answer(&reply.to_bytes()), &mut ());
    writer.finish(served)
}

/// A record that no libOS sends.
#[derive(Debug)]
struct ProtocolError;

struct Writer {
    exports: Vec<WritableVolume>,
    replaced: Arc<Replaced>,
    quota: Quota,
    /// The file that is being received; also `None` if it has failed, so that its data is discarded.
    file: Option<Replacement>,
    /// The bytes that it takes less than the file that it replaces.
    credit: u64,
    /// The first error since the last answer.
    error: Option<Errno>,
    report: WriteBackReport,
}

/// A record's entry, its path, and its payload.
struct NamedEntry<'a> {
    entry: ExportedFile,
    path: &'a [u8],
    rest: &'a [u8],
}

impl<'a> NamedEntry<'a> {
    fn parse(body: &'a [u8]) -> Result<NamedEntry<'a>, ProtocolError> {
        let (entry, rest) = body.split_first_chunk().ok_or(ProtocolError)?;
        let entry = ExportedFile::from_bytes(*entry);
        let length = entry.path_length as usize;
        if length > MAX_PATH {
            return Err(ProtocolError);
        }
        let (path, rest) = rest.split_at_checked(length).ok_or(ProtocolError)?;
        Ok(NamedEntry { entry, path, rest })
    }

    /// The error of a file that the cell cannot export.
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
    fn new(exports: Vec<WritableVolume>, replaced: Arc<Replaced>, quota: u64) -> Writer {
        Writer { exports, replaced, quota: Quota::new(quota), file: None, credit: 0, error: None, report: WriteBackReport::default() }
    }

    /// Applies records to the end. `answer` returns whether the cell still reads answers.
    fn serve(
        &mut self,
        mut incoming: impl Read,
        mut answer: impl FnMut(Answer) -> bool,
        servers: &mut impl FileServers,
    ) -> Result<(), ProtocolError> {
        let mut body = Vec::new();
        loop {
            let mut head = [0; Header::SIZE];
            // A record that the cell's end cut off is ignored.
            if incoming.read_exact(&mut head).is_err() {
                return Ok(());
            }
            let header = Header::from_bytes(head).ok_or(ProtocolError)?;
            body.resize(header.length as usize, 0);
            if incoming.read_exact(&mut body).is_err() {
                return Ok(());
            }
            if header.kind == Kind::Message {
                let (mount, message) = body.split_first_chunk().ok_or(ProtocolError)?;
                servers.send(u32::from_le_bytes(*mount), message);
                continue;
            }
            self.record(header.kind, &body)?;
            if header.kind == Kind::Sync && !answer(self.answer()) {
                return Ok(());
            }
        }
    }

    /// The report, once the stream has ended.
    fn finish(mut self, served: Result<(), ProtocolError>) -> WriteBackReport {
        if served.is_err() {
            self.report.stopped = Some("the cell sent a malformed record: nothing more is written back");
        }
        self.report
    }

    fn record(&mut self, kind: Kind, body: &[u8]) -> Result<(), ProtocolError> {
        match kind {
            Kind::Data => {
                let (offset, bytes) = body.split_first_chunk().ok_or(ProtocolError)?;
                self.with_file(|file| file.write(u64::from_le_bytes(*offset), bytes).map(|()| Some(file)));
            }
            Kind::Close => {
                let replaced = Arc::clone(&self.replaced);
                if self.with_file(|file| file.finish(&replaced).map(|()| None)) {
                    self.quota.credit(self.credit);
                }
            }
            Kind::Sync | Kind::Message => {}
            Kind::File | Kind::Directory | Kind::Symlink | Kind::Remove | Kind::Lost => {
                let named = NamedEntry::parse(body)?;
                // An incomplete file never becomes complete.
                self.file = None;
                let done = self.named(kind, &named);
                self.note(named.entry.export, named.path, done);
            }
        }
        Ok(())
    }

    /// Applies an operation to the file that is being received. Returns whether it succeeded.
    fn with_file(&mut self, action: impl FnOnce(Replacement) -> Result<Option<Replacement>, Errno>) -> bool {
        let Some(file) = self.file.take() else { return false };
        let (export, path) = (file.export(), file.path().to_vec());
        let done = action(file).map(|file| self.file = file);
        let has_succeeded = done.is_ok();
        self.note(export, &path, done);
        has_succeeded
    }

    fn named(&mut self, kind: Kind, named: &NamedEntry<'_>) -> Result<(), Errno> {
        if kind == Kind::Lost {
            return Err(named.lost());
        }
        let times = named.times()?;
        let export = self.exports.get(named.entry.export as usize).ok_or(Errno::INVAL)?;
        let destination = WriteTarget::find(export, named.path)?;
        // A record that fails later stays charged, so that failures cannot extend the quota.
        let credit = match kind {
            Kind::File => self.quota.charge(named.entry.size, destination.stat()?)?,
            Kind::Directory | Kind::Symlink => self.quota.charge(0, destination.stat()?)?,
            _ => quota::cost(destination.stat()?),
        };
        match kind {
            Kind::File => {
                self.file = Some(Replacement::begin(destination, named.path, &named.entry, times)?);
                self.credit = credit;
                if named.entry.permissions & SET_ID != 0 {
                    self.error.get_or_insert(Errno::PERM);
                    self.report.note(named.entry.export, named.path, FailureReason::WithoutSetId);
                }
            }
            Kind::Directory => {
                destination.make_directory(named.entry.permissions, &times)?;
                self.quota.credit(credit);
            }
            Kind::Symlink => {
                replace::symlink(destination, named.rest, &times, &self.replaced)?;
                self.quota.credit(credit);
            }
            _ => {
                destination.remove(&self.replaced)?;
                self.quota.credit(credit);
            }
        }
        Ok(())
    }

    fn note(&mut self, export: u32, path: &[u8], done: Result<(), Errno>) {
        if let Err(errno) = done {
            self.error.get_or_insert(errno);
            self.report.note(export, path, FailureReason::Refused(errno));
        }
    }

    fn answer(&mut self) -> Answer {
        // Linux's error numbers are positive.
        Answer { errno: self.error.take().map_or(0, |errno| errno.raw_os_error().unsigned_abs()) }
    }
}
