// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that were filled with pages of the program's file.

use pando_machine::{ExecutableBytes, FrameId};

/// A frame that was filled with a page of the program's file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePage {
    /// The frame. It may have been changed or freed since.
    pub(super) frame: FrameId,
    /// The bytes that contain the page.
    pub(super) bytes: &'static ExecutableBytes,
    /// The page's number.
    pub(super) page: u32,
}
