// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in nested cells, which see what their parent saw at its start.

use super::prepared::host_user;
use super::{ViewError, ViewSpec};
use crate::environment::HostEnvironment;
use pando_launch::Program;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A program in a cell that is cloned from the root of this one. Of the specification it uses variables, directory and user.
///
/// # Errors
/// There is no such program.
pub fn program_in_same_view(
    spec: &ViewSpec,
    program: &OsStr,
    environment: &HostEnvironment,
    arguments: &[OsString],
) -> Result<Program, ViewError> {
    let path = environment.find_program(program)?;
    let directory = spec.directory.as_deref().or(environment.directory.as_deref()).unwrap_or(Path::new("/"));
    let (user, account) = host_user(environment, spec.user.as_ref())?;
    Ok(Program {
        path: path.as_os_str().as_bytes().to_vec(),
        directory: directory.as_os_str().as_bytes().to_vec(),
        arguments: arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: environment.program_environment(account.variables(), &spec.variables),
        user: user.user,
        group: user.group,
        ..Program::default()
    })
}
