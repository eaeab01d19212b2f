// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU shares: the largest part of a vCPU's time that a cell gets, even when no other cell wants it.
//!
//! Time is divided into periods. A cell that has used its part of a period waits for the next. It cannot be stopped to the
//! nanosecond; the excess is charged to the following periods.

use crate::limits::SHARE_PERIOD;
use pando_machine::Nanos;
use std::time::Duration;

/// The denominator of a share: parts per million.
const WHOLE: u32 = 1_000_000;

/// A part of one vCPU's time: more than 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Converts a number from 0 (exclusive) to 1 into a share, in steps of one millionth. `None` for any other number.
    #[must_use]
    pub fn new(part: f64) -> Option<Share> {
        // Rounded up, so that no share becomes 0.
        (part > 0.0 && part <= 1.0).then(|| Share((part * f64::from(WHOLE)).ceil() as u32))
    }

    /// The share as a number from 0 to 1.
    #[must_use]
    pub fn part(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// CPU time in each period.
    fn budget(self) -> Duration {
        SHARE_PERIOD / WHOLE * self.0
    }
}

/// The CPU time of a cell with a share in the current period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    share: Share,
    /// Start of the current period.
    since: Nanos,
    /// Time used in this period, including the excess of earlier ones.
    used: Duration,
}

impl Allowance {
    /// The allowance of a cell that has used nothing yet.
    pub(crate) fn new(share: Share, now: Nanos) -> Allowance {
        Allowance { share, since: now, used: Duration::ZERO }
    }

    /// How long the cell may run now.
    ///
    /// # Errors
    /// The share is used up; the cell may run again at the returned time.
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

    /// Charges used CPU time.
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

    /// An allowance of a quarter, of which `used` is spent in the first period.
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
        // Unused time does not accumulate.
        assert_eq!(quarter(Duration::ZERO).left(START + SHARE_PERIOD * 9), Ok(SHARE_PERIOD / 4));
    }

    #[test]
    fn too_much_is_paid_back() {
        // Three quarters of a period, half a period more than its part: it waits until the third period from now.
        let mut allowance = quarter(SHARE_PERIOD * 3 / 4);
        assert_eq!(allowance.left(START), Err(START + SHARE_PERIOD * 3));
        assert_eq!(allowance.left(START + SHARE_PERIOD), Err(START + SHARE_PERIOD * 3));
        assert_eq!(allowance.left(START + SHARE_PERIOD * 3), Ok(SHARE_PERIOD / 4));
        let mut allowance = quarter(SHARE_PERIOD * 3 / 8);
        assert_eq!(allowance.left(START), Err(START + SHARE_PERIOD));
        assert_eq!(allowance.left(START + SHARE_PERIOD), Ok(SHARE_PERIOD / 8));
    }
}
