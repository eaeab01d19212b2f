// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine code of instructions, from the compiler's own assembler.

/// The bytes of some lines of Intel-syntax assembly, as `&'static [u8]`. Labels 22 and 33 are taken.
#[macro_export]
macro_rules! assemble {
    ($($line:literal),* $(,)?) => {{
        let (start, end): (*const u8, *const u8);
        // SAFETY: the block writes two registers and jumps over the lines, which are never executed here.
        unsafe {
            std::arch::asm!(
                "lea {start}, [rip + 22f]", "lea {end}, [rip + 33f]", "jmp 33f", "22:", $($line,)* "33:",
                start = out(reg) start, end = out(reg) end, options(nomem, nostack),
            );
        }
        let length = end as usize - start as usize;
        // SAFETY: the bytes between two labels of this program's own text: readable, never written, there as long as the program.
        let code: &'static [u8] = unsafe { std::slice::from_raw_parts(start, length) };
        code
    }};
}
