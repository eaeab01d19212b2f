// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando debug`: unmodified gdb debugs unmodified programs in cells.

use crate::PANDO;
use crate::case::text;
use pando_testing::lab::is_kvm_available;
use pando_testing::{are_installed, host_program};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

/// Whether gdb can debug a program in a cell on this machine.
pub(crate) fn is_possible() -> bool {
    is_kvm_available() && are_installed(&["gdb", "gcc"])
}

/// A directory with a compiled program.
pub(crate) struct Compiled(TempDir);

impl Compiled {
    pub(crate) fn new(source: &str, options: &[&str]) -> Compiled {
        let place = tempfile::tempdir().expect("there is room");
        fs::write(place.path().join("program.c"), source).expect("there is room");
        let mut compiler = Command::new(host_program("gcc"));
        compiler.args(["-g", "-O0", "-Wall", "-Werror", "-pthread", "-o", "program", "program.c"]).args(options);
        assert!(compiler.current_dir(place.path()).status().expect("gcc starts").success());
        Compiled(place)
    }

    /// The directory; the program is called `program`.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn steps(options: &[&str]) -> Compiled {
        Compiled::new(include_str!("steps.c"), options)
    }

    /// The output of gdb's commands for the program with these arguments in a cell.
    fn debug(&self, arguments: &str, commands: &[&str]) -> String {
        let target = format!("target remote | {PANDO} debug ./program {arguments}");
        gdb(self.0.path(), "program", &[&[&target[..]], commands].concat())
    }
}

/// The output and errors of gdb's commands for a program.
fn gdb(place: &Path, program: &str, commands: &[&str]) -> String {
    gdb_with(place, program, &[], commands)
}

/// The same, with further variables of the environment.
pub(crate) fn gdb_with(place: &Path, program: &str, variables: &[(&str, &Path)], commands: &[&str]) -> String {
    let mut command = Command::new(host_program("gdb"));
    command.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set pagination off", "-ex", "set remotetimeout 100"]);
    for line in commands {
        command.args(["-ex", line]);
    }
    let outcome = command
        .arg(program)
        .envs(variables.iter().copied())
        .env_remove("XDG_RUNTIME_DIR")
        .current_dir(place)
        .stdin(Stdio::null())
        .output()
        .expect("gdb starts");
    format!("{}{}", text(&outcome.stdout), text(&outcome.stderr))
}

/// `pando debug` at a port of its choice.
struct PortServer {
    process: Child,
    errors: BufReader<ChildStderr>,
    address: String,
}

