// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUID of cells: KVM's list without the features that the virtual architecture lacks.

use super::virtualization::Virtualization;
use crate::HostError;
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::Kvm as System;
use pando_abi::cpuid::Entry;

/// x87, SSE, AVX, and the three parts of AVX-512: all vector state that a cell can have. No AMX.
const VECTOR_FEATURES: u32 = 0b1110_0111;
/// The register of protection keys (PKRU). Hardware virtualisation disables them. Under software virtualisation, user
/// code has them if the host does, and they are saved and loaded with the vector state.
const PROTECTION_KEYS: u32 = 1 << 9;
/// The leaf of the XSAVE features.
const XSAVE_LEAF: u32 = 0xd;
/// Leaves from here to the extended ones describe the hypervisor.
const HYPERVISOR: std::ops::Range<u32> = 0x4000_0000..0x8000_0000;

/// Leaf 1 ECX: MONITOR, VMX, x2APIC, TSC deadline, hypervisor.
const NO_LEAF_1_ECX: u32 = 1 << 3 | 1 << 5 | 1 << 21 | 1 << 24 | 1 << 31;
/// Leaf 1 ECX: the CPU has XSAVE.
const XSAVE: u32 = 1 << 26;
/// Leaf 1 ECX: XSAVE is enabled.
const OSXSAVE: u32 = 1 << 27;
/// Leaf 7 ECX: protection keys and their enablement, WAITPKG, shadow stacks.
const NO_LEAF_7_ECX: u32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7;
/// Leaf 7 EDX: user interrupts, indirect branch tracking, the three of AMX.
const NO_LEAF_7_EDX: u32 = 1 << 5 | 1 << 20 | 1 << 22 | 1 << 24 | 1 << 25;
/// Leaf 0x80000001 ECX: SVM, MONITORX.
const NO_LEAF_8_1_ECX: u32 = 1 << 2 | 1 << 29;

/// Features that are only unprivileged instructions: SSE3 to AVX-512, bit manipulation, AES, SHA and similar, as leaf,
/// subleaf and masks of the four registers. Cells run them natively even if KVM does not list them: the software KVM
/// of a host that is itself a VM lists hardly any.
/// So is the processor's name, which `cpuid` gives them.
const NATIVE: [(u32, u32, [u32; 4]); 8] = [
    (1, 0, [0, 0, 0x7ed8_3203, 0]),
    (7, 0, [0, 0xf1af_0328, 0x0000_5f42, 0x0080_0110]),
    (7, 1, [0x0000_1c30, 0, 0, 0]),
    (XSAVE_LEAF, 1, [0b111, 0, 0, 0]),
    (0x8000_0001, 0, [0, 0, 0x0000_0161, 0]),
    (0x8000_0002, 0, [u32::MAX; 4]),
    (0x8000_0003, 0, [u32::MAX; 4]),
    (0x8000_0004, 0, [u32::MAX; 4]),
];

/// Adds the instructions that the host's own processes can execute, where KVM works in software.
fn add_native(mut entry: kvm_cpuid_entry2) -> kvm_cpuid_entry2 {
    if let Some((_, _, masks)) = NATIVE.iter().find(|(leaf, subleaf, _)| (*leaf, *subleaf) == (entry.function, entry.index)) {
        let host = std::arch::x86_64::__cpuid_count(entry.function, entry.index);
        entry.eax |= host.eax & masks[0];
        entry.ebx |= host.ebx & masks[1];
        entry.ecx |= host.ecx & masks[2];
        entry.edx |= host.edx & masks[3];
    }
    entry
}

