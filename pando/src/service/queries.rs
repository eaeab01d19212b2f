// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries of requests about cells and about the programs in them.

use crate::api;
use serde::Deserialize;
use utoipa::IntoParams;

/// An answer in lines of JSON.
pub(super) const LINES: &str = "application/x-ndjson";

/// The way to end a cell.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct KillQuery {
    /// The signal for its program, as `kill` names it: `TERM`, `SIGTERM` or `15` [default: KILL, which terminates the cell]. A program can
    /// ignore those that it can catch.
    #[serde(default)]
    #[param(inline)]
    pub(super) signal: api::Signal,
}

/// Whether the input ends.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EndOfInputQuery {
    /// No more input follows.
    #[serde(default)]
    pub(super) end: bool,
}
