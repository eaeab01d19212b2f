// SPDX-License-Identifier: MIT OR Apache-2.0
//! The property: whatever a dozen cells do with their memory, on two vCPUs and in any order, each finds the memory that the model
//! predicts.
//!
//! Everything follows from the seed. In a step, a few cells execute a batch of commands, interleaved over the vCPUs, or the
//! operator acts on one: it clones, creates, ends, reads or writes it. The results are then compared with the model, command by
//! command.

use crate::guest::{COMMANDS, DISK, GuestCommand, MAX_COMMANDS, PROGRAM, Reply, encode, program, reply, words};
use crate::workload::Workload;
use pando_abi::{Event, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal, Registers};
use pando_kernel::memory::Shortage;
use pando_kernel::{CellConfig, CellId, DiskError, DiskId, End, OperatorError};
use pando_kernel::{RunState, StartMode};
use pando_machine::PageCount;
use pando_testing::disk::TestDisk;
use pando_testing::lab::Lab;
use pando_testing::model::{MAPPED, Memory};
use std::collections::VecDeque;

/// Maximum number of living cells.
const MAX_CELLS: usize = 12;
/// Maximum number of turns in a step.
const MAX_TURNS: u32 = 20_000;
/// Number of events in a failure's report.
const HISTORY: usize = 30;
/// The quota of most cells: more than they can use.
const AMPLE: PageCount = PageCount(60_000);
/// The quota of the others: they exhaust it, wait for their own quarantine, and end.
const TIGHT: PageCount = PageCount(400);

/// A cell, and the model of its memory.
struct Subject {
    id: CellId,
    memory: Memory,
    tight: bool,
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Commands that cells executed, and actions of the operator.
    pub(crate) operations: u64,
    /// Page faults that were reported to cells, included in `operations`.
    pub(crate) faults: u64,
    /// Upcalls of timers.
    pub(crate) interruptions: u64,
    /// Cells that ended because of their quota.
    pub(crate) quotas: u64,
    /// Cells that were created or cloned.
    pub(crate) cells: u64,
}

/// A run of the property.
pub(crate) struct Driver {
    lab: Lab,
    disk: DiskId,
    work: Workload,
    subjects: Vec<Subject>,
    before: PageCount,
    history: VecDeque<String>,
    tally: Tally,
}

/// Runs at least `operations` operations that follow from `seed`.
///
/// # Errors
/// A description of the failure, and the events before it.
pub(crate) fn run(lab: Lab, seed: u64, operations: u64) -> Result<Tally, String> {
    let before = lab.kernel.free();
    let disk = lab.kernel.add_disk(TestDisk::with_words(DISK.blocks, words)).expect("room for a disk");
    let mut driver =
        Driver { lab, disk, work: Workload::new(seed), subjects: Vec::new(), before, history: VecDeque::new(), tally: Tally::default() };
    driver.go(operations).map_err(|wrong| {
        let history: Vec<String> = driver.history.iter().cloned().collect();
        format!(
            "seed {seed}, after {} operations: {wrong}\nRun it again with PANDO_SEED={seed}. What came before:\n  {}",
            driver.tally.operations,
            history.join("\n  ")
        )
    })
}

impl Driver {
    fn go(&mut self, operations: u64) -> Result<Tally, String> {
        for _ in 0..4 {
            self.create()?;
        }
        while self.tally.operations < operations {
            self.step()?;
            self.check_breaches()?;
        }
        while !self.subjects.is_empty() {
            self.end(0);
        }
        self.lab.kernel.free_unused_frames();
        self.check_breaches()?;
        let free = self.lab.kernel.free();
        if free != self.before {
            return Err(format!("every cell is gone, and {} frames were free before but {} are now", self.before.0, free.0));
        }
        Ok(self.tally)
    }

    fn note(&mut self, event: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(event);
    }

