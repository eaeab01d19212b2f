// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service's Unix socket, which only its owner may open.

use crate::environment;
use crate::failure::Failure;
use listenfd::ListenFd;
use pando_manager::template::TemplateStore;
use rustix::fs::Mode;
use rustix::process::umask;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The variable that names the socket of another service.
const SOCKET_VARIABLE: &str = "PANDO_SOCKET";

/// The variable that names the control address of a service.
const HOST: &str = "PANDO_HOST";
/// The variable with the token for it.
const TOKEN: &str = "PANDO_TOKEN";

/// The address of a service.
#[derive(Clone, Debug)]
pub(crate) enum ServiceAddress {
    /// Its socket.
    Socket(PathBuf),
    /// Its control address, for which a token is needed.
    Control {
        /// The host and the port.
        address: String,
        /// The token.
        token: String,
    },
}

/// The control address and the token that the environment names, if it does.
///
/// # Errors
/// The address is invalid, or the token is missing.
pub(crate) fn control() -> Result<Option<ServiceAddress>, Failure> {
    let Some(host) = std::env::var_os(HOST).filter(|host| !host.is_empty()) else { return Ok(None) };
    let host = host.to_string_lossy().into_owned();
    let has_port = |address: &str| address.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    // By a name, another user's server could be reached first: `localhost` is also an IPv6 address.
    let is_local_name = |address: &&str| address.to_ascii_lowercase().starts_with("localhost:");
    let Some(address) = host.strip_prefix("tcp://").filter(|address| has_port(address) && !is_local_name(address)) else {
        return Err(Failure::InvalidHost(host));
    };
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty()).ok_or_else(|| Failure::NoToken(address.into()))?;
    Ok(Some(ServiceAddress::Control { address: address.into(), token }))
}

/// The socket that the environment names, if it does.
///
/// # Errors
/// The path is relative: commands in other directories would reach other services.
pub(crate) fn named() -> Result<Option<PathBuf>, Failure> {
    let Some(path) = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) else { return Ok(None) };
    if path.is_absolute() { Ok(Some(path)) } else { Err(Failure::RelativeSocket(path.to_string_lossy().into())) }
}

/// The socket's path: the one that the environment names, or in the user's runtime directory (XDG), or beside the templates if the system
/// has none.
///
/// # Errors
/// None of the environment variables is set, or the path is relative.
pub(crate) fn default_path() -> Result<PathBuf, Failure> {
    if let Some(named) = named()? {
        return Ok(named);
    }
    let run = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    match run {
        Some(directory) => Ok(directory.join("pando/socket")),
        None => Ok(TemplateStore::of(&environment::caller())?.directory().with_file_name("run").join("socket")),
    }
}

/// Takes the listening socket that the service manager opened and passed on (systemd's socket activation), if there is one.
///
/// # Errors
/// The passed descriptor is no listening Unix socket with a path.
pub(crate) fn inherited() -> Result<Option<(UnixListener, PathBuf)>, Failure> {
    let Some(listener) = ListenFd::from_env().take_unix_listener(0).map_err(Failure::InheritedSocket)? else { return Ok(None) };
    let address = listener.local_addr().map_err(Failure::InheritedSocket)?;
    let path = address.as_pathname().ok_or_else(|| Failure::InheritedSocket(ErrorKind::InvalidInput.into()))?.to_path_buf();
    listener.set_nonblocking(true).map_err(Failure::InheritedSocket)?;
    Ok(Some((listener, path)))
}

/// Listens on the socket. The leftover socket of a killed process is replaced.
///
/// # Errors
/// Another process listens there, or the host refuses.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |source| Failure::Socket { path: path.into(), source };
    match UnixStream::connect(path) {
        Ok(_) => return Err(Failure::SocketInUse(path.into())),
        // A file that is no socket refuses connections, too, and must stay.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket(path) => std::fs::remove_file(path).map_err(failed)?,
        // Nothing exists there, or `bind` reports a clearer error.
        Err(_) => {}
    }
    // Set the umask first, so that other users can never open it. No other thread creates files yet.
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
