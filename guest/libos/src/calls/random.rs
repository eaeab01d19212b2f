// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on randomness.

use crate::errno::Errno;
use crate::system::System;
use crate::user::buffer;

/// `GRND_NONBLOCK`, `GRND_RANDOM` and `GRND_INSECURE`: there is one pool, which never blocks.
const GRND_FLAGS: u64 = 7;

/// `getrandom(buffer, length, flags)`.
pub fn getrandom(system: &mut System, [address, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !GRND_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    system.random.fill_user(buffer(address, length)?)
}
