// SPDX-License-Identifier: MIT OR Apache-2.0
//! The destination of a migration: the connection to the source, which is the store of the program's pages.

use super::frame::{Frame, FrameStream, FrameType, PAYLOAD_MAX, broken_protocol, decode_pages, encode, left, reason};
use super::listener::MigrationOffer;
use super::token::{MigrationSide, MigrationToken, NONCE, random};
use super::{GREETING_TIME, HANDOVER_TIMEOUT, IMAGE_MAX, KEEPALIVE_INTERVAL, NAME_MAX, SILENCE_MAX, WINDOW};
use crate::checkpointer::directory::error_text;
use crate::checkpointer::image::{FamilyImage, StoredContent};
use crate::checkpointer::page_store::{ArrivedPages, PageStore};
use pando_abi::PAGE_SIZE;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a page.
const PAGE: usize = PAGE_SIZE as usize;
/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The time after which a page that was requested counts as lost, although other bytes arrive.
const PAGE_TIME: Duration = Duration::from_secs(600);
/// Frames of pages for which the program is halted, to give it their pages.
const HALT_FRAMES: usize = WINDOW / 2;

/// A connection to a source that has made its offer.
#[derive(Debug)]
pub struct MigrationConnection {
    stream: FrameStream,
    offer: MigrationOffer,
}

impl MigrationConnection {
    /// Connects to a source. Nothing happens to the program.
    ///
    /// # Errors
    /// There is none, or it has another token.
    pub fn open(address: SocketAddr, token: &MigrationToken) -> Result<MigrationConnection> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_TIME)?;
        let mut stream = FrameStream::new(socket)?;
        // The source may still serve another connection.
        let until = Instant::now() + 2 * GREETING_TIME;
        let hello = stream.expect(FrameType::Hello, until)?;
        let source_nonce: [u8; NONCE] = hello.try_into().map_err(|_| broken_protocol())?;
        let nonce = random::<NONCE>()?;
        let answer = [nonce, token.proof(MigrationSide::Destination, [&source_nonce, &nonce])].concat();
        stream.send(FrameType::Answer, &answer, until)?;
        let proof = stream.expect(FrameType::Proof, until)?;
        if !token.is_proof(&proof, MigrationSide::Source, [&source_nonce, &nonce]) {
            return Err(Error::other("the process at this address does not have the token"));
        }
        stream.payload_max = PAYLOAD_MAX;
        let offer = stream.expect(FrameType::Offer, until)?;
        let offer = postcard::from_bytes(&offer).map_err(|_| broken_protocol())?;
        Ok(MigrationConnection { stream, offer })
    }

    /// The program, and its requirements.
    #[must_use]
    pub fn offer(&self) -> &MigrationOffer {
        &self.offer
    }

    /// Asks for the program, which the source halts now. `name` is this side's, for the source's user.
    ///
    /// # Errors
    /// The connection is broken, or the image is invalid.
    pub(in crate::checkpointer) fn receive(self, name: &str) -> Result<MovedProgram> {
        let MigrationConnection { mut stream, .. } = self;
        let began = Instant::now();
        let until = began + HANDOVER_TIMEOUT;
        stream.send(FrameType::Move, &name.as_bytes()[..name.len().min(NAME_MAX)], until)?;
        let mut bytes = Vec::new();
        loop {
            let Frame { kind, payload } = stream.receive(until)?;
            match kind {
                FrameType::Image if bytes.len() + payload.len() <= IMAGE_MAX => bytes.extend(payload),
                FrameType::ImageEnd => break,
                _ => return Err(broken_protocol()),
            }
        }
        let image: Option<FamilyImage> = postcard::from_bytes(&bytes).ok();
        let image = image.filter(FamilyImage::is_sound).ok_or_else(|| Error::other("the image of the program is invalid"))?;
        let next_page = next_page(&image)?;
        Ok(MovedProgram {
            writer: Arc::new(Mutex::new(stream.socket.try_clone()?)),
            stream,
            image,
            next_page,
            phase: Phase::Building { until },
            kept: BTreeMap::new(),
            arrived: VecDeque::new(),
            requested: BTreeSet::new(),
            waiting: None,
            missing: BTreeSet::new(),
            keepalive: None,
            began,
        })
    }
}

