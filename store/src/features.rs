// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU features for programs at CPL 3: a template may use the features of its first CPU forever, because programs ask once.
//!
//! Only features that a program could have chosen by `cpuid` count, under the names that Linux has for them (Intel SDM
//! volume 2A, CPUID; AMD APM volume 3, appendix E).

use pando_abi::cpuid::{END, Entry};

/// A register of a `cpuid` result, with the numbers and names of its feature bits.
struct Register {
    leaf: u32,
    subleaf: u32,
    /// In the order `eax`, `ebx`, `ecx`, `edx`.
    index: usize,
    names: &'static [(u8, &'static str)],
}

const fn register(leaf: u32, subleaf: u32, index: usize, names: &'static [(u8, &'static str)]) -> Register {
    Register { leaf, subleaf, index, names }
}

const REGISTERS: &[Register] = &[
    register(
        1,
        0,
        2,
        &[
            (0, "sse3"),
            (1, "pclmulqdq"),
            (9, "ssse3"),
            (12, "fma"),
            (13, "cx16"),
            (19, "sse4_1"),
            (20, "sse4_2"),
            (22, "movbe"),
            (23, "popcnt"),
            (25, "aes"),
            (26, "xsave"),
            (28, "avx"),
            (29, "f16c"),
            (30, "rdrand"),
        ],
    ),
    register(1, 0, 3, &[(4, "tsc"), (8, "cx8"), (15, "cmov"), (19, "clflush"), (23, "mmx"), (24, "fxsr"), (25, "sse"), (26, "sse2")]),
    register(
        7,
        0,
        1,
        &[
            (0, "fsgsbase"),
            (3, "bmi1"),
            (5, "avx2"),
            (8, "bmi2"),
            (9, "erms"),
            (11, "rtm"),
            (16, "avx512f"),
            (17, "avx512dq"),
            (18, "rdseed"),
            (19, "adx"),
            (21, "avx512ifma"),
            (23, "clflushopt"),
            (24, "clwb"),
            (28, "avx512cd"),
            (29, "sha_ni"),
            (30, "avx512bw"),
            (31, "avx512vl"),
        ],
    ),
    register(
        7,
        0,
        2,
        &[
            (1, "avx512vbmi"),
            (5, "waitpkg"),
            (6, "avx512_vbmi2"),
            (8, "gfni"),
            (9, "vaes"),
            (10, "vpclmulqdq"),
            (11, "avx512_vnni"),
            (12, "avx512_bitalg"),
            (14, "avx512_vpopcntdq"),
            (22, "rdpid"),
            (25, "cldemote"),
            (27, "movdiri"),
            (28, "movdir64b"),
        ],
    ),
    register(7, 0, 3, &[(4, "fsrm"), (8, "avx512_vp2intersect"), (14, "serialize"), (23, "avx512_fp16")]),
    register(
        7,
        1,
        0,
        &[
            (0, "sha512"),
            (1, "sm3"),
            (2, "sm4"),
            (4, "avx_vnni"),
            (5, "avx512_bf16"),
            (7, "cmpccxadd"),
            (10, "fzrm"),
            (11, "fsrs"),
            (12, "fsrc"),
            (23, "avx_ifma"),
        ],
    ),
    register(7, 1, 3, &[(4, "avx_vnni_int8"), (5, "avx_ne_convert"), (10, "avx_vnni_int16"), (14, "prefetchiti"), (19, "avx10")]),
    register(0xd, 1, 0, &[(0, "xsaveopt"), (1, "xsavec"), (2, "xgetbv1")]),
    register(0x8000_0001, 0, 2, &[(0, "lahf_lm"), (5, "abm"), (6, "sse4a"), (8, "3dnowprefetch"), (11, "xop"), (16, "fma4"), (21, "tbm")]),
    register(0x8000_0001, 0, 3, &[(22, "mmxext"), (27, "rdtscp")]),
    register(0x8000_0008, 0, 1, &[(0, "clzero")]),
];

/// The feature words of a CPU's `cpuid` table, one for each of the registers above.
pub(crate) fn of(answers: &[Entry]) -> Vec<u32> {
    let answer = |register: &Register| {
        let is_it = |entry: &&Entry| entry.leaf == register.leaf && (entry.indexed == 0 || entry.subleaf == register.subleaf);
        // A leaf that does not depend on the index has one result for all, which is that for index 0.
        let entry = answers.iter().find(is_it).filter(|entry| entry.indexed != 0 || register.subleaf == 0);
        entry.map_or(0, |entry| entry.answer[register.index])
    };
    REGISTERS.iter().map(answer).collect()
}

/// The feature words of a `cpuid` table as cells see it.
#[must_use]
pub fn features_of_table(table: &[u8]) -> Vec<u32> {
    let entries = table.as_chunks::<{ Entry::SIZE }>().0.iter().map(Entry::from_bytes);
    of(&entries.take_while(|entry| entry.leaf != END).collect::<Vec<_>>())
}

/// The names of the features that the first CPU has and the second lacks, by their feature words. `None`: there are none.
#[must_use]
pub fn missing_features(had: &[u32], has: &[u32]) -> Option<String> {
    missing(had, has)
}

/// The names of the features that the first CPU has and the second lacks. `None`: there are none.
pub(crate) fn missing(had: &[u32], has: &[u32]) -> Option<String> {
    let lost = REGISTERS.iter().zip(had.iter().zip(has)).flat_map(|(register, (had, has))| {
        let lost = had & !has;
        register.names.iter().filter(move |(bit, _)| lost & 1 << bit != 0).map(|(_, name)| *name)
    });
    let names: Vec<&str> = lost.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{REGISTERS, missing, of};
    use pando_abi::cpuid::Entry;

    #[test]
    fn missing_features_are_named_and_new_ones_are_ignored() {
        let leaf = |leaf, subleaf, indexed, answer| Entry { leaf, subleaf, indexed, answer };
        let rich = of(&[leaf(1, 0, 0, [0, 0, 1 << 28, 0]), leaf(7, 0, 1, [0, 1 << 5 | 1 << 16, 0, 0]), leaf(7, 1, 1, [1 << 4, 0, 0, 0])]);
        let poor = of(&[leaf(1, 0, 0, [9, 9, 1 << 28 | 1, 0]), leaf(7, 0, 1, [0, 1 << 5, 0, 0])]);
        assert_eq!(missing(&rich, &poor).as_deref(), Some("avx512f, avx_vnni"));
        assert_eq!(missing(&poor, &rich).as_deref(), Some("sse3"));
        assert_eq!(missing(&rich, &rich), None);
        assert_eq!(rich.len(), REGISTERS.len());
    }

    #[test]
    fn each_bit_has_one_name() {
        for register in REGISTERS {
            assert!(register.names.is_sorted_by(|one, other| one.0 < other.0) && register.names.iter().all(|(bit, _)| *bit < 32));
        }
    }
}
