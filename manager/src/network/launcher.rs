// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher: a process that starts a process for each gateway, and kills it when it is no longer needed.
//!
//! It is forked before the process of cells is confined. It confines itself: no files, no capabilities, and connections only to the
//! ports of gateways. It creates the resources that a gateway shares with the process of cells: two rings of frames, an eventfd for
//! each side, and a socket pair for messages. So the process of cells creates no socket, no memory and no descriptor. When that
//! process closes its end of the socket pair, the launcher kills the gateway's process, even if it hangs.

use super::NetworkError;
use super::gateway_process::{self, Ends};
use super::messages::{GatewayConfig, GatewayMessage, MESSAGE_MAX, decode, encode, receive_message, send_message};
use pando_confine::{ConfineError, Needs, Paths, Ports};
use pando_gateway::Gateway;
use pando_machine::{RingOwner, create_rings, fork};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recvmsg, send, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, pidfd_open, pidfd_send_signal, setrlimit, waitid,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the launcher may take for an answer. It takes a millisecond on a host that is not overloaded.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Descriptors passed with an answer.
const PASSED: usize = 4;
/// Descriptors that the launcher holds for each gateway.
const OF_GATEWAY: usize = 2;
/// Descriptors of a gateway or of the launcher besides those for connections and for gateways.
const OWN: usize = 32;

/// The process of cells' handle to the launcher. Dropping it ends the launcher and all gateways.
#[derive(Debug)]
pub struct Launcher {
    connection: Mutex<LauncherConnection>,
}

/// The connection for orders to the launcher.
#[derive(Debug)]
struct LauncherConnection {
    socket: OwnedFd,
    /// An answer did not arrive in time. A later answer would be taken for that of another order.
    is_lost: bool,
}

/// The process of cells' connection to a gateway. When it is dropped, the launcher kills the gateway's process.
pub(super) struct GatewayLink {
    pub(super) rings: RingOwner,
    /// Wakes the gateway.
    pub(super) gateway: OwnedFd,
    /// Wakes the process of cells.
    pub(super) own: OwnedFd,
    /// Receives the gateway's messages.
    pub(super) control: OwnedFd,
}

/// The launcher's handle to a gateway's process.
struct Child {
    process: OwnedFd,
    control: OwnedFd,
    killed: bool,
}

impl Launcher {
    /// Starts the launcher's process. The calling process must still have a single thread. Each gateway duplicates `bound`, which has
    /// the port forwards; without it, gateways have none. Gateways connect only to `ports`. Each may have `descriptors` descriptors
    /// for connections, and there are at most `count` gateways.
    ///
    /// # Errors
    /// The host has no process or descriptor for it.
    pub fn start(bound: Option<Gateway>, ports: Ports, descriptors: usize, count: usize) -> Result<Launcher, NetworkError> {
        let started = || {
            let [own, other] = pair()?;
            set_socket_timeout(&own, Timeout::Recv, Some(ANSWER_MAX))?;
            let mut kept = vec![other.as_fd()];
            kept.extend(bound.iter().flat_map(Gateway::descriptors));
            let limit = (descriptors + OWN).max(count * OF_GATEWAY + OWN);
            fork(&kept, || serve(&other, bound.as_ref(), ports, limit))?;
            Ok(own)
        };
        let socket = started().map_err(NetworkError::Launcher)?;
        Ok(Launcher { connection: Mutex::new(LauncherConnection { socket, is_lost: false }) })
    }

    /// Starts a gateway.
    ///
    /// # Errors
    /// The host has no process or descriptor for it, or the launcher has ended.
    pub(super) fn start_gateway(&self, order: &GatewayConfig) -> io::Result<GatewayLink> {
        let order = encode(order)?;
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let LauncherConnection { socket, is_lost } = &mut *connection;
        if std::mem::replace(is_lost, true) {
            return Err(io::Error::other("the process that starts gateways does not answer"));
        }
        retry_on_intr(|| send(&*socket, &order, SendFlags::NOSIGNAL))?;
        let mut room = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| recvmsg(&*socket, &mut [IoSliceMut::new(&mut room)], &mut passed, RecvFlags::CMSG_CLOEXEC));
        let length = match received {
            Ok(received) if received.bytes > 0 => received.bytes,
            Ok(_) | Err(Errno::CONNRESET) => return Err(io::Error::other("the process that starts gateways has ended")),
            Err(Errno::AGAIN) => return Err(io::Error::other("the process that starts gateways does not answer")),
            Err(error) => return Err(error.into()),
        };
        *is_lost = false;
        drop(connection);
        decode::<Result<(), String>>(&room[..length.min(MESSAGE_MAX)])?.map_err(io::Error::other)?;
        let rights = passed.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
            _ => None,
        });
        let [memory, own, gateway, control] = rights
            .and_then(|descriptors| <[OwnedFd; PASSED]>::try_from(descriptors).ok())
            .ok_or_else(|| io::Error::other("this process may open no more files"))?;
        Ok(GatewayLink { rings: RingOwner::open(memory)?, gateway, own, control })
    }
}

