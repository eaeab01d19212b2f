// SPDX-License-Identifier: MIT OR Apache-2.0
//! The TCP proxy: pairs of a connection of the stack and one of the host, and the transfer between them.

use crate::limits::{HANDSHAKE_TIMEOUT, MAX_RETRYING, MAX_TURN_BYTES, RETRY_INTERVAL, RETRY_TIME};
use crate::poll::{Poll, Ready, Token};
use crate::proxy_state::{CellStream, HostStream, IncomingConnection, ProxyState};
use crate::request_name::ClientProtocol;
use crate::sockets;
use crate::timers::Timers;
use pando_stack::{ConnectionId, Stack, SynRefusal, TcpOptions, Tuple, TxSink, Unreachable};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The events of a connection's descriptor.
const WATCHED: Ready = Ready::IN.union(Ready::OUT).union(Ready::RDHUP).union(Ready::ET);

/// A pair of connections.
#[derive(Debug)]
struct ProxiedConnection {
    socket: OwnedFd,
    state: ProxyState,
    from_host: HostStream,
    from_cell: CellStream,
    /// The host's side may be readable, or at its end.
    is_readable: bool,
    /// The host's side may be writable.
    is_writable: bool,
    /// It is in the ready queue.
    is_queued: bool,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnResult {
    /// It waits for a side.
    Waits,
    /// It has more to transfer.
    HasMore,
    /// Both sides have finished.
    Done,
    /// The host's side failed.
    Failed,
}

/// Counters of connections and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferCounts {
    /// Connections that cells opened.
    pub outgoing: u64,
    /// Connections that forwards accepted.
    pub incoming: u64,
    /// Connections of cells that the host could not open.
    pub failed: u64,
    /// Bytes from cells.
    pub bytes_out: u64,
    /// Bytes to cells.
    pub bytes_in: u64,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct TcpProxy {
    list: Slab<ProxiedConnection>,
    /// Half-open connections, which have no ID in the stack yet.
    half_open: HashMap<Tuple, usize>,
    by_id: HashMap<ConnectionId, usize>,
    ready: VecDeque<usize>,
    handshakes: Timers,
    /// The retries of connections to cells.
    retries: Timers,
    pub(crate) counts: TransferCounts,
}

impl TcpProxy {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the ready queue is not empty.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a forward waits for the cell to accept this connection.
    pub(crate) fn is_connecting_cell(&self, id: ConnectionId) -> bool {
        self.by_id
            .get(&id)
            .and_then(|index| self.list.get(*index))
            .is_some_and(|connection| matches!(connection.state, ProxyState::ConnectingCell(..)))
    }

    /// Whether no bytes from cells are pending.
    pub(crate) fn is_idle(&self, stack: &Stack) -> bool {
        self.by_id.keys().all(|id| stack.readable(*id) == 0)
    }

    /// Closes all connections. If a cell has not finished sending, its peer gets a reset, because its data is incomplete.
    pub(crate) fn close(&mut self) {
        for connection in self.list.drain().filter(|connection| connection.from_cell == CellStream::Open) {
            sockets::reset(connection.socket);
        }
    }

    fn insert(&mut self, poll: &Poll, socket: OwnedFd, state: ProxyState) -> Result<usize, Errno> {
        let entry = self.list.vacant_entry();
        let index = entry.key();
        poll.add(&socket, Token::Proxy(index as u32), WATCHED).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        entry.insert(ProxiedConnection {
            socket,
            state,
            from_host: HostStream::Open,
            from_cell: CellStream::Open,
            is_readable: false,
            is_writable: false,
            is_queued: false,
        });
        Ok(index)
    }

    fn remove(&mut self, index: usize) -> Option<OwnedFd> {
        let connection = self.list.try_remove(index)?;
        match connection.state {
            ProxyState::ConnectingHost(tuple) => drop(self.half_open.remove(&tuple)),
            ProxyState::AcceptingCell(tuple, until) => {
                self.half_open.remove(&tuple);
                self.handshakes.remove(until, index);
            }
            ProxyState::Waiting(_, at) => self.retries.remove(at, index),
            ProxyState::ConnectingCell(id, _) | ProxyState::Established(id) => drop(self.by_id.remove(&id)),
        }
        Some(connection.socket)
    }

    /// Removes a connection, and resets the host's side.
    fn reset(&mut self, index: usize) {
        if let Some(socket) = self.remove(index) {
            sockets::reset(socket);
        }
    }