/// The CPUID that cells see.
pub(super) fn for_cells(system: &System) -> Result<CpuId, HostError> {
    let offered = HostError::kvm("list CPU features", || system.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES))?;
    let software = Virtualization::host() == Virtualization::Software;
    let known = VECTOR_FEATURES | if software { PROTECTION_KEYS } else { 0 };
    let features =
        offered.as_slice().iter().find(|entry| entry.function == XSAVE_LEAF && entry.index == 0).map_or(0, |entry| entry.eax & known);
    let kept: Vec<_> = offered
        .as_slice()
        .iter()
        .filter(|entry| !HYPERVISOR.contains(&entry.function))
        .map(|entry| restrict(if software { add_native(*entry) } else { *entry }, features))
        .collect();
    let area = area_size(&kept, features);
    let entries: Vec<_> = kept
        .into_iter()
        .map(|mut entry| {
            if entry.function == XSAVE_LEAF && entry.index < 2 {
                entry.ebx = area;
                entry.ecx = if entry.index == 0 { area } else { 0 };
            }
            entry
        })
        .collect();
    CpuId::from_entries(&entries).map_err(|_| HostError::KvmLacks("a list of CPU features that fits"))
}

fn restrict(mut entry: kvm_cpuid_entry2, features: u32) -> kvm_cpuid_entry2 {
    match (entry.function, entry.index) {
        (1, _) => entry.ecx = entry.ecx & !NO_LEAF_1_ECX | if entry.ecx & XSAVE != 0 { OSXSAVE } else { 0 },
        (7, 0) => {
            entry.ecx &= !NO_LEAF_7_ECX;
            entry.edx &= !NO_LEAF_7_EDX;
        }
        // AMX, and other features that need an operating system's support.
        (0x1d | 0x1e | 0x24, _) | (0x0a, _) => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        (XSAVE_LEAF, 0) => (entry.eax, entry.edx) = (features, 0),
        // XSAVEOPT, XSAVEC, XGETBV with ECX 1; not the supervisor's XSAVES.
        (XSAVE_LEAF, 1) => (entry.eax, entry.ecx, entry.edx) = (entry.eax & 0b111, 0, 0),
        (XSAVE_LEAF, component) if component >= 32 || features & 1 << component == 0 => {
            (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0);
        }
        (0x8000_0001, _) => entry.ecx &= !NO_LEAF_8_1_ECX,
        _ => {}
    }
    entry
}

/// Bytes of an XSAVE area in the standard form: the end of the last component.
fn area_size(entries: &[kvm_cpuid_entry2], features: u32) -> u32 {
    const LEGACY_AND_HEADER: u32 = 576;
    let components =
        entries.iter().filter(|entry| entry.function == XSAVE_LEAF && (2..32).contains(&entry.index) && features & 1 << entry.index != 0);
    components.map(|entry| entry.eax + entry.ebx).max().unwrap_or(0).max(LEGACY_AND_HEADER)
}

/// The value of `XCR0`. `None`: the CPU or the host's kernel has no XSAVE.
pub(super) fn vector_features(cpuid: &CpuId) -> Option<u64> {
    let find = |leaf| cpuid.as_slice().iter().find(|entry| entry.function == leaf && entry.index == 0);
    find(1).filter(|entry| entry.ecx & XSAVE != 0)?;
    find(XSAVE_LEAF).map(|entry| u64::from(entry.eax)).filter(|features| *features != 0)
}

/// The byte offset of the register of protection keys in an XSAVE area. `None`: cells have none.
pub(super) fn protection_keys(cpuid: &CpuId) -> Option<usize> {
    let part = |entry: &&kvm_cpuid_entry2| entry.function == XSAVE_LEAF && entry.index == PROTECTION_KEYS.trailing_zeros();
    vector_features(cpuid).filter(|features| features & u64::from(PROTECTION_KEYS) != 0)?;
    cpuid.as_slice().iter().find(part).map(|entry| entry.ebx as usize).filter(|offset| *offset > 0)
}

/// The same list in the format for cells.
pub(super) fn as_entries(cpuid: &CpuId) -> Vec<Entry> {
    cpuid
        .as_slice()
        .iter()
        .map(|entry| Entry {
            leaf: entry.function,
            subleaf: entry.index,
            indexed: u32::from(entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX != 0),
            answer: [entry.eax, entry.ebx, entry.ecx, entry.edx],
        })
        .collect()
}
