// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TAP device as the way out: frames go to the host's network as they are, and come from there.
//!
//! Cells compute no sums and say up to 64 KiB in one packet. So each frame has a header (that of virtio's network cards) in which the host reads which sum is to be computed and where a
//! packet of TCP may be cut, and in which it says what it has not computed itself. What comes in without that is looked at, because nobody in a cell does.
//!
//! - TCP: a packet that is longer than the device's are is cut by the host, or by its card. Cells learn that they may send such ones where the other end begins a connection: it says how long
//!   the segments are that it takes, and if those are whole packets of the device's, a longer size is put in.
//! - Other packets that are too long go as they are, those of IPv4 with leave to be cut. The host takes them; where it passes them on it cuts them, or says that they are too long.

use crate::Station;
use crate::limits::{FRAMES, FULL};
use crate::poll::Handle;
use pando_stack::offload::{self, Offload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, readv, writev};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of the header in front of each frame (`struct virtio_net_hdr`).
const HEADER: usize = 10;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The sum is not computed yet.
const NEEDS_SUM: u8 = 1;
/// The sum has been looked at.
const SUM_IS_RIGHT: u8 = 2;
/// The packet is one of TCP that may be cut, over IPv4 and over IPv6.
const CUT_TCP4: u8 = 1;
const CUT_TCP6: u8 = 4;

/// What became of frames that a TAP device did not pass on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounts {
    /// Those of cells that the host did not take: the device is down, or they are malformed.
    pub refused: u64,
    /// Those of the host's that were damaged on their way.
    pub damaged: u64,
    /// Those of the host's that are longer than cells take.
    pub too_long: u64,
    /// Those of cells that were longer than the device's packets, and went out to be cut as TCP.
    pub cut: u64,
}

/// A TAP device that is open.
#[derive(Debug)]
pub struct Tap {
    device: OwnedFd,
    /// Bytes of its largest packet.
    mtu: usize,
    handle: Handle,
}

impl Tap {
    /// Takes a device that is open, never blocks, and whose frames have headers of ten bytes; `mtu` bytes are the largest packet that goes out of it.
    ///
    /// # Errors
    /// The host has nothing to be woken by.
    pub fn new(device: OwnedFd, mtu: u16) -> io::Result<Tap> {
        Ok(Tap { device, mtu: mtu.into(), handle: Handle::new()? })
    }

    /// What wakes and stops it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Carries, until it is told to stop and has carried out what waits; `largest` bytes are the largest packet that cells take.
    ///
    /// # Errors
    /// The device is gone.
    pub fn run(self, largest: u16, station: impl Station) -> io::Result<TapCounts> {
        let Tap { device, mtu, handle } = self;
        let largest = largest.into();
        let mut pump = Pump { device, mtu, largest, station, spare: Vec::new(), number: 0, counts: TapCounts::default() };
        pump.run(&handle)?;
        Ok(pump.counts)
    }
}

/// How far reading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// There may be more.
    GoesOn,
    /// There is nothing.
    Empty,
    /// Cells take no more now.
    Full,
}

struct Pump<S> {
    device: OwnedFd,
    mtu: usize,
    largest: usize,
    station: S,
    /// Where a frame is made ready.
    spare: Vec<u8>,
    /// The number of the last packet that may be cut by routers.
    number: u16,
    counts: TapCounts,
}

impl<S: Station> Pump<S> {
    fn run(&mut self, handle: &Handle) -> io::Result<()> {
        loop {
            let stopped = handle.look();
            let saying = self.give_all();
            let reading = self.take_all()?;
            self.station.flush();
            if stopped && !saying {
                return Ok(());
            }
            if saying || reading == Reading::GoesOn {
                continue;
            }
            self.wait(handle, reading)?;
        }
    }

    /// Waits until the device has frames or somebody wakes; where cells take no more, a while and not for the device.
    fn wait(&self, handle: &Handle, reading: Reading) -> io::Result<()> {
        let while_full = Timespec { tv_sec: 0, tv_nsec: FULL.subsec_nanos().into() };
        let (device, most) = match reading {
            Reading::Full => (PollFlags::empty(), Some(&while_full)),
            _ => (PollFlags::IN, None),
        };
        let event = handle.event();
        let mut watched = [PollFd::new(&event, PollFlags::IN), PollFd::new(&self.device, device)];
        match poll(&mut watched, most) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !watched[0].revents().is_empty() {
            // It counts who woke; that somebody did is enough.
            let _ = read(event, &mut [0; 8]);
        }
        Ok(())
    }

