// SPDX-License-Identifier: MIT OR Apache-2.0
//! `prctl`: settings that a process makes for itself.

use pando_rt::user::{read, write};

use super::capabilities::ambient;
use crate::credentials::capabilities::bit;
use crate::errno::Errno;
use crate::process::NAME;
use crate::system::System;
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
    const SET_DEATH_SIGNAL: u32 = 1;
    const GET_DEATH_SIGNAL: u32 = 2;
    const GET_DUMPABLE: u32 = 3;
    const SET_DUMPABLE: u32 = 4;
    const GET_KEEPS: u32 = 7;
    const SET_KEEPS: u32 = 8;
    const SET_NAME: u32 = 15;
    const GET_NAME: u32 = 16;
    const GET_SECCOMP: u32 = 21;
    const IN_BOUNDING_SET: u32 = 23;
    const DROP_BOUNDING: u32 = 24;
    const GET_SECURE: u32 = 27;
    const SET_SECURE: u32 = 28;
    const SET_TIMER_SLACK: u32 = 29;
    const GET_TIMER_SLACK: u32 = 30;
    const SET_SUBREAPER: u32 = 36;
    const GET_SUBREAPER: u32 = 37;
    const SET_NO_NEW_PRIVILEGES: u32 = 38;
    const GET_NO_NEW_PRIVILEGES: u32 = 39;
    const SET_NO_HUGE_PAGES: u32 = 41;
    const GET_NO_HUGE_PAGES: u32 = 42;
    const AMBIENT: u32 = 47;
    const SIGNAL_MAX: u64 = 64;
    let changes_capabilities = matches!(option as u32, SET_KEEPS | SET_SECURE | DROP_BOUNDING | AMBIENT);
    let who = if changes_capabilities { system.own_credentials() } else { &mut system.files.own.who };
    let capabilities = &mut who.capabilities;
    match option as u32 {
        SET_DEATH_SIGNAL if argument > SIGNAL_MAX => return Err(Errno::EINVAL),
        SET_DEATH_SIGNAL => system.process.settings.death_signal = argument as u32,
        GET_DEATH_SIGNAL => set_word32(argument, system.process.settings.death_signal)?,
        GET_DUMPABLE => return Ok(system.process.settings.dumpable.into()),
        SET_DUMPABLE => system.process.settings.dumpable = switch(argument)?,
        GET_KEEPS => return Ok(capabilities.keeps().into()),
        SET_KEEPS => capabilities.set_keeps(switch(argument)?)?,
        SET_NAME => {
            let name = name(argument)?;
            system.thread.set_name(&name);
        }
        GET_NAME => write(argument, &system.thread.name)?,
        GET_SECCOMP => {}
        IN_BOUNDING_SET => return Ok((capabilities.bounding & bit(argument)? != 0).into()),
        GET_SECURE => return Ok(capabilities.secure),
        SET_SECURE => capabilities.set_secure(argument)?,
        DROP_BOUNDING => capabilities.drop_bounding(argument)?,
        AMBIENT => return ambient(capabilities, [argument, second, third, fourth]),
        SET_TIMER_SLACK => system.thread.slack.set(argument),
        GET_TIMER_SLACK => return Ok(system.thread.slack.nanoseconds()),
        SET_SUBREAPER => system.process.settings.is_subreaper = argument != 0,
        GET_SUBREAPER => set_word32(argument, system.process.settings.is_subreaper.into())?,
        SET_NO_NEW_PRIVILEGES if [argument, second, third, fourth] == [1, 0, 0, 0] => system.process.settings.no_new_privileges = true,
        GET_NO_NEW_PRIVILEGES if [argument, second, third, fourth] == [0; 4] => {
            return Ok(system.process.settings.no_new_privileges.into());
        }
        SET_NO_HUGE_PAGES if [second, third, fourth] == [0; 3] => system.process.settings.no_huge_pages = argument != 0,
        GET_NO_HUGE_PAGES if [argument, second, third, fourth] == [0; 4] => return Ok(system.process.settings.no_huge_pages.into()),
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
