// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates that everybody may ask for, and that are made when somebody does first.

use super::{Create, Name};
use crate::cli::{Limits, Seen};
use crate::options::User;
use std::time::Duration;

/// What the one for Python is called.
pub(crate) const PYTHON: &str = "python";
/// How long one may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(300);

impl Create {
    /// The standard template of this name, made of the host's software; `None`: it is none.
    pub(crate) fn standard(name: &Name) -> Option<Create> {
        let words: &[&str] = if name.to_string() == PYTHON { &["python3", "-m", "pando"] } else { return None };
        Some(Create {
            seen: Seen { variables: Vec::new(), directory: None, user: User::default(), root: None, bare: false, volumes: Vec::new() },
            limits: Limits { memory: None, cpus: None, timeout: Some(PATIENCE) },
            replace: false,
            train: true,
            train_arg: vec!["print(1)".into()],
            name: name.clone(),
            words: words.iter().map(Into::into).collect(),
        })
    }
}
