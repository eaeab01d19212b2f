// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients of the host's software, each in a cell of its own, on one network. All tests share one kernel, whose
//! vCPUs are threads.

mod data;
mod frozen;
mod jobs;
mod names;
mod shells;
mod streams;
mod web;
mod world;
