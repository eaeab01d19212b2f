// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with its arguments and input, run natively and in a cell.

use crate::data;
use pando_testing::lab::is_kvm_available;
use pando_testing::{are_installed, host_program};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The command line under test.
pub(crate) const PANDO: &str = env!("CARGO_BIN_EXE_pando");
/// Timeout for a hanging run; the slowest one takes a small part of it on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The environment of every run, which is also the complete environment of programs in cells.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "root"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("TERM", "dumb"),
    ("TZ", "UTC0"),
    ("USER", "root"),
];

/// Root's shell from the host's user database, which cells see, too.
fn shell() -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let root = users.lines().find(|line| line.starts_with("root:"));
    root.and_then(|line| line.split(':').nth(6)).unwrap_or("/bin/sh").into()
}

/// Whether the long runs were requested.
pub(crate) fn long_runs() -> bool {
    std::env::var("PANDO_TESTS").as_deref() == Ok("all")
}

/// The outcome of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CaseOutcome {
    /// The exit status as a shell shows it: 128+N after signal N.
    pub(crate) status: i32,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: String,
}

/// The source of standard input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    /// `/dev/null`.
    Nothing,
    /// A pipe with these bytes.
    Pipe(&'a [u8]),
    /// A file.
    File(&'a Path),
}

/// A program with its arguments, input and options.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    program: OsString,
    arguments: Vec<OsString>,
    options: Vec<OsString>,
    directory: PathBuf,
    input: Input<'a>,
}

impl<'a> Case<'a> {
    /// A program and its arguments, without input.
    pub(crate) fn new(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>]) -> Case<'a> {
        Case {
            program: host_program(program.as_ref()).into(),
            arguments: arguments.iter().map(|argument| argument.as_ref().into()).collect(),
            options: Vec::new(),
            directory: "/".into(),
            input: Input::Nothing,
        }
    }

    /// Sets standard input.
    pub(crate) fn input(mut self, input: Input<'a>) -> Case<'a> {
        self.input = input;
        self
    }

    /// Sets the working directory.
    pub(crate) fn directory(mut self, directory: &Path) -> Case<'a> {
        self.directory = directory.into();
        self
    }

    /// Adds options for `pando run`.
    pub(crate) fn options(mut self, options: &[impl AsRef<OsStr>]) -> Case<'a> {
        self.options.extend(options.iter().map(|option| option.as_ref().to_owned()));
        self
    }

    /// Adds a file that the cell sees.
    pub(crate) fn file(self, file: impl AsRef<OsStr>) -> Case<'a> {
        self.options(&[OsStr::new("-v"), file.as_ref()])
    }

    /// Runs it on the host.
    pub(crate) fn native(&self) -> CaseOutcome {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        self.run(command)
    }

    /// Runs it natively by a command that takes the program and its arguments as its last arguments.
    pub(crate) fn through(&self, mut command: Command) -> CaseOutcome {
        command.arg(&self.program).args(&self.arguments);
        self.run(command)
    }

    /// Runs it in a cell.
    pub(crate) fn cell(&self) -> CaseOutcome {
        finish(self.command(), self.input)
    }

    /// The command that runs it in a cell.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(PANDO);
        command.arg("run").args(&self.options).arg("--").arg(&self.program).args(&self.arguments);
        self.surround(&mut command);
        // Pando's cache of the host's software, shared by all runs.
        command.env("XDG_CACHE_HOME", data::directory().join("cache"));
        command
    }

    /// Runs it both ways and compares: status, output, and standard error.
    pub(crate) fn check(&self) {
        if let Err(difference) = self.compare() {
            panic!("{difference}");
        }
    }

    /// Runs it both ways and describes the difference.
    pub(crate) fn compare(&self) -> Result<(), String> {
        self.hold(&self.native(), &self.cell())
    }

    /// Compares the cell's outcome with the host's.
    pub(crate) fn hold(&self, native: &CaseOutcome, cell: &CaseOutcome) -> Result<(), String> {
        if native == cell {
            return Ok(());
        }
        let words = [&self.program].into_iter().chain(&self.arguments).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut text = format!("`{words}` (options {:?}) is not the same in a cell:\n", self.options);
        if native.status != cell.status {
            text += &format!("  status: native {}, cell {}\n", native.status, cell.status);
        }
        text += &difference("output", &native.output, &cell.output);
        text += &difference("errors", native.errors.as_bytes(), cell.errors.as_bytes());
        Err(text)
    }

    /// Runs it both ways, each in a directory of its own that `prepare` has filled, and describes the difference.
    pub(crate) fn compare_in(&self, prepare: impl Fn(&Path)) -> Result<(), String> {
        let above = tempfile::tempdir().expect("the host has room");
        let directory = above.path().join("work");
        let fresh = || {
            std::fs::create_dir(&directory).expect("it is not there");
            prepare(&directory);
            self.clone().directory(&directory)
        };
        let native = fresh().native();
        std::fs::remove_dir_all(&directory).expect("it is ours");
        self.hold(&native, &fresh().cell())
    }

    fn surround(&self, command: &mut Command) {
        command.env_clear().envs(ENVIRONMENT).env("SHELL", shell()).current_dir(&self.directory);
    }

    fn run(&self, mut command: Command) -> CaseOutcome {
        self.surround(&mut command);
        finish(command, self.input)
    }
}

