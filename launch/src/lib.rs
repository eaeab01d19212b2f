// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a program to a running cell.
//!
//! The libOS boots once, into a [`Template`]. A [`Root`] is a clone of it that has [`Volume`]s mounted. A program runs in a clone of a
//! root that pays only for what it writes. Nothing here runs twice what a clone can inherit.
#![forbid(unsafe_code)]

mod error;
mod jobs;
mod libos;
mod program;
mod root;
mod streams;
mod volume;
mod write_back;

pub use error::LaunchError;
pub use jobs::{Carrier, Command, Job, JobEnd, Jobs, Task};
pub use libos::Template;
pub use program::{Calls, Program, Terminals};
pub use root::Root;
pub use streams::{carry_input, carry_output};
pub use volume::Volume;
pub use write_back::{Export, Failed, Report, Why, WriteBack, obey};
