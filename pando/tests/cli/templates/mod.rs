// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates, and their files.

mod changed_files;
mod create_and_clone;
mod kept_views;
mod killed;
mod recipes;
