// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests need from the system: found, installed on Debian as root, or named in one line.
//!
//! A package counts as present when the file that the tests want from it is there, so the check holds on any Linux.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// A Debian package.
#[derive(Clone, Copy, Debug)]
struct Package {
    name: &'static str,
    /// What the tests want from it: a program to be found on `PATH`, or a file with its full path; `static:` says that it must be static.
    evidence: &'static str,
    /// What for.
    purpose: &'static str,
}

const fn package(name: &'static str, evidence: &'static str, purpose: &'static str) -> Package {
    Package { name, evidence, purpose }
}

/// Everything that the tests need.
const PACKAGES: &[Package] = &[
    package("busybox-static", "static:busybox", "the programs that cells run, and the emulated machines' shell"),
    package("bubblewrap", "bwrap", "what `pando bench run` compares with"),
    package("gcc", "gcc", "linking, and C programs that cells run"),
    package("libc6-dev", "/usr/include/stdio.h", "static C programs with glibc"),
    package("musl-tools", "musl-gcc", "static C programs with musl"),
    package("erofs-utils", "fsck.erofs", "a second opinion on root images"),
    package("mount", "mount", "the host's own reader as a judge of root images"),
    package("strace", "strace", "a second opinion on what programs ask of the system"),
    package("xz-utils", "xz", "files for programs in cells to unpack"),
    package("libsqlite3-dev", "/usr/lib/x86_64-linux-gnu/libsqlite3.a", "a static sqlite"),
    package("python3", "/usr/bin/python3", "a dynamic program with many libraries"),
    package("python3-httpx", "/usr/lib/python3/dist-packages/httpx/__init__.py", "what the client for Python speaks with"),
    package("mypy", "/usr/bin/mypy", "what reads its types"),
    package("perl", "/usr/bin/perl", "another"),
    package("make", "/usr/bin/make", "many compilers at once"),
    package("git", "/usr/bin/git", "a history to keep"),
    package("redis-server", "/usr/bin/redis-server", "a server"),
    package("nginx-light", "/usr/sbin/nginx", "another"),
    package("wrk", "/usr/bin/wrk", "what loads web servers in `pando bench net`"),
    package("postgresql-15", "/usr/lib/postgresql/15/bin/postgres", "a database, whose cluster nobody starts"),
    package("memcached", "/usr/bin/memcached", "a server of values"),
    package("libmemcached-tools", "/usr/bin/memccapable", "what asks it"),
    package("openssh-server", "/usr/sbin/sshd", "a server of shells"),
    package("openssh-client", "/usr/bin/ssh", "what asks it"),
    package("dropbear-bin", "/usr/sbin/dropbear", "another"),
    package("bind9", "/usr/sbin/named", "a server of names"),
    package("dnsmasq-base", "/usr/sbin/dnsmasq", "another"),
    package("bind9-dnsutils", "/usr/bin/dig", "what asks it"),
    package("iperf3", "/usr/bin/iperf3", "streams and datagrams, measured"),
    package("iproute2", "ip", "a network for a test alone"),
    package("curl", "/usr/bin/curl", "what asks web servers"),
    package("wget", "/usr/bin/wget", "another"),
    package("tshark", "tshark", "what reads captures"),
    package("tcl", "tclsh", "putting the shell of sqlite together"),
    package("cpio", "cpio", "packing the emulated machines' root"),
    package("qemu-system-x86", "qemu-system-x86_64", "emulating SVM"),
    package("bochs", "bochs", "emulating VMX"),
    package("bochsbios", "/usr/share/bochs/BIOS-bochs-latest", "Bochs's BIOS"),
    package("vgabios", "/usr/share/bochs/VGABIOS-lgpl-latest", "Bochs's graphics BIOS"),
    package("bochs-term", "/usr/lib/x86_64-linux-gnu/bochs/plugins/libbx_term_gui.so", "Bochs without a display"),
    package("isolinux", "/usr/lib/ISOLINUX/isolinux.bin", "the boot loader of Bochs's CD"),
    package("syslinux-common", "/usr/lib/syslinux/modules/bios/ldlinux.c32", "the boot loader's second half"),
    package("xorriso", "xorriso", "writing Bochs's CD"),
    package("bsdutils", "script", "a terminal for Bochs"),
    package("zsh", "zsh", "a reader of completions"),
    package("fish", "fish", "a reader of completions"),
    package("man-db", "man", "a reader of manual pages"),
];

/// What some tests want that not every Debian has: they leave themselves out without it.
const OPTIONAL: &[Package] = &[package("libpython3.11-testsuite", "/usr/lib/python3.11/test/test_select.py", "CPython's own tests")];

/// Sees to it that everything is there.
///
/// # Errors
/// If something is missing and cannot be installed; the text names the packages in one line.
pub(crate) fn ensure_installed() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.purpose);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !Path::new("/etc/debian_version").exists() {
        bail!("install what these Debian packages hold: {}", names.join(" "));
    }
    if !is_root()? {
        bail!("as root: apt-get install --no-install-recommends {}", names.join(" "));
    }
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-qq", "--yes", "--no-install-recommends"], names.as_slice()].concat())?;
    let still = self::missing();
    let still: Vec<String> = still.iter().map(|package| format!("{} ({})", package.name, package.evidence)).collect();
    ensure!(still.is_empty(), "installed, and yet not where it was looked for: {}", still.join(", "));
    Ok(())
}

/// Installs what not every Debian has; returns what cannot be had, in words.
pub(crate) fn install_optional() -> Vec<String> {
    let missing = OPTIONAL.iter().filter(|package| !is_present(package.evidence));
    let install = |package: &Package| apt_get(&["install", "-qq", "--yes", "--no-install-recommends", package.name]);
    missing.filter_map(|package| Some(format!("{}: {:#}", package.purpose, install(package).err()?))).collect()
}

fn missing() -> Vec<&'static Package> {
    PACKAGES.iter().filter(|package| !is_present(package.evidence)).collect()
}

fn is_present(evidence: &str) -> bool {
    if let Some(program) = evidence.strip_prefix("static:") {
        return workspace::find_program(program).is_some_and(|file| is_static(&file));
    }
    if evidence.starts_with('/') { Path::new(evidence).exists() } else { workspace::find_program(evidence).is_some() }
}

/// Whether a program brings all its code along: ldd fails on it.
fn is_static(program: &Path) -> bool {
    workspace::run(Command::new("ldd").arg(program)).is_err()
}

fn is_root() -> Result<bool> {
    Ok(workspace::run(Command::new("id").arg("--user"))?.trim() == "0")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // Somebody else may be installing, and a mirror may fail once.
    let patient = ["--option=DPkg::Lock::Timeout=120", "--option=Acquire::Retries=3"];
    // Servers are installed to be run by tests, not by the system.
    let status =
        Command::new("apt-get").args(patient).args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").status();
    let status = status.context("starting apt-get")?;
    ensure!(status.success(), "apt-get {} failed ({status})", arguments.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_a_program_or_a_path() {
        assert!(!is_static(&workspace::find_program("sh").expect("a shell")));
        assert!(is_present("sh") && is_present("/proc/self/status"));
        assert!(!is_present("no-such-program") && !is_present("/no/such/file"));
    }

    #[test]
    fn packages_are_named_once_and_say_what_for() {
        for (at, package) in PACKAGES.iter().enumerate() {
            assert!(!package.purpose.is_empty());
            assert!(PACKAGES[at + 1..].iter().all(|other| other.name != package.name), "{} twice", package.name);
        }
    }
}
