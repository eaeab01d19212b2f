// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memcpy` and `memset` of programs that use no vector registers. The compiler's own for this target start three
//! string instructions for every copy, which costs more than the copies that a system call makes.
//!
//! Up to [`SHORT`] bytes words are moved, the last ones twice if the length is not a multiple; beyond that one string
//! instruction is faster.
//!
//! Some CPUs (AMD's Zen 3) move bytes one by one if the target lies, within its page, up to [`CLOSE`] bytes behind the
//! source: 360 ns for a KiB instead of 20. In that case words are moved, in 50. Buffers that begin at pages, and the
//! headers of allocators and messages before others, make that a common case.

use core::arch::global_asm;

/// Length up to which words are moved one by one, in bytes.
const SHORT: usize = 256;
/// Distance within a page, from source to target, below which moving bytes is slow; a distance of 0 is not.
pub(crate) const CLOSE: usize = 32;

// rdi: to, rsi: from, rdx: bytes. Returns rdi in rax. The end of the range is loaded before anything is stored.
global_asm!(
    ".globl pando_memcpy",
    ".pushsection .text.pando_memcpy,\"ax\",@progbits",
    "pando_memcpy:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 3f",
    "cmp rdx, {short}",
    "ja 7f",
    "mov r8, [rsi+rdx-16]",
    "mov r9, [rsi+rdx-8]",
    "lea r10, [rdi+rdx-16]",
    "2:",
    "mov rcx, [rsi]",
    "mov r11, [rsi+8]",
    "mov [rdi], rcx",
    "mov [rdi+8], r11",
    "add rsi, 16",
    "add rdi, 16",
    "cmp rdi, r10",
    "jb 2b",
    "mov [r10], r8",
    "mov [r10+8], r9",
    "ret",
    "3:",
    "cmp edx, 8",
    "jb 4f",
    "mov rcx, [rsi]",
    "mov r8, [rsi+rdx-8]",
    "mov [rdi], rcx",
    "mov [rdi+rdx-8], r8",
    "ret",
    "4:",
    "cmp edx, 4",
    "jb 5f",
    "mov ecx, [rsi]",
    "mov r8d, [rsi+rdx-4]",
    "mov [rdi], ecx",
    "mov [rdi+rdx-4], r8d",
    "ret",
    "5:",
    "test edx, edx",
    "jz 6f",
    "movzx ecx, byte ptr [rsi]",
    "movzx r8d, byte ptr [rsi+rdx-1]",
    "mov [rdi+rdx-1], r8b",
    "shr edx",
    "movzx r9d, byte ptr [rsi+rdx]",
    "mov [rdi+rdx], r9b",
    "mov [rdi], cl",
    "6:",
    "ret",
    "7:",
    "lea ecx, [rdi-1]",
    "sub ecx, esi",
    "and ecx, 0xfff",
    "cmp ecx, {close}-1",
    "mov rcx, rdx",
    "jb 8f",
    "rep movsb",
    "ret",
    "8:",
    "mov r8, [rsi+rdx-8]",
    "shr rcx, 3",
    "rep movsq",
    "mov [rax+rdx-8], r8",
    "ret",
    ".popsection",
    short = const SHORT,
    close = const CLOSE,
);

// rdi: to, esi: the byte, rdx: bytes. Returns rdi in rax.
global_asm!(
    ".globl pando_memset",
    ".pushsection .text.pando_memset,\"ax\",@progbits",
    "pando_memset:",
    "mov r8, rdi",
    "movzx eax, sil",
    "cmp rdx, {short}",
    "ja 7f",
    "movabs r9, 0x0101010101010101",
    "imul rax, r9",
    "cmp rdx, 16",
    "jb 3f",
    "lea r10, [rdi+rdx-16]",
    "2:",
    "mov [rdi], rax",
    "mov [rdi+8], rax",
    "add rdi, 16",
    "cmp rdi, r10",
    "jb 2b",
    "mov [r10], rax",
    "mov [r10+8], rax",
    "mov rax, r8",
    "ret",
    "3:",
    "cmp edx, 8",
    "jb 4f",
    "mov [rdi], rax",
    "mov [rdi+rdx-8], rax",
    "mov rax, r8",
    "ret",
    "4:",
    "test edx, edx",
    "jz 6f",
    "5:",
    "mov [rdi+rdx-1], al",
    "dec edx",
    "jnz 5b",
    "6:",
    "mov rax, r8",
    "ret",
    "7:",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    ".popsection",
    short = const SHORT,
);

#[cfg(target_os = "none")]
global_asm!(".globl memcpy, memset", ".set memcpy, pando_memcpy", ".set memset, pando_memset");

#[cfg(test)]
mod tests {
    use super::{CLOSE, SHORT};
    use crate::user;

    unsafe extern "C" {
        fn pando_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
        fn pando_memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8;
    }

    const ROOM: usize = SHORT + 64;

    /// Bytes that begin at a page.
    #[repr(align(4096))]
    struct Page([u8; ROOM]);

    #[test]
    fn every_length_is_copied_and_filled_and_nothing_beside_it() {
        let from = Page(core::array::from_fn(|index| index as u8 | 1));
        // Some distances are so close that the copy is slow.
        for start in (0..9).chain(CLOSE - 1..=CLOSE) {
            for bytes in 0..ROOM - start - 1 {
                let mut to = Page([0; ROOM]);
                // SAFETY: both ranges lie in their arrays, which are two.
                let result = unsafe { pando_memcpy(to.0.as_mut_ptr().add(start), from.0.as_ptr(), bytes) };
                assert_eq!(result, to.0.as_mut_ptr().wrapping_add(start));
                let is_right = |(index, byte): (usize, &u8)| *byte == if index < bytes { from.0[index] } else { 0 };
                assert!(
                    to.0[..start].iter().all(|byte| *byte == 0) && to.0[start..].iter().enumerate().all(is_right),
                    "{bytes} from {start} on"
                );
                // SAFETY: the range lies in its array.
                let result = unsafe { pando_memset(to.0.as_mut_ptr().add(start), 0x1ee, bytes) };
                assert_eq!(result, to.0.as_mut_ptr().wrapping_add(start));
                let is_right = |(index, byte): (usize, &u8)| *byte == if index < bytes { 0xee } else { 0 };
                assert!(
                    to.0[..start].iter().all(|byte| *byte == 0) && to.0[start..].iter().enumerate().all(is_right),
                    "{bytes} from {start} on"
                );
            }
        }
    }

    #[test]
    fn a_fetch_from_user_memory_copies_exactly_its_bytes() {
        let from = Page(core::array::from_fn(|index| index as u8 | 1));
        for start in 0..=CLOSE {
            for bytes in 0..ROOM - start {
                let mut to = Page([0; ROOM]);
                assert_eq!(user::fetch(&from.0[..bytes], &mut to.0[start..start + bytes]), bytes);
                assert!(to.0[start..start + bytes] == from.0[..bytes], "{bytes} from {start} on");
                assert!(to.0[..start].iter().chain(&to.0[start + bytes..]).all(|byte| *byte == 0), "{bytes} from {start} on");
            }
        }
    }
}
