// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando debug CELL`: unmodified gdb attaches to running cells of `pando serve`, which go on.

use crate::case::text;
use crate::fixture::{Fixture, ProgramOutput, Service, assert_output, wait_until};
use crate::run::debug::{Compiled, contains, gdb_with, is_possible};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Stdio};

/// A service with a cell that runs the counting program.
struct Ticker {
    compiled: Compiled,
    fixture: Fixture,
    service: Service,
}

impl Ticker {
    fn start(compiler: &[&str], service: &[&str], words: &[&str]) -> Ticker {
        let compiled = Compiled::new(include_str!("ticker.c"), compiler);
        let fixture = Fixture::new();
        let place = compiled.path().to_str().expect("a plain name");
        let service = fixture.serve(&[&["--show", place], service].concat());
        let (volume, program) = (format!("{place}:{place}:ro"), format!("{place}/program"));
        let words: Vec<&str> = words.iter().map(|word| if *word == "PROGRAM" { &program } else { *word }).collect();
        let ProgramOutput { status, errors, .. } =
            fixture.pando(&[&["run", "-d", "-i", "--name", "ticker", "-v", &volume], &words[..]].concat());
        assert_eq!((status, &errors[..]), (0, ""));
        let ticker = Ticker { compiled, fixture, service };
        ticker.service.wait_for_output("/v1/cells/ticker", "begun");
        ticker
    }

    fn dynamic() -> Ticker {
        Ticker::start(&[], &[], &["PROGRAM"])
    }

    /// gdb's commands for the attached cell.
    fn gdb(&self, options: &str, commands: &[&str]) -> String {
        let target = format!("target remote | {} debug {options} ticker", crate::case::PANDO);
        self.run_gdb(&[&[&target[..]], commands].concat())
    }

    /// gdb's commands for the program.
    fn run_gdb(&self, commands: &[&str]) -> String {
        let data = self.fixture.path("data");
        gdb_with(self.compiled.path(), "program", &[("XDG_DATA_HOME", &data)], commands)
    }

    /// Gives the program a command, and waits until it prints this.
    #[track_caller]
    fn obeys(&self, command: &str, printed: &str) {
        let from = self.output().len();
        let (status, answer) = self.service.ask("POST", "/v1/cells/ticker/input", &format!("{command}\n"));
        assert_eq!(status, 204, "{answer}");
        wait_until(|| self.output()[from..].contains('\n') || self.outcome() != Value::Null);
        assert!(self.output()[from..].contains(printed), "{} {}", self.output(), self.outcome());
    }

    fn output(&self) -> String {
        self.fixture.pando(&["logs", "ticker"]).output
    }

    fn outcome(&self) -> Value {
        self.service.json("GET", "/v1/cells/ticker", json!(null))["outcome"].clone()
    }

    /// The program counts, obeys, and ends with its own status.
    #[track_caller]
    fn goes_on(&self) {
        self.obeys("count", "counted");
        let (status, answer) = self.service.ask("POST", "/v1/cells/ticker/input", "end\n");
        assert_eq!(status, 204, "{answer}");
        let ended = self.service.json("GET", "/v1/cells/ticker/wait", json!(null));
        assert_eq!(ended["outcome"]["exit_code"], 7, "{ended}");
    }

    /// Waits until no debugger has the cell any more, which is soon after its client has disconnected.
    fn wait_until_released(&self) {
        wait_until(|| self.fixture.pando(&["exec", "ticker", "busybox", "true"]).status == 0);
    }
}

/// The number of the program's process, from the refusal that lists all.
fn process_of<'a>(refused: &'a str, ticker: &Ticker) -> &'a str {
    let (before, _) = refused.split_once(&format!(" ({}", ticker.compiled.path().display())).expect("it is listed");
    before.rsplit(' ').next().expect("it has a number")
}

/// `pando debug` at a port of its choice.
struct DebugClient {
    process: Child,
    errors: BufReader<ChildStderr>,
    target: String,
}

