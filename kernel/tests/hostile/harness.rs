// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness for hostile cells: one vCPU, a victim cell on it that checks its own state, and a count of all frames at the end.

use crate::victim::Neighbour;
use pando_abi::virtual_registers::Control;
use pando_abi::{Event, Registers};
use pando_kernel::sched::{ReadyReason, Scheduler};
use pando_kernel::{CellId, Config, DiskId, End, Outcome};
use pando_machine::kvm::Omit;
use pando_machine::{PageCount, Violation};
use pando_testing::asm::Asm;
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, Lab, QUOTA, STACK_TOP, is_kvm_available, repetitions};
use pando_testing::virtual_registers::set_control;
use std::collections::VecDeque;
use std::time::Duration;

/// Memory of the machine: little, so that a leak is soon noticed.
const ARENA: PageCount = PageCount(1 << 14);
/// How long a hostile cell runs at first: its own timer takes it off the vCPU.
const SLICE: Duration = Duration::from_micros(300);
/// Timeout for a cell that must end by itself, on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs cells strictly in turn, for any reason: the victim has been interrupted when the hostile cell runs, and runs next after it.
#[derive(Default)]
struct InTurn(VecDeque<CellId>);

impl Scheduler for InTurn {
    fn ready(&mut self, cell: CellId, _: ReadyReason) {
        self.0.push_back(cell);
    }

    fn next(&mut self) -> Option<CellId> {
        self.0.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The configuration of a hostile cell.
pub struct HostileCell {
    pub name: String,
    pub code: Vec<u8>,
    pub registers: Registers,
    pub control: Control,
    pub quota: PageCount,
}

impl HostileCell {
    /// A cell that starts in `code`, at level 0, with a stack.
    pub fn new(name: impl Into<String>, code: &[u8]) -> HostileCell {
        HostileCell {
            name: name.into(),
            code: code.into(),
            registers: Registers { rip: CODE, rsp: STACK_TOP, ..Registers::default() },
            control: Control { timer: u64::MAX, ..Control::default() },
            quota: QUOTA,
        }
    }

    /// A cell with assembled code.
    pub fn assembled(name: impl Into<String>, build: impl FnOnce(&mut Asm)) -> HostileCell {
        let mut asm = Asm::new();
        build(&mut asm);
        HostileCell::new(name, &asm.finish())
    }
}

/// An expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// This exception, which the cell does not handle.
    Fault(u8),
    /// Any exception that the cell does not handle.
    AnyFault,
    /// An exception while it was handling another.
    DoubleFault,
    /// A violation, with a clear message.
    Violation,
    /// It exited with this status.
    Exits(u8),
    /// It made the call that ends it, with any arguments.
    Calls,
    /// It had to be ended.
    Endless,
    /// Its quota is used up.
    Quota,
    /// Any end with a clear message.
    Anything,
}

/// A kernel with a victim cell.
pub struct Harness {
    pub lab: Lab,
    neighbour: Neighbour,
    /// A disk of every hostile cell, of which some blocks cannot be read.
    disk: DiskId,
    free: PageCount,
}

impl Harness {
    /// A harness on every machine.
    pub fn both() -> Vec<Harness> {
        Lab::each(ARENA, Harness::config).into_iter().map(Harness::on).collect()
    }

    /// A harness on the real machine, if there is one: for instructions that the software machine lacks.
    pub fn real() -> Option<Harness> {
        is_kvm_available().then(|| Harness::on(Lab::kvm(ARENA, 1, Harness::config(), Omit::NOTHING)))
    }

    /// Policies under which cells take turns strictly.
    pub fn config() -> Config {
        Config { scheduler: Box::<InTurn>::default(), ..Config::default() }
    }

    fn on(mut lab: Lab) -> Harness {
        let free = lab.kernel.free();
        let neighbour = Neighbour::new(&mut lab);
        let words = |number: u32| (number % 7 != 3).then_some([number.into(); 2]);
        let disk = lab.kernel.add_disk(TestDisk::with_words(2000, words)).expect("room for a disk");
        Harness { lab, neighbour, disk, free }
    }

    /// Runs a hostile cell between two halves of the victim's round, repeatedly until it has ended. Its end must be among
    /// `allowed`.
    pub fn try_cell(&mut self, hostile: &HostileCell, allowed: &[ExpectedEnd]) -> Outcome {
        let id = self.begin(hostile);
        // A cell that may be endless is preempted and runs again. Cells with any result are many, so each gets one turn.
        let turns = match allowed {
            [ExpectedEnd::Anything] => 1,
            _ if allowed.contains(&ExpectedEnd::Endless) => 2,
            _ => u32::MAX,
        };
        let outcome = self.take_turns(id, &hostile.name, turns);
        assert!(is_clear(&outcome.end), "{}: {} is no reason that a person understands", hostile.name, outcome.end);
        let fits = allowed.iter().any(|verdict| fits(*verdict, &outcome.end));
        assert!(fits, "{}: {} ({:?}) is none of {allowed:?}", hostile.name, outcome.end, outcome.end);
        outcome
    }

