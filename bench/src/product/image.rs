// SPDX-License-Identifier: MIT OR Apache-2.0
//! `run-image`: `pando run --image` of a stored image and `podman run` of the same archive, as whole processes.

use super::Fixture;
use crate::process_runs::{BUSYBOX, compare, needs};
use crate::service::{command, pando};
use crate::{BenchError, Row};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PODMAN: &str = "podman and crun (Debian: podman, crun) that start a container here";
const IMAGE: &str = "localhost/bench:latest";
/// Limits that need no privilege, and no network, as in a cell without options.
const RUN: [&str; 8] =
    ["run", "--rm", "--network=none", "--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", IMAGE, "true"];
/// crun refuses mixed hierarchies of control groups; here it sees the second version only.
const IN_UNIFIED_HIERARCHY: &str = "mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";

/// Measures the row.
pub(super) fn run(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(BUSYBOX, "busybox (Debian: busybox-static)")?;
    needs("podman", PODMAN)?;
    needs("crun", PODMAN)?;
    let archive = fixture.directory.join("root.tar");
    write_root(fixture.directory, &archive)?;
    let podman = Podman::new(fixture.directory);
    let saved = fixture.directory.join("image.tar").display().to_string();
    podman.run(&["import", &archive.display().to_string(), IMAGE])?;
    podman.run(&["save", "-o", &saved, IMAGE])?;
    // Containers need more privileges than images.
    podman.run(&RUN).map_err(|_| BenchError::Absent(PODMAN))?;
    pando(fixture.pando, fixture.directory, &["image", "load", &saved])?;
    let mut ours = command(fixture.pando, fixture.directory);
    ours.args(["run", "--image", IMAGE, "--", "true"]).stdout(Stdio::null());
    let pairs = compare(fixture.size(15, 1), &[0], ours, podman.command(&RUN))?;
    let note = "`true` of busybox in an image of one layer, without network; podman without control groups";
    report(Row::pairs("run-image", "podman run with crun, of the same archive", &pairs).noting(note));
    Ok(())
}

/// Writes an archive of a root file system with busybox.
fn write_root(directory: &Path, archive: &Path) -> Result<(), BenchError> {
    let programs = directory.join("root/bin");
    let failed = BenchError::host("write a root file system");
    let path = Command::new("sh").args(["-c", "command -v busybox"]).output().map_err(BenchError::host("start sh"))?.stdout;
    let busybox = String::from_utf8_lossy(&path).trim_end().to_owned();
    let written = fs::create_dir_all(&programs)
        .and_then(|()| fs::copy(busybox, programs.join(BUSYBOX)))
        .and_then(|_| std::os::unix::fs::symlink(BUSYBOX, programs.join("true")));
    written.map_err(failed)?;
    let packed = Command::new("tar").arg("-C").arg(directory.join("root")).arg("-cf").arg(archive).arg("bin").status();
    if packed.map_err(BenchError::host("start tar"))?.success() {
        Ok(())
    } else {
        Err(BenchError::Failed("tar of a root file system".into()))
    }
}

/// podman with a store of its own.
struct Podman {
    words: Vec<String>,
}

impl Podman {
    fn new(directory: &Path) -> Podman {
        let place = |name: &str| directory.join(name).display().to_string();
        let options =
            ["podman", "--runtime=crun", "--cgroup-manager=cgroupfs", "--root", &place("containers"), "--runroot", &place("state")];
        let is_unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let before: &[&str] = if is_unified { &[] } else { &["unshare", "--mount", "sh", "-c", IN_UNIFIED_HIERARCHY, "sh"] };
        Podman { words: before.iter().chain(&options).map(|word| (*word).to_owned()).collect() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs it to its end.
    fn run(&self, arguments: &[&str]) -> Result<(), BenchError> {
        let output = self.command(arguments).stderr(Stdio::piped()).output().map_err(BenchError::host("start podman"))?;
        if output.status.success() { Ok(()) } else { Err(BenchError::Failed(String::from_utf8_lossy(&output.stderr).into())) }
    }
}
