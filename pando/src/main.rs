// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `pando`: see the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pando::main()
}
