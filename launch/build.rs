// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the libOS for its own target, so that `cargo build` alone suffices.
//!
//! Installs the target's standard library with rustup if it is missing; if that fails, the error explains what to do.

use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-none";

fn main() {
    // Read at run time: a target directory may be copied to another checkout, together with this compiled script.
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let workspace = manifest.parent().expect("the crate lies in the workspace").to_path_buf();
    for watched in ["guest", "abi", "erofs", "stack", "Cargo.lock", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", workspace.join(watched).display());
    }
    if let Err(problem) = install_target().and_then(|()| build(&workspace)) {
        println!("cargo::error={problem}");
    }
}

/// Installs the guest's target if it is missing.
fn install_target() -> Result<(), String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| format!("cannot start rustc: {error}"))?;
    let directory = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
    if directory.is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", TARGET]);
    if let Ok(toolchain) = std::env::var("RUSTUP_TOOLCHAIN") {
        rustup.args(["--toolchain", &toolchain]);
    }
    match rustup.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!(
            "the libOS is built for {TARGET}, which this Rust lacks: run `rustup target add {TARGET}`, or install that target's standard library"
        )),
    }
}

/// Builds the libOS into this crate's output directory.
fn build(workspace: &Path) -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    // One directory for all profiles of the host's side, so that the guest is built once. Cargo marks its target directory with
    // CACHEDIR.TAG.
    let target_directory = out.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).unwrap_or(&out).join("guest");
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("cargo sets it"));
    cargo
        .current_dir(workspace)
        .args(["build", "--release", "--package", "pando-libos", "--target", TARGET, "--target-dir"])
        .arg(&target_directory)
        // Every program contains the libOS. Nothing reads its debug information, which would be five sixths of it.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none");
    // The host's compiler settings and wrappers must not apply to the guest.
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(variable);
    }
    let status = cargo.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err("the libOS did not build: see its messages above".into());
    }
    let built = target_directory.join(TARGET).join("release/pando-libos");
    // The old file may be a link that other target directories share.
    let _ = std::fs::remove_file(out.join("pando-libos"));
    std::fs::copy(&built, out.join("pando-libos")).map(|_| ()).map_err(|error| format!("the libOS is not at {}: {error}", built.display()))
}
