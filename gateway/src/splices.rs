// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections: one of the stack's and one of the host's, and what is carried between them.

use crate::limits::{AGAIN, HANDSHAKE, HELD, HELD_MOST, TURN};
use crate::poll::{Poll, Ready, Token};
use crate::sockets;
use crate::timers::Timers;
use pando_stack::{ConnectionId, Obstacle, Outlet, Refusal, Stack, TcpOptions, Tuple};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use slab::Slab;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// What a connection's descriptor tells of.
const WATCHED: Ready = Ready::IN.union(Ready::OUT).union(Ready::RDHUP).union(Ready::ET);

/// What somebody of the host's wants of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Where to.
    pub(crate) to: SocketAddr,
    /// Since when.
    pub(crate) since: u64,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The host's side is being connected; the cell waits.
    Calling(Tuple),
    /// The cell was let in, and has so long for the rest of its handshake.
    Admitted(Tuple, u64),
    /// The host's side is connected; the cell is called, at this moment if it has not been yet.
    Held(Call, u64),
    /// The cell's side is being connected; the host's is.
    Ringing(ConnectionId, Call),
    /// Both are connected.
    Open(ConnectionId),
}

/// A pair of connections.
#[derive(Debug)]
struct Splice {
    socket: OwnedFd,
    stage: Stage,
    /// The host may have something to read, or an end.
    readable: bool,
    /// The host may have room.
    writable: bool,
    /// The host's side has ended: what there is to read has an end.
    ends: bool,
    /// It has broken: after what there is to read, nothing is left to do.
    broken: bool,
    /// The host has finished, and the cell was told.
    host_finished: bool,
    /// The cell has finished, and the host was told.
    cell_finished: bool,
    /// It stands among those that have something to do.
    queued: bool,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It waits for somebody.
    Waits,
    /// It could go on.
    GoesOn,
    /// Both sides have finished.
    Done,
    /// The host's side broke.
    Broken,
}

/// Bytes and connections that were carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Connections that cells opened.
    pub outgoing: u64,
    /// Connections that forwards took.
    pub incoming: u64,
    /// Connections of cells that the host could not make.
    pub failed: u64,
    /// Bytes from cells.
    pub bytes_out: u64,
    /// Bytes to cells.
    pub bytes_in: u64,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Splices {
    list: Slab<Splice>,
    /// Those that the stack has no name for yet.
    strangers: HashMap<Tuple, usize>,
    named: HashMap<ConnectionId, usize>,
    ready: VecDeque<usize>,
    handshakes: Timers,
    /// When cells are called again.
    calls: Timers,
    pub(crate) carried: Carried,
}

impl Splices {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether some wait for a turn.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a forward waits for the cell to answer here.
    pub(crate) fn is_ringing(&self, id: ConnectionId) -> bool {
        self.named.get(&id).and_then(|index| self.list.get(*index)).is_some_and(|splice| matches!(splice.stage, Stage::Ringing(..)))
    }

    /// Whether nothing that cells said waits to be carried.
    pub(crate) fn is_idle(&self, stack: &Stack) -> bool {
        self.named.keys().all(|id| stack.readable(*id) == 0)
    }

    /// Ends all of them. Whoever of the host hears a cell that has not finished learns that it broke: what it heard is not all.
    pub(crate) fn close(&mut self) {
        for splice in self.list.drain().filter(|splice| !splice.cell_finished) {
            sockets::reset(splice.socket);
        }
    }

    fn insert(&mut self, poll: &Poll, socket: OwnedFd, stage: Stage) -> Result<usize, Errno> {
        let entry = self.list.vacant_entry();
        let index = entry.key();
        poll.add(&socket, Token::Splice(index as u32), WATCHED).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let (readable, writable, ends, broken) = (false, false, false, false);
        entry.insert(Splice { socket, stage, readable, writable, ends, broken, host_finished: false, cell_finished: false, queued: false });
        Ok(index)
    }

