// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes and modes of socket filters (classic BPF): `filter.h`, `bpf_common.h`.

constants! { ptrace as u16 {
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_DIV, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP,
    BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_LSH, BPF_MEM, BPF_MISC, BPF_MOD, BPF_MSH, BPF_MUL, BPF_NEG, BPF_OR, BPF_RET, BPF_RSH,
    BPF_ST, BPF_STX, BPF_SUB, BPF_TAX, BPF_TXA, BPF_W, BPF_X, BPF_XOR,
} }

constants! { ptrace as usize {
    BPF_MAXINSNS, BPF_MEMWORDS,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `SKF_LL_OFF` as an offset of an instruction: offsets from here on select headers and ancillary data.
pub const SKF_LL_OFF: u32 = linux_raw_sys::ptrace::SKF_LL_OFF as u32;
