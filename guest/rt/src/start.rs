// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first instructions of a program for cells, and the note that marks its image as one.

use core::arch::global_asm;

use pando_abi::layout;

use crate::hot::{HOT, STACK_SIZE};
use crate::{upcall, vector};

global_asm!(
    ".pushsection .text._start,\"ax\",@progbits",
    ".globl _start",
    "_start:",
    "lea rsp, [rip + {stack} + {size}]",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    ".popsection",
    stack = sym HOT,
    size = const STACK_SIZE,
    start = sym start,
);

unsafe extern "C" {
    /// The end of the image, from the linker.
    static _end: u8;
    /// Defined by [`program`](crate::program).
    safe fn pando_program_start() -> !;
}

/// The kernel has set level 1 and the critical section, so nothing interrupts the boot.
extern "C" fn start() -> ! {
    let end = (&raw const _end).addr() as u64;
    assert!(end <= layout::LIBOS_END, "the image ends at {end:#x}, past the space for it");
    vector::install();
    upcall::install();
    pando_program_start()
}

/// Makes the function the start of a program for cells, adds the note to the image, and defines the symbol of the
/// virtual registers. Programs for cells access them relative to the instruction pointer, which takes no register.
#[macro_export]
macro_rules! program {
    ($start:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn pando_program_start() -> ! {
            $start()
        }

        ::core::arch::global_asm!(
            ".pushsection .note.pando,\"a\",@note",
            ".balign 4",
            ".long 2f - 1f, 4f - 3f, {kind}",
            "1: .asciz \"Pando\"",
            "2: .balign 4",
            "3: .long {version}",
            "4:",
            ".popsection",
            ".globl pando_virtual_registers",
            ".set pando_virtual_registers, {registers}",
            kind = const $crate::abi::boot_info::TYPE,
            version = const $crate::abi::VERSION,
            registers = const $crate::abi::layout::VIRTUAL_REGISTERS,
        );
    };
}