    fn remove(&mut self, index: usize) -> Option<OwnedFd> {
        let splice = self.list.try_remove(index)?;
        match splice.stage {
            Stage::Calling(tuple) => drop(self.strangers.remove(&tuple)),
            Stage::Admitted(tuple, until) => {
                self.strangers.remove(&tuple);
                self.handshakes.remove(until, index);
            }
            Stage::Held(_, at) => self.calls.remove(at, index),
            Stage::Ringing(id, _) | Stage::Open(id) => drop(self.named.remove(&id)),
        }
        Some(splice.socket)
    }

    /// Forgets a connection, and breaks the host's side.
    fn reset(&mut self, index: usize) {
        if let Some(socket) = self.remove(index) {
            sockets::reset(socket);
        }
    }

    /// Whether a stranger is known, and if so whether the host's side has been connected.
    pub(crate) fn stranger(&self, tuple: &Tuple) -> Option<bool> {
        let splice = self.list.get(*self.strangers.get(tuple)?)?;
        Some(matches!(splice.stage, Stage::Admitted(..)))
    }

    /// Starts to connect the host's side for a stranger.
    pub(crate) fn call(&mut self, poll: &Poll, tuple: Tuple, to: SocketAddr) -> Result<(), Refusal> {
        let socket = sockets::call(to);
        match socket.and_then(|socket| self.insert(poll, socket, Stage::Calling(tuple))) {
            Ok(index) => {
                self.strangers.insert(tuple, index);
                Ok(())
            }
            Err(errno) => {
                self.carried.failed += 1;
                Err(refusal(errno))
            }
        }
    }

    /// The host's side of a forward is connected; the cell is to be called now.
    pub(crate) fn wait(&mut self, poll: &Poll, socket: OwnedFd, call: Call) -> Result<usize, Errno> {
        self.insert(poll, socket, Stage::Held(call, call.since))
    }

    /// The stack rings at the cell.
    pub(crate) fn ring(&mut self, index: usize, id: ConnectionId, call: Call) {
        if let Some(splice) = self.list.get_mut(index) {
            splice.stage = Stage::Ringing(id, call);
            self.named.insert(id, index);
        }
    }

    /// The cell did not take a call: it is held to be made again, unless the cell has answered there before or it has taken too long. Whether it is.
    pub(crate) fn hold(&mut self, id: ConnectionId, answered: &BTreeSet<u16>, now: u64) -> bool {
        let Some(index) = self.named.get(&id).copied() else { return false };
        let Some(splice) = self.list.get_mut(index) else { return false };
        let Stage::Ringing(_, call) = splice.stage else { return false };
        let is_late = now >= call.since.saturating_add(HELD.as_nanos() as u64);
        if answered.contains(&call.to.port()) || splice.broken || is_late || self.calls.len() >= HELD_MOST {
            return false;
        }
        let at = now.saturating_add(AGAIN.as_nanos() as u64);
        splice.stage = Stage::Held(call, at);
        self.named.remove(&id);
        self.calls.add(at, index);
        true
    }

    /// A call that is to be made again now.
    pub(crate) fn again(&mut self, now: u64) -> Option<(usize, Call)> {
        let index = self.calls.due(now)?;
        match self.list.get(index)?.stage {
            Stage::Held(call, _) => Some((index, call)),
            _ => None,
        }
    }

    /// Nobody will answer a call.
    pub(crate) fn give_up(&mut self, index: usize) {
        self.reset(index);
    }

    /// A stranger is connected. Whether it is one of these.
    pub(crate) fn accepted(&mut self, id: ConnectionId, tuple: &Tuple, stack: &mut Stack) {
        let Some(index) = self.strangers.remove(tuple) else {
            // Its time was over.
            return stack.abort(id);
        };
        if let Some(splice) = self.list.get_mut(index) {
            if let Stage::Admitted(_, until) = splice.stage {
                self.handshakes.remove(until, index);
            }
            self.carried.outgoing += 1;
            self.open(index, id, stack);
        }
    }

