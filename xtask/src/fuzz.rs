// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fuzz`: runs the targets of `fuzz/` with libFuzzer, each for some seconds.
//!
//! Only two crates of host code use `unsafe`, and no target covers them, so no sanitizer is built in. The fuzzer finds
//! panics, overflows, hangs and excessive memory use. Without sanitizers a stable compiler is enough.

use anyhow::{Context, Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::workspace;

/// The folder of cargo-fuzz's output.
const FOLDER: &str = "fuzz/libfuzzer";
/// The compilation target, which cargo-fuzz always names.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The time limit of the build.
const BUILDING: Duration = Duration::from_secs(15 * 60);
/// Programs that the build needs, and their sources.
const NEEDED: [(&str, &str); 2] = [("cargo-fuzz", "`cargo install cargo-fuzz`"), ("c++", "Debian's package g++")];
/// The seconds after which one input counts as a hang, and its limit of memory in MiB.
const HANGS: u32 = 20;
const MEMORY: u32 = 2048;
/// Bytes of the longest input.
const LONGEST: u32 = 32 << 10;

/// The options of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each target is fuzzed
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// The targets [default: all]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Fuzzes; `true` if nothing was found, or this machine lacks a needed program.
///
/// # Errors
/// If a target does not build or start, or does not exist.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some((program, from)) = NEEDED.into_iter().find(|(program, _)| find(program).is_none()) {
        println!("left out: fuzzing: {program} is missing: install it with {from}");
        return Ok(true);
    }
    let all = targets()?;
    if let Some(unknown) = options.targets.iter().find(|target| !all.contains(target)) {
        anyhow::bail!("there is no target `{unknown}`; the targets are {}", all.join(", "));
    }
    let chosen = if options.targets.is_empty() { &all } else { &options.targets };
    let built = build()?;
    let mut found = Vec::new();
    for target in chosen {
        println!("\n== fuzz {target}, for {} s", options.seconds);
        if !fuzz(target, &built, options.seconds)? {
            found.push(target.as_str());
        }
    }
    let names = if found.is_empty() { String::new() } else { format!(": {}", found.join(", ")) };
    println!("fuzz: {} targets, {} failed{names}", chosen.len(), found.len());
    Ok(found.is_empty())
}

/// Finds a program, also in the folder where cargo installs programs.
fn find(program: &str) -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    pando_packages::find(program).or_else(|| cargo.map(|home| home.join("bin").join(program)).filter(|file| file.is_file()))
}

/// The names of all targets.
fn targets() -> Result<Vec<String>> {
    let folder = workspace::root().join(FOLDER).join("fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Builds all targets; returns their folder. It lies beside the workspace's output, so that the guest's part is not built again.
fn build() -> Result<PathBuf> {
    let directory = workspace::target();
    let mut cargo = workspace::cargo_within(BUILDING);
    cargo.args(["fuzz", "build", "--fuzz-dir", FOLDER, "--sanitizer", "none", "--target-dir"]).arg(&directory);
    let status = cargo.status().context("starting cargo")?;
    ensure!(status.success(), "the targets did not build ({status})");
    Ok(directory.join(TARGET).join("release"))
}

/// Fuzzes one target; `true` if nothing was found. The grown corpus stays beside the build's output, for the next time.
fn fuzz(target: &str, built: &Path, seconds: u32) -> Result<bool> {
    let directory = workspace::target().join("fuzz");
    let (corpus, found) = (directory.join("corpus").join(target), directory.join("found"));
    for made in [&corpus, &found] {
        std::fs::create_dir_all(made).with_context(|| format!("making {}", made.display()))?;
    }
    let mut command = Command::new(built.join(target));
    command.arg(&corpus).arg(workspace::root().join("fuzz/seeds").join(target));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/{target}-", found.display()));
    command.args([format!("-timeout={HANGS}"), format!("-rss_limit_mb={MEMORY}"), format!("-max_len={LONGEST}"), "-verbosity=0".into()]);
    command.arg("-print_final_stats=1");
    let status = command.status().with_context(|| format!("starting {target}"))?;
    if !status.success() {
        println!("{target} found a fault: the input is in {}; reproduce it with `{} FILE`", found.display(), built.join(target).display());
    }
    Ok(status.success())
}
