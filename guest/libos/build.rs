// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link arguments of the libOS's image: a static executable at its fixed address, without relocations.
//!
//! The target's own defaults do the rest, so the build needs no `RUSTFLAGS`: its code is position independent, which reaches everything
//! relative to the instruction pointer and so works above 2 GiB; linked with `--no-pie` nothing is left to relocate.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target != "none" {
        return;
    }
    for argument in [
        "--no-pie",
        &format!("--image-base={:#x}", pando_abi::layout::LIBOS),
        "-zmax-page-size=4096",
        "-znorelro",
        "--no-rosegment",
        "--build-id=none",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
