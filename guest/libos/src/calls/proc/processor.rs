// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/cpuinfo`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use pando_rt::cpuid;

/// The text.
pub(super) fn cpu_info() -> String {
    let word = |leaf| cpuid::answer(leaf, 0);
    let [highest, b, c, d] = word(0);
    let vendor: Vec<u8> = [b, d, c].into_iter().flat_map(u32::to_le_bytes).collect();
    let brand: Vec<u8> = (0x8000_0002..=0x8000_0004).flat_map(word).flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
    let [signature, ..] = word(1);
    let family = (signature >> 8 & 15) + if signature >> 8 & 15 == 15 { signature >> 20 & 0xff } else { 0 };
    let model = signature >> 4 & 15 | signature >> 12 & 0xf0;
    format!(
        "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {}\nstepping\t: {}\n\
         physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\nfpu\t\t: yes\ncpuid level\t: {highest}\nflags\t\t: {}\n\
         clflush size\t: 64\ncache_alignment\t: 64\n\n",
        String::from_utf8_lossy(&vendor),
        String::from_utf8_lossy(&brand),
        signature & 15,
        cpu_flags()
    )
}

/// Features by the names that programs look for.
fn cpu_flags() -> String {
    /// Leaf, register, bit, name.
    const FLAGS: [(u32, usize, u32, &str); 24] = [
        (1, 3, 0, "fpu"),
        (1, 3, 4, "tsc"),
        (1, 3, 8, "cx8"),
        (1, 3, 15, "cmov"),
        (1, 3, 23, "mmx"),
        (1, 3, 24, "fxsr"),
        (1, 3, 25, "sse"),
        (1, 3, 26, "sse2"),
        (1, 2, 0, "pni"),
        (1, 2, 1, "pclmulqdq"),
        (1, 2, 9, "ssse3"),
        (1, 2, 12, "fma"),
        (1, 2, 13, "cx16"),
        (1, 2, 19, "sse4_1"),
        (1, 2, 20, "sse4_2"),
        (1, 2, 22, "movbe"),
        (1, 2, 23, "popcnt"),
        (1, 2, 25, "aes"),
        (1, 2, 28, "avx"),
        (7, 1, 3, "bmi1"),
        (7, 1, 5, "avx2"),
        (7, 1, 8, "bmi2"),
        (7, 1, 16, "avx512f"),
        (7, 1, 29, "sha_ni"),
    ];
    let has = |(leaf, register, bit): (u32, usize, u32)| cpuid::answer(leaf, 0)[register] >> bit & 1 != 0;
    let names = FLAGS.into_iter().filter(|&(leaf, register, bit, _)| has((leaf, register, bit))).map(|(.., name)| name);
    names.collect::<Vec<_>>().join(" ")
}
