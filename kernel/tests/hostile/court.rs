// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where hostile cells are tried: one vCPU, a neighbour on it, and the books balanced in the end.

use crate::cell::set_control;
use crate::neighbour::Neighbour;
use pando_abi::virtual_registers::Control;
use pando_abi::{Event, Registers};
use pando_kernel::sched::{Reason, Scheduler};
use pando_kernel::{CellId, Config, DiskId, End, Outcome};
use pando_machine::kvm::Omit;
use pando_machine::{PageCount, Violation};
use pando_testing::asm::Asm;
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, Lab, QUOTA, STACK_TOP, kvm_is_there, repetitions};
use std::collections::VecDeque;
use std::time::Duration;

/// Memory of the machine: little, so that what is lost is missed soon.
const ARENA: PageCount = PageCount(1 << 14);
/// How long a hostile cell runs at first: its own timer takes it off the vCPU.
const SLICE: Duration = Duration::from_micros(300);
/// How long a cell that must end by itself may take, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Strictly in turn, whatever the reason: so that the neighbour has been interrupted when the hostile cell runs, and comes next after it.
#[derive(Default)]
struct InTurn(VecDeque<CellId>);

impl Scheduler for InTurn {
    fn ready(&mut self, cell: CellId, _: Reason) {
        self.0.push_back(cell);
    }

    fn next(&mut self) -> Option<CellId> {
        self.0.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A hostile cell to be.
pub struct Hostile {
    pub name: String,
    pub code: Vec<u8>,
    pub registers: Registers,
    pub control: Control,
    pub quota: PageCount,
}

impl Hostile {
    /// A cell that starts in `code`, at level 0, with a stack.
    pub fn new(name: impl Into<String>, code: &[u8]) -> Hostile {
        Hostile {
            name: name.into(),
            code: code.into(),
            registers: Registers { rip: CODE, rsp: STACK_TOP, ..Registers::default() },
            control: Control { timer: u64::MAX, ..Control::default() },
            quota: QUOTA,
        }
    }

    /// The same, assembled.
    pub fn assembled(name: impl Into<String>, build: impl FnOnce(&mut Asm)) -> Hostile {
        let mut asm = Asm::new();
        build(&mut asm);
        Hostile::new(name, &asm.finish())
    }
}

/// What a trial may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This exception, which nobody in the cell takes.
    Fault(u8),
    /// Some exception that nobody takes.
    AnyFault,
    /// An exception while it was handling another.
    DoubleFault,
    /// What no cell may do, told clearly.
    Violation,
    /// It ended by itself with this status.
    Exits(u8),
    /// It made the call that ends it, whatever the arguments.
    Calls,
    /// It had to be ended.
    Endless,
    /// Its memory is used up.
    Quota,
    /// Any end that is clear.
    Anything,
}

/// A kernel with a neighbour.
pub struct Court {
    pub lab: Lab,
    neighbour: Neighbour,
    /// A disk that every hostile cell has, parts of which cannot be read.
    disk: DiskId,
    free: PageCount,
}

impl Court {
    /// On every machine.
    pub fn both() -> Vec<Court> {
        Lab::each(ARENA, Court::config).into_iter().map(Court::on).collect()
    }

    /// On the real machine, where it is there: for instructions that only a CPU knows.
    pub fn real() -> Option<Court> {
        kvm_is_there().then(|| Court::on(Lab::kvm(ARENA, 1, Court::config(), Omit::NOTHING)))
    }

    /// Policies under which cells take turns strictly.
    pub fn config() -> Config {
        Config { scheduler: Box::<InTurn>::default(), ..Config::default() }
    }

    fn on(mut lab: Lab) -> Court {
        let free = lab.kernel.free();
        let neighbour = Neighbour::new(&mut lab);
        let words = |number: u32| (number % 7 != 3).then_some([number.into(); 2]);
        let disk = lab.kernel.add_disk(TestDisk::with_words(2000, words)).expect("room for a disk");
        Court { lab, neighbour, disk, free }
    }

    /// Runs a hostile cell between two halves of the neighbour's round, again if it wants more, until it has ended. What it came to must be among `allowed`.
    pub fn try_cell(&mut self, hostile: &Hostile, allowed: &[Verdict]) -> Outcome {
        let id = self.begin(hostile);
        // One that may be endless is preempted and comes back; of what may be anything there is a lot.
        let turns = match allowed {
            [Verdict::Anything] => 1,
            _ if allowed.contains(&Verdict::Endless) => 2,
            _ => u32::MAX,
        };
        let outcome = self.take_turns(id, &hostile.name, turns);
        assert!(is_clear(&outcome.end), "{}: {} is no reason that a person understands", hostile.name, outcome.end);
        let fits = allowed.iter().any(|verdict| fits(*verdict, &outcome.end));
        assert!(fits, "{}: {} ({:?}) is none of {allowed:?}", hostile.name, outcome.end, outcome.end);
        outcome
    }