/// The number of the first page after all of an image.
fn next_page(image: &FamilyImage) -> Result<u32> {
    let ends = image.extents().map(|extent| match extent.content {
        StoredContent::Stored(first) => u64::from(first) + extent.count,
        _ => 0,
    });
    u32::try_from(ends.max().unwrap_or(0)).map_err(|_| Error::other("the image of the program has too many pages"))
}

/// How far the transfer is.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The program's cell is built.
    Building { until: Instant },
    /// The program runs, and its pages arrive.
    Arriving,
    /// All pages were sent once. Whether the program lacks others is not known.
    AllSent,
    /// Pages that have moved in the program's memory are requested, and kept.
    Remaining,
    /// All pages are here, and the source may end.
    Complete,
    /// The connection is broken.
    Broken(String),
}

/// A program that has moved here, and the connection to its pages.
#[derive(Debug)]
pub(in crate::checkpointer) struct MovedProgram {
    stream: FrameStream,
    writer: Arc<Mutex<TcpStream>>,
    image: FamilyImage,
    next_page: u32,
    phase: Phase,
    /// Pieces that are kept until they are needed, by the numbers of their first pages.
    kept: BTreeMap<u32, Vec<u8>>,
    /// Pieces that the program is to be given, each with whether the source counts them.
    arrived: VecDeque<(ArrivedPages, bool)>,
    /// Numbers of requested pages.
    requested: BTreeSet<u32>,
    /// The page that the program waits for, and until when.
    waiting: Option<(u32, Instant)>,
    /// The pages that the program lacks and that are not kept.
    missing: BTreeSet<u32>,
    /// Starts the thread that sends keepalives, and ends it when this is dropped.
    keepalive: Option<Sender<()>>,
    /// When the program was asked for.
    began: Instant,
}

impl MovedProgram {
    /// Asks for the handover. Everything that may fail is done before, except the start of the cells.
    fn ask_for_handover(&mut self) -> Result<()> {
        let Phase::Building { until } = self.phase else { return Err(broken_protocol()) };
        let (sender, receiver) = channel::<()>();
        let writer = Arc::clone(&self.writer);
        thread::Builder::new().name("keepalive".into()).spawn(move || {
            // Nothing is written before the start is confirmed.
            if receiver.recv().is_err() {
                return;
            }
            while receiver.recv_timeout(KEEPALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout)
                && send(&writer, FrameType::Keepalive, &[]).is_ok()
            {}
        })?;
        self.keepalive = Some(sender);
        self.stream.send(FrameType::Ready, &[], until)?;
        self.stream.expect(FrameType::HandOver, until + HANDOVER_TIMEOUT)?;
        self.stream.socket.set_write_timeout(Some(SILENCE_MAX))
    }

    /// Tells the source why the program is not taken over.
    pub(in crate::checkpointer) fn refuse(&mut self, error: &Error) {
        // The source notices the end of the connection, too.
        let _ = self.stream.send(FrameType::Failed, reason(error).as_bytes(), Instant::now() + GREETING_TIME);
    }

    fn send(&mut self, kind: FrameType, payload: &[u8]) {
        if let Err(error) = send(&self.writer, kind, payload) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &Error) {
        if !matches!(self.phase, Phase::Complete | Phase::Broken(_)) {
            self.phase = Phase::Broken(error.to_string());
            self.keepalive = None;
        }
    }

