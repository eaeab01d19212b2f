// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell as the service keeps it: what it was asked for, what it said, and how it ended.

mod reading;

pub(super) use reading::Reader;

use super::gateways::{Place, WayOut};
use super::log::Log;
use super::networks::Network;
use super::pool::{Held, Warm};
use super::problem::Problem;
use super::streams::Incoming;
use super::{Service, blocking, lock};
use crate::api::{self, Reason};
use crate::cli::Limits;
use crate::guard::CellGuard;
use crate::run::told;
use crate::size::Size;
use crate::template::Name;
use crate::watch::Watch;
use axum::body::Bytes;
use pando_gateway::Rule;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, ConsolePort, End, Heard, Kernel, OperatorError, Outcome, Stream};
use pando_launch::{Command, Job, Jobs, Program};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Pieces of output that are taken before others have their turn.
const TURN: u32 = 64;
/// Bytes that are remembered of what a cell says where nobody sets a limit.
const REMEMBERED: u64 = 1 << 20;
/// The same where somebody does.
const REMEMBERED_MAX: u64 = 64 << 20;
/// How long a cell may take to come to where it can be frozen.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// How a cell ended of which a template was made.
const FROZEN: &str = "frozen: a template was made of it";
/// How a cell ended whose output the service has no room for.
const CUT: &str = "the output that this service remembers of all its cells takes all the memory that it may: end or remove some, or start the service with more (--memory)";

/// What a cell is asked to be.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) template: Name,
    pub(super) arguments: Vec<String>,
    /// Each as NAME=VALUE.
    pub(super) environment: Vec<Vec<u8>>,
    pub(super) limits: Limits,
    pub(super) host_name: Option<String>,
    /// The network that it is plugged into.
    pub(super) network: Option<String>,
    /// What of the world outside it may reach. Where it is anything, it has a network to itself.
    pub(super) allow: Vec<Rule>,
    pub(super) input: Vec<u8>,
    /// Nothing follows that.
    pub(super) input_ends: bool,
    /// Somebody reads all that it says, and it waits for them.
    pub(super) whole: bool,
}

/// A cell, running or ended.
pub(super) struct Cell {
    pub(super) id: u64,
    order: Order,
    kernel: Arc<Kernel>,
    cell: CellId,
    addresses: Option<Addresses>,
    port: Arc<ConsolePort>,
    since: Instant,
    started: SystemTime,
    watch: Watch,
    state: Mutex<State>,
    /// What it was ordered with, until it has taken that: it goes before all other input. Held by whoever gives it some, so that one piece follows the other.
    input: tokio::sync::Mutex<Bytes>,
    /// Held while a template is made of it: how it ended is told when that is there.
    freezing: Arc<tokio::sync::Mutex<()>>,
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
    /// The positions from which those want to read on for whom the cell waits.
    waiters: BTreeMap<u64, u64>,
    /// The cell waits for its readers.
    is_waiting: bool,
    /// It was ended because the logs of all cells together took too much.
    is_cut: bool,
    /// Why it was ended, if it was not by itself.
    cause: Option<Reason>,
    outcome: Option<api::Outcome>,
    /// What others do not give up until it has ended.
    means: Option<Means>,
}

/// What a cell lives by.
struct Means {
    /// What it is cloned from.
    template: Arc<Warm>,
    /// What leads it out.
    _way_out: Option<WayOut>,
    /// What it is plugged into.
    _network: Option<Arc<Network>>,
}

