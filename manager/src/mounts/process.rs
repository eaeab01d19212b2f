// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of a file server: opens its directory, confines itself, and serves.

use super::paths;
use pando_confine::{SyscallGroups, install_seccomp_filter};
use pando_fileserver::FileServer;
use pando_machine::fork;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// How long a server may take until it serves.
const START_MAX: Duration = Duration::from_secs(10);
/// Bytes of each buffer of its socket: a message is at most a little larger than 128 KiB.
const BUFFER: usize = 1 << 20;
/// Most bytes of an error message.
const ERROR_MAX: usize = 1024;

/// Starts the process. Returns the socket for its messages.
///
/// # Errors
/// It cannot open the directory or confine itself, or the host has no process for it.
pub(super) fn start_server(root: &Path, read_only: bool, growth_max: u64, _others: &[OwnedFd]) -> io::Result<OwnedFd> {
    let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for socket in [&own, &other] {
        // The host may allow less.
        let _ = set_socket_send_buffer_size(socket, BUFFER);
        let _ = set_socket_recv_buffer_size(socket, BUFFER);
    }
    set_socket_timeout(&own, Timeout::Recv, Some(START_MAX))?;
    let parent = getpid();
    fork(&[other.as_fd()], || run(root, read_only, growth_max, &other, parent))?;
    drop(other);
    let mut answer = [0; ERROR_MAX];
    let (received, _) = retry_on_intr(|| recv(&own, &mut answer[..], RecvFlags::empty()))?;
    set_socket_timeout(&own, Timeout::Recv, None)?;
    match &answer[..received] {
        b"ready" => Ok(own),
        [] => Err(io::Error::other("its file server has ended")),
        error => Err(io::Error::other(String::from_utf8_lossy(error).into_owned())),
    }
}

/// Runs the server. Returns the exit status of its process.
fn run(root: &Path, read_only: bool, growth_max: u64, socket: &OwnedFd, parent: Pid) -> u8 {
    let _ = rustix::thread::set_name(c"file server");
    let mut server = match open(root, read_only, growth_max, parent) {
        Ok(server) => server,
        Err(error) => {
            let text = error.to_string();
            let _ = send(socket, &text.as_bytes()[..text.len().min(ERROR_MAX)], SendFlags::NOSIGNAL);
            return 1;
        }
    };
    let is_served = send(socket, b"ready", SendFlags::NOSIGNAL).is_ok() && server.serve(socket).is_ok();
    u8::from(!is_served)
}

fn open(root: &Path, read_only: bool, growth_max: u64, parent: Pid) -> io::Result<FileServer> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::Error::other("the process that started it has ended"));
    }
    // Each inode that the cell knows is an open descriptor.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let server = FileServer::open(root, read_only, growth_max)?;
    let paths = paths(root, read_only);
    let confined = pando_confine::drop_privileges(&paths).and_then(|()| pando_confine::limit_paths(&paths));
    confined
        .and_then(|_| install_seccomp_filter(&SyscallGroups { serving_files: true, ..SyscallGroups::default() }))
        .map_err(io::Error::other)?;
    Ok(server)
}
