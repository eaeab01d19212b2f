// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals and their frames: each part of a static program gives the same results as on the host.

use crate::case::Input;
use crate::parts::{C, check};

parts! {
    handlers_of_signals: "signals" C ["handlers"];
    masks_of_signals: "signals" C ["masks"];
    waiting_for_signals: "signals" C ["waiting"];
    signals_that_queue: "signals" C ["queueing"];
    calls_that_signals_interrupt: "signals" C ["interrupted"];
    faults_that_handlers_see: "contexts" C ["faults"];
    registers_around_handlers: "contexts" C ["registers"];
    vector_registers_around_handlers: "contexts" C ["vectors"];
    alternate_stacks: "contexts" C ["stacks"];
    frames_that_programs_forge: "contexts" C ["forged"];
}
