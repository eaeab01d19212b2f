// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and checks a program while the calling one still runs.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::LoadError;
use super::script::{self, HEAD};
use super::source::ProgramSource;
use crate::credentials::EXECUTE;
use crate::elf::Executable;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::namei::{LastComponent, LookupFlags};
use crate::files::{ExecutableFile, Files, OpenName};
use crate::string_list::StringList;
use crate::uapi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};

/// Upper limit on nested scripts, as on Linux.
const SCRIPTS_MAX: usize = 5;
/// Bytes that arguments and environment may always take, and may take at most, whatever the stack's limit.
const SPACE_MIN: u64 = 128 << 10;
const SPACE_MAX: u64 = 6 << 20;

/// The parameters of `execveat`.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The directory from which the path is resolved: a descriptor, or [`AT_FDCWD`].
    pub directory: u64,
    /// The program's path.
    pub path: Vec<u8>,
    /// Flags of the `at` calls.
    pub flags: u64,
    /// The arguments, the first being the program's name.
    pub arguments: StringList,
    /// The environment.
    pub environment: StringList,
    /// Limit of the stack in bytes.
    pub stack_limit: u64,
}

/// A file that was found.
struct FoundFile {
    program: ExecutableFile,
    source: ProgramSource,
}

/// A file that can be loaded.
#[derive(Debug)]
pub(super) struct LoadableFile {
    pub executable: Executable,
    pub source: ProgramSource,
    pub program: ExecutableFile,
}

/// A program that can be loaded.
#[derive(Debug)]
pub struct PreparedProgram {
    /// The requested path, which may be a script's.
    pub path: Vec<u8>,
    /// Its arguments.
    pub arguments: StringList,
    /// Its environment.
    pub environment: StringList,
    /// Limit of its stack in bytes.
    pub stack_limit: u64,
    pub(super) main: LoadableFile,
    pub(super) linker: Option<LoadableFile>,
}

/// Finds a program and checks it. Nothing changes.
///
/// # Errors
/// It does not exist, may not be executed or is no program; the same of its interpreters; or its arguments are too long.
pub fn prepare(files: &Files, request: ExecRequest) -> Result<PreparedProgram, LoadError> {
    let ExecRequest { directory, path, flags, mut arguments, environment, stack_limit } = request;
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let is_lost = by_lost_descriptor(files, directory, &path);
    let mut found = find(files, directory, &path, flags)?;
    let path = program_path(directory, path);
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
        found = find(files, AT_FDCWD, interpreter.path, 0).map_err(|error| named(error.into()))?;
        script = interpreter.path.to_vec();
    }
    check_size(&path, &arguments, &environment, stack_limit)?;
    let main = parse(files, found)?;
    let linker = match &main.executable.interpreter {
        Some(path) => {
            let named = |reason| LoadError::Linker { path: path.clone(), reason: Box::new(reason) };
            let found = find(files, AT_FDCWD, path, 0).map_err(|error| named(error.into()))?;
            Some(parse(files, found).map_err(named)?)
        }
        None => None,
    };
    Ok(PreparedProgram { path, arguments, environment, stack_limit, main, linker })
}

/// Finds a program by its name in the directories of a search path, as a shell does.
///
/// # Errors
/// `ENOENT`: no directory has it. `EACCES`: files of this name may not be executed.
pub fn search(files: &Files, name: &[u8], search_path: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut failure = Errno::ENOENT;
    for directory in search_path.split(|byte| *byte == b':') {
        // An empty entry is the working directory.
        let path = if directory.is_empty() { [&b"./"[..], name].concat() } else { [directory, b"/", name].concat() };
        match find(files, AT_FDCWD, &path, 0) {
            Ok(_) => return Ok(path),
            Err(Errno::EACCES) => failure = Errno::EACCES,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Whether a path starts at a descriptor that `exec` closes: an interpreter would not find a script there.
fn by_lost_descriptor(files: &Files, directory: u64, path: &[u8]) -> bool {
    let is_by_descriptor = !path.starts_with(b"/") && directory as i32 != AT_FDCWD as i32;
    is_by_descriptor && files.closes_on_exec(directory)
}

/// The path that the program receives; it contains the descriptor (`/dev/fd/...`) if the path started there.
fn program_path(directory: u64, path: Vec<u8>) -> Vec<u8> {
    if path.starts_with(b"/") || directory as i32 == AT_FDCWD as i32 {
        return path;
    }
    let mut program_path = format!("/dev/fd/{}", directory as u32).into_bytes();
    if !path.is_empty() {
        program_path.push(b'/');
        program_path.extend_from_slice(&path);
    }
    program_path
}

/// Finds an executable file.
fn find(files: &Files, directory: u64, path: &[u8], flags: u64) -> Result<FoundFile, Errno> {
    let (inode, name) = if path.is_empty() {
        (files.find_at(directory, path, flags)?, None)
    } else {
        let found = files.walk(directory, path, LookupFlags::of(flags))?;
        let inode = found.inode.ok_or(Errno::ENOENT)?;
        let name = match &found.last {
            LastComponent::Name(name) => Some(OpenName { directory: found.directory, name: name.bytes().into() }),
            _ => None,
        };
        (inode, name)
    };
    let inode = files.tree.real_inode(inode);
    let status = files.status(inode)?;
    match status.kind() {
        Some(FileType::Symlink) => return Err(Errno::ELOOP),
        Some(FileType::Regular) if files.current.credentials.may(status.owner(), false, EXECUTE) => {}
        _ => return Err(Errno::EACCES),
    }
    files.check_not_written(inode)?;
    files.check_content(inode, 0, u64::MAX)?;
    Ok(FoundFile { program: ExecutableFile { inode, name }, source: ProgramSource::new(&files.tree, inode)? })
}

/// Reads the headers of a program. Unreadable bytes count as missing, which the parser detects.
fn parse(files: &Files, FoundFile { program, source }: FoundFile) -> Result<LoadableFile, LoadError> {
    let size = source.size(&files.tree)?;
    let executable = Executable::parse(size, |offset, buffer| source.read(&files.tree, offset, buffer))?;
    Ok(LoadableFile { executable, source, program })
}

/// Checks that arguments and environment leave enough of the stack.
fn check_size(path: &[u8], arguments: &StringList, environment: &StringList, stack_limit: u64) -> Result<(), Errno> {
    let limit = (stack_limit / 4).clamp(SPACE_MIN, SPACE_MAX);
    let pointers = (arguments.count() + environment.count()) * size_of::<u64>();
    let strings = path.len() + 1 + arguments.bytes().len() + environment.bytes().len();
    if (pointers + strings) as u64 > limit { Err(Errno::E2BIG) } else { Ok(()) }
}
