// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of the processor under Linux's names: line `flags` of `/proc/cpuinfo`.

use alloc::string::String;
use alloc::vec::Vec;

use pando_rt::cpuid;

const EAX: usize = 0;
const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;

/// Bit 8 of EDX of leaf 0x80000007: the time stamp counter runs at one rate.
const INVARIANT_TSC: u32 = 1 << 8;

/// A register of a result of `cpuid`.
struct Word {
    leaf: u32,
    subleaf: u32,
    register: usize,
    /// Names of its bits from bit 0 on, separated by spaces; `-`: Linux does not show the bit.
    names: &'static str,
}

/// The words before those that Linux sets itself, in the order of `asm/cpufeatures.h`.
const FIRST: [Word; 2] = [
    Word {
        leaf: 1,
        subleaf: 0,
        register: EDX,
        names: "fpu vme de pse tsc msr pae mce cx8 apic - sep mtrr pge mca cmov pat pse36 pn clflush - dts acpi mmx fxsr sse sse2 ss ht tm ia64 pbe",
    },
    Word {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: EDX,
        names: "- - - - - - - - - - - syscall - - - - - - - mp nx - mmxext - - fxsr_opt pdpe1gb rdtscp - lm 3dnowext 3dnow",
    },
];
/// The words after them.
const LATER: [Word; 9] = [
    Word {
        leaf: 1,
        subleaf: 0,
        register: ECX,
        names: "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 cid sdbg fma cx16 xtpr pdcm - pcid dca sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave - avx f16c rdrand hypervisor",
    },
    Word {
        leaf: 0x8000_0001,
        subleaf: 0,
        register: ECX,
        names: "lahf_lm cmp_legacy svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs xop skinit wdt - lwp fma4 tce - nodeid_msr - tbm topoext perfctr_core perfctr_nb - bpext ptsc perfctr_llc mwaitx",
    },
    Word {
        leaf: 7,
        subleaf: 0,
        register: EBX,
        names: "fsgsbase tsc_adjust sgx bmi1 hle avx2 - smep bmi2 erms invpcid rtm cqm - mpx rdt_a avx512f avx512dq rdseed adx smap avx512ifma - clflushopt clwb intel_pt avx512pf avx512er avx512cd sha_ni avx512bw avx512vl",
    },
    Word { leaf: 0xd, subleaf: 1, register: EAX, names: "xsaveopt xsavec xgetbv1 xsaves" },
    Word { leaf: 7, subleaf: 1, register: EAX, names: "- - - - avx_vnni avx512_bf16" },
    Word { leaf: 0x8000_0008, subleaf: 0, register: EBX, names: "clzero irperf xsaveerptr - rdpru - - - - wbnoinvd" },
    Word { leaf: 6, subleaf: 0, register: EAX, names: "dtherm ida arat - pln - pts hwp hwp_notify hwp_act_window hwp_epp hwp_pkg_req" },
    Word {
        leaf: 7,
        subleaf: 0,
        register: ECX,
        names: "- avx512vbmi umip pku ospke waitpkg avx512_vbmi2 - gfni vaes vpclmulqdq avx512_vnni avx512_bitalg tme avx512_vpopcntdq - la57 - - - - - rdpid - bus_lock_detect cldemote - movdiri movdir64b enqcmd",
    },
    Word {
        leaf: 7,
        subleaf: 0,
        register: EDX,
        names: "- - avx512_4vnniw avx512_4fmaps fsrm - - - avx512_vp2intersect - md_clear - - - serialize - tsxldtrk - pconfig arch_lbr ibt - amx_bf16 avx512_fp16 amx_tile amx_int8 - - flush_l1d",
    },
];

/// The names of the features, separated by spaces.
pub(super) fn names() -> String {
    let own = if cpuid::lookup(0x8000_0007, 0)[EDX] & INVARIANT_TSC != 0 {
        &["constant_tsc", "rep_good", "nopl", "nonstop_tsc", "cpuid"][..]
    } else {
        &["rep_good", "nopl", "cpuid"]
    };
    let names = FIRST.iter().flat_map(of_word).chain(own.iter().copied()).chain(LATER.iter().flat_map(of_word));
    names.collect::<Vec<_>>().join(" ")
}

/// The names of the set bits of a word.
fn of_word(word: &Word) -> impl Iterator<Item = &'static str> {
    let bits = cpuid::lookup(word.leaf, word.subleaf)[word.register];
    word.names.split(' ').enumerate().filter(move |(bit, name)| *name != "-" && bits >> bit & 1 != 0).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::{FIRST, LATER};

    #[test]
    fn each_bit_has_one_name_at_most() {
        for word in FIRST.iter().chain(&LATER) {
            assert!(word.names.split(' ').count() <= 32 && word.names.split(' ').all(|name| !name.is_empty()), "{:#x}", word.leaf);
        }
        let bit = |word: usize, name: &str| LATER[word].names.split(' ').position(|known| known == name);
        assert_eq!(FIRST.each_ref().map(|word| word.names.split(' ').count()), [32, 32]);
        assert_eq!(
            (bit(0, "aes"), bit(0, "hypervisor"), bit(2, "avx512vl"), bit(7, "rdpid"), bit(8, "fsrm")),
            (Some(25), Some(31), Some(31), Some(22), Some(4))
        );
    }
}
