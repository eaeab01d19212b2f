// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell of the service: its request, its output, and its outcome.

mod reading;

pub(super) use reading::Reader;

use super::gateways::{CellUplink, GatewaySlot};
use super::log::Log;
use super::networks::Network;
use super::pool::{LoadedTemplate, NameLock};
use super::problem::Problem;
use super::streams::Incoming;
use super::{Service, blocking, lock};
use crate::api::{self, Reason};
use axum::body::Bytes;
use pando_gateway::Rule;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, ConsoleOutput, ConsolePort, End, Kernel, OperatorError, Outcome, Stream};
use pando_launch::{Command, Job, Jobs, Program};
use pando_manager::cell::CellSpec;
use pando_manager::limits::Limits;
use pando_manager::outcome::{OWN_FAILURE, exit_status};
use pando_manager::template::{TemplateName, TemplateStore};
use pando_manager::time_limits::TimeLimits;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Pieces of output that are read before other tasks run.
const TURN: u32 = 64;
/// Bytes of a cell's output to keep if it has no output limit.
const REMEMBERED: u64 = 1 << 20;
/// Most bytes to keep of a cell with an output limit.
const REMEMBERED_MAX: u64 = 64 << 20;
/// How long a cell may take to reach a point at which it can be frozen.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// The message of a cell that was frozen.
const FROZEN: &str = "frozen: a template was created from it";
/// The message of a cell that was terminated because there is no memory for its output.
const CUT: &str = "the logged output of all cells of this service exceeds its memory limit: end or remove some cells, or start the service with more memory (--memory)";

/// A validated request for a cell.
#[derive(Debug)]
pub(super) struct CellRequest {
    pub(super) template: TemplateName,
    pub(super) arguments: Vec<String>,
    /// Each as NAME=VALUE.
    pub(super) environment: Vec<Vec<u8>>,
    pub(super) limits: Limits,
    pub(super) host_name: Option<String>,
    /// The named network to which it is connected.
    pub(super) network: Option<String>,
    /// The external destinations that it may reach. If there are any, it has a network of its own.
    pub(super) allow: Vec<Rule>,
    pub(super) input: Vec<u8>,
    /// No input follows `input`.
    pub(super) input_ends: bool,
    /// A client reads all its output; the cell waits for the client.
    pub(super) whole: bool,
}

/// A cell, running or ended.
pub(super) struct Cell {
    pub(super) id: u64,
    order: CellRequest,
    kernel: Arc<Kernel>,
    store: TemplateStore,
    cell: CellId,
    addresses: Option<Addresses>,
    port: Arc<ConsolePort>,
    since: Instant,
    started: SystemTime,
    watch: TimeLimits,
    state: Mutex<State>,
    /// The input from the request that the cell has not taken yet; it precedes all other input. The lock is held by the task that writes
    /// input, so that pieces stay in order.
    input: tokio::sync::Mutex<Bytes>,
    /// Held while a template is created from the cell: its outcome is published afterwards.
    freezing: Arc<tokio::sync::Mutex<()>>,
    /// The additional programs in it, once there was one.
    jobs: Mutex<Option<Jobs>>,
    /// Notified when the state changes.
    changed: watch::Sender<()>,
    /// Notified when the console changes.
    bell: watch::Receiver<()>,
}

/// The mutable state. Its lock is held for short sections, and no other lock is taken inside.
struct State {
    log: Log,
    /// The read positions of the clients for which the cell waits.
    waiters: BTreeMap<u64, u64>,
    /// The cell waits for its readers.
    is_waiting: bool,
    /// It was terminated because the logs of all cells exceeded their budget.
    is_cut: bool,
    /// Why the service terminated it.
    cause: Option<Reason>,
    outcome: Option<api::Outcome>,
    /// Resources that are released after it has ended.
    resources: Option<CellResources>,
}

/// Resources that a cell holds.
struct CellResources {
    /// Its template.
    template: Arc<LoadedTemplate>,
    /// Its gateway.
    _way_out: Option<CellUplink>,
    /// Its network.
    _network: Option<Arc<Network>>,
}

