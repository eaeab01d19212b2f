// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a migration: hands a halted family over, and sends its pages afterwards.

use super::frame::{Frame, FrameStream, FrameType, PAYLOAD_MAX, broken_protocol, encode, encode_pages, number, text};
use super::listener::Peer;
use super::moving_pages::{MovingPages, PageNumbers};
use super::{IMAGE_MAX, KEEPALIVE_INTERVAL, SILENCE_MAX, WINDOW};
use crate::checkpointer::image::{FamilyImage, MemberRecord};
use crate::checkpointer::image_reader;
use crate::checkpointer::page_store::PageStore;
use pando_abi::HoldingName;
use pando_machine::CellsDevice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{Error, ErrorKind, Result, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

/// For how long a program is halted at most before it is handed over, or continues.
pub(in crate::checkpointer) const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a write that does not go on looks for messages.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before each frame that the destination has not asked for, while it asks for pages: the next one is probably needed soon.
const NEED_PAUSE: Duration = Duration::from_millis(5);
/// The time after which it counts as asking no more.
const NEED_INTERVAL: Duration = Duration::from_millis(50);

/// The reason why a program was not handed over.
#[derive(Debug)]
pub(in crate::checkpointer) enum HandOverError {
    /// It continues here.
    Before(Error),
    /// It is not known whether the destination has it.
    Unknown(Error),
}

impl From<Error> for HandOverError {
    fn from(error: Error) -> HandOverError {
        HandOverError::Before(error)
    }
}

/// A family that was handed over, whose pages are still here.
#[derive(Debug)]
pub(in crate::checkpointer) struct MovedFamily {
    stream: FrameStream,
    pages: MovingPages,
}

/// Hands over a halted family by its snapshots. `store` has the pages that the program was restored with and has not needed yet.
///
/// # Errors
/// The destination cannot build the program, or did not answer in time.
pub(in crate::checkpointer) fn hand_over(
    device: &CellsDevice,
    snapshots: &[(MemberRecord, HoldingName)],
    store: Option<&mut (dyn PageStore + 'static)>,
    mut peer: Peer,
    until: Instant,
) -> std::result::Result<MovedFamily, HandOverError> {
    let sent = send_family(device, snapshots, store, &mut peer.stream, until);
    if let Err(HandOverError::Before(error)) = &sent {
        peer.refuse(error);
    }
    sent.map(|pages| MovedFamily { stream: peer.into_stream(), pages })
}

/// Sends a family until the destination has started it. Returns its pages.
fn send_family(
    device: &CellsDevice,
    snapshots: &[(MemberRecord, HoldingName)],
    mut store: Option<&mut (dyn PageStore + 'static)>,
    stream: &mut FrameStream,
    until: Instant,
) -> std::result::Result<MovingPages, HandOverError> {
    let first_numbered = store.as_ref().map_or(0, |store| store.next_page());
    let (mut image, mut numbers) = (FamilyImage::default(), PageNumbers::new(first_numbered));
    for (member_record, snapshot) in snapshots {
        let cell = image_reader::read_cell(device, *snapshot, member_record.path.is_empty(), None, &mut numbers)?;
        image.members.push((member_record.clone(), cell));
    }
    let mut pages = MovingPages::new(&image, numbers, first_numbered);
    let bytes = postcard::to_allocvec(&image).map_err(Error::other)?;
    if bytes.len() > IMAGE_MAX {
        return Err(Error::other("the program's memory is in too many parts to be moved").into());
    }
    for piece in bytes.chunks(PAYLOAD_MAX) {
        stream.send(FrameType::Image, piece, until)?;
    }
    stream.send(FrameType::ImageEnd, &[], until)?;
    for range in MovingPages::urgent(&image)? {
        let mut next = range.start;
        while next < range.end {
            let piece = pages.piece_of(next).ok_or_else(|| Error::other("the program has a page without content"))?;
            let piece = next..piece.end.min(range.end);
            let payload = encode_pages(piece.start, pages.read(device, store.as_deref_mut(), &piece)?)?;
            stream.send(FrameType::NeededPages, &payload, until)?;
            next = piece.end;
        }
    }
    stream.expect(FrameType::Ready, until)?;
    // If the frame cannot be sent, the destination does not have it, and does not start the program.
    stream.send(FrameType::HandOver, &[], until)?;
    // The program does not continue here unless the destination refuses it, so a long wait costs nothing.
    match stream.receive_any(Instant::now() + SILENCE_MAX) {
        Ok(Frame { kind: FrameType::Started | FrameType::Keepalive, .. }) => Ok(pages),
        Ok(Frame { kind: FrameType::Failed, payload }) => Err(HandOverError::Before(Error::other(text(&payload)))),
        Ok(_) => Err(HandOverError::Unknown(broken_protocol())),
        Err(error) => Err(HandOverError::Unknown(error)),
    }
}

/// Sends the pages of a family until the destination needs no more. `on_wake` is called after each wait. Returns the number of pages.
///
/// # Errors
/// The connection is broken, or a page cannot be read.
pub(in crate::checkpointer) fn serve_pages(
    device: &CellsDevice,
    moved: MovedFamily,
    store: Option<&mut (dyn PageStore + 'static)>,
    on_wake: &mut dyn FnMut(),
) -> Result<u64> {
    let MovedFamily { stream, pages } = moved;
    let mut server = PageServer { device, stream, pages, store, last_sent: Instant::now(), on_wake };
    server.serve()?;
    Ok(server.pages.count())
}

/// The work of sending pages.
struct PageServer<'a> {
    device: &'a CellsDevice,
    stream: FrameStream,
    pages: MovingPages,
    store: Option<&'a mut (dyn PageStore + 'static)>,
    last_sent: Instant,
    on_wake: &'a mut dyn FnMut(),
}

impl PageServer<'_> {
    fn serve(&mut self) -> Result<()> {
        self.stream.socket.set_write_timeout(Some(WRITE_INTERVAL))?;
        let (mut on_their_way, mut has_more, mut last_need) = (0_usize, true, Instant::now());
        loop {
            // A page that the program waits for comes first.
            while let Some(frame) = self.stream.next()? {
                match frame.kind {
                    FrameType::Keepalive => {}
                    FrameType::Credit => {
                        let count = number(&frame.payload).ok_or_else(broken_protocol)? as usize;
                        on_their_way = on_their_way.checked_sub(count).ok_or_else(broken_protocol)?;
                    }
                    FrameType::Need => {
                        let piece = number(&frame.payload).and_then(|number| self.pages.piece_of(number));
                        self.send_pages(FrameType::NeededPages, &piece.ok_or_else(broken_protocol)?)?;
                        last_need = Instant::now();
                    }
                    FrameType::Done => return Ok(()),
                    _ => return Err(broken_protocol()),
                }
            }
            let sends = has_more && on_their_way < WINDOW;
            let pause = if last_need.elapsed() < NEED_INTERVAL { NEED_PAUSE } else { Duration::ZERO };
            let until_keepalive = KEEPALIVE_INTERVAL.saturating_sub(self.last_sent.elapsed());
            if self.wait(if sends { pause } else { until_keepalive })? {
                self.stream.fill()?;
            } else if !sends && self.last_sent.elapsed() < KEEPALIVE_INTERVAL {
                // A signal has ended the wait.
            } else if !sends {
                self.write(&encode(FrameType::Keepalive, &[]))?;
            } else if let Some(piece) = self.pages.next_piece() {
                on_their_way += 1;
                self.send_pages(FrameType::Pages, &piece)?;
            } else {
                has_more = false;
                self.write(&encode(FrameType::AllSent, &[]))?;
            }
        }
    }

    fn send_pages(&mut self, kind: FrameType, piece: &Range<u32>) -> Result<()> {
        let payload = encode_pages(piece.start, self.pages.read(self.device, self.store.as_deref_mut(), piece)?)?;
        self.write(&encode(kind, &payload))
    }

    /// Waits for bytes of the destination. `false`: there are none after this time.
    fn wait(&mut self, time: Duration) -> Result<bool> {
        let timeout = Timespec::try_from(time).map_err(Error::other)?;
        let polled = poll(&mut [PollFd::new(&self.stream.socket, PollFlags::IN)], Some(&timeout));
        (self.on_wake)();
        match polled {
            Ok(count) if count > 0 => Ok(true),
            Ok(_) | Err(Errno::INTR) if self.stream.last_received.elapsed() < SILENCE_MAX => Ok(false),
            Ok(_) | Err(Errno::INTR) => Err(Error::new(ErrorKind::TimedOut, "the destination is silent")),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends bytes. A destination that does not read them for a long time, and says that it is there, is not lost.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.stream.socket.write(&bytes[done..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                    if self.wait(Duration::ZERO)? {
                        self.stream.fill()?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.last_sent = Instant::now();
        Ok(())
    }
}
