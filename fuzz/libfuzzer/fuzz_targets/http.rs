// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target `http` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_fuzz::http(data));
