// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of every kind: their names, content and attributes.

mod changed_trees;
mod exerciser;
mod hostile_names;
mod identities;
mod static_programs;