impl Cell {
    /// Clones a template and starts the clone. The caller must run [`keep`](Cell::keep) for it then. O(1).
    ///
    /// # Errors
    /// There is not enough memory, or its arguments and environment are too long.
    pub(super) fn start(
        service: &Service,
        id: u64,
        mut order: CellRequest,
        template: Arc<LoadedTemplate>,
        place: Option<GatewaySlot>,
    ) -> Result<Arc<Cell>, Problem> {
        let Service { kernel, watch, networks, gateways, budget, .. } = service;
        let (since, started) = (Instant::now(), SystemTime::now());
        // The network is created before the cell, so that it is removed after it.
        let network = match &order.network {
            Some(name) => Some(networks.get(name)?),
            None => place.as_ref().map(|_| networks.make()).transpose()?,
        };
        let host_name = order.host_name.clone().unwrap_or_else(|| format!("{}-{id}", order.template));
        let spec = CellSpec { program: program(&order, &template), limits: order.limits, host_name: Some(host_name) };
        let guard = spec.create(kernel, &template.root)?;
        let cell = guard.id();
        let addresses = network.as_ref().map(|network| kernel.plug(cell, network.id(), Link::default())).transpose()?;
        let way_out = match (&network, &addresses, place) {
            (Some(network), Some(own), Some(place)) => {
                let owner = (cell, own, format!("cell {id}, {}", order.template));
                Some(gateways.open(kernel, owner, network, (std::mem::take(&mut order.allow), place))?)
            }
            _ => None,
        };
        let port = kernel.console(cell)?;
        // `keep` sends the rest that does not fit at once.
        let input = Bytes::from(std::mem::take(&mut order.input));
        if input.is_empty() && order.input_ends {
            port.close_input();
        }
        let (bell, heard) = watch::channel(());
        port.listen(move || bell.send_replace(()));
        guard.start(&order.limits, watch)?;
        // The cell has its environment now. The arguments are kept for queries.
        order.environment = Vec::new();
        let mut charge = budget.charge();
        charge.grow(order.arguments.iter().map(|argument| argument.len() as u64).sum());
        let state = State {
            log: Log::new(order.limits.output.map_or(REMEMBERED, |limit| limit.min(REMEMBERED_MAX)), charge),
            waiters: BTreeMap::new(),
            is_waiting: false,
            is_cut: false,
            cause: None,
            outcome: None,
            resources: Some(CellResources { template, _way_out: way_out, _network: network }),
        };
        Ok(Arc::new(Cell {
            id,
            order,
            kernel: Arc::clone(kernel),
            store: service.store.clone(),
            cell: guard.release(),
            addresses,
            port,
            since,
            started,
            watch: watch.clone(),
            state: Mutex::new(state),
            input: tokio::sync::Mutex::new(input),
            freezing: Arc::default(),
            jobs: Mutex::default(),
            changed: watch::channel(()).0,
            bell: heard,
        }))
    }

