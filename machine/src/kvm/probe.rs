// SPDX-License-Identifier: MIT OR Apache-2.0
//! The properties of this host, for diagnosis.

use super::system::{has_bus_lock_exits, open};
use super::virtualization::Virtualization;
use super::{cpuid, registers};
use crate::HostError;

/// The properties of this host.
#[derive(Clone, Debug)]
pub struct Probe {
    /// How cells would run.
    pub virtualization: Virtualization,
    /// KVM's API version: 12 since 2007.
    pub api_version: i32,
    /// The maximum number of vCPUs of a VM.
    pub max_vcpus: usize,
    /// Whether CPL 0 can be kept from executing user pages (SMEP); without it, no machine can be made.
    pub smep: bool,
    /// Whether `cpuid` can be made to fault in cells, so that their libOS answers it.
    pub cpuid_faulting: bool,
    /// Whether split locks exit.
    pub bus_lock_exits: bool,
    /// TSC cycles per second, in kHz.
    pub tsc_khz: u32,
}

impl Probe {
    /// Probes the host.
    ///
    /// # Errors
    /// KVM is missing, not permitted or too old.
    pub fn host() -> Result<Probe, HostError> {
        const MSR_PLATFORM_INFO: u32 = 0xce;
        let system = open()?;
        let vm = HostError::kvm("create a VM", || system.create_vm())?;
        let vcpu = HostError::kvm("create a vCPU", || vm.create_vcpu(0))?;
        let cpuid = cpuid::for_cells(&system)?;
        HostError::kvm("set the vCPU's CPUID", || vcpu.set_cpuid2(&cpuid))?;
        let features = system.get_msr_feature_index_list().map(|list| list.as_slice().contains(&MSR_PLATFORM_INFO)).unwrap_or(false);
        let listed = system.get_msr_index_list().map(|list| list.as_slice().contains(&MSR_PLATFORM_INFO)).unwrap_or(false);
        Ok(Probe {
            virtualization: Virtualization::host(),
            api_version: system.get_api_version(),
            max_vcpus: system.get_max_vcpus(),
            smep: registers::has_smep(&vcpu)?,
            cpuid_faulting: features || listed,
            bus_lock_exits: has_bus_lock_exits(&vm)?,
            tsc_khz: vcpu.get_tsc_khz().unwrap_or(0),
        })
    }
}
