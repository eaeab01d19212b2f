// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/cells`: the calls of a process in a cell about nested cells.

mod family;

use pando_abi::cell_image::{ImageRecord, RECORD_WORDS};
use pando_abi::cells_device::{BATCH, BATCH_WORDS, CALL, CALL_WORDS, PATH};
use pando_abi::holding::{ChildState, ConsoleReadResult, DonationEnd, fact, port};
use pando_abi::hypercall;
use pando_abi::limits::{MAX_BATCH_CALLS, MAX_CONSOLE_BYTES, MAX_SWAP_PAGES, MAX_WRITE_BYTES};
use pando_abi::memory::TakenPages;
use pando_abi::{Event, HoldingName, Hypercall, PAGE_SIZE, Refusal};
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;
use vmm_sys_util::ioctl::ioctl_with_mut_ref;

/// An open `/dev/cells`. Closing it ends the children that were made through it.
#[derive(Debug)]
pub struct CellsDevice {
    file: File,
}

/// A call that the kernel refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action}: {reason}")]
struct Refused {
    action: &'static str,
    reason: Cow<'static, str>,
}

/// The action of errors about new children.
const MAKE: &str = "make a nested cell";

/// The error of a call that the kernel refuses.
fn refused(action: &'static str, call: Hypercall, refusal: Refusal) -> Error {
    // A call that the cell's state does not allow may be repeated later.
    let kind = if refusal == Refusal::WrongState { ErrorKind::WouldBlock } else { ErrorKind::Other };
    Error::new(kind, Refused { action, reason: reason_of(call, refusal) })
}

/// A child to make.
#[derive(Clone, Copy, Debug)]
pub struct NewChild<'a> {
    /// The held cell that it is a clone of.
    pub source: HoldingName,
    /// Pages that it may use.
    pub quota: u64,
    /// Descendants that it may have.
    pub cells: u32,
    /// The root that it may clone.
    pub root: Option<HoldingName>,
    /// Bytes to write, and their address in the child.
    pub arguments: (u64, &'a [u8]),
    /// Its limits, each with its kind ([`pando_abi::holding::limit`]).
    pub limits: &'a [(u64, u64)],
    /// Its host name.
    pub name: Option<&'a [u8]>,
    /// Whether it is started.
    pub is_started: bool,
}

impl NewChild<'_> {
    /// The calls that make it, in order.
    fn calls(&self) -> Vec<Hypercall> {
        let (cell, space) = (HoldingName::NEWEST.bits(), HoldingName::NEWEST.current_space());
        let (start, arguments) = self.arguments;
        let pieces = arguments.chunks(MAX_WRITE_BYTES as usize).zip((start..).step_by(MAX_WRITE_BYTES as usize));
        let address_of = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
        let write =
            |(piece, address): (&[u8], u64)| Hypercall::Write { space, address, source: address_of(piece), bytes: piece.len() as u64 };
        [Hypercall::CellClone { source: self.source.bits(), quota: self.quota, cells: self.cells.into() }]
            .into_iter()
            .chain(self.root.map(|root| Hypercall::Grant { cell, holding: root.bits(), label: 0 }))
            .chain(pieces.map(write))
            .chain(self.limits.iter().map(|(kind, value)| Hypercall::CellLimit { cell, kind: *kind, value: *value }))
            .chain(self.name.map(|name| Hypercall::CellName { cell, address: address_of(name), bytes: name.len() as u64 }))
            .chain(self.is_started.then_some(Hypercall::CellRun { cell }))
            .collect()
    }
}

/// The reason for the refusal of a call, and what to do.
fn reason_of(call: Hypercall, refusal: Refusal) -> Cow<'static, str> {
    Cow::Borrowed(match refusal {
        Refusal::NoMoreCells => "this cell, or one around it, has as many as it may: end some, or start it with a larger --nest",
        Refusal::Quota => "the memory of this cell, or of one around it, is used up: end other cells, or give it more with --memory",
        Refusal::NoMemory => "the machine has no memory left: end other cells",
        Refusal::TooMany => match call {
            Hypercall::CellClone { .. } => "there are too many cells, or too many levels of them: end some",
            Hypercall::StateRead { .. } => "it is larger than one call can return: end some of the cell's processes or cells",
            _ => return clause(refusal.cause()),
        },
        Refusal::BadArgument if matches!(call, Hypercall::CellClone { .. } | Hypercall::CellLimit { .. }) => {
            "a limit is out of range: a cell needs at least 1 MiB of memory"
        }
        Refusal::NoSuchHolding => "it has ended, or this cell was given none",
        refusal => return clause(refusal.cause()),
    })
}