    /// Whether a half-open connection is known, and if so whether the host's side is connected.
    pub(crate) fn half_open(&self, tuple: &Tuple) -> Option<bool> {
        let connection = self.list.get(*self.half_open.get(tuple)?)?;
        Some(matches!(connection.state, ProxyState::AcceptingCell(..)))
    }

    /// Starts to connect the host's side of a half-open connection.
    pub(crate) fn connect_host(&mut self, poll: &Poll, tuple: Tuple, to: SocketAddr) -> Result<(), SynRefusal> {
        let socket = sockets::connect_stream(to);
        match socket.and_then(|socket| self.insert(poll, socket, ProxyState::ConnectingHost(tuple))) {
            Ok(index) => {
                self.half_open.insert(tuple, index);
                Ok(())
            }
            Err(errno) => {
                self.counts.failed += 1;
                Err(refusal(errno))
            }
        }
    }

    /// Adds a forward's accepted connection; the cell is to be connected now.
    pub(crate) fn insert_incoming(&mut self, poll: &Poll, socket: OwnedFd, incoming: IncomingConnection) -> Result<usize, Errno> {
        self.insert(poll, socket, ProxyState::Waiting(incoming, incoming.since))
    }

    /// Records that the stack is connecting to the cell.
    pub(crate) fn set_connecting_cell(&mut self, index: usize, id: ConnectionId, incoming: IncomingConnection) {
        if let Some(connection) = self.list.get_mut(index) {
            connection.state = ProxyState::ConnectingCell(id, incoming);
            self.by_id.insert(id, index);
        }
    }

    /// Schedules a retry of a connection that the cell refused, unless the cell has accepted at this port before or the time limit has
    /// passed. Returns whether it did.
    pub(crate) fn retry_later(&mut self, id: ConnectionId, answered: &BTreeSet<u16>, now: u64) -> bool {
        let Some(index) = self.by_id.get(&id).copied() else { return false };
        let Some(connection) = self.list.get_mut(index) else { return false };
        let ProxyState::ConnectingCell(_, incoming) = connection.state else { return false };
        let is_late = now >= incoming.since.saturating_add(RETRY_TIME.as_nanos() as u64);
        // Behind virtual hosts, another cell may have the address by now.
        let has_accepted = incoming.by_name.is_none() && answered.contains(&incoming.to.port());
        if has_accepted || connection.from_host.has_failed() || is_late || self.retries.len() >= MAX_RETRYING {
            return false;
        }
        let at = now.saturating_add(RETRY_INTERVAL.as_nanos() as u64);
        connection.state = ProxyState::Waiting(incoming, at);
        self.by_id.remove(&id);
        self.retries.add(at, index);
        true
    }

    /// A connection to retry now.
    pub(crate) fn next_retry(&mut self, now: u64) -> Option<(usize, IncomingConnection)> {
        let index = self.retries.pop_expired(now)?;
        match self.list.get(index)?.state {
            ProxyState::Waiting(incoming, _) => Some((index, incoming)),
            _ => None,
        }
    }

    /// Removes the connection of a client of virtual hosts that its cell did not accept.
    pub(crate) fn take_unaccepted(&mut self, id: ConnectionId, poll: &Poll) -> Option<(OwnedFd, ClientProtocol)> {
        let index = self.by_id.get(&id).copied()?;
        let connection = self.list.get(index)?;
        let ProxyState::ConnectingCell(_, IncomingConnection { by_name: Some(protocol), .. }) = connection.state else { return None };
        if connection.from_host.has_failed() || poll.remove(&connection.socket).is_err() {
            return None;
        }
        self.remove(index).map(|socket| (socket, protocol))
    }

    /// Removes the connection of a client that waits for a retry.
    pub(crate) fn take_waiting(&mut self, index: usize, poll: &Poll) -> Option<OwnedFd> {
        poll.remove(&self.list.get(index)?.socket).ok()?;
        self.remove(index)
    }

    /// Ends a forwarded connection.
    pub(crate) fn abandon(&mut self, index: usize) {
        self.reset(index);
    }

    /// Handles the end of a handshake with the cell.
    pub(crate) fn handle_accepted(&mut self, id: ConnectionId, tuple: &Tuple, stack: &mut Stack) {
        let Some(index) = self.half_open.remove(tuple) else {
            // It has timed out.
            return stack.abort(id);
        };
        if let Some(connection) = self.list.get_mut(index) {
            if let ProxyState::AcceptingCell(_, until) = connection.state {
                self.handshakes.remove(until, index);
            }
            self.counts.outgoing += 1;
            self.open(index, id, stack);
        }
    }

