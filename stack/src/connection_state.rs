// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states of a connection, and their transitions.

/// The state of a connection, without the details that smoltcp's socket keeps: several states of RFC 9293 are one state here.
///
/// | state | states of RFC 9293 |
/// |---|---|
/// | `Opening`, `OpeningFinished` | SYN-SENT, SYN-RECEIVED |
/// | `Open` | ESTABLISHED, CLOSE-WAIT |
/// | `Finishing` | FIN-WAIT-1, FIN-WAIT-2, CLOSING, LAST-ACK; ESTABLISHED or CLOSE-WAIT until the FIN is queued |
/// | `Resetting` | CLOSED |
/// | `Closed` | CLOSED, TIME-WAIT |
///
/// ```text
///   Opening ────── establish ─────► Open ────────── close ──► Closed
///      │                             │ │                        ▲
///    finish                     finish abort ─► Resetting ──────┤ reset_done
///      ▼                             ▼            ▲             │
///   OpeningFinished ─ establish ─► Finishing ── abort           │
///                                    └───────────── close ──────┘
/// ```
///
/// `abort` and `close` also lead from both opening states to `Closed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// The handshake is not complete.
    Opening,
    /// The same, and the user has finished sending: a FIN follows the handshake.
    OpeningFinished,
    /// The user can send.
    Open,
    /// The user has finished sending, and the FIN or its acknowledgement is outstanding, or the peer has not finished.
    Finishing,
    /// This side has aborted the connection, and the reset is not sent yet.
    Resetting,
    /// Nothing more is sent or received; received data may be unread.
    Closed,
}

impl ConnectionState {
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, Self::Opening | Self::OpeningFinished)
    }

    /// Whether the handshake is complete and the connection neither closed nor aborted.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Finishing)
    }

    /// Whether the connection is closed or aborted.
    pub(crate) const fn is_closed(self) -> bool {
        matches!(self, Self::Resetting | Self::Closed)
    }

    /// Whether the user has finished sending.
    pub(crate) const fn is_finished(self) -> bool {
        matches!(self, Self::OpeningFinished | Self::Finishing)
    }

    /// The handshake is complete.
    pub(crate) const fn establish(&mut self) {
        *self = match *self {
            Self::Opening => Self::Open,
            Self::OpeningFinished => Self::Finishing,
            other => other,
        };
    }

    /// The user has finished sending.
    pub(crate) const fn finish(&mut self) {
        *self = match *self {
            Self::Opening => Self::OpeningFinished,
            Self::Open => Self::Finishing,
            other => other,
        };
    }

    /// Both sides have finished, or the peer has reset the connection.
    pub(crate) const fn close(&mut self) {
        *self = Self::Closed;
    }

    /// This side aborts the connection. The peer gets a reset if the connection is open.
    pub(crate) const fn abort(&mut self) {
        *self = match *self {
            Self::Open | Self::Finishing => Self::Resetting,
            Self::Opening | Self::OpeningFinished => Self::Closed,
            other => other,
        };
    }

    /// The reset was sent, or cannot be sent.
    pub(crate) const fn reset_done(&mut self) {
        if matches!(self, Self::Resetting) {
            *self = Self::Closed;
        }
    }
}

/// How a connection was opened (RFC 9293, 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// By this side.
    Active,
    /// By the peer.
    Passive,
}

/// The user's hold on a connection. It only decreases: `Attached`, `Orphaned`, `Released`.
///
/// An orphan is aborted after a timeout. The timeout starts when the user stops reading, and again whenever the peer acknowledges some of
/// the remaining data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserHold {
    /// The user reads, sends and gets events.
    Attached,
    /// The user has stopped reading; the timeout started at `since`.
    Orphaned { since: u64 },
    /// The user has released the id and gets no events.
    Released {
        /// The start of the timeout; `None` if the connection was aborted.
        since: Option<u64>,
    },
}

impl UserHold {
    /// The user stops reading.
    pub(crate) const fn orphan(&mut self, now: u64) {
        if matches!(self, Self::Attached) {
            *self = Self::Orphaned { since: now };
        }
    }

    /// The user releases the id.
    pub(crate) const fn release(&mut self) {
        *self = Self::Released { since: self.orphaned_since() };
    }

    /// The peer has acknowledged data: the timeout starts again.
    pub(crate) const fn restart_timeout(&mut self, now: u64) {
        if let Self::Orphaned { since } | Self::Released { since: Some(since) } = self {
            *since = now;
        }
    }

    /// The start of the timeout, if the user has stopped reading.
    pub(crate) const fn orphaned_since(self) -> Option<u64> {
        match self {
            Self::Attached => None,
            Self::Orphaned { since } => Some(since),
            Self::Released { since } => since,
        }
    }

    pub(crate) const fn is_released(self) -> bool {
        matches!(self, Self::Released { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionState, UserHold};

    #[test]
    fn a_connection_that_finished_early_finishes_after_the_handshake() {
        let mut state = ConnectionState::Opening;
        state.finish();
        assert!(state.is_opening() && state.is_finished());
        state.establish();
        assert_eq!(state, ConnectionState::Finishing);
        state.abort();
        assert_eq!(state, ConnectionState::Resetting);
        state.reset_done();
        assert_eq!(state, ConnectionState::Closed);
    }

    #[test]
    fn a_closed_connection_stays_closed() {
        let mut state = ConnectionState::Opening;
        state.abort();
        for change in [ConnectionState::establish, ConnectionState::finish, ConnectionState::abort, ConnectionState::reset_done] {
            change(&mut state);
            assert_eq!(state, ConnectionState::Closed);
        }
    }

    #[test]
    fn a_released_orphan_keeps_its_timeout() {
        let mut hold = UserHold::Attached;
        hold.restart_timeout(1);
        assert_eq!(hold.orphaned_since(), None);
        hold.orphan(2);
        hold.orphan(3);
        hold.release();
        assert_eq!((hold.is_released(), hold.orphaned_since()), (true, Some(2)));
        hold.restart_timeout(4);
        assert_eq!(hold.orphaned_since(), Some(4));
    }
}
