// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completions beside options: the names of templates, the numbers of cells.

use crate::cli::Cli;
use crate::client;
use crate::template;
use clap::CommandFactory;
use clap_complete::{CompleteEnv, CompletionCandidate};

/// The variable by which a shell asks what could follow; `pando completions` tells shells so.
pub(crate) const VARIABLE: &str = "PANDO_COMPLETE";

/// Answers a shell that asks what could follow, and ends the process; returns where none does.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// The templates that are kept.
pub(crate) fn templates() -> Vec<CompletionCandidate> {
    template::all().into_iter().flatten().map(|(name, _)| CompletionCandidate::new(name.to_string())).collect()
}

/// The cells of `pando serve` that run.
pub(crate) fn cells() -> Vec<CompletionCandidate> {
    cells_where(|cell| cell.outcome.is_none())
}

/// Those, and the last that ended.
pub(crate) fn all_cells() -> Vec<CompletionCandidate> {
    cells_where(|_| true)
}

fn cells_where(is: impl Fn(&crate::api::Cell) -> bool) -> Vec<CompletionCandidate> {
    // Where nobody serves, there are none.
    let cells = client::list().unwrap_or_default();
    let shown = |cell: &crate::api::Cell| CompletionCandidate::new(cell.id.to_string()).help(Some(cell.template.clone().into()));
    cells.iter().filter(|cell| is(cell)).map(shown).collect()
}
