// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the host's memory is: with this process, with others, or with the host's kernel.

use pando_machine::PageCount;
use std::io;

/// Bytes of anonymous memory that this process holds: the arena, and its heap.
pub(crate) fn own() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    field(&text, "RssAnon:").ok_or_else(|| io::Error::other("/proc/self/status has no RssAnon"))
}

/// Bytes that the host has for programs: what it could still give them (`MemAvailable`, and the free pages that each core keeps at hand), and what they
/// have, this one and all others. It falls with what the host's kernel takes, be it for them.
pub(crate) fn for_programs() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let of_host = |name| field(&text, name).ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")));
    Ok(of_host("MemAvailable:")? + of_host("AnonPages:")? + of_host("Shmem:")? + at_hand())
}

/// Bytes of free pages that cores keep at hand, which no other figure counts; where the host does not say, nothing.
fn at_hand() -> f64 {
    let zones = std::fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    let pages: u64 = zones.lines().filter_map(|line| line.trim().strip_prefix("count:")?.trim().parse::<u64>().ok()).sum();
    PageCount(pages).bytes() as f64
}

/// The bytes that a line of such a file gives in kB.
fn field(text: &str, name: &str) -> Option<f64> {
    let kibibytes: f64 = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::own;
    use crate::native::memory::{Memory, Pages};

    #[test]
    fn what_this_process_takes_is_its_own() {
        const BYTES: usize = 64 << 20;
        let before = own().expect("the host says");
        let mut memory = Memory::map(BYTES, Pages::Default).expect("there is room");
        memory.touch();
        let taken = (own().expect("the host says") - before) / BYTES as f64;
        // Other tests of this process take and give back a little.
        assert!((0.5..2.0).contains(&taken), "{taken}");
    }
}
