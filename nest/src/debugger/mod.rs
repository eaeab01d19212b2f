// SPDX-License-Identifier: MIT OR Apache-2.0
//! The debugger: serves gdb's remote protocol for the program of a child.
//!
//! The whole child stops at once, with all its threads and processes. gdb debugs the first process; breakpoints that its forks inherit are
//! removed when they are hit.

mod architecture;
mod breakpoints;
mod halts;
mod link;
mod resume;
mod session;
mod target;
mod watchpoints;

use crate::threads::Threads;
use crate::watched_child::WatchedChild;
use breakpoints::Breakpoints;
pub use link::GdbLink;
use pando_abi::HoldingName;
use pando_abi::thread_table::ThreadRecord;
use pando_machine::CellsDevice;
use resume::ResumeActions;
pub use session::serve;
use watchpoints::Watchpoints;

/// The trap flag.
const TRAP_FLAG: u64 = 1 << 8;

/// The reply that the next resumption owes to the last halt.
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
    child: WatchedChild<'a>,
    /// The process that gdb debugs.
    process: u64,
    /// Address of the table of threads.
    table: u64,
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
}

impl<'a> Debugger<'a> {
    fn new(device: &'a CellsDevice, name: HoldingName, file: Vec<u8>) -> Debugger<'a> {
        Debugger {
            child: WatchedChild { device, name },
            process: 0,
            table: 0,
            threads: Threads::default(),
            file,
            auxiliary: Vec::new(),
            breakpoints: Breakpoints::default(),
            watchpoints: Watchpoints::default(),
            halt: PendingHalt::Nothing,
            actions: ResumeActions::default(),
            stepping: None,
            stepped_over: None,
        }
    }

    /// A thread of the process that gdb debugs: the running one, or the first.
    fn own_thread(&self) -> u64 {
        let own = |record: &&ThreadRecord| record.process == self.process;
        let running = self.threads.get(self.threads.running).filter(own);
        running.or_else(|| self.threads.of(self.process).next()).map_or(self.process, |record| record.number)
    }

    /// The name of the space of a thread; that of the running one if the thread is unknown.
    fn space(&self, thread: u64) -> u64 {
        let record = self.threads.get(thread).or_else(|| self.threads.of(self.process).next());
        record.map_or(self.child.name.current_space(), |record| crate::threads::space_of(self.child.name, record))
    }
}
