// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to stop a cell for good, and whether the freezes in its history went unnoticed.

use super::end::End;
use pando_machine::Nanos;
use serde::{Deserialize, Serialize};

/// How the operator wants a cell to be frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezeMode {
    /// Its libOS is asked, and freezes the cell when none of its operations is half done.
    Cooperative,
    /// The kernel freezes it as it stands, before its next instruction.
    Forced,
}

/// A request of the operator that a cell has not met yet, weakest first. A stronger one replaces a weaker one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// There is none.
    #[default]
    None,
    /// Freeze.
    Freeze(FreezeMode),
    /// End at the next exit, for this reason.
    End(Box<End>),
}

impl StopRequest {
    /// Requests a freeze, unless as much is requested already.
    pub(crate) fn freeze(&mut self, mode: FreezeMode) {
        match (&self, mode) {
            (StopRequest::None | StopRequest::Freeze(FreezeMode::Cooperative), _) => *self = StopRequest::Freeze(mode),
            (StopRequest::Freeze(FreezeMode::Forced) | StopRequest::End(_), _) => {}
        }
    }

    /// Requests the end. The first reason stays.
    pub(crate) fn end(&mut self, end: End) {
        if !matches!(self, StopRequest::End(_)) {
            *self = StopRequest::End(Box::new(end));
        }
    }

    /// Withdraws a request to freeze.
    pub(crate) fn withdraw_freeze(&mut self) {
        if self.wants_freeze() {
            *self = StopRequest::None;
        }
    }

    /// Whether a freeze is requested, in either mode.
    pub(crate) fn wants_freeze(&self) -> bool {
        matches!(self, StopRequest::Freeze(_))
    }

    /// Whether the cell must be frozen before its next instruction.
    pub(crate) fn is_forced_freeze(&self) -> bool {
        *self == StopRequest::Freeze(FreezeMode::Forced)
    }

    /// Takes the reason for which the cell must end.
    pub(crate) fn take_end(&mut self) -> Option<End> {
        match std::mem::take(self) {
            StopRequest::End(end) => Some(*end),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Whether programs noticed the freezes that lie between a cell and its first ancestor. Random numbers of clones may be equal if
/// they did not.
///
/// In an image it is a pair: whether a freeze went unnoticed, and the time of a forced freeze.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(bool, Option<u64>)", into = "(bool, Option<u64>)")]
pub(crate) enum FreezeHistory {
    /// Every freeze was noticed, or there was none.
    #[default]
    Noticed,
    /// A freeze was forced, or the cell ran programs that are not told of the clone.
    Unnoticed,
    /// The last freeze was forced. The libOS of a clone learns this time.
    Forced {
        /// The time.
        at: Nanos,
    },
}

impl FreezeHistory {
    /// Whether a freeze went unnoticed.
    pub(crate) fn is_unnoticed(self) -> bool {
        self != FreezeHistory::Noticed
    }

    /// When the last freeze was forced; `None`: it was not.
    pub(crate) fn forced_at(self) -> Option<Nanos> {
        match self {
            FreezeHistory::Forced { at } => Some(at),
            FreezeHistory::Noticed | FreezeHistory::Unnoticed => None,
        }
    }

    /// The history after the libOS has frozen the cell by itself.
    pub(crate) fn after_own_freeze(self, is_noticed: bool) -> FreezeHistory {
        if is_noticed && self == FreezeHistory::Noticed { FreezeHistory::Noticed } else { FreezeHistory::Unnoticed }
    }

    /// The history after a forced freeze. A cell that has not run continues where its source was frozen, so that time stays.
    pub(crate) fn after_forced_freeze(self, at: Nanos, has_run: bool) -> FreezeHistory {
        match self {
            _ if has_run => FreezeHistory::Forced { at },
            FreezeHistory::Forced { at } => FreezeHistory::Forced { at },
            FreezeHistory::Noticed | FreezeHistory::Unnoticed => FreezeHistory::Unnoticed,
        }
    }

    /// The history of a cell that has run since the last freeze.
    pub(crate) fn after_running(self) -> FreezeHistory {
        match self {
            FreezeHistory::Noticed => FreezeHistory::Noticed,
            FreezeHistory::Unnoticed | FreezeHistory::Forced { .. } => FreezeHistory::Unnoticed,
        }
    }
}

impl From<(bool, Option<u64>)> for FreezeHistory {
    fn from((is_unnoticed, forced_at): (bool, Option<u64>)) -> FreezeHistory {
        match (is_unnoticed, forced_at) {
            (_, Some(at)) => FreezeHistory::Forced { at: Nanos(at) },
            (true, None) => FreezeHistory::Unnoticed,
            (false, None) => FreezeHistory::Noticed,
        }
    }
}

impl From<FreezeHistory> for (bool, Option<u64>) {
    fn from(history: FreezeHistory) -> (bool, Option<u64>) {
        (history.is_unnoticed(), history.forced_at().map(|at| at.0))
    }
}

#[cfg(test)]
mod tests {
    use super::{FreezeHistory, FreezeMode, StopRequest};
    use crate::cell::end::End;
    use pando_machine::Nanos;

    #[test]
    fn a_request_gives_way_to_a_stronger_one_only() {
        let mut request = StopRequest::None;
        request.freeze(FreezeMode::Cooperative);
        assert!(request.wants_freeze() && !request.is_forced_freeze());
        request.freeze(FreezeMode::Forced);
        request.freeze(FreezeMode::Cooperative);
        assert!(request.is_forced_freeze());
        request.end(End::Killed);
        request.end(End::TimedOut);
        request.freeze(FreezeMode::Forced);
        request.withdraw_freeze();
        assert_eq!((request.take_end(), request), (Some(End::Killed), StopRequest::None));
    }

    #[test]
    fn a_withdrawn_freeze_leaves_no_request() {
        for mode in [FreezeMode::Cooperative, FreezeMode::Forced] {
            let mut request = StopRequest::Freeze(mode);
            assert_eq!(request.take_end(), None);
            request.withdraw_freeze();
            assert_eq!(request, StopRequest::None);
        }
    }

    #[test]
    fn an_unnoticed_freeze_marks_all_later_histories() {
        let (first, second) = (Nanos(1), Nanos(2));
        let forced = FreezeHistory::Noticed.after_forced_freeze(first, true);
        assert_eq!(forced.forced_at(), Some(first));
        assert_eq!(forced.after_forced_freeze(second, false).forced_at(), Some(first), "it has not run since");
        assert_eq!(forced.after_forced_freeze(second, true).forced_at(), Some(second));
        for later in [forced.after_own_freeze(true), forced.after_running(), FreezeHistory::Noticed.after_own_freeze(false)] {
            assert_eq!(later, FreezeHistory::Unnoticed);
        }
        assert_eq!(FreezeHistory::Noticed.after_own_freeze(true).after_running(), FreezeHistory::Noticed);
        for history in [FreezeHistory::Noticed, FreezeHistory::Unnoticed, forced] {
            assert_eq!(FreezeHistory::from(<(bool, Option<u64>)>::from(history)), history);
        }
    }
}
