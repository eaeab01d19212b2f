// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/cpuinfo`, as Linux prints it for the processor that `cpuid` describes.

mod flags;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_rt::{cpuid, registers};

/// The text.
pub(super) fn cpu_info() -> String {
    let word = |leaf| cpuid::lookup(leaf, 0);
    let [highest, b, c, d] = word(0);
    let vendor: Vec<u8> = [b, d, c].into_iter().flat_map(u32::to_le_bytes).collect();
    let brand: Vec<u8> = (0x8000_0002..=0x8000_0004).flat_map(word).flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
    let brand = String::from_utf8_lossy(&brand);
    let [signature, features, ..] = word(1);
    let family = (signature >> 8 & 15) + if signature >> 8 & 15 == 15 { signature >> 20 & 0xff } else { 0 };
    let model = signature >> 4 & 15 | signature >> 12 & 0xf0;
    let kilohertz = registers::time().frequency / 1000;
    let (megahertz, fraction) = (kilohertz / 1000, kilohertz % 1000);
    let mut text = format!(
        "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {}\nstepping\t: {}\n\
         cpu MHz\t\t: {megahertz}.{fraction:03}\n",
        String::from_utf8_lossy(&vendor),
        if brand.trim().is_empty() { "unknown" } else { brand.trim() },
        signature & 15,
    );
    if let size @ 1.. = cache_kilobytes() {
        let _ = writeln!(text, "cache size\t: {size} KB");
    }
    let line = features >> 8 & 0xff;
    // The widths of addresses, if the processor tells them.
    let widths = word(0x8000_0008)[0];
    let (physical, linear) = if widths == 0 { (36, 48) } else { (widths & 0xff, widths >> 8 & 0xff) };
    let _ = write!(
        text,
        "physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\napicid\t\t: 0\ninitial apicid\t: 0\n\
         fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {highest}\nwp\t\t: yes\nflags\t\t: {}\nbugs\t\t:\n\
         bogomips\t: {}.{:02}\nclflush size\t: {}\ncache_alignment\t: {}\n\
         address sizes\t: {physical} bits physical, {linear} bits virtual\npower management:\n\n",
        flags::names(),
        kilohertz / 500,
        kilohertz / 5 % 100,
        line * 8,
        (line * 8).max(64),
    );
    text
}

/// The size of the last cache that Linux shows: the largest of leaf 4 on Intel's processors, the second-level one of others; 0: unknown.
fn cache_kilobytes() -> u64 {
    /// Caches of a processor, and some more.
    const CACHES: u32 = 8;
    let size = |subleaf: u32| {
        let [a, b, c, _] = cpuid::lookup(4, subleaf);
        let part = |shift: u32, mask: u32| u64::from(b >> shift & mask) + 1;
        if a & 31 == 0 { 0 } else { part(22, 0x3ff) * part(12, 0x3ff) * part(0, 0xfff) * (u64::from(c) + 1) / 1024 }
    };
    match (0..CACHES).map(size).max() {
        Some(largest @ 1..) => largest,
        _ => u64::from(cpuid::lookup(0x8000_0006, 0)[2] >> 16),
    }
}
