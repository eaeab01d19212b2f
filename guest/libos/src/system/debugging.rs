// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debugging: the threads for a debugger in the parent cell or on the host, and reports to it.

use alloc::vec::Vec;

use pando_abi::SavedContext;
use pando_abi::thread_table::{HEAD_WORDS, MAX_THREADS, ProcessHead, RECORD_WORDS, ThreadRecord, VERSION};
use pando_abi::watch::report;
use pando_rt::{debug, vector};

use super::System;
use crate::signals::Signal;
use crate::thread::{Thread, ThreadState};
use crate::user::PATH_MAX;

impl System {
    /// Lists the threads anew, if the cell is debugged.
    pub fn list_threads(&mut self) {
        let Some(mut table) = self.thread_table.take() else { return };
        let (head, records) = table.0.split_at_mut(HEAD_WORDS);
        let mut count = 0;
        // The running thread has its place also if there are more than the table can have.
        let running = Some(&*self.thread).filter(|thread| !matches!(thread.state, ThreadState::Ended));
        let others = self.others.threads.values().map(|thread| &**thread);
        for (thread, words) in running.into_iter().chain(others).zip(records.chunks_exact_mut(RECORD_WORDS)) {
            let space = self.process_of(thread.process).map_or(0, |process| process.space.0);
            words.copy_from_slice(&record(thread, space).to_words());
            count += 1;
        }
        head.copy_from_slice(&[VERSION, self.thread.number.into(), count]);
        self.thread_table = Some(table);
    }

    /// Reports that the running process starts a program with this context.
    pub fn report_start(&mut self, context: &mut SavedContext) {
        if let Some(words) = self.start_report() {
            // A debugger that is gone is noticed at the next signal or event.
            let _ = debug::report(words, context);
        }
    }

    /// The report of the start of a program in the running process, if the cell is debugged.
    pub fn start_report(&mut self) -> Option<[u64; 4]> {
        self.list_threads();
        let table = self.thread_table.as_ref()?;
        Some([report::START, self.process.number.into(), table.address(), 0])
    }

    /// Reports a signal that is about to take effect on the running thread. Returns whether it does.
    pub fn report_signal(&mut self, signal: Signal, context: &mut SavedContext) -> bool {
        self.list_threads();
        let words = [report::SIGNAL, self.thread.number.into(), signal.0.into(), 0];
        if self.thread_table.is_none() {
            return true;
        }
        let answer = debug::report(words, context);
        if answer.is_err() {
            // The debugger is gone.
            self.thread_table = None;
        }
        answer.unwrap_or(0) == 0
    }

    /// Reports that the running process has ended with this status.
    pub(super) fn report_end(&mut self, status: u32) {
        if self.thread_table.is_none() {
            return;
        }
        self.list_threads();
        if debug::report_without_context([report::END, self.process.number.into(), status.into(), 0]).is_err() {
            self.thread_table = None;
        }
    }

    /// Answers event `Debug`: reports the threads and the processes, and lists the threads as long as the cell is watched.
    pub(super) fn announce_threads(&mut self) {
        if self.thread_table.is_none() {
            // A debugger sees the program's code as it is in its file.
            self.memory.remove_patches();
            self.others.memories.values_mut().for_each(|memory| memory.remove_patches());
        }
        self.thread_table.get_or_insert_default();
        self.list_threads();
        let processes = self.describe_processes();
        let Some(table) = &self.thread_table else { return };
        let words = [report::THREADS, table.address(), processes.as_ptr().expose_provenance() as u64, processes.len() as u64];
        if debug::report_without_context(words).is_err() {
            self.thread_table = None;
        }
    }

    /// The descriptions of the processes: their auxiliary vectors, and the paths of their programs.
    fn describe_processes(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for number in self.processes_where(|process| !process.has_ended()).into_iter().take(MAX_THREADS) {
            let Some(process) = self.process_of(number) else { continue };
            let mut path = self.files.program_path(number);
            path.truncate(PATH_MAX);
            let auxiliary = process.auxiliary.iter().chain([&(0, 0)]).flat_map(|&(kind, value)| [kind, value]);
            let head = ProcessHead { number: number.into(), auxiliary: (process.auxiliary.len() as u64 + 1) * 2, path: path.len() as u64 };
            words.extend(head.to_words().into_iter().chain(auxiliary));
            words.extend(path.chunks(8).map(word));
        }
        words
    }
}

/// At most eight bytes as a word.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The record of a thread.
fn record(thread: &Thread, space: u32) -> ThreadRecord {
    let saved = &thread.saved;
    let (low, high) = thread.name.split_at(8);
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
