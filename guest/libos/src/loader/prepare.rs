// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding a program and checking it, while the one that asks still runs.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::LoadError;
use super::script::{self, HEAD};
use super::source::Source;
use super::words::Words;
use crate::credentials::EXECUTE;
use crate::elf::Executable;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::names::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, CURRENT, Last, Way};
use crate::files::{Files, OpenName, Program};

/// Scripts that may lead to each other, as on Linux.
const SCRIPTS_MAX: usize = 5;
/// What arguments and environment may always take, and may take at most, whatever the stack's limit.
const SPACE_LEAST: u64 = 128 << 10;
const SPACE_MOST: u64 = 6 << 20;

/// What shall run, as `execveat` says it.
#[derive(Debug)]
pub struct Request {
    /// From where the path goes: a descriptor, or [`CURRENT`].
    pub directory: u64,
    /// The program's path.
    pub path: Vec<u8>,
    /// Flags of the `at` calls.
    pub flags: u64,
    /// The arguments, the first being the program's name.
    pub arguments: Words,
    /// The environment.
    pub environment: Words,
    /// Bytes that the stack may grow to.
    pub stack_limit: u64,
}

/// A file that was found.
struct Found {
    program: Program,
    source: Source,
}

/// A file that can be loaded.
#[derive(Debug)]
pub(super) struct Part {
    pub executable: Executable,
    pub source: Source,
    pub program: Program,
}

/// A program that can be loaded.
#[derive(Debug)]
pub struct Prepared {
    /// The path that was asked for, be it a script's.
    pub path: Vec<u8>,
    /// The arguments that it gets.
    pub arguments: Words,
    /// Its environment.
    pub environment: Words,
    /// Bytes that its stack may grow to.
    pub stack_limit: u64,
    pub(super) main: Part,
    pub(super) linker: Option<Part>,
}

/// Finds a program and checks it. Nothing changes.
///
/// # Errors
/// It is not there, may not be executed or is no program; the same of its interpreters; or its arguments are too long.
pub fn prepare(files: &Files, request: Request) -> Result<Prepared, LoadError> {
    let Request { directory, path, flags, mut arguments, environment, stack_limit } = request;
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let is_lost = by_lost_descriptor(files, directory, &path);
    let mut found = find(files, directory, &path, flags)?;
    let path = shown(directory, path);
    if arguments.count() == 0 {
        arguments.push(b"")?;
    }
    check_size(&path, &arguments, &environment, stack_limit)?;
    let mut script = path.clone();
    for depth in 0.. {
        let mut head = [0; HEAD];
        let filled = found.source.read(&files.tree, 0, &mut head);
        let head = &head[..filled];
        if !script::is_script(head) {
            break;
        }
        if depth == SCRIPTS_MAX {
            return Err(Errno::ELOOP.into());
        }
        let interpreter = script::parse(head).ok_or(LoadError::NoInterpreter)?;
        if is_lost {
            return Err(Errno::ENOENT.into());
        }
        let named = |reason: LoadError| LoadError::Interpreter { path: interpreter.path.to_vec(), reason: Box::new(reason) };
        let words = [interpreter.path].into_iter().chain(interpreter.argument).chain([&script[..]]);
        arguments.replace_first(words)?;
        found = find(files, CURRENT, interpreter.path, 0).map_err(|error| named(error.into()))?;
        script = interpreter.path.to_vec();
    }
    check_size(&path, &arguments, &environment, stack_limit)?;
    let main = understand(files, found)?;
    let linker = match &main.executable.interpreter {
        Some(path) => {
            let named = |reason| LoadError::Linker { path: path.clone(), reason: Box::new(reason) };
            let found = find(files, CURRENT, path, 0).map_err(|error| named(error.into()))?;
            Some(understand(files, found).map_err(named)?)
        }
        None => None,
    };
    Ok(Prepared { path, arguments, environment, stack_limit, main, linker })
}

/// Whether a path goes from a descriptor that the program will not have: an interpreter would not find a script there.
fn by_lost_descriptor(files: &Files, directory: u64, path: &[u8]) -> bool {
    let is_by_descriptor = !path.starts_with(b"/") && directory as i32 != AT_FDCWD;
    is_by_descriptor && files.closes_on_exec(directory)
}

/// The path that the program is told: one that also leads from a descriptor.
fn shown(directory: u64, path: Vec<u8>) -> Vec<u8> {
    if path.starts_with(b"/") || directory as i32 == AT_FDCWD {
        return path;
    }
    let mut shown = format!("/dev/fd/{}", directory as u32).into_bytes();
    if !path.is_empty() {
        shown.push(b'/');
        shown.extend_from_slice(&path);
    }
    shown
}

/// Finds a file that may be executed.
fn find(files: &Files, directory: u64, path: &[u8], flags: u64) -> Result<Found, Errno> {
    let (place, name) = if path.is_empty() {
        (files.find_at(directory, path, flags)?, None)
    } else {
        let found = files.walk(directory, path, Way::of(flags))?;
        let place = found.place.ok_or(Errno::ENOENT)?;
        let name = match &found.last {
            Last::Name(name) => Some(OpenName { directory: found.directory, name: name.bytes().into() }),
            _ => None,
        };
        (place, name)
    };
    let place = files.tree.settle(place);
    let status = files.status(place)?;
    match status.kind() {
        Some(FileType::Symlink) => return Err(Errno::ELOOP),
        Some(FileType::Regular) if files.own.who.may(status.owner(), false, EXECUTE) => {}
        _ => return Err(Errno::EACCES),
    }
    files.check_not_written(place)?;
    Ok(Found { program: Program { place, name }, source: Source::new(&files.tree, place)? })
}

/// Reads the headers of a program. What cannot be read is missing, which the parser sees.
fn understand(files: &Files, Found { program, source }: Found) -> Result<Part, LoadError> {
    let size = source.size(&files.tree)?;
    let executable = Executable::parse(size, |offset, buffer| source.read(&files.tree, offset, buffer))?;
    Ok(Part { executable, source, program })
}

/// Checks that what a program is given leaves it enough of its stack.
fn check_size(path: &[u8], arguments: &Words, environment: &Words, stack_limit: u64) -> Result<(), Errno> {
    let limit = (stack_limit / 4).clamp(SPACE_LEAST, SPACE_MOST);
    let pointers = (arguments.count() + environment.count()) * size_of::<u64>();
    let strings = path.len() + 1 + arguments.bytes().len() + environment.bytes().len();
    if (pointers + strings) as u64 > limit { Err(Errno::E2BIG) } else { Ok(()) }
}
