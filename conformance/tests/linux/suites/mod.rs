// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs and their own tests.

mod busybox;
pub(crate) mod ripgrep_and_sqlite;
