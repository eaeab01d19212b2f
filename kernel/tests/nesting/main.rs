// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nested cells: parents create, run, limit and end children, to any depth, and nothing outside of the family notices.

mod actor;
mod batches;
mod budgets;
mod descendants;
mod donations;
mod families;
mod images;
mod message_threads;
mod messages;
mod operator_watching;
mod ports;
mod posted_calls;
mod random;
mod random_messages;
mod taking;
mod taking_random;
mod taking_rules;
mod threads;
mod views;
mod watch_rules;
mod watching;
mod weights;
