// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs through the command line: the output of `pando run` is compared, byte for byte, with native output.
//!
//! [`case`] is the common interface: a program with its arguments and its input, run natively and in a cell.
//! `PANDO_TESTS=all` adds the long runs.
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
mod fixture;
mod foreign;
mod gateways;
mod host_limits;
mod hostile;
mod identities;
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
