// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on randomness.

use crate::errno::Errno;
use crate::process::Process;
use crate::user::buffer;

/// Not to wait, which nobody here does; and which of two pools, which are one here.
const GRND_FLAGS: u64 = 7;

/// `getrandom(buffer, length, flags)`.
pub fn getrandom(process: &mut Process, [address, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & !GRND_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    process.random.fill_user(buffer(address, length)?)
}
