// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy of memory control: how many pages cells may use, given what the host reports.

use pando_machine::PageCount;

/// The host's or the cgroup's memory divided by this stays free. Page tables of the host, buffers of the kernel and
/// other processes take memory between two readings.
const RESERVE_DIVISOR: u64 = 16;
/// The memory that stays free besides: the process itself needs it, half of it for records of cells that fall asleep or wake up.
const PROCESS_RESERVE: u64 = 128 << 8;
/// That is at most the pool divided by this.
const PROCESS_DIVISOR: u64 = 4;
/// Pressure from which no more memory is taken, in percent of the time in which some process waits for memory.
const PRESSURE_LOW: f64 = 2.0;
/// Pressure from which memory is given back.
const PRESSURE_HIGH: f64 = 10.0;
/// The used memory divided by this is given back for each reading with high pressure.
const PRESSURE_DIVISOR: u64 = 16;
/// The limit grows by at most its maximum divided by this for each reading: other processes get their share of memory that became free.
const GROWTH_DIVISOR: u64 = 8;

/// The memory of the host or of a cgroup, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPool {
    /// All of it.
    pub(super) size: PageCount,
    /// The part that is free, or can be freed without writing to swap space.
    pub(super) available: PageCount,
}

/// The host's report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MemoryReading {
    /// The host's memory, and that of each cgroup around the process that has a limit.
    pub(super) pools: Vec<MemoryPool>,
    /// The share of the last ten seconds in which some process waited for memory, in percent.
    pub(super) pressure: f64,
}

/// The bounds of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitBounds {
    /// The limit is never below this: the libOS, the templates' tables and a small cell fit into it.
    pub(super) min: PageCount,
    /// The configured limit.
    pub(super) max: PageCount,
}

/// The new limit, for cells and cached blocks that use `used` pages under the present limit `limit`.
pub(super) fn next_limit(bounds: LimitBounds, used: PageCount, limit: PageCount, reading: &MemoryReading) -> PageCount {
    let LimitBounds { min, max } = bounds;
    // How many more pages may be used; negative: how many must be given back.
    let room = |pool: &MemoryPool| i128::from(pool.available.0) - i128::from(reserve(pool.size));
    let room = reading.pools.iter().map(room).min().unwrap_or(i128::from(u64::MAX));
    // A process that waits for memory of its own cgroup is no reason to give any back while there is enough of it.
    let is_short = reading.pools.iter().any(|pool| pool.available.0 < reserve(pool.size).saturating_mul(2));
    let room = match reading.pressure {
        _ if !is_short => room,
        PRESSURE_HIGH.. => room.min(-i128::from(used.0 / PRESSURE_DIVISOR)),
        PRESSURE_LOW.. => room.min(0),
        _ => room,
    };
    let target = u64::try_from((i128::from(used.0) + room).clamp(0, i128::from(u64::MAX))).unwrap_or(u64::MAX);
    let growth = limit.0.saturating_add((max.0 / GROWTH_DIVISOR).max(1));
    PageCount(target.min(growth).max(min.0).min(max.0))
}

/// The pages of a pool that stay free.
fn reserve(size: PageCount) -> u64 {
    (size.0 / RESERVE_DIVISOR).saturating_add(process_reserve(size))
}

/// The part of it that the process itself may use.
fn process_reserve(size: PageCount) -> u64 {
    PROCESS_RESERVE.min(size.0 / PROCESS_DIVISOR)
}

/// The memory for records of cells that fall asleep or wake up.
pub(super) fn record_budget(reading: &MemoryReading) -> PageCount {
    PageCount(reading.pools.iter().map(|pool| process_reserve(pool.size)).min().unwrap_or(PROCESS_RESERVE) / 2)
}

#[cfg(test)]
mod tests {
    use super::{LimitBounds, MemoryPool, MemoryReading, next_limit, process_reserve, record_budget, reserve};
    use pando_machine::PageCount;
    use proptest::prelude::*;

    fn pool() -> impl Strategy<Value = MemoryPool> {
        (0_u64..1 << 40, 0_u64..1 << 40)
            .prop_map(|(size, available)| MemoryPool { size: PageCount(size), available: PageCount(available.min(size)) })
    }

    fn reading() -> impl Strategy<Value = MemoryReading> {
        (prop::collection::vec(pool(), 0..4), 0.0..100.0_f64).prop_map(|(pools, pressure)| MemoryReading { pools, pressure })
    }

