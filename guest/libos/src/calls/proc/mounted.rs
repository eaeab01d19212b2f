// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is mounted where.

use alloc::format;
use alloc::vec::Vec;

use pando_rt::memory;

use crate::files::status::minor;
use crate::system::System;

/// The volumes and `/proc`, as `mounts` lists them or as `mountinfo` does.
pub(super) fn mounts(system: &System, info: bool) -> Vec<u8> {
    let given = memory::arguments();
    let skip = 2 + given.header.arguments + given.header.environment;
    let points = given.strings.split(|byte| *byte == 0).skip(skip as usize).take(system.files.tree.volumes().len());
    let volumes = (minor::VOLUMES..).zip(points).map(|(device, point)| (device, point, "overlay"));
    let mut text = Vec::new();
    for (number, (device, point, kind)) in
        (1..).zip(volumes.chain([(minor::PROC, &b"/proc"[..], "proc"), (minor::SYSTEM, b"/sys", "sysfs")]))
    {
        let above = if number == 1 { 0 } else { 1 };
        let point: Vec<u8> = point.iter().flat_map(|&byte| escaped(byte)).collect();
        let (before, after) = if info {
            (format!("{number} {above} 0:{device} / "), format!(" rw,relatime - {kind} {kind} rw\n"))
        } else {
            (format!("{kind} "), format!(" {kind} rw,relatime 0 0\n"))
        };
        text.extend([before.as_bytes(), &point, after.as_bytes()].concat());
    }
    text
}

/// A byte of a path as tables of mounts write it.
fn escaped(byte: u8) -> Vec<u8> {
    if matches!(byte, b' ' | b'\t' | b'\n' | b'\\') { format!("\\{byte:03o}").into_bytes() } else { alloc::vec![byte] }
}
