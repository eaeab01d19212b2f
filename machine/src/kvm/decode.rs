// SPDX-License-Identifier: MIT OR Apache-2.0
//! From KVM's exits to the cell's: lines 2 to 4 of the context contract.

use super::Omit;
use super::supervisor::{SYSCALL_ENTRY, Stub, in_stack, stub_at};
use crate::context::{Violation, is_canonical};
use crate::{Arena, Context, EntryIndex, Exception, Exit};
use pando_abi::registers::USER_CODE;

/// What KVM reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Raw {
    /// `out 0x7e, al`, and nothing wider or longer.
    Out,
    /// Any other use of an open port.
    Port,
    /// An access outside the VM's memory.
    OutsideMemory,
    /// A signal, or the host's wish to be asked again.
    Interrupted,
    /// The same, with the exception of an instruction that has been executed still to be delivered.
    Trapped(u8),
    /// An exit after which the vCPU must be set up anew.
    Unresumable(u32),
    /// `KVM_RUN` failed.
    Failed(i32),
}

/// The flag RF.
const RESUME: u64 = 1 << 16;
/// The vector of single steps.
const DEBUG: u8 = 1;

/// Says what an exit means for the cell, and puts its own registers into `context` where a stub had come between.
///
/// `code` is the code selector at the exit. A stub that was interrupted before its `out` counts as if it had exited (line 4).
pub(super) fn decode(arena: &Arena, vcpu: usize, raw: Raw, code: u16, context: &mut Context, omit: Omit) -> Exit {
    let supervisor = code & 3 == 0;
    let stub = stub_at(context.registers.rip).filter(|_| supervisor);
    let raw = if supervisor && matches!(raw, Raw::Trapped(_)) { Raw::Interrupted } else { raw };
    match (raw, stub) {
        (Raw::Out, Some(stub)) => from_stub(arena, vcpu, stub, context, omit),
        (Raw::Interrupted, Some(stub)) if !omit.leaves_out(Omit::INTERRUPTED_STUB) => from_stub(arena, vcpu, stub, context, omit),
        (Raw::Interrupted, Some(_)) => Exit::Interrupted,
        // Nested, `syscall` is on its way to the fault at its stub.
        (Raw::Interrupted, None) if context.registers.rip == SYSCALL_ENTRY && !omit.leaves_out(Omit::INTERRUPTED_STUB) => {
            context.pending = crate::Pending::default();
            syscall(context)
        }
        (Raw::Out | Raw::Interrupted, None) if supervisor => machine("it stood at CPL 0 outside every stub"),
        (Raw::Out | Raw::Interrupted | Raw::Trapped(_), None) if u64::from(code) != USER_CODE && !omit.leaves_out(Omit::CODE_SEGMENT) => {
            Exit::Violation(Violation::CodeSegment)
        }
        (Raw::Out, None) => Exit::Hypercall,
        (Raw::Interrupted, None) if !context.is_in_user_space() && !omit.leaves_out(Omit::INTERRUPTED_STUB) => wild_jump(context),
        (Raw::Interrupted, None) => {
            // Between a fault of KVM's own page tables and the retry the CPU holds RF. An interrupt comes before or behind an instruction, and shows none.
            context.registers.rflags &= !RESUME;
            Exit::Interrupted
        }
        (Raw::Trapped(vector), _) => Exit::Exception(Exception { vector, error: 0, address: 0 }),
        (Raw::Port, _) => Exit::Violation(Violation::Port),
        (Raw::OutsideMemory, _) => Exit::Violation(Violation::OutsideMemory),
        (Raw::Unresumable(reason), _) => Exit::Violation(Violation::Machine { reason: reason_name(reason) }),
        (Raw::Failed(error), _) => Exit::Violation(Violation::Machine { reason: std::io::Error::from_raw_os_error(error).to_string() }),
    }
}

