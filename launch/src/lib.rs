// SPDX-License-Identifier: MIT OR Apache-2.0
//! Launching of programs in cells.
//!
//! The libOS boots once, into a [`Template`]. A [`Root`] is a clone of it with [`Volume`]s mounted. A program runs in a clone of a root;
//! only the pages that it writes are copied. So work that clones can inherit is done once.
#![forbid(unsafe_code)]

mod error;
mod jobs;
mod libos;
mod nested;
mod operator;
mod program;
mod root;
mod start;
mod streams;
mod volume;
mod write_back;

pub use error::LaunchError;
pub use jobs::{Command, Job, JobEnd, Jobs, Multiplexer, Task, TerminalSize};
pub use libos::{Template, open_libos};
pub use nested::{NestedCells, end_of};
pub use operator::{CellPhase, CellUse, Descendant, Nesting, Operator};
pub use program::{Calls, Program, Terminals};
pub use root::{Root, VolumeDisks};
pub use start::{VolumeStart, traced_start};
pub use streams::{copy_input, copy_output};
pub use volume::Volume;
pub use write_back::{AnswerSender, FailureReason, FileServers, WritableVolume, WriteBack, WriteBackReport, WriteFailure, apply_records};
