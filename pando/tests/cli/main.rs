// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line and the service, used as a user does.
//!
//! `conformance/` compares programs in cells with Linux; its fixtures are used here, too. `PANDO_TESTS=all` adds the long runs.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the tests of `oci` need more of it")]
#[path = "../../../oci/src/tests/archives.rs"]
mod archives;
#[path = "../../../conformance/tests/linux/fixture/case.rs"]
mod case;
mod commands;
#[path = "../../../conformance/tests/linux/fixture/compile.rs"]
mod compile;
#[path = "../../../conformance/tests/linux/fixture/data.rs"]
mod data;
mod drowsy;
mod fixture;
mod images;
mod network;
mod run;
mod service;
mod templates;

use pando_oci::Digest;

/// The command line under test.
const PANDO: &str = env!("CARGO_BIN_EXE_pando");
