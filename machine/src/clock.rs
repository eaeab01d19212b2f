// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time: nanoseconds of the machine's clock, and their relation to the TSC.

use std::ops::Add;
use std::time::Duration;

/// A time on the machine's clock, in nanoseconds since the machine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Later than any time that can occur.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Nanos;

    /// The time `later` after this one; [`Nanos::NEVER`] on overflow.
    fn add(self, later: Duration) -> Nanos {
        Nanos(u64::try_from(later.as_nanos()).map_or(u64::MAX, |nanos| self.0.saturating_add(nanos)))
    }
}