impl DebugClient {
    fn start(ticker: &Ticker) -> DebugClient {
        let mut command = ticker.fixture.command(&["debug", "--port", "0", "ticker"]);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("pando starts");
        let errors = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut client = DebugClient { process, errors, target: String::new() };
        let mut line = String::new();
        client.errors.read_line(&mut line).expect("it can be read");
        let (_, port) = line.trim_end().rsplit_once(' ').expect("it names the port");
        client.target = format!("target remote 127.0.0.1:{port}");
        client
    }
}

impl Drop for DebugClient {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn gdb_attaches_to_a_running_cell_which_goes_on_after_it() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::dynamic();
    // Its calls are patched by now, unless the debugger undoes that.
    ticker.obeys("count", "counted");
    let commands = [
        "info threads",
        "thread apply all backtrace -1",
        "info sharedlibrary",
        "break tick",
        "continue",
        "backtrace",
        "print value",
        "print total > 10",
        "finish",
        "tbreak usleep",
        "continue",
        "detach",
    ];
    let printed = ticker.gdb("", &commands);
    contains(&printed, &["Thread 1.1 (program)", "Thread 1.2 (program)", "main () at program.c", "libc.so.6"]);
    contains(&printed, &["hit Breakpoint 1, tick (value=1)", "#1  ", "count (unused=", "$1 = 1", "$2 = 1", "Value returned is"]);
    contains(&printed, &["Temporary breakpoint 2, ", "detached"]);
    ticker.obeys("count", "counted");
    // A gdb that ends detaches, too.
    let printed = ticker.gdb("", &["break tick", "continue", "continue"]);
    assert_eq!(printed.matches("hit Breakpoint 1, tick (value=1)").count(), 2, "{printed}");
    ticker.goes_on();
}

#[test]
fn gdb_sees_the_code_of_the_program_s_file() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::start(&["-static"], &[], &["PROGRAM"]);
    ticker.obeys("count", "counted");
    let printed = ticker.gdb("", &["dump binary memory text.bin &_start (char*)&_start+200000"]);
    let (memory, file) = (fs::read(ticker.compiled.path().join("text.bin")), fs::read(ticker.compiled.path().join("program")));
    let (memory, file) = (memory.unwrap_or_else(|error| panic!("{error}: {printed}")), file.expect("it is compiled"));
    assert!(memory.len() > 100_000);
    let start = file.windows(64).position(|window| window == &memory[..64]).expect("the program begins so");
    let same = memory.iter().zip(&file[start..]).take_while(|(memory, file)| memory == file).count();
    assert_eq!(same, memory.len(), "the code differs");
    ticker.goes_on();
}

#[test]
fn values_are_watched_and_ctrl_c_stops_a_running_cell() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::dynamic();
    let printed = ticker.gdb("", &["break tick", "continue", "delete", "watch total", "continue", "info registers eflags", "detach"]);
    contains(&printed, &["Hardware watchpoint 2: total", "New value = ", "eflags ", "detached"]);
    assert!(!printed.contains(" TF "), "{printed}");
    ticker.obeys("count", "counted");
    let script = "import gdb, os, signal, threading\nthreading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n\
                  gdb.execute('continue')\n";
    fs::write(ticker.compiled.path().join("interrupt.py"), script).expect("there is room");
    // A thread that computes, and then one that waits.
    ticker.service.ask("POST", "/v1/cells/ticker/input", "compute\n");
    let printed = ticker.gdb("", &["source interrupt.py", "info threads", "continue &", "detach"]);
    contains(&printed, &["received signal SIGINT", "Thread 1.1 (program)"]);
    let printed = ticker.gdb("", &["set var has_ended = 1", "continue"]);
    contains(&printed, &["exited with code 03]"]);
    assert_eq!(ticker.outcome()["exit_code"], 3);
}

/// A child process has the breakpoint that its parent had when it was forked.
#[test]
fn child_processes_go_on_when_gdb_detaches() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::dynamic();
    let printed = ticker.gdb(
        "",
        &["set breakpoint always-inserted on", "break tick", "continue", "set var wants_child = 1", "continue", "continue", "detach"],
    );
    contains(&printed, &["tick (value=1)", "tick (value=1)", "tick (value=1)", "detached"]);
    ticker.obeys("child", "child 1280\n");
    ticker.goes_on();
}

