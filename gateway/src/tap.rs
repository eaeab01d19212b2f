// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TAP device as uplink: frames go to and come from the host's network unchanged.
//!
//! Cells compute no checksums and send up to 64 KiB in one packet. So each frame has a virtio-net header. In it the gateway requests
//! checksums and segmentation from the host, and the host reports checksums that it has not computed itself. Incoming frames without
//! that report are verified here, because cells do not verify them.
//!
//! - TCP: the host or its card segments packets that exceed the device's MTU. Cells learn that they may send such packets when the other
//!   end opens a connection: if its MSS fills whole packets of the device, a larger MSS is put in.
//! - Other packets that exceed the MTU go unchanged, those of IPv4 with permission to fragment. The host accepts them; when it forwards
//!   them, it fragments them or reports that they are too long.

use crate::FramePort;
use crate::limits::{FULL_QUEUE_DELAY, MAX_FRAMES};
use crate::poll::{Handle, Wakeup};
use pando_stack::offload::{self, Offload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, readv, writev};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of the header in front of each frame (`struct virtio_net_hdr`).
const HEADER: usize = 10;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
// Flags and types of `struct virtio_net_hdr` (`linux/virtio_net.h`).
/// The checksum is not computed yet.
const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
/// The checksum has been verified.
const VIRTIO_NET_HDR_F_DATA_VALID: u8 = 2;
/// The packet is TCP to be segmented, over IPv4 and over IPv6.
const VIRTIO_NET_HDR_GSO_TCPV4: u8 = 1;
const VIRTIO_NET_HDR_GSO_TCPV6: u8 = 4;

/// Counts of frames that a TAP device did not pass on unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounts {
    /// Frames of cells that the host refused: the device is down, or they are malformed.
    pub refused: u64,
    /// Frames of the host that were damaged.
    pub damaged: u64,
    /// Frames of the host that are longer than cells accept.
    pub too_long: u64,
    /// Frames of cells that exceeded the device's MTU and were segmented as TCP.
    pub segmented: u64,
}

/// An open TAP device.
#[derive(Debug)]
pub struct Tap {
    device: OwnedFd,
    /// Its MTU.
    mtu: usize,
    handle: Handle,
}

impl Tap {
    /// Wraps an open, non-blocking device whose frames have headers of ten bytes; `mtu` is its MTU.
    ///
    /// # Errors
    /// The wakeup event cannot be created.
    pub fn new(device: OwnedFd, mtu: u16) -> io::Result<Tap> {
        Ok(Tap { device, mtu: mtu.into(), handle: Handle::new()? })
    }

    /// A handle that wakes and stops it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Forwards frames until it is stopped and has sent the queued ones; `largest` bytes are the largest packet that cells accept.
    ///
    /// # Errors
    /// The device has failed.
    pub fn run(self, largest: u16, host_port: impl FramePort) -> io::Result<TapCounts> {
        let Tap { device, mtu, handle } = self;
        let largest = largest.into();
        let mut pump = TapPump { device, mtu, largest, host_port, buffer: Vec::new(), identification: 0, counts: TapCounts::default() };
        pump.run(&handle)?;
        Ok(pump.counts)
    }
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// There may be more frames.
    HasMore,
    /// There are no more frames.
    Empty,
    /// The cells' queues are full.
    Full,
}

struct TapPump<S> {
    device: OwnedFd,
    mtu: usize,
    largest: usize,
    host_port: S,
    /// Buffer for a frame.
    buffer: Vec<u8>,
    /// The identification of the last IPv4 packet that may be fragmented.
    identification: u16,
    counts: TapCounts,
}

impl<S: FramePort> TapPump<S> {
    fn run(&mut self, handle: &Handle) -> io::Result<()> {
        loop {
            let is_stopping = handle.take_stop_request();
            let is_sending = self.send_all();
            let read_state = self.receive_all()?;
            self.host_port.flush();
            if is_stopping && !is_sending {
                return Ok(());
            }
            if is_sending || read_state == ReadState::HasMore {
                continue;
            }
            self.wait(handle, read_state)?;
        }
    }

    /// Waits for frames of the device or a wakeup. If the cells' queues are full, waits briefly and not for the device.
    fn wait(&self, handle: &Handle, read_state: ReadState) -> io::Result<()> {
        let while_full = Timespec { tv_sec: 0, tv_nsec: FULL_QUEUE_DELAY.subsec_nanos().into() };
        let (device, timeout) = match read_state {
            ReadState::Full => (PollFlags::empty(), Some(&while_full)),
            _ => (PollFlags::IN, None),
        };
        let event = handle.event();
        let mut watched = [PollFd::new(&event, PollFlags::IN), PollFd::new(&self.device, device)];
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !watched[0].revents().is_empty() {
            // The number of wakeups does not matter.
            let _ = read(event, &mut [0; 8]);
        }
        Ok(())
    }