    /// Handles the cell's acceptance of a forward. Returns the port.
    pub(crate) fn handle_opened(&mut self, id: ConnectionId, stack: &mut Stack) -> Option<u16> {
        let index = self.by_id.get(&id).copied()?;
        let ProxyState::ConnectingCell(_, incoming) = self.list.get(index)?.state else { return None };
        self.counts.incoming += 1;
        self.open(index, id, stack);
        Some(incoming.to.port())
    }

    fn open(&mut self, index: usize, id: ConnectionId, stack: &mut Stack) {
        // The sender has decided already which bytes go together.
        stack.set(id, TcpOptions { no_delay: true, ..TcpOptions::default() });
        if let Some(connection) = self.list.get_mut(index) {
            connection.state = ProxyState::Established(id);
            self.by_id.insert(id, index);
            self.queue(index);
        }
    }

    /// Handles a failure of the cell's side: the host's side fails, too, after the data that arrived before.
    pub(crate) fn handle_failed(&mut self, id: ConnectionId, stack: &mut Stack, now: u64) {
        if let Some(index) = self.by_id.get(&id).copied() {
            if let Some(connection) = self.list.get_mut(index) {
                connection.from_cell = CellStream::Failed;
            }
            let _ = self.turn(index, stack, now);
            stack.abort(id);
            self.reset(index);
        }
    }

    /// Handles the end of the cell's side.
    pub(crate) fn handle_closed(&mut self, id: ConnectionId) {
        if let Some(index) = self.by_id.get(&id).copied() {
            self.remove(index);
        }
    }

    /// Queues a connection for transfer.
    pub(crate) fn wake(&mut self, id: ConnectionId) {
        if let Some(index) = self.by_id.get(&id).copied() {
            self.queue(index);
        }
    }

    fn queue(&mut self, index: usize) {
        if let Some(connection) = self.list.get_mut(index)
            && !connection.is_queued
            && matches!(connection.state, ProxyState::Established(_))
        {
            connection.is_queued = true;
            self.ready.push_back(index);
        }
    }

    /// Handles events of a connection's host side.
    pub(crate) fn process(&mut self, index: usize, ready: Ready, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        // It may have been closed after the event was reported.
        let Some(connection) = self.list.get_mut(index) else { return };
        connection.is_readable |= ready.intersects(Ready::IN | Ready::RDHUP | Ready::HUP | Ready::ERR);
        connection.is_writable |= ready.intersects(Ready::OUT | Ready::HUP | Ready::ERR);
        connection.from_host.process(ready);
        if connection.from_host.has_failed() && matches!(connection.state, ProxyState::Waiting(..)) {
            // The client has disconnected.
            return self.reset(index);
        }
        let ProxyState::ConnectingHost(tuple) = connection.state else { return self.queue(index) };
        match sockopt::socket_error(&connection.socket).unwrap_or_else(Err) {
            Ok(()) if connection.is_writable => {
                if !stack.admit(&tuple, now) {
                    // The half-open connection has expired.
                    self.remove(index);
                    return;
                }
                let until = now.saturating_add(HANDSHAKE_TIMEOUT.as_nanos() as u64);
                connection.state = ProxyState::AcceptingCell(tuple, until);
                self.handshakes.add(until, index);
            }
            Ok(()) => {}
            Err(errno) => {
                self.counts.failed += 1;
                stack.refuse(&tuple, refusal(errno), sink);
                self.remove(index);
            }
        }
    }

    /// Gives each ready connection a turn. Returns whether any has more to transfer.
    pub(crate) fn run(&mut self, stack: &mut Stack, now: u64) -> bool {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            let Some(connection) = self.list.get_mut(index) else { continue };
            connection.is_queued = false;
            let ProxyState::Established(id) = connection.state else { continue };
            match self.turn(index, stack, now) {
                TurnResult::Waits => {}
                TurnResult::HasMore => self.queue(index),
                TurnResult::Done => {
                    stack.release(id, now);
                    self.remove(index);
                }
                TurnResult::Failed => {
                    stack.abort(id);
                    self.reset(index);
                }
            }
        }
        !self.ready.is_empty()
    }