    fn settle_in(&self, hostile: &Hostile) -> CellId {
        let id = self.lab.cell_with(&hostile.code, hostile.quota);
        self.lab.kernel.attach(id, self.disk).expect("its first disk");
        let Control { timer, mask, .. } = hostile.control;
        let control = match timer {
            // Taken off the vCPU, and told nothing.
            u64::MAX => Control { timer: (self.lab.kernel.now() + SLICE).0, mask: mask | 1 << Event::Timer as u8, ..hostile.control },
            _ => hostile.control,
        };
        set_control(&self.lab, id, &control);
        self.lab.kernel.set_registers(id, hostile.registers).expect("it is not running");
        id
    }

    /// One more turn. `false`: it has ended.
    pub fn go_on(&mut self, id: CellId, name: &str) -> bool {
        self.neighbour.begin_round(&self.lab);
        self.neighbour.finish_round(&mut self.lab, name);
        self.lab.kernel.inspect(id).is_ok()
    }

    /// Ends a cell that [`Court::begin`] started, if it has not ended by itself.
    pub fn conclude(&mut self, id: CellId, name: &str) -> Outcome {
        if self.lab.kernel.end(id, End::TimedOut).is_ok() {
            self.go_on(id, name);
        }
        self.lab.kernel.collect(id).expect("it has ended")
    }

    /// Starts a hostile cell and gives it its first turn, for tests that look at it in between.
    pub fn begin(&mut self, hostile: &Hostile) -> CellId {
        let id = self.settle_in(hostile);
        self.neighbour.begin_round(&self.lab);
        self.lab.kernel.start(id).expect("it was not started before");
        self.neighbour.finish_round(&mut self.lab, &hostile.name);
        id
    }

    fn take_turns(&mut self, id: CellId, name: &str, turns: u32) -> Outcome {
        let limit = self.lab.kernel.now() + PATIENCE;
        for _ in 1..turns {
            let over = self.lab.kernel.inspect(id).is_err() || self.lab.kernel.now() > limit;
            if over || !self.go_on(id, name) {
                break;
            }
        }
        self.conclude(id, name)
    }

    /// The end of the session: an honest cell still works, and every frame is free again.
    pub fn close(mut self) {
        let honest = Hostile::assembled("an honest cell", |asm| {
            asm.call_kernel(crate::cell::exit(42));
        });
        self.try_cell(&honest, &[Verdict::Exits(42)]);
        self.neighbour.dismiss(&self.lab);
        self.lab.kernel.settle();
        assert_eq!(self.lab.kernel.free(), self.free, "frames are lost");
        assert_eq!(self.lab.kernel.cells(), 0);
        if let Some(sim) = &self.lab.sim {
            assert_eq!((sim.stale_reads(), sim.breaches()), (0, vec![]), "the page-table discipline was broken");
        }
    }
}

fn fits(verdict: Verdict, end: &End) -> bool {
    match (verdict, end) {
        (Verdict::Fault(wanted), End::Fault(fault)) => wanted == fault.vector,
        (Verdict::Exits(wanted), End::Exited { status }) => wanted == *status,
        (Verdict::AnyFault, End::Fault(_))
        | (Verdict::DoubleFault, End::DoubleFault(_))
        | (Verdict::Violation, End::Violation(_))
        | (Verdict::Calls, End::Exited { .. } | End::Signalled { .. })
        | (Verdict::Endless, End::TimedOut)
        | (Verdict::Quota, End::Quota)
        | (Verdict::Anything, _) => true,
        _ => false,
    }
}

/// All rows of a table; on an emulated CPU so many of them, evenly spread.
pub fn rows<T>(table: Vec<T>, few: usize) -> impl Iterator<Item = T> {
    let step = if repetitions(0, 1, 1) > 0 { 1 } else { table.len().div_ceil(few) };
    table.into_iter().step_by(step)
}

/// Whether an end is one that a cell can bring about by itself, told in words.
pub fn is_clear(end: &End) -> bool {
    let text = end.to_string();
    let ours = matches!(end, End::Host(_) | End::Stuck { .. } | End::Killed | End::Violation(Violation::OutsideMemory));
    !ours && !text.is_empty() && !text.contains("KVM exit")
}
