// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU limits: the most time of a vCPU that a cell gets, even if no other cell wants it (`cpu.max`). CPU weights: the proportions in
//! which siblings get the time that all of them want (`cpu.weight`).

use crate::limits::CPU_LIMIT_PERIOD;
use pando_abi::limits::{DEFAULT_CPU_WEIGHT, MAX_CPU_WEIGHT};
use std::time::Duration;

/// The denominator of a limit: parts per million.
const WHOLE: u32 = 1_000_000;

/// A part of one vCPU's time: more than 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuLimit(u32);

impl CpuLimit {
    /// Converts a number from 0 (exclusive) to 1 into a limit, in steps of one millionth. `None` for any other number.
    #[must_use]
    pub fn new(part: f64) -> Option<CpuLimit> {
        // Rounded up, so that no limit becomes 0.
        (part > 0.0 && part <= 1.0).then(|| CpuLimit((part * f64::from(WHOLE)).ceil() as u32))
    }

    /// The limit as a number from 0 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// CPU time in each period.
    pub(crate) fn budget(self) -> Duration {
        CPU_LIMIT_PERIOD / WHOLE * self.0
    }
}

/// The CPU weight of a cell with its descendants, among its siblings. With weight 0 they run only while the parent donates time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u16);

impl Weight {
    /// The weight of a new cell.
    pub const DEFAULT: Weight = Weight(DEFAULT_CPU_WEIGHT as u16);

    /// Converts a number to a weight. `None`: it is larger than [`MAX_CPU_WEIGHT`].
    #[must_use]
    pub fn new(weight: u64) -> Option<Weight> {
        (weight <= MAX_CPU_WEIGHT).then_some(Weight(weight as u16))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::CpuLimit;
    use crate::limits::CPU_LIMIT_PERIOD;
    use std::time::Duration;

    #[test]
    fn a_share_is_more_than_nothing_and_at_most_all() {
        for part in [0.0, -0.5, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(CpuLimit::new(part), None, "{part}");
        }
        assert_eq!(CpuLimit::new(1.0).map(CpuLimit::budget), Some(CPU_LIMIT_PERIOD));
        assert!(CpuLimit::new(1e-300).is_some_and(|limit| limit.budget() > Duration::ZERO));
    }
}
