// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signal frame on a handler's stack, laid out as by Linux on x86-64.
//!
//! ```text
//! + 0      return address of the handler
//! + 8      struct ucontext, 304 bytes
//! + 312    siginfo_t, 128 bytes
//!          (up to the next multiple of 64)
//!          vector state
//! ```
//!
//! When the handler returns, the program may have changed the frame: [`apply`] takes only values that a program may set itself.

use pando_abi::SavedContext;

use super::stack::STACK_WORDS;
use super::{SignalSet, Trap};

/// Number of the call that ends handlers.
pub const RT_SIGRETURN: u64 = 15;

/// Words of `struct ucontext`.
pub const CONTEXT_WORDS: usize = 38;
/// Offset of the `struct ucontext` in a frame.
pub const CONTEXT: u64 = 8;
/// Offset of the `siginfo_t`.
pub const INFORMATION: u64 = CONTEXT + CONTEXT_WORDS as u64 * 8;
/// Bytes of a frame without the vector state.
pub const SIZE: u64 = INFORMATION + super::info::SigInfo::SIZE as u64;

/// Bytes below the stack pointer that belong to the program.
const RED_ZONE: u64 = 128;
/// Alignment of the vector state.
const VECTOR_ALIGNMENT: u64 = 64;

/// `uc_flags`, `UC_FP_XSTATE`: the vector state has a header that describes it.
const EXTENDED_STATE: u64 = 1;
/// `uc_flags`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS`: the stack selector is there, and is restored strictly.
const STACK_SELECTOR: u64 = 2 | 4;
/// Linux's selectors for code and stack, which programs may read; the others are 0.
const SELECTORS: u64 = LINUX_CODE | 0x2b << 48;
const LINUX_CODE: u64 = 0x33;
/// Flags that a frame may change: CF PF AF ZF SF TF DF OF RF AC.
const CHANGEABLE: u64 = 0x5_0dd5;

/// Addresses of the parts of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// The frame itself: the handler's stack pointer.
    pub frame: u64,
    /// The vector state.
    pub vectors: u64,
}

impl FrameLayout {
    /// The address below the red zone of a program that runs at `pointer`, or below the top of another stack, with so many bytes of
    /// vector state.
    #[must_use]
    pub fn below(pointer: u64, other: Option<u64>, vectors: u64) -> FrameLayout {
        let top = other.unwrap_or(pointer.wrapping_sub(RED_ZONE));
        let vectors = top.wrapping_sub(vectors) & !(VECTOR_ALIGNMENT - 1);
        // Aligned as after a call of the handler: for the return address.
        let frame = (vectors.wrapping_sub(SIZE) & !0xf).wrapping_sub(8);
        FrameLayout { frame, vectors }
    }
}

/// State that a frame keeps besides registers.
#[derive(Clone, Copy, Debug)]
pub struct SavedSignalState {
    /// Signals that are blocked after the handler has returned.
    pub mask: SignalSet,
    /// The alternate stack.
    pub stack: [u64; STACK_WORDS],
    /// The last exception.
    pub trap: Trap,
    /// Address of the vector state.
    pub vectors: u64,
    /// Whether it has a header.
    pub extended: bool,
}

/// The `struct ucontext` of an interrupted program.
#[must_use]
pub fn to_words(context: &SavedContext, signal_state: &SavedSignalState) -> [u64; CONTEXT_WORDS] {
    let SavedContext { rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags, rsp, .. } = *context;
    let flags = STACK_SELECTOR | if signal_state.extended { EXTENDED_STATE } else { 0 };
    let [start, state, size] = signal_state.stack;
    let Trap { number, error, address } = signal_state.trap;
    #[rustfmt::skip]
    let used = [
        flags, 0, start, state, size,
        r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags,
        SELECTORS, error, number, signal_state.mask.0, address, signal_state.vectors,
    ];
    let mut words = [0; CONTEXT_WORDS];
    words[..used.len()].copy_from_slice(&used);
    words[CONTEXT_WORDS - 1] = signal_state.mask.0;
    words
}

