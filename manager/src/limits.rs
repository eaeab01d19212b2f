// SPDX-License-Identifier: MIT OR Apache-2.0
//! The resource limits of a cell.

use crate::host;
use pando_kernel::{CellId, CpuLimit, Weight};
use pando_launch::{LaunchError, Operator};
use pando_machine::PageCount;
use std::time::Duration;

/// The resource limits of a cell. `None`: no limit, or for the memory the default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Its memory, tables included.
    pub memory: Option<PageCount>,
    /// Its share of one core.
    pub cpu_limit: Option<CpuLimit>,
    /// Its CPU weight among its siblings.
    pub weight: Option<Weight>,
    /// Bytes of its standard output and standard error together.
    pub output: Option<u64>,
    /// The time from its start to its end.
    pub time: Option<Duration>,
}

impl Limits {
    /// The memory limit; by default a quarter of the host's memory.
    pub fn memory(&self) -> PageCount {
        self.memory.unwrap_or_else(|| PageCount(host::memory().0 / 4))
    }

    /// Limits a cell's share of a core, and sets its CPU weight, as far as these are given.
    ///
    /// # Errors
    /// The cell has ended.
    pub fn apply(&self, operator: &dyn Operator, cell: CellId) -> Result<(), LaunchError> {
        self.cpu_limit.map_or(Ok(()), |cpu_limit| operator.set_cpu_limit(cell, cpu_limit))?;
        self.weight.map_or(Ok(()), |weight| operator.set_weight(cell, weight))
    }
}
