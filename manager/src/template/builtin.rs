// SPDX-License-Identifier: MIT OR Apache-2.0
//! Built-in templates, which are created at their first use.

use super::{TemplateName, TemplateSpec, TrainingSpec};
use crate::limits::Limits;
use crate::view::ViewSpec;
use pando_machine::PageCount;
use std::time::Duration;

/// The name of Python's.
pub const PYTHON: &str = "python";
/// The argument with which the program of that template is trained: for code in an argument, and for sessions.
pub const PYTHON_TRAINING: &str = "import _pando_session; _pando_session.rehearse()";
/// The programs of the built-in templates, and one whose view is that of most programs.
pub const PROGRAMS: [&str; 2] = ["python3", "/bin/sh"];
/// The time limit to become ready.
const READY_MAX: Duration = Duration::from_secs(300);
/// The default memory limit of clones, in bytes.
const MEMORY: u64 = 1 << 30;

impl TemplateSpec {
    /// The built-in template of this name, made of the host's software; `None` if there is none.
    pub fn standard(name: &TemplateName) -> Option<TemplateSpec> {
        let (command, training): (&[&str], _) = match &name.to_string()[..] {
            PYTHON => (&["python3", "-m", "pando"], PYTHON_TRAINING),
            _ => return None,
        };
        Some(TemplateSpec {
            name: name.clone(),
            command: command.iter().map(Into::into).collect(),
            view: ViewSpec::default(),
            limits: Limits { memory: Some(PageCount::covering(MEMORY)), time: Some(READY_MAX), ..Limits::default() },
            replace: false,
            variants: 1,
            training: TrainingSpec { clones: 1, arguments: vec![training.into()], is_requested: true },
            is_standard: true,
        })
    }
}
