// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs that are started in a running cell, beside its first one, each with streams of its own and an end.

mod carrier;
mod command;

pub use carrier::Carrier;
pub use command::{Command, Task};

use crate::LaunchError;
use pando_abi::control::{Frame, JOBS, Kind};
use pando_kernel::{CellId, ConsolePort, Kernel, OperatorError};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Its program has ended with this status; 125 to 127 if there was none to be started, which it says on its standard error stream.
    Exited(u8),
    /// This signal has ended its program.
    Signalled(u8),
    /// Its cell has ended or was frozen, or has spoken nonsense.
    Lost,
}

impl fmt::Display for JobEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobEnd::Exited(status) => write!(f, "exited with status {status}"),
            JobEnd::Signalled(signal) => write!(f, "ended by signal {signal}"),
            JobEnd::Lost => f.write_str("lost with its cell"),
        }
    }
}

/// All jobs of a cell: the operator's end of its control channel.
#[derive(Clone)]
pub struct Jobs(Arc<Shared>);

/// A program in a cell. It goes on when this is dropped.
pub struct Job {
    number: u32,
    port: Arc<ConsolePort>,
    end: Mutex<Option<JobEnd>>,
    ended: Condvar,
    jobs: Arc<Shared>,
}

/// What jobs and the thread that carries for them share.
struct Shared {
    control: Arc<ConsolePort>,
    state: Mutex<State>,
    /// Tells who carries that there is something to do.
    ring: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<u32, Arc<Job>>,
    /// The number that was given last.
    last: u32,
    /// Frames that are to be sent.
    orders: Vec<u8>,
    /// The channel is closed.
    is_over: bool,
}

/// Tells the thread that there is something to do.
#[derive(Default)]
struct News {
    any: Mutex<bool>,
    changed: Condvar,
}

impl News {
    fn ring(&self) {
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl Jobs {
    /// Opens the control channel of a cell, once for each: a thread carries for its jobs until the cell has ended or is frozen.
    ///
    /// # Errors
    /// There is no such living cell, it is frozen, or the host has no thread for it.
    pub fn open(kernel: &Kernel, cell: CellId) -> Result<Jobs, LaunchError> {
        let news = Arc::<News>::default();
        let told = Arc::clone(&news);
        let (jobs, mut carrier) = Jobs::carried(kernel, cell, move || told.ring())?;
        let body = move || {
            while carrier.turn() {
                news.wait();
            }
        };
        std::thread::Builder::new().name("jobs".into()).spawn(body).map_err(LaunchError::Thread)?;
        Ok(jobs)
    }

    /// The same without a thread: somebody gives the carrier a turn after each ring. It is rung under locks, the kernel's among them, so that it may wake somebody and do nothing else.
    ///
    /// # Errors
    /// There is no such living cell, or it is frozen.
    pub fn carried(kernel: &Kernel, cell: CellId, ring: impl Fn() + Send + Sync + 'static) -> Result<(Jobs, Carrier), LaunchError> {
        Ok(Jobs::over(kernel.control(cell)?, ring))
    }

    /// The same over a port that stands for a cell's control channel.
    #[must_use]
    pub fn over(control: Arc<ConsolePort>, ring: impl Fn() + Send + Sync + 'static) -> (Jobs, Carrier) {
        let shared = Arc::new(Shared { control, state: Mutex::default(), ring: Arc::new(ring) });
        let told = Arc::clone(&shared.ring);
        shared.control.listen(move || told());
        (Jobs(Arc::clone(&shared)), Carrier::new(shared))
    }

    /// Starts a program in the cell, or lets the cell read or write a file.
    ///
    /// # Errors
    /// What it is given is too long, the cell has as many jobs as it may have, or has none any more.
    pub fn start(&self, command: &Command) -> Result<Arc<Job>, LaunchError> {
        let bytes = command.to_bytes()?;
        let mut state = self.0.lock();
        if state.is_over {
            return Err(OperatorError::NoSuchCell.into());
        }
        if state.jobs.len() >= JOBS {
            return Err(LaunchError::TooManyJobs { most: JOBS });
        }
        state.last = state.last.wrapping_add(1);
        let (number, ring) = (state.last, Arc::clone(&self.0.ring));
        let port = ConsolePort::apart(move || ring());
        let job = Job { number, port, end: Mutex::new(None), ended: Condvar::new(), jobs: Arc::clone(&self.0) };
        let job = Arc::new(job);
        state.jobs.insert(number, Arc::clone(&job));
        state.orders.extend(Frame { kind: Kind::Start, job: number, detail: command.task.detail(), length: bytes.len() as u32 }.to_bytes());
        state.orders.extend(bytes);
        drop(state);
        (self.0.ring)();
        Ok(job)
    }
}

impl Job {
    /// Its streams, as a console's are: what is sent is its standard input, and when it has ended and all was heard its output ends.
    #[must_use]
    pub fn port(&self) -> &Arc<ConsolePort> {
        &self.port
    }

    /// Sends its processes a signal, by Linux's number; those that are left when its first one has ended are not reached.
    pub fn signal(&self, number: u8) {
        self.jobs.lock().orders.extend(Frame::new(Kind::Signal, self.number, number.into()).to_bytes());
        (self.jobs.ring)();
    }

    /// How it has ended. `None`: it has not.
    #[must_use]
    pub fn end(&self) -> Option<JobEnd> {
        *self.end.lock().expect("no holder of this lock panics")
    }

    /// Waits until it has ended. What it said may not be heard yet.
    pub fn wait(&self) -> JobEnd {
        let mut end = self.end.lock().expect("no holder of this lock panics");
        loop {
            if let Some(end) = *end {
                return end;
            }
            end = self.ended.wait(end).expect("no holder of this lock panics");
        }
    }

    /// Takes note of its end, once.
    fn finish(&self, how: JobEnd) {
        self.end.lock().expect("no holder of this lock panics").get_or_insert(how);
        self.ended.notify_all();
        self.port.close();
    }
}
