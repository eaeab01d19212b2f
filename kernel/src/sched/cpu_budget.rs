// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounting of CPU limits ([`CpuLimit`]).
//!
//! Time is divided into periods. A cell that has used its part of a period waits for the next. It cannot be stopped to the
//! nanosecond; the excess is charged to the following periods.

use crate::cell::cpu_limit::CpuLimit;
use crate::limits::CPU_LIMIT_PERIOD;
use pando_machine::Nanos;
use std::time::Duration;

/// The CPU time of a cell with a limit in the current period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuBudget {
    limit: CpuLimit,
    /// Start of the current period.
    since: Nanos,
    /// Time used in this period, including the excess of earlier ones.
    used: Duration,
}

impl CpuBudget {
    /// The budget of a cell that has used nothing yet.
    pub(crate) fn new(limit: CpuLimit, now: Nanos) -> CpuBudget {
        CpuBudget { limit, since: now, used: Duration::ZERO }
    }

    /// The limit.
    pub(crate) fn limit(&self) -> CpuLimit {
        self.limit
    }

    /// How long the cell may run now.
    ///
    /// # Errors
    /// The time of the limit is used up; the cell may run again at the returned time.
    pub(crate) fn left(&mut self, now: Nanos) -> Result<Duration, Nanos> {
        let budget = self.limit.budget();
        let over = now.since(self.since).as_nanos() / CPU_LIMIT_PERIOD.as_nanos();
        let paid = budget.saturating_mul(u32::try_from(over).unwrap_or(u32::MAX));
        self.since = self.since + CPU_LIMIT_PERIOD.saturating_mul(u32::try_from(over).unwrap_or(u32::MAX));
        self.used = self.used.saturating_sub(paid);
        if self.used < budget {
            return Ok(budget - self.used);
        }
        let periods = self.used.as_nanos() / budget.as_nanos();
        Err(self.since + CPU_LIMIT_PERIOD.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX)))
    }

    /// Charges used CPU time.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.used += time;
    }
}

#[cfg(test)]
mod tests {
    use super::CpuBudget;
    use crate::cell::cpu_limit::CpuLimit;
    use crate::limits::CPU_LIMIT_PERIOD;
    use pando_machine::Nanos;
    use std::time::Duration;

    const START: Nanos = Nanos(7_000);

    /// A budget of a quarter, of which `used` is spent in the first period.
    fn quarter(used: Duration) -> CpuBudget {
        let mut cpu_budget = CpuBudget::new(CpuLimit::new(0.25).expect("a part"), START);
        cpu_budget.spend(used);
        cpu_budget
    }

    #[test]
    fn unused_time_of_a_period_is_left() {
        assert_eq!(quarter(Duration::ZERO).left(START), Ok(CPU_LIMIT_PERIOD / 4));
        assert_eq!(quarter(CPU_LIMIT_PERIOD / 5).left(START + CPU_LIMIT_PERIOD / 2), Ok(CPU_LIMIT_PERIOD / 20));
        assert_eq!(quarter(CPU_LIMIT_PERIOD / 4).left(START + CPU_LIMIT_PERIOD / 2), Err(START + CPU_LIMIT_PERIOD));
        // Unused time does not accumulate.
        assert_eq!(quarter(Duration::ZERO).left(START + CPU_LIMIT_PERIOD * 9), Ok(CPU_LIMIT_PERIOD / 4));
    }

    #[test]
    fn excess_is_charged_to_later_periods() {
        // Three quarters of a period, half a period more than its part: it waits until the third period from now.
        let mut cpu_budget = quarter(CPU_LIMIT_PERIOD * 3 / 4);
        assert_eq!(cpu_budget.left(START), Err(START + CPU_LIMIT_PERIOD * 3));
        assert_eq!(cpu_budget.left(START + CPU_LIMIT_PERIOD), Err(START + CPU_LIMIT_PERIOD * 3));
        assert_eq!(cpu_budget.left(START + CPU_LIMIT_PERIOD * 3), Ok(CPU_LIMIT_PERIOD / 4));
        let mut cpu_budget = quarter(CPU_LIMIT_PERIOD * 3 / 8);
        assert_eq!(cpu_budget.left(START), Err(START + CPU_LIMIT_PERIOD));
        assert_eq!(cpu_budget.left(START + CPU_LIMIT_PERIOD), Ok(CPU_LIMIT_PERIOD / 8));
    }
}