/// A jump out of user space that was interrupted before its fetch faulted.
fn wild_jump(context: &mut Context) -> Exit {
    context.pending = crate::Pending::default();
    let address = context.registers.rip;
    if !is_canonical(address) {
        return Exit::Exception(Exception { vector: 13, error: 0, address: 0 });
    }
    context.fault_address = address;
    // A fetch by a user.
    Exit::Exception(Exception { vector: Exception::PAGE_FAULT, error: 0b1_0100, address })
}

fn machine(reason: &str) -> Exit {
    Exit::Violation(Violation::Machine { reason: reason.into() })
}

fn from_stub(arena: &Arena, vcpu: usize, stub: Stub, context: &mut Context, omit: Omit) -> Exit {
    // Whatever was queued has been delivered: the stub ran.
    context.pending = crate::Pending::default();
    match stub {
        Stub::Syscall => syscall(context),
        Stub::Compatibility => Exit::Violation(Violation::CompatibilitySyscall),
        Stub::Unexpected => machine("it ran a stub that nothing leads to"),
        Stub::Exception(vector) => from_frame(arena, vcpu, vector, context, omit),
    }
}

/// `syscall` has put the return address into `rcx` and the flags into `r11`, and touched no stack.
fn syscall(context: &mut Context) -> Exit {
    context.registers.rip = context.registers.rcx;
    context.registers.rflags = context.registers.r11;
    if context.is_loadable() { Exit::Syscall } else { Exit::Violation(Violation::BadContext) }
}

/// Takes the interrupted registers from the frame that the CPU pushed (Intel SDM volume 3, 6.14).
fn from_frame(arena: &Arena, vcpu: usize, vector: u8, context: &mut Context, omit: Omit) -> Exit {
    let has_error = matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
    let words = 5 + usize::from(has_error);
    let frame = in_stack(vcpu, context.registers.rsp).filter(|(_, offset)| offset % 8 == 0 && offset / 8 + words <= 512);
    let Some((stack, offset)) = frame else {
        if omit.leaves_out(Omit::STACK) {
            return Exit::Exception(Exception { vector, error: 0, address: context.fault_address });
        }
        return machine("an exception's frame is not on the vCPU's stack");
    };
    let word = |index: usize| arena.load(stack, EntryIndex::new(offset / 8 + index));
    let error = if has_error { word(0) } else { 0 };
    let frame = usize::from(has_error);
    let [rip, code, rflags, rsp] = [0, 1, 2, 3].map(|index| word(frame + index));
    context.registers.rip = rip;
    context.registers.rflags = rflags;
    context.registers.rsp = rsp;
    if code & 3 == 0 {
        // Of 64-bit code, a single step that `syscall` carried into its stub is the only way to raise anything at CPL 0.
        if vector == DEBUG && rip == SYSCALL_ENTRY {
            return syscall(context);
        }
        // Nested on a CPU of AMD's, nothing is mapped where `syscall` from 32-bit code leads.
        if stub_at(rip) == Some(Stub::Compatibility) {
            return Exit::Violation(Violation::CompatibilitySyscall);
        }
        return Exit::Violation(Violation::Supervisor { vector });
    }
    if code != USER_CODE && !omit.leaves_out(Omit::CODE_SEGMENT) {
        return Exit::Violation(Violation::CodeSegment);
    }
    let page_fault = vector == Exception::PAGE_FAULT;
    // Nested, `syscall` stays at CPL 3 as far as paging is concerned and faults on its stub's page.
    if page_fault && context.fault_address == SYSCALL_ENTRY && rip == SYSCALL_ENTRY {
        return syscall(context);
    }
    let address = if page_fault { context.fault_address } else { 0 };
    Exit::Exception(Exception { vector, error, address })
}

fn reason_name(reason: u32) -> String {
    let name = match reason {
        kvm_bindings::KVM_EXIT_SHUTDOWN => "triple fault",
        kvm_bindings::KVM_EXIT_FAIL_ENTRY => "the CPU refused to enter it",
        kvm_bindings::KVM_EXIT_INTERNAL_ERROR => "KVM could not emulate an instruction",
        kvm_bindings::KVM_EXIT_HLT => "halted",
        _ => return format!("KVM exit {reason}"),
    };
    name.into()
}