/// Creates a socket pair for messages.
fn pair() -> io::Result<[OwnedFd; 2]> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok([one, other])
}

/// Runs the launcher: starts gateways on request, until the process of cells closes its end. Returns the exit status.
fn serve(orders: &OwnedFd, bound: Option<&Gateway>, ports: Ports, limit: usize) -> u8 {
    let confined = confine(ports, limit);
    let mut children: Vec<Child> = Vec::new();
    loop {
        let mut watched = vec![PollFd::new(orders, PollFlags::IN)];
        for Child { process, control, killed } in &children {
            watched.push(PollFd::new(process, PollFlags::IN));
            // After the kill, wait only for the process's end.
            watched.push(if *killed { PollFd::new(process, PollFlags::IN) } else { PollFd::new(control, PollFlags::RDHUP) });
        }
        let waited = retry_on_intr(|| poll(&mut watched, None));
        let ready: Vec<bool> = watched.iter().map(|watched| !watched.revents().is_empty()).collect();
        drop(watched);
        let Some((ordered, of_children)) = ready.split_first().filter(|_| waited.is_ok()) else { return 1 };
        let mut states = of_children.chunks_exact(2);
        children.retain_mut(|child| match states.next() {
            Some([true, _]) => !child.has_ended(),
            Some([_, true]) => {
                child.kill();
                true
            }
            _ => true,
        });
        if !ordered {
            continue;
        }
        let Ok(Some(order)) = receive_message::<GatewayConfig>(orders, RecvFlags::empty()) else { break };
        let started = match &confined {
            Ok(()) => start(&order, bound),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        if answer(orders, started, &mut children).is_err() {
            break;
        }
    }
    children.iter_mut().for_each(Child::kill);
    0
}

/// Drops privileges that neither the launcher nor the gateways need. Gateways inherit the limits.
fn confine(ports: Ports, limit: usize) -> Result<(), ConfineError> {
    // A failure here leaves only a name, a stream or a limit unchanged.
    let _ = rustix::thread::set_name(c"gateways");
    if let Ok(nothing) = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let limit = Some(limit as u64).filter(|limit| current.is_none_or(|current| *limit < current)).or(current);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit.or(maximum) });
    let paths = Paths { ports, ..Paths::default() };
    pando_confine::drop_privileges(&paths)?;
    pando_confine::limit_paths(&paths)?;
    pando_confine::limit_calls(&Needs { starting: true, ..Needs::default() })
}

/// A gateway that was started, with the descriptors for the process of cells.
struct Started {
    child: Child,
    passed: [OwnedFd; PASSED],
}

/// Starts a gateway's process.
fn start(order: &GatewayConfig, bound: Option<&Gateway>) -> io::Result<Started> {
    let memory = create_rings()?;
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (own, gateway) = (event()?, event()?);
    let [theirs, control] = pair()?;
    let mut kept: Vec<BorrowedFd<'_>> = [&memory, &own, &gateway, &control].map(AsFd::as_fd).into();
    kept.extend(bound.iter().flat_map(|bound| bound.descriptors()));
    let launcher = rustix::process::getpid();
    let ends = Ends { memory: &memory, owner: &own, own: &gateway, control: &control };
    let process = fork(&kept, || gateway_process::run(order, bound, ends, launcher))?;
    let process = Pid::from_raw(process).ok_or_else(|| io::Error::other("a process without a number"))?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    Ok(Started { child: Child { process, control, killed: false }, passed: [memory, own, gateway, theirs] })
}

/// Answers an order.
fn answer(orders: &OwnedFd, started: io::Result<Started>, children: &mut Vec<Child>) -> io::Result<()> {
    let Started { child, passed } = match started {
        Ok(started) => started,
        Err(error) => return send_message(orders, &Err::<(), String>(error.to_string())),
    };
    children.push(child);
    let bytes = encode(&Ok::<(), String>(()))?;
    let passed = passed.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&passed));
    retry_on_intr(|| sendmsg(orders, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

impl Child {
    fn kill(&mut self) {
        self.killed = true;
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Returns whether it has ended. If so, reports how to the process of cells.
    fn has_ended(&self) -> bool {
        let status = match waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(None) => return false,
            Ok(Some(status)) => status,
            Err(_) => return true,
        };
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => format!("its process exited with status {status}"),
            (_, Some(signal)) => format!("its process was ended by signal {signal}"),
            _ => "its process has ended".into(),
        };
        // The process of cells may have closed its end.
        let _ = send_message(&self.control, &GatewayMessage::Ended(how));
        true
    }
}
