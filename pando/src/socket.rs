// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the service is found: a Unix socket that only its owner may open.

use crate::failure::Failure;
use crate::template;
use rustix::fs::Mode;
use rustix::process::umask;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket: in the user's directory for such things (XDG), or beside the templates where the system has none.
///
/// # Errors
/// Nobody says where.
pub(crate) fn place() -> Result<PathBuf, Failure> {
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    match run {
        Some(directory) => Ok(directory.join("pando/socket")),
        None => Ok(template::directory()?.with_file_name("run").join("socket")),
    }
}

/// Listens there. What a process left that was killed is replaced.
///
/// # Errors
/// Somebody listens there already, or the host refuses.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |source| Failure::Socket { path: path.into(), source };
    match UnixStream::connect(path) {
        Ok(_) => return Err(Failure::Serving(path.into())),
        // What is no socket refuses as well, and is somebody's file.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket(path) => std::fs::remove_file(path).map_err(failed)?,
        // There is nothing, or what binding says is clearer.
        Err(_) => {}
    }
    // From its first moment on nobody else may open it; no other thread makes files yet.
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