    /// Processes a frame after the handover.
    fn process(&mut self, Frame { kind, payload }: Frame) -> Result<()> {
        match (kind, &self.phase) {
            (FrameType::Keepalive, _) => Ok(()),
            (FrameType::AllSent, Phase::Arriving) => {
                self.phase = Phase::AllSent;
                Ok(())
            }
            (FrameType::Pages, Phase::Arriving) => {
                let (first, bytes) = decode_pages(&payload).ok_or_else(broken_protocol)?;
                if self.arrived.len() >= 2 * WINDOW {
                    return Err(broken_protocol());
                }
                self.arrived.push_back((ArrivedPages { first, bytes }, true));
                Ok(())
            }
            (FrameType::NeededPages, Phase::Arriving | Phase::AllSent | Phase::Remaining) => {
                let (first, bytes) = decode_pages(&payload).ok_or_else(broken_protocol)?;
                let end = first + (bytes.len() / PAGE) as u32;
                let answered: Vec<u32> = self.requested.range(first..end).copied().collect();
                if answered.is_empty() {
                    return Err(broken_protocol());
                }
                answered.iter().for_each(|number| _ = self.requested.remove(number));
                if self.phase == Phase::Remaining {
                    (first..end).for_each(|number| _ = self.missing.remove(&number));
                    self.kept.insert(first, bytes);
                } else {
                    self.arrived.push_back((ArrivedPages { first, bytes }, false));
                }
                Ok(())
            }
            _ => Err(broken_protocol()),
        }
    }

    /// Copies a page, and those after it in its piece, if they are here. Returns their number.
    fn find(&self, number: u32, buffer: &mut [u8]) -> Option<u32> {
        let kept = self.kept.range(..=number).next_back().map(|(first, bytes)| (*first, bytes));
        let arrived = self.arrived.iter().map(|(pages, _)| (pages.first, &pages.bytes));
        let has_page = |(first, bytes): &(u32, &Vec<u8>)| *first <= number && ((number - *first) as usize) < bytes.len() / PAGE;
        let (first, bytes) = kept.into_iter().chain(arrived).find(has_page)?;
        let bytes = &bytes[(number - first) as usize * PAGE..];
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Some((count / PAGE) as u32)
    }
}

fn not_moved(error: Error) -> Error {
    Error::new(error.kind(), format!("the program has not moved here: {}", error_text(&error)))
}

fn send(writer: &Mutex<TcpStream>, kind: FrameType, payload: &[u8]) -> Result<()> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(&encode(kind, payload))
}

impl PageStore for MovedProgram {
    fn image(&self) -> &FamilyImage {
        &self.image
    }

    fn next_page(&self) -> u32 {
        self.next_page
    }

