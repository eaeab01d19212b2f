// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/cpuinfo` in a cell, beside that of the host.

use crate::case::Case;
use pando_testing::needs_kvm;
use std::collections::BTreeMap;

/// Fields of some hosts that have nothing to do with programs.
const OF_THE_HOST: [&str; 4] = ["microcode", "TLB size", "vmx flags", "cache size"];

/// The fields of the first processor.
fn fields(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().take_while(|line| !line.is_empty());
    let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    lines.filter_map(pair).filter(|(name, _)| !OF_THE_HOST.contains(&&name[..])).collect()
}

#[test]
fn the_processor_is_described_as_linux_describes_it() {
    needs_kvm!();
    let outcome = Case::new("busybox", &["cat", "/proc/cpuinfo"]).cell();
    let (cell, host) = (String::from_utf8_lossy(&outcome.output), std::fs::read_to_string("/proc/cpuinfo").expect("Linux has it"));
    let (cell, host) = (fields(&cell), fields(&host));
    assert!(cell.keys().eq(host.keys()), "{cell:#?} {host:#?}");
    for name in ["vendor_id", "cpu family", "model", "model name", "stepping", "cpuid level", "clflush size", "cache_alignment"] {
        assert_eq!(cell[name], host[name], "{name}");
    }
    let flags = |fields: &BTreeMap<String, String>| fields["flags"].split(' ').map(String::from).collect::<Vec<_>>();
    let (cell, host) = (flags(&cell), flags(&host));
    for flag in ["fpu", "lm", "syscall", "nx", "cx16", "sse2", "cpuid"] {
        assert!(cell.iter().any(|have| have == flag), "{flag}: {cell:?}");
    }
    // In the order of Linux: those that the host has are a subsequence of its list.
    let shared: Vec<&String> = cell.iter().filter(|flag| host.contains(flag)).collect();
    assert!(host.iter().filter(|flag| cell.contains(flag)).eq(shared), "{cell:?} {host:?}");
}
