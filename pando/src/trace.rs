// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando trace`: prints the system calls of a program in a cell, and refuses some.

use crate::failure::Failure;
use crate::monitor::MonitoredProgram;
use crate::{diagnostics, nested};
use clap::Args;
use pando_launch::{Calls, Program};
use pando_nest::tracer::{DenyRule, Tracer};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// Refuse this system call with EPERM, always or for this path as the program gives it (repeatable): `connect`, `openat:/etc/shadow`
    #[arg(long, value_name = "CALL[:PATH]")]
    deny: Vec<DenyRule>,

    /// Do not print the system calls, only those that are refused
    #[arg(short = 'q', long)]
    quiet: bool,

    #[command(flatten)]
    program: MonitoredProgram,
}

/// Traces a program, and returns its exit status.
///
/// # Errors
/// The cell cannot be made, or a stream failed.
pub(crate) fn trace(options: &TraceOptions) -> Result<u8, Failure> {
    let Some(device) = nested::device()? else {
        let rules = options.deny.iter().flat_map(|rule| ["--deny".into(), rule.to_string().into()]);
        let inside: Vec<_> = rules.chain(options.quiet.then(|| "--quiet".into())).collect();
        return Err(Failure::Nested(options.program.start_in_cell("trace", &[], &inside)));
    };
    let interrupted = Arc::<AtomicBool>::default();
    flag::register(SIGINT, Arc::clone(&interrupted)).map_err(Failure::Signals)?;
    // Patched calls would not reach the rules.
    let calls = Calls { trap: !options.deny.is_empty(), trace: !options.quiet };
    let program = Program { calls, ..options.program.program()? };
    let child = options.program.create(&device, &program)?;
    let report = |rule: &DenyRule| diagnostics::print_error(&format_args!("{} was refused: --deny {rule}", rule.call()));
    let state = Tracer::new(options.deny.clone()).run(&device, child, &interrupted, report).map_err(Failure::Nested)?;
    Ok(options.program.report(state))
}