impl PortServer {
    /// Starts it for a program in a directory, and waits until gdb can connect.
    fn start(place: &Path, program: &[&str]) -> PortServer {
        let mut process = Command::new(PANDO)
            .args(["debug", "--port", "0"])
            .args(program)
            .current_dir(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("pando starts");
        let errors = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut server = PortServer { process, errors, address: String::new() };
        server.process.stdin.take().expect("a pipe").write_all(b"something\n").expect("a pipe takes this much");
        let mut line = String::new();
        while !line.contains("waiting for gdb") {
            line.clear();
            assert!(server.errors.read_line(&mut line).expect("it can be read") > 0, "the debugger has ended");
            if let Some((before, _)) = line.split_once(" is forwarded") {
                server.address = before.trim_start_matches("pando: ").into();
            }
        }
        server
    }

    /// gdb's command that connects to it.
    fn target(&self) -> String {
        format!("target remote {}", self.address)
    }

    /// Waits for the end of the program. Returns its status and its output.
    fn finish(mut self) -> (Option<i32>, String) {
        let mut output = String::new();
        self.process.stdout.take().expect("a pipe").read_to_string(&mut output).expect("it is text");
        (self.process.wait().expect("it is ours").code(), output)
    }
}

impl Drop for PortServer {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Checks that these parts are in a text, in this order.
#[track_caller]
pub(crate) fn contains(printed: &str, parts: &[&str]) {
    let mut rest = printed;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { panic!("`{part}` is missing in {printed}") };
        rest = after;
    }
}

/// gdb's lines from the first breakpoint on, without those that name the program's file, process or output.
fn from_breakpoint(printed: &str) -> Vec<&str> {
    let lines = printed.lines().skip_while(|line| !line.starts_with("Breakpoint 1, "));
    lines.filter(|line| !["[Inferior", "warning:", "sum "].iter().any(|start| line.starts_with(start))).collect()
}

#[test]
fn gdb_prints_the_same_of_a_program_in_a_cell_as_natively() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&["-static"]);
    let commands = [
        "set print frame-arguments none",
        "break twice",
        "continue",
        "backtrace",
        "print value",
        "info registers rip eflags",
        "x/4i $pc",
        "stepi",
        "stepi",
        "next",
        "print half",
        "print $xmm0.v2_double[0]",
        "info registers mxcsr fctrl ftag",
        "finish",
        "print sum",
        "set var sum = 40",
        "tbreak 27",
        "delete 1",
        "continue",
        "print sum",
        "info line",
        "kill",
    ];
    let native = gdb(compiled.0.path(), "program", &[&["starti"], &commands[..]].concat());
    let cell = compiled.debug("", &commands);
    let (native, cell) = (from_breakpoint(&native), from_breakpoint(&cell));
    assert!(native.len() > 20, "{native:#?}");
    assert_eq!(cell, native);
}

#[test]
fn a_program_ends_under_gdb_with_its_status() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&[]);
    contains(&compiled.debug("", &["continue"]), &["exited with code 014]", "sum 12"]);
    let killed = compiled.debug("", &["break twice", "continue", "kill", "info threads"]);
    contains(&killed, &["Breakpoint 1, twice (value=1)", "[Inferior 1 (process 1) killed]", "No threads."]);
}

#[test]
fn signals_stop_in_gdb_before_they_take_effect() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&[]);
    let passed = compiled.debug("fault", &["continue", "continue", "backtrace", "continue"]);
    contains(&passed, &["received signal SIGUSR1", "received signal SIGSEGV", "#0  main", "terminated with signal SIGSEGV"]);
    contains(&passed, &["seen 10"]);
    let discarded = compiled.debug("fault", &["continue", "signal 0", "kill"]);
    contains(&discarded, &["seen 0"]);
    let silent = compiled.debug("quiet", &["handle SIGUSR1 nostop noprint pass", "continue"]);
    contains(&silent, &["exited normally", "seen 10"]);
}

#[test]
fn ctrl_c_stops_a_program_that_computes() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&[]);
    let script = "import gdb, os, signal, threading\nthreading.Timer(2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n\
                  gdb.execute('continue')\n";
    fs::write(compiled.0.path().join("interrupt.py"), script).expect("there is room");
    let commands = ["handle SIGUSR1 nostop noprint pass", "source interrupt.py", "print half > 0", "set var seen = 77", "continue"];
    contains(&compiled.debug("loop", &commands), &["received signal SIGINT", "main", "$1 = 1", "exited normally"]);
}

#[test]
fn gdb_sees_the_threads_and_libraries_of_a_dynamic_program() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::new(include_str!("threads.c"), &[]);
    let commands =
        ["break add", "continue", "info threads", "backtrace", "info sharedlibrary", "thread 1", "backtrace -1", "delete", "continue"];
    let printed = compiled.debug("", &commands);
    contains(&printed, &["hit Breakpoint 1, add (value=", "Thread 1.1 (program)", "Thread 1.2 (program)", "#1  ", "work (argument="]);
    contains(&printed, &["ld-linux-x86-64.so.2", "libc.so.6", "main () at program.c", "exited normally"]);
    contains(&printed, &["total 6, child 106"]);
    // Each thread reaches the breakpoint, and the child process does not stop there.
    let printed = compiled.debug("", &["break add", "continue", "continue", "continue", "continue"]);
    assert_eq!(printed.matches("hit Breakpoint 1, add (value=").count(), 3, "{printed}");
    contains(&printed, &["total 6, child 106"]);
}

