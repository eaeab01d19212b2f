// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated machine's root: busybox, the KVM modules, the programs with their libraries, and an init that runs them and reports.
//!
//! Init and [`super::console`] use a small protocol on the serial line: lines that start with [`MARK`].

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Kind;
use super::kernel::Kernel;
use crate::workspace;

/// The prefix of each line that init itself prints.
pub(crate) const MARK: &str = "@pando ";

/// A command that init runs.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Its name in the report; no white space.
    pub(crate) name: String,
    /// A line for busybox's shell.
    pub(crate) command: String,
}

/// A root under construction.
#[derive(Debug)]
pub(crate) struct InitrdRoot {
    folder: PathBuf,
}

impl InitrdRoot {
    /// Creates the root in a new folder.
    ///
    /// # Errors
    /// If the disk is full, or busybox is missing or not static.
    pub(crate) fn create(folder: PathBuf, kind: Kind, kernel: &Kernel) -> Result<InitrdRoot> {
        for name in ["bin", "modules", "proc", "sys", "dev", "tmp", "root", "tests"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let root = InitrdRoot { folder };
        root.add(&pando_packages::find("busybox").context("busybox is missing (Debian: busybox-static)")?, "bin/busybox")?;
        for module in kind.modules() {
            // Without their signatures, too: Linux would check them, and loads modules that have none.
            root.add_stripped(&kernel.module(module), &format!("modules/{module}.ko"), "--strip-debug")?;
        }
        Ok(root)
    }

    /// Copies a program to `path`, and its libraries to the paths where it looks for them.
    ///
    /// # Errors
    /// If a file cannot be copied.
    pub(crate) fn add(&self, program: &Path, path: &str) -> Result<()> {
        let target = self.folder.join(path);
        fs::copy(program, &target).with_context(|| format!("copying {}", program.display()))?;
        for library in libraries(program)? {
            let target = self.folder.join(library.strip_prefix("/").unwrap_or(&library));
            if !target.exists() {
                fs::create_dir_all(target.parent().context("a library has a folder")?)?;
                fs::copy(&library, &target).with_context(|| format!("copying {}", library.display()))?;
            }
        }
        Ok(())
    }

    /// Like [`InitrdRoot::add`], without what an option of `strip` removes, because the emulated machine reads slowly.
    ///
    /// # Errors
    /// As for [`InitrdRoot::add`].
    pub(crate) fn add_stripped(&self, program: &Path, path: &str, option: &str) -> Result<()> {
        self.add(program, path)?;
        workspace::run(Command::new("strip").arg(option).arg(self.folder.join(path))).map(drop)
    }

    /// Writes init and packs everything into `archive`, without compression.
    ///
    /// # Errors
    /// If cpio fails.
    pub(crate) fn pack(&self, kind: Kind, steps: &[Step], archive: &Path) -> Result<()> {
        let init = self.folder.join("init");
        fs::write(&init, init_script(kind, steps))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        let pipe = "set -e; find . | cpio --quiet --create --format=newc";
        let output = File::create(archive)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", pipe]).current_dir(&self.folder).stdin(Stdio::null()).stdout(output);
        ensure!(shell.status()?.success(), "packing the root failed (is cpio installed?)");
        Ok(())
    }
}

/// The paths of the shared libraries that a program needs; none if it is static.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    // ldd fails on static programs, which need none.
    let output = Command::new("ldd").arg(program).output().context("starting ldd")?;
    Ok(parse_ldd(&String::from_utf8_lossy(&output.stdout)))
}

/// Takes the paths from lines like `libc.so.6 => /lib/libc.so.6 (0x7f00)` and `/lib64/ld-linux-x86-64.so.2 (0x7f00)`.
fn parse_ldd(text: &str) -> Vec<PathBuf> {
    text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/'))).map(PathBuf::from).collect()
}

fn init_script(kind: Kind, steps: &[Step]) -> String {
    let mut script = format!(
        "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/ HOME=/root TMPDIR=/tmp PANDO_TESTS=hardware
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
for module in {}; do insmod /modules/$module.ko || echo \"{MARK}broken the module $module does not load\"; done
dmesg -n 1; cd /
[ -c /dev/kvm ] || echo '{MARK}broken /dev/kvm is missing'
echo '{MARK}ready'
",
        kind.modules().join(" ")
    );
    for Step { name, command } in steps {
        script += &format!("echo '{MARK}run {name}'\n( {command} )\nstatus=$?; echo; echo \"{MARK}end {name} $status\"\n");
    }
    script += &format!(
        "dmesg | grep -i kvm | sed 's/^[^]]*\\] *//' | sort | uniq | sed 's/^/{MARK}kernel /'\necho '{MARK}done'\nsleep 1; poweroff -f\n"
    );
    script
}

/// Quotes a word for the shell.
pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_packages::host_program;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x7ff)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f0)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f1)\n";
        assert_eq!(parse_ldd(text), [PathBuf::from("/lib/libc.so.6"), "/lib64/ld-linux-x86-64.so.2".into()]);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let echoed = workspace::run(Command::new(host_program("sh")).args(["-c", &format!("printf %s {}", quote("a 'b' $c"))]));
        assert_eq!(echoed.expect("sh runs"), "a 'b' $c");
    }

    #[test]
    fn init_is_a_proper_script_and_reports_each_step() {
        let script = init_script(Kind::Svm, &[Step { name: "machine".into(), command: "/tests/machine --skip 'a b'".into() }]);
        workspace::run(Command::new(host_program("sh")).args(["-n", "-c", &script])).expect("the shell parses it");
        assert!(script.contains("run machine") && script.contains("end machine $status"), "{script}");
    }
}
