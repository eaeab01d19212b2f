// SPDX-License-Identifier: MIT OR Apache-2.0
//! Management of cells and templates, between the front ends and the kernel.
//!
//! Front ends, such as the command line and the HTTP API, translate their options and requests to the plain specifications of this crate,
//! and its outcomes and errors to messages, exit statuses and answers. This crate prints nothing, parses no command line and reads no
//! environment variables.
#![forbid(unsafe_code)]

pub mod cell;
pub mod cells;
pub mod descriptors;
pub mod environment;
pub mod host;
pub mod limits;
pub mod machine;
mod memory_control;
pub mod mounts;
pub mod network;
pub mod outcome;
pub mod output_file;
mod remove_tree;
pub mod report;
pub mod root;
pub mod starts;
pub mod template;
pub mod time_limits;
pub mod timings;
pub mod view;
mod view_images;
pub mod volumes;
pub mod write_back;
