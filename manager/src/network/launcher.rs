// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher: a process that starts a process for each gateway, and kills it when it is no longer needed.
//!
//! It is forked before the process of cells is confined. It confines itself: no files, no capabilities, and connections only to the
//! ports of gateways. It creates the resources that a gateway shares with the process of cells: two rings of frames, an eventfd for
//! each side, and a socket pair for messages. So the process of cells creates no socket, no memory and no descriptor. When that
//! process closes its end of the socket pair, the launcher kills the gateway's process, even if it hangs.
//!
//! In a service it also listens at the published ports of cells. It keeps these sockets until the cell has ended, so that a gateway that
//! replaces another one goes on with them.

use super::error::{NetworkError, StartError};
use super::gateway_process::{self, SharedResources};
use super::messages::{
    GatewayConfig, GatewayListeners, GatewayMessage, LauncherReply, LauncherRequest, ListenersId, MESSAGE_MAX, decode, encode,
    receive_message, send_message,
};
use pando_confine::{ConfineError, Paths, Ports, SyscallGroups};
use pando_gateway::{BindError, Gateway, PortForward};
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
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the launcher may take for an answer. It takes a millisecond on a host that is not overloaded.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Descriptors passed with an answer.
const PASSED: usize = 4;
/// Descriptors that the launcher holds for each gateway.
const DESCRIPTORS_PER_GATEWAY: usize = 2;
/// Descriptors of a gateway or of the launcher besides those for connections and for gateways.
const OWN: usize = 32;

/// The process of cells' handle to the launcher. Dropping it ends the launcher and all gateways.
#[derive(Debug)]
pub struct Launcher {
    connection: Mutex<LauncherConnection>,
    next_listeners: AtomicU64,
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
    /// Its port forwards, if the launcher listens for it.
    pub(super) forwards: Vec<PortForward>,
    /// The address of its virtual hosts.
    pub(super) virtual_hosts: Option<SocketAddr>,
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
            let limit = (descriptors + OWN).max(count * DESCRIPTORS_PER_GATEWAY + OWN);
            fork(&kept, || serve(&other, bound.as_ref(), ports, limit))?;
            Ok(own)
        };
        let socket = started().map_err(NetworkError::Launcher)?;
        let connection = Mutex::new(LauncherConnection { socket, is_lost: false });
        Ok(Launcher { connection, next_listeners: AtomicU64::new(0) })
    }

    /// A new identifier for listening sockets.
    pub(super) fn new_listeners(&self) -> ListenersId {
        ListenersId(self.next_listeners.fetch_add(1, Ordering::Relaxed))
    }

    /// Closes listening sockets that gateways used.
    pub(super) fn close(&self, listeners: ListenersId) {
        let Ok(request) = encode(&LauncherRequest::Close(listeners)) else { return };
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // If the launcher has ended, the sockets are closed already.
        let _ = retry_on_intr(|| send(&connection.socket, &request, SendFlags::NOSIGNAL));
    }

    /// Starts a gateway.
    ///
    /// # Errors
    /// A port forward cannot listen, the host has no process or descriptor for it, or the launcher has ended.
    pub(super) fn start_gateway(&self, config: &GatewayConfig) -> Result<GatewayLink, StartError> {
        let request = encode(&LauncherRequest::Start(config.clone()))?;
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let LauncherConnection { socket, is_lost } = &mut *connection;
        if std::mem::replace(is_lost, true) {
            return Err(io::Error::other("the process that starts gateways does not answer").into());
        }
        retry_on_intr(|| send(&*socket, &request, SendFlags::NOSIGNAL))?;
        let mut room = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| recvmsg(&*socket, &mut [IoSliceMut::new(&mut room)], &mut passed, RecvFlags::CMSG_CLOEXEC));
        let length = match received {
            Ok(received) if received.bytes > 0 => received.bytes,
            Ok(_) | Err(Errno::CONNRESET) => return Err(io::Error::other("the process that starts gateways has ended").into()),
            Err(Errno::AGAIN) => return Err(io::Error::other("the process that starts gateways does not answer").into()),
            Err(error) => return Err(error.into()),
        };
        *is_lost = false;
        drop(connection);
        let (forwards, virtual_hosts) = match decode(&room[..length.min(MESSAGE_MAX)])? {
            LauncherReply::Started { forwards, virtual_hosts } => (forwards, virtual_hosts),
            LauncherReply::NotListening(reason) => return Err(StartError::NotListening(reason)),
            LauncherReply::Failed(reason) => return Err(io::Error::other(reason).into()),
        };
        let rights = passed.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
            _ => None,
        });
        let [memory, own, gateway, control] = rights
            .and_then(|descriptors| <[OwnedFd; PASSED]>::try_from(descriptors).ok())
            .ok_or_else(|| io::Error::other("this process may open no more files"))?;
        Ok(GatewayLink { rings: RingOwner::open(memory)?, gateway, own, control, forwards, virtual_hosts })
    }
}

