// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the host: its memory, absolute paths, and the texts of its errors.

use pando_machine::{FRAME_SIZE, PageCount};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A line of `/proc/meminfo`, in pages.
pub fn memory_info(name: &str) -> Option<PageCount> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(PageCount(kilobytes * 1024 / FRAME_SIZE as u64))
}

/// The host's memory. Cached, because a confined process cannot read it.
pub fn memory() -> PageCount {
    static MEMORY: OnceLock<PageCount> = OnceLock::new();
    *MEMORY.get_or_init(|| memory_info("MemTotal").unwrap_or(PageCount(1 << 18)))
}

/// The absolute form of a path. The last component is not resolved if it is a link.
///
/// # Errors
/// The directory of the path does not exist.
pub fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    let Some(name) = path.file_name() else { return path.canonicalize() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(parent.canonicalize()?.join(name))
}

/// The error's text without its number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text,
    }
}
