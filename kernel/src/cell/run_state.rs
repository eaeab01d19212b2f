// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run state of an execution context, and its transitions.

use pando_machine::Nanos;
use std::fmt;

/// The run state of an execution context.
///
/// | from | to | when |
/// |---|---|---|
/// | `New` | `AwaitingAdmission` | the operator starts the cell |
/// | `New` | `Frozen` | the imported cell is complete |
/// | `AwaitingAdmission` | `Ready` | the gatekeeper admits the cell |
/// | `Ready` | `Running` | a vCPU picks the cell |
/// | `Ready` | `Throttled` | the cell has used the CPU time of its limit |
/// | `Throttled` | `Ready` | the next period of its limit begins |
/// | `Running` | `Ready` | its quantum is over, or it yields the vCPU |
/// | `Running` | `Idle` | it waits for an event or a time |
/// | `Idle` | `Ready` | the event or the time comes |
/// | `Running` | `AwaitingMemory` | it needs memory that a flush or the sleep of an idle cell will free |
/// | `AwaitingMemory` | `Ready` | that is done |
/// | `Running` | `Frozen` | it freezes itself, or completes a forced freeze |
/// | `AwaitingAdmission`, `Idle` | `Frozen` | it is frozen by force |
/// | `Running`, `Idle` | `Halted` | a watched event has happened, or its parent halts it |
/// | `Halted` | `Ready` | its parent resumes it |
/// | `Idle` | `Asleep` | its memory leaves for swap space |
/// | `Asleep` | `Idle` | its memory is back |
///
/// `Frozen` is final. A cell that has ended has no run state: the kernel keeps its outcome only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Being built; not yet started.
    New,
    /// Waits for admission by the gatekeeper.
    AwaitingAdmission,
    /// Waits for its quantum.
    Ready,
    /// Has a vCPU.
    Running {
        /// Its index.
        vcpu: usize,
    },
    /// Waits for an event or a time.
    Idle {
        /// The time.
        until: Nanos,
    },
    /// Waits as if it were idle, without memory: it is in swap space, or on the way there or back.
    Asleep {
        /// The time until which it waits.
        until: Nanos,
    },
    /// Has used the CPU time of its limit, and waits for the next period.
    Throttled {
        /// The start of that period.
        until: Nanos,
    },
    /// Waits for the machine's next flush, or until an idle cell has fallen asleep, which will free memory.
    AwaitingMemory,
    /// Waits until its parent resumes it.
    Halted,
    /// Never runs again; a template, if the operator wanted one.
    Frozen,
}

impl RunState {
    /// Whether a transition leads from this state to `next`.
    #[must_use]
    pub const fn can_become(self, next: RunState) -> bool {
        use RunState::{Asleep, AwaitingAdmission, AwaitingMemory, Frozen, Halted, Idle, New, Ready, Running, Throttled};
        match (self, next) {
            (New, AwaitingAdmission | Frozen)
            | (AwaitingAdmission, Ready | Frozen)
            | (Ready, Running { .. } | Throttled { .. })
            | (Running { .. }, Ready | Idle { .. } | AwaitingMemory | Frozen | Halted)
            | (Idle { .. }, Ready | Frozen | Halted | Asleep { .. })
            | (Asleep { .. }, Idle { .. })
            | (Throttled { .. } | AwaitingMemory | Halted, Ready) => true,
            (
                New
                | AwaitingAdmission
                | Ready
                | Running { .. }
                | Idle { .. }
                | Asleep { .. }
                | Throttled { .. }
                | AwaitingMemory
                | Halted
                | Frozen,
                _,
            ) => false,
        }
    }

    /// A name of one word, for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RunState::New => "new",
            RunState::AwaitingAdmission => "queued",
            RunState::Ready => "runnable",
            RunState::Running { .. } => "running",
            RunState::Idle { .. } => "idle",
            RunState::Asleep { .. } => "asleep",
            RunState::Throttled { .. } => "throttled",
            RunState::AwaitingMemory => "awaiting-memory",
            RunState::Halted => "halted",
            RunState::Frozen => "frozen",
        }
    }

    /// Whether the context neither runs nor waits for a vCPU, so that its cell may be changed.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        match self {
            RunState::New
            | RunState::AwaitingAdmission
            | RunState::Idle { .. }
            | RunState::AwaitingMemory
            | RunState::Halted
            | RunState::Frozen => true,
            RunState::Ready | RunState::Running { .. } | RunState::Asleep { .. } | RunState::Throttled { .. } => false,
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RunState::New => "not started",
            RunState::AwaitingAdmission => "queued for its start",
            RunState::Ready => "runnable",
            RunState::Running { .. } => "running",
            RunState::Idle { .. } => "idle",
            RunState::Asleep { .. } => "asleep",
            RunState::Throttled { .. } => "throttled",
            RunState::AwaitingMemory => "waiting for memory",
            RunState::Halted => "halted",
            RunState::Frozen => "frozen",
        })
    }
}

