// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the host: its memory, absolute paths, and the texts of its errors.

use pando_machine::{FRAME_SIZE, PageCount};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Maximal bytes of a name in a store.
const NAME_MAX: usize = 64;

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

/// Whether a text is a name in a store: up to 64 letters, digits, dots, dashes and underlines, of which the first is a letter or a digit.
pub fn is_plain_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.len() <= NAME_MAX && text.bytes().all(is_plain)
}

/// The error's text without its number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text,
    }
}
