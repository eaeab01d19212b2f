// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time: the clock that kernel and cells share, and the timer that ends a quantum.
//!
//! The machine's clock *is* the TSC, scaled. So the TSC in a cell and the kernel's clock never disagree.

use super::signals;
use crate::{HostError, Nanos, Time};
use kvm_bindings::{KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, KVMIO, Msrs, kvm_device_attr, kvm_msr_entry};
use kvm_ioctls::VcpuFd;
use std::time::{SystemTime, UNIX_EPOCH};
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

ioctl_iow_nr!(KVM_SET_DEVICE_ATTR, KVMIO, 0xe1, kvm_device_attr);

const MSR_TSC: u32 = 0x10;

fn tsc() -> u64 {
    // SAFETY: the instruction has no preconditions and touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the clock.
pub(super) fn now(clock: &Time) -> Nanos {
    Nanos(clock.nanoseconds(tsc()))
}

/// Makes the vCPUs' TSCs equal to the host's, checks it, and starts the clock.
pub(super) fn calibrate(vcpus: &[VcpuFd]) -> Result<Time, HostError> {
    let kilohertz = HostError::kvm("read the TSC's frequency", || vcpus[0].get_tsc_khz())?;
    let frequency = u64::from(kilohertz) * 1000;
    if frequency == 0 {
        return Err(HostError::KvmLacks("a TSC of known frequency"));
    }
    for vcpu in vcpus {
        align(vcpu, frequency)?;
    }
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Time {
        scale: ((1_000_000_000u128 << 32) / u128::from(frequency)) as u64,
        tsc_base: tsc(),
        base: 0,
        wall_base: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        frequency,
    })
}

/// Sets a vCPU's TSC offset to 0 where KVM allows it, and fails if the TSC then differs by more than a millisecond.
fn align(vcpu: &VcpuFd, frequency: u64) -> Result<(), HostError> {
    let offset = 0u64;
    let attribute = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: u64::from(KVM_VCPU_TSC_OFFSET),
        addr: &raw const offset as u64,
        ..Default::default()
    };
    // Older kernels lack the attribute; the comparison decides either way.
    // SAFETY: the attribute points to a live word, which is what KVM reads for it.
    unsafe { ioctl_with_ref(vcpu, KVM_SET_DEVICE_ATTR(), &attribute) };
    let entry = kvm_msr_entry { index: MSR_TSC, ..Default::default() };
    let mut msrs = Msrs::from_entries(&[entry]).expect("one entry fits");
    let before = tsc();
    HostError::kvm("read the vCPU's TSC", || vcpu.get_msrs(&mut msrs))?;
    let after = tsc();
    let guest = msrs.as_slice()[0].data;
    let slack = frequency / 1000;
    if guest.wrapping_sub(before.wrapping_sub(slack)) > after.wrapping_sub(before) + 2 * slack {
        return Err(HostError::KvmLacks("a way to make the guest's TSC equal to the host's"));
    }
    Ok(())
}

/// A POSIX timer that interrupts its thread's vCPU; armed only when the deadline changes.
#[derive(Default)]
pub(super) struct Deadline {
    timer: Option<libc::timer_t>,
    armed: Option<Nanos>,
}

// SAFETY: a timer's id is a number of the process; any thread may use it.
unsafe impl Send for Deadline {}

impl Deadline {
    /// Directs the timer's signal to the calling thread.
    pub(super) fn bind_to_this_thread(&mut self) -> Result<(), HostError> {
        self.delete();
        // SAFETY: an all-zero `sigevent` is valid; its members are set below.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signals::interrupt_signal();
        // SAFETY: no preconditions.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers are to live values of the types that the call wants.
        let create = || unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        HostError::os("create a timer", create)?;
        self.timer = Some(timer);
        Ok(())
    }

    /// Sets the time of the signal; [`Nanos::NEVER`] disables it.
    pub(super) fn arm(&mut self, deadline: Nanos, clock: &Time) {
        if self.armed == Some(deadline) {
            return;
        }
        let Some(timer) = self.timer else { return };
        let left = if deadline == Nanos::NEVER { 0 } else { deadline.since(now(clock)).as_nanos().max(1) };
        // SAFETY: an all-zero `itimerspec` is valid and means "off".
        let mut when: libc::itimerspec = unsafe { std::mem::zeroed() };
        when.it_value.tv_sec = i64::try_from(left / 1_000_000_000).unwrap_or(i64::MAX);
        when.it_value.tv_nsec = (left % 1_000_000_000) as i64;
        // SAFETY: the timer is ours and live; the values lie in their ranges.
        unsafe { libc::timer_settime(timer, 0, &when, std::ptr::null_mut()) };
        self.armed = Some(deadline);
    }

    /// Records, after an interruption, that the timer may have expired. Our clock cannot tell: the host's may be a little ahead.
    pub(super) fn may_have_passed(&mut self) {
        self.armed = None;
    }

    fn delete(&mut self) {
        if let Some(timer) = self.timer.take() {
            // SAFETY: the timer is ours, and nobody uses it afterwards.
            unsafe { libc::timer_delete(timer) };
        }
        self.armed = None;
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.delete();
    }
}
