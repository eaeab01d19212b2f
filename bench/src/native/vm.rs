// SPDX-License-Identifier: MIT OR Apache-2.0
//! A VM around a process's memory, and HyperFork's method to clone it (Colavita, Gardner, Wilkening: HyperFork, section 3).
//! The process forks; the child creates a new VM around the inherited memory, with a vCPU that continues where the old one
//! stopped.
//!
//! This guest has no devices, no interrupt controller, and one vCPU that touched few pages. Its clone therefore does less
//! work than one of HyperFork's.

use super::memory::MappedMemory;
use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_fpu, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, Kvm, VcpuExit, VcpuFd, VmFd};
use std::io;

/// The addresses of the guest's tables, one for each level, and of its code: in its memory's first pages.
const TABLES: [u64; 3] = [0x1000, 0x2000, 0x3000];
const CODE: u64 = 0x4000;
/// An unused port.
const PORT: u8 = 0x7e;
/// Present and writable; also a large page, for the first 2 MiB.
const TABLE: u64 = 0x3;
const LARGE: u64 = 0x83;
/// The pages that KVM needs on VMX for real mode.
const TSS_ADDRESS: usize = 0xfffb_d000;
/// PG, PE and NE; PAE; LMA and LME.
const CR0: u64 = 0x8000_0021;
const CR4: u64 = 0x20;
const EFER: u64 = 0x500;

/// A VM with a vCPU.
pub(super) struct Vm {
    vcpu: VcpuFd,
    _vm: VmFd,
}

/// The state of a vCPU after its exit.
pub(super) struct VcpuSnapshot {
    kvm: Kvm,
    cpuid: CpuId,
    general: kvm_regs,
    system: kvm_sregs,
    vector: kvm_fpu,
}

impl Vm {
    /// Creates a guest in this memory and runs it to an exit. Returns it with its state.
    pub(super) fn start(memory: &mut MappedMemory) -> io::Result<(Vm, VcpuSnapshot)> {
        let [first, second, third] = TABLES;
        for (table, entry) in [(first, second | TABLE), (second, third | TABLE), (third, LARGE)] {
            memory.write(table as usize, &entry.to_le_bytes());
        }
        // out PORT, al; jmp to it
        memory.write(CODE as usize, &[0xe6, PORT, 0xeb, 0xfc]);
        let kvm = Kvm::new()?;
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
        let mut vm = Vm::around(&kvm, &cpuid, memory)?;
        vm.vcpu.set_sregs(&long_mode(vm.vcpu.get_sregs()?))?;
        vm.vcpu.set_regs(&kvm_regs { rip: CODE, rflags: 2, ..Default::default() })?;
        vm.run()?;
        let (general, system, vector) = (vm.vcpu.get_regs()?, vm.vcpu.get_sregs()?, vm.vcpu.get_fpu()?);
        Ok((vm, VcpuSnapshot { kvm, cpuid, general, system, vector }))
    }

    /// Creates a VM with this memory, and a vCPU that has not run.
    fn around(kvm: &Kvm, cpuid: &CpuId, memory: &MappedMemory) -> io::Result<Vm> {
        let vm = kvm.create_vm()?;
        if kvm.check_extension(Cap::SetTssAddr) {
            vm.set_tss_address(TSS_ADDRESS)?;
        }
        let region =
            kvm_userspace_memory_region { memory_size: memory.bytes() as u64, userspace_addr: memory.address(), ..Default::default() };
        // SAFETY: the range is a mapping of our own; its owner keeps it until this process ends, and the guest writes nothing.
        unsafe { vm.set_user_memory_region(region)? };
        let vcpu = vm.create_vcpu(0)?;
        vcpu.set_cpuid2(cpuid)?;
        Ok(Vm { vcpu, _vm: vm })
    }

    /// Runs to the guest's next exit.
    fn run(&mut self) -> io::Result<()> {
        loop {
            match self.vcpu.run() {
                Ok(VcpuExit::IoOut(port, _)) if port == u16::from(PORT) => return Ok(()),
                Ok(exit) => return Err(io::Error::other(format!("the guest exited with {exit:?}"))),
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl VcpuSnapshot {
    /// Creates another VM around the same memory, which the caller has inherited, and runs it to its first exit.
    pub(super) fn resume(&self, memory: &MappedMemory) -> io::Result<()> {
        let mut vm = Vm::around(&self.kvm, &self.cpuid, memory)?;
        vm.vcpu.set_sregs(&self.system)?;
        vm.vcpu.set_fpu(&self.vector)?;
        vm.vcpu.set_regs(&self.general)?;
        vm.run()
    }
}

/// The system registers of a guest whose first 2 MiB are mapped at the start of its memory.
fn long_mode(fresh: kvm_sregs) -> kvm_sregs {
    let data = kvm_segment { base: 0, limit: u32::MAX, selector: 0x10, type_: 3, present: 1, s: 1, db: 1, g: 1, ..Default::default() };
    let code = kvm_segment { selector: 8, type_: 11, db: 0, l: 1, ..data };
    let (cr0, cr3, cr4, efer) = (CR0, TABLES[0], CR4, EFER);
    kvm_sregs { cs: code, ds: data, es: data, fs: data, gs: data, ss: data, cr0, cr3, cr4, efer, ..fresh }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{MappedMemory, Pages};
    use super::Vm;

    #[test]
    fn a_guest_goes_on_in_another_vm() {
        if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() {
            println!("left out: this test needs KVM");
            return;
        }
        let mut memory = MappedMemory::map(4 << 20, Pages::Small).expect("room");
        let (_vm, saved) = Vm::start(&mut memory).expect("KVM is there");
        for _ in 0..2 {
            saved.resume(&memory).expect("a VM");
        }
    }
}
