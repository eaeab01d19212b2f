// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debugging: the threads for a debugger in the parent cell, and reports to it.

use pando_abi::SavedContext;
use pando_abi::thread_table::{HEAD_WORDS, RECORD_WORDS, ThreadRecord, VERSION};
use pando_abi::watch::report;
use pando_rt::{debug, vector};

use super::System;
use crate::signals::Signal;
use crate::thread::Thread;

impl System {
    /// Lists the threads anew, if the cell is debugged.
    pub fn list_threads(&mut self) {
        let Some(mut table) = self.debugged.take() else { return };
        let (head, records) = table.0.split_at_mut(HEAD_WORDS);
        let mut count = 0;
        for (thread, words) in self.all_threads().zip(records.chunks_exact_mut(RECORD_WORDS)) {
            let space = self.process_of(thread.process).map_or(0, |process| process.space.0);
            words.copy_from_slice(&record(thread, space).to_words());
            count += 1;
        }
        head.copy_from_slice(&[VERSION, self.thread.number.into(), count]);
        self.debugged = Some(table);
    }

    /// Reports that the running process starts a program with this context.
    pub fn report_start(&mut self, context: &mut SavedContext) {
        if let Some(words) = self.start_report() {
            debug::report(words, context);
        }
    }

    /// The report of the start of a program in the running process, if the cell is debugged.
    pub fn start_report(&mut self) -> Option<[u64; 4]> {
        self.list_threads();
        let table = self.debugged.as_ref()?;
        Some([report::START, self.process.number.into(), table.address(), 0])
    }

    /// Reports a signal that is about to take effect on the running thread. Returns whether it does.
    pub fn report_signal(&mut self, signal: Signal, context: &mut SavedContext) -> bool {
        self.list_threads();
        let words = [report::SIGNAL, self.thread.number.into(), signal.0.into(), 0];
        self.debugged.is_none() || debug::report(words, context) == 0
    }
}

/// The record of a thread.
fn record(thread: &Thread, space: u32) -> ThreadRecord {
    let saved = &thread.saved;
    let (low, high) = thread.name.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    ThreadRecord {
        number: thread.number.into(),
        process: thread.process.into(),
        space: space.into(),
        context: core::ptr::from_ref(&saved.context).expose_provenance() as u64,
        bases: saved.bases.as_ptr().expose_provenance() as u64,
        vectors: saved.vectors.as_ref().map_or(0, vector::VectorState::address),
        vector_bytes: vector::size() as u64,
        name: [word(low), word(high)],
    }
}
