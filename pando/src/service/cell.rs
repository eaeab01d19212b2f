// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell as the service keeps it: what it was asked for, what it said, and how it ended.

use super::log::Log;
use super::pool::Warm;
use super::problem::Problem;
use crate::api::{self, Reason};
use crate::cli::Limits;
use crate::run::told;
use crate::size::Size;
use crate::template::{Found, Name};
use crate::watch::Watch;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, ConsolePort, End, Heard, Kernel, NetworkConfig, OperatorError, Stream};
use pando_launch::{Command, Job, Jobs, LaunchError, Program};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Pieces of output that are taken before others have their turn.
const TURN: u32 = 64;
/// Bytes that are remembered of what a cell says where nobody sets a limit.
const REMEMBERED: u64 = 1 << 20;
/// The same where somebody does.
const REMEMBERED_MAX: u64 = 64 << 20;
/// How long a cell may take to come to where it can be frozen.
const PATIENCE: Duration = Duration::from_secs(10);
/// How a cell ended of which a template was made.
const FROZEN: &str = "frozen: a template was made of it";

/// What a cell is asked to be.
pub(super) struct Order {
    pub(super) template: Name,
    pub(super) arguments: Vec<String>,
    /// Each as NAME=VALUE.
    pub(super) environment: Vec<Vec<u8>>,
    pub(super) limits: Limits,
    pub(super) host_name: Option<String>,
    /// The network that it is plugged into.
    pub(super) network: Option<String>,
    pub(super) input: Vec<u8>,
    /// Nothing follows that.
    pub(super) input_ends: bool,
}

/// A cell, running or ended.
pub(super) struct Cell {
    pub(super) id: u64,
    order: Order,
    kernel: Arc<Kernel>,
    cell: CellId,
    addresses: Option<Addresses>,
    port: Arc<ConsolePort>,
    /// What it was cloned from.
    template: Arc<Warm>,
    since: Instant,
    started: SystemTime,
    state: Mutex<State>,
    /// The programs that were started in it besides, once there was one.
    jobs: Mutex<Option<Jobs>>,
    /// Rings when the state has changed.
    changed: watch::Sender<()>,
    /// Rings when the console has.
    bell: watch::Receiver<()>,
}

/// What changes. Under a lock that is held for moments, and the last.
struct State {
    log: Log,
    /// The numbers of the pieces that those want next for whom the cell waits.
    waiters: BTreeMap<u64, u64>,
    /// Why it was ended, if it was not by itself.
    cause: Option<Reason>,
    outcome: Option<api::Outcome>,
}

impl Cell {
    /// Clones a template and starts the clone. Somebody must [`keep`](Cell::keep) it then. O(1).
    ///
    /// # Errors
    /// There is not enough memory, or what it is given is too long.
    pub(super) fn start(id: u64, order: Order, kernel: &Arc<Kernel>, template: Arc<Warm>, limit: &Watch) -> Result<Arc<Cell>, Problem> {
        let memory = order.limits.memory.map_or(template.found.memory(), |size| size.pages());
        let program = Program {
            arguments: order.arguments.iter().map(|argument| argument.clone().into_bytes()).collect(),
            environment: order.environment.clone(),
            memory,
            ..Program::default()
        };
        let (since, started) = (Instant::now(), SystemTime::now());
        let cell = program.prepare(kernel, &template.root)?;
        let begin = || {
            order.limits.apply(kernel, cell)?;
            let host_name = order.host_name.clone().unwrap_or_else(|| format!("{}-{id}", order.template));
            kernel.set_host_name(cell, &host_name)?;
            let addresses = order.network.as_deref().map(|name| plug(kernel, cell, name)).transpose()?;
            let port = kernel.console(cell)?;
            // What does not fit at once is sent by whoever keeps it.
            if order.input.is_empty() && order.input_ends {
                port.close_input();
            }
            let (bell, heard) = watch::channel(());
            port.listen(move || bell.send_replace(()));
            kernel.start(cell)?;
            Ok::<_, LaunchError>((addresses, port, heard))
        };
        let (addresses, port, bell) = begin().inspect_err(|_| {
            // Nobody else knows it.
            let _ = kernel.end(cell, End::Killed);
            let _ = kernel.collect(cell);
        })?;
        if let Some(time) = order.limits.timeout {
            limit.limit(cell, time, End::TimedOut);
        }
        let log = Log::new(order.limits.output_limit.map_or(REMEMBERED, |limit| limit.in_bytes().min(REMEMBERED_MAX)));
        let state = State { log, waiters: BTreeMap::new(), cause: None, outcome: None };
        Ok(Arc::new(Cell {
            id,
            order,
            kernel: Arc::clone(kernel),
            cell,
            addresses,
            port,
            template,
            since,
            started,
            state: Mutex::new(state),
            jobs: Mutex::default(),
            changed: watch::channel(()).0,
            bell,
        }))
    }