    /// The cell has answered a forward. Returns the port at which it did.
    pub(crate) fn opened(&mut self, id: ConnectionId, stack: &mut Stack) -> Option<u16> {
        let index = self.named.get(&id).copied()?;
        let Stage::Ringing(_, call) = self.list.get(index)?.stage else { return None };
        self.carried.incoming += 1;
        self.open(index, id, stack);
        Some(call.to.port())
    }

    fn open(&mut self, index: usize, id: ConnectionId, stack: &mut Stack) {
        // Who sent these bytes to the gateway has decided already which go together.
        stack.set(id, TcpOptions { no_delay: true, ..TcpOptions::default() });
        if let Some(splice) = self.list.get_mut(index) {
            splice.stage = Stage::Open(id);
            self.named.insert(id, index);
            self.queue(index);
        }
    }

    /// The cell's side broke, or never opened: so does the host's, after what arrived before.
    pub(crate) fn failed(&mut self, id: ConnectionId, stack: &mut Stack, now: u64) {
        if let Some(index) = self.named.get(&id).copied() {
            if let Some(splice) = self.list.get_mut(index) {
                // What broke did not finish: the host must not take it for that.
                splice.cell_finished = true;
            }
            let _ = self.turn(index, stack, now);
            stack.abort(id);
            self.reset(index);
        }
    }

    /// The cell's side is over.
    pub(crate) fn closed(&mut self, id: ConnectionId) {
        if let Some(index) = self.named.get(&id).copied() {
            self.remove(index);
        }
    }

    /// There is something to carry for a connection.
    pub(crate) fn wake(&mut self, id: ConnectionId) {
        if let Some(index) = self.named.get(&id).copied() {
            self.queue(index);
        }
    }

    fn queue(&mut self, index: usize) {
        if let Some(splice) = self.list.get_mut(index)
            && !splice.queued
            && matches!(splice.stage, Stage::Open(_))
        {
            splice.queued = true;
            self.ready.push_back(index);
        }
    }

    /// The host's side of a connection has something to say.
    pub(crate) fn hear(&mut self, index: usize, ready: Ready, stack: &mut Stack, outlet: &mut dyn Outlet, now: u64) {
        // One that was closed meanwhile may still be told of.
        let Some(splice) = self.list.get_mut(index) else { return };
        splice.readable |= ready.intersects(Ready::IN | Ready::RDHUP | Ready::HUP | Ready::ERR);
        splice.writable |= ready.intersects(Ready::OUT | Ready::HUP | Ready::ERR);
        splice.ends |= ready.intersects(Ready::RDHUP | Ready::HUP | Ready::ERR);
        splice.broken |= ready.intersects(Ready::ERR);
        if splice.broken && matches!(splice.stage, Stage::Held(..)) {
            // Whoever called has gone again.
            return self.reset(index);
        }
        let Stage::Calling(tuple) = splice.stage else { return self.queue(index) };
        match sockopt::socket_error(&splice.socket).unwrap_or_else(Err) {
            Ok(()) if splice.writable => {
                if !stack.admit(&tuple, now) {
                    // It asked too long ago.
                    self.remove(index);
                    return;
                }
                let until = now.saturating_add(HANDSHAKE.as_nanos() as u64);
                splice.stage = Stage::Admitted(tuple, until);
                self.handshakes.add(until, index);
            }
            Ok(()) => {}
            Err(errno) => {
                self.carried.failed += 1;
                stack.refuse(&tuple, refusal(errno), outlet);
                self.remove(index);
            }
        }
    }

