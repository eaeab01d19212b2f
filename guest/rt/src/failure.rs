// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the libOS itself: they are reported on the standard error stream, then the cell ends with status 125.
//! Lack of memory counts as the cell's failure, not the libOS's. This module allocates nothing.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use pando_abi::SavedContext;

use crate::console::{Stream, send_bytes};
use crate::heap;
use crate::hypercall::exit;

/// Exit status of a failure that is not the program's.
const PANDO_FAILURE_STATUS: u64 = 125;

/// A message of bounded length; the rest is cut off.
struct Message {
    bytes: [u8; 512],
    length: usize,
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

fn report(text: fmt::Arguments<'_>) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    // A failure during a report cannot be reported.
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let mut message = Message { bytes: [0; 512], length: 0 };
        // `Message` takes everything.
        let _ = writeln!(message, "{text}");
        // Without a reader, the message is lost.
        let _ = send_bytes(Stream::Stderr, &message.bytes[..message.length]);
    }
}

/// Ends the cell because of an exception in the libOS.
pub(crate) fn exception(context: &SavedContext) -> ! {
    let SavedContext { cause, error, address, rip, .. } = *context;
    report(format_args!("pando: the libOS failed: exception {cause} (error {error:#x}) at {rip:#x}, address {address:#x}"));
    exit(PANDO_FAILURE_STATUS, 0, 0, 0)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // An allocation without memory panics, and that is no failure of the libOS.
    heap::end_if_exhausted();
    report(format_args!("pando: the libOS failed: {info}"));
    exit(PANDO_FAILURE_STATUS, 0, 0, 0)
}
