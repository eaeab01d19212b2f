// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/cells`: the hypercalls about held cells, as the libOS offers them to programs.
//!
//! An `ioctl` with request [`CALL`] passes seven 64-bit words: the number and the five arguments of a call
//! ([`Hypercall::record`](crate::Hypercall::record)), and room for its result. Addresses of the caller are those of the program. The calls
//! are those that name a holding, and `port_create`; others are refused with `EPERM`. A refusal of the kernel stands in the result,
//! and the `ioctl`
//! succeeds.
//!
//! Request [`BATCH`] passes three words: the address of records of calls, their number, and room for the result. The calls are made in
//! order at one exit, as by `batch`. They are one `cell_clone` at most, and calls that start or prepare a child: `cell_run`, `cell_limit`,
//! `cell_name`, `grant` and `write`. [`HoldingName::NEWEST`](crate::HoldingName::NEWEST) names the child that the batch has made.
//!
//! The children, ports and references that are made through an open file belong to it, with its duplicates, and so do the holdings that
//! come with messages: other open files cannot name them, and they are dropped when it is closed. Each open file can name the template
//! [`HoldingName::ROOT`](crate::HoldingName::ROOT), and references that the parent of the cell has granted to it.
//!
//! `call` and `receive` block the calling thread only. Their deadlines are times of `CLOCK_MONOTONIC` in nanoseconds. `call` must have one:
//! with deadline 0 it is refused with `EINVAL`. A signal ends the wait with `EINTR` and withdraws the call. `receive` sets its argument
//! `reply` in the record to 0 when the answer was sent.
//!
//! The file is readable when the state of a child may have changed: it has written output, asked for input or taken some, frozen or
//! ended. It is also readable when a call may wait at a port. A `read` returns a 64-bit count of such events since the last one.

/// Path of the device.
pub const PATH: &str = "/dev/cells";
/// Words of a call: its record, and the result.
pub const CALL_WORDS: usize = crate::hypercall::RECORD_WORDS + 1;
/// Words of a batch: the address and the number of its records, and the result.
pub const BATCH_WORDS: usize = 3;
/// The request that makes a batch of calls.
pub const BATCH: u32 = 3 << 30 | ((BATCH_WORDS * 8) as u32) << 16 | 0xce << 8 | 2;
/// The request that makes a call, as Linux encodes one that reads and writes these words.
pub const CALL: u32 = 3 << 30 | ((CALL_WORDS * 8) as u32) << 16 | 0xce << 8 | 1;
