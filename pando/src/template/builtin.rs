// SPDX-License-Identifier: MIT OR Apache-2.0
//! Built-in templates, which are created at their first use.

use super::{Create, TemplateName};
use crate::cli::{Limits, ViewOptions};
use crate::size::Size;
use std::time::Duration;

/// The name of Python's.
pub(crate) const PYTHON: &str = "python";
/// The name of that for `pando run -d`: a shell that executes a clone's arguments.
pub(crate) const PROGRAM: &str = "pando-run";
/// The shell's command.
const EXECUTE: &str = r#"eval "$(pando-ready -s)"; exec "$@""#;
/// The time limit to become ready.
const PATIENCE: Duration = Duration::from_secs(300);
/// The default memory limit of clones.
const MEMORY: Size = Size::bytes(1 << 30);

impl Create {
    /// The built-in template of this name, made of the host's software; `None` if there is none.
    pub(crate) fn standard(name: &TemplateName) -> Option<Create> {
        let (words, lesson): (&[&str], _) = match &name.to_string()[..] {
            PYTHON => (&["python3", "-m", "pando"], "print(1)"),
            PROGRAM => (&["/bin/sh", "-c", EXECUTE], "true"),
            _ => return None,
        };
        Some(Create {
            seen: ViewOptions::software(),
            limits: Limits { memory: Some(MEMORY), cpus: None, timeout: Some(PATIENCE), output_limit: None },
            replace: false,
            train: true,
            no_train: false,
            train_count: None,
            variants: 1,
            train_arg: vec![lesson.into()],
            name: name.clone(),
            words: words.iter().map(Into::into).collect(),
            standard: true,
        })
    }
}
