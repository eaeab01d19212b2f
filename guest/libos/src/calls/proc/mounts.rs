// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounted file systems.

use alloc::format;
use alloc::vec::Vec;

use pando_rt::memory;

use crate::files::status::{anonymous_device, device_of, minor, numbers};
use crate::files::tree::volume::VolumeIndex;
use crate::system::System;

/// The volumes, the directories that are file systems of their own, and `/proc`, in the format of `mounts` or of `mountinfo`.
pub(super) fn mounts(system: &System, info: bool) -> Vec<u8> {
    let points = memory::volumes();
    let access = |is_read_only| if is_read_only { "ro" } else { "rw" };
    let devices = (0..).zip(system.files.tree.volumes());
    let devices = devices.map(|(index, volume)| (device_of(VolumeIndex(index), &volume.image), access(volume.is_read_only)));
    let volumes = devices.zip(points.mount_points()).map(|((device, access), point)| (device, access, point, "overlay"));
    let temporary = system.files.tree.temporary();
    let temporary = temporary.map(|(index, path)| (anonymous_device(minor::VOLUMES + u32::from(index.0)), "rw", path, "tmpfs"));
    let mut text = Vec::new();
    let generated =
        [(anonymous_device(minor::PROC), "rw", &b"/proc"[..], "proc"), (anonymous_device(minor::SYSTEM), "rw", b"/sys", "sysfs")];
    for (number, (device, access, point, kind)) in (1..).zip(volumes.chain(temporary).chain(generated)) {
        let above = if number == 1 { 0 } else { 1 };
        let point: Vec<u8> = point.iter().flat_map(|&byte| escaped(byte)).collect();
        let (before, after) = if info {
            let (major, minor) = numbers(device);
            (format!("{number} {above} {major}:{minor} / "), format!(" {access},relatime - {kind} {kind} rw\n"))
        } else {
            (format!("{kind} "), format!(" {kind} {access},relatime 0 0\n"))
        };
        text.extend([before.as_bytes(), &point, after.as_bytes()].concat());
    }
    text
}

/// A byte of a path, escaped as in tables of mounts.
fn escaped(byte: u8) -> Vec<u8> {
    if matches!(byte, b' ' | b'\t' | b'\n' | b'\\') { format!("\\{byte:03o}").into_bytes() } else { alloc::vec![byte] }
}
