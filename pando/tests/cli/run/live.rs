// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live mounts: each side sees the other's changes, programs work as on the host, and a server that is gone harms only its mount.

use crate::case::PANDO;
use pando_testing::{host_program, needs_kvm};
use rustix::fs::inotify;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use tempfile::TempDir;

/// A program that works with files in its directory, and prints what it finds.
const WORK: &str = r#"
set -e
mkdir -p a/b; echo one > a/b/one; cp -a a c; ln a/b/one hard; ln -s a/b/one sym; cat sym; readlink sym; stat -c '%h %a' hard
chmod 600 hard; stat -c %a a/b/one; touch -d @1000 hard; stat -c %Y hard
for i in 1 2 3 4 5; do echo $i >> log; done; cat log; mv log a/; rm c/b/one; rmdir c/b; ls -R | sort
tar cf t.tar a; mkdir out; tar xf t.tar -C out; cmp out/a/log a/log; rm -r out; mkdir d; rmdir a 2>/dev/null || echo not empty
(set -C; echo x > sym) 2>/dev/null || echo exists
exec 3> open; rm open; echo kept >&3; ls open 2>/dev/null || echo gone
head -c 300000 /dev/zero > big; wc -c < big; cp big big2; cmp big big2; truncate -s 10 big; wc -c < big
printf '#!/bin/sh\necho script $1\n' > s; chmod +x s; ./s works; find . -type f | sort
"#;

