// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a template.

use super::TemplateName;
use crate::limits::Limits;
use crate::view::ViewSpec;
use std::ffi::OsString;
use std::time::Duration;

/// The time limit of a training clone that was not requested: a server would never end.
const TRAINING_MAX: Duration = Duration::from_secs(5);

/// A template to create.
#[derive(Clone, Debug)]
pub struct TemplateSpec {
    /// Its name.
    pub name: TemplateName,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The files and the environment that the program sees.
    pub view: ViewSpec,
    /// The limits of the program. Its memory limit is also that of each clone that has none of its own.
    pub limits: Limits,
    /// Replace the template of this name, if there is one.
    pub replace: bool,
    /// How often the program is started: each clone is made from one of these variants at random, so that memory layouts differ.
    pub variants: u32,
    /// The training with clones.
    pub training: TrainingSpec,
    /// It is a built-in one with its default options.
    pub is_standard: bool,
}

/// The training of a template: clones run to their end, and the memory that they touch is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingSpec {
    /// The number of clones, run one after the other; 0: no training.
    pub clones: u32,
    /// The clones' arguments.
    pub arguments: Vec<OsString>,
    /// It was requested: the clones have no time limit of their own, and their failures are reported.
    pub is_requested: bool,
}

impl TrainingSpec {
    /// The time limit of a training clone, for a template whose program has this limit. `None`: no limit.
    pub(super) fn time(&self, limits: &Limits) -> Option<Duration> {
        match limits.time {
            time if self.is_requested => time,
            time => Some(time.map_or(TRAINING_MAX, |time| time.min(TRAINING_MAX))),
        }
    }
}
