// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libOS's image. It boots once into a template; each clone of the template runs one program.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;

#[cfg(target_os = "none")]
pando_rt::program!(boot::boot);

/// The image is for cells; on the host there is nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {}
