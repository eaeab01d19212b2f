// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamic completions: the names of templates, and the numbers and names of cells.

use crate::connection;
use crate::environment;
use clap::Command;
use clap_complete::{CompleteEnv, CompletionCandidate};
use pando_manager::template::TemplateStore;
use pando_manager::view::image_store;
use pando_manager::volumes::VolumeStore;

/// The variable by which a shell requests completions; `pando completions` sets it up.
pub(crate) const VARIABLE: &str = "PANDO_COMPLETE";

/// Answers a shell's request for completions of a command and exits; returns if there is none.
pub(crate) fn complete_and_exit(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// The stored templates.
pub(crate) fn templates() -> Vec<CompletionCandidate> {
    let stored = TemplateStore::of(&environment::caller()).and_then(|store| store.all());
    stored.into_iter().flatten().map(|(name, _)| CompletionCandidate::new(name.to_string())).collect()
}

/// The container images.
pub(crate) fn images() -> Vec<CompletionCandidate> {
    let stored = image_store(&environment::caller()).ok().and_then(|store| store.all().ok()).unwrap_or_default();
    stored.into_iter().map(|image| CompletionCandidate::new(image.label())).collect()
}

/// The named volumes.
pub(crate) fn volumes() -> Vec<CompletionCandidate> {
    let stored = VolumeStore::of(&environment::caller()).ok().and_then(|store| store.all().ok()).unwrap_or_default();
    stored.into_iter().map(|volume| CompletionCandidate::new(volume.name.to_string())).collect()
}

/// The running cells of `pando serve`.
pub(crate) fn cells() -> Vec<CompletionCandidate> {
    cells_where(|cell| cell.outcome.is_none())
}

/// The running cells and those that ended last.
pub(crate) fn all_cells() -> Vec<CompletionCandidate> {
    cells_where(|_| true)
}

fn cells_where(is: impl Fn(&crate::api::Cell) -> bool) -> Vec<CompletionCandidate> {
    // Without a server there are no cells.
    let cells = connection::list(false).unwrap_or_default();
    let shown = |cell: &crate::api::Cell| {
        let help = Some(cell.source().to_owned().into());
        [cell.id.to_string(), cell.name.clone()].map(|word| CompletionCandidate::new(word).help(help.clone()))
    };
    cells.iter().filter(|cell| is(cell)).flat_map(shown).collect()
}
