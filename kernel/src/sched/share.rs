// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares: how much of a vCPU's time a cell may have at most, whoever else wants it.
//!
//! Time is cut into periods. A cell that has had its part of one waits for the next; what it had too much, because it could not be stopped to the nanosecond, counts against
//! the periods that follow.

use crate::limits::SHARE_PERIOD;
use pando_machine::Nanos;
use std::time::Duration;

/// Parts in a whole.
const WHOLE: u32 = 1_000_000;

/// A part of one vCPU's time: more than nothing, at most all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// The share that a number from 0 (exclusive) to 1 stands for, to a millionth. `None` for any other number.
    #[must_use]
    pub fn new(part: f64) -> Option<Share> {
        // Rounded up, so that something is left of any part.
        (part > 0.0 && part <= 1.0).then(|| Share((part * f64::from(WHOLE)).ceil() as u32))
    }

    /// The number that it stands for.
    #[must_use]
    pub fn part(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// What it comes to in each period.
    fn budget(self) -> Duration {
        SHARE_PERIOD / WHOLE * self.0
    }
}

/// What a cell with a share has had of the current period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    share: Share,
    /// When the current period began.
    since: Nanos,
    /// What the cell has had of it, and what it still owes.
    used: Duration,
}

impl Allowance {
    /// The allowance of a cell that has had nothing yet.
    pub(crate) fn new(share: Share, now: Nanos) -> Allowance {
        Allowance { share, since: now, used: Duration::ZERO }
    }

    /// How long the cell may run now.
    ///
    /// # Errors
    /// Not at all, before this moment.
    pub(crate) fn left(&mut self, now: Nanos) -> Result<Duration, Nanos> {
        let budget = self.share.budget();
        let over = now.since(self.since).as_nanos() / SHARE_PERIOD.as_nanos();
        let paid = budget.saturating_mul(u32::try_from(over).unwrap_or(u32::MAX));
        self.since = self.since + SHARE_PERIOD.saturating_mul(u32::try_from(over).unwrap_or(u32::MAX));
        self.used = self.used.saturating_sub(paid);
        if self.used < budget {
            return Ok(budget - self.used);
        }
        let periods = self.used.as_nanos() / budget.as_nanos();
        Err(self.since + SHARE_PERIOD.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX)))
    }

    /// Takes note of time that the cell has had.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.used += time;
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, Share};
    use crate::limits::SHARE_PERIOD;
    use pando_machine::Nanos;
    use std::time::Duration;

    const START: Nanos = Nanos(7_000);

    /// An allowance of a quarter that has had so much of its first period.
    fn quarter(used: Duration) -> Allowance {
        let mut allowance = Allowance::new(Share::new(0.25).expect("a part"), START);
        allowance.spend(used);
        allowance
    }

    #[test]
    fn a_share_is_more_than_nothing_and_at_most_all() {
        for part in [0.0, -0.5, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(part), None, "{part}");
        }
        assert_eq!(Share::new(1.0).map(Share::budget), Some(SHARE_PERIOD));
        assert!(Share::new(1e-300).is_some_and(|share| share.budget() > Duration::ZERO));
    }

    #[test]
    fn what_is_left_is_what_was_not_used() {
        assert_eq!(quarter(Duration::ZERO).left(START), Ok(SHARE_PERIOD / 4));
        assert_eq!(quarter(SHARE_PERIOD / 5).left(START + SHARE_PERIOD / 2), Ok(SHARE_PERIOD / 20));
        assert_eq!(quarter(SHARE_PERIOD / 4).left(START + SHARE_PERIOD / 2), Err(START + SHARE_PERIOD));
        // What was not used is not kept.
        assert_eq!(quarter(Duration::ZERO).left(START + SHARE_PERIOD * 9), Ok(SHARE_PERIOD / 4));
    }

    #[test]
    fn too_much_is_paid_back() {
        // Three quarters of a period, half of one more than its part: it waits for the third that follows.
        let mut allowance = quarter(SHARE_PERIOD * 3 / 4);
        assert_eq!(allowance.left(START), Err(START + SHARE_PERIOD * 3));
        assert_eq!(allowance.left(START + SHARE_PERIOD), Err(START + SHARE_PERIOD * 3));
        assert_eq!(allowance.left(START + SHARE_PERIOD * 3), Ok(SHARE_PERIOD / 4));
        let mut allowance = quarter(SHARE_PERIOD * 3 / 8);
        assert_eq!(allowance.left(START), Err(START + SHARE_PERIOD));
        assert_eq!(allowance.left(START + SHARE_PERIOD), Ok(SHARE_PERIOD / 8));
    }
}