/// Runs a program with these arguments in a new directory, natively and in a cell, if the needed programs are installed.
pub(crate) fn compare_if(needs: &[&str], program: &str, words: &[&str]) {
    if !is_kvm_available() || !are_installed(needs) {
        return;
    }
    if let Err(problem) = Case::new(program, words).compare_in(|_| {}) {
        panic!("{problem}");
    }
}

/// Runs a command until it ends. Fails after a timeout.
pub(crate) fn finish(mut command: Command, input: Input<'_>) -> CaseOutcome {
    command.stdin(match input {
        Input::Nothing => Stdio::null(),
        Input::Pipe(_) => Stdio::piped(),
        Input::File(path) => std::fs::File::open(path).expect("the input is there").into(),
    });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let writer = child.stdin.take();
    let output = gather(child.stdout.take().expect("a pipe"));
    let errors = gather(child.stderr.take().expect("a pipe"));
    thread::scope(|scope| {
        if let (Some(mut writer), Input::Pipe(bytes)) = (writer, input) {
            // A program that has read enough closes the pipe.
            scope.spawn(move || drop(writer.write_all(bytes)));
        }
        let output = patiently(&mut child, &output, &command);
        let errors = patiently(&mut child, &errors, &command);
        let status = child.wait().expect("the program is ours");
        CaseOutcome { status: as_shell(status), output, errors: String::from_utf8_lossy(&errors).into_owned() }
    })
}

/// The exit status as a shell shows it.
pub(crate) fn as_shell(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Reads until the end, on a thread of its own.
fn gather(mut source: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).expect("a pipe can be read");
        // The receiver is gone if the test has failed.
        let _ = sender.send(bytes);
    });
    receiver
}

fn patiently(child: &mut Child, stream: &mpsc::Receiver<Vec<u8>>, command: &Command) -> Vec<u8> {
    stream.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
        child.kill().expect("the program is ours");
        panic!("{command:?} hangs");
    })
}

/// Describes the first difference of two byte strings, with its context.
fn difference(what: &str, native: &[u8], cell: &[u8]) -> String {
    let Some(at) = (0..native.len().max(cell.len())).find(|&at| native.get(at) != cell.get(at)) else { return String::new() };
    let from = at.saturating_sub(60);
    let part = |bytes: &[u8]| String::from_utf8_lossy(&bytes[from.min(bytes.len())..bytes.len().min(at + 200)]).into_owned();
    format!(
        "  {what} from byte {at} (native {} bytes, cell {}):\n    native: {:?}\n    cell:   {:?}\n",
        native.len(),
        cell.len(),
        part(native),
        part(cell)
    )
}

/// Runs `pando` with these arguments.
pub fn pando(words: &[&str]) -> CaseOutcome {
    let mut command = Command::new(PANDO);
    command.args(words);
    finish(command, Input::Nothing)
}

/// Converts bytes that must be text.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}
