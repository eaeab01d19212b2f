// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fresh`: the README's first command in a minimal Debian with nothing but the README's requirements, the packages that the
//! tests would install there, and the files of a release (`cargo xtask dist`), installed there without Rust.
//!
//! mmdebstrap creates the root from this machine's own package sources. The repository, cargo's home and rustup's
//! toolchains are bind-mounted into it.

mod install;

use anyhow::{Context, Result, bail, ensure};
use pando_packages::NEEDED;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{dist, workspace};

/// The README's requirements besides Rust; gcc alone has no C library to link with.
const ASKED_FOR: [&str; 2] = ["gcc", "libc6-dev"];
/// The beginning of the README's first command.
const FIRST_COMMAND: &str = "cargo run --release";
/// The beginning of its expected output.
const HELLO: &str = "hello from ";
/// The KVM device, which cells need.
const KVM: &str = "/dev/kvm";
/// The folders of programs of a fresh system.
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Runs a command in the root. `$1` is the root, `$2` the command, the others are folders that keep their path inside.
const ENTER: &str = r#"root=$1 command=$2; shift 2
for folder in "$@"; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
exec chroot "$root" sh -c "$command""#;

/// Checks a fresh system, or prints why this machine cannot.
///
/// # Errors
/// If the root cannot be created, the README's command has other output there, or the packages of the tests are not available.
pub(crate) fn run() -> Result<()> {
    if let Some(why) = missing_requirement() {
        println!("left out: a fresh system: {why}");
        return Ok(());
    }
    let root = workspace::target().join("fresh/root");
    make(&root).context("making a minimal Debian")?;
    check_packages(&root)?;
    let command = first_command(&fs::read_to_string(workspace::root().join("README.md"))?)?;
    println!("== in a fresh system: {command}");
    let output = enter(&root, &command)?;
    ensure!(output.lines().any(|line| line.starts_with(HELLO)), "`{command}` does not print `{HELLO}...` in a fresh system: {output}");
    print!("{output}");
    // The command above has built the program.
    install::check(&root, &dist::make()?)?;
    fs::remove_dir_all(&root).context("removing the minimal Debian")
}

/// The reason why this machine cannot create a fresh system, if any.
fn missing_requirement() -> Option<&'static str> {
    if pando_packages::find("mmdebstrap").is_none() {
        return Some("mmdebstrap is not installed");
    }
    let namespace = Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).output();
    if !namespace.is_ok_and(|output| output.status.success()) {
        return Some("mounting in namespaces needs root");
    }
    (!Path::new(KVM).exists()).then_some("/dev/kvm is missing")
}

/// Creates a minimal Debian of the host's release.
fn make(root: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let above = root.parent().context("a root lies in a folder")?;
    fs::create_dir_all(above)?;
    let release = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let codename =
        release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).context("/etc/os-release has no VERSION_CODENAME")?;
    let sources = package_sources(codename)?;
    ensure!(!sources.is_empty(), "apt has no source of packages for {codename}");
    let mut debootstrap = Command::new("mmdebstrap");
    debootstrap.args(["--quiet", "--variant=minbase", "--skip=cleanup/apt/lists"]).arg(format!("--include={}", ASKED_FOR.join(",")));
    workspace::run(debootstrap.arg(codename).arg(root).args(sources)).map(drop)
}

/// The files with this machine's package sources of the release.
fn package_sources(codename: &str) -> Result<Vec<PathBuf>> {
    let further = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let files = [PathBuf::from("/etc/apt/sources.list")].into_iter().chain(further).filter(|file| file.is_file());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        if text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace).any(|word| word == codename) {
            found.push(file);
        }
    }
    Ok(found)
}

/// Checks that `cargo xtask test` detects exactly the missing packages in the root, and that apt would install them.
fn check_packages(root: &Path) -> Result<()> {
    let xtask = env::current_exe().context("finding xtask itself")?;
    let listed = enter(root, &format!("'{}' packages", xtask.display()))?;
    let listed: BTreeSet<&str> = listed.lines().collect();
    let there = enter(root, "dpkg-query --show --showformat='${Package}\n'")?;
    let wanted: BTreeSet<&str> =
        NEEDED.iter().map(|package| package.name).filter(|name| !there.lines().any(|line| line == *name)).collect();
    ensure!(listed == wanted, "a fresh system lacks {wanted:?}, but the tests report {listed:?}");
    let names: Vec<&str> = listed.into_iter().collect();
    let plan = enter(root, &format!("apt-get install --simulate --no-install-recommends {}", names.join(" ")))?;
    let installed: BTreeSet<&str> = plan.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next()).collect();
    if let Some(name) = names.iter().find(|name| !installed.contains(*name)) {
        bail!("apt would not install {name} in a fresh system: {plan}");
    }
    println!(
        "== in a fresh system: {} packages would be installed for the tests, {} with their dependencies",
        names.len(),
        installed.len()
    );
    Ok(())
}

/// The README's first command, without its comment.
fn first_command(readme: &str) -> Result<String> {
    let line =
        readme.lines().find(|line| line.starts_with(FIRST_COMMAND)).with_context(|| format!("README.md has no `{FIRST_COMMAND}`"))?;
    Ok(line.split("  #").next().unwrap_or(line).trim_end().to_owned())
}

/// Runs a shell command in the root, in the repository; returns its standard output.
fn enter(root: &Path, command: &str) -> Result<String> {
    let home = PathBuf::from(env::var_os("HOME").context("HOME is not set")?);
    let [cargo, rustup] = [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")]
        .map(|(name, folder)| env::var_os(name).map_or_else(|| home.join(folder), PathBuf::from));
    let repository = workspace::root();
    let mut enter =
        entering(root, &format!("cd '{}' && {command}", repository.display()), &[&repository, &cargo, &rustup, &workspace::target()]);
    enter.env("PATH", format!("{}:{SYSTEM_PATH}", cargo.join("bin").display())).env("CARGO_NET_OFFLINE", "true");
    enter.env("CARGO_HOME", &cargo).env("RUSTUP_HOME", &rustup).env("CARGO_TARGET_DIR", workspace::target());
    // `.ci/run` leaves out debug information.
    enter.envs(env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CARGO_PROFILE_")));
    output(&mut enter, command)
}

/// Runs a shell script in the root without Rust and the repository; returns its standard output. The variable `FILE` names a file of a
/// release, whose folder is mounted.
fn enter_without_rust(root: &Path, file: &Path, script: &str) -> Result<String> {
    let mut enter = entering(root, &format!("set -eu; {script}"), &[file.parent().context("a file lies in a folder")?]);
    output(enter.env("FILE", file).env("DEBIAN_FRONTEND", "noninteractive"), script)
}

/// A command in the root with the environment variables of a fresh system, and with these folders of the host.
fn entering(root: &Path, command: &str, folders: &[&Path]) -> Command {
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh"]).arg(root).arg(command).args(folders);
    enter.env_clear().envs([("PATH", SYSTEM_PATH), ("HOME", "/root"), ("LANG", "C.UTF-8")]);
    enter
}

/// The standard output of a command that must succeed.
fn output(enter: &mut Command, command: &str) -> Result<String> {
    let output = enter.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("starting unshare")?;
    ensure!(output.status.success(), "`{command}` failed in a fresh system ({})", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_is_the_readmes() {
        let readme = fs::read_to_string(workspace::root().join("README.md")).expect("there is one");
        let command = first_command(&readme).expect("it has a first command");
        assert!(command.starts_with("cargo run --release -- run -- ") && command.contains(HELLO) && !command.contains('#'), "{command}");
    }
}
