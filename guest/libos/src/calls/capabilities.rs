// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on the capabilities of a process.

use crate::credentials::capabilities::{Capabilities, bit, valid};
use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{
    _LINUX_CAPABILITY_VERSION_1, _LINUX_CAPABILITY_VERSION_2, _LINUX_CAPABILITY_VERSION_3, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET,
    PR_CAP_AMBIENT_LOWER, PR_CAP_AMBIENT_RAISE,
};
use crate::user::{set_word32, word32};

/// Number of 32-bit words of each set, from the version at the start of a header. An unknown version is overwritten with a known
/// one.
fn words_of(header: u64) -> Result<usize, Errno> {
    match word32(header)? {
        _LINUX_CAPABILITY_VERSION_1 => Ok(1),
        _LINUX_CAPABILITY_VERSION_2 | _LINUX_CAPABILITY_VERSION_3 => Ok(2),
        _ => {
            set_word32(header, _LINUX_CAPABILITY_VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

/// `capget(header, data)`.
pub fn capget(system: &mut System, [header, data, ..]: [u64; 6]) -> Result<u64, Errno> {
    let count = match words_of(header) {
        // The program only asked for the version.
        Err(Errno::EINVAL) if data == 0 => return Ok(0),
        other => other?,
    };
    if data == 0 {
        return Ok(0);
    }
    let number = word32(header.wrapping_add(4))?;
    if number.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let process = match number {
        0 => system.process.number,
        number => system.thread_of(number).map_or(number, |thread| thread.process),
    };
    let Capabilities { effective, permitted, inheritable, .. } = system.files.of(process).ok_or(Errno::ESRCH)?.credentials.capabilities;
    for half in 0..count {
        for (at, set) in [effective, permitted, inheritable].into_iter().enumerate() {
            set_word32(data.wrapping_add(((half * 3 + at) * 4) as u64), (set >> (half * 32)) as u32)?;
        }
    }
    Ok(0)
}

/// `capset(header, data)`.
pub fn capset(system: &mut System, [header, data, ..]: [u64; 6]) -> Result<u64, Errno> {
    let count = words_of(header)?;
    let number = word32(header.wrapping_add(4))?;
    if number != 0 && number != system.thread.number {
        return Err(Errno::EPERM);
    }
    let mut sets = [0; 3];
    for half in 0..count {
        for (at, set) in sets.iter_mut().enumerate() {
            *set |= u64::from(word32(data.wrapping_add(((half * 3 + at) * 4) as u64))?) << (half * 32);
        }
    }
    system.own_credentials().capabilities.set(sets.map(valid))?;
    Ok(0)
}

/// `prctl(PR_CAP_AMBIENT, what, capability, 0, 0)`.
pub fn ambient(capabilities: &mut Capabilities, [what, capability, fourth, fifth]: [u64; 4]) -> Result<u64, Errno> {
    if fourth | fifth != 0 {
        return Err(Errno::EINVAL);
    }
    match what {
        PR_CAP_AMBIENT_CLEAR_ALL if capability == 0 => capabilities.ambient = 0,
        PR_CAP_AMBIENT_IS_SET => return Ok((capabilities.ambient & bit(capability)? != 0).into()),
        PR_CAP_AMBIENT_RAISE => capabilities.raise_ambient(capability)?,
        PR_CAP_AMBIENT_LOWER => capabilities.ambient &= !bit(capability)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