    fn turn(&mut self, index: usize, stack: &mut Stack, now: u64) -> TurnResult {
        let Some(connection) = self.list.get_mut(index) else { return TurnResult::Waits };
        let ProxyState::Established(id) = connection.state else { return TurnResult::Waits };
        let TransferCounts { bytes_out, bytes_in, .. } = &mut self.counts;
        match connection
            .send_to_host(id, stack, bytes_out)
            .and_then(|out| Ok([out, connection.receive_from_host(id, stack, bytes_in, now)?]))
        {
            Err(_) => TurnResult::Failed,
            _ if connection.from_host.is_finished() && connection.from_cell != CellStream::Open => TurnResult::Done,
            Ok([false, false]) => TurnResult::Waits,
            Ok(_) => TurnResult::HasMore,
        }
    }

    /// Removes half-open connections whose handshake timed out.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(index) = self.handshakes.pop_expired(now) {
            self.reset(index);
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.handshakes.next().into_iter().chain(self.retries.next()).min()
    }
}

impl ProxiedConnection {
    /// Transfers bytes from the cell to the host. Returns whether there may be more at once.
    fn send_to_host(&mut self, id: ConnectionId, stack: &mut Stack, counts: &mut u64) -> Result<bool, Errno> {
        let ProxiedConnection { socket, is_writable, .. } = self;
        let (mut moved, mut outcome) = (0, Ok(()));
        while *is_writable && outcome.is_ok() && moved < MAX_TURN_BYTES {
            let taken = stack.receive(id, &mut |bytes| {
                if !*is_writable || outcome.is_err() {
                    return 0;
                }
                match send(&*socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(sent) => {
                        *is_writable = sent == bytes.len();
                        sent
                    }
                    Err(Errno::AGAIN) => {
                        *is_writable = false;
                        0
                    }
                    Err(errno) => {
                        outcome = Err(errno);
                        0
                    }
                }
            });
            moved += taken;
            if taken == 0 {
                break;
            }
        }
        *counts += moved as u64;
        outcome?;
        let is_empty = stack.readable(id) == 0;
        if is_empty && self.from_cell == CellStream::Open && stack.has_finished(id) {
            self.from_cell = CellStream::Finished;
            // The peer may have disconnected.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        Ok(!is_empty && self.is_writable)
    }

    /// Transfers bytes from the host to the cell. Returns whether there may be more at once.
    fn receive_from_host(&mut self, id: ConnectionId, stack: &mut Stack, counts: &mut u64, now: u64) -> Result<bool, Errno> {
        if self.from_host.is_finished() {
            return if self.from_host.has_failed() { Err(Errno::CONNRESET) } else { Ok(false) };
        }
        let ProxiedConnection { socket, is_readable, from_host, .. } = self;
        let (mut moved, mut outcome, mut finished) = (0, Ok(()), false);
        while *is_readable && moved < MAX_TURN_BYTES {
            let given = stack.send(id, &mut |room| {
                if !*is_readable {
                    return 0;
                }
                let length = room.len();
                match recv(&*socket, room, RecvFlags::DONTWAIT) {
                    // A short read means that no more is available, unless an end follows.
                    Ok((read, _)) => {
                        finished = read == 0;
                        *is_readable = !finished && (read == length || from_host.is_ending());
                        read
                    }
                    Err(errno) => {
                        *is_readable = false;
                        outcome = if errno == Errno::AGAIN { Ok(()) } else { Err(errno) };
                        0
                    }
                }
            });
            moved += given;
            if given == 0 {
                break;
            }
        }
        *counts += moved as u64;
        outcome?;
        if finished {
            self.from_host.finish();
            stack.finish(id, now);
        }
        Ok(self.is_readable && stack.writable(id) > 0)
    }
}

/// The refusal that a cell gets for a failed connection of the host.
fn refusal(errno: Errno) -> SynRefusal {
    unreachable(errno).map_or(SynRefusal::Reset, SynRefusal::Unreachable)
}

/// The ICMP reason for a host's error, if there is one.
pub(crate) fn unreachable(errno: Errno) -> Option<Unreachable> {
    match errno {
        Errno::NETUNREACH | Errno::NETDOWN => Some(Unreachable::Network),
        Errno::HOSTUNREACH | Errno::HOSTDOWN | Errno::TIMEDOUT => Some(Unreachable::Host),
        Errno::ACCESS | Errno::PERM => Some(Unreachable::AdminProhibited),
        _ => None,
    }
}
