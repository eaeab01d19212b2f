// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs through the command line: what `pando run` prints is held, byte for byte, against what the host prints.
//!
//! [`case`] is the one boundary: a program with its arguments and its input, run natively and in a cell. `PANDO_TESTS=all` takes the long runs.
#![forbid(unsafe_code)]

mod applets;
mod bombs;
mod busybox;
mod captures;
mod case;
mod chroot;
mod commands;
mod compile;
mod confined;
mod data;
mod deaths;
mod debian;
mod detached;
mod dialogues;
mod dynamic;
mod exerciser;
mod foreign;
mod grove;
mod host_limits;
mod hostile;
mod inputs;
mod killed;
mod listed;
mod network;
mod newcomer;
mod options;
mod overlay;
mod patched;
mod pool;
mod programs;
mod pseudo;
mod python_client;
mod refusals;
mod serve;
mod servers;
mod signals;
mod strace;
mod streams;
mod taps;
mod templates;
mod terminal;
mod testsuite;
mod units;
mod visits;
mod volumes;
mod work;
