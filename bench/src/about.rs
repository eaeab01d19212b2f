// SPDX-License-Identifier: MIT OR Apache-2.0
//! What machine the figures are from.

use crate::bare::Bare;
use crate::sample::Sample;
use crate::{BenchError, native};
use pando_machine::kvm::{Probe, Virtualization};
use std::fmt;

/// The machine, as far as it explains figures.
#[derive(Clone, Debug)]
pub struct About {
    /// Cores that this process may use.
    pub cores: usize,
    /// How cells run here.
    pub virtualization: Virtualization,
    /// Nanoseconds of an exit to this process and back, with nothing of the kernel in between.
    pub exit_nanos: f64,
}

impl About {
    /// Looks at the host: a tenth of a second.
    ///
    /// # Errors
    /// KVM is missing, not permitted or too old.
    pub fn host() -> Result<About, BenchError> {
        // Before pinning, which would leave one.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let _pinned = native::cpu::Pinned::to_one_core().map_err(BenchError::host("pin the measuring thread to one core"))?;
        let mut bare = Bare::new()?;
        let exit = Sample::take(20, || bare.exit())?;
        Ok(About { cores, virtualization: Probe::host()?.virtualization, exit_nanos: exit.median() })
    }
}

impl fmt::Display for About {
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
