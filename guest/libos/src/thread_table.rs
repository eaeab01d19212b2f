// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of threads that a debugger in the parent cell reads.

use alloc::boxed::Box;
use alloc::vec;

use pando_abi::thread_table::{HEAD_WORDS, MAX_THREADS, RECORD_WORDS};

/// The [table](pando_abi::thread_table).
#[derive(Debug)]
pub struct ThreadTable(pub(crate) Box<[u64]>);

impl Default for ThreadTable {
    fn default() -> ThreadTable {
        ThreadTable(vec![0; HEAD_WORDS + MAX_THREADS * RECORD_WORDS].into_boxed_slice())
    }
}

impl ThreadTable {
    /// Its address.
    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}