    /// Checks that the software machine saw no breach of the discipline.
    fn check_breaches(&self) -> Result<(), String> {
        match self.lab.sim.as_ref().and_then(|sim| sim.breaches().first().copied()) {
            Some(breach) => Err(format!("the page-table discipline was broken: {breach}")),
            None => Ok(()),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        if self.subjects.is_empty() {
            return self.create();
        }
        if self.lab.kernel.free().0 < self.before.0 / 4 {
            let index = self.work.below(self.subjects.len());
            self.end(index);
            self.lab.kernel.free_unused_frames();
            return Ok(());
        }
        match self.work.below(100) {
            0..70 => self.batch(),
            70..82 => self.operate(),
            82..90 if self.subjects.len() < MAX_CELLS => self.clone_one(),
            90..93 if self.subjects.len() < MAX_CELLS => self.create(),
            93..98 => {
                let index = self.work.below(self.subjects.len());
                self.end(index);
                Ok(())
            }
            98 => {
                self.lab.kernel.free_unused_frames();
                Ok(())
            }
            _ => self.audit(),
        }
    }

    fn quota(&mut self) -> (bool, PageCount) {
        let tight = self.work.one_in(4);
        (tight, if tight { TIGHT } else { AMPLE })
    }

    fn create(&mut self) -> Result<(), String> {
        let (tight, quota) = self.quota();
        let id = self.build(quota).map_err(|error| format!("no cell could be made: {error}"))?;
        self.note(format!("made {id}, tight: {tight}"));
        self.subjects.push(Subject { id, memory: Memory::new(DISK), tight });
        self.insert_cell()?;
        let first = self.work.first_commands();
        self.carry_out(vec![(self.subjects.len() - 1, first)])
    }

    /// A cell with the program, not yet started.
    fn build(&self, quota: PageCount) -> Result<CellId, OperatorError> {
        let kernel = &self.lab.kernel;
        let code = program();
        let id = kernel.create(CellConfig { quota, host_name: "property".into() })?;
        kernel.map(id, PROGRAM, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE))?;
        kernel.write(id, PROGRAM, &code)?;
        kernel.map(id, COMMANDS, PageCount(1), MapFlags::lazy(Permissions::READ_WRITE))?;
        kernel.attach(id, self.disk)?;
        kernel.set_registers(id, Registers { rip: PROGRAM, ..Registers::default() })?;
        Ok(id)
    }

    fn clone_one(&mut self) -> Result<(), String> {
        let source = self.work.below(self.subjects.len());
        let (tight, quota) = self.quota();
        let (from, memory) = (self.subjects[source].id, self.subjects[source].memory.clone());
        let kernel = &self.lab.kernel;
        let id = kernel.clone_cell(from, quota).map_err(|error| format!("{from} could not be cloned: {error}"))?;
        // It continues where its source waits, with commands that are not its own.
        kernel.write(id, COMMANDS, &encode(&[])).map_err(|error| format!("the clone {id} could not be written to: {error}"))?;
        self.note(format!("cloned {from}: {id}, tight: {tight}"));
        self.subjects.push(Subject { id, memory, tight });
        self.insert_cell()
    }

    /// Starts the newest cell and runs it until its first wait.
    fn insert_cell(&mut self) -> Result<(), String> {
        self.tally.operations += 1;
        self.tally.cells += 1;
        let index = self.subjects.len() - 1;
        let id = self.subjects[index].id;
        // Entries of blocks come with the accessed bit or without: each start that is learned ends the marks.
        if self.tally.cells.is_multiple_of(2) {
            self.lab.kernel.begin_access_tracking();
        }
        if self.tally.cells.is_multiple_of(3) {
            let traced = self.lab.kernel.trace_start(id, StartMode::Record);
            traced.map_err(|error| format!("{id} could not be traced: {error}"))?;
        }
        self.lab.kernel.start(id).map_err(|error| format!("{id} could not be started: {error}"))?;
        self.run_until_idle(&[id])?;
        self.bury().map(drop)
    }

    fn end(&mut self, index: usize) {
        let subject = self.subjects.swap_remove(index);
        self.note(format!("ended {}", subject.id));
        self.lab.kernel.end(subject.id, End::Killed).expect("a subject lives");
        let outcome = self.lab.kernel.collect(subject.id).expect("a cell that waited has ended at once");
        self.tally.interruptions += outcome.counters.events;
        self.tally.operations += 1;
    }

