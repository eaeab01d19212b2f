// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port at which destinations ask for the program. Several are greeted at once, and one gets it.

use super::frame::{FrameStream, FrameType, PAYLOAD_MAX, reason, text};
use super::token::{MigrationSide, MigrationToken, NONCE, random};
use super::{GREETING_TIME, MOVE_TIME, NAME_MAX};
use crate::checkpointer::file::RestoreRequirements;
use serde::{Deserialize, Serialize};
use std::io::{Error, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are greeted at once.
const GREETINGS_MAX: usize = 16;
/// How long a refusal may take: the program waits for it.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// The pause after an error of the socket, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The description of the program that moves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MigrationOffer {
    /// Its requirements of a machine.
    pub requirements: RestoreRequirements,
    /// The program: opaque text of the command line.
    pub program: String,
}

/// Waits for a destination.
#[derive(Debug)]
pub struct MigrationListener {
    socket: TcpListener,
    token: MigrationToken,
    offer: MigrationOffer,
}

/// Whether the program is free to move.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MoveState {
    Free,
    /// It is handed over to a peer.
    Busy,
    /// It has moved there.
    Moved(String),
}

impl MoveState {
    fn check(&self) -> Result<()> {
        match self {
            MoveState::Free => Ok(()),
            MoveState::Busy => Err(Error::other("the program is handed over to another process at this moment: try again later")),
            MoveState::Moved(destination) => Err(Error::other(format!("the program has moved to {destination} already"))),
        }
    }
}

/// A connection whose peer has not asked for the program yet.
#[derive(Debug)]
struct Greeting {
    number: u64,
    socket: TcpStream,
    /// The peer has the token.
    is_proved: bool,
}

/// The work of the threads that greet peers.
#[derive(Debug)]
struct Greetings {
    state: MoveState,
    /// The oldest ones first.
    open: Vec<Greeting>,
}

impl Greetings {
    /// Makes room for one more: the oldest connection without a proof is closed. `false`: all have proved the token.
    fn make_room(&mut self) -> bool {
        if self.open.len() < GREETINGS_MAX {
            return true;
        }
        let oldest = self.open.iter().position(|greeting| !greeting.is_proved);
        if let Some(index) = oldest {
            // Its thread reads the end of the connection.
            let _ = self.open.remove(index).socket.shutdown(Shutdown::Both);
        }
        oldest.is_some()
    }
}

fn lock(greetings: &Mutex<Greetings>) -> MutexGuard<'_, Greetings> {
    greetings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right of one peer to the program, until this is dropped.
#[derive(Debug)]
struct Reservation(Arc<Mutex<Greetings>>);

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut greetings = lock(&self.0);
        if greetings.state == MoveState::Busy {
            greetings.state = MoveState::Free;
        }
    }
}

/// A destination that has asked for the program.
#[derive(Debug)]
pub(in crate::checkpointer) struct Peer {
    pub(super) stream: FrameStream,
    /// Its name for people.
    pub(in crate::checkpointer) name: String,
    /// No other peer gets the program until this is dropped.
    reservation: Reservation,
}

impl Peer {
    /// Tells it why it does not get the program.
    pub(in crate::checkpointer) fn refuse(&mut self, error: &Error) {
        // It notices the end of the connection, too.
        let _ = self.stream.send(FrameType::Failed, reason(error).as_bytes(), Instant::now() + REFUSAL_TIME);
    }

    /// The connection to this peer, to which the program has moved.
    pub(super) fn into_stream(self) -> FrameStream {
        lock(&self.reservation.0).state = MoveState::Moved(self.name);
        self.stream
    }
}

impl MigrationListener {
    /// Listens at an address.
    ///
    /// # Errors
    /// It is in use, or the offer is too long.
    pub fn bind(address: SocketAddr, token: MigrationToken, offer: MigrationOffer) -> Result<MigrationListener> {
        let failed = |error: Error| Error::new(error.kind(), format!("cannot listen at {address}: {error}"));
        let socket = TcpListener::bind(address).map_err(failed)?;
        if offer.program.len() > PAYLOAD_MAX / 2 {
            return Err(Error::other("the description of the program is too long to be moved"));
        }
        Ok(MigrationListener { socket, token, offer })
    }

