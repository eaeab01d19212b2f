// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mailbox of a debugger that runs on a thread of another program: bytes of gdb and events of the cell come from other threads.

use std::fmt;
use std::io::{Result, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of gdb that are kept. gdb sends a packet at a time, and waits for the answer.
const BYTES_MAX: usize = 256 << 10;

/// The contents of a mailbox.
struct Contents {
    /// Bytes of gdb.
    bytes: Vec<u8>,
    /// More may come.
    is_open: bool,
    /// The state of the cell may have changed.
    has_event: bool,
}

/// Bytes of gdb, events of the cell, and the writer of bytes for gdb.
pub struct Mailbox {
    contents: Mutex<Contents>,
    changed: Condvar,
    replies: Mutex<Box<dyn Write + Send>>,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    /// An empty mailbox. `replies` may wait for a slow reader.
    #[must_use]
    pub fn new(replies: Box<dyn Write + Send>) -> Mailbox {
        let contents = Contents { bytes: Vec::new(), is_open: true, has_event: false };
        Mailbox { contents: Mutex::new(contents), changed: Condvar::new(), replies: Mutex::new(replies) }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes of gdb. Returns whether there was room; otherwise gdb is as good as gone.
    pub fn add(&self, bytes: &[u8]) -> bool {
        let mut contents = self.lock();
        if bytes.len() > BYTES_MAX - contents.bytes.len() {
            contents.is_open = false;
        } else {
            contents.bytes.extend(bytes);
        }
        self.changed.notify_all();
        contents.is_open
    }

    /// gdb has gone.
    pub fn close(&self) {
        self.lock().is_open = false;
        self.changed.notify_all();
    }

    /// Notes an event of the cell. It never waits.
    pub fn note_event(&self) {
        self.lock().has_event = true;
        self.changed.notify_all();
    }

    /// Forgets events of the cell.
    pub(super) fn forget_event(&self) {
        self.lock().has_event = false;
    }

    /// Waits for an event of the cell, or, if `with_bytes`, for bytes of gdb or its end, at most this long. Returns the bytes; `None`: gdb
    /// has gone.
    pub(super) fn wait(&self, most: Option<Duration>, with_event: bool, with_bytes: bool) -> Option<Vec<u8>> {
        let is_quiet = |contents: &mut Contents| {
            let has_bytes = with_bytes && (!contents.bytes.is_empty() || !contents.is_open);
            !(has_bytes || with_event && contents.has_event)
        };
        let mut contents = match most {
            Some(most) => self.changed.wait_timeout_while(self.lock(), most, is_quiet).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait_while(self.lock(), is_quiet).unwrap_or_else(PoisonError::into_inner),
        };
        if !with_bytes {
            return Some(Vec::new());
        }
        let bytes = std::mem::take(&mut contents.bytes);
        (!bytes.is_empty() || contents.is_open).then_some(bytes)
    }

    /// Drops the writer of bytes for gdb: there are no more.
    pub fn end_replies(&self) {
        *self.replies.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(std::io::sink());
    }

    /// Writes bytes for gdb.
    ///
    /// # Errors
    /// gdb has gone.
    pub(super) fn reply(&self, bytes: &[u8]) -> Result<()> {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.write_all(bytes)?;
        replies.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Mailbox};
    use std::time::Duration;

    #[test]
    fn bytes_and_events_end_a_wait_and_too_many_bytes_close_the_mailbox() {
        let mailbox = Mailbox::new(Box::new(std::io::sink()));
        assert_eq!(mailbox.wait(Some(Duration::ZERO), true, true), Some(Vec::new()));
        mailbox.note_event();
        assert_eq!(mailbox.wait(None, true, false), Some(Vec::new()));
        assert!(mailbox.add(b"ab") && mailbox.add(b"c"));
        assert_eq!(mailbox.wait(None, true, true), Some(b"abc".to_vec()));
        mailbox.forget_event();
        assert!(mailbox.add(&[0; BYTES_MAX]) && !mailbox.add(&[0]));
        assert_eq!(mailbox.wait(None, true, true).map(|bytes| bytes.len()), Some(BYTES_MAX));
        assert_eq!(mailbox.wait(None, true, true), None);
    }
}