    /// Lets one to three cells execute commands.
    fn batch(&mut self) -> Result<(), String> {
        let count = 1 + self.work.below(3.min(self.subjects.len()));
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < count {
            let index = self.work.below(self.subjects.len());
            if !chosen.contains(&index) {
                chosen.push(index);
            }
        }
        // The approximate duration of a batch; a timer that is due later has no effect.
        let span = if self.lab.sim.is_some() { 20_000 } else { 3_000_000 };
        self.work.set_clock(self.lab.kernel.now(), span);
        let mut given = Vec::new();
        for index in chosen {
            let Subject { memory, tight, .. } = &self.subjects[index];
            given.push((index, self.work.commands(memory, *tight)));
        }
        self.carry_out(given)
    }

    /// Lets cells execute these commands, and compares the results with the model.
    fn carry_out(&mut self, given: Vec<(usize, Vec<GuestCommand>)>) -> Result<(), String> {
        let mut batches = Vec::new();
        for (index, commands) in given {
            let Subject { id, tight, .. } = &self.subjects[index];
            let id = *id;
            assert!(commands.len() <= MAX_COMMANDS);
            match self.lab.kernel.write(id, COMMANDS, &encode(&commands)) {
                Ok(()) => {
                    self.lab.kernel.raise(id, Event::Console);
                    batches.push((id, commands));
                }
                Err(OperatorError::Shortage(Shortage::Quota)) if *tight => {}
                Err(error) => return Err(format!("{id} could not be given commands: {error}")),
            }
        }
        let ids: Vec<CellId> = batches.iter().map(|(id, _)| *id).collect();
        self.run_until_idle(&ids)?;
        let ended = self.bury()?;
        for (id, commands) in batches {
            self.tally.operations += commands.len() as u64;
            if !ended.contains(&id) {
                self.verify(id, &commands)?;
            }
        }
        Ok(())
    }

    /// Gives the vCPUs turns, in an order that follows from the seed, until each of `ids` waits or has ended.
    fn run_until_idle(&mut self, ids: &[CellId]) -> Result<(), String> {
        for _ in 0..MAX_TURNS {
            let busy = |id: &&CellId| match self.lab.kernel.inspect(**id) {
                Ok((state, ..)) => !matches!(state, RunState::Idle { .. }),
                Err(_) => false,
            };
            let Some(busy) = ids.iter().find(busy) else { return Ok(()) };
            let vcpu = self.work.below(self.lab.workers.len());
            if !self.lab.turn(vcpu) {
                return Err(format!("{busy} waits for ever: {:?}", self.lab.kernel.inspect(*busy)));
            }
        }
        Err("a batch does not end".into())
    }

    /// Removes cells that have ended; only cells with a tight quota may end.
    fn bury(&mut self) -> Result<Vec<CellId>, String> {
        let mut ended = Vec::new();
        for index in (0..self.subjects.len()).rev() {
            let Some(outcome) = self.lab.kernel.collect(self.subjects[index].id) else { continue };
            let Subject { id, tight, .. } = self.subjects.swap_remove(index);
            if !tight || outcome.end != End::Quota {
                return Err(format!("{id} ended: {}", outcome.end));
            }
            self.note(format!("{id} used up its quota"));
            self.tally.quotas += 1;
            ended.push(id);
        }
        Ok(ended)
    }

    /// Compares a cell's recorded results with the model.
    fn verify(&mut self, id: CellId, commands: &[GuestCommand]) -> Result<(), String> {
        let mut page = vec![0; PAGE_SIZE as usize];
        self.lab.kernel.read(id, COMMANDS, &mut page).map_err(|error| format!("the replies of {id} cannot be read: {error}"))?;
        for (index, command) in commands.iter().enumerate() {
            let got = reply(&page, index);
            let subject = self.subjects.iter_mut().find(|subject| subject.id == id).expect("it lives");
            let expected = expect(&mut subject.memory, *command, got, subject.tight);
            self.tally.faults += u64::from(matches!(got, Some(Reply::Fault(_))));
            self.note(format!("{id}: {command:x?} -> {got:x?}"));
            if got.map(|got| normal(*command, got)) != Some(expected) {
                return Err(format!("{id} did {command:x?}, which came to {got:x?} where the model says {expected:x?}"));
            }
        }
        Ok(())
    }

