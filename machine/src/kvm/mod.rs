// SPDX-License-Identifier: MIT OR Apache-2.0
//! The KVM backend: one VM for all cells.
//!
//! The VM has no devices, no interrupt controller and no firmware. Ring 0 holds nothing but stubs that exit (`supervisor.rs`);
//! cells run at CPL 3. It is correct on nested shadow paging and on hardware virtualisation alike; see the facts beside each step.

mod cpuid;
mod decode;
mod descriptors;
mod probe;
mod registers;
mod selectors;
mod signals;
mod slots;
mod supervisor;
mod system;
mod timer;
mod vcpu;
mod virtualization;

pub use probe::Probe;
pub(crate) use supervisor::COMPATIBILITY_ENTRY;
pub use system::running_requests;
pub use virtualization::Virtualization;

use crate::retry::retry;
use crate::{Arena, HostError, HugeFrame, Machine, Nanos, PageCount, Time, Vcpu};
use kvm_bindings::{KVM_CAP_DISABLE_QUIRKS2, kvm_enable_cap, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm as System, VmFd};
use slots::Slots;
use std::sync::{Arc, Mutex};

/// The address of the three pages that VMX needs for its real mode: below 4 GiB, away from the arena.
const TSS_ADDRESS: usize = 0xfffb_d000;
/// KVM's quirk of rewriting `vmcall` and `vmmcall` in the guest's page: off, so that the foreign one raises #UD in the cell.
const QUIRK_PATCH_HYPERCALL: u64 = 1 << 5;
/// The memory slot whose deletion flushes KVM's shadow page tables.
const FLUSH_SLOT: u32 = 0;

/// The configuration of a machine.
#[derive(Clone, Copy, Debug)]
pub struct KvmConfig {
    /// Physical memory; the host allocates it on use.
    pub arena: PageCount,
    /// The number of vCPUs.
    pub vcpus: usize,
    /// Lines of the context contract to leave out, for the tests that show that each is needed.
    pub omit: Omit,
}

/// Lines of the context contract that a canary test leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omit(pub u16);

impl Omit {
    /// Keep the whole contract.
    pub const NOTHING: Omit = Omit(0);
    /// Line 1: complete a pending exit before another context is loaded.
    pub const COMPLETION: Omit = Omit(1);
    /// Line 2: no 32-bit code segment, and a cell that leaves the 64-bit one is terminated.
    pub const CODE_SEGMENT: Omit = Omit(1 << 1);
    /// Line 3: exceptions switch to a stack of the vCPU's own.
    pub const STACK: Omit = Omit(1 << 2);
    /// Line 4: an interruption inside a stub is decoded as if the stub had exited.
    pub const INTERRUPTED_STUB: Omit = Omit(1 << 3);
    /// Line 5: queued exceptions and interrupt shadows belong to the context.
    pub const EVENTS: Omit = Omit(1 << 4);
    /// Line 6: flags are masked when they are loaded.
    pub const FLAGS: Omit = Omit(1 << 5);
    /// Rule 6 of the page-table discipline: another stamp makes another `cr3`.
    pub const STAMP: Omit = Omit(1 << 6);
    /// Line 8: a vCPU is set up again after an exit that it cannot resume from.
    pub const RESET: Omit = Omit(1 << 7);
    /// Line 6: DS, ES, FS and GS are null at every entry.
    pub const SELECTORS: Omit = Omit(1 << 8);
    /// Line 2: code of user pages is not executed at CPL 0.
    pub const SMEP: Omit = Omit(1 << 9);

    pub(crate) fn contains_rule(self, line: Omit) -> bool {
        self.0 & line.0 != 0
    }
}

/// A KVM VM with its arena and vCPUs.
pub struct Kvm {
    vcpus: Mutex<Vec<Option<vcpu::KvmVcpu>>>,
    count: usize,
    cpuid: Vec<pando_abi::cpuid::Entry>,
    clock: Time,
    supervisor_entry: u64,
    flush: Mutex<Arena>,
    shared: Arc<Shared>,
}

/// State that vCPUs keep alive: KVM frees the VM when the last descriptor is closed, and only then may the arena be unmapped.
struct Shared {
    vm: VmFd,
    arena: Arena,
    slots: Slots,
    clock: Time,
    /// Whether the host's KVM runs cells on page tables in software.
    nested: bool,
    omit: Omit,
}

