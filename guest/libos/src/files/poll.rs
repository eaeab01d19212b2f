// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of files: the events of `poll`.

/// Bytes can be read.
pub const POLLIN: u16 = 0x001;
/// An urgent byte can be read.
pub const POLLPRI: u16 = 0x002;
/// Bytes can be written.
pub const POLLOUT: u16 = 0x004;
/// The other end is closed, so writing fails.
pub const POLLERR: u16 = 0x008;
/// The other end is closed, so no further bytes will arrive.
pub const POLLHUP: u16 = 0x010;
/// The descriptor is not open.
pub const POLLNVAL: u16 = 0x020;
const POLLRDNORM: u16 = 0x040;
const POLLWRNORM: u16 = 0x100;
/// The events of a readable file.
pub const READING: u16 = POLLIN | POLLRDNORM;
/// The events of a writable file.
pub const WRITING: u16 = POLLOUT | POLLWRNORM;
