// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file server: serves one directory of the host to a cell.
//!
//! The protocol is FUSE (`linux/fuse.h`): each packet of a socket is one message. The crate `fuse-backend-rs` handles the messages, with
//! one open descriptor (`O_PATH`) for each inode that the client knows. So every name is resolved below an open directory, one component
//! at a time, and no link is followed. [`message`] checks each request first: the client is a cell, which is not trusted.
//!
//! The process that serves confines itself to the directory, so a request that gets past the checks still reaches nothing else.

mod changes;
mod growth;
pub mod message;
mod watches;

use fuse_backend_rs::api::filesystem::{Context, FileSystem};
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use fuse_backend_rs::transport::{FuseBuf, FuseDevWriter, Reader};
use growth::Growth;
use linux_raw_sys::general::O_NONBLOCK;
use message::{FUSE_FSYNC, FUSE_FSYNCDIR, FUSE_READ, FUSE_READDIRPLUS, FUSE_RELEASE, NO_HANDLE, RequestHeader};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use watches::Watches;

/// Most bytes of file content in one message.
pub const DATA_MAX: usize = 128 << 10;
/// Most bytes of a message.
pub const MESSAGE_MAX: usize = DATA_MAX + (4 << 10);

/// How often an inode is opened by its path, which may change meanwhile.
const OPEN_ATTEMPTS: usize = 8;

/// The kind of an answer. Operations that return data have failed if their answer has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    WithData,
    WithoutData,
}

/// A directory or file that is served.
pub struct FileServer {
    files: Arc<PassthroughFs>,
    server: Server<Arc<PassthroughFs>>,
    watches: Watches,
    growth: Growth,
    is_read_only: bool,
}

impl FileServer {
    /// Opens a directory or file of the host. With `is_read_only`, requests that change something fail with `EROFS`. The files may grow by
    /// `growth_max` bytes; each name counts as 4 KiB.
    ///
    /// # Errors
    /// It does not exist, or the process may open no more files.
    pub fn open(root: &Path, is_read_only: bool, growth_max: u64) -> io::Result<FileServer> {
        let root_dir = root.to_str().ok_or_else(|| io::Error::other("its path is not UTF-8"))?.to_owned();
        let config = Config {
            root_dir,
            attr_timeout: Duration::ZERO,
            entry_timeout: Duration::ZERO,
            cache_policy: CachePolicy::Auto,
            xattr: true,
            allow_direct_io: false,
            ..Config::default()
        };
        let files = Arc::new(PassthroughFs::new(config)?);
        files.import()?;
        let server = Server::new(Arc::clone(&files));
        Ok(FileServer { files, server, watches: Watches::new()?, growth: Growth::new(growth_max), is_read_only })
    }

