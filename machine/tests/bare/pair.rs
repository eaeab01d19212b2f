// SPDX-License-Identifier: MIT OR Apache-2.0
//! An attacker and a neighbour that take turns on one vCPU.

use super::neighbour::Neighbour;
use super::{Bare, CODE, DATA};
use pando_machine::kvm::Omit;
use pando_machine::{Context, Exception, Exit, FRAME_SIZE, FrameId, Machine, SUPERVISOR_BASE, Violation};
use std::time::Duration;

/// What an attack may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to the hypercall behind its last instruction.
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
    /// What it is called in a failure.
    pub name: String,
    /// Its instructions; a hypercall is put behind them.
    pub code: Vec<u8>,
    /// What it may come to.
    pub allowed: Vec<Outcome>,
}

impl Attack {
    /// A row of a table.
    pub fn new(name: &str, code: &[u8], allowed: &[Outcome]) -> Attack {
        Attack { name: name.into(), code: code.into(), allowed: allowed.into() }
    }
}

/// The attacker's machine, and who must not feel it.
pub struct Pair {
    pub bare: Bare,
    pub neighbour: Neighbour,
    supervisor: Vec<(FrameId, [u8; FRAME_SIZE])>,
}

/// The time of an attack's turn.
const QUANTUM: Duration = Duration::from_millis(50);

/// The frames at CPL 0 that nothing may ever change: all but the stack.
const SUPERVISOR_FRAMES: std::ops::Range<u32> = 1..10;

impl Pair {
    /// Two cells on a machine that keeps the whole contract.
    pub fn new() -> Pair {
        Pair::without(Omit::NOTHING)
    }

    /// Two cells on a machine that leaves lines of the contract out.
    pub fn without(omit: Omit) -> Pair {
        let mut bare = Bare::without(omit);
        let neighbour = Neighbour::new(&mut bare);
        let supervisor = SUPERVISOR_FRAMES.map(|number| (FrameId(number), bare.content(FrameId(number)))).collect();
        Pair { bare, neighbour, supervisor }
    }

    /// Runs an attack from a fresh context and checks what it came to; the neighbour checks itself. Returns the context that is left.
    pub fn attack(&mut self, attack: &Attack) -> Context {
        let context = self.start(&attack.code);
        self.attack_from(attack, context)
    }

    /// The same from a context that [`Pair::start`] made and the test changed.
    pub fn attack_from(&mut self, attack: &Attack, mut context: Context) -> Context {
        let mut exit = self.turn(&mut context, QUANTUM, &attack.name);
        for _ in 0..100 {
            // On a busy host the time may pass before the attack has begun.
            if exit != Exit::Interrupted || attack.allowed.contains(&Outcome::Loops) {
                break;
            }
            exit = self.turn(&mut context, QUANTUM, &attack.name);
        }
        let end = CODE + attack.code.len() as u64 + 2;
        let fits = attack.allowed.iter().any(|allowed| fits(*allowed, &exit, &context, end));
        assert!(fits, "{}: {exit:?} at {:#x} is none of {:?}", attack.name, context.registers.rip, attack.allowed);
        context
    }

    /// Puts `code` with a hypercall behind it into the attacker's page and makes a context that starts there.
    pub fn start(&mut self, code: &[u8]) -> Context {
        self.bare.start(&[code, b"\xe6\x7e"].concat())
    }

    /// The attacker's turn, with the initial vector state, and the neighbour's after it. Returns what the attacker's came to.
    pub fn turn(&mut self, context: &mut Context, time: Duration, name: &str) -> Exit {
        self.bare.vcpu.load_vector(None).expect("the initial state is a good one");
        let deadline = self.bare.machine.now() + time;
        let exit = self.bare.run_until(context, deadline);
        self.after(&exit, context, name);
        exit
    }

    /// Checks what must hold after every turn of the attacker, and lets the neighbour check itself.
    pub fn after(&mut self, exit: &Exit, context: &Context, name: &str) {
        // A wild jump faults where it led to. No other context names an address that is not a cell's; one past the end is where the last byte leads.
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

fn fits(allowed: Outcome, exit: &Exit, context: &Context, end: u64) -> bool {
    match (allowed, exit) {
        (Outcome::Continues, Exit::Hypercall) => context.registers.rip == end,
        (Outcome::Fault(wanted), Exit::Exception(Exception { vector, .. })) => wanted == *vector,
        (Outcome::Ends, Exit::Violation(violation)) => is_clear(violation),
        (Outcome::Calls, Exit::Hypercall)
        | (Outcome::Syscall, Exit::Syscall)
        | (Outcome::AnyFault, Exit::Exception(_))
        | (Outcome::Loops, Exit::Interrupted) => true,
        _ => false,
    }
}

/// Whether a violation is one that a cell can commit, told in words.
pub fn is_clear(violation: &Violation) -> bool {
    let text = violation.to_string();
    !text.is_empty() && !matches!(violation, Violation::OutsideMemory) && !text.contains("KVM exit")
}

/// Stack pointers that lead nowhere good: nothing there, read-only, misaligned, not canonical, and all of the supervisor's pages.
pub fn wild_stacks() -> Vec<u64> {
    let supervisor = (0..12).map(|page| SUPERVISOR_BASE + 0x800 + page * 0x1000);
    let others = [0, 8, DATA + 0xf01, CODE + 0x100, 0x7fff_ffff_fff8, 1 << 47, 1 << 63, 0xffff_8000_0000_0000, u64::MAX - 7, u64::MAX];
    others.into_iter().chain(supervisor).collect()
}