    fn read(&mut self, first: u32, buffer: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let number = first + (done / PAGE) as u32;
            if let Some(count) = self.find(number, &mut buffer[done..]) {
                done += count as usize * PAGE;
                continue;
            }
            let Phase::Building { until } = self.phase else { return Err(Error::other(format!("page {number} is not here"))) };
            // The source sends them in the order in which they are read, so those before are not needed again.
            self.kept.clear();
            let payload = self.stream.expect(FrameType::NeededPages, until)?;
            let (first, bytes) = decode_pages(&payload).ok_or_else(broken_protocol)?;
            self.kept.insert(first, bytes);
        }
        Ok(())
    }

    fn load(&mut self, number: u32, buffer: &mut [u8]) -> Result<Option<u32>> {
        if let Some(count) = self.find(number, buffer) {
            self.waiting = None;
            return Ok(Some(count));
        }
        match &self.phase {
            Phase::Broken(reason) => return Err(Error::other(format!("the source has not sent it: {reason}"))),
            Phase::Complete => return Err(Error::other("the source did not send it")),
            _ => {}
        }
        if self.waiting.is_none_or(|(waiting, _)| waiting != number) {
            self.waiting = Some((number, Instant::now() + PAGE_TIME));
        }
        if self.requested.insert(number) {
            self.send(FrameType::Need, &number.to_le_bytes());
        }
        Ok(None)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let is_open = matches!(self.phase, Phase::Arriving | Phase::AllSent | Phase::Remaining);
        is_open.then(|| self.stream.socket.as_fd())
    }

    fn deadline(&self) -> Option<Instant> {
        self.descriptor()?;
        let silence = self.stream.last_received + SILENCE_MAX;
        Some(self.waiting.map_or(silence, |(_, until)| until.min(silence)))
    }

    fn check_silence(&mut self) {
        if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.fail(&Error::new(ErrorKind::TimedOut, "the source is silent"));
        }
    }

    fn take_over(&mut self) -> Result<()> {
        self.ask_for_handover().inspect_err(|error| self.refuse(error)).map_err(not_moved)?;
        // The pages of the libOS and of nested cells are in their places.
        self.kept.clear();
        self.phase = Phase::Arriving;
        Ok(())
    }

    fn confirm_start(&mut self, started: Result<()>) -> Result<()> {
        if let Err(error) = started {
            self.refuse(&error);
            self.fail(&error);
            return Err(not_moved(error));
        }
        // If the connection is broken, the program goes on until it needs a page.
        self.send(FrameType::Started, &[]);
        if let Some(keepalive) = &self.keepalive {
            // The thread ends with the connection.
            let _ = keepalive.send(());
        }
        Ok(())
    }

    fn receive(&mut self) {
        let mut received = self.stream.fill().map(drop);
        while received.is_ok() {
            match self.stream.next() {
                Ok(Some(frame)) => received = self.process(frame),
                Ok(None) => return,
                Err(error) => received = Err(error),
            }
        }
        if let Err(error) = received {
            self.fail(&error);
        }
    }

    fn time_since_request(&self) -> Option<Duration> {
        Some(self.began.elapsed())
    }

    fn lost(&self) -> Option<&str> {
        if let Phase::Broken(reason) = &self.phase { Some(reason) } else { None }
    }

    fn wants_halt(&self) -> bool {
        self.arrived.len() >= HALT_FRAMES || self.phase == Phase::AllSent || (self.lost().is_some() && !self.arrived.is_empty())
    }

    fn take_arrived(&mut self) -> Option<ArrivedPages> {
        let (pages, is_counted) = self.arrived.pop_front()?;
        if is_counted && self.descriptor().is_some() {
            self.send(FrameType::Credit, &1_u32.to_le_bytes());
        }
        Some(pages)
    }

    fn keep(&mut self, pages: ArrivedPages) {
        self.kept.insert(pages.first, pages.bytes);
    }

    fn needs_missing(&self) -> bool {
        self.phase == Phase::AllSent && self.arrived.is_empty()
    }

    fn request_all(&mut self, missing: Vec<u32>) {
        self.phase = Phase::Remaining;
        self.missing = missing.into_iter().collect();
        let missing = &mut self.missing;
        self.kept.retain(|first, bytes| {
            let end = first + (bytes.len() / PAGE) as u32;
            let needed: Vec<u32> = missing.range(*first..end).copied().collect();
            needed.iter().for_each(|number| _ = missing.remove(number));
            !needed.is_empty()
        });
    }

    fn request_next(&mut self) {
        if self.phase != Phase::Remaining {
            return;
        }
        match self.missing.first().copied() {
            Some(number) => {
                if self.requested.insert(number) {
                    self.send(FrameType::Need, &number.to_le_bytes());
                }
            }
            None => {
                self.send(FrameType::Done, &[]);
                if self.phase == Phase::Remaining {
                    self.phase = Phase::Complete;
                    self.keepalive = None;
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }

    fn finish(&mut self) {
        if self.descriptor().is_none() {
            return;
        }
        self.send(FrameType::Done, &[]);
        // A connection that is closed with unread bytes is reset, and the source might not see the frame.
        let until = Instant::now() + GREETING_TIME;
        while left(until).and_then(|time| self.stream.socket.set_read_timeout(Some(time))).is_ok()
            && self.stream.socket.read(&mut [0; PAGE]).is_ok_and(|count| count > 0)
        {}
    }
}