    /// Reads the cell's output until it has ended.
    pub(super) async fn keep(self: Arc<Cell>, service: Arc<Service>) {
        let mut bell = self.bell.clone();
        let mut taken = 0_u32;
        loop {
            self.wait_for_readers().await;
            match self.port.hear() {
                ConsoleOutput::Bytes(stream, bytes) => self.hear(&service, stream, bytes),
                ConsoleOutput::End => break,
                // The console, which notifies, exists as long as this cell.
                ConsoleOutput::Nothing => _ = bell.changed().await,
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
        if self.order.limits.time.is_some() {
            self.watch.lift(self.cell);
        }
        // No more programs can be started in it.
        let jobs = lock(&self.jobs).take();
        drop(jobs);
        let mut state = self.lock();
        state.outcome = Some(outcome);
        state.log.compact();
        let resources = state.resources.take();
        drop(state);
        // Other tasks may wait until these are released.
        if let Some(CellResources { template, .. }) = resources
            && Arc::strong_count(&template) <= 2
        {
            // Only the pool holds it now, no other clone.
            template.root.rest();
        }
        self.changed.send_replace(());
    }

    /// Waits while the log is full because a client has not read it yet. The cell blocks at its next write then.
    async fn wait_for_readers(&self) {
        let (mut changed, mut bell) = (self.changed.subscribe(), self.bell.clone());
        loop {
            bell.mark_unchanged();
            // The remaining output of an ended cell is short.
            let is_over = self.kernel.inspect(self.cell).is_err();
            let waits = {
                let mut state = self.lock();
                let is_full = state.waiters.values().any(|next| state.log.is_full_from(*next));
                state.is_waiting = is_full && !is_over && state.cause.is_none();
                state.is_waiting
            };
            if !waits {
                return;
            }
            tokio::select! { _ = changed.changed() => {}, _ = bell.changed() => {} }
        }
    }

    fn hear(&self, service: &Service, stream: Stream, mut bytes: Vec<u8>) {
        let mut state = self.lock();
        let limit = self.order.limits.output.unwrap_or(u64::MAX);
        let left = limit - state.log.written().min(limit);
        let exceeds = bytes.len() as u64 > left;
        // The output up to the limit is kept.
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if !bytes.is_empty() {
            let kept = state.waiters.values().copied().min().unwrap_or(u64::MAX);
            state.log.push(stream, &bytes, kept);
        }
        let is_short = state.log.is_short();
        drop(state);
        if exceeds || (is_short && !self.make_way(service)) {
            // It may have ended by itself.
            let _ = self.kernel.end(self.cell, End::OutputLimit);
        }
        self.changed.send_replace(());
    }

    /// Frees memory if the logs of all cells exceed their budget: removes ended cells first, then the start of this log. `false` if
    /// nothing of this log may be dropped.
    fn make_way(&self, service: &Service) -> bool {
        service.forget_ended();
        let mut state = self.lock();
        let is_promised = self.order.limits.output.is_some() && state.waiters.is_empty();
        if is_promised {
            state.is_cut = state.log.is_short();
            return !state.is_cut;
        }
        let kept = state.waiters.values().copied().min().unwrap_or(u64::MAX);
        state.log.make_way(kept);
        true
    }

    /// Its outcome, after it has ended. Blocks briefly at most.
    fn outcome(&self) -> api::Outcome {
        let (cause, is_cut) = {
            let state = self.lock();
            (state.cause, state.is_cut)
        };
        let seconds = self.since.elapsed().as_secs_f64();
        let unknown = |message| api::Outcome {
            reason: Reason::HostFailure,
            exit_code: OWN_FAILURE,
            message,
            seconds,
            cpu_seconds: 0.0,
            peak_bytes: 0,
            exits: 0,
        };
        let outcome = match wait(&self.kernel, self.cell) {
            Ok(outcome) => outcome,
            Err(error) => return unknown(error.to_string()),
        };
        let ended_by_others = outcome.end == End::Killed;
        let reason = cause.filter(|_| ended_by_others).unwrap_or_else(|| reason(&outcome.end));
        let (exit_code, message) = match reason {
            Reason::Frozen => (0, FROZEN.into()),
            Reason::OutputLimit if is_cut => (exit_status(&outcome.end), CUT.into()),
            _ => (exit_status(&outcome.end), outcome.end.to_string()),
        };
        api::Outcome {
            reason,
            exit_code,
            message,
            cpu_seconds: outcome.counters.cpu.as_secs_f64(),
            peak_bytes: outcome.usage.peak.bytes(),
            exits: outcome.counters.exits,
            ..unknown(String::new())
        }
    }

    /// Writes to its standard input, after all earlier input. `false` if it has ended without reading all.
    pub(super) async fn give(&self, mut bytes: Bytes, is_last: bool) -> bool {
        let mut first = self.input.lock().await;
        if !self.feed(&mut first).await || !self.feed(&mut bytes).await {
            return false;
        }
        if is_last {
            self.port.close_input();
        }
        true
    }

    /// Writes bytes to its standard input and removes the written part from the buffer.
    async fn feed(&self, bytes: &mut Bytes) -> bool {
        let mut bell = self.bell.clone();
        while !bytes.is_empty() {
            bell.mark_unchanged();
            match self.port.offer(bytes) {
                None => {
                    *bytes = Bytes::new();
                    return false;
                }
                Some(0) => _ = bell.changed().await,
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
    pub(super) async fn give_first(&self) {
        self.give(Bytes::new(), self.order.input_ends).await;
    }

    /// Writes a request's body to its standard input. If the client disconnects early, the input ends there.
    pub(super) async fn follow(&self, mut incoming: Incoming) {
        loop {
            let (bytes, is_last) = match incoming.next().await {
                Ok(Some(bytes)) => (bytes, false),
                Ok(None) => (Bytes::new(), true),
                Err(_) => return self.signal(api::Signal::Kill),
            };
            if !self.give(bytes, is_last).await || is_last {
                return;
            }
        }
    }

    /// Sends its program a signal; the one that cannot be caught terminates the cell.
    pub(super) fn signal(&self, signal: api::Signal) {
        match signal {
            // It may have ended.
            api::Signal::Interrupt => _ = self.kernel.interrupt(self.cell),
            api::Signal::Terminate => self.kernel.raise(self.cell, pando_abi::Event::Terminate),
            api::Signal::Kill => {
                self.lock().cause.get_or_insert(Reason::Killed);
                let _ = self.kernel.end(self.cell, End::Killed);
                self.changed.send_replace(());
            }
        }
    }

    /// Closes the read end of one of its outputs: the program gets SIGPIPE at its next write.
    pub(super) fn close_stream(&self, stream: Stream) {
        // A repeated hang-up would be queued again.
        if !self.port.is_unread(stream) {
            self.port.close_stream(stream);
        }
    }

    /// Starts an additional program in it.
    ///
    /// # Errors
    /// It has ended, the command is too long, or it has the maximal number of programs.
    pub(super) fn start_job(&self, command: &Command) -> Result<Arc<Job>, Problem> {
        let mut jobs = lock(&self.jobs);
        let ended = || Problem::state(format!("cannot start a program in cell {}: it has ended", self.id));
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

    /// Creates a template from it, holding the locks in `held`: the cell never runs again. Its program is asked to freeze and gets some
    /// time, or is stopped at once with `by_force`.
    ///
    /// # Errors
    /// It has ended, does not reach a point at which it can be frozen, or cannot be stored.
    pub(super) async fn freeze(
        self: Arc<Cell>,
        name: TemplateName,
        held: (NameLock, OwnedSemaphorePermit),
        by_force: bool,
    ) -> Result<(), Problem> {
        let turn = Arc::clone(&self.freezing).lock_owned().await;
        blocking(move || {
            // Held to the end, even if the client disconnects.
            let _turns = (turn, held);
            self.make_template(&name, by_force)
        })
        .await
    }

    fn make_template(&self, name: &TemplateName, by_force: bool) -> Result<(), Problem> {
        let Cell { kernel, cell, id, .. } = self;
        let ended = || Problem::state(format!("cannot freeze cell {id}: it has ended"));
        let template = self.lock().resources.as_ref().map(|resources| Arc::clone(&resources.template)).ok_or_else(ended)?;
        let asked = if by_force { kernel.freeze_as_it_stands(*cell) } else { kernel.ask_to_freeze(*cell) };
        asked.map_err(|_| ended())?;
        if !kernel.wait_frozen_for(*cell, FREEZE_MAX)? && kernel.withdraw_freeze(*cell)? {
            let seconds = FREEZE_MAX.as_secs();
            return Err(Problem::state(format!(
                "cannot freeze cell {id}: its program was not ready within {seconds} seconds, and continues: retry with --force, but then its clones' random numbers may not be distinct"
            )));
        }
        kernel.wait_frozen(*cell)?;
        let kept = self.store.save_clone(&template.found, kernel, *cell, name);
        self.lock().cause.get_or_insert(if kept.is_ok() { Reason::Frozen } else { Reason::Killed });
        // The cell does not continue, whether it was stored or not.
        let _ = kernel.end(*cell, End::Killed);
        Ok(kept?)
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) -> api::Outcome {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(outcome) = &self.lock().outcome {
                return outcome.clone();
            }
            // This cell holds the sender.
            let _ = changed.changed().await;
        }
    }

    /// Its output and its outcome.
    pub(super) fn ran(&self, outcome: api::Outcome) -> api::RunResult {
        let [output, errors, notes] = self.lock().log.split();
        let notes = String::from_utf8_lossy(&notes).lines().map(Into::into).collect();
        api::RunResult { outcome, stdout: api::TextOrBytes::of(output), stderr: api::TextOrBytes::of(errors), notes }
    }

    /// Its description for clients.
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
        lock(&self.state)
    }
}

/// The requested clone's program description. Its path is unused: the program runs already.
fn program(order: &CellRequest, template: &LoadedTemplate) -> Program {
    Program {
        arguments: order.arguments.iter().map(|argument| argument.clone().into_bytes()).collect(),
        environment: order.environment.clone(),
        memory: order.limits.memory.unwrap_or(template.found.memory()),
        ..Program::default()
    }
}

/// The outcome of a cell that has ended, or that has frozen without a request.
fn wait(kernel: &Kernel, cell: CellId) -> Result<Outcome, OperatorError> {
    match kernel.wait(cell) {
        Err(OperatorError::Froze) => {
            // Nothing else terminates it.
            let _ = kernel.end(cell, End::Killed);
            kernel.wait(cell)
        }
        ended => ended,
    }
}

/// The reason that is reported for an end.
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