    /// Gives the device what cells said. Whether there may be more.
    fn give_all(&mut self) -> bool {
        for _ in 0..FRAMES {
            let Some(frame) = self.station.receive() else { return false };
            self.give(frame.as_ref());
        }
        true
    }

    fn give(&mut self, frame: &[u8]) {
        self.spare.clear();
        self.spare.extend_from_slice(frame);
        let is_long = frame.len() > ETHERNET + self.mtu;
        let header = match offload::leave_sum(&mut self.spare) {
            Some((sum, length)) => {
                self.spare.truncate(length);
                header(&sum, is_long.then_some(self.mtu))
            }
            None => [0; HEADER],
        };
        if header[1] != 0 {
            self.counts.cut += 1;
        } else if is_long {
            self.number = self.number.wrapping_add(1);
            offload::allow_fragments(&mut self.spare, self.number);
        }
        let bytes = [IoSlice::new(&header), IoSlice::new(&self.spare)];
        let refused = writev(&self.device, &bytes).is_err();
        self.counts.refused += u64::from(refused);
    }

    /// Takes what the device has, as far as cells take it.
    fn take_all(&mut self) -> io::Result<Reading> {
        for _ in 0..FRAMES {
            let reading = self.take()?;
            if reading != Reading::GoesOn {
                return Ok(reading);
            }
        }
        Ok(Reading::GoesOn)
    }

    fn take(&mut self) -> io::Result<Reading> {
        let Pump { device, mtu, largest, station, counts, .. } = self;
        let longest = ETHERNET + *largest;
        // A byte more, by which one sees what is too long.
        let Some(room) = station.room(longest + 1) else { return Ok(Reading::Full) };
        let mut header = [0; HEADER];
        let length = match readv(device.as_fd(), &mut [IoSliceMut::new(&mut header), IoSliceMut::new(room)]) {
            Ok(length) => length.saturating_sub(HEADER),
            Err(Errno::AGAIN) => return Ok(Reading::Empty),
            Err(Errno::INTR) => return Ok(Reading::GoesOn),
            Err(error) => return Err(error.into()),
        };
        let Some(frame) = room.get_mut(..length).filter(|_| length <= longest) else {
            counts.too_long += 1;
            return Ok(Reading::GoesOn);
        };
        if !offload::is_sound(frame, header[0] & (NEEDS_SUM | SUM_IS_RIGHT) == 0) {
            counts.damaged += 1;
            return Ok(Reading::GoesOn);
        }
        offload::raise_segments(frame, *mtu, *largest);
        station.commit(length);
        Ok(Reading::GoesOn)
    }
}

/// The header of a frame whose sum is to be computed, and which, if it is TCP, is to be cut into packets of so many bytes.
fn header(sum: &Offload, packet: Option<usize>) -> [u8; HEADER] {
    let two = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_ne_bytes();
    let piece = |headers: usize| (packet? + ETHERNET).checked_sub(headers).filter(|piece| *piece > 0);
    let cut = sum.headers.and_then(|headers| Some((headers, piece(headers)?)));
    let (kind, headers, piece) = match cut {
        Some((headers, piece)) => (if sum.is_v6 { CUT_TCP6 } else { CUT_TCP4 }, headers, piece),
        None => (0, 0, 0),
    };
    let [headers, piece, start, field] = [headers, piece, sum.start, sum.field].map(two);
    [NEEDS_SUM, kind, headers[0], headers[1], piece[0], piece[1], start[0], start[1], field[0], field[1]]
}

#[cfg(test)]
mod tests {
    use super::{CUT_TCP4, CUT_TCP6, NEEDS_SUM, header};
    use pando_stack::offload::Offload;

    #[test]
    fn headers_say_what_is_left_to_do() {
        let tcp = Offload { start: 34, field: 16, headers: Some(54), is_v6: false };
        let fields = |header: [u8; 10]| {
            let two = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            (header[0], header[1], [two(2), two(4), two(6), two(8)])
        };
        assert_eq!(fields(header(&tcp, None)), (NEEDS_SUM, 0, [0, 0, 34, 16]));
        assert_eq!(fields(header(&tcp, Some(1500))), (NEEDS_SUM, CUT_TCP4, [54, 1460, 34, 16]));
        let long = Offload { start: 54, headers: Some(86), is_v6: true, ..tcp };
        assert_eq!(fields(header(&long, Some(1500))), (NEEDS_SUM, CUT_TCP6, [86, 1428, 54, 16]));
        let udp = Offload { field: 6, headers: None, ..tcp };
        assert_eq!(fields(header(&udp, Some(1500))), (NEEDS_SUM, 0, [0, 0, 34, 6]));
    }
}