/// Creates a socket pair for messages.
fn pair() -> io::Result<[OwnedFd; 2]> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok([one, other])
}

/// Runs the launcher: starts gateways on request, until the process of cells closes its end. Returns the exit status.
fn serve(requests: &OwnedFd, bound: Option<&Gateway>, ports: Ports, limit: usize) -> u8 {
    // A launcher whose gateways have no forwards of their own listens for cells.
    let confined = confine(ports, limit, bound.is_none());
    let mut children: Vec<Child> = Vec::new();
    let mut listening: HashMap<ListenersId, Gateway> = HashMap::new();
    loop {
        let mut watched = vec![PollFd::new(requests, PollFlags::IN)];
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
        let config = match receive_message(requests, RecvFlags::empty()) {
            Ok(Some(LauncherRequest::Start(config))) => config,
            Ok(Some(LauncherRequest::Close(listeners))) => {
                listening.remove(&listeners);
                continue;
            }
            Ok(None) | Err(_) => break,
        };
        let started = match &confined {
            Ok(()) => listen(&config, &mut listening).and_then(|listeners| Ok(start(&config, bound.or(listeners))?)),
            Err(error) => Err(io::Error::other(error.to_string()).into()),
        };
        if answer(requests, started, &mut children).is_err() {
            break;
        }
    }
    children.iter_mut().for_each(Child::kill);
    0
}

/// Opens the listening sockets that a gateway needs, unless they are open.
fn listen<'a>(config: &GatewayConfig, listening: &'a mut HashMap<ListenersId, Gateway>) -> Result<Option<&'a Gateway>, StartError> {
    let GatewayConfig { listeners: Some(listeners), rules, resolvers, descriptors, .. } = config else { return Ok(None) };
    let GatewayListeners { id, forwards, virtual_hosts } = listeners;
    let bind = || {
        let mut bound = Gateway::bind(forwards, rules.clone(), resolvers.clone(), *descriptors)?;
        virtual_hosts.clone().map_or(Ok(()), |config| bound.bind_virtual_hosts(config))?;
        Ok::<_, BindError>(bound)
    };
    Ok(Some(match listening.entry(*id) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(bind().map_err(|error| StartError::NotListening(error.to_string()))?),
    }))
}

/// Drops privileges that neither the launcher nor the gateways need. Gateways inherit the limits.
fn confine(ports: Ports, limit: usize, publishing: bool) -> Result<(), ConfineError> {
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
    let paths = Paths { ports, may_bind: publishing, ..Paths::default() };
    pando_confine::drop_privileges(&paths)?;
    pando_confine::limit_paths(&paths)?;
    pando_confine::install_seccomp_filter(&SyscallGroups { starting: true, publishing, ..SyscallGroups::default() })
}

/// A gateway that was started, with the descriptors for the process of cells.
struct NewGateway {
    child: Child,
    passed: [OwnedFd; PASSED],
    forwards: Vec<PortForward>,
    virtual_hosts: Option<SocketAddr>,
}

/// Starts a gateway's process.
fn start(request: &GatewayConfig, bound: Option<&Gateway>) -> io::Result<NewGateway> {
    let memory = create_rings()?;
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (own, gateway) = (event()?, event()?);
    let [theirs, control] = pair()?;
    let mut kept: Vec<BorrowedFd<'_>> = [&memory, &own, &gateway, &control].map(AsFd::as_fd).into();
    kept.extend(bound.iter().flat_map(|bound| bound.descriptors()));
    let launcher = rustix::process::getpid();
    let ends = SharedResources { memory: &memory, owner: &own, own: &gateway, control: &control };
    let process = fork(&kept, || gateway_process::run(request, bound, ends, launcher))?;
    let process = Pid::from_raw(process).ok_or_else(|| io::Error::other("a process without a number"))?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let forwards = bound.iter().flat_map(|bound| bound.forwards()).collect();
    let virtual_hosts = bound.and_then(Gateway::virtual_hosts);
    Ok(NewGateway { child: Child { process, control, killed: false }, passed: [memory, own, gateway, theirs], forwards, virtual_hosts })
}

/// Answers an order.
fn answer(requests: &OwnedFd, started: Result<NewGateway, StartError>, children: &mut Vec<Child>) -> io::Result<()> {
    let NewGateway { child, passed, forwards, virtual_hosts } = match started {
        Ok(started) => started,
        Err(StartError::NotListening(reason)) => return send_message(requests, &LauncherReply::NotListening(reason)),
        Err(StartError::Host(error)) => return send_message(requests, &LauncherReply::Failed(error.to_string())),
    };
    children.push(child);
    let bytes = encode(&LauncherReply::Started { forwards, virtual_hosts })?;
    let passed = passed.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&passed));
    retry_on_intr(|| sendmsg(requests, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))?;
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
