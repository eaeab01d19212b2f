// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the command line that others build upon: the types of the service's requests and answers, which the fuzzer reads as the service does.
#![forbid(unsafe_code)]

pub mod api;