    fn bounds() -> impl Strategy<Value = LimitBounds> {
        (0_u64..1 << 30, 0_u64..1 << 30)
            .prop_map(|(one, other)| LimitBounds { min: PageCount(one.min(other)), max: PageCount(one.max(other)) })
    }

    fn pages() -> impl Strategy<Value = PageCount> {
        (0_u64..1 << 31).prop_map(PageCount)
    }

    fn calm(size: u64, available: u64) -> MemoryReading {
        MemoryReading { pools: vec![MemoryPool { size: PageCount(size), available: PageCount(available) }], pressure: 0.0 }
    }

    proptest! {
        #[test]
        fn the_limit_stays_within_its_bounds(bounds in bounds(), used in pages(), limit in pages(), reading in reading()) {
            let next = next_limit(bounds, used, limit, &reading);
            prop_assert!(bounds.min <= next && next <= bounds.max);
        }

        #[test]
        fn used_memory_never_takes_the_reserve_of_a_pool(bounds in bounds(), used in pages(), limit in pages(), reading in reading()) {
            let next = next_limit(bounds, used, limit, &reading);
            for MemoryPool { size, available } in &reading.pools {
                // Until the next reading, no more than the limit can be used.
                let grows = next.0.saturating_sub(used.0);
                prop_assert!(next == bounds.min || grows == 0 || available.0 - grows >= reserve(*size), "{grows} of {available:?}");
            }
        }

        #[test]
        fn more_available_memory_never_lowers_the_limit(
            bounds in bounds(), used in pages(), limit in pages(), reading in reading(), more in 0_u64..1 << 30,
        ) {
            let next = next_limit(bounds, used, limit, &reading);
            let mut richer = reading.clone();
            richer.pools.iter_mut().for_each(|pool| pool.available.0 += more);
            prop_assert!(next_limit(bounds, used, limit, &richer) >= next);
            let calmer = MemoryReading { pressure: reading.pressure / 2.0, ..reading };
            prop_assert!(next_limit(bounds, used, limit, &calmer) >= next);
        }

        #[test]
        fn records_take_no_more_than_half_of_what_the_process_has_in_each_pool(reading in reading()) {
            let budget = record_budget(&reading);
            prop_assert!(reading.pools.iter().all(|pool| budget.0 <= process_reserve(pool.size) / 2));
        }

        #[test]
        fn a_calm_host_gives_everything_after_some_readings(bounds in bounds(), used in pages()) {
            let reading = calm(1 << 40, 1 << 40);
            let mut limit = bounds.min;
            for _ in 0..9 {
                limit = next_limit(bounds, used, limit, &reading);
            }
            prop_assert_eq!(limit, bounds.max);
        }

        #[test]
        fn an_unchanged_reading_leads_to_an_unchanged_limit(bounds in bounds(), used in pages(), reading in reading()) {
            let mut limit = bounds.min;
            for _ in 0..10 {
                limit = next_limit(bounds, used, limit, &reading);
            }
            prop_assert_eq!(next_limit(bounds, used, limit, &reading), limit);
        }
    }

    #[test]
    fn a_short_host_gets_memory_back_at_once() {
        let bounds = LimitBounds { min: PageCount(10), max: PageCount(10_000) };
        let next = |used, reading: &MemoryReading| next_limit(bounds, PageCount(used), PageCount(10_000), reading).0;
        assert_eq!([1600, 1 << 30].map(|size| reserve(PageCount(size))), [500, (1 << 26) + (1 << 15)]);
        assert_eq!(next(4000, &calm(16_000, 4600)), 3600, "the reserve is 5,000");
        assert_eq!(next(4000, &calm(16_000, 4000)), 3000);
        assert_eq!(next(500, &calm(16_000, 0)), 10);
        // The tightest pool counts, here a cgroup.
        let mut reading = calm(16_000, 16_000);
        reading.pools.push(MemoryPool { size: PageCount(3200), available: PageCount(900) });
        assert_eq!(next(4000, &reading), 3900, "its reserve is 1,000");
        let pressed = |pressure| MemoryReading { pressure, ..calm(16_000, 9000) };
        assert_eq!([1.9, 2.0, 9.9, 10.0].map(|pressure| next(4000, &pressed(pressure))), [8000, 4000, 4000, 3750]);
        let elsewhere = MemoryReading { pressure: 99.0, ..calm(16_000, 10_000) };
        assert_eq!(next(4000, &elsewhere), 9000, "twice the reserve is available: others wait for memory of their own");
        assert_eq!(next(4000, &MemoryReading::default()), 10_000, "a host that reports nothing limits nothing");
    }
}