/// Threads that create, list and remove the same names. Each name has one creator, and its creator removes it.
const RACE: &str = r#"
import os, threading
created, failed, start = [], [], threading.Barrier(6)
def work():
    own = []
    start.wait()
    for i in range(40):
        os.path.exists(f"f{i}"); os.listdir(".")
        try: os.close(os.open(f"f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)); own.append(i)
        except FileExistsError: pass
    created.extend(own)
    start.wait()
    for i in range(40):
        os.path.exists(f"f{i}")
        if i in own:
            try: os.rename(f"f{i}", f"g{i}"); os.unlink(f"g{i}")
            except OSError as error: failed.append(error)
        os.path.exists(f"g{i}"); os.listdir(".")
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(created) == list(range(40)), failed, os.listdir("."))
"#;

/// A program that writes and reads 80 MiB in one call each, and appends after the host.
const LARGE: &str = r#"
import os
data = os.urandom(1 << 20) * 80
fd = os.open("large", os.O_CREAT | os.O_RDWR)
print(os.write(fd, data) == len(data)); os.close(fd)
fd = os.open("large", os.O_RDONLY)
parts = []
while part := os.read(fd, len(data)): parts.append(part)
print(b"".join(parts) == data)
"#;

/// A cell with a live mount, that runs a shell which reads its commands from a pipe.
struct Shell {
    child: Child,
    commands: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn run(host: &Path, options: &str, script: &str) -> Output {
    let volume = format!("{}:/data:{options}", host.display());
    Command::new(PANDO).args(["run", "-v", &volume, "-w", "/data", "--", "sh", "-c", script]).output().expect("pando can be started")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl Shell {
    fn start(host: &Path) -> Shell {
        Shell::start_program(host, &["sh"])
    }

    /// Another program in place of the shell.
    fn start_program(host: &Path, program: &[&str]) -> Shell {
        let volume = format!("{}:/data:live", host.display());
        let mut child = Command::new(PANDO)
            .args(["run", "-v", &volume, "--"])
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("pando can be started");
        let commands = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Shell { child, commands, output }
    }

    /// Runs a command that prints one line.
    fn line(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("the cell reads");
        self.answer()
    }

    /// The next line.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the cell writes");
        line.trim_end().into()
    }

    fn finish(mut self) {
        drop(self.commands);
        assert!(self.child.wait().expect("it is our child").success());
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn programs_see_what_they_see_on_the_host() {
    needs_kvm!();
    let (native, host) = (directory(), directory());
    let expected = Command::new(host_program("sh")).args(["-c", WORK]).current_dir(native.path()).output().expect("there is a shell");
    let output = run(host.path(), "live", WORK);
    assert_eq!(text(&output), text(&expected));
    let differences = Command::new(host_program("diff")).arg("-r").args([native.path(), host.path()]).output().expect("there is diff");
    // The archive has times and owners.
    let differences = text(&differences).lines().filter(|line| !line.contains("t.tar")).collect::<String>();
    assert_eq!(differences, "");
}

#[test]
fn each_side_sees_the_changes_of_the_other() {
    needs_kvm!();
    let host = directory();
    let (mut one, mut other) = (Shell::start(host.path()), Shell::start(host.path()));
    for version in 0..10 {
        fs::write(host.path().join("page"), format!("version {version}\n")).expect("the directory is ours");
        assert_eq!(one.line("cat /data/page"), format!("version {version}"));
        assert_eq!(other.line(&format!("echo from the cell {version} > /data/answer; echo done")), "done");
        assert_eq!(fs::read_to_string(host.path().join("answer")).expect("the cell made it"), format!("from the cell {version}\n"));
        assert_eq!(one.line("cat /data/answer"), format!("from the cell {version}"));
        assert_eq!(one.line(&format!("test -e /data/new{version} || echo absent")), "absent");
        fs::write(host.path().join(format!("new{version}")), "").expect("the directory is ours");
        assert_eq!(one.line(&format!("test -e /data/new{version} && echo there")), "there");
    }
    fs::remove_file(host.path().join("page")).expect("it is there");
    assert_eq!(one.line("cat /data/page 2>/dev/null || echo gone"), "gone");
    one.finish();
    other.finish();
}

#[test]
fn a_directory_that_the_host_replaces_is_the_new_one() {
    needs_kvm!();
    let host = directory();
    let path = |name: &str| host.path().join(name);
    fs::create_dir(path("dir")).expect("it was not there");
    fs::write(path("dir/file"), "old\n").expect("the directory is ours");
    let mut shell = Shell::start(host.path());
    assert_eq!(shell.line("cat /data/dir/file"), "old");
    fs::rename(path("dir"), path("before")).expect("it is there");
    fs::create_dir(path("dir")).expect("it was not there");
    fs::write(path("dir/file"), "new\n").expect("the directory is ours");
    // A directory on the way is looked up again after a second.
    assert_eq!(shell.line("sleep 1.2; cat /data/dir/file"), "new");
    assert_eq!(shell.line("cat /data/before/file"), "old");
    fs::remove_dir_all(path("dir")).expect("it is ours");
    symlink("/etc", path("dir")).expect("it was not there");
    // The link leads to the cell's own directory, never to the host's.
    assert_eq!(shell.line("sleep 1.2; test -e /data/dir/file || echo elsewhere"), "elsewhere");
    shell.finish();
}

#[test]
fn a_read_only_mount_cannot_be_changed() {
    needs_kvm!();
    let host = directory();
    fs::write(host.path().join("file"), "text\n").expect("the directory is ours");
    let script = "cat file; for c in 'echo x > new' 'echo x >> file' 'rm file' 'mkdir d' 'chmod 0 file'; do sh -c \"$c\" 2>/dev/null && echo $c; done; true";
    assert_eq!(text(&run(host.path(), "live,ro", script)), "text\n");
    assert_eq!(fs::read_dir(host.path()).expect("it is there").count(), 1);
}

#[test]
fn a_program_that_runs_as_its_owner_loses_that_when_it_is_overwritten() {
    needs_kvm!();
    let host = directory();
    for name in ["written", "cut"] {
        fs::write(host.path().join(name), "text\n").expect("the directory is ours");
        fs::set_permissions(host.path().join(name), fs::Permissions::from_mode(0o4755)).expect("the file is ours");
    }
    assert_eq!(text(&run(host.path(), "live", "echo more >> written; : > cut")), "");
    for name in ["written", "cut"] {
        let mode = fs::metadata(host.path().join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{name}");
    }
}

#[test]
fn threads_do_not_take_their_changes_for_those_of_others() {
    needs_kvm!();
    let host = directory();
    fs::write(host.path().join("race.py"), RACE).expect("the directory is ours");
    assert_eq!(text(&run(host.path(), "live", "mkdir work; cd work; python3 ../race.py")), "True [] []\n");
}

#[test]
fn large_writes_and_reads_are_whole() {
    needs_kvm!();
    let host = directory();
    fs::write(host.path().join("large.py"), LARGE).expect("the directory is ours");
    assert_eq!(text(&run(host.path(), "live", "python3 large.py")), "True\nTrue\n");
    assert_eq!(fs::metadata(host.path().join("large")).expect("the cell made it").len(), 80 << 20);
}

#[test]
fn appended_bytes_follow_those_of_the_host() {
    needs_kvm!();
    let host = directory();
    let log = host.path().join("log");
    let mut shell = Shell::start(host.path());
    assert_eq!(shell.line("exec 5>> /data/log; echo one >&5; echo done"), "done");
    for round in 0..3 {
        let mut file = fs::OpenOptions::new().append(true).open(&log).expect("the cell made it");
        writeln!(file, "host {round}").expect("the file is ours");
        assert_eq!(shell.line(&format!("echo cell {round} >&5; echo done")), "done");
        assert!(fs::read_to_string(&log).expect("it is there").lines().count() >= 2 + round);
    }
    shell.finish();
    let expected = "one\nhost 0\ncell 0\nhost 1\ncell 1\nhost 2\ncell 2\n";
    assert_eq!(fs::read_to_string(&log).expect("it is there"), expected);
}

#[test]
fn inotify_reports_changes_from_outside() {
    needs_kvm!();
    let host = directory();
    let script = "import os,ctypes,sys\nlibc=ctypes.CDLL(None)\nfd=libc.inotify_init1(0)\nlibc.inotify_add_watch(fd,b'/data',0x8)\n\
                  print('ready',flush=True)\nprint(os.read(fd,4096)[16:].split(b'\\0')[0].decode(),flush=True)\n";
    let volume = format!("{}:/data:live", host.path().display());
    let mut child = Command::new(PANDO)
        .args(["run", "-v", &volume, "--", "python3", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("pando can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    assert_eq!(lines.next().expect("it is ready").expect("it writes"), "ready");
    fs::write(host.path().join("outside"), "x").expect("the directory is ours");
    assert_eq!(lines.next().expect("there is an event").expect("it writes"), "outside");
    assert!(child.wait().expect("it is our child").success());
}

/// The watches with an event, of all events that have come.
fn opened(watcher: &OwnedFd) -> BTreeSet<i32> {
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let mut reader = inotify::Reader::new(watcher, &mut buffer);
    let mut watches = BTreeSet::new();
    while let Ok(event) = reader.next() {
        watches.insert(event.wd());
    }
    watches
}

#[test]
fn the_host_synchronises_directories_and_files_that_are_only_read() {
    needs_kvm!();
    let host = directory();
    let paths = ["directory", "file"].map(|name| host.path().join(name));
    fs::create_dir(&paths[0]).expect("the directory is ours");
    fs::write(&paths[1], "x").expect("the directory is ours");
    let watcher = inotify::init(inotify::CreateFlags::NONBLOCK).expect("an instance");
    let watches = paths.map(|path| inotify::add_watch(&watcher, &path, inotify::WatchFlags::OPEN).expect("it is there"));
    let script = "import os,sys\nopen=[os.open('/data/'+name,os.O_RDONLY) for name in ('directory','file')]\nos.read(open[1],9)\n\
                  print('open',flush=True)\nsys.stdin.readline()\n[os.fsync(fd) for fd in open]\nprint('done',flush=True)";
    let mut shell = Shell::start_program(host.path(), &["python3", "-c", script]);
    assert_eq!(shell.answer(), "open");
    opened(&watcher);
    assert_eq!(shell.line("go on"), "done");
    // The server has opened them, to synchronise them.
    assert_eq!(opened(&watcher), BTreeSet::from(watches));
    shell.finish();
}

#[test]
fn a_live_mount_that_overlaps_another_volume_is_refused() {
    let host = directory();
    let volume = |cell: &str| format!("{}:{cell}", host.path().display());
    for (one, other) in [("/data:live", "/data/sub:ro"), ("/data:ro", "/data/sub:live"), ("/data:live", "/data/sub:live")] {
        let output = Command::new(PANDO).args(["run", "-v", &volume(one), "-v", &volume(other), "--", "true"]).output();
        let output = output.expect("pando can be started");
        assert!(!output.status.success() && text(&output).contains("overlap"), "{one} {other}: {}", text(&output));
    }
}

#[test]
fn a_missing_directory_and_a_template_are_refused() {
    let missing =
        Command::new(PANDO).args(["run", "-v", "/nowhere/at/all:/data:live", "--", "true"]).output().expect("pando can be started");
    assert!(!missing.status.success() && text(&missing).contains("/nowhere/at/all"), "{}", text(&missing));
    let template = ["template", "create", "live-mount-test", "-v", "/tmp:/data:live", "--", "true"];
    let refused = Command::new(PANDO).args(template).output().expect("pando can be started");
    assert!(!refused.status.success() && text(&refused).contains("cannot write to the host"), "{}", text(&refused));
}
