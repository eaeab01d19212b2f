// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: additional programs in a running cell, each with its own streams and exit status.

mod command;
mod multiplexer;

pub use command::{Command, Task, TerminalSize};
pub use multiplexer::Multiplexer;

use crate::{LaunchError, Operator};
use pando_abi::control::{FIRST_PROGRAM, Frame, JOBS, Kind};
use pando_kernel::{CellId, ConsolePort};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Its program exited with this status; 125 to 127 if it could not be started, with the reason on its standard error stream.
    Exited(u8),
    /// This signal ended its program.
    Signalled(u8),
    /// Its cell has ended, was frozen, or violated the protocol.
    Lost,
}

impl fmt::Display for JobEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobEnd::Exited(status) => write!(f, "exited with status {status}"),
            JobEnd::Signalled(signal) => write!(f, "ended by signal {signal}"),
            JobEnd::Lost => f.write_str("its cell ended, was frozen, or violated the protocol"),
        }
    }
}

/// All jobs of a cell: the operator's end of its control channel.
#[derive(Clone)]
pub struct Jobs(Arc<MultiplexerState>);

/// A program in a cell. It continues when this is dropped.
pub struct Job {
    number: u32,
    port: Arc<ConsolePort>,
    end: Mutex<Option<JobEnd>>,
    ended: Condvar,
    jobs: Arc<MultiplexerState>,
}

/// State that jobs and the multiplexer share.
struct MultiplexerState {
    control: Arc<ConsolePort>,
    state: Mutex<State>,
    /// Notifies the multiplexer of pending work.
    ring: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<u32, Arc<Job>>,
    /// The last job number.
    last: u32,
    /// Frames to send.
    requests: Vec<u8>,
    /// The channel is closed.
    is_over: bool,
}

/// Notifies the thread of pending work.
#[derive(Default)]
struct WorkSignal {
    any: Mutex<bool>,
    changed: Condvar,
}

impl WorkSignal {
    fn notify(&self) {
        *self.any.lock().expect("no holder of this lock panics") = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut any = self.any.lock().expect("no holder of this lock panics");
        while !std::mem::take(&mut *any) {
            any = self.changed.wait(any).expect("no holder of this lock panics");
        }
    }
}

impl MultiplexerState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl Jobs {
    /// Opens the control channel of a cell, at most once per cell. A thread multiplexes its jobs until the cell has ended or is frozen.
    ///
    /// # Errors
    /// There is no such running cell, it is frozen, or no thread can be started.
    pub fn open(operator: &dyn Operator, cell: CellId) -> Result<Jobs, LaunchError> {
        let signal = Arc::<WorkSignal>::default();
        let notifier = Arc::clone(&signal);
        let (jobs, mut multiplexer) = Jobs::with_multiplexer(operator, cell, move || notifier.notify())?;
        let body = move || {
            while multiplexer.turn() {
                signal.wait();
            }
        };
        std::thread::Builder::new().name("jobs".into()).spawn(body).map_err(LaunchError::Thread)?;
        Ok(jobs)
    }

    /// The same without a thread: the caller runs the multiplexer after each call of `ring`. `ring` is called under locks, the kernel's
    /// among them, so it may only wake a thread or task.
    ///
    /// # Errors
    /// There is no such running cell, or it is frozen.
    pub fn with_multiplexer(
        operator: &dyn Operator,
        cell: CellId,
        ring: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Jobs, Multiplexer), LaunchError> {
        Ok(Jobs::with_port(operator.control(cell)?, ring))
    }

    /// The same over a port that replaces a cell's control channel.
    #[must_use]
    pub fn with_port(control: Arc<ConsolePort>, ring: impl Fn() + Send + Sync + 'static) -> (Jobs, Multiplexer) {
        let shared = Arc::new(MultiplexerState { control, state: Mutex::default(), ring: Arc::new(ring) });
        let notifier = Arc::clone(&shared.ring);
        shared.control.listen(move || notifier());
        (Jobs(Arc::clone(&shared)), Multiplexer::new(shared))
    }

    /// Starts a program in the cell, or a file task.
    ///
    /// # Errors
    /// The command is too long, the cell has the maximal number of jobs, or the cell has ended.
    pub fn start(&self, command: &Command) -> Result<Arc<Job>, LaunchError> {
        let bytes = command.to_bytes()?;
        let mut state = self.0.lock();
        if state.is_over {
            return Err(LaunchError::CellEnded);
        }
        if state.jobs.len() >= JOBS {
            return Err(LaunchError::TooManyJobs { most: JOBS });
        }
        // The first program has number 0.
        state.last = state.last.wrapping_add(1).max(1);
        let (number, ring) = (state.last, Arc::clone(&self.0.ring));
        let port = ConsolePort::detached(move || ring());
        let job = Job { number, port, end: Mutex::new(None), ended: Condvar::new(), jobs: Arc::clone(&self.0) };
        let job = Arc::new(job);
        state.jobs.insert(number, Arc::clone(&job));
        state
            .requests
            .extend(Frame { kind: Kind::Start, job: number, detail: command.task.detail(), length: bytes.len() as u32 }.to_bytes());
        state.requests.extend(bytes);
        if let Task::RunInTerminal(size) = command.task {
            state.requests.extend(Frame::new(Kind::Resize, number, size.detail()).to_bytes());
        }
        drop(state);
        (self.0.ring)();
        Ok(job)
    }

    /// Sends the processes of the cell's first program a signal, by Linux's number.
    pub fn signal_first(&self, number: u8) {
        self.0.lock().requests.extend(Frame::new(Kind::Signal, FIRST_PROGRAM, number.into()).to_bytes());
        (self.0.ring)();
    }
}

impl Job {
    /// Its number, which no other job of its cell has.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its streams, as a console: input is its standard input; output ends when it has ended and all output was read.
    #[must_use]
    pub fn port(&self) -> &Arc<ConsolePort> {
        &self.port
    }

    /// Sends its processes a signal, by Linux's number. Processes that outlive its first one are not reached.
    pub fn signal(&self, number: u8) {
        self.jobs.lock().requests.extend(Frame::new(Kind::Signal, self.number, number.into()).to_bytes());
        (self.jobs.ring)();
    }

    /// Sets the size of its terminal. Without effect if it has none.
    pub fn resize(&self, size: TerminalSize) {
        self.jobs.lock().requests.extend(Frame::new(Kind::Resize, self.number, size.detail()).to_bytes());
        (self.jobs.ring)();
    }

    /// How it ended; `None` if it still runs.
    #[must_use]
    pub fn end(&self) -> Option<JobEnd> {
        *self.end.lock().expect("no holder of this lock panics")
    }

    /// Waits until it has ended. Its output may not be read yet.
    pub fn wait(&self) -> JobEnd {
        let mut end = self.end.lock().expect("no holder of this lock panics");
        loop {
            if let Some(end) = *end {
                return end;
            }
            end = self.ended.wait(end).expect("no holder of this lock panics");
        }
    }

    /// Records its end, once.
    fn finish(&self, how: JobEnd) {
        self.end.lock().expect("no holder of this lock panics").get_or_insert(how);
        self.ended.notify_all();
        self.port.close();
    }
}