impl Kvm {
    /// Makes a machine.
    ///
    /// # Errors
    /// KVM is missing, not permitted or too old, or the host refused something.
    pub fn new(config: KvmConfig) -> Result<Arc<Kvm>, HostError> {
        let system = system::open()?;
        let arena = Arena::new(config.arena)?;
        let vm = create_vm(&system)?;
        let slots = Slots::new(&vm, &arena)?;
        let supervisor = supervisor::Supervisor::lay_out(&arena, config.vcpus, config.omit);
        let cpuid = cpuid::for_cells(&system)?;
        let fds: Vec<_> =
            (0..config.vcpus as u64).map(|id| HostError::kvm("create a vCPU", || vm.create_vcpu(id))).collect::<Result<_, _>>()?;
        let clock = timer::calibrate(&fds)?;
        let supervisor_entry = supervisor.root_entry();
        let shared =
            Arc::new(Shared { vm, arena, slots, clock, nested: Virtualization::host() == Virtualization::Software, omit: config.omit });
        let vcpus = fds
            .into_iter()
            .enumerate()
            .map(|(index, fd)| vcpu::KvmVcpu::new(fd, index, &supervisor, &cpuid, Arc::clone(&shared)).map(Some))
            .collect::<Result<_, _>>()?;
        signals::install()?;
        Ok(Arc::new(Kvm {
            vcpus: Mutex::new(vcpus),
            count: config.vcpus,
            cpuid: cpuid::as_entries(&cpuid),
            clock,
            supervisor_entry,
            flush: Mutex::new(Arena::new(PageCount(1))?),
            shared,
        }))
    }
}

fn create_vm(system: &System) -> Result<VmFd, HostError> {
    let vm = HostError::kvm("create a VM", || system.create_vm())?;
    HostError::kvm("place KVM's TSS", || vm.set_tss_address(TSS_ADDRESS))?;
    let quirks = kvm_enable_cap { cap: KVM_CAP_DISABLE_QUIRKS2, args: [QUIRK_PATCH_HYPERCALL, 0, 0, 0], ..Default::default() };
    retry(|| vm.enable_cap(&quirks)).map_err(|error| match error.errno() {
        libc::EINVAL => HostError::KvmLacks("KVM_CAP_DISABLE_QUIRKS2"),
        _ => HostError::KvmDenied { action: "enable KVM_CAP_DISABLE_QUIRKS2", source: error.into() },
    })?;
    system::exit_on_bus_locks(&vm)?;
    Ok(vm)
}

impl Machine for Kvm {
    fn arena(&self) -> &Arena {
        &self.shared.arena
    }

    fn provide(&self, huge_frame: HugeFrame) -> Result<(), HostError> {
        self.shared.slots.provide(&self.shared.vm, &self.shared.arena, huge_frame)
    }

    fn vcpus(&self) -> usize {
        self.count
    }

    fn take_vcpu(&self, index: usize) -> Result<Box<dyn Vcpu>, HostError> {
        let mut vcpu = self.vcpus.lock().expect("no holder panics")[index].take().expect("a vCPU is taken once");
        vcpu.bind_to_this_thread()?;
        Ok(Box::new(vcpu))
    }

    fn supervisor_entry(&self) -> u64 {
        self.supervisor_entry
    }

    fn flush_tables(&self) -> Result<(), HostError> {
        // Adding a slot changes nothing; deleting one makes KVM drop every shadow page.
        let page = self.flush.lock().expect("no holder panics");
        for memory_size in [crate::FRAME_SIZE as u64, 0] {
            let region = kvm_userspace_memory_region {
                slot: FLUSH_SLOT,
                flags: 0,
                guest_phys_addr: 0,
                memory_size,
                userspace_addr: page.host_address(),
            };
            // SAFETY: the page is mapped as long as `self`, the slot is gone when the loop ends, and no table ever names guest address 0.
            HostError::kvm("flush KVM's shadow tables", || unsafe { self.shared.vm.set_user_memory_region(region) })?;
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        timer::now(&self.clock)
    }

    fn clock(&self) -> Time {
        self.clock
    }

    fn entropy(&self, bytes: &mut [u8]) {
        system::entropy(bytes);
    }

    fn cpuid(&self) -> Vec<pando_abi::cpuid::Entry> {
        self.cpuid.clone()
    }
}