/// A sentence as a clause: without its capital and its full stop.
fn clause(sentence: &str) -> Cow<'static, str> {
    let sentence = sentence.trim().trim_end_matches('.');
    let (first, rest) = sentence.split_at(sentence.len().min(1));
    Cow::Owned(first.to_ascii_lowercase() + rest)
}

/// Memory for the content of pages that move between a child and this process.
#[derive(Debug)]
pub struct PageBuffer {
    bytes: Vec<u8>,
    /// The first page boundary in it.
    start: usize,
}

impl Default for PageBuffer {
    fn default() -> PageBuffer {
        let bytes = vec![0; PageBuffer::BYTES + PAGE_SIZE as usize];
        let start = bytes.as_ptr().align_offset(PAGE_SIZE as usize);
        PageBuffer { bytes, start }
    }
}

impl PageBuffer {
    /// Bytes that one call can move.
    pub const BYTES: usize = (MAX_SWAP_PAGES * PAGE_SIZE) as usize;

    /// The content, which begins at a page.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..PageBuffer::BYTES]
    }

    /// The content, to change it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..PageBuffer::BYTES]
    }

    fn address(&self) -> u64 {
        self.bytes().as_ptr().expose_provenance() as u64
    }
}

/// The result of a read of a child's console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleRead {
    /// There is no output yet.
    Nothing,
    /// This many bytes of standard output.
    Output(usize),
    /// This many bytes of standard error.
    Errors(usize),
    /// This many bytes of notes to the operator.
    Notes(usize),
    /// The child has ended, and all its output was read.
    End,
}