    /// Gives each connection that has something to do a turn. Whether any could go on.
    pub(crate) fn run(&mut self, stack: &mut Stack, now: u64) -> bool {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            let Some(splice) = self.list.get_mut(index) else { continue };
            splice.queued = false;
            let Stage::Open(id) = splice.stage else { continue };
            match self.turn(index, stack, now) {
                Turn::Waits => {}
                Turn::GoesOn => self.queue(index),
                Turn::Done => {
                    stack.leave(id, now);
                    self.remove(index);
                }
                Turn::Broken => {
                    stack.abort(id);
                    self.reset(index);
                }
            }
        }
        !self.ready.is_empty()
    }

    fn turn(&mut self, index: usize, stack: &mut Stack, now: u64) -> Turn {
        let Some(splice) = self.list.get_mut(index) else { return Turn::Waits };
        let Stage::Open(id) = splice.stage else { return Turn::Waits };
        let Carried { bytes_out, bytes_in, .. } = &mut self.carried;
        match splice.give(id, stack, bytes_out).and_then(|out| Ok([out, splice.take(id, stack, bytes_in, now)?])) {
            Err(_) => Turn::Broken,
            _ if splice.host_finished && splice.cell_finished => Turn::Done,
            Ok([false, false]) => Turn::Waits,
            Ok(_) => Turn::GoesOn,
        }
    }

    /// Forgets strangers that never finished their handshake.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(index) = self.handshakes.due(now) {
            self.reset(index);
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.handshakes.next().into_iter().chain(self.calls.next()).min()
    }
}

impl Splice {
    /// Carries what the cell said to the host. Whether there may be more to carry at once.
    fn give(&mut self, id: ConnectionId, stack: &mut Stack, carried: &mut u64) -> Result<bool, Errno> {
        let Splice { socket, writable, .. } = self;
        let (mut moved, mut outcome) = (0, Ok(()));
        while *writable && outcome.is_ok() && moved < TURN {
            let took = stack.receive(id, &mut |bytes| {
                if !*writable || outcome.is_err() {
                    return 0;
                }
                match send(&*socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(sent) => {
                        *writable = sent == bytes.len();
                        sent
                    }
                    Err(Errno::AGAIN) => {
                        *writable = false;
                        0
                    }
                    Err(errno) => {
                        outcome = Err(errno);
                        0
                    }
                }
            });
            moved += took;
            if took == 0 {
                break;
            }
        }
        *carried += moved as u64;
        outcome?;
        let is_empty = stack.readable(id) == 0;
        if is_empty && !self.cell_finished && stack.has_finished(id) {
            self.cell_finished = true;
            // The other side may be gone already.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        Ok(!is_empty && self.writable)
    }

    /// Carries what the host said to the cell. Whether there may be more to carry at once.
    fn take(&mut self, id: ConnectionId, stack: &mut Stack, carried: &mut u64, now: u64) -> Result<bool, Errno> {
        if self.host_finished {
            return if self.broken { Err(Errno::CONNRESET) } else { Ok(false) };
        }
        let Splice { socket, readable, ends, .. } = self;
        let (mut moved, mut outcome, mut finished) = (0, Ok(()), false);
        while *readable && moved < TURN {
            let gave = stack.send(id, &mut |room| {
                if !*readable {
                    return 0;
                }
                let length = room.len();
                match recv(&*socket, room, RecvFlags::DONTWAIT) {
                    // Less than there was room for is all there was, unless an end follows it.
                    Ok((read, _)) => {
                        finished = read == 0;
                        *readable = !finished && (read == length || *ends);
                        read
                    }
                    Err(errno) => {
                        *readable = false;
                        outcome = if errno == Errno::AGAIN { Ok(()) } else { Err(errno) };
                        0
                    }
                }
            });
            moved += gave;
            if gave == 0 {
                break;
            }
        }
        *carried += moved as u64;
        outcome?;
        if finished {
            self.host_finished = true;
            stack.finish(id, now);
        }
        Ok(self.readable && stack.writable(id) > 0)
    }
}

/// How a cell is told that the host could not connect.
fn refusal(errno: Errno) -> Refusal {
    obstacle(errno).map_or(Refusal::Reset, Refusal::Unreachable)
}

/// What is in the way, where the host says that something is.
pub(crate) fn obstacle(errno: Errno) -> Option<Obstacle> {
    match errno {
        Errno::NETUNREACH | Errno::NETDOWN => Some(Obstacle::Network),
        Errno::HOSTUNREACH | Errno::HOSTDOWN | Errno::TIMEDOUT => Some(Obstacle::Host),
        Errno::ACCESS | Errno::PERM => Some(Obstacle::Forbidden),
        _ => None,
    }
}