#[test]
fn watched_values_stop_the_thread_that_changes_them() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::new(include_str!("threads.c"), &[]);
    let commands = ["break work", "continue", "delete", "watch total", "continue", "continue", "continue", "delete", "continue"];
    let printed = compiled.debug("", &commands);
    assert_eq!(printed.matches("Hardware watchpoint 2: total\n\nOld value = ").count(), 3, "{printed}");
    contains(&printed, &["New value = 6", "add (value="]);
    contains(&printed, &["total 6, child 106"]);
}

#[test]
fn gdb_debugs_python_with_threads_and_child_processes() {
    if !is_possible() {
        return;
    }
    let python = "/usr/bin/python3";
    let script = "import subprocess, threading\ndone = []\n\
                  threads = [threading.Thread(target=done.append, args=(n,)) for n in range(3)]\n\
                  [t.start() for t in threads]; [t.join() for t in threads]\n\
                  print(sorted(done), subprocess.run(['echo', 'child'], capture_output=True).stdout)\n";
    let place = tempfile::tempdir().expect("there is room");
    fs::write(place.path().join("script.py"), script).expect("there is room");
    let target = format!("target remote | {PANDO} debug {} script.py", host_program(python));
    let printed =
        gdb(place.path(), python, &[&target, "break pthread_create", "continue", "info threads", "continue", "delete", "continue"]);
    assert_eq!(printed.matches("Breakpoint 1, ").count(), 2, "{printed}");
    contains(&printed, &["Thread 1.1 (python3)", "exited normally"]);
    contains(&printed, &["[0, 1, 2] b'child\\n'"]);
}

#[test]
fn gdb_attaches_to_a_port_and_detaches() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&[]);
    let server = PortServer::start(compiled.0.path(), &["sh", "-c", "read line; echo got $line; exit 5"]);
    let printed = gdb(compiled.0.path(), "program", &[&server.target(), "info registers rip", "detach"]);
    contains(&printed, &["rip ", "detached"]);
    assert_eq!(server.finish(), (Some(5), "got something\n".into()));
}

/// The program stops at the breakpoint while all its instructions are executed singly.
#[test]
fn a_program_goes_on_when_gdb_detaches_while_values_are_watched() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&["-static"]);
    let server = PortServer::start(compiled.0.path(), &["./program"]);
    let commands = ["break twice", "continue", "watch seen", "continue", "info registers eflags", "delete", "detach"];
    let printed = gdb(compiled.0.path(), "program", &[&[&server.target()[..]], &commands[..]].concat());
    contains(&printed, &["Hardware watchpoint 2: seen", "Breakpoint 1, twice (value=2)", "eflags ", "detached"]);
    assert!(!printed.contains(" TF "), "gdb sees flags that the program does not have: {printed}");
    assert_eq!(server.finish(), (Some(12), "sum 12\n".into()));
}

/// The debugger and gdb run in a cell themselves.
#[test]
fn gdb_debugs_inside_of_a_cell() {
    if !is_possible() {
        return;
    }
    let compiled = Compiled::steps(&["-static"]);
    let script = "gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'target remote | pando debug ./program' \
                  -ex 'break twice' -ex continue -ex backtrace -ex delete -ex continue program";
    let outcome = Command::new(PANDO)
        .args(["run", "--nest", "2", "-v", &format!("{PANDO}:/opt/pando:ro"), "-e", "PATH=/opt:/usr/bin:/bin", "--", "sh", "-c", script])
        .current_dir(compiled.0.path())
        .stdin(Stdio::null())
        .output()
        .expect("pando starts");
    contains(text(&outcome.stdout), &["Breakpoint 1, twice (value=1)", "#1  ", "exited with code 014]"]);
    contains(text(&outcome.stderr), &["sum 12"]);
}
