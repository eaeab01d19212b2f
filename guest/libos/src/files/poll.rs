// SPDX-License-Identifier: MIT OR Apache-2.0
//! What files say of what they are ready for: the bits of `poll`.

/// Bytes can be read.
pub const POLLIN: u16 = 0x001;
/// An urgent byte can be read.
pub const POLLPRI: u16 = 0x002;
/// Bytes can be written.
pub const POLLOUT: u16 = 0x004;
/// The other end is gone, so writing fails.
pub const POLLERR: u16 = 0x008;
/// The other end is gone, so what is there is all.
pub const POLLHUP: u16 = 0x010;
/// There is no such file.
pub const POLLNVAL: u16 = 0x020;
const POLLRDNORM: u16 = 0x040;
const POLLWRNORM: u16 = 0x100;
/// What a file says that can be read.
pub const READING: u16 = POLLIN | POLLRDNORM;
/// What a file says that can be written.
pub const WRITING: u16 = POLLOUT | POLLWRNORM;
