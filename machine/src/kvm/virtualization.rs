// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kind of virtualisation of this host.

/// The kind of virtualisation of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Virtualization {
    /// Intel VMX.
    Vmx,
    /// AMD SVM.
    Svm,
    /// KVM is available although the CPU offers neither: a host that is itself a VM, with page tables in software.
    Software,
}

impl Virtualization {
    /// Detects the kind of this host.
    pub(super) fn host() -> Virtualization {
        let leaf_1 = std::arch::x86_64::__cpuid(1);
        let extended = std::arch::x86_64::__cpuid(0x8000_0001);
        match (leaf_1.ecx >> 5 & 1, extended.ecx >> 2 & 1) {
            (1, _) => Virtualization::Vmx,
            (_, 1) => Virtualization::Svm,
            _ => Virtualization::Software,
        }
    }
}