    /// The operator reads or writes memory of a waiting cell.
    fn operate(&mut self) -> Result<(), String> {
        let index = self.work.below(self.subjects.len());
        for _ in 0..=self.work.below(6) {
            self.tally.operations += 1;
            let Subject { id, memory, tight } = &mut self.subjects[index];
            let address = self.work.address(memory);
            let (number, write) = (self.work.value(), self.work.one_in(2));
            let id = *id;
            let (got, expected) = if write {
                let done = self.lab.kernel.write(id, address, &number.to_le_bytes());
                let short = *tight && done == Err(OperatorError::Shortage(Shortage::Quota));
                let expected = if short { None } else { memory.poke(address, number).then_some(0) };
                (if short { None } else { found(done.map(|()| 0))? }, expected)
            } else {
                let mut bytes = [0; 8];
                let done = self.lab.kernel.read(id, address, &mut bytes);
                (found(done.map(|()| u64::from_le_bytes(bytes)))?, memory.peek(address))
            };
            self.note(format!("operator, {id}: {address:#x}, write: {write}, {number:#x} -> {got:x?}"));
            if got != expected {
                return Err(format!(
                    "the operator at {address:#x} of {id} (write: {write}) got {got:x?} where the model says {expected:x?}"
                ));
            }
        }
        Ok(())
    }

    /// The operator reads every page of a cell's running space that a step may have accessed.
    fn audit(&mut self) -> Result<(), String> {
        let index = self.work.below(self.subjects.len());
        let Subject { id, memory, .. } = &self.subjects[index];
        for address in Workload::all_addresses() {
            let mut bytes = [0; 8];
            let got = found(self.lab.kernel.read(*id, address, &mut bytes).map(|()| u64::from_le_bytes(bytes)))?;
            let expected = memory.peek(address);
            if got != expected {
                return Err(format!("the operator read {got:x?} at {address:#x} of {id} where the model says {expected:x?}"));
            }
        }
        self.tally.operations += 1;
        Ok(())
    }
}

/// The result of an operator's call: `None` if nothing is mapped, or the memory cannot be read.
fn found(done: Result<u64, OperatorError>) -> Result<Option<u64>, String> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(OperatorError::Refused(Refusal::BadAddress) | OperatorError::Disk(DiskError)) => Ok(None),
        Err(error) => Err(format!("the operator was refused: {error}")),
    }
}

/// The expected result of a command. A cell with a tight quota may be refused an edit instead; then nothing has changed.
fn expect(memory: &mut Memory, command: GuestCommand, got: Option<Reply>, tight: bool) -> Reply {
    let access = |value: Option<u64>, address: u64| value.map_or(Reply::Fault(address), Reply::Value);
    match command {
        GuestCommand::Load(address) => access(memory.load(address), address),
        GuestCommand::Store(address, value) | GuestCommand::StoreTimed(address, value, _) => {
            access(memory.store(address, value).then_some(value), address)
        }
        GuestCommand::Fetch(address) => access(memory.fetch(address).map(|_| 0), address),
        GuestCommand::Call(Hypercall::Relinquish {}) => Reply::Value(0),
        GuestCommand::Call(call) => {
            let full = Reply::Value(Refusal::Quota.to_result());
            let edit = matches!(
                call,
                Hypercall::Map { .. }
                    | Hypercall::MapBlocks { .. }
                    | Hypercall::Populate { .. }
                    | Hypercall::Unmap { .. }
                    | Hypercall::Protect { .. }
            );
            if tight && edit && got == Some(full) {
                return full;
            }
            Reply::Value(memory.call(call).unwrap_or_else(Refusal::to_result))
        }
    }
}

/// A reply in the model's form, which does not tell whether memory is resident and in pages of what size.
fn normal(command: GuestCommand, got: Reply) -> Reply {
    const MADE_OR_LAZY: u64 = 3 << 3;
    match (command, got) {
        (GuestCommand::Call(Hypercall::Inspect { .. }), Reply::Value(bits)) if bits < 1 << 44 => {
            Reply::Value(bits & 7 | if bits & MADE_OR_LAZY != 0 { MAPPED } else { 0 })
        }
        _ => got,
    }
}