    /// Listens to the cell until it has ended.
    pub(super) async fn keep(self: Arc<Cell>) {
        let mut bell = self.bell.clone();
        let mut taken = 0_u32;
        loop {
            self.wait_for_readers().await;
            match self.port.hear() {
                Heard::Bytes(stream, bytes) => self.hear(stream, bytes),
                Heard::End => break,
                // Who rings is there as long as the console is, which this cell has.
                Heard::Nothing => _ = bell.changed().await,
            }
            taken = taken.wrapping_add(1);
            if taken.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        let outcome = self.outcome();
        self.lock().outcome = Some(outcome);
        self.changed.send_replace(());
    }

    /// Waits while there is no room for what the cell says, because somebody for whom it waits has not read what it said. It stops at its next word then.
    async fn wait_for_readers(&self) {
        let (mut changed, mut bell) = (self.changed.subscribe(), self.bell.clone());
        loop {
            bell.mark_unchanged();
            let (is_full, is_ending) = {
                let state = self.lock();
                (state.waiters.values().any(|next| state.log.is_full_from(*next)), state.cause.is_some())
            };
            // What is left of one that has ended is not much.
            if !is_full || is_ending || self.kernel.inspect(self.cell).is_err() {
                return;
            }
            tokio::select! { _ = changed.changed() => {}, _ = bell.changed() => {} }
        }
    }

    fn hear(&self, stream: Stream, mut bytes: Vec<u8>) {
        let mut state = self.lock();
        let limit = self.order.limits.output_limit.map_or(u64::MAX, Size::in_bytes);
        let left = limit - state.log.said().min(limit);
        let exceeds = bytes.len() as u64 > left;
        // What it may say is told.
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if !bytes.is_empty() {
            let kept = state.waiters.values().copied().min().unwrap_or(u64::MAX);
            state.log.push(stream, bytes, kept);
        }
        drop(state);
        if exceeds {
            // It may have ended by itself.
            let _ = self.kernel.end(self.cell, End::OutputLimit);
        }
        self.changed.send_replace(());
    }

    /// How it ended. It has: this waits for moments at most.
    fn outcome(&self) -> api::Outcome {
        let cause = self.lock().cause;
        let seconds = self.since.elapsed().as_secs_f64();
        match self.kernel.wait(self.cell) {
            Ok(outcome) => {
                let ended_by_others = outcome.end == End::Killed;
                let reason = cause.filter(|_| ended_by_others).unwrap_or_else(|| reason(&outcome.end));
                let message = match reason {
                    Reason::Frozen => FROZEN.into(),
                    _ => outcome.end.to_string(),
                };
                api::Outcome {
                    reason,
                    exit_code: told(&outcome).0,
                    message,
                    seconds,
                    cpu_seconds: outcome.counters.cpu.as_secs_f64(),
                    peak_bytes: outcome.usage.peak.bytes(),
                    exits: outcome.counters.exits,
                }
            }
            Err(error) => api::Outcome {
                reason: if error == OperatorError::Froze { Reason::Frozen } else { Reason::HostFailure },
                exit_code: if error == OperatorError::Froze { 0 } else { crate::say::OWN_FAILURE },
                message: if error == OperatorError::Froze { FROZEN.into() } else { error.to_string() },
                seconds,
                cpu_seconds: 0.0,
                peak_bytes: 0,
                exits: 0,
            },
        }
    }

    /// Gives it these bytes as it takes them. `false`: it has ended and nobody will read the rest.
    pub(super) async fn give(&self, bytes: &[u8], is_last: bool) -> bool {
        let mut bell = self.bell.clone();
        let mut rest = bytes;
        while !rest.is_empty() {
            bell.mark_unchanged();
            match self.port.offer(rest) {
                None => return false,
                Some(0) => _ = bell.changed().await,
                Some(count) => rest = &rest[count..],
            }
        }
        if is_last {
            self.port.close_input();
        }
        true
    }

    /// Whether it was ordered with input.
    pub(super) fn has_input(&self) -> bool {
        !self.order.input.is_empty()
    }

    /// Gives it that.
    pub(super) async fn give_first(&self) {
        self.give(&self.order.input, self.order.input_ends).await;
    }

    /// Sends its program a signal; the one that cannot be caught ends the cell.
    pub(super) fn signal(&self, signal: api::Signal) {
        match signal {
            // Who has ended hears nothing.
            api::Signal::Interrupt => _ = self.kernel.interrupt(self.cell),
            api::Signal::Terminate => self.kernel.raise(self.cell, pando_abi::Event::Terminate),
            api::Signal::Kill => {
                self.lock().cause.get_or_insert(Reason::Killed);
                let _ = self.kernel.end(self.cell, End::Killed);
                self.changed.send_replace(());
            }
        }
    }

    /// Starts a program in it besides its first one.
    ///
    /// # Errors
    /// It has ended, what the program is given is too long, or there are as many as there may be.
    pub(super) fn start_job(&self, command: &Command) -> Result<Arc<Job>, Problem> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || Problem::state(format!("cell {} has ended: nothing can be started in it", self.id));
        if self.has_ended() {
            return Err(ended());
        }
        let jobs = match &mut *jobs {
            Some(jobs) => jobs,
            none => {
                let (bell, mut heard) = watch::channel(());
                let (jobs, mut carrier) = Jobs::carried(&self.kernel, self.cell, move || bell.send_replace(())).map_err(|_| ended())?;
                tokio::spawn(async move {
                    while carrier.turn() && heard.changed().await.is_ok() {
                        tokio::task::yield_now().await;
                    }
                });
                none.insert(jobs)
            }
        };
        Ok(jobs.start(command)?)
    }

