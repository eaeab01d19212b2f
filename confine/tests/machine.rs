// SPDX-License-Identifier: MIT OR Apache-2.0
//! A confined process continues to run its machine, and makes no other. One test, because it binds this process permanently.

use pando_confine::{SyscallGroups, install_seccomp_filter};
use pando_machine::kvm::{Kvm, KvmConfig, Omit, Probe, running_requests};
use pando_machine::{Context, EntryIndex, Exception, Exit, FrameId, HugeFrame, Machine, Nanos, PageCount, Root, SUPERVISOR_SLOT};

#[test]
fn a_machine_that_is_there_runs_and_no_other_is_made() {
    if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() {
        println!("left out: PANDO_TESTS_WITHOUT_KVM is set");
        return;
    }
    let arena = PageCount(1 << 16);
    let machine = Kvm::new(KvmConfig { arena, vcpus: 1, omit: Omit::NOTHING }).expect("this host has KVM");
    let mut vcpu = machine.take_vcpu(0).expect("nobody has it");
    Probe::host().expect("before, this process can make what it likes");
    install_seccomp_filter(&SyscallGroups { requests: running_requests().into(), ..SyscallGroups::default() })
        .expect("seccomp limits calls");

    let root = FrameId(512);
    machine.arena().store(root, EntryIndex::new(SUPERVISOR_SLOT), machine.supervisor_entry());
    // Nothing is mapped at the first instruction, so the exit is a page fault.
    let exit = vcpu.run(Root { table: root, stamp: 0 }, &mut Context::at(0x1000), Nanos::NEVER);
    assert!(matches!(exit, Exit::Exception(Exception { vector: Exception::PAGE_FAULT, .. })), "{exit:?}");
    let vector = vcpu.save_vector().expect("it is asked at every switch");
    vcpu.load_vector(Some(&vector)).expect("it is set at every switch");
    machine.flush_tables().expect("tables go stale");
    machine.provide(HugeFrame(machine.arena().huge_frames() - 1)).expect("cells take memory");
    let other = Probe::host();
    assert!(other.is_err(), "another machine was made: {other:?}");
}
