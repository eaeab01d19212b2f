// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads a program into an empty address space and prepares its stack.

use alloc::vec::Vec;

use pando_abi::{Permissions, Registers};
use pando_rt::cpuid;
use pando_rt::memory::PageRange;
use pando_rt::user::{self, UserRange};
use thiserror::Error;

use crate::credentials::Credentials;
use crate::elf::{ElfError, Executable};
use crate::errno::Errno;
use crate::files::transfer::copy_out;
use crate::files::tree::volume::ImageFile;
use crate::memory::regions::Backing;
use crate::memory::{AddressSpace, STACK_LIMIT};
use crate::process::Process;
use crate::stack::Start;

/// Arguments and environment may take a quarter of the stack, as on Linux.
const ARGUMENTS_LIMIT: u64 = STACK_LIMIT / 4;
/// Features that `AT_HWCAP2` announces: the FS and GS base instructions.
const HWCAP2_FSGSBASE: u64 = 2;
/// Clock ticks per second as `times` counts them.
const TICKS: u64 = 100;

/// Why a program cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    /// Its file is no program.
    #[error("{0}")]
    Elf(#[from] ElfError),
    /// Its arguments do not fit.
    #[error("argument list too long")]
    TooManyArguments,
    /// Memory or its file failed it.
    #[error("{}", .0.text())]
    System(Errno),
}

impl From<Errno> for LoadError {
    fn from(error: Errno) -> LoadError {
        LoadError::System(error)
    }
}

impl From<user::Fault> for LoadError {
    fn from(fault: user::Fault) -> LoadError {
        LoadError::System(fault.into())
    }
}

/// What the program is given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The program's path.
    pub path: &'a [u8],
    /// Its arguments, the first being its name.
    pub arguments: &'a [&'a [u8]],
    /// Its environment.
    pub environment: &'a [&'a [u8]],
    /// Random bytes for its own use.
    pub random: [u8; 16],
}

/// Loads the program. Returns the registers it starts with.
///
/// # Errors
/// Its file is no static program, or memory does not suffice.
pub fn load(process: &mut Process, file: &ImageFile, given: &Given<'_>) -> Result<Registers, LoadError> {
    // What cannot be read is missing, which the parser sees.
    let executable = Executable::parse(file.size(), |offset, buffer| file.read(offset, buffer).unwrap_or_default())?;
    process.auxiliary = auxiliary(&executable, &process.files.who);
    let space = &mut process.memory;
    map_segments(space, file, &executable)?;
    let top = space.prepare(executable.end(), executable.stack_permissions)?;
    let start = Start {
        arguments: given.arguments,
        environment: given.environment,
        path: given.path,
        random: given.random,
        auxiliary: &process.auxiliary,
    };
    let bytes = start.bytes(top, ARGUMENTS_LIMIT).ok_or(LoadError::TooManyArguments)?;
    let pointer = top - bytes.len() as u64;
    space.grow_stack(pointer);
    user::write(pointer, &bytes)?;
    Ok(Registers { rip: executable.entry, rsp: pointer, ..Registers::default() })
}

/// Maps runs of adjacent segments at once, copies the file's bytes, then sets permissions.
fn map_segments(space: &mut AddressSpace, file: &ImageFile, executable: &Executable) -> Result<(), LoadError> {
    let mut runs: Vec<PageRange> = Vec::new();
    for segment in &executable.segments {
        let joined = runs.last().filter(|run| run.end() == segment.pages.start());
        match joined.and_then(|run| PageRange::new(run.start(), segment.pages.end())) {
            Some(longer) => {
                runs.pop();
                runs.push(longer);
            }
            None => runs.push(segment.pages),
        }
    }
    for run in runs {
        space.map(run, Permissions::READ_WRITE, Backing::Copy)?;
    }
    for segment in &executable.segments {
        copy_whole(file, segment.offset, UserRange::new(segment.address, segment.file_bytes)?)?;
        // As Linux maps whole pages, the bytes before a segment's start come from the file too.
        let before = segment.address - segment.pages.start();
        copy_whole(file, segment.offset - before, UserRange::new(segment.pages.start(), before)?)?;
        space.protect(segment.pages, segment.permissions)?;
    }
    Ok(())
}

/// Copies from the file, up to its end.
fn copy_whole(file: &ImageFile, offset: u64, to: UserRange) -> Result<(), Errno> {
    let bytes = to.length().min(file.size().saturating_sub(offset));
    if copy_out(file, offset, to)? < bytes { Err(Errno::EIO) } else { Ok(()) }
}

/// The numbers of the auxiliary vector.
fn auxiliary(executable: &Executable, who: &Credentials) -> Vec<(u64, u64)> {
    const AT_PHDR: u64 = 3;
    const AT_PHENT: u64 = 4;
    const AT_PHNUM: u64 = 5;
    const AT_PAGESZ: u64 = 6;
    const AT_BASE: u64 = 7;
    const AT_FLAGS: u64 = 8;
    const AT_ENTRY: u64 = 9;
    const AT_UID: u64 = 11;
    const AT_EUID: u64 = 12;
    const AT_GID: u64 = 13;
    const AT_EGID: u64 = 14;
    const AT_HWCAP: u64 = 16;
    const AT_CLKTCK: u64 = 17;
    const AT_SECURE: u64 = 23;
    const AT_HWCAP2: u64 = 26;
    const AT_MINSIGSTKSZ: u64 = 51;
    /// What a signal frame holds besides vector state, generously.
    const SIGNAL_FRAME: u64 = 1024;

    let [_, _, _, features] = cpuid::answer(1, 0);
    let [_, vector_state, ..] = cpuid::answer(0xd, 0);
    alloc::vec![
        (AT_MINSIGSTKSZ, SIGNAL_FRAME + u64::from(vector_state)),
        (AT_HWCAP, features.into()),
        (AT_PAGESZ, pando_abi::PAGE_SIZE),
        (AT_CLKTCK, TICKS),
        (AT_PHDR, executable.headers),
        (AT_PHENT, 56),
        (AT_PHNUM, executable.header_count),
        (AT_BASE, 0),
        (AT_FLAGS, 0),
        (AT_ENTRY, executable.entry),
        (AT_UID, who.user.real.into()),
        (AT_EUID, who.user.effective.into()),
        (AT_GID, who.group.real.into()),
        (AT_EGID, who.group.effective.into()),
        (AT_SECURE, 0),
        (AT_HWCAP2, HWCAP2_FSGSBASE),
    ]
}
