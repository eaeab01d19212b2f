// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host on which the figures were measured.

use crate::bare::Bare;
use crate::sample::Sample;
use crate::{BenchError, native};
use pando_machine::kvm::{Probe, Virtualization};
use std::fmt;

/// Properties of the host that explain its figures.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// Cores that this process may use.
    pub cores: usize,
    /// The kind of virtualisation that cells use here.
    pub virtualization: Virtualization,
    /// Nanoseconds of an exit to this process and back, without any work of the kernel.
    pub exit_nanos: f64,
}

impl HostInfo {
    /// Examines the host; takes a tenth of a second.
    ///
    /// # Errors
    /// If KVM is missing, not permitted or too old.
    pub fn host() -> Result<HostInfo, BenchError> {
        // Before pinning, which would leave one.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let _pinned = native::cpu::PinnedThread::to_one_core().map_err(BenchError::host("pin the measuring thread to one core"))?;
        let mut bare = Bare::new()?;
        let exit = Sample::take(20, || bare.exit())?;
        Ok(HostInfo { cores, virtualization: Probe::host()?.virtualization, exit_nanos: exit.median() })
    }
}

impl fmt::Display for HostInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.virtualization {
            Virtualization::Vmx => "virtualisation in hardware (VMX)",
            Virtualization::Svm => "virtualisation in hardware (SVM)",
            Virtualization::Software => "nested, page tables in software",
        };
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{} {cores}; {how}; a bare exit takes {:.1} µs", self.cores, self.exit_nanos / 1000.0)
    }
}
