// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of files: the events of `poll`.

use crate::uapi::{POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};

/// The events of a readable file.
pub const READING: u16 = POLLIN | POLLRDNORM;
/// The events of a writable file.
pub const WRITING: u16 = POLLOUT | POLLWRNORM;
