// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry of patched instructions: a `syscall` or `cpuid` that was replaced by a jump enters here without an exit.
//!
//! A trampoline jumps to one of two entries with two words in registers that its instruction clobbers anyway: the
//! address after the instruction, and the address of the copies of the following instructions. Everything else belongs
//! to the application: its registers, flags and stack, onto which nothing is pushed. The entry saves all of it on
//! level 0, as an upcall would, and continues at the same handler and the same exit path.
//!
//! It may be interrupted at any instruction. Until `critical` is set, an event saves the context as usual and returns
//! to the same instruction. From then on no event is delivered, and from `level` on an exception would be the libOS's
//! own. There is none: the accessed words are always mapped, and single steps are noticed at the jump before.

#[cfg(target_os = "none")]
pub use entry::entries;

/// [`SavedContext::cause`](pando_abi::SavedContext::cause) of a patched `syscall`. The context is that of the instruction itself:
/// `rip` past it, `rcx` and `r11` as it leaves them; [`SavedContext::address`](pando_abi::SavedContext::address) is the start of
/// the copies of the following instructions.
pub const SYSCALL: u64 = 0x200;
/// The same of a patched `cpuid`, with `rbx` and `rdx`, which it will overwrite, clobbered.
pub const CPUID: u64 = 0x201;

#[cfg(target_os = "none")]
mod entry {
    use core::arch::global_asm;
    use core::mem::offset_of;

    use pando_abi::SavedContext;
    use pando_abi::registers::USER_CODE;
    use pando_abi::virtual_registers::{Control, offset};

    use super::{CPUID, SYSCALL};
    use crate::upcall;

    /// Flags that the libOS must not run with, or could not restore in its fast exit path: TF, NT, AC and ID. DF has
    /// an instruction of its own.
    const DISTURBING_FLAGS: u64 = 0x24_4100;

    global_asm!(
        ".pushsection .text.pando_patched,\"ax\",@progbits",
        ".macro pando_patched cause, next, copies, r11",
        "mov qword ptr [rip + pando_virtual_registers + {critical}], 1",
        "mov qword ptr [rip + pando_virtual_registers + {level}], 1",
        // The save area is filled as a stack, from its last word down.
        "mov [rip + pando_virtual_registers + {saved_rsp}], rsp",
        "lea rsp, [rip + pando_virtual_registers + {saved_rsp}]",
        "pushfq",
        "push {code}",
        "push \\next",
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "push \\r11",
        "push r10",
        "push r9",
        "push r8",
        "push rbp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rbx",
        "push rax",
        "push \\copies",
        "push 0",
        "push \\cause",
        "test dword ptr [rsp + {flags}], {disturbing}",
        "mov rsp, [rip + pando_virtual_registers + {stack}]",
        "jnz 3f",
        "2:",
        "cld",
        "xor ebp, ebp",
        "call {exception}",
        "jmp pando_exit_path_start",
        "3:",
        "push 2",
        "popfq",
        "jmp 2b",
        ".endm",
        ".globl pando_patched_syscall",
        "pando_patched_syscall:",
        // Six words up lie the flags, which the instruction leaves in `r11`.
        "pando_patched {syscall}, rcx, r11, [rsp+48]",
        ".globl pando_patched_cpuid",
        "pando_patched_cpuid:",
        "pando_patched {cpuid}, rdx, rbx, r11",
        ".purgem pando_patched",
        ".popsection",
        critical = const offset::CRITICAL,
        level = const offset::LEVEL,
        stack = const offset_of!(Control, stacks),
        saved_rsp = const offset::SAVES + offset_of!(SavedContext, rsp),
        flags = const offset_of!(SavedContext, rflags),
        code = const USER_CODE,
        disturbing = const DISTURBING_FLAGS,
        syscall = const SYSCALL,
        cpuid = const CPUID,
        exception = sym upcall::exception,
    );

    unsafe extern "C" {
        static pando_patched_syscall: u8;
        static pando_patched_cpuid: u8;
    }

    /// The entries of a patched `syscall` (with `rcx` and `r11`) and of a patched `cpuid` (with `rdx` and `rbx`).
    /// Those registers hold the address after the instruction and the address of the copies.
    #[must_use]
    pub fn entries() -> [u64; 2] {
        [(&raw const pando_patched_syscall).addr() as u64, (&raw const pando_patched_cpuid).addr() as u64]
    }
}
