// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of Debian, each with its basic task.

mod daily_work;
mod tasks;
