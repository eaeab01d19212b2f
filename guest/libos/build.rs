// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link arguments of the libOS's image: a static executable at its fixed addresses, without relocations.
//!
//! The target's own defaults do the rest, so the build needs no `RUSTFLAGS`. Its code is position independent: it addresses
//! everything relative to the instruction pointer, and so works above 2 GiB. Linked with `--no-pie`, nothing is left to relocate.

use pando_abi::layout::{LIBOS, LIBOS_CODE};
use std::path::PathBuf;

/// The linker script. Written data lies apart from the code, in the page table that idle cells have of their own.
fn script() -> String {
    format!(
        "PHDRS {{ code PT_LOAD FLAGS(5); data PT_LOAD FLAGS(6); note PT_NOTE FLAGS(4); }}
SECTIONS {{
  .note.pando {LIBOS_CODE:#x} : {{ KEEP(*(.note.pando)) }} :code :note
  .rodata : {{ *(.rodata .rodata.*) }} :code
  .text : ALIGN(64) {{ *(.text .text.*) }} :code
  .data.rel.ro {LIBOS:#x} : {{ *(.data.rel.ro .data.rel.ro.*) }} :data
  .got : {{ *(.got .got.*) }} :data
  .data : ALIGN(4096) {{ *(.data .data.*) }} :data
  .bss : ALIGN(4096) {{ *(.bss .bss.* COMMON) }} :data
  _end = .;
  /DISCARD/ : {{ *(.eh_frame .eh_frame_hdr .comment) }}
}}
"
    )
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if target != "none" {
        return;
    }
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("libos.ld");
    std::fs::write(&path, script()).expect("the output directory can be written");
    for argument in
        ["--no-pie", &format!("--script={}", path.display()), "--no-eh-frame-hdr", "-zmax-page-size=4096", "-znorelro", "--build-id=none"]
    {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
