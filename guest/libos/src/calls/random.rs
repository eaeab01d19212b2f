// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on randomness.

use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM};
use crate::user::buffer;

/// All flags. There is one pool, which never blocks.
const GRND_FLAGS: u64 = GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE;

/// `getrandom(buffer, length, flags)`.
pub fn getrandom(system: &mut System, [address, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !GRND_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    system.random.fill_user(buffer(address, length)?)
}
