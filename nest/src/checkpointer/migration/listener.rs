// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port at which a destination asks for the program: one connection at a time, on a thread of its own.

use super::frame::{FrameStream, FrameType, PAYLOAD_MAX, text};
use super::token::{MigrationSide, MigrationToken, NONCE, random};
use super::{GREETING_TIME, MOVE_TIME, NAME_MAX};
use crate::checkpointer::file::RestoreRequirements;
use serde::{Deserialize, Serialize};
use std::io::{Error, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

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

/// A destination that has asked for the program.
#[derive(Debug)]
pub(in crate::checkpointer) struct Peer {
    pub(super) stream: FrameStream,
    /// Its name for people.
    pub(in crate::checkpointer) name: String,
    /// The next connection is accepted when this is dropped.
    _busy: Sender<()>,
}

impl Peer {
    /// Tells it why it does not get the program.
    pub(in crate::checkpointer) fn refuse(&mut self, error: &Error) {
        // It notices the end of the connection, too.
        let _ = self.stream.send(FrameType::Failed, error.to_string().as_bytes(), Instant::now() + REFUSAL_TIME);
    }

    /// The connection.
    pub(super) fn into_stream(self) -> FrameStream {
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
    pub(in crate::checkpointer) fn start(self, waker: UnixStream) -> Result<Receiver<Peer>> {
        let (sender, receiver) = sync_channel(1);
        thread::Builder::new().name("migration".into()).spawn(move || self.accept_all(&sender, waker))?;
        Ok(receiver)
    }

    fn accept_all(&self, peers: &SyncSender<Peer>, mut waker: UnixStream) {
        loop {
            let Ok((socket, _)) = self.socket.accept() else {
                thread::sleep(ERROR_PAUSE);
                continue;
            };
            // The other side knows the reason.
            let Ok((stream, name)) = self.greet(socket) else { continue };
            let (busy, done) = channel();
            if peers.send(Peer { stream, name, _busy: busy }).is_err() || waker.write_all(&[0]).is_err() {
                return;
            }
            // Nothing is sent.
            let _ = done.recv();
        }
    }

    /// Checks a peer's token, makes the offer, and waits until the peer asks for the program. Returns its name.
    fn greet(&self, socket: TcpStream) -> Result<(FrameStream, String)> {
        let mut stream = FrameStream::new(socket)?;
        let until = Instant::now() + GREETING_TIME;
        let own = random::<NONCE>()?;
        stream.send(FrameType::Hello, &own, until)?;
        let answer = stream.expect(FrameType::Answer, until)?;
        let refused = || Error::other("its token is wrong");
        let (nonce, proof) = answer.split_first_chunk::<NONCE>().ok_or_else(refused)?;
        if !self.token.is_proof(proof, MigrationSide::Destination, [&own, nonce]) {
            let _ = stream.send(FrameType::Failed, b"the token is wrong", until);
            return Err(refused());
        }
        stream.send(FrameType::Proof, &self.token.proof(MigrationSide::Source, [&own, nonce]), until)?;
        stream.payload_max = NAME_MAX;
        let offer = postcard::to_allocvec(&self.offer).map_err(Error::other)?;
        stream.send(FrameType::Offer, &offer, until)?;
        let name = stream.expect(FrameType::Move, Instant::now() + MOVE_TIME)?;
        Ok((stream, text(&name)))
    }
}
