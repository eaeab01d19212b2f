// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates that everybody may ask for, and that are made when somebody does first.

use super::{Create, Name};
use crate::cli::{Limits, Seen};
use crate::size::Size;
use std::time::Duration;

/// What the one for Python is called.
pub(crate) const PYTHON: &str = "python";
/// The one for `pando run -d`: a shell that executes what a clone is given.
pub(crate) const PROGRAM: &str = "pando-run";
/// What that shell runs.
const EXECUTE: &str = r#"eval "$(pando-ready -s)"; exec "$@""#;
/// How long one may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(300);
/// What each clone may have that does not ask for less.
const MEMORY: Size = Size::bytes(1 << 30);

impl Create {
    /// The standard template of this name, made of the host's software; `None`: it is none.
    pub(crate) fn standard(name: &Name) -> Option<Create> {
        let (words, lesson): (&[&str], _) = match &name.to_string()[..] {
            PYTHON => (&["python3", "-m", "pando"], "print(1)"),
            PROGRAM => (&["/bin/sh", "-c", EXECUTE], "true"),
            _ => return None,
        };
        Some(Create {
            seen: Seen::software(),
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
