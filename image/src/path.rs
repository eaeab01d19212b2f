// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths inside an image, and targets of its symbolic links.

use pando_erofs::NAME_LEN;

use crate::Error;

/// Maximal bytes of a symbolic link's target.
pub(crate) const TARGET_MAX: usize = 4095;

/// Splits a path into valid names; none for the root.
pub(crate) fn components(path: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let refused = |reason| Err(Error::Path { path: shown(path), reason });
    let names = path.strip_prefix(b"/").unwrap_or(path);
    if names.is_empty() {
        return if path.is_empty() { refused("the path is empty") } else { Ok(Vec::new()) };
    }
    let names: Vec<&[u8]> = names.split(|&byte| byte == b'/').collect();
    for name in &names {
        match *name {
            b"" => return refused("a name is empty"),
            b"." | b".." => return refused("'.' and '..' cannot be names"),
            name if name.len() > NAME_LEN => return refused("a name has more than 255 bytes"),
            name if name.contains(&0) => return refused("a name has a NUL"),
            _ => {}
        }
    }
    Ok(names)
}

/// Checks the target of the symbolic link at a path.
pub(crate) fn check_target(path: &[u8], target: &[u8]) -> Result<(), Error> {
    if is_target(target) { Ok(()) } else { Err(Error::Target { path: shown(path) }) }
}

/// Whether a symbolic link may have this target.
pub(crate) fn is_target(target: &[u8]) -> bool {
    !target.is_empty() && target.len() <= TARGET_MAX && !target.contains(&0)
}

/// A path as error messages show it: without bytes that are not ASCII, and cut after 4096 bytes.
pub(crate) fn shown(path: &[u8]) -> String {
    let shown = path[..path.len().min(4096)].escape_ascii().to_string();
    if path.len() > 4096 { shown + "..." } else { shown }
}