impl Cell {
    /// Clones a template and starts the clone. Somebody must [`keep`](Cell::keep) it then. O(1).
    ///
    /// # Errors
    /// There is not enough memory, or what it is given is too long.
    pub(super) fn start(
        service: &Service,
        id: u64,
        mut order: Order,
        template: Arc<Warm>,
        place: Option<Arc<Place>>,
    ) -> Result<Arc<Cell>, Problem> {
        let Service { kernel, watch, networks, gateways, budget, .. } = service;
        let (since, started) = (Instant::now(), SystemTime::now());
        // Before the cell, which is not plugged in any more when this goes.
        let network = match &order.network {
            Some(name) => Some(networks.get(name)?),
            None => place.as_ref().map(|_| networks.make()).transpose()?,
        };
        let program = program(&order, &template);
        let guard = CellGuard::new(kernel, program.prepare(kernel, &template.root)?);
        let cell = guard.cell();
        order.limits.apply(kernel, cell)?;
        let host_name = order.host_name.clone().unwrap_or_else(|| format!("{}-{id}", order.template));
        kernel.set_host_name(cell, &host_name)?;
        let addresses = network.as_ref().map(|network| kernel.plug(cell, network.id(), Link::default())).transpose()?;
        let way_out = match (&network, &addresses, place) {
            (Some(network), Some(own), Some(place)) => {
                let program = format!("cell {id}, {}", order.template);
                Some(gateways.open(kernel, (cell, own, program), network, (std::mem::take(&mut order.allow), place))?)
            }
            _ => None,
        };
        let port = kernel.console(cell)?;
        // What does not fit at once is sent by whoever keeps it.
        let input = Bytes::from(std::mem::take(&mut order.input));
        if input.is_empty() && order.input_ends {
            port.close_input();
        }
        let (bell, heard) = watch::channel(());
        port.listen(move || bell.send_replace(()));
        kernel.start(cell)?;
        if let Some(time) = order.limits.timeout {
            watch.limit(cell, time, End::TimedOut);
        }
        let means = Means { template, _way_out: way_out, _network: network };
        // The cell has its environment; its arguments can be asked for.
        order.environment = Vec::new();
        let mut charge = budget.charge();
        charge.grow(order.arguments.iter().map(|argument| argument.len() as u64).sum());
        let log = Log::new(order.limits.output_limit.map_or(REMEMBERED, |limit| limit.in_bytes().min(REMEMBERED_MAX)), charge);
        let state =
            State { log, waiters: BTreeMap::new(), is_waiting: false, is_cut: false, cause: None, outcome: None, means: Some(means) };
        Ok(Arc::new(Cell {
            id,
            order,
            kernel: Arc::clone(kernel),
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

    /// Listens to the cell until it has ended.
    pub(super) async fn keep(self: Arc<Cell>, service: Arc<Service>) {
        let mut bell = self.bell.clone();
        let mut taken = 0_u32;
        loop {
            self.wait_for_readers().await;
            match self.port.hear() {
                Heard::Bytes(stream, bytes) => self.hear(&service, stream, bytes),
                Heard::End => break,
                // Who rings is there as long as the console is, which this cell has.
                Heard::Nothing => _ = bell.changed().await,
            }
            taken = taken.wrapping_add(1);
            if taken.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        // Of one that was frozen the template is there, or will not be.
        let frozen = self.freezing.lock().await;
        let outcome = self.outcome();
        drop(frozen);
        if self.order.limits.timeout.is_some() {
            self.watch.lift(self.cell);
        }
        // Nothing is started in it any more.
        let jobs = lock(&self.jobs).take();
        drop(jobs);
        let mut state = self.lock();
        state.outcome = Some(outcome);
        state.log.compact();
        let means = state.means.take();
        drop(state);
        // Others may have waited for it to give these up.
        if let Some(Means { template, .. }) = means
            && Arc::strong_count(&template) <= 2
        {
            // The pool has it, and no other clone.
            template.root.rest();
        }
        self.changed.send_replace(());
    }

    /// Waits while there is no room for what the cell says, because somebody for whom it waits has not read what it said. It stops at its next word then.
    async fn wait_for_readers(&self) {
        let (mut changed, mut bell) = (self.changed.subscribe(), self.bell.clone());
        loop {
            bell.mark_unchanged();
            // What is left of one that has ended is not much.
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
        let limit = self.order.limits.output_limit.map_or(u64::MAX, Size::in_bytes);
        let left = limit - state.log.written().min(limit);
        let exceeds = bytes.len() as u64 > left;
        // What it may say is told.
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

    /// Makes room where the logs of all cells together take too much: forgets those that have ended, then the beginning of this one's. `false`: nothing of this one's may be forgotten.
    fn make_way(&self, service: &Service) -> bool {
        service.forget_ended();
        let mut state = self.lock();
        let is_promised = self.order.limits.output_limit.is_some() && state.waiters.is_empty();
        if is_promised {
            state.is_cut = state.log.is_short();
            return !state.is_cut;
        }
        let kept = state.waiters.values().copied().min().unwrap_or(u64::MAX);
        state.log.make_way(kept);
        true
    }

    /// How it ended. It has: this waits for moments at most.
    fn outcome(&self) -> api::Outcome {
        let (cause, is_cut) = {
            let state = self.lock();
            (state.cause, state.is_cut)
        };
        let seconds = self.since.elapsed().as_secs_f64();
        let unknown = |message| api::Outcome {
            reason: Reason::HostFailure,
            exit_code: crate::say::OWN_FAILURE,
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
            Reason::OutputLimit if is_cut => (told(&outcome).0, CUT.into()),
            _ => (told(&outcome).0, outcome.end.to_string()),
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

    /// Gives it these bytes as it takes them, after all that it was given before. `false`: it has ended and nobody will read the rest.
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

    /// Gives it bytes, and lets go of what it has taken.
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

    /// Whether something of what it was ordered with waits for it.
    pub(super) fn has_input(&self) -> bool {
        self.input.try_lock().is_ok_and(|first| !first.is_empty())
    }

    /// Gives it what it was ordered with.
    pub(super) async fn give_first(&self) {
        self.give(Bytes::new(), self.order.input_ends).await;
    }

    /// Gives it what a request sends, to its end; that of one who breaks off before is the cell's.
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

    /// Tells its program that nobody reads one of its outputs any more, when it writes there again.
    pub(super) fn hang_up(&self, stream: Stream) {
        // It is remembered each time it is said.
        if !self.port.is_unread(stream) {
            self.port.hang_up(stream);
        }
    }

    /// Starts a program in it besides its first one.
    ///
    /// # Errors
    /// It has ended, what the program is given is too long, or there are as many as there may be.
    pub(super) fn start_job(&self, command: &Command) -> Result<Arc<Job>, Problem> {
        let mut jobs = lock(&self.jobs);
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

    /// Makes a template of it, with what is `held` for that: it never runs again. Its program is asked to freeze, for a while, or stopped as it stands.
    ///
    /// # Errors
    /// It has ended, does not come to where it could be frozen, or cannot be kept.
    pub(super) async fn freeze(self: Arc<Cell>, name: Name, held: (Held, OwnedSemaphorePermit), by_force: bool) -> Result<(), Problem> {
        let turn = Arc::clone(&self.freezing).lock_owned().await;
        blocking(move || {
            // To its end, whoever waits.
            let _turns = (turn, held);
            self.make_template(&name, by_force)
        })
        .await
    }

    fn make_template(&self, name: &Name, by_force: bool) -> Result<(), Problem> {
        let Cell { kernel, cell, id, .. } = self;
        let ended = || Problem::state(format!("cell {id} has ended: it cannot be frozen"));
        let template = self.lock().means.as_ref().map(|means| Arc::clone(&means.template)).ok_or_else(ended)?;
        let asked = if by_force { kernel.freeze_as_it_stands(*cell) } else { kernel.ask_to_freeze(*cell) };
        asked.map_err(|_| ended())?;
        if !kernel.wait_frozen_for(*cell, FREEZE_MAX)? && kernel.withdraw_freeze(*cell)? {
            let seconds = FREEZE_MAX.as_secs();
            return Err(Problem::state(format!(
                "cell {id} did not come to where it can be frozen within {seconds} seconds, and goes on: by force, it is stopped as it stands, and nothing promises that its clones' random numbers are distinct"
            )));
        }
        kernel.wait_frozen(*cell)?;
        let kept = template.found.keep(kernel, *cell, name);
        self.lock().cause.get_or_insert(if kept.is_ok() { Reason::Frozen } else { Reason::Killed });
        // Whether it was kept or not: it does not go on.
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
            // Who rings is this cell.
            let _ = changed.changed().await;
        }
    }

    /// All that it said, and how it ended.
    pub(super) fn ran(&self, outcome: api::Outcome) -> api::Ran {
        let [output, errors, notes] = self.lock().log.split();
        let notes = String::from_utf8_lossy(&notes).lines().map(Into::into).collect();
        api::Ran { outcome, stdout: api::Text::of(output), stderr: api::Text::of(errors), notes }
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
        lock(&self.state)
    }
}

/// A clone of a template as it is ordered. Its path and so on nobody asks for: it runs already.
fn program(order: &Order, template: &Warm) -> Program {
    Program {
        arguments: order.arguments.iter().map(|argument| argument.clone().into_bytes()).collect(),
        environment: order.environment.clone(),
        memory: order.limits.memory.map_or(template.found.memory(), |size| size.pages()),
        ..Program::default()
    }
}

/// What a cell came to that has ended, or has frozen although nobody asked it to.
fn wait(kernel: &Kernel, cell: CellId) -> Result<Outcome, OperatorError> {
    match kernel.wait(cell) {
        Err(OperatorError::Froze) => {
            // Nobody else ends it.
            let _ = kernel.end(cell, End::Killed);
            kernel.wait(cell)
        }
        ended => ended,
    }
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
