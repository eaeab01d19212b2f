// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of a proxied connection, and their transitions.

use crate::poll::Ready;
use crate::request_name::ClientProtocol;
use pando_stack::{ConnectionId, Tuple};
use std::net::SocketAddr;

/// A forwarded connection to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncomingConnection {
    /// The destination.
    pub(crate) to: SocketAddr,
    /// When it started.
    pub(crate) since: u64,
    /// The protocol of a client of virtual hosts; `None`: a forward's client.
    pub(crate) by_name: Option<ClientProtocol>,
}

/// How far a pair of connections is established.
///
/// ```text
///   opened by the cell:     ConnectingHost ── host connected ──► AcceptingCell ── handshake done ──► Established
///
///   opened by the host:     Waiting ── time reached ──► ConnectingCell ── cell accepted ──► Established
///                              ▲                             │
///                              └──────── cell refused ───────┘
/// ```
///
/// A pair is removed from any state if a side fails or a time limit passes, and from `Established` after both sides have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyState {
    /// The host's side is connecting; the cell waits.
    ConnectingHost(Tuple),
    /// The cell's SYN was answered; the handshake must end by this time.
    AcceptingCell(Tuple, u64),
    /// The host's side is connected; the cell is to be connected at this time.
    Waiting(IncomingConnection, u64),
    /// The cell's side is connecting; the host's is connected.
    ConnectingCell(ConnectionId, IncomingConnection),
    /// Both sides are connected.
    Established(ConnectionId),
}

/// The stream from the host to the cell. A read may find the FIN before its event: then `Open` becomes `Finished`.
///
/// ```text
///   Open ── FIN ──► Ending ─────── all read ──► Finished
///     │                │                            │
///   error            error                        error
///     ▼                ▼                            ▼
///   Failing ◄──────────┘ ───────── all read ──► Failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostStream {
    /// More may come.
    Open,
    /// The host's side has ended: an end follows its remaining bytes.
    Ending,
    /// The host's side has failed: nothing follows its remaining bytes.
    Failing,
    /// All bytes and the end were passed to the cell.
    Finished,
    /// The same, and the host's side has failed.
    Failed,
}

impl HostStream {
    /// Handles events of the host's socket.
    pub(crate) fn process(&mut self, ready: Ready) {
        let (ends, fails) = (ready.intersects(Ready::RDHUP | Ready::HUP | Ready::ERR), ready.intersects(Ready::ERR));
        *self = match *self {
            HostStream::Open | HostStream::Ending if fails => HostStream::Failing,
            HostStream::Open if ends => HostStream::Ending,
            HostStream::Finished if fails => HostStream::Failed,
            state => state,
        };
    }

    /// All bytes were read, and the end was passed to the cell.
    pub(crate) fn finish(&mut self) {
        *self = match *self {
            HostStream::Open | HostStream::Ending | HostStream::Finished => HostStream::Finished,
            HostStream::Failing | HostStream::Failed => HostStream::Failed,
        };
    }

    /// Whether an end or a failure follows the bytes that can be read.
    pub(crate) fn is_ending(self) -> bool {
        self != HostStream::Open
    }

    /// Whether the end was passed to the cell.
    pub(crate) fn is_finished(self) -> bool {
        matches!(self, HostStream::Finished | HostStream::Failed)
    }

    /// Whether the host's side has failed.
    pub(crate) fn has_failed(self) -> bool {
        matches!(self, HostStream::Failing | HostStream::Failed)
    }
}

/// The stream from the cell to the host. It never becomes `Open` again; a failure after the end makes it `Failed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellStream {
    /// More may come.
    Open,
    /// All bytes and the end were passed to the host.
    Finished,
    /// The cell's side has failed: the host must not see an end.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::HostStream;
    use crate::poll::Ready;

    #[test]
    fn a_failure_is_never_forgotten() {
        let mut stream = HostStream::Open;
        stream.process(Ready::RDHUP);
        assert_eq!(stream, HostStream::Ending);
        stream.process(Ready::ERR);
        assert!(stream.has_failed() && !stream.is_finished());
        stream.finish();
        stream.process(Ready::RDHUP | Ready::HUP);
        assert_eq!(stream, HostStream::Failed);
        let mut stream = HostStream::Ending;
        stream.finish();
        stream.process(Ready::ERR);
        assert_eq!(stream, HostStream::Failed);
    }
}
