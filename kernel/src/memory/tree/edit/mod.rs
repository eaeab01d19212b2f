// SPDX-License-Identifier: MIT OR Apache-2.0
//! Edits of a tree: implements rules 1 and 2 of the [page-table discipline](crate::memory).
//!
//! An edit walks down the tables of a range ([`walk`]). On the way down it copies tables that it does not own ([`tables`]). For each
//! entry that it reaches, its change computes the new entry ([`changes`]: one function per change, with the rules that it relies on).
//! On the way up, a change that rule 1 forbids in place moves the table to a fresh frame. Since that changes the entry above, the path
//! up to the root becomes fresh. Every table is copied at most once: afterwards it is *fresh*, unknown to any CPU, and may be written
//! freely. So may all own tables of a tree that no root has mapped.
//!
//! The operations on [`Tree`](super::Tree) reserve the frames that an edit can need ([`operations`]), so it never stops half way.

mod changes;
mod operations;
mod pages;
mod tables;
mod walk;

pub(in crate::memory) use tables::PATH_TABLES;
