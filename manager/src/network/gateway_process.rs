// SPDX-License-Identifier: MIT OR Apache-2.0
//! A gateway's process: confines itself and runs the gateway on rings of frames.

use super::messages::{GatewayConfig, GatewayMessage, receive_message, send_message, try_send_message};
use pando_confine::{SyscallGroups, install_seccomp_filter};
use pando_gateway::{DirectoryAnswer, FramePort, Gateway, GatewayReport, NameDirectory, RefusedDestination, TxSink, Wakeup};
use pando_kernel::network::address::Mac;
use pando_machine::{RingFlags, RingFrame, RingPeer};
use rustix::io::write;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Frames after which the process of cells is woken, even if more follow.
const BATCH: usize = 16;

/// The state that a gateway's process shares with the process of cells.
#[derive(Clone, Copy)]
pub(super) struct SharedResources<'a> {
    /// The rings of frames.
    pub(super) memory: &'a OwnedFd,
    /// Wakes the process of cells.
    pub(super) owner: &'a OwnedFd,
    /// Wakes the gateway.
    pub(super) own: &'a OwnedFd,
    /// Transmits messages.
    pub(super) control: &'a OwnedFd,
}

/// Runs a gateway, and returns the exit status of its process.
pub(super) fn run(request: &GatewayConfig, bound: Option<&Gateway>, ends: SharedResources<'_>, launcher: Pid) -> u8 {
    let message = match work(request, bound, ends, launcher) {
        Ok(report) => GatewayMessage::Stopped(Box::new(report)),
        Err(error) => GatewayMessage::Failed(error.to_string()),
    };
    u8::from(send_message(ends.control, &message).is_err())
}

fn work(request: &GatewayConfig, bound: Option<&Gateway>, ends: SharedResources<'_>, launcher: Pid) -> io::Result<GatewayReport> {
    let _ = rustix::thread::set_name(c"gateway");
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(launcher) {
        return Err(io::Error::other("the process that started it has ended"));
    }
    let control = ends.control.try_clone()?;
    // This process has no standard streams that anything reads.
    std::panic::set_hook(Box::new(move |what| _ = send_message(&control, &GatewayMessage::Failed(format!("it panicked: {what}")))));
    let GatewayConfig { mut addresses, rules, resolvers, descriptors, listeners: _ } = request.clone();
    addresses.dhcp_address = |mac| Mac(mac).address4();
    let gateway = match bound {
        Some(bound) => bound.duplicate()?,
        None => Gateway::bind(&[], rules, resolvers, descriptors).map_err(io::Error::other)?,
    };
    let rings = RingPeer::open(ends.memory)?;
    let flags = rings.flags();
    install_seccomp_filter(&SyscallGroups { connecting: true, ..SyscallGroups::default() }).map_err(io::Error::other)?;
    let bell = RingWakeup { flags: flags.clone(), event: ends.own };
    let host_port = RingPort { rings, flags, owner: ends.owner, sent: 0 };
    // If a message cannot be sent, its receiver has ended.
    let report = |refused: RefusedDestination| _ = send_message(ends.control, &GatewayMessage::Refused(refused));
    gateway.run_with_wakeup(&bell, &addresses, host_port, Some(&mut ServiceDirectory { control: ends.control }), report)
}

/// The directory of cells: the process of cells, which knows their names.
struct ServiceDirectory<'a> {
    control: &'a OwnedFd,
}

impl NameDirectory for ServiceDirectory<'_> {
    fn event(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn request(&mut self, query: u64, name: &str) -> io::Result<()> {
        try_send_message(self.control, &GatewayMessage::Lookup { query, name: name.into() })
    }

    fn answer(&mut self) -> io::Result<Option<DirectoryAnswer>> {
        match receive_message(self.control, RecvFlags::DONTWAIT) {
            Ok(Some(answer)) => Ok(Some(answer)),
            Ok(None) => Err(io::Error::other("the process of cells has ended")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A handle that wakes and stops the gateway.
struct RingWakeup<'a> {
    flags: RingFlags,
    event: &'a OwnedFd,
}

impl Wakeup for RingWakeup<'_> {
    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn take_stop_request(&self) -> bool {
        self.flags.poll()
    }
}

/// The gateway's port in the network of its cell: the rings.
struct RingPort<'a> {
    rings: RingPeer,
    flags: RingFlags,
    owner: &'a OwnedFd,
    /// Frames sent since the process of cells was last woken.
    sent: usize,
}

impl RingPort<'_> {
    fn wake(&mut self) {
        self.sent = 0;
        if self.flags.must_wake() {
            // The counter of an eventfd is too large to overflow.
            let _ = write(self.owner, &1_u64.to_ne_bytes());
        }
    }
}

impl TxSink for RingPort<'_> {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.rings.room(length)
    }

    fn commit(&mut self, length: usize) {
        self.rings.commit(length);
        self.sent += 1;
        if self.sent >= BATCH {
            self.wake();
        }
    }
}

impl FramePort for RingPort<'_> {
    type Frame = RingFrame;

    fn receive(&mut self) -> Option<RingFrame> {
        self.rings.receive()
    }

    fn flush(&mut self) {
        if self.flags.peer_waits_for_space() || self.sent > 0 {
            self.wake();
        }
    }
}
