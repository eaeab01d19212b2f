// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer program, for traffic that busybox cannot generate: `programs/peer.c`.

use pando_testing::compile::compiled;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The program, compiled and linked statically; `/peer` in cells whose root contains it. `None`: this machine has no
/// compiler, as an emulated one has none.
pub fn program() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/programs/peer.c");
    PROGRAM.get_or_init(|| compiled(&source, Path::new(env!("CARGO_TARGET_TMPDIR")))).clone()
}