    /// The address.
    ///
    /// # Errors
    /// The socket has none.
    pub fn address(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts connections on a thread until the receiver is dropped. A byte is written to `waker` for each peer.
    ///
    /// # Errors
    /// There is no thread.
    pub(in crate::checkpointer) fn start(self, waker: UnixStream) -> Result<Receiver<Peer>> {
        let (sender, receiver) = sync_channel(1);
        let greetings = Arc::new(Mutex::new(Greetings { state: MoveState::Free, open: Vec::new() }));
        let greeter = Arc::new(Greeter { token: self.token, offer: self.offer, greetings, peers: sender, waker });
        thread::Builder::new().name("migration".into()).spawn(move || accept_all(&self.socket, &greeter))?;
        Ok(receiver)
    }
}

/// Accepts connections, and greets each on a thread of its own, so that a silent peer does not delay others.
fn accept_all(socket: &TcpListener, greeter: &Arc<Greeter>) {
    for number in 0.. {
        let Ok((socket, _)) = socket.accept() else {
            thread::sleep(ERROR_PAUSE);
            continue;
        };
        let mut greetings = lock(&greeter.greetings);
        let Ok(copy) = socket.try_clone() else { continue };
        if !greetings.make_room() {
            continue;
        }
        greetings.open.push(Greeting { number, socket: copy, is_proved: false });
        drop(greetings);
        let own = Arc::clone(greeter);
        let spawned = thread::Builder::new().name("greeting".into()).spawn(move || {
            // The other side knows the reason.
            let _ = own.greet(socket, number);
            own.forget(number);
        });
        if spawned.is_err() {
            greeter.forget(number);
        }
    }
}

/// Greets peers.
#[derive(Debug)]
struct Greeter {
    token: MigrationToken,
    offer: MigrationOffer,
    greetings: Arc<Mutex<Greetings>>,
    peers: SyncSender<Peer>,
    waker: UnixStream,
}

impl Greeter {
    fn forget(&self, number: u64) {
        lock(&self.greetings).open.retain(|greeting| greeting.number != number);
    }

    /// Checks a peer's token, makes the offer, waits until the peer asks for the program, and passes it on.
    fn greet(&self, socket: TcpStream, number: u64) -> Result<()> {
        let mut stream = FrameStream::new(socket)?;
        let until = Instant::now() + GREETING_TIME;
        let nonce = random::<NONCE>()?;
        stream.send(FrameType::Hello, &nonce, until)?;
        let answer = stream.expect(FrameType::Answer, until)?;
        let refused = || Error::other("its token is wrong");
        let (destination_nonce, proof) = answer.split_first_chunk::<NONCE>().ok_or_else(refused)?;
        if !self.token.is_proof(proof, MigrationSide::Destination, [&nonce, destination_nonce]) {
            let _ = stream.send(FrameType::Failed, b"the token is wrong", until);
            return Err(refused());
        }
        lock(&self.greetings).open.iter_mut().filter(|greeting| greeting.number == number).for_each(|greeting| greeting.is_proved = true);
        stream.send(FrameType::Proof, &self.token.proof(MigrationSide::Source, [&nonce, destination_nonce]), until)?;
        stream.payload_max = NAME_MAX;
        if let Err(error) = self.check_state() {
            return stream.send(FrameType::Failed, reason(&error).as_bytes(), until);
        }
        let offer = postcard::to_allocvec(&self.offer).map_err(Error::other)?;
        stream.send(FrameType::Offer, &offer, until)?;
        let name = text(&stream.expect(FrameType::Move, Instant::now() + MOVE_TIME)?);
        match self.reserve() {
            Ok(reservation) => self.pass_on(Peer { stream, name, reservation }),
            Err(error) => stream.send(FrameType::Failed, reason(&error).as_bytes(), Instant::now() + GREETING_TIME),
        }
    }

    /// Checks that the program is free to move.
    ///
    /// # Errors
    /// It is not.
    fn check_state(&self) -> Result<()> {
        lock(&self.greetings).state.check()
    }

    /// Reserves the program for a peer.
    ///
    /// # Errors
    /// It is not free to move.
    fn reserve(&self) -> Result<Reservation> {
        let mut greetings = lock(&self.greetings);
        greetings.state.check()?;
        greetings.state = MoveState::Busy;
        Ok(Reservation(Arc::clone(&self.greetings)))
    }

    fn pass_on(&self, peer: Peer) -> Result<()> {
        self.peers.send(peer).map_err(|_| Error::other("the program has ended"))?;
        (&self.waker).write_all(&[0])
    }
}
