// SPDX-License-Identifier: MIT OR Apache-2.0
//! `prctl`, and the capabilities of the process: what it sets for itself.

use pando_rt::user::{read, write};

use crate::errno::Errno;
use crate::system::System;
use crate::thread;
use crate::user::{set_word32, word32};

/// All capabilities that Linux knows.
const CAPABILITIES: u64 = (1 << 41) - 1;
const CAPABILITY_LAST: u64 = 40;
/// What is set by 0 and 1.
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
    const SET_TIMER_SLACK: u32 = 29;
    const GET_TIMER_SLACK: u32 = 30;
    const SET_SUBREAPER: u32 = 36;
    const GET_SUBREAPER: u32 = 37;
    const SET_NO_NEW_PRIVILEGES: u32 = 38;
    const GET_NO_NEW_PRIVILEGES: u32 = 39;
    const SET_NO_HUGE_PAGES: u32 = 41;
    const GET_NO_HUGE_PAGES: u32 = 42;
    const SIGNAL_MAX: u64 = 64;
    let settings = &mut system.process.settings;
    match option as u32 {
        SET_DEATH_SIGNAL if argument > SIGNAL_MAX => return Err(Errno::EINVAL),
        SET_DEATH_SIGNAL => settings.death_signal = argument as u32,
        GET_DEATH_SIGNAL => set_word32(argument, settings.death_signal)?,
        GET_DUMPABLE => return Ok(settings.dumpable.into()),
        SET_DUMPABLE => settings.dumpable = switch(argument)?,
        GET_KEEPS => return Ok(settings.keeps_capabilities.into()),
        SET_KEEPS => settings.keeps_capabilities = switch(argument)?,
        SET_NAME => {
            let name = name(argument)?;
            system.thread.set_name(&name);
        }
        GET_NAME => write(argument, &system.thread.name)?,
        GET_SECCOMP => {}
        IN_BOUNDING_SET if argument > CAPABILITY_LAST => return Err(Errno::EINVAL),
        IN_BOUNDING_SET => return Ok(1),
        SET_TIMER_SLACK => settings.set_timer_slack(argument),
        GET_TIMER_SLACK => return Ok(settings.timer_slack()),
        SET_SUBREAPER => settings.is_subreaper = argument != 0,
        GET_SUBREAPER => set_word32(argument, settings.is_subreaper.into())?,
        SET_NO_NEW_PRIVILEGES if [argument, second, third, fourth] == [1, 0, 0, 0] => settings.no_new_privileges = true,
        GET_NO_NEW_PRIVILEGES if [argument, second, third, fourth] == [0; 4] => return Ok(settings.no_new_privileges.into()),
        SET_NO_HUGE_PAGES if [second, third, fourth] == [0; 3] => settings.no_huge_pages = argument != 0,
        GET_NO_HUGE_PAGES if [argument, second, third, fourth] == [0; 4] => return Ok(settings.no_huge_pages.into()),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// A name for the process: what is too long is cut, and what follows is not looked at.
fn name(address: u64) -> Result<[u8; thread::NAME], Errno> {
    let mut name = [0; thread::NAME];
    for (at, room) in name[..thread::NAME - 1].iter_mut().enumerate() {
        let mut byte = [0];
        read(address.wrapping_add(at as u64), &mut byte)?;
        if byte == [0] {
            break;
        }
        [*room] = byte;
    }
    Ok(name)
}

/// How many words of 32 bits each set has, from the version at the start of a header. Who gives one that does not exist is told one that does.
fn words_of(header: u64) -> Result<usize, Errno> {
    const FIRST: u32 = 0x1998_0330;
    const SECOND: u32 = 0x2007_1026;
    const THIRD: u32 = 0x2008_0522;
    match word32(header)? {
        FIRST => Ok(1),
        SECOND | THIRD => Ok(2),
        _ => {
            set_word32(header, THIRD)?;
            Err(Errno::EINVAL)
        }
    }
}

/// Effective, permitted and inheritable capabilities.
fn capabilities(system: &System) -> [u64; 3] {
    let by_user = if system.files.own.who.is_root() { CAPABILITIES } else { 0 };
    system.process.settings.capabilities.unwrap_or([by_user, by_user, 0])
}

/// `capget(header, data)`.
pub fn capget(system: &mut System, [header, data, ..]: [u64; 6]) -> Result<u64, Errno> {
    let count = match words_of(header) {
        // Only the version was asked for.
        Err(Errno::EINVAL) if data == 0 => return Ok(0),
        other => other?,
    };
    let number = word32(header.wrapping_add(4))?;
    if number.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    if number != 0 && system.process_of(number).is_none() {
        return Err(Errno::ESRCH);
    }
    if data == 0 {
        return Ok(0);
    }
    for half in 0..count {
        for (at, set) in capabilities(system).into_iter().enumerate() {
            set_word32(data.wrapping_add(((half * 3 + at) * 4) as u64), (set >> (half * 32)) as u32)?;
        }
    }
    Ok(0)
}

/// `capset(header, data)`: what is given up stays given up, though nothing asks for it.
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
    let [effective, permitted, inheritable] = sets.map(|set| set & CAPABILITIES);
    let [_, permitted_before, inheritable_before] = capabilities(system);
    if permitted & !permitted_before != 0 || effective & !permitted != 0 || inheritable & !(inheritable_before | permitted_before) != 0 {
        return Err(Errno::EPERM);
    }
    system.process.settings.capabilities = Some([effective, permitted, inheritable]);
    Ok(0)
}
