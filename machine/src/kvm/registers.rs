// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of contexts to KVM's structures, and the registers that no cell can change.

use super::supervisor::{COMPATIBILITY_ENTRY, SYSCALL_ENTRY, Supervisor};
use super::{Omit, descriptors};
use crate::context::QueuedException;
use crate::retry::retry;
use crate::{Context, HostError, Pending};
use kvm_bindings::{KVM_VCPUEVENT_VALID_SHADOW, Msrs, kvm_msr_entry, kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcr, kvm_xcrs};
use kvm_ioctls::VcpuFd;
use pando_abi::Registers;

/// Value of CR0: PG WP NE ET MP PE.
const CR0: u64 = 0x8005_0033;
/// Value of CR4: PAE OSFXSR OSXMMEXCPT UMIP FSGSBASE. Never SMAP: it makes `iretq` at CPL 3 fault on some machines.
const CR4: u64 = 0x620 | 1 << 11 | 1 << 16;
/// In CR4: no code of user pages at CPL 0 (line 2).
const SMEP: u64 = 1 << 20;
/// In CR4: XSAVE is enabled.
const OSXSAVE: u64 = 1 << 18;
/// Value of EFER: SCE LME LMA NXE.
const EFER: u64 = 0xd01;
/// Flags that `syscall` clears: TF IF DF IOPL NT AC.
const SYSCALL_MASK: u64 = 0x4_7700;

const MSR_STAR: u32 = 0xc000_0081;
const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_CSTAR: u32 = 0xc000_0083;
const MSR_SFMASK: u32 = 0xc000_0084;
/// The MSRs that report that CPUID can fault, and make it fault at CPL 3.
const MSR_PLATFORM_INFO: u32 = 0xce;
const MSR_MISC_FEATURES: u32 = 0x140;

/// The system registers that every context of a vCPU shares, based on those KVM starts with.
pub(super) fn base(mut from: kvm_sregs, vcpu: usize, supervisor: &Supervisor, vector_features: Option<u64>, omit: Omit) -> kvm_sregs {
    from.cs = descriptors::user_code();
    from.ss = descriptors::user_data();
    (from.ds, from.es, from.fs, from.gs) = (descriptors::NULL, descriptors::NULL, descriptors::NULL, descriptors::NULL);
    from.tr = supervisor.task(vcpu);
    from.ldt = descriptors::NULL;
    (from.gdt.base, from.gdt.limit) = supervisor.gdt(vcpu);
    (from.idt.base, from.idt.limit) = supervisor.idt();
    (from.cr0, from.cr4, from.efer) = (CR0, CR4, EFER);
    if !omit.contains_rule(Omit::SMEP) {
        from.cr4 |= SMEP;
    }
    if vector_features.is_some() {
        from.cr4 |= OSXSAVE;
    }
    from
}

/// Whether a vCPU, whose CPUID is set, can be kept from executing user pages at CPL 0. KVM's list does not show it:
/// software KVM omits the feature, but enforces it.
///
/// # Errors
/// KVM does not show the vCPU's registers.
pub(super) fn has_smep(fd: &VcpuFd) -> Result<bool, HostError> {
    let read = || HostError::kvm("read the vCPU's registers", || fd.get_sregs());
    let mut sregs = read()?;
    sregs.cr4 |= SMEP;
    Ok(retry(|| fd.set_sregs(&sregs)).is_ok() && read()?.cr4 & SMEP != 0)
}

/// Sets the registers that never change.
///
/// # Errors
/// KVM refused one that the contract needs.
pub(super) fn set_fixed(fd: &VcpuFd, vector_features: Option<u64>) -> Result<(), HostError> {
    let entries = [
        (MSR_STAR, descriptors::STAR),
        (MSR_LSTAR, SYSCALL_ENTRY),
        (MSR_CSTAR, COMPATIBILITY_ENTRY),
        (MSR_SFMASK, SYSCALL_MASK),
        (MSR_PLATFORM_INFO, 1 << 31),
        (MSR_MISC_FEATURES, 1),
    ]
    .map(|(index, data)| kvm_msr_entry { index, data, ..Default::default() });
    let msrs = Msrs::from_entries(&entries).expect("six entries fit");
    let taken = HostError::kvm("set the vCPU's MSRs", || fd.set_msrs(&msrs))?;
    // The last two enable CPUID faulting; where they are missing, KVM answers the instruction from the same table.
    if taken < 4 {
        return Err(HostError::KvmLacks("the MSRs of `syscall`"));
    }
    let Some(vector_features) = vector_features else { return Ok(()) };
    let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..Default::default() };
    xcrs.xcrs[0] = kvm_xcr { xcr: 0, value: vector_features, ..Default::default() };
    HostError::kvm("set the vCPU's XCR0", || fd.set_xcrs(&xcrs))
}

/// The general registers as KVM loads them: flags are rebuilt, never taken.
pub(super) fn load(context: &Context, omit: Omit) -> kvm_regs {
    let Registers { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags } = context.registers;
    let rflags = if omit.contains_rule(Omit::FLAGS) { rflags | 2 } else { context.loaded_flags() };
    kvm_regs { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags }
}

/// The general registers as KVM left them.
pub(super) fn store(regs: &kvm_regs) -> Registers {
    let kvm_regs { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags } = *regs;
    Registers { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags }
}

/// Pending events in KVM's structure. It also clears all other events.
pub(super) fn load_pending(pending: &Pending) -> kvm_vcpu_events {
    let mut events = kvm_vcpu_events { flags: KVM_VCPUEVENT_VALID_SHADOW, ..Default::default() };
    events.interrupt.shadow = pending.interrupt_shadow;
    if let Some(exception) = pending.exception {
        events.exception.injected = 1;
        events.exception.nr = exception.vector;
        events.exception.has_error_code = u8::from(exception.error.is_some());
        events.exception.error_code = exception.error.unwrap_or_default();
    }
    events
}

/// The pending events that KVM reports.
pub(super) fn store_pending(events: &kvm_vcpu_events) -> Pending {
    let queued = events.exception.injected != 0;
    let exception = queued.then(|| QueuedException {
        vector: events.exception.nr,
        error: (events.exception.has_error_code != 0).then_some(events.exception.error_code),
    });
    Pending { exception, interrupt_shadow: events.interrupt.shadow }
}