impl CellsDevice {
    /// Opens the device. `None`: this process runs in no cell, or in one that may have no descendants.
    ///
    /// # Errors
    /// The device exists, but cannot be opened.
    pub fn open() -> Result<Option<CellsDevice>> {
        match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(PATH) {
            Ok(file) => Ok(Some(CellsDevice { file })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The device does not allow the call. The inner error: the kernel refuses it.
    fn call(&self, call: Hypercall) -> Result<std::result::Result<u64, Refusal>> {
        let mut words = [0_u64; CALL_WORDS];
        words[..CALL_WORDS - 1].copy_from_slice(&call.record());
        // SAFETY: the request reads and writes these words, which are live and exclusively ours. It may also write a buffer that the caller
        // of this private function holds exclusively, and whose address stands in the call.
        let done = unsafe { ioctl_with_mut_ref(&self.file, CALL.into(), &mut words) };
        if done != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Refusal::from_result(words[CALL_WORDS - 1]))
    }

    /// Makes calls at one exit, up to the first that is refused. Returns how many were made, and the name of the child that they made.
    /// The inner error: the kernel refuses the first.
    ///
    /// # Errors
    /// The device does not allow one of the calls.
    fn batch(&self, calls: &[Hypercall]) -> Result<std::result::Result<(usize, Option<HoldingName>), Refusal>> {
        let records: Vec<[u64; hypercall::RECORD_WORDS]> = calls.iter().map(|call| call.record()).collect();
        let mut words: [u64; BATCH_WORDS] = [records.as_ptr().expose_provenance() as u64, records.len() as u64, 0];
        // SAFETY: the request reads the records and reads and writes these words, all of them live; the words are exclusively ours. The
        // calls read memory that callers of this private function hold, and write none.
        let done = unsafe { ioctl_with_mut_ref(&self.file, BATCH.into(), &mut words) };
        if done != 0 {
            return Err(Error::last_os_error());
        }
        let result = Refusal::from_result(words[BATCH_WORDS - 1]);
        Ok(result.map(|result| (result as u32 as usize, HoldingName::from_bits(result >> 32))))
    }

    /// Makes a child as it is described.
    ///
    /// # Errors
    /// There are too many cells, there is not enough memory, or a part of the description is refused; then there is no child.
    pub fn make_child(&self, new: &NewChild<'_>) -> Result<HoldingName> {
        let (calls, mut child) = (new.calls(), None);
        let mut made = || {
            for calls in calls.chunks(MAX_BATCH_CALLS as usize) {
                let of_child = |call: &Hypercall| child.map_or(*call, |child| call.for_newest(child));
                let calls: Vec<Hypercall> = calls.iter().map(of_child).collect();
                let (done, newest) = self.batch(&calls)?.map_err(|refusal| refused(MAKE, calls[0], refusal))?;
                child = child.or(newest);
                let child = child.ok_or_else(|| Error::other("the kernel has returned an invalid name of a cell"))?;
                // A call that was refused in the batch is refused again, now with the reason.
                calls[done..].iter().try_for_each(|call| self.perform(MAKE, call.for_newest(child)).map(drop))?;
            }
            Ok(())
        };
        let result: Result<()> = made();
        match (result, child) {
            (Ok(()), Some(child)) => Ok(child),
            (Ok(()), None) => Err(Error::other("the kernel has made no cell")),
            (Err(error), child) => {
                // Its name is gone with it.
                let _ = child.map(|child| self.give_up(child));
                Err(error)
            }
        }
    }

    /// Makes a call whose refusal is an error for people.
    fn perform(&self, action: &'static str, call: Hypercall) -> Result<u64> {
        self.call(call)?.map_err(|refusal| refused(action, call, refusal))
    }

    /// Clones a held cell, at first the root ([`HoldingName::ROOT`]). The clone may use `quota` pages and have `cells` descendants, within
    /// what this cell and its ancestors may.
    ///
    /// # Errors
    /// There are too many cells, or there is not enough memory.
    pub fn clone_cell(&self, source: HoldingName, quota: u64, cells: u32) -> Result<HoldingName> {
        let name = self.perform(MAKE, Hypercall::CellClone { source: source.bits(), quota, cells: cells.into() })?;
        HoldingName::from_bits(name).ok_or_else(|| Error::other("the kernel has returned an invalid name of a cell"))
    }

    /// Lets a child clone the root ([`HoldingName::ROOT`]).
    ///
    /// # Errors
    /// There is no such child, or `root` is not the root.
    pub fn grant(&self, child: HoldingName, root: HoldingName) -> Result<()> {
        let call = Hypercall::Grant { cell: child.bits(), holding: root.bits(), label: 0 };
        self.perform("let a nested cell have cells of its own", call).map(drop)
    }

    /// Copies bytes to an address in a child.
    ///
    /// # Errors
    /// The child runs, or has nothing mapped there.
    pub fn write(&self, child: HoldingName, address: u64, bytes: &[u8]) -> Result<()> {
        self.write_space(child.current_space(), address, bytes)
    }

    /// Copies bytes out of a space of a child that is at rest; [`HoldingName::space`] names it. Returns how many there were before the
    /// first page that has none.
    ///
    /// # Errors
    /// The device does not allow it.
    pub fn read(&self, space: u64, address: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let address = address.wrapping_add(done as u64);
            let bytes = (PAGE_SIZE - address % PAGE_SIZE).min((buffer.len() - done) as u64);
            let target = buffer[done..].as_mut_ptr().expose_provenance() as u64;
            if self.call(Hypercall::Read { space, address, target, bytes })?.is_err() {
                break;
            }
            done += bytes as usize;
        }
        Ok(done)
    }

    /// Copies bytes to a space of a child that is at rest, whatever a program may write there.
    ///
    /// # Errors
    /// The child runs, or has nothing mapped there.
    pub fn write_space(&self, space: u64, mut address: u64, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(pando_abi::limits::MAX_WRITE_BYTES as usize) {
            let source = piece.as_ptr().expose_provenance() as u64;
            let call = Hypercall::Write { space, address, source, bytes: piece.len() as u64 };
            self.perform("write to a nested cell", call)?;
            address += piece.len() as u64;
        }
        Ok(())
    }

    /// Takes at most `pages` pages out of a halted child into `buffer`: the first ones at or after `address` of a space that nothing else
    /// holds. Their numbers begin with `swap`.
    ///
    /// # Errors
    /// The child is not halted, or the kernel refuses it.
    ///
    /// # Panics
    /// There are more pages than one call moves.
    pub fn take(&self, space: u64, address: u64, buffer: &mut PageBuffer, pages: u64, swap: u32) -> Result<TakenPages> {
        assert!(pages <= MAX_SWAP_PAGES, "the buffer has room for the pages");
        let target = buffer.bytes_mut().as_mut_ptr().expose_provenance() as u64;
        let call = Hypercall::Take { space, address, pages, buffer: target, swap: swap.into() };
        self.perform("take pages of a nested cell", call).map(TakenPages::from_bits)
    }

    /// Gives pages of a buffer to a halted child, as far as its pages from `address` on have the swap numbers from `swap` on. Returns their
    /// number. `None`: the memory of the child, or of a cell around it, is used up.
    ///
    /// # Errors
    /// The child is not halted, or the kernel refuses it.
    ///
    /// # Panics
    /// There are more pages than one call moves.
    pub fn give(&self, space: u64, address: u64, buffer: &PageBuffer, pages: u64, swap: u32) -> Result<Option<u64>> {
        assert!(pages <= MAX_SWAP_PAGES, "the buffer has the pages");
        let call = Hypercall::Give { space, address, pages, buffer: buffer.address(), swap: swap.into() };
        match self.call(call)? {
            Ok(count) => Ok(Some(count)),
            Err(Refusal::Quota) => Ok(None),
            Err(refusal) => Err(refused("give pages to a nested cell", call, refusal)),
        }
    }

    /// Copies pages of a child that was not started into a buffer.
    ///
    /// # Errors
    /// It was started, or has nothing mapped there.
    ///
    /// # Panics
    /// There are more pages than one call copies.
    pub fn read_pages(&self, space: u64, address: u64, buffer: &mut PageBuffer, pages: u64) -> Result<()> {
        assert!(pages <= MAX_SWAP_PAGES, "the buffer has room for the pages");
        let target = buffer.bytes_mut().as_mut_ptr().expose_provenance() as u64;
        let call = Hypercall::PagesRead { space, address, pages, buffer: target };
        self.perform("read pages of a nested cell", call).map(drop)
    }

    /// Copies pages of a buffer to a child that was not started, whatever a program may write there.
    ///
    /// # Errors
    /// It was started, or has nothing mapped there.
    ///
    /// # Panics
    /// There are more pages than one call copies.
    pub fn write_pages(&self, space: u64, address: u64, buffer: &PageBuffer, pages: u64) -> Result<()> {
        assert!(pages <= MAX_SWAP_PAGES, "the buffer has the pages");
        let call = Hypercall::PagesWrite { space, address, pages, buffer: buffer.address() };
        self.perform("write pages of a nested cell", call).map(drop)
    }

    /// Chooses the events that halt a child ([`pando_abi::watch::mask`]).
    ///
    /// # Errors
    /// There is no such child.
    pub fn watch(&self, child: HoldingName, mask: u64) -> Result<()> {
        self.perform("watch a nested cell", Hypercall::CellWatch { cell: child.bits(), mask }).map(drop)
    }

    /// Asks for a halt of a child: once [`CellsDevice::state`] returns it as halted, its state can be read. It may end instead.
    ///
    /// # Errors
    /// The device does not allow it.
    pub fn halt(&self, child: HoldingName) -> Result<()> {
        // It may have halted or ended by itself.
        self.call(Hypercall::CellStop { cell: child.bits(), how: 2 }).map(drop)
    }

    /// Lets a halted child continue ([`pando_abi::watch::resume`]).
    ///
    /// # Errors
    /// It is not halted.
    pub fn resume(&self, child: HoldingName, how: u64) -> Result<()> {
        self.perform("resume a nested cell", Hypercall::CellResume { cell: child.bits(), how }).map(drop)
    }

    /// Copies state of a halted child ([`pando_abi::watch::state`]). Returns the number of bytes.
    ///
    /// # Errors
    /// It is not halted.
    pub fn read_state(&self, child: HoldingName, kind: u64, buffer: &mut [u8]) -> Result<usize> {
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        let call = Hypercall::StateRead { cell: child.bits(), kind, address, bytes: buffer.len() as u64 };
        self.perform("read the state of a nested cell", call).map(|count| (count as usize).min(buffer.len()))
    }

    /// Sets state of a halted child.
    ///
    /// # Errors
    /// It is not halted, or no cell can have this state.
    pub fn write_state(&self, child: HoldingName, kind: u64, bytes: &[u8]) -> Result<()> {
        let address = bytes.as_ptr().expose_provenance() as u64;
        let call = Hypercall::StateWrite { cell: child.bits(), kind, address, bytes: bytes.len() as u64 };
        self.perform("set the state of a nested cell", call).map(drop)
    }

    /// Lists the memory of a child that was not started, from a position on, as records ([`pando_abi::cell_image`]): as its difference to
    /// that of another such child, if one is given. Returns the next position and the records.
    ///
    /// # Errors
    /// One of them was started, or there is no such child.
    pub fn list_image(&self, child: HoldingName, base: Option<HoldingName>, position: u64) -> Result<(u64, Vec<ImageRecord>)> {
        let mut words = vec![0_u64; MAX_CONSOLE_BYTES as usize / 8];
        let address = words.as_mut_ptr().expose_provenance() as u64;
        let base = base.map_or(0, HoldingName::bits);
        let call = Hypercall::ImageList { cell: child.bits(), base, position, address, bytes: MAX_CONSOLE_BYTES };
        let bytes = self.perform("list the memory of a nested cell", call)?;
        words.truncate(bytes as usize / 8);
        let invalid = || Error::other("the kernel has returned an invalid list of memory");
        let (next, records) = words.split_first().ok_or_else(invalid)?;
        let records = records.as_chunks::<RECORD_WORDS>().0.iter().map(|words| ImageRecord::from_words(*words).ok_or_else(invalid));
        Ok((*next, records.collect::<Result<_>>()?))
    }

    /// Sets the host name of a child that has not started.
    ///
    /// # Errors
    /// It was started, or the name is too long.
    pub fn set_name(&self, child: HoldingName, name: &str) -> Result<()> {
        let address = name.as_ptr().expose_provenance() as u64;
        self.perform("name a nested cell", Hypercall::CellName { cell: child.bits(), address, bytes: name.len() as u64 }).map(drop)
    }

    /// Sets a limit of a child ([`pando_abi::holding::limit`]).
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_limit(&self, child: HoldingName, kind: u64, value: u64) -> Result<()> {
        self.perform("limit a nested cell", Hypercall::CellLimit { cell: child.bits(), kind, value }).map(drop)
    }

    /// Runs a child with its descendants in place of this cell, for at most this CPU time. All programs of this cell wait meanwhile.
    ///
    /// # Errors
    /// There is no such child, or the time is 0.
    pub fn donate(&self, child: HoldingName, time: Duration) -> Result<DonationEnd> {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let end = self.perform("donate CPU time to a nested cell", Hypercall::Donate { cell: child.bits(), time })?;
        DonationEnd::from_bits(end).ok_or_else(|| Error::other("the kernel has returned an invalid end of a donation"))
    }

    /// Starts a child.
    ///
    /// # Errors
    /// It was started before.
    pub fn run(&self, child: HoldingName) -> Result<()> {
        self.perform("start a nested cell", Hypercall::CellRun { cell: child.bits() }).map(drop)
    }

    /// Raises an event for a child that has not ended; `value` is the window's size for [`Event::WindowSize`].
    ///
    /// # Errors
    /// The device does not allow it.
    pub fn raise(&self, child: HoldingName, event: Event, value: u64) -> Result<()> {
        // A child that has just ended needs no event.
        self.call(Hypercall::CellRaise { cell: child.bits(), event: event as u64, value }).map(drop)
    }

    /// Ends a child. Its state and its unread output stay.
    ///
    /// # Errors
    /// The device does not allow it.
    pub fn end(&self, child: HoldingName) -> Result<()> {
        // It may have ended by itself.
        self.call(Hypercall::CellEnd { cell: child.bits() }).map(drop)
    }

    /// Freezes a child, or withdraws that ([`pando_abi::holding::stop`]). The result is that of the call.
    ///
    /// # Errors
    /// It has ended, or was not started.
    pub fn stop(&self, child: HoldingName, how: u64) -> Result<u64> {
        self.perform("freeze a nested cell", Hypercall::CellStop { cell: child.bits(), how })
    }

    /// Gives up a child, which ends. Its name becomes stale.
    ///
    /// # Errors
    /// There is no such child.
    pub fn give_up(&self, child: HoldingName) -> Result<()> {
        self.perform("give up a nested cell", Hypercall::Drop { holding: child.bits() }).map(drop)
    }

    /// The state of a child.
    ///
    /// # Errors
    /// There is no such child.
    pub fn state(&self, child: HoldingName) -> Result<ChildState> {
        let state = self.fact(child, fact::STATE)?;
        ChildState::from_bits(state).ok_or_else(|| Error::other("the kernel has returned an invalid state of a cell"))
    }

    /// A fact about a child ([`pando_abi::holding::fact`]).
    ///
    /// # Errors
    /// There is no such child.
    pub fn fact(&self, child: HoldingName, fact: u64) -> Result<u64> {
        self.perform("look at a nested cell", Hypercall::CellState { cell: child.bits(), fact })
    }

    /// Reads output of a child from one of its ports ([`pando_abi::holding::port`]). Never waits.
    ///
    /// # Errors
    /// There is no such child, or its control channel cannot be opened any more.
    ///
    /// # Panics
    /// The buffer is empty.
    pub fn read_console(&self, child: HoldingName, port: u64, buffer: &mut [u8]) -> Result<ConsoleRead> {
        use pando_abi::ring::{ERRORS, OUTPUT};
        assert!(!buffer.is_empty(), "there is room for output");
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        let call = Hypercall::ConsoleRead { cell: child.bits(), address, bytes: buffer.len() as u64, port };
        Ok(match ConsoleReadResult::from_bits(self.perform("read from a nested cell", call)?) {
            ConsoleReadResult::Nothing => ConsoleRead::Nothing,
            ConsoleReadResult::End => ConsoleRead::End,
            ConsoleReadResult::Bytes { count, stream: OUTPUT } => ConsoleRead::Output((count as usize).min(buffer.len())),
            ConsoleReadResult::Bytes { count, stream: ERRORS } => ConsoleRead::Errors((count as usize).min(buffer.len())),
            ConsoleReadResult::Bytes { count, .. } => ConsoleRead::Notes((count as usize).min(buffer.len())),
        })
    }

    /// Closes an output stream of a child, by its tag, for reading: the child's writes to it fail as those to a pipe without a reader.
    ///
    /// # Errors
    /// There is no such child.
    pub fn close_stream(&self, child: HoldingName, stream: u32) -> Result<()> {
        let call = Hypercall::ConsoleRead { cell: child.bits(), address: stream.into(), bytes: 0, port: port::CONSOLE };
        self.perform("close a stream of a nested cell", call).map(drop)
    }

    /// Sends bytes to the input of a port of a child. Returns how many there was room for. Never waits.
    ///
    /// # Errors
    /// There is no such child, or its control channel cannot be opened any more.
    pub fn write_console(&self, child: HoldingName, port: u64, bytes: &[u8]) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let address = bytes.as_ptr().expose_provenance() as u64;
        let call = Hypercall::ConsoleWrite { cell: child.bits(), address, bytes: bytes.len() as u64, port };
        self.perform("write to a nested cell", call).map(|count| count as usize)
    }

