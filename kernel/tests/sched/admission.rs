// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of many cells that are started at once, few start at a time, in order, and none keeps the others from their start.

use pando_abi::{Event, Hypercall};
use pando_kernel::limits::START_PHASE_CPU_MAX;
use pando_kernel::sched::Fifo;
use pando_kernel::{CellId, Config, CpuLimit, End, RunState, Weight};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Condition::NotZero;
use pando_testing::asm::Register::R15;
use pando_testing::lab::{Lab, seeds};
use pando_testing::swap::TestSwap;
use pando_testing::virtual_registers::exit;
use std::sync::{Arc, Mutex};

const IDLE: Hypercall = Hypercall::Idle { deadline: u64::MAX };

/// A program of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Idles,
    Exits,
    Crashes,
    /// Computes for ever.
    Spins,
    /// Idles between short computations.
    Ticks,
    /// Gives up the rest of each quantum, for ever.
    Yields,
}

use Behaviour::{Crashes, Exits, Idles, Spins, Ticks, Yields};

impl Behaviour {
    fn code(self) -> Vec<u8> {
        let mut asm = Asm::new();
        asm.mov_imm(R15, 100);
        let compute = asm.here();
        asm.dec(R15).jump_if(NotZero, compute);
        let again = asm.here();
        match self {
            Idles => asm.call_kernel(IDLE),
            Exits => asm.call_kernel(exit(0)),
            Crashes => asm.ud2(),
            Spins => asm.nop(),
            Ticks => asm.call_kernel(Hypercall::Idle { deadline: 1 << 40 }),
            Yields => asm.call_kernel(Hypercall::Relinquish {}),
        };
        asm.jmp(again);
        asm.finish()
    }

    /// Whether it idles or ends soon after its start.
    fn settles(self) -> bool {
        !matches!(self, Spins | Yields)
    }
}

/// Cells that were started at once, and the order in which they were admitted.
struct Started {
    cells: Vec<(CellId, Behaviour)>,
    admitted: Arc<Mutex<Vec<CellId>>>,
}

impl Started {
    fn new(lab: &Lab, behaviours: impl IntoIterator<Item = Behaviour>) -> Started {
        let mut started = Started { cells: Vec::new(), admitted: Arc::default() };
        behaviours.into_iter().for_each(|behaviour| _ = started.start(lab, behaviour, |_| {}));
        started
    }

    fn start(&mut self, lab: &Lab, behaviour: Behaviour, prepare: impl FnOnce(CellId)) -> CellId {
        let id = lab.cell_with(&behaviour.code(), PageCount(256));
        prepare(id);
        let admitted = Arc::clone(&self.admitted);
        let callback = move || admitted.lock().expect("no holder panics").push(id);
        lab.kernel.start_with(id, Some(Box::new(callback))).expect("it was not started before");
        self.cells.push((id, behaviour));
        id
    }

    fn admitted(&self) -> Vec<CellId> {
        self.admitted.lock().expect("no holder panics").clone()
    }

    fn has_admitted(&self, id: CellId) -> bool {
        self.admitted().contains(&id)
    }

    /// Runs cells until this one is admitted.
    fn wait_for(&self, lab: &mut Lab, id: CellId) {
        for _ in 0..2000 {
            if self.has_admitted(id) {
                return;
            }
            lab.turn(0);
        }
        panic!("the cell is not admitted");
    }

    /// The cells in these run states.
    fn in_states(&self, lab: &Lab, is_wanted: impl Fn(RunState) -> bool) -> Vec<(CellId, Behaviour)> {
        let cells = self.cells.iter().copied();
        cells.filter(|(id, _)| lab.kernel.inspect(*id).is_ok_and(|(state, ..)| is_wanted(state))).collect()
    }
}

fn config(starts: usize) -> Config {
    Config { gatekeeper: Box::new(Fifo::with_starts(starts)), ..Config::default() }
}

