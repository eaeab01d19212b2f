// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debugger: serves gdb's remote protocol for the program of a cell that it watches.
//!
//! The whole cell stops at once, with all its threads and processes. gdb debugs the first process; breakpoints that its forks inherit are
//! removed when they are hit.

mod architecture;
mod breakpoints;
mod halts;
mod link;
mod mailbox;
mod processes;
mod resume;
mod session;
mod target;
mod watchpoints;

use crate::threads::Threads;
use crate::watched_cell::WatchedCell;
use breakpoints::Breakpoints;
pub use link::GdbLink;
pub use mailbox::Mailbox;
use pando_abi::thread_table::ThreadRecord;
use processes::ProcessDescription;
use resume::ResumeActions;
pub use session::{AttachError, AttachedDebugger, serve};
use std::io::{Error, ErrorKind, Result};
use watchpoints::Watchpoints;

/// A space of the cell; `None`: the one in which it continues.
type Space = Option<u32>;

/// The trap flag.
const TRAP_FLAG: u64 = 1 << 8;

/// How the last halt must be answered when the cell is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingHalt {
    /// Nothing.
    Nothing,
    /// An exception, which the program may still get as a signal.
    Exception,
    /// A signal is about to take effect on a thread, unless it is discarded.
    Signal {
        thread: u64,
        /// The protocol's number.
        signal: u8,
    },
}

/// The state of a debugging session.
#[derive(Debug)]
struct Debugger<'a> {
    cell: &'a dyn WatchedCell,
    /// The process that gdb debugs.
    process: u64,
    /// Address of the table of threads.
    table: u64,
    /// The process that gdb is to debug; `None`: the first one. Only of a cell that ran before.
    wanted_process: Option<u64>,
    /// The processes when the libOS of such a cell listed them.
    processes: Vec<ProcessDescription>,
    /// The threads as of the last halt.
    threads: Threads,
    /// The program's file.
    file: Vec<u8>,
    /// The program's auxiliary vector.
    auxiliary: Vec<u8>,
    breakpoints: Breakpoints,
    watchpoints: Watchpoints,
    halt: PendingHalt,
    actions: ResumeActions,
    /// The thread that executes a single instruction for gdb.
    stepping: Option<u64>,
    /// The breakpoint that a process which shares the program's memory is stepping over.
    stepped_over: Option<u64>,
    /// gdb has let the cell run, and was not told of a stop since.
    is_running: bool,
    /// gdb has asked for a stop, and was not told of one since.
    is_interrupted: bool,
    /// The cell is not debugged any more.
    is_released: bool,
}

impl<'a> Debugger<'a> {
    fn new(cell: &'a dyn WatchedCell, file: Vec<u8>) -> Debugger<'a> {
        Debugger {
            cell,
            process: 0,
            table: 0,
            wanted_process: None,
            processes: Vec::new(),
            threads: Threads::default(),
            file,
            auxiliary: Vec::new(),
            breakpoints: Breakpoints::default(),
            watchpoints: Watchpoints::default(),
            halt: PendingHalt::Nothing,
            actions: ResumeActions::default(),
            stepping: None,
            stepped_over: None,
            is_running: true,
            is_interrupted: false,
            is_released: false,
        }
    }

    /// A thread of the process that gdb debugs: the running one, or the first.
    fn own_thread(&self) -> u64 {
        let own = |record: &&ThreadRecord| record.process == self.process;
        let running = self.threads.get(self.threads.running).filter(own);
        running.or_else(|| self.threads.of(self.process).next()).map_or(self.process, |record| record.number)
    }

    /// The space of a thread; of one that is unknown, that of the process that gdb debugs.
    ///
    /// # Errors
    /// The process has ended.
    fn space(&self, thread: u64) -> Result<Space> {
        let record = self.threads.get(thread).or_else(|| self.threads.of(self.process).next());
        record.map(|record| Some(record.space as u32)).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }
}
