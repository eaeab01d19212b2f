// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell of the manager: its specification, its input and output, and its outcome.

use super::budget::Budget;
use super::changes::Changes;
use super::gateways::GatewaySlot;
use super::jobs::{CellJobs, StartedJob};
use super::log::Log;
use super::networks::{CellConnection, RequestedNetwork};
use super::origin::CellOrigin;
use super::pool::TemplatePool;
use super::read_positions::ReadPositions;
use super::restart_policy::RestartPolicy;
use super::spec::{CellOutcome, CellSignal, EndReason, ManagedCellSpec, ProgramConfiguration};
use super::tasks::lock;
use super::virtual_hosts::CellPorts;
use super::{Manager, ManagerError};
use crate::cell::{CellSpec, wait};
use crate::outcome::{PANDO_FAILURE_STATUS, exit_status};
use crate::time_limits::TimeLimits;
use bytes::Bytes;
use pando_kernel::network::address::Addresses;
use pando_kernel::{CellId, ConsoleOutput, ConsolePort, End, Stream};
use pando_launch::{Command, LaunchError, Nesting, Operator};
use pando_machine::PageCount;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Pieces of output that are read before other tasks run.
const TURN: u32 = 64;
/// Bytes of a cell's output to keep if it has no output limit.
const LOG_KEPT: u64 = 1 << 20;
/// Most bytes to keep of a cell with an output limit.
const LOG_KEPT_MAX: u64 = 64 << 20;
/// The message of a cell that was frozen.
const FROZEN: &str = "frozen: a template was created from it";
/// The message of a cell that was terminated because there is no memory for its output.
const LOG_LIMIT: &str = "the logged output of all cells of this service exceeds its memory limit";

/// A cell, running or ended.
pub struct ManagedCell {
    pub(super) id: u64,
    pub(super) spec: ManagedCellSpec,
    /// The ID of the container image that it sees.
    pub(super) image: Option<String>,
    pub(super) operator: Arc<dyn Operator>,
    pub(super) pool: Arc<TemplatePool>,
    pub(super) cell: CellId,
    pub(super) addresses: Option<Addresses>,
    /// Its published ports.
    pub(super) ports: CellPorts,
    port: Arc<ConsolePort>,
    since: Instant,
    pub(super) started: SystemTime,
    time_limits: TimeLimits,
    state: Mutex<CellState>,
    /// The clients for which it waits.
    pub(super) readers: Arc<ReadPositions>,
    /// The input from the request that the cell has not taken yet; it precedes all other input. The lock is held by the task that writes
    /// input, so that pieces stay in order.
    input: tokio::sync::Mutex<Bytes>,
    /// Its standard input has ended.
    has_input_ended: AtomicBool,
    /// Held while a template is created from the cell: its outcome is published afterwards.
    pub(super) freezing: Arc<tokio::sync::Mutex<()>>,
    /// The additional programs in it, once there was one.
    pub(super) jobs: Mutex<CellJobs>,
    /// Incremented at each request for input, programs or files.
    pub(super) uses: AtomicU64,
    /// A debugger is attached to it.
    pub(super) is_debugged: AtomicBool,
    /// Notified when the state changes.
    pub(super) changed: Changes,
    /// Notified when the console changes.
    console: Arc<Changes>,
}

/// The mutable state. Its lock is held for short sections, and no other lock than that of the read positions is taken inside.
pub(super) struct CellState {
    pub(super) log: Log,
    /// It was terminated because the logs of all cells exceeded their budget.
    has_exceeded_log_budget: bool,
    /// Its output exceeded its limit. It may have ended by itself before that was noticed.
    has_exceeded_output: bool,
    /// Why the service terminated it.
    pub(super) cause: Option<EndReason>,
    /// A client has asked it to end, or has removed it: it is not started again.
    is_stopped: bool,
    /// A client has removed it.
    is_removed: bool,
    /// It may be started again.
    pub(super) may_restart: bool,
    /// Its successor: the cell that restarted it, and has its output.
    pub(super) successor: Option<Arc<ManagedCell>>,
    /// The position of its first byte in the output of all cells of its number.
    output_start: u64,
    /// Its present time limit.
    pub(super) time_limit: Option<Duration>,
    pub(super) outcome: Option<CellOutcome>,
    /// Resources that are released after it has ended.
    pub(super) resources: Option<CellResources>,
}

