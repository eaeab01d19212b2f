// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's KVM: its capabilities, and the settings that `kvm-ioctls` lacks.

use crate::HostError;
use crate::retry::retry;
use kvm_bindings::{
    KVM_BUS_LOCK_DETECTION_EXIT, KVM_CAP_X86_BUS_LOCK_EXIT, KVMIO, kvm_enable_cap, kvm_msrs, kvm_sregs, kvm_userspace_memory_region,
    kvm_xcrs, kvm_xsave,
};
use kvm_ioctls::{Cap, Kvm as System, VmFd};
use std::io::ErrorKind;
use vmm_sys_util::errno::Error;
use vmm_sys_util::ioctl::ioctl_with_val;
use vmm_sys_util::{ioctl_io_nr, ioctl_ior_nr, ioctl_iow_nr};

ioctl_io_nr!(KVM_SET_NR_MMU_PAGES, KVMIO, 0x44);
ioctl_iow_nr!(KVM_SET_USER_MEMORY_REGION, KVMIO, 0x46, kvm_userspace_memory_region);
ioctl_io_nr!(KVM_RUN, KVMIO, 0x80);
ioctl_iow_nr!(KVM_SET_SREGS, KVMIO, 0x84, kvm_sregs);
ioctl_iow_nr!(KVM_SET_MSRS, KVMIO, 0x89, kvm_msrs);
ioctl_ior_nr!(KVM_GET_XSAVE, KVMIO, 0xa4, kvm_xsave);
ioctl_iow_nr!(KVM_SET_XSAVE, KVMIO, 0xa5, kvm_xsave);
ioctl_iow_nr!(KVM_SET_XCRS, KVMIO, 0xa7, kvm_xcrs);

/// The KVM requests of a machine once its vCPUs have their threads. A process that makes no further machine needs no others.
#[must_use]
pub fn running_requests() -> [u32; 7] {
    let requests = [
        // Cells run.
        KVM_RUN(),
        // The arena grows, and KVM drops its shadow page tables.
        KVM_SET_USER_MEMORY_REGION(),
        // Vector registers go from cell to cell.
        KVM_GET_XSAVE(),
        KVM_SET_XSAVE(),
        // A vCPU is set up again after a cell caused a triple fault.
        KVM_SET_SREGS(),
        KVM_SET_MSRS(),
        KVM_SET_XCRS(),
    ];
    // Linux takes 32 bits of a request.
    requests.map(|request| request as u32)
}

/// Opens `/dev/kvm` and checks that it has the features that the machine needs.
pub(super) fn open() -> Result<System, HostError> {
    let system = retry(System::new).map_err(|error| {
        let source = std::io::Error::from(error);
        match source.kind() {
            ErrorKind::NotFound => HostError::NoKvm,
            // Not the permissions of the file: those give EACCES.
            _ if source.raw_os_error() == Some(libc::EPERM) => HostError::KvmDenied { action: "open /dev/kvm", source },
            ErrorKind::PermissionDenied => HostError::KvmForbidden,
            // The file exists, but no module provides it.
            _ if matches!(source.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => HostError::NoKvm,
            _ => HostError::Os { action: "open /dev/kvm", source },
        }
    })?;
    if capability("ask KVM for KVM_CAP_SYNC_REGS", || system.check_extension_int(Cap::SyncRegs))? == 0 {
        return Err(HostError::KvmLacks("synced registers (KVM_CAP_SYNC_REGS)"));
    }
    if capability("ask KVM for KVM_CAP_IMMEDIATE_EXIT", || system.check_extension_int(Cap::ImmediateExit))? == 0 {
        return Err(HostError::KvmLacks("KVM_CAP_IMMEDIATE_EXIT"));
    }
    Ok(system)
}

/// KVM's value of a capability; 0 if it is missing. A refused query is an error, not a missing capability.
///
/// # Errors
/// The host forbids the query.
fn capability(action: &'static str, mut query: impl FnMut() -> libc::c_int) -> Result<libc::c_int, HostError> {
    let answer = retry(|| match query() {
        negative if negative < 0 => Err(Error::last()),
        value => Ok(value),
    });
    answer.map_err(|error| HostError::KvmDenied { action, source: error.into() })
}

/// Whether bus locks can be made to exit.
pub(super) fn has_bus_lock_exits(vm: &VmFd) -> Result<bool, HostError> {
    let query = || vm.check_extension_raw(u64::from(KVM_CAP_X86_BUS_LOCK_EXIT));
    Ok(capability("ask KVM for KVM_CAP_X86_BUS_LOCK_EXIT", query)? & KVM_BUS_LOCK_DETECTION_EXIT as i32 != 0)
}

/// Sets how many shadow page tables KVM may keep.
pub(super) fn limit_shadow_tables(vm: &VmFd, tables: u64) -> Result<(), HostError> {
    // SAFETY: the call takes a number and touches no memory of ours.
    let limit = || unsafe { ioctl_with_val(vm, KVM_SET_NR_MMU_PAGES(), tables) };
    HostError::os("set the number of KVM's shadow tables", limit)
}

/// Makes split locks exit, where the CPU can detect them. They slow every core down, and the exit charges their cost
/// to the cell that causes them.
pub(super) fn exit_on_bus_locks(vm: &VmFd) -> Result<(), HostError> {
    if !has_bus_lock_exits(vm)? {
        return Ok(());
    }
    let capability =
        kvm_enable_cap { cap: KVM_CAP_X86_BUS_LOCK_EXIT, args: [u64::from(KVM_BUS_LOCK_DETECTION_EXIT), 0, 0, 0], ..Default::default() };
    HostError::kvm("make bus locks exit", || vm.enable_cap(&capability))
}

/// Fills `bytes` from the host's random generator.
pub(super) fn entropy(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length are of one live, writable slice.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        // Only a signal can interrupt it; then it is called again.
        filled += usize::try_from(count).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::capability;
    use crate::HostError;

    #[test]
    fn a_capability_that_may_not_be_asked_for_is_not_reported_as_missing() {
        let refuse = || {
            // SAFETY: the location is this thread's own.
            unsafe { *libc::__errno_location() = libc::EPERM };
            -1
        };
        let error = capability("ask KVM for KVM_CAP_SYNC_REGS", refuse).expect_err("it is refused");
        assert!(matches!(&error, HostError::KvmDenied { source, .. } if source.raw_os_error() == Some(libc::EPERM)), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("cannot ask KVM for KVM_CAP_SYNC_REGS: Operation not permitted") && text.contains("seccomp"), "{text}");
        assert!(matches!(capability("ask", || 0), Ok(0)) && matches!(capability("ask", || 2), Ok(2)));
    }
}
