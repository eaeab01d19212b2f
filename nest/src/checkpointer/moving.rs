// SPDX-License-Identifier: MIT OR Apache-2.0
//! The move of a halted program to another process, until it runs there or continues here.

use super::Checkpointer;
use super::family::HaltedFamily;
use super::migration::{HANDOVER_TIMEOUT, HandOverError, MovedFamily, Peer, hand_over, left};
use crate::output::{self, OutputStream};
use std::io::{Error, ErrorKind, Result};
use std::time::Instant;

/// The result of an attempt at a move.
pub(super) enum MoveAttempt {
    /// The program is the destination's.
    Moved {
        /// The name of the destination.
        destination: String,
        moved: Box<MovedFamily>,
    },
    /// A nested cell is in a state that soon changes. The program continues here meanwhile.
    TryAgain { peer: Peer, error: Error },
    /// The program continues here.
    Failed(Error),
    /// The program has ended here, and whether it runs there is not known.
    Unknown(Error),
}

impl Checkpointer<'_> {
    /// Tries to move the halted child to another process. It stays halted.
    ///
    /// # Errors
    /// A stream failed, or the device does not allow it.
    pub(super) fn try_move(&mut self, mut peer: Peer) -> Result<MoveAttempt> {
        let until = Instant::now() + HANDOVER_TIMEOUT;
        // Its output from before the move is printed here.
        output::pass_on(self.device, self.child, OutputStream::Output)?;
        // A reader that is slow has used up the time.
        let family = left(until).and_then(|_| HaltedFamily::halt(self.device, self.child, self.settings.memory, Some(until)));
        let family = match family {
            Ok(family) => family,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(MoveAttempt::TryAgain { peer, error }),
            Err(error) => {
                peer.refuse(&error);
                return Ok(MoveAttempt::Failed(error));
            }
        };
        let snapshots = match family.clone_cells() {
            Ok(snapshots) => snapshots,
            Err(error) => {
                peer.refuse(&error);
                return Ok(MoveAttempt::Failed(error));
            }
        };
        let (destination, store) = (peer.name.clone(), self.pages.as_mut().map(|pages| &mut *pages.store));
        let failed = match hand_over(self.device, &snapshots, store, peer, until) {
            Ok(moved) => {
                // Before its nested cells are resumed.
                self.device.give_up(self.child)?;
                return Ok(MoveAttempt::Moved { destination, moved: Box::new(moved) });
            }
            Err(HandOverError::Unknown(error)) => {
                self.device.give_up(self.child)?;
                let text = format!(
                    "the connection broke while the program was handed over to {destination}: {error}; it has ended here, because it \
                     may have been started there"
                );
                return Ok(MoveAttempt::Unknown(Error::new(error.kind(), text)));
            }
            Err(HandOverError::Before(error)) => error,
        };
        // One that cannot be given up takes memory, and hinders nothing else.
        snapshots.into_iter().for_each(|(_, snapshot)| drop(self.device.give_up(snapshot)));
        Ok(MoveAttempt::Failed(failed))
    }
}