    /// Serves requests until the client closes its end of the socket, which preserves the bounds of messages.
    ///
    /// # Errors
    /// The socket fails.
    pub fn serve(&mut self, socket: &impl AsFd) -> io::Result<()> {
        let mut request = vec![0; MESSAGE_MAX];
        let mut reply = vec![0; MESSAGE_MAX];
        loop {
            if self.watches.is_any() {
                let mut waits = [PollFd::new(socket, PollFlags::IN), PollFd::new(&self.watches, PollFlags::IN)];
                retry_on_intr(|| poll(&mut waits, None))?;
                let [has_request, has_events] = waits.map(|wait| !wait.revents().is_empty());
                if has_events {
                    self.watches.report(None, |event| send_all(socket, event))?;
                }
                if !has_request {
                    continue;
                }
            }
            let length = match retry_on_intr(|| recv(socket, &mut request[..], RecvFlags::TRUNC)) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(()),
                // A message that is too long is truncated, and its header gives that away.
                Ok((received, _)) => received,
                Err(error) => return Err(error.into()),
            };
            self.handle(socket, &mut request[..length], &mut reply)?;
        }
    }

    /// Handles one message.
    fn handle(&mut self, socket: &impl AsFd, request: &mut [u8], reply: &mut [u8]) -> io::Result<()> {
        let Some(header) = RequestHeader::parse(request) else { return Ok(()) };
        // Not even root of the cell acts as another user of the host than the server's own.
        message::clear_credentials(request);
        if let Err(error) = message::check(&header, request, self.is_read_only) {
            return refuse(socket, &header, Some(error));
        }
        if header.opcode == message::PANDO_WATCH {
            let outcome = self.watch(&header, request);
            return refuse(socket, &header, outcome.err());
        }
        let is_change = message::is_change(header.opcode) || header.opcode == FUSE_RELEASE;
        if is_change {
            // Events of others that came first are reported; those that follow from this request are the client's own.
            self.watches.report(None, |event| send_all(socket, event))?;
        }
        let done = self.perform_charged(socket, &header, request, reply);
        if is_change {
            let names = message::names(&header, request);
            self.watches.report(Some(&names), |event| send_all(socket, event))?;
        }
        done
    }

    /// Lets the library answer a message that was checked.
    fn perform(&self, socket: &impl AsFd, header: &RequestHeader, request: &mut [u8], reply: &mut [u8]) -> io::Result<ReplyKind> {
        let context = Context::default();
        // A read or a synchronisation without a handle opens the file for itself.
        let is_directory = matches!(header.opcode, FUSE_READDIRPLUS | FUSE_FSYNCDIR);
        let uses_handle = is_directory || matches!(header.opcode, FUSE_READ | FUSE_FSYNC);
        let opened = if uses_handle && message::handle(request) == NO_HANDLE {
            let opened = match is_directory {
                true => self.files.opendir(&context, header.nodeid, 0).map(|(handle, _)| handle),
                false => self.files.open(&context, header.nodeid, O_NONBLOCK, 0).map(|(handle, ..)| handle),
            };
            match opened {
                Ok(Some(handle)) => {
                    message::set_handle(request, handle, if is_directory { 0 } else { O_NONBLOCK });
                    Some(handle)
                }
                Ok(None) => return refuse(socket, header, Some(Errno::IO)).map(|()| ReplyKind::WithoutData),
                Err(error) => return refuse(socket, header, Some(errno(&error))).map(|()| ReplyKind::WithoutData),
            }
        } else {
            None
        };
        let reader = Reader::<()>::from_fuse_buffer(FuseBuf::new(request)).map_err(|error| io::Error::other(error.to_string()))?;
        let writer = FuseDevWriter::new(socket.as_fd().as_raw_fd(), reply).map_err(|error| io::Error::other(error.to_string()))?;
        let handled = self.server.handle_message(reader, writer.into(), None, None);
        if let Some(handle) = opened {
            let _ = match is_directory {
                true => self.files.releasedir(&context, header.nodeid, 0, handle),
                false => self.files.release(&context, header.nodeid, 0, handle, false, false, None),
            };
        }
        match handled {
            Ok(length) if length > message::OUT_HEADER => Ok(ReplyKind::WithData),
            Ok(_) => Ok(ReplyKind::WithoutData),
            // A message that cannot be decoded. Some of them were answered already: a client ignores an answer that it does not expect.
            Err(_) if header.opcode != message::FUSE_FORGET => refuse(socket, header, Some(Errno::INVAL)).map(|()| ReplyKind::WithoutData),
            Err(_) => Ok(ReplyKind::WithoutData),
        }
    }

    /// Watches a directory for changes by others.
    fn watch(&mut self, header: &RequestHeader, request: &[u8]) -> Result<(), Errno> {
        let found = self.open_inode(header.nodeid)?;
        self.watches.add(&found, header.nodeid, message::watch_mask(request))
    }

    /// Opens an inode (`O_PATH`). The library tells only its path, whose names another client may replace: the file that is opened by it
    /// is checked.
    fn open_inode(&self, nodeid: u64) -> Result<OwnedFd, Errno> {
        let (inode, _) = self.files.getattr(&Context::default(), nodeid, None).map_err(|error| errno(&error))?;
        for _ in 0..OPEN_ATTEMPTS {
            let path = self.files.readlinkat_proc_file(nodeid).map_err(|error| errno(&error))?;
            let opened = match open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened?,
            };
            let stat = fstat(&opened)?;
            if (stat.st_dev, stat.st_ino) == (inode.st_dev, inode.st_ino) {
                return Ok(opened);
            }
        }
        Err(Errno::NOENT)
    }
}

/// Sends an answer without data: an error, or success.
fn refuse(socket: &impl AsFd, header: &RequestHeader, error: Option<Errno>) -> io::Result<()> {
    // Forgetting has no answer.
    if matches!(header.opcode, message::FUSE_FORGET | message::FUSE_BATCH_FORGET) {
        return Ok(());
    }
    send_all(socket, &message::answer(header.unique, error))
}

fn send_all(socket: &impl AsFd, message: &[u8]) -> io::Result<()> {
    retry_on_intr(|| send(socket, message, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The error number of a failed operation.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
