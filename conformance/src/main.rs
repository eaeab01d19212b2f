// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `pando`, for the tests of this crate.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pando::main()
}