    /// Sends the cells' frames to the device. Returns whether there may be more.
    fn send_all(&mut self) -> bool {
        for _ in 0..MAX_FRAMES {
            let Some(frame) = self.host_port.receive() else { return false };
            self.send_to_device(frame.as_ref());
        }
        true
    }

    fn send_to_device(&mut self, frame: &[u8]) {
        self.buffer.clear();
        self.buffer.extend_from_slice(frame);
        let is_long = frame.len() > ETHERNET + self.mtu;
        let header = match offload::offload_checksum(&mut self.buffer) {
            Some((sum, length)) => {
                self.buffer.truncate(length);
                header(&sum, is_long.then_some(self.mtu))
            }
            None => [0; HEADER],
        };
        if header[1] != 0 {
            self.counts.segmented += 1;
        } else if is_long {
            self.identification = self.identification.wrapping_add(1);
            offload::clear_dont_fragment(&mut self.buffer, self.identification);
        }
        let bytes = [IoSlice::new(&header), IoSlice::new(&self.buffer)];
        let refused = writev(&self.device, &bytes).is_err();
        self.counts.refused += u64::from(refused);
    }

    /// Receives frames from the device until the cells' queues are full.
    fn receive_all(&mut self) -> io::Result<ReadState> {
        for _ in 0..MAX_FRAMES {
            let read_state = self.receive_from_device()?;
            if read_state != ReadState::HasMore {
                return Ok(read_state);
            }
        }
        Ok(ReadState::HasMore)
    }

    fn receive_from_device(&mut self) -> io::Result<ReadState> {
        let TapPump { device, mtu, largest, host_port, counts, .. } = self;
        let longest = ETHERNET + *largest;
        // One byte more, to detect frames that are too long.
        let Some(room) = host_port.room(longest + 1) else { return Ok(ReadState::Full) };
        let mut header = [0; HEADER];
        let length = match readv(device.as_fd(), &mut [IoSliceMut::new(&mut header), IoSliceMut::new(room)]) {
            Ok(length) => length.saturating_sub(HEADER),
            Err(Errno::AGAIN) => return Ok(ReadState::Empty),
            Err(Errno::INTR) => return Ok(ReadState::HasMore),
            Err(error) => return Err(error.into()),
        };
        let Some(frame) = room.get_mut(..length).filter(|_| length <= longest) else {
            counts.too_long += 1;
            return Ok(ReadState::HasMore);
        };
        if !offload::has_valid_checksums(frame, header[0] & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID) == 0) {
            counts.damaged += 1;
            return Ok(ReadState::HasMore);
        }
        offload::raise_mss(frame, *mtu, *largest);
        host_port.commit(length);
        Ok(ReadState::HasMore)
    }
}

/// The header of a frame whose checksum is to be computed, and which, if it is TCP, is to be segmented into packets of `packet` bytes.
fn header(sum: &Offload, packet: Option<usize>) -> [u8; HEADER] {
    let two = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_ne_bytes();
    let piece = |headers: usize| (packet? + ETHERNET).checked_sub(headers).filter(|piece| *piece > 0);
    let segmented = sum.headers.and_then(|headers| Some((headers, piece(headers)?)));
    let (kind, headers, piece) = match segmented {
        Some((headers, piece)) => (if sum.is_v6 { VIRTIO_NET_HDR_GSO_TCPV6 } else { VIRTIO_NET_HDR_GSO_TCPV4 }, headers, piece),
        None => (0, 0, 0),
    };
    let [headers, piece, start, field] = [headers, piece, sum.start, sum.field].map(two);
    [VIRTIO_NET_HDR_F_NEEDS_CSUM, kind, headers[0], headers[1], piece[0], piece[1], start[0], start[1], field[0], field[1]]
}

#[cfg(test)]
mod tests {
    use super::{VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, header};
    use pando_stack::offload::Offload;

    #[test]
    fn headers_state_the_pending_offloads() {
        let tcp = Offload { start: 34, field: 16, headers: Some(54), is_v6: false };
        let fields = |header: [u8; 10]| {
            let two = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            (header[0], header[1], [two(2), two(4), two(6), two(8)])
        };
        assert_eq!(fields(header(&tcp, None)), (VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, [0, 0, 34, 16]));
        assert_eq!(fields(header(&tcp, Some(1500))), (VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, [54, 1460, 34, 16]));
        let long = Offload { start: 54, headers: Some(86), is_v6: true, ..tcp };
        assert_eq!(fields(header(&long, Some(1500))), (VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV6, [86, 1428, 54, 16]));
        let udp = Offload { field: 6, headers: None, ..tcp };
        assert_eq!(fields(header(&udp, Some(1500))), (VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, [0, 0, 34, 6]));
    }
}