    fn insert_cell(&self, hostile: &HostileCell) -> CellId {
        let id = self.lab.cell_with(&hostile.code, hostile.quota);
        self.lab.kernel.attach(id, self.disk).expect("its first disk");
        let Control { timer, mask, .. } = hostile.control;
        let control = match timer {
            // It is taken off the vCPU without an event.
            u64::MAX => Control { timer: (self.lab.kernel.now() + SLICE).0, mask: mask | 1 << Event::Timer as u8, ..hostile.control },
            _ => hostile.control,
        };
        set_control(&self.lab, id, &control);
        self.lab.kernel.set_registers(id, hostile.registers).expect("it is not running");
        id
    }

    /// Gives a cell another turn. `false`: it has ended.
    pub fn go_on(&mut self, id: CellId, name: &str) -> bool {
        self.neighbour.begin_round(&self.lab);
        self.neighbour.finish_round(&mut self.lab, name);
        self.lab.kernel.inspect(id).is_ok()
    }

    /// Ends a cell that [`Harness::begin`] started, unless it has ended by itself.
    pub fn conclude(&mut self, id: CellId, name: &str) -> Outcome {
        if self.lab.kernel.end(id, End::TimedOut).is_ok() {
            self.go_on(id, name);
        }
        self.lab.kernel.collect(id).expect("it has ended")
    }

    /// Starts a hostile cell and gives it its first turn, for tests that inspect it in between.
    pub fn begin(&mut self, hostile: &HostileCell) -> CellId {
        let id = self.insert_cell(hostile);
        self.neighbour.begin_round(&self.lab);
        self.lab.kernel.start(id).expect("it was not started before");
        self.neighbour.finish_round(&mut self.lab, &hostile.name);
        id
    }

    fn take_turns(&mut self, id: CellId, name: &str, turns: u32) -> Outcome {
        let limit = self.lab.kernel.now() + TIMEOUT;
        for _ in 1..turns {
            let over = self.lab.kernel.inspect(id).is_err() || self.lab.kernel.now() > limit;
            if over || !self.go_on(id, name) {
                break;
            }
        }
        self.conclude(id, name)
    }

    /// Checks that an ordinary cell still works, and that every frame is free again.
    pub fn close(mut self) {
        let honest = HostileCell::assembled("an honest cell", |asm| {
            asm.call_kernel(pando_testing::virtual_registers::exit(42));
        });
        self.try_cell(&honest, &[ExpectedEnd::Exits(42)]);
        self.neighbour.dismiss(&self.lab);
        self.lab.kernel.free_unused_frames();
        assert_eq!(self.lab.kernel.free(), self.free, "frames are lost");
        assert_eq!(self.lab.kernel.cells(), 0);
        if let Some(sim) = &self.lab.sim {
            assert_eq!((sim.stale_reads(), sim.breaches()), (0, vec![]), "the page-table discipline was broken");
        }
    }
}

fn fits(verdict: ExpectedEnd, end: &End) -> bool {
    match (verdict, end) {
        (ExpectedEnd::Fault(wanted), End::Fault(fault)) => wanted == fault.vector,
        (ExpectedEnd::Exits(wanted), End::Exited { status }) => wanted == *status,
        (ExpectedEnd::AnyFault, End::Fault(_))
        | (ExpectedEnd::DoubleFault, End::DoubleFault(_))
        | (ExpectedEnd::Violation, End::Violation(_))
        | (ExpectedEnd::Calls, End::Exited { .. } | End::Signalled { .. })
        | (ExpectedEnd::Endless, End::TimedOut)
        | (ExpectedEnd::Quota, End::Quota)
        | (ExpectedEnd::Anything, _) => true,
        _ => false,
    }
}

/// All rows of a table; on an emulated CPU `few` of them, evenly spread.
pub fn rows<T>(table: Vec<T>, few: usize) -> impl Iterator<Item = T> {
    let step = if repetitions(0, 1, 1) > 0 { 1 } else { table.len().div_ceil(few) };
    table.into_iter().step_by(step)
}

/// Whether a cell can cause this end, and the end has a clear message.
pub fn is_clear(end: &End) -> bool {
    let text = end.to_string();
    let ours = matches!(end, End::Host(_) | End::Stuck { .. } | End::Killed | End::Violation(Violation::OutsideMemory));
    !ours && !text.is_empty() && !text.contains("KVM exit")
}
