// SPDX-License-Identifier: MIT OR Apache-2.0
//! `prctl`: settings that a process makes for itself.

use pando_rt::user::{read, write};

use super::capabilities::ambient;
use crate::credentials::capabilities::bit;
use crate::errno::Errno;
use crate::process::NAME;
use crate::system::System;
use crate::uapi::{
    PR_CAP_AMBIENT, PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_GET_CHILD_SUBREAPER, PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_NAME,
    PR_GET_NO_NEW_PRIVS, PR_GET_PDEATHSIG, PR_GET_SECCOMP, PR_GET_SECUREBITS, PR_GET_THP_DISABLE, PR_GET_TIMERSLACK,
    PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_SECUREBITS,
    PR_SET_THP_DISABLE, PR_SET_TIMERSLACK,
};
use crate::user::set_word32;

/// A setting of 0 or 1.
fn switch(value: u64) -> Result<bool, Errno> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// `prctl(option, ...)`.
pub fn prctl(system: &mut System, [option, argument, second, third, fourth, _]: [u64; 6]) -> Result<u64, Errno> {
    const SIGNAL_MAX: u64 = 64;
    let changes_capabilities = matches!(option as u32, PR_SET_KEEPCAPS | PR_SET_SECUREBITS | PR_CAPBSET_DROP | PR_CAP_AMBIENT);
    let credentials = if changes_capabilities { system.own_credentials() } else { &mut system.files.current.credentials };
    let capabilities = &mut credentials.capabilities;
    match option as u32 {
        PR_SET_PDEATHSIG if argument > SIGNAL_MAX => return Err(Errno::EINVAL),
        PR_SET_PDEATHSIG => system.process.settings.death_signal = argument as u32,
        PR_GET_PDEATHSIG => set_word32(argument, system.process.settings.death_signal)?,
        PR_GET_DUMPABLE => return Ok(system.process.settings.dumpable.into()),
        PR_SET_DUMPABLE => system.process.settings.dumpable = switch(argument)?,
        PR_GET_KEEPCAPS => return Ok(capabilities.keeps().into()),
        PR_SET_KEEPCAPS => capabilities.set_keeps(switch(argument)?)?,
        PR_SET_NAME => {
            let name = name(argument)?;
            system.thread.set_name(&name);
        }
        PR_GET_NAME => write(argument, &system.thread.name)?,
        PR_GET_SECCOMP => {}
        PR_CAPBSET_READ => return Ok((capabilities.bounding & bit(argument)? != 0).into()),
        PR_GET_SECUREBITS => return Ok(capabilities.secure),
        PR_SET_SECUREBITS => capabilities.set_secure(argument)?,
        PR_CAPBSET_DROP => capabilities.drop_bounding(argument)?,
        PR_CAP_AMBIENT => return ambient(capabilities, [argument, second, third, fourth]),
        PR_SET_TIMERSLACK => system.thread.slack.set(argument),
        PR_GET_TIMERSLACK => return Ok(system.thread.slack.nanoseconds()),
        PR_SET_CHILD_SUBREAPER => system.process.settings.is_subreaper = argument != 0,
        PR_GET_CHILD_SUBREAPER => set_word32(argument, system.process.settings.is_subreaper.into())?,
        PR_SET_NO_NEW_PRIVS if [argument, second, third, fourth] == [1, 0, 0, 0] => system.process.settings.no_new_privileges = true,
        PR_GET_NO_NEW_PRIVS if [argument, second, third, fourth] == [0; 4] => {
            return Ok(system.process.settings.no_new_privileges.into());
        }
        PR_SET_THP_DISABLE if [second, third, fourth] == [0; 3] => system.process.settings.no_huge_pages = argument != 0,
        PR_GET_THP_DISABLE if [argument, second, third, fourth] == [0; 4] => return Ok(system.process.settings.no_huge_pages.into()),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Reads a name, truncated to its longest.
fn name(address: u64) -> Result<[u8; NAME], Errno> {
    let mut name = [0; NAME];
    for (at, room) in name[..NAME - 1].iter_mut().enumerate() {
        let mut byte = [0];
        read(address.wrapping_add(at as u64), &mut byte)?;
        if byte == [0] {
            break;
        }
        [*room] = byte;
    }
    Ok(name)
}