    /// Ends the input of a child.
    ///
    /// # Errors
    /// There is no such child.
    pub fn close_input(&self, child: HoldingName) -> Result<()> {
        self.perform("write to a nested cell", Hypercall::ConsoleWrite { cell: child.bits(), address: 0, bytes: 0, port: port::CONSOLE })
            .map(drop)
    }

    /// Forgets the events so far: the device is readable again after the next one.
    ///
    /// # Errors
    /// The device does not allow it.
    pub fn forget_events(&self) -> Result<()> {
        match (&self.file).read(&mut [0; 8]) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for CellsDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::refused;
    use pando_abi::{Hypercall, Refusal};

    #[test]
    fn a_refusal_is_explained_for_the_call_that_was_refused() {
        let clone = Hypercall::CellClone { source: 0, quota: 0, cells: 0 };
        let read = Hypercall::StateRead { cell: 0, kind: 0, address: 0, bytes: 0 };
        let text = |call, refusal| refused("do it", call, refusal).to_string();
        assert!(text(clone, Refusal::TooMany).contains("too many levels") && text(clone, Refusal::BadArgument).contains("1 MiB"));
        assert!(text(read, Refusal::TooMany).contains("larger than one call can return"));
        assert!(!text(read, Refusal::BadArgument).contains("a limit is out of range"));
        assert_eq!(text(read, Refusal::WrongState), "cannot do it: the run state of the held cell does not allow the call");
    }
}
