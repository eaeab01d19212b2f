// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translates KVM's exits into the cell's: lines 2 to 4 of the context contract.

use super::Omit;
use super::supervisor::{SYSCALL_ENTRY, Stub, in_stack, stub_at};
use crate::context::{Violation, is_canonical};
use crate::{Arena, Context, EntryIndex, Exception, Exit};
use pando_abi::registers::USER_CODE;

/// An exit as KVM reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KvmExit {
    /// `out 0x7e, al`, and nothing wider or longer.
    Out,
    /// Any other use of an open port.
    Port,
    /// An access outside the VM's memory.
    OutsideMemory,
    /// A signal, or a request of the host to run again.
    Interrupted,
    /// The same, while an exception of a completed instruction is still to be delivered.
    Trapped(u8),
    /// An exit after which the vCPU must be set up again.
    Unresumable(u32),
    /// `KVM_RUN` failed.
    Failed(i32),
}

/// The flag RF.
const RESUME: u64 = 1 << 16;
/// The vector of single steps.
const DEBUG: u8 = 1;

/// Returns the cell's exit, and restores its own registers in `context` where a stub has run in between.
///
/// `code` is the code selector at the exit. A stub that was interrupted before its `out` counts as if it had exited (line 4).
pub(super) fn decode(arena: &Arena, vcpu: usize, raw: KvmExit, code: u16, context: &mut Context, omit: Omit) -> Exit {
    let supervisor = code & 3 == 0;
    let stub = stub_at(context.registers.rip).filter(|_| supervisor);
    let raw = if supervisor && matches!(raw, KvmExit::Trapped(_)) { KvmExit::Interrupted } else { raw };
    match (raw, stub) {
        (KvmExit::Out, Some(stub)) => from_stub(arena, vcpu, stub, context, omit),
        (KvmExit::Interrupted, Some(stub)) if !omit.contains_rule(Omit::INTERRUPTED_STUB) => from_stub(arena, vcpu, stub, context, omit),
        (KvmExit::Interrupted, Some(_)) => Exit::Interrupted,
        // Nested, `syscall` is about to fault at its stub.
        (KvmExit::Interrupted, None) if context.registers.rip == SYSCALL_ENTRY && !omit.contains_rule(Omit::INTERRUPTED_STUB) => {
            context.pending = crate::Pending::default();
            syscall(context)
        }
        (KvmExit::Out | KvmExit::Interrupted, None) if supervisor => machine("it was at CPL 0 outside all stubs"),
        (KvmExit::Out | KvmExit::Interrupted | KvmExit::Trapped(_), None)
            if u64::from(code) != USER_CODE && !omit.contains_rule(Omit::CODE_SEGMENT) =>
        {
            Exit::Violation(Violation::CodeSegment)
        }
        (KvmExit::Out, None) => Exit::Hypercall,
        (KvmExit::Interrupted, None) if !context.is_in_user_space() && !omit.contains_rule(Omit::INTERRUPTED_STUB) => wild_jump(context),
        (KvmExit::Interrupted, None) => {
            // Between a fault of KVM's own page tables and the retry, the CPU sets RF. An interrupt occurs between
            // instructions, where RF is clear.
            context.registers.rflags &= !RESUME;
            Exit::Interrupted
        }
        (KvmExit::Trapped(vector), _) => Exit::Exception(Exception { vector, error: 0, address: 0 }),
        (KvmExit::Port, _) => Exit::Violation(Violation::Port),
        (KvmExit::OutsideMemory, _) => Exit::Violation(Violation::OutsideMemory),
        (KvmExit::Unresumable(reason), _) => Exit::Violation(Violation::Machine { reason: reason_name(reason) }),
        (KvmExit::Failed(error), _) => Exit::Violation(Violation::Machine { reason: std::io::Error::from_raw_os_error(error).to_string() }),
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
    // An instruction fetch by user code.
    Exit::Exception(Exception { vector: Exception::PAGE_FAULT, error: 0b1_0100, address })
}

fn machine(reason: &str) -> Exit {
    Exit::Violation(Violation::Machine { reason: reason.into() })
}

fn from_stub(arena: &Arena, vcpu: usize, stub: Stub, context: &mut Context, omit: Omit) -> Exit {
    // Anything queued has been delivered: the stub ran.
    context.pending = crate::Pending::default();
    match stub {
        Stub::Syscall => syscall(context),
        Stub::Compatibility => Exit::Violation(Violation::CompatibilitySyscall),
        Stub::Unexpected => machine("it ran an unused stub"),
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
        if omit.contains_rule(Omit::STACK) {
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
        // From 64-bit code, only a single step that `syscall` carries into its stub can raise anything at CPL 0.
        if vector == DEBUG && rip == SYSCALL_ENTRY {
            return syscall(context);
        }
        // Nested on an AMD CPU, `syscall` from 32-bit code enters an unmapped address.
        if stub_at(rip) == Some(Stub::Compatibility) {
            return Exit::Violation(Violation::CompatibilitySyscall);
        }
        return Exit::Violation(Violation::Supervisor { vector });
    }
    if code != USER_CODE && !omit.contains_rule(Omit::CODE_SEGMENT) {
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
