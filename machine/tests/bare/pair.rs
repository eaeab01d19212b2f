// SPDX-License-Identifier: MIT OR Apache-2.0
//! An attacker and a neighbour that take turns on one vCPU.

use super::neighbour::Victim;
use super::{Bare, CODE, DATA};
use pando_machine::kvm::Omit;
use pando_machine::{Context, Exception, Exit, FRAME_SIZE, FrameId, Machine, SUPERVISOR_BASE, Violation};
use std::time::Duration;

/// An allowed outcome of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareOutcome {
    /// It ran to the hypercall after its last instruction.
    Continues,
    /// It made a hypercall somewhere.
    Calls,
    /// It made a system call.
    Syscall,
    /// This exception, which the cell can handle.
    Fault(u8),
    /// Some exception, which the cell can handle.
    AnyFault,
    /// The cell ends, with a clear reason.
    Ends,
    /// It runs until it is interrupted.
    Loops,
}

/// One attack: a row of a table.
pub struct Attack {
    /// Its name in failures.
    pub name: String,
    /// Its instructions; a hypercall is appended.
    pub code: Vec<u8>,
    /// The allowed outcomes.
    pub allowed: Vec<BareOutcome>,
}

impl Attack {
    /// A row of a table.
    pub fn new(name: &str, code: &[u8], allowed: &[BareOutcome]) -> Attack {
        Attack { name: name.into(), code: code.into(), allowed: allowed.into() }
    }
}

/// The attacker's machine, and the neighbour on it.
pub struct Pair {
    pub bare: Bare,
    pub neighbour: Victim,
    supervisor: Vec<(FrameId, [u8; FRAME_SIZE])>,
}

/// The duration of an attack's turn.
const QUANTUM: Duration = Duration::from_millis(50);

/// The frames at CPL 0 that never change: all but the stack.
const SUPERVISOR_FRAMES: std::ops::Range<u32> = 1..10;

impl Pair {
    /// Two cells on a machine that keeps the whole contract.
    pub fn new() -> Pair {
        Pair::without(Omit::NOTHING)
    }

    /// Two cells on a machine that omits lines of the contract.
    pub fn without(omit: Omit) -> Pair {
        let mut bare = Bare::without(omit);
        let neighbour = Victim::new(&mut bare);
        let supervisor = SUPERVISOR_FRAMES.map(|number| (FrameId(number), bare.content(FrameId(number)))).collect();
        Pair { bare, neighbour, supervisor }
    }

    /// Runs an attack from a fresh context and checks its outcome; the neighbour checks itself. Returns the final context.
    pub fn attack(&mut self, attack: &Attack) -> Context {
        let context = self.start(&attack.code);
        self.attack_from(attack, context)
    }

    /// The same from a context that [`Pair::start`] made and the test changed.
    pub fn attack_from(&mut self, attack: &Attack, mut context: Context) -> Context {
        let mut exit = self.turn(&mut context, QUANTUM, &attack.name);
        for _ in 0..100 {
            // On a busy host, the time may pass before the attack has begun.
            if exit != Exit::Interrupted || attack.allowed.contains(&BareOutcome::Loops) {
                break;
            }
            exit = self.turn(&mut context, QUANTUM, &attack.name);
        }
        let end = CODE + attack.code.len() as u64 + 2;
        let fits = attack.allowed.iter().any(|allowed| fits(*allowed, &exit, &context, end));
        assert!(fits, "{}: {exit:?} at {:#x} is none of {:?}", attack.name, context.registers.rip, attack.allowed);
        context
    }

    /// Writes `code` and a hypercall to the attacker's page, and makes a context that starts there.
    pub fn start(&mut self, code: &[u8]) -> Context {
        self.bare.start(&[code, b"\xe6\x7e"].concat())
    }

    /// Runs the attacker's turn, with the initial vector state, and then the neighbour's. Returns the attacker's exit.
    pub fn turn(&mut self, context: &mut Context, time: Duration, name: &str) -> Exit {
        self.bare.vcpu.load_vector(None).expect("the initial state is a good one");
        let deadline = self.bare.machine.now() + time;
        let exit = self.bare.run_until(context, deadline);
        self.after(&exit, context, name);
        exit
    }

    /// Checks the invariants after every turn of the attacker, and lets the neighbour check itself.
    pub fn after(&mut self, exit: &Exit, context: &Context, name: &str) {
        // A wild jump faults at its target. No other context may name an address outside user space; the byte after
        // its end is reached by falling off the last page.
        if !matches!(exit, Exit::Violation(_) | Exit::Exception(_)) {
            assert!(context.registers.rip <= 1 << 47, "{name}: a supervisor address in a context: {:#x}, {exit:?}", context.registers.rip);
        }
        let left = self.bare.vcpu.save_vector().unwrap_or_else(|error| panic!("{name}: {error}"));
        self.neighbour.check(&mut self.bare, context.registers.rip, name);
        for (frame, content) in &self.supervisor {
            assert!(self.bare.content(*frame) == *content, "{name}: frame {} of the supervisor's has changed", frame.0);
        }
        self.bare
            .vcpu
            .load_vector(Some(&left))
            .unwrap_or_else(|error| panic!("{name}: the vector state it left cannot be loaded: {error}"));
    }
}

fn fits(allowed: BareOutcome, exit: &Exit, context: &Context, end: u64) -> bool {
    match (allowed, exit) {
        (BareOutcome::Continues, Exit::Hypercall) => context.registers.rip == end,
        (BareOutcome::Fault(wanted), Exit::Exception(Exception { vector, .. })) => wanted == *vector,
        (BareOutcome::Ends, Exit::Violation(violation)) => is_clear(violation),
        (BareOutcome::Calls, Exit::Hypercall)
        | (BareOutcome::Syscall, Exit::Syscall)
        | (BareOutcome::AnyFault, Exit::Exception(_))
        | (BareOutcome::Loops, Exit::Interrupted) => true,
        _ => false,
    }
}

/// Whether a violation is one that a cell can commit, with a clear message.
pub fn is_clear(violation: &Violation) -> bool {
    let text = violation.to_string();
    !text.is_empty() && !matches!(violation, Violation::OutsideMemory) && !text.contains("KVM exit")
}

/// Invalid stack pointers: unmapped, read-only, misaligned, not canonical, and all of the supervisor's pages.
pub fn wild_stacks() -> Vec<u64> {
    let supervisor = (0..12).map(|page| SUPERVISOR_BASE + 0x800 + page * 0x1000);
    let others = [0, 8, DATA + 0xf01, CODE + 0x100, 0x7fff_ffff_fff8, 1 << 47, 1 << 63, 0xffff_8000_0000_0000, u64::MAX - 7, u64::MAX];
    others.into_iter().chain(supervisor).collect()
}