/// The client is killed while the cell runs with a breakpoint, and while it is stopped.
#[test]
fn a_cell_goes_on_when_the_client_of_its_debugger_is_gone() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::dynamic();
    let client = DebugClient::start(&ticker);
    let kill = format!("shell kill -9 {}", client.process.id());
    let printed = ticker.run_gdb(&[&client.target, "set breakpoint always-inserted on", "break tick", "continue", &kill, "info threads"]);
    contains(&printed, &["hit Breakpoint 1, tick (value=1)"]);
    ticker.wait_until_released();
    ticker.obeys("count", "counted");
    let client = DebugClient::start(&ticker);
    let script = format!(
        "import gdb, os, threading\nthreading.Timer(1, lambda: os.kill({}, 9)).start()\ngdb.execute('continue')\n",
        client.process.id()
    );
    fs::write(ticker.compiled.path().join("kill.py"), script).expect("there is room");
    let printed = ticker.run_gdb(&[&client.target, "break tick if total < 0", "source kill.py"]);
    contains(&printed, &["Breakpoint 1 at"]);
    ticker.wait_until_released();
    ticker.goes_on();
}

#[test]
fn a_debugged_cell_ends_when_gdb_kills_it_and_when_it_is_killed() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::dynamic();
    let printed = ticker.gdb("", &["break tick", "continue", "kill"]);
    contains(&printed, &["tick (value=1)", "[Inferior 1 (process 1) killed]"]);
    let ended = ticker.service.json("GET", "/v1/cells/ticker/wait", json!(null));
    assert_eq!(ended["outcome"]["reason"], "killed");
    let refused = ticker.fixture.pando(&["debug", "ticker"]);
    assert!(refused.status == 125 && refused.errors.contains("cannot debug cell 1: it has ended"), "{}", refused.errors);

    let ticker = Ticker::dynamic();
    let data = ticker.fixture.path("data");
    let kill = format!("shell XDG_DATA_HOME={} {} kill ticker", data.display(), crate::case::PANDO);
    let printed = ticker.gdb("", &["break tick", "continue", "delete", &kill, "continue"]);
    contains(&printed, &["tick (value=1)", "Program terminated with signal SIGKILL"]);
    let ended = ticker.service.json("GET", "/v1/cells/ticker/wait", json!(null));
    assert_eq!(ended["outcome"]["reason"], "killed");
}

#[test]
fn requests_that_a_debugger_does_not_allow_are_refused_with_the_reason() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::start(&[], &["--swap", &format!("{}:64M", std::env::temp_dir().display())], &["PROGRAM"]);
    // The head of the answer comes once the cell is halted.
    let mut debugger = ticker.service.begin("POST", "/v1/cells/ticker/debug", 1000);
    let mut head = [0; 12];
    debugger.read_exact(&mut head).expect("it is answered");
    assert_eq!(text(&head), "HTTP/1.1 200");
    let reason = "a debugger is attached to it: detach that one first";
    for (words, action) in [
        (&["debug", "ticker"][..], "debug"),
        (&["sleep", "ticker"], "put to sleep"),
        (&["template", "freeze", "ticker", "frozen"], "freeze"),
    ] {
        let refused = ticker.fixture.pando(words);
        assert!(refused.errors.contains(&format!("cannot {action} cell 1: {reason}")), "{words:?} {}", refused.errors);
    }
    let (status, answer) = ticker.service.ask("POST", "/v1/cells/ticker/fork", r#"{"count": 1}"#);
    assert!(status == 409 && answer.contains(reason), "{answer}");
    drop(debugger);
    ticker.wait_until_released();
    let refused = ticker.fixture.pando(&["debug", "--process", "999", "ticker"]);
    contains(&refused.errors, &["cannot debug cell 1: it has no process 999: it has ", "/program)"]);
    for (words, message) in [
        (&["debug", "--process", "1", "nobody"][..], "there is no cell nobody"),
        (&["debug", "77"], "there is no cell 77"),
        (&["debug", "--process", "1", "-m", "64M", "ticker"], "--process is for a running cell"),
        (&["debug", "--", "ticker"], "ticker"),
    ] {
        let refused = ticker.fixture.pando(words);
        assert!(refused.status != 0 && refused.errors.contains(message), "{words:?} {}", refused.errors);
    }
    ticker.goes_on();
}