    /// Freezes it, and hands it over to be kept as a template: it never runs again. Its program is asked to, for a while, or stopped as it stands. Blocks.
    ///
    /// # Errors
    /// It has ended, does not come to where it could be frozen, or cannot be kept.
    pub(super) fn freeze(&self, by_force: bool, keep: impl FnOnce(CellId, &Found) -> Result<(), Problem>) -> Result<(), Problem> {
        let asked = if by_force { self.kernel.freeze_as_it_stands(self.cell) } else { self.kernel.ask_to_freeze(self.cell) };
        asked.map_err(|_| Problem::state(format!("cell {} has ended: it cannot be frozen", self.id)))?;
        if !self.kernel.wait_frozen_for(self.cell, PATIENCE)? {
            let seconds = PATIENCE.as_secs();
            return Err(Problem::state(format!(
                "cell {} did not come to where it can be frozen within {seconds} seconds: by force, it is stopped as it stands, and nothing promises that its clones' random numbers are distinct",
                self.id
            )));
        }
        let kept = keep(self.cell, &self.template.found);
        self.lock().cause = Some(Reason::Frozen);
        // Whether it was kept or not: it does not go on.
        let _ = self.kernel.end(self.cell, End::Killed);
        kept
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) -> api::Outcome {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(outcome) = &self.lock().outcome {
                return outcome.clone();
            }
            // Who rings is this cell.
            let _ = changed.changed().await;
        }
    }

    /// The piece of this number of what it says, or the next that is remembered; waits for it if it is `patient`. `None`: there is none yet.
    pub(super) async fn piece(&self, number: u64, patient: bool) -> Option<api::Piece> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut state = self.lock();
                if let Some((number, stream, bytes)) = state.log.get(number) {
                    return Some(api::Piece::Said { number, stream: stream.into(), data: api::Text::of(bytes) });
                }
                if let Some(outcome) = &state.outcome {
                    return Some(api::Piece::Ended { outcome: outcome.clone() });
                }
            }
            if !patient {
                return None;
            }
            let _ = changed.changed().await;
        }
    }

    /// All that it said, and how it ended.
    pub(super) fn ran(&self, outcome: api::Outcome) -> api::Ran {
        let state = self.lock();
        let all = |stream| state.log.all(stream);
        let notes = String::from_utf8_lossy(&all(Stream::Notes)).lines().map(Into::into).collect();
        api::Ran { outcome, stdout: api::Text::of(&all(Stream::Output)), stderr: api::Text::of(&all(Stream::Errors)), notes }
    }

    /// What can be told of it.
    pub(super) fn told(&self) -> api::Cell {
        let outcome = self.lock().outcome.clone();
        let (memory_bytes, cpu_seconds) = match self.kernel.inspect(self.cell) {
            Ok((_, counters, usage)) => (usage.used.bytes(), counters.cpu.as_secs_f64()),
            Err(_) => (0, outcome.as_ref().map_or(0.0, |outcome| outcome.cpu_seconds)),
        };
        api::Cell {
            id: self.id,
            template: self.order.template.to_string(),
            arguments: self.order.arguments.clone(),
            addresses: self.addresses.as_ref().map(|Addresses { mac, v4, v6, .. }| api::Addresses {
                mac: mac.to_string(),
                ipv4: v4.to_string(),
                ipv6: v6.to_string(),
            }),
            started: self.started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            memory_bytes,
            cpu_seconds,
            outcome,
        }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().outcome.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole at every step, whoever panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody for whom a cell waits: from the number on that was told last, nothing is forgotten.
pub(super) struct Reader {
    cell: Arc<Cell>,
    key: u64,
}

impl Reader {
    /// Reads from this number on.
    pub(super) fn new(cell: &Arc<Cell>, number: u64) -> Reader {
        let mut state = cell.lock();
        let key = state.waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        state.waiters.insert(key, number);
        drop(state);
        Reader { cell: Arc::clone(cell), key }
    }

    /// Goes on to this number.
    pub(super) fn go_on(&self, number: u64) {
        let mut state = self.cell.lock();
        let was_full = state.waiters.insert(self.key, number).is_some_and(|before| state.log.is_full_from(before));
        drop(state);
        if was_full {
            self.cell.changed.send_replace(());
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.cell.lock().waiters.remove(&self.key);
        self.cell.changed.send_replace(());
    }
}

/// Plugs a cell into the network of a name, which is made if there is none.
fn plug(kernel: &Kernel, cell: CellId, name: &str) -> Result<Addresses, OperatorError> {
    let network = match kernel.network(name) {
        Some(network) => network,
        None => match kernel.add_network(NetworkConfig { name: name.into(), ..NetworkConfig::default() }) {
            // Somebody else has made it meanwhile.
            Err(OperatorError::NameTaken(_)) => kernel.network(name).ok_or(OperatorError::NoAddress)?,
            made => made?,
        },
    };
    kernel.plug(cell, network, Link::default())
}

/// The word for how a cell ended.
fn reason(end: &End) -> Reason {
    match end {
        End::Exited { .. } => Reason::Exited,
        End::Signalled { .. } => Reason::Signalled,
        End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } => Reason::Crashed,
        End::Quota => Reason::MemoryLimit,
        End::MachineFull => Reason::MachineFull,
        End::Killed => Reason::Killed,
        End::TimedOut => Reason::TimedOut,
        End::OutputLimit => Reason::OutputLimit,
        End::Host(_) => Reason::HostFailure,
    }
}