/// The run states in which an operation is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Any.
    Living,
    /// It was not started.
    NotStarted,
    /// It was started, and is not halted.
    Started,
    /// It was started, and is neither halted nor frozen.
    Active,
    /// It is halted.
    Halted,
    /// It neither runs nor waits for a vCPU.
    AtRest,
    /// It can be cloned: its state is complete, and the libOS expects a clone. A halted cell must have been halted by its parent.
    Cloneable,
    /// It was not started, or is halted.
    NewOrHalted,
    /// It is frozen.
    Frozen,
    /// It is not frozen.
    NotFrozen,
}

impl Requirement {
    /// Whether a run state meets it.
    pub(crate) const fn is_met_by(self, state: RunState) -> bool {
        match self {
            Requirement::Living => true,
            Requirement::NotStarted => matches!(state, RunState::New),
            Requirement::Started => !matches!(state, RunState::New | RunState::Halted),
            Requirement::Active => !matches!(state, RunState::New | RunState::Halted | RunState::Frozen),
            Requirement::Halted => matches!(state, RunState::Halted),
            Requirement::AtRest => state.is_at_rest(),
            Requirement::Cloneable => matches!(state, RunState::Frozen | RunState::New | RunState::Idle { .. } | RunState::Halted),
            Requirement::NewOrHalted => matches!(state, RunState::New | RunState::Halted),
            Requirement::Frozen => matches!(state, RunState::Frozen),
            Requirement::NotFrozen => !matches!(state, RunState::Frozen),
        }
    }

    /// The operator's remedy for a run state that does not meet it.
    pub(crate) const fn remedy(self, state: RunState) -> &'static str {
        match self {
            Requirement::Started | Requirement::Active if matches!(state, RunState::New) => "start it first",
            Requirement::Started | Requirement::Active if matches!(state, RunState::Halted) => "resume it first",
            Requirement::Living => "retry",
            Requirement::NotStarted => "use a cell that was not started, such as a new clone",
            Requirement::Started | Requirement::Active => "use a clone of it",
            Requirement::Halted | Requirement::NewOrHalted => "halt it first",
            Requirement::AtRest | Requirement::Cloneable => "wait until it is idle, or freeze it first",
            Requirement::Frozen => "freeze it first",
            Requirement::NotFrozen => "use a clone of it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RunState::{self, Asleep, AwaitingAdmission, AwaitingMemory, Frozen, Halted, Idle, New, Ready, Running, Throttled};
    use pando_machine::Nanos;

    const UNTIL: Nanos = Nanos(1);
    const ALL: [RunState; 10] = [
        New,
        AwaitingAdmission,
        Ready,
        Running { vcpu: 0 },
        Idle { until: UNTIL },
        Asleep { until: UNTIL },
        Throttled { until: UNTIL },
        AwaitingMemory,
        Halted,
        Frozen,
    ];

    #[test]
    fn a_vcpu_is_reached_only_from_ready_and_nothing_leaves_frozen() {
        for state in ALL {
            assert_eq!(state.can_become(Running { vcpu: 1 }), state == Ready, "{state}");
            assert!(!Frozen.can_become(state) && !state.can_become(New) && !state.can_become(state), "{state}");
        }
    }

    #[test]
    fn every_state_is_reached_from_new_and_leads_to_frozen() {
        let new = reachable(New);
        for state in ALL {
            assert!(new.contains(&state) && reachable(state).contains(&Frozen), "{state}");
        }
        // A vCPU completes the freeze of a cell that has work to finish.
        for state in [Ready, Asleep { until: UNTIL }, Throttled { until: UNTIL }, AwaitingMemory, Halted] {
            assert!(!state.can_become(Frozen), "{state}");
        }
    }

    /// The states that transitions lead to from this one, itself included.
    fn reachable(from: RunState) -> Vec<RunState> {
        let mut reached = vec![from];
        let mut next = 0;
        while let Some(state) = reached.get(next).copied() {
            let further: Vec<_> = ALL.into_iter().filter(|other| state.can_become(*other) && !reached.contains(other)).collect();
            reached.extend(further);
            next += 1;
        }
        reached
    }
}