#[test]
fn only_the_owner_of_the_service_may_debug_its_cells() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::start(&[], &["--control", "127.0.0.1:0"], &["-l", "project=a", "PROGRAM"]);
    let token = ticker.fixture.pando(&["token", "create", "-l", "project=a"]).output;
    let control = ticker.service.json("GET", "/v1", json!(null))["control"].as_str().expect("it has one").to_owned();
    let asked = |words: &[&str]| {
        let mut command = ticker.fixture.command(words);
        let outcome = command.env("PANDO_HOST", format!("tcp://{control}")).env("PANDO_TOKEN", token.trim()).output();
        let outcome = outcome.expect("pando starts");
        format!("{}{}", text(&outcome.stdout), text(&outcome.stderr))
    };
    contains(&asked(&["ps"]), &["ticker"]);
    contains(&asked(&["debug", "ticker"]), &["POST /v1/cells/ticker/debug is not allowed with this token"]);
    ticker.goes_on();
}

#[test]
fn a_sleeping_cell_wakes_for_its_debugger() {
    if !is_possible() {
        return;
    }
    let script = "echo begun; read line; exec $0";
    let swap = format!("{}:64M", std::env::temp_dir().display());
    let ticker = Ticker::start(&[], &["--swap", &swap], &["sh", "-c", script, "PROGRAM"]);
    wait_until(|| ticker.fixture.pando(&["sleep", "ticker"]).status == 0);
    let printed = gdb_with(
        ticker.compiled.path(),
        "/bin/sh",
        &[("XDG_DATA_HOME", &ticker.fixture.path("data"))],
        &[&format!("target remote | {} debug ticker", crate::case::PANDO), "info threads", "detach"],
    );
    contains(&printed, &["Thread 1.1 (sh)", "detached"]);
    ticker.obeys("", "begun");
    ticker.goes_on();
}

/// gdb learns that its process has ended. The same program starts again without its breakpoints.
#[test]
fn a_cell_goes_on_when_the_debugged_process_has_ended() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::start(&[], &[], &["sh", "-c", "exec 3<&0; $0 <&3 & wait $!; exec $0 <&3", "PROGRAM"]);
    let refused = ticker.fixture.pando(&["debug", "--process", "999", "ticker"]).errors;
    let number = process_of(&refused, &ticker);
    let commands = ["set breakpoint always-inserted on", "break main", "set var has_ended = 1", "continue"];
    let printed = ticker.gdb(&format!("--process {number}"), &commands);
    contains(&printed, &["Breakpoint 1 at", "exited with code 03]"]);
    wait_until(|| ticker.output().matches("begun").count() == 2 || ticker.outcome() != Value::Null);
    ticker.goes_on();
}

#[test]
fn gdb_debugs_another_process_of_a_cell() {
    if !is_possible() {
        return;
    }
    let ticker = Ticker::start(&[], &[], &["sh", "-c", "exec 3<&0; $0 <&3 & wait $!", "PROGRAM"]);
    let refused = ticker.fixture.pando(&["debug", "--process", "999", "ticker"]).errors;
    contains(&refused, &["it has 1 (", "sh)", "/program)"]);
    let number = process_of(&refused, &ticker);
    let printed = ticker.gdb(&format!("--process {number}"), &["break tick", "continue", "backtrace", "detach"]);
    contains(&printed, &["hit Breakpoint 1, tick (value=1)", "count (unused=", "detached"]);
    ticker.obeys("count", "counted");
    assert_output(&ticker.fixture.pando(&["kill", "ticker"]), "");
}
