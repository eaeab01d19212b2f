// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches of served files (inotify), for changes that others than the client make.

use crate::message;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Most watches of a server.
const WATCHES_MAX: usize = 4096;
/// Bytes of events that are read at once.
const BUFFER: usize = 4096;

/// The watched inodes.
pub(crate) struct Watches {
    instance: OwnedFd,
    /// The inode of each watch, by the number of the watch.
    inodes: HashMap<i32, u64>,
}

impl AsFd for Watches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.instance.as_fd()
    }
}

impl Watches {
    pub(crate) fn new() -> io::Result<Watches> {
        Ok(Watches { instance: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?, inodes: HashMap::new() })
    }

    /// Whether anything is watched.
    pub(crate) fn is_any(&self) -> bool {
        !self.inodes.is_empty()
    }

    /// Watches an inode that is open. No name is resolved: `/proc/self/fd` leads to the inode itself.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many. Those of `inotify_add_watch`.
    pub(crate) fn add(&mut self, file: &OwnedFd, inode: u64, mask: u32) -> Result<(), Errno> {
        if self.inodes.len() >= WATCHES_MAX {
            return Err(Errno::NOSPC);
        }
        let flags = WatchFlags::from_bits_retain(mask).difference(WatchFlags::DONT_FOLLOW) | WatchFlags::MASK_ADD;
        let number = inotify::add_watch(&self.instance, format!("/proc/self/fd/{}", file.as_raw_fd()), flags)?;
        self.inodes.insert(number, inode);
        Ok(())
    }

    /// Passes the pending events to `send` as messages. With `own`, drops those of these names and those
    /// without a name; all, if there are no names.
    pub(crate) fn report(&mut self, own: Option<&[Vec<u8>]>, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.inodes.is_empty() {
            return Ok(());
        }
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.instance, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // It belongs to no watch, and to no inode.
                send(&message::change(0, event.events().bits(), 0, &[]))?;
                continue;
            }
            let name = event.file_name().map(std::ffi::CStr::to_bytes).unwrap_or_default();
            let is_own = own.is_some_and(|own| own.is_empty() || name.is_empty() || own.iter().any(|other| other == name));
            let Some(inode) = self.inodes.get(&event.wd()).copied() else { continue };
            if event.events().contains(ReadFlags::IGNORED) {
                self.inodes.remove(&event.wd());
            } else if !is_own {
                send(&message::change(inode, event.events().bits(), event.cookie(), name))?;
            }
        }
    }
}
