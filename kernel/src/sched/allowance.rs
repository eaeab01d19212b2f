// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounting of CPU shares ([`Share`]).
//!
//! Time is divided into periods. A cell that has used its part of a period waits for the next. It cannot be stopped to the
//! nanosecond; the excess is charged to the following periods.

use crate::cell::share::Share;
use crate::limits::SHARE_PERIOD;
use pando_machine::Nanos;
use std::time::Duration;

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

    /// The share.
    pub(crate) fn share(&self) -> Share {
        self.share
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
    use super::Allowance;
    use crate::cell::share::Share;
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
    fn unused_time_of_a_period_is_left() {
        assert_eq!(quarter(Duration::ZERO).left(START), Ok(SHARE_PERIOD / 4));
        assert_eq!(quarter(SHARE_PERIOD / 5).left(START + SHARE_PERIOD / 2), Ok(SHARE_PERIOD / 20));
        assert_eq!(quarter(SHARE_PERIOD / 4).left(START + SHARE_PERIOD / 2), Err(START + SHARE_PERIOD));
        // Unused time does not accumulate.
        assert_eq!(quarter(Duration::ZERO).left(START + SHARE_PERIOD * 9), Ok(SHARE_PERIOD / 4));
    }

    #[test]
    fn excess_is_charged_to_later_periods() {
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