#[test]
fn cells_start_in_order_and_few_at_a_time_whatever_they_do() {
    for seed in seeds(0, 8, 200) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (starts, vcpus) = (random.usize(1..4), random.usize(1..3));
        let mut lab = Lab::sim(seed, PageCount(1 << 14), vcpus, config(starts));
        let free = lab.kernel.free();
        let count = random.usize(1..16);
        let behaviours = (0..count).map(|_| [Idles, Exits, Crashes, Spins, Ticks, Yields][random.usize(0..6)]);
        let started = Started::new(&lab, behaviours.collect::<Vec<_>>());
        let mut killed = Vec::new();
        let is_settled = |state| !matches!(state, RunState::AwaitingAdmission | RunState::Ready | RunState::Running { .. });
        let mut turns = 0;
        while started.cells.iter().any(|(id, behaviour)| {
            lab.kernel
                .inspect(*id)
                .is_ok_and(|(state, ..)| if behaviour.settles() { !is_settled(state) } else { state == RunState::AwaitingAdmission })
        }) {
            turns += 1;
            assert!(turns < 100_000, "seed {seed}: cells are not admitted");
            lab.turn(random.usize(0..vcpus));
            let queued = started.in_states(&lab, |state| state == RunState::AwaitingAdmission);
            if random.usize(0..20) == 0 && !queued.is_empty() {
                let (id, _) = queued[random.usize(0..queued.len())];
                lab.kernel.end(id, End::Killed).expect("it lives");
                killed.push(id);
            }
            // Cells that do not settle by themselves may still run beside these.
            let starting = started.in_states(&lab, |state| matches!(state, RunState::Ready | RunState::Running { .. }));
            let starting = starting.iter().filter(|(id, behaviour)| {
                let is_first = lab.kernel.inspect(*id).is_ok_and(|(_, counters, _)| counters.exits == 0);
                behaviour.settles() && is_first
            });
            assert!(starting.count() <= starts, "seed {seed}");
        }
        let expected: Vec<_> = started.cells.iter().map(|(id, _)| *id).filter(|id| !killed.contains(id)).collect();
        assert_eq!(started.admitted(), expected, "seed {seed}");
        for (id, _) in &started.cells {
            let _ = lab.kernel.end(*id, End::Killed);
            lab.kernel.collect(*id).expect("it has ended");
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), free, "seed {seed}");
    }
}

#[test]
fn cells_that_never_idle_keep_the_others_for_their_start_quantum() {
    for mut lab in Lab::each(PageCount(1 << 14), || config(1)) {
        let started = Started::new(&lab, [Spins, Spins, Spins, Idles]);
        let [first, second, third, last] = [0, 1, 2, 3].map(|index| started.cells[index].0);
        started.wait_for(&mut lab, second);
        let (_, counters, _) = lab.kernel.inspect(first).expect("it computes");
        assert!(counters.cpu >= START_PHASE_CPU_MAX / 2, "{:?}", counters.cpu);
        started.wait_for(&mut lab, last);
        while !started.in_states(&lab, |state| matches!(state, RunState::Idle { .. })).contains(&(last, Idles)) {
            lab.turn(0);
        }
        assert_eq!(started.admitted(), [first, second, third, last]);
    }
}

#[test]
fn a_cell_that_may_not_run_does_not_keep_the_others() {
    for mut lab in Lab::each(PageCount(1 << 14), || config(1)) {
        let mut started = Started::new(&lab, []);
        let limit = CpuLimit::new(0.000_001).expect("a limit");
        let limited = started.start(&lab, Spins, |id| lab.kernel.set_cpu_limit(id, limit).expect("it lives"));
        let weightless = started.start(&lab, Spins, |id| lab.kernel.set_weight(id, Weight::new(0).expect("a weight")).expect("it lives"));
        let later = started.start(&lab, Spins, |_| {});
        let last = started.start(&lab, Idles, |_| {});
        assert!(started.has_admitted(limited) && !started.has_admitted(weightless));
        started.wait_for(&mut lab, later);
        assert!(started.has_admitted(weightless));
        // The weight of a cell that starts becomes 0, too.
        lab.kernel.set_weight(later, Weight::new(0).expect("a weight")).expect("it lives");
        for _ in 0..3 {
            lab.turn(0);
        }
        assert!(started.has_admitted(last));
    }
}

#[test]
fn a_request_admits_a_queued_cell_at_once() {
    for lab in Lab::each(PageCount(1 << 14), || Config { swap: Some(Arc::new(TestSwap::default())), ..config(1) }) {
        let started = Started::new(&lab, [Spins; 6]);
        let ids: Vec<_> = started.cells.iter().map(|(id, _)| *id).collect();
        assert_eq!(started.admitted(), ids[..1]);
        assert!(lab.kernel.sleep(ids[4]).is_err_and(|error| error.to_string().contains("queued")));
        lab.kernel.wake(ids[4]).expect("it lives");
        lab.kernel.raise(ids[3], Event::Terminate);
        lab.kernel.interrupt(ids[5]).expect("it lives");
        assert_eq!(started.admitted(), [ids[0], ids[4], ids[3], ids[5]]);
        // Neither a request for one that starts, nor the end of one that waits, admits another.
        lab.kernel.wake(ids[4]).expect("it lives");
        lab.kernel.end(ids[1], End::Killed).expect("it lives");
        assert_eq!((started.admitted().len(), lab.kernel.collect(ids[1]).map(|outcome| outcome.end)), (4, Some(End::Killed)));
        assert_eq!(lab.kernel.inspect(ids[2]).map(|(state, ..)| state), Ok(RunState::AwaitingAdmission));
    }
}
