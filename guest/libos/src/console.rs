// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard streams: what is read and written there waits for the operator's side, and makes way for signals.

use alloc::vec::Vec;

use pando_rt::console::{self, Stop, Stream};
use pando_rt::user::UserRange;

use crate::errno::Errno;
use crate::process::Process;

impl Process {
    /// Reads into the ranges, one after the other, what is there; waits for something if it may.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`; `ERESTART`: a signal came first.
    pub fn read_console(&mut self, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
        let mut done = 0;
        for range in ranges.iter().filter(|range| range.length() > 0) {
            // What waits is for the first bytes only.
            if (done > 0 || !waits) && !console::input_ready(0) {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            match self.receive(*range) {
                Ok(bytes) => done += bytes,
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            }
        }
        Ok(done)
    }

    fn receive(&mut self, range: UserRange) -> Result<u64, Errno> {
        loop {
            match console::receive_user(range) {
                Ok(bytes) => return Ok(bytes),
                Err(Stop::Event) => self.interruption()?,
                Err(Stop::Fault | Stop::Unread) => return Err(Errno::EFAULT),
            }
        }
    }

    /// Writes what the ranges hold.
    ///
    /// # Errors
    /// `EFAULT`, `EPIPE`; `ERESTART`: a signal came first.
    pub fn write_console(&mut self, stream: Stream, ranges: &[UserRange]) -> Result<u64, Errno> {
        let mut left: Vec<UserRange> = ranges.iter().copied().filter(|range| range.length() > 0).collect();
        let mut done = 0;
        while !left.is_empty() {
            let stopped = match console::send_user(stream, &left) {
                Ok(bytes) => {
                    done += bytes;
                    skip(&mut left, bytes);
                    Ok(())
                }
                Err(Stop::Event) => self.interruption(),
                Err(Stop::Fault) => Err(Errno::EFAULT),
                Err(Stop::Unread) => Err(self.broken_pipe()),
            };
            if let Err(error) = stopped {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
        }
        Ok(done)
    }
}

/// Takes so many bytes off the start.
fn skip(ranges: &mut Vec<UserRange>, mut bytes: u64) {
    ranges.retain_mut(|range| {
        let here = bytes.min(range.length());
        bytes -= here;
        *range = range.part(here, u64::MAX);
        range.length() > 0
    });
}