impl CellState {
    /// The state of a cell that begins with this log.
    fn new(spec: &ManagedCellSpec, log: Log, resources: CellResources) -> CellState {
        CellState {
            output_start: log.written(),
            log,
            has_exceeded_log_budget: false,
            has_exceeded_output: false,
            cause: None,
            is_stopped: false,
            is_removed: false,
            may_restart: spec.restart != RestartPolicy::No,
            successor: None,
            time_limit: spec.limits.time,
            outcome: None,
            resources: Some(resources),
        }
    }
}

/// An empty log, with the charge of all that is kept of the specification.
fn new_log(spec: &ManagedCellSpec, budget: &Arc<Budget>) -> Log {
    // The arguments are kept for queries, the environment for more programs.
    let mut charge = budget.charge();
    let labels = spec.labels.iter().map(|(name, value)| name.len() + value.len());
    let words = spec.arguments.iter().map(String::len).chain(spec.environment.iter().map(Vec::len));
    charge.grow(words.chain(labels).map(|length| length as u64).sum());
    Log::new(spec.limits.output.map_or(LOG_KEPT, |limit| limit.min(LOG_KEPT_MAX)), charge)
}

/// Resources that a cell holds.
pub(super) struct CellResources {
    /// Its template, or its program and its root.
    pub(super) origin: CellOrigin,
    /// Its network.
    _connection: CellConnection,
}

impl ManagedCell {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The identifier by which the kernel knows it.
    pub(super) fn kernel_id(&self) -> CellId {
        self.cell
    }

    /// Its name.
    pub fn name(&self) -> String {
        name(&self.spec, self.id)
    }

    /// Creates a cell and starts it. The caller must run [`supervise`](ManagedCell::supervise) for it then. O(1). It continues the output
    /// of its predecessor, the ended cell with the same number.
    ///
    /// # Errors
    /// There is not enough memory, or its arguments and environment are too long.
    pub(super) fn start(
        manager: &Manager,
        (id, predecessor): (u64, Option<&ManagedCell>),
        mut spec: ManagedCellSpec,
        origin: CellOrigin,
        slot: Option<GatewaySlot>,
    ) -> Result<Arc<ManagedCell>, ManagerError> {
        let Manager { operator, time_limits, networks, budget, .. } = manager;
        let (since, started) = (Instant::now(), SystemTime::now());
        let requested = networks.as_ref().map_or(Ok(RequestedNetwork::default()), |networks| networks.request(&spec, slot))?;
        let host_name = host_name(&spec, id);
        let nesting = match NonZeroU32::new(spec.nest) {
            Some(descendants) => Some(Nesting { descendants, root: manager.pool.nesting_root(&origin.loaded)? }),
            None => None,
        };
        let cell = CellSpec { program: origin.describe(&spec, nesting), limits: spec.limits, host_name: Some(host_name) };
        let guard = cell.create(Arc::clone(operator), &origin.loaded.root)?;
        let cell = guard.id();
        let mut connection = match networks {
            Some(networks) => networks.connect((id, cell, &name(&spec, id)), &spec, requested)?,
            None => CellConnection::default(),
        };
        let (addresses, ports) = (connection.addresses, std::mem::take(&mut connection.ports));
        let port = operator.console(cell)?;
        // `write_first_input` sends the rest that does not fit at once.
        let mut input = Bytes::from(std::mem::take(&mut spec.input));
        // Written before the start: later input admits a queued cell before others.
        let written = port.try_send(&input).unwrap_or(0);
        let input = input.split_off(written);
        let has_input_ended = input.is_empty() && spec.input_ends;
        if has_input_ended {
            port.close_input();
        }
        let console = Arc::<Changes>::default();
        let notifier = Arc::clone(&console);
        port.listen(move || notifier.notify());
        guard.start(&spec.limits, time_limits)?;
        let image = origin.manifest.image.as_ref().map(|(id, _)| id.clone());
        let (log, readers) = match predecessor {
            // Its output stays, and more is appended. Its readers stay, too.
            Some(before) => (before.take_log(), Arc::clone(&before.readers)),
            None => (new_log(&spec, budget), Arc::default()),
        };
        let state = CellState::new(&spec, log, CellResources { origin, _connection: connection });
        Ok(Arc::new(ManagedCell {
            id,
            spec,
            image,
            operator: Arc::clone(operator),
            pool: Arc::clone(&manager.pool),
            cell: guard.release(),
            addresses,
            ports,
            port,
            since,
            started,
            time_limits: time_limits.clone(),
            state: Mutex::new(state),
            readers,
            input: tokio::sync::Mutex::new(input),
            has_input_ended: AtomicBool::new(has_input_ended),
            freezing: Arc::default(),
            jobs: Mutex::default(),
            uses: AtomicU64::new(0),
            is_debugged: AtomicBool::new(false),
            changed: Changes::default(),
            console,
        }))
    }