/// State to restore besides registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredSignalState {
    /// Signals to block.
    pub mask: SignalSet,
    /// The alternate stack.
    pub stack: [u64; STACK_WORDS],
    /// Address of the vector state; 0: restore the initial state.
    pub vectors: u64,
}

/// Copies the registers of a `struct ucontext` into a context, as far as a program may set them. `None`: it asks for code that is
/// not 64-bit.
pub fn apply(words: &[u64; CONTEXT_WORDS], context: &mut SavedContext) -> Option<RestoredSignalState> {
    #[rustfmt::skip]
    let [
        _, _, start, state, size,
        r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags,
        selectors, _, _, _, _, vectors, .., mask,
    ] = *words;
    let rflags = context.rflags & !CHANGEABLE | rflags & CHANGEABLE;
    *context = SavedContext { rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags, rsp, ..*context };
    (selectors & 0xffff | 3 == LINUX_CODE).then_some(RestoredSignalState { mask: SignalSet(mask), stack: [start, state, size], vectors })
}

#[cfg(test)]
mod tests {
    use super::{CONTEXT, FrameLayout, INFORMATION, SIZE, SavedSignalState, apply, to_words};
    use crate::signals::{SignalSet, Trap};
    use pando_abi::SavedContext;

    /// Offsets of Linux's structures, as a C compiler prints them.
    #[test]
    fn the_layout_is_that_of_linux() {
        assert_eq!((CONTEXT, INFORMATION, SIZE), (8, 312, 440));
        let context = SavedContext::from_words(std::array::from_fn(|index| 0x100 + index as u64));
        let signal_state = SavedSignalState {
            mask: SignalSet(7),
            stack: [0x51, 0x52, 0x53],
            trap: Trap { number: 14, error: 6, address: 0xc2 },
            vectors: 0xf0,
            extended: true,
        };
        let words = to_words(&context, &signal_state);
        let at = |offset: usize| words[offset / 8];
        assert_eq!((at(0), at(16), at(24), at(32)), (7, 0x51, 0x52, 0x53));
        assert_eq!((at(40), at(40 + 104), at(40 + 120)), (context.r8, context.rax, context.rsp));
        assert_eq!((at(40 + 128), at(40 + 136)), (context.rip, context.rflags));
        assert_eq!((at(40 + 152), at(40 + 160), at(40 + 168), at(40 + 176), at(40 + 184)), (6, 14, 7, 0xc2, 0xf0));
        assert_eq!(at(296), 7);
    }

    #[test]
    fn sigreturn_restores_the_saved_state_without_selectors() {
        let context = SavedContext { cs: 0x2b, ss: 0x23, rflags: 0x246, rip: 1, rsp: 2, r15: 3, ..SavedContext::default() };
        let signal_state = SavedSignalState { mask: SignalSet(1), stack: [0; 3], trap: Trap::default(), vectors: 64, extended: false };
        let mut words = to_words(&context, &signal_state);
        let mut other = SavedContext { cs: 0x2b, ss: 0x23, ..SavedContext::default() };
        assert_eq!(apply(&words, &mut other).map(|restored| (restored.mask, restored.vectors)), Some((SignalSet(1), 64)));
        assert_eq!(other, SavedContext { rflags: 0x44, ..context });
        words[22] = u64::MAX;
        words[23] = 0x23;
        assert!(apply(&words, &mut other).is_none(), "32-bit code");
        assert_eq!((other.rflags, other.cs), (0x5_0dd5, 0x2b), "no flag that programs may not set");
    }

    #[test]
    fn frames_keep_out_of_the_red_zone_and_are_aligned() {
        for pointer in (0x1_0000u64..0x1_0100).step_by(8) {
            let FrameLayout { frame, vectors } = FrameLayout::below(pointer, None, 2700);
            assert!(vectors + 2700 <= pointer - 128 && frame + SIZE <= vectors, "{pointer:#x}");
            assert_eq!((vectors % 64, frame % 16), (0, 8));
        }
        assert!(FrameLayout::below(0x5000, Some(0x2000), 512).vectors + 512 <= 0x2000);
        // An invalid stack pointer gives an invalid address, without a panic.
        let _ = FrameLayout::below(0, None, 2700);
    }
}
