// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory the host has left, and how much this process keeps on its heap.

use std::io;

/// Bytes that the host could still give to programs: `MemAvailable`.
pub(crate) fn available() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024.0).ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))
}

/// Bytes that are allocated on this process's heap.
#[cfg(target_env = "gnu")]
pub(crate) fn heap() -> Option<f64> {
    // SAFETY: no preconditions; the allocator takes its own locks.
    let info = unsafe { libc::mallinfo2() };
    Some((info.uordblks + info.hblkhd) as f64)
}

/// Bytes that are allocated on this process's heap: this C library does not say.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn heap() -> Option<f64> {
    None
}