    /// Reads the cell's output until it has ended.
    pub(super) async fn supervise(self: Arc<ManagedCell>, manager: Arc<Manager>) {
        let mut taken = 0_u32;
        loop {
            match self.console.wait_for(|| self.next_output()).await {
                ConsoleOutput::Bytes(stream, bytes) => self.log_output(&manager, stream, bytes),
                ConsoleOutput::End => break,
                // On the heap, because few cells get here.
                ConsoleOutput::Nothing => Box::pin(self.wait_for_readers()).await,
            }
            taken = taken.wrapping_add(1);
            if taken.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        // If it was frozen, the template has been stored by now, or never will be.
        let frozen = self.freezing.lock().await;
        let outcome = self.outcome();
        drop(frozen);
        if self.lock().time_limit.is_some() {
            self.time_limits.lift(self.cell);
        }
        // No more programs can be started in it.
        let jobs = std::mem::take(&mut *lock(&self.jobs));
        drop(jobs);
        let mut state = self.lock();
        state.outcome = Some(outcome);
        state.log.compact();
        let resources = state.resources.take();
        drop(state);
        // Other tasks may wait until these are released.
        if let Some(CellResources { origin, .. }) = resources
            && origin.is_last()
        {
            origin.loaded.root.release_idle();
        }
        manager.note_end(&self);
        self.changed.notify();
    }

    /// Whether the log is full because a client has not read it yet. The cell blocks at its next write then.
    fn waits_for_readers(&self) -> bool {
        let Some(next) = self.readers.first() else { return false };
        let is_full = {
            let state = self.lock();
            state.log.is_full_from(next) && state.cause.is_none()
        };
        // The remaining output of an ended cell is short.
        is_full && self.operator.usage(self.cell).is_some()
    }

    /// The next output, or `Nothing` if there is no room for it in the log. `None`: there is none yet.
    fn next_output(&self) -> Option<ConsoleOutput> {
        if self.waits_for_readers() {
            return Some(ConsoleOutput::Nothing);
        }
        Some(self.port.try_receive()).filter(|output| *output != ConsoleOutput::Nothing)
    }

    /// Waits while the log is full.
    async fn wait_for_readers(&self) {
        let all = [&self.changed, &*self.console, &self.readers.changed];
        Changes::wait_for_any(all, || (!self.waits_for_readers()).then_some(())).await;
    }

    fn log_output(&self, manager: &Manager, stream: Stream, mut bytes: Vec<u8>) {
        let mut state = self.lock();
        let limit = self.spec.limits.output.unwrap_or(u64::MAX);
        let left = limit - (state.log.written() - state.output_start).min(limit);
        let exceeds = bytes.len() as u64 > left;
        // The output up to the limit is kept.
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if !bytes.is_empty() {
            let kept = self.readers.first().unwrap_or(u64::MAX);
            state.log.push(stream, &bytes, kept);
        }
        state.has_exceeded_output |= exceeds;
        let is_exceeded = state.log.is_exceeded();
        drop(state);
        if exceeds || (is_exceeded && !self.free_log_memory(manager)) {
            // It may have ended by itself.
            let _ = self.operator.end(self.cell, End::OutputLimit);
        }
        self.changed.notify();
    }

    /// Frees memory if the logs of all cells exceed their budget: removes ended cells first, then the start of this log. `false` if
    /// nothing of this log may be dropped.
    fn free_log_memory(&self, manager: &Manager) -> bool {
        manager.remove_ended();
        let mut state = self.lock();
        let first = self.readers.first();
        let is_promised = self.spec.limits.output.is_some() && first.is_none();
        if is_promised {
            state.has_exceeded_log_budget = state.log.is_exceeded();
            return !state.has_exceeded_log_budget;
        }
        state.log.free_log_memory(first.unwrap_or(u64::MAX));
        true
    }

    /// Its outcome, after it has ended. Blocks briefly at most.
    fn outcome(&self) -> CellOutcome {
        let (cause, has_exceeded_log_budget, has_exceeded_output) = {
            let state = self.lock();
            (state.cause, state.has_exceeded_log_budget, state.has_exceeded_output)
        };
        let time = self.since.elapsed();
        let unknown = |message| CellOutcome {
            reason: EndReason::HostFailure,
            exit_status: PANDO_FAILURE_STATUS,
            message,
            time,
            cpu: Duration::ZERO,
            peak: PageCount(0),
            exits: 0,
        };
        let outcome = match wait(&*self.operator, self.cell) {
            Ok(outcome) => outcome,
            Err(error) => return unknown(error.to_string()),
        };
        let end = if has_exceeded_output { End::OutputLimit } else { outcome.end };
        let is_killed = end == End::Killed;
        let (reason, exit_status, message) = match cause.filter(|_| is_killed).unwrap_or_else(|| EndReason::from(&end)) {
            EndReason::Frozen => (EndReason::Frozen, 0, FROZEN.into()),
            EndReason::OutputLimit if has_exceeded_log_budget => (EndReason::LogLimit, exit_status(&end), LOG_LIMIT.into()),
            reason => (reason, exit_status(&end), end.to_string()),
        };
        let (cpu, peak, exits) = (outcome.counters.cpu, outcome.usage.peak, outcome.counters.exits);
        CellOutcome { reason, exit_status, message, time, cpu, peak, exits }
    }

    /// Writes to its standard input, after all earlier input. `false` if it has ended without reading all, or its input has ended.
    pub async fn write_input(&self, mut bytes: Bytes, is_last: bool) -> bool {
        self.uses.fetch_add(1, Ordering::Relaxed);
        let mut first = self.input.lock().await;
        if self.has_input_ended.load(Ordering::Relaxed) && !bytes.is_empty() {
            return false;
        }
        if !self.feed(&mut first).await || !self.feed(&mut bytes).await {
            return false;
        }
        if is_last {
            self.has_input_ended.store(true, Ordering::Relaxed);
            self.port.close_input();
        }
        true
    }

    /// Writes bytes to its standard input and removes the written part from the buffer.
    async fn feed(&self, bytes: &mut Bytes) -> bool {
        while !bytes.is_empty() {
            let sent = self.console.wait_for(|| match self.port.try_send(bytes) {
                Some(0) => None,
                sent => Some(sent),
            });
            match sent.await {
                None => {
                    *bytes = Bytes::new();
                    return false;
                }
                Some(count) => *bytes = bytes.split_off(count),
            }
        }
        true
    }

    /// Whether input from the request is still pending.
    pub(super) fn has_input(&self) -> bool {
        self.input.try_lock().is_ok_and(|first| !first.is_empty())
    }

    /// Writes the input from the request.
    pub(super) async fn write_first_input(&self) {
        self.write_input(Bytes::new(), self.spec.input_ends).await;
    }

    /// Sends its program a signal; the one that cannot be caught terminates the cell.
    pub fn signal(&self, signal: CellSignal) {
        if signal.ends() {
            self.stop();
        }
        match signal {
            // It may have ended.
            CellSignal::Interrupt => _ = self.operator.interrupt(self.cell),
            CellSignal::Terminate => self.operator.raise(self.cell, pando_abi::Event::Terminate),
            CellSignal::Kill => self.terminate(EndReason::Killed, End::Killed),
            CellSignal::Other(number) => {
                _ = self.with_jobs("send a signal to", |jobs| jobs.signal_first(&*self.operator, self.cell, number))
            }
        }
    }

    /// Terminates it.
    pub(super) fn terminate(&self, reason: EndReason, end: End) {
        self.lock().cause.get_or_insert(reason);
        // It may have ended.
        let _ = self.operator.end(self.cell, end);
        self.changed.notify();
    }

    /// Starts an additional program in it.
    ///
    /// # Errors
    /// It has ended, the command is too long, or it has the maximal number of programs.
    pub fn start_job(&self, command: &Command) -> Result<StartedJob, ManagerError> {
        self.with_jobs("start a program in", |jobs| jobs.start(&*self.operator, self.cell, command))
    }

    /// The additional program of this number.
    ///
    /// # Errors
    /// There is none, or it has ended.
    pub fn job(&self, number: u32) -> Result<StartedJob, ManagerError> {
        lock(&self.jobs).find(number).ok_or(ManagerError::NoSuchProgram { cell: self.id, number })
    }

    /// Uses its additional programs. `action` is the verb of errors.
    fn with_jobs<T>(
        &self,
        action: &'static str,
        use_jobs: impl FnOnce(&mut CellJobs) -> Result<T, LaunchError>,
    ) -> Result<T, ManagerError> {
        let ended = || ManagerError::Ended { cell: self.id, action };
        self.uses.fetch_add(1, Ordering::Relaxed);
        let mut jobs = lock(&self.jobs);
        if self.has_ended() {
            return Err(ended());
        }
        use_jobs(&mut jobs).map_err(|error| if matches!(error, LaunchError::CellEnded) { ended() } else { error.into() })
    }

    /// Terminates it after this time, counted from now, in place of an earlier limit.
    ///
    /// # Errors
    /// It has ended.
    pub fn set_time_limit(&self, time: Duration) -> Result<(), ManagerError> {
        if self.has_ended() {
            return Err(ManagerError::Ended { cell: self.id, action: "change the time limit of" });
        }
        self.lock().time_limit = Some(time);
        self.time_limits.replace(self.cell, time, End::TimedOut);
        Ok(())
    }

    /// Closes the read end of one of its outputs: the program gets SIGPIPE at its next write.
    pub fn close_stream(&self, stream: Stream) {
        // A repeated end would be queued again.
        if !self.port.is_stream_closed(stream) {
            self.port.close_stream(stream);
        }
    }

    /// The environment, the directory and the user with which its program was configured, by the template and by the clone's request: more
    /// programs in it get the same. `None`: it has ended.
    pub fn configuration(&self) -> Option<ProgramConfiguration> {
        let manifest = self.lock().resources.as_ref().map(|resources| Arc::clone(&resources.origin.manifest))?;
        let own = self.spec.environment.iter().map(|line| String::from_utf8_lossy(line).into_owned());
        let pair = |line: String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some(ProgramConfiguration {
            environment: manifest.environment().iter().cloned().chain(own).filter_map(pair).collect(),
            directory: manifest.directory().to_path_buf(),
            user: manifest.user(),
        })
    }

    /// Waits until it has ended.
    pub async fn wait_ended(&self) -> CellOutcome {
        self.changed.wait_for(|| self.lock().outcome.clone()).await
    }

    /// The kept bytes of its standard output, its standard error and its notes.
    pub fn kept_output(&self) -> [Vec<u8>; 3] {
        self.lock().log.split()
    }

    /// Bytes at the start of its output that are not kept.
    pub fn dropped_output(&self) -> u64 {
        self.lock().log.dropped()
    }

    /// Its labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.spec.labels
    }

    /// Records that a client has asked it to end.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify();
    }

    /// Records that a client has removed it.
    pub(super) fn note_removal(&self) {
        self.lock().is_removed = true;
        self.stop();
    }

    /// Whether a client has removed it.
    pub(super) fn is_removed(&self) -> bool {
        self.lock().is_removed
    }

    /// Waits until a client has asked it to end.
    pub(super) async fn wait_stopped(&self) {
        self.changed.wait_for(|| self.is_stopped().then_some(())).await;
    }

    /// Whether a client has asked it to end, or has removed it.
    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.lock().outcome.is_some()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, CellState> {
        lock(&self.state)
    }
}

/// The name of a cell: the requested one, or that of its template, image or program with the cell's number.
fn name(spec: &ManagedCellSpec, id: u64) -> String {
    spec.name.clone().unwrap_or_else(|| format!("{}-{id}", spec.source.name(&spec.arguments)))
}

/// The host name of a cell: the requested one, or its name.
pub(super) fn host_name(spec: &ManagedCellSpec, id: u64) -> String {
    spec.host_name.clone().unwrap_or_else(|| name(spec, id))
}
