// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando checkpoint --port` and `pando restore ADDR:PORT`: running programs that move to another process.

use crate::PANDO;
use crate::case::{as_shell, text};
use pando_testing::needs_kvm;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// A token for all tests.
const TOKEN: &str = "a token of the tests, which is no secret";
/// Types of the frames of a move.
const PAGES: u8 = 8;
const READY: u8 = 10;
const HAND_OVER: u8 = 11;
const STARTED: u8 = 12;
const NEED: u8 = 13;
const ALL_SENT: u8 = 15;

/// Counts with a child process, through two pipes, and writes to a file. The first half ends at the end of standard input, which only the
/// destination's has.
const COUNT: &str = "import subprocess, sys
adder = 'import sys\\ntotal = 0\\nfor line in sys.stdin:\\n    total += int(line)\\n    print(total, flush=True)'
child = subprocess.Popen([sys.executable, '-c', adder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
log = open('/tmp/log', 'w+')
count = int(sys.argv[1])
for number in range(count):
    if number == count // 2: sys.stdin.read()
    child.stdin.write(f'{number}\\n'); child.stdin.flush()
    log.write(f'{number}\\n')
    print(number, int(child.stdout.readline()), flush=True)
log.flush(); log.seek(0)
child.stdin.close()
print('log', [int(line) for line in log] == list(range(count)), 'child', child.wait())
sys.exit(7)";

/// A process with `--port`, which is killed when this is dropped.
struct Movable {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
    address: String,
}

impl Drop for Movable {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Movable {
    /// Starts `pando checkpoint` of a program, whose input does not end.
    fn start(options: &[&str], program: &[&str]) -> Movable {
        let mut command = Command::new(PANDO);
        command.args(["checkpoint", "--port", "0"]).args(options).arg("--").args(program).env("PANDO_MOVE_TOKEN", TOKEN);
        Movable::of(command)
    }

    /// Starts a command with `--port`, and waits until the program can move.
    fn of(mut command: Command) -> Movable {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("pando starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut movable = Movable { child, output, errors, address: String::new() };
        let mut line = String::new();
        while !line.contains("takes the program over") {
            line.clear();
            assert!(movable.errors.read_line(&mut line).expect("it is text") > 0, "pando has ended");
            if let Some((address, _)) = line.split_once(" is forwarded") {
                movable.address = address.trim_start_matches("pando: ").into();
            }
        }
        movable
    }

    /// The next line of output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it is text");
        line
    }

    /// Waits for its end: status, further output and errors.
    fn finish(mut self) -> (i32, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).expect("it is text");
        self.errors.read_to_string(&mut errors).expect("it is text");
        (as_shell(self.child.wait().expect("it is ours")), output, errors)
    }
}

/// The command that takes a program over.
fn restorer(address: &str, options: &[&str]) -> Command {
    let mut command = Command::new(PANDO);
    command.arg("restore").args(options).arg(address).env("PANDO_MOVE_TOKEN", TOKEN).stdin(Stdio::null());
    command
}

/// Takes a program over, and waits for its end: status, output and errors.
fn restore(address: &str, options: &[&str]) -> (i32, String, String) {
    let outcome = restorer(address, options).output().expect("pando starts");
    (as_shell(outcome.status), text(&outcome.stdout).into(), text(&outcome.stderr).into())
}

/// The output of [`COUNT`].
fn counted(count: u64) -> String {
    let lines: String = (0..count).map(|number| format!("{number} {}\n", number * (number + 1) / 2)).collect();
    lines + "log True child 0\n"
}

#[test]
fn a_program_with_a_child_process_moves_and_goes_on() {
    needs_kvm!();
    let mut source = Movable::start(&["-m", "512M"], &["/usr/bin/python3", "-c", COUNT, "600"]);
    let first = source.line();
    let (status, after, errors) = restore(&source.address.clone(), &[]);
    assert_eq!((status, &errors[..]), (7, ""), "{after}");
    let (status, before, errors) = source.finish();
    assert_eq!(status, 123, "{errors}");
    assert!(errors.starts_with("pando: moved to ") && errors.lines().count() == 1, "{errors}");
    assert_eq!(format!("{first}{before}{after}"), counted(600));
    assert!(after.lines().count() > 300 && !before.contains("log"), "{before}");
}

#[test]
fn a_program_moves_twice_and_its_nested_cells_with_it() {
    needs_kvm!();
    let script = "pando run --nest 2 -- python3 -c \"$0\" 400 | while read -r line; do echo \"$line\"; done; echo through";
    let volume = format!("{PANDO}:/opt/pando:ro");
    let options = ["-m", "1G", "--nest", "4", "-e", "PATH=/opt:/usr/bin:/bin", "-v", &volume];
    let mut first = Movable::start(&options, &["sh", "-c", script, COUNT]);
    let mut output = first.line();
    let (status, _, errors) = restore(&first.address.clone(), &[]);
    assert!(status == 125 && errors.contains(&format!("show them here as well, with -v {volume}")), "{errors}");
    let second = Movable::of(restorer(&first.address, &["--port", "0", "-v", &volume]));
    // The first one ends when the second one has all pages.
    let (status, rest, errors) = first.finish();
    assert!(status == 123 && errors.contains("moved to"), "{errors}");
    output += &rest;
    let (status, after, errors) = restore(&second.address.clone(), &["-v", &volume]);
    assert_eq!((status, &errors[..]), (0, ""), "{after}");
    let (status, rest, errors) = second.finish();
    assert!(status == 123 && errors.contains("moved to"), "{errors}");
    assert_eq!(output + &rest + &after, counted(400) + "through\n");
}

/// The fate of a frame on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passage {
    Pass,
    /// It waits until the relay is released, and those after it do not.
    Hold,
    /// It is lost.
    Swallow,
    /// The connection is cut instead.
    Cut,
    /// The connection is cut after it.
    PassAndCut,
}

/// Relays the connections to a source, frame by frame.
struct Relay {
    address: String,
    release: Sender<()>,
}

impl Relay {
    fn start(source: &str, passage: fn(u8) -> Passage) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one").to_string();
        let (source, (release, released)) = (source.to_owned(), channel());
        let released = Arc::new(Mutex::new(released));
        thread::spawn(move || {
            for destination in listener.incoming() {
                let destination = destination.expect("a connection");
                let source = TcpStream::connect(&source).expect("it listens");
                let ways = [(&source, &destination), (&destination, &source)].map(|(from, to)| (clone(from), clone(to)));
                for (from, to) in ways {
                    let released = Arc::clone(&released);
                    thread::spawn(move || relay(from, to, passage, &released));
                }
            }
        });
        Relay { address, release }
    }
}

fn clone(socket: &TcpStream) -> TcpStream {
    socket.try_clone().expect("a descriptor")
}

fn relay(mut from: TcpStream, to: TcpStream, passage: fn(u8) -> Passage, released: &Arc<Mutex<Receiver<()>>>) {
    let (to, (hold, held)) = (Arc::new(Mutex::new(to)), channel::<Vec<u8>>());
    let write = |to: &Mutex<TcpStream>, frame: &[u8]| to.lock().expect("no thread has failed").write_all(frame).is_ok();
    let (late, released) = (Arc::clone(&to), Arc::clone(released));
    thread::spawn(move || {
        let Ok(first) = held.recv() else { return };
        // An error: the test has ended.
        let _ = released.lock().expect("no test has failed").recv();
        let _ = [first].into_iter().chain(held).all(|frame| write(&late, &frame));
    });
    let mut header = [0; 5];
    while from.read_exact(&mut header).is_ok() {
        let mut frame = header.to_vec();
        frame.resize(4 + u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize, 0);
        if from.read_exact(&mut frame[5..]).is_err() {
            break;
        }
        let is_over = match passage(header[4]) {
            Passage::Pass => !write(&to, &frame),
            Passage::Hold => hold.send(frame).is_err(),
            Passage::Swallow => false,
            Passage::Cut => true,
            Passage::PassAndCut => {
                write(&to, &frame);
                true
            }
        };
        if is_over {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.lock().expect("no thread has failed").shutdown(Shutdown::Both));
}

/// Has 200 MiB that cannot be compressed, waits for the end of its input, and reads all of them afterwards.
const LARGE: &str = "import hashlib, os, sys
data = os.urandom(200 << 20)
digest = hashlib.sha256(data).hexdigest()
print('ready', flush=True)
sys.stdin.read()
print('moved', flush=True)
print(hashlib.sha256(data).hexdigest() == digest)";

#[test]
fn a_large_program_runs_before_its_pages_have_come() {
    needs_kvm!();
    let mut source = Movable::start(&["-m", "1G"], &["/usr/bin/python3", "-c", LARGE]);
    assert_eq!(source.line(), "ready\n");
    // Only pages that the program needs come.
    let relay = Relay::start(&source.address, |kind| if matches!(kind, PAGES | ALL_SENT) { Passage::Hold } else { Passage::Pass });
    let mut child = restorer(&relay.address, &[]).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it is text");
    assert_eq!(line, "moved\n");
    assert!(source.child.try_wait().expect("it is ours").is_none(), "the source still has pages");
    relay.release.send(()).expect("it waits");
    line.clear();
    output.read_line(&mut line).expect("it is text");
    assert_eq!((&line[..], as_shell(child.wait().expect("it is ours"))), ("True\n", 0));
    assert_eq!(source.finish().0, 123);
}

#[test]
fn a_large_program_ends_with_a_message_when_a_page_never_comes() {
    needs_kvm!();
    // With the second one the program waits for a page when the connection is cut.
    let cuts: [fn(u8) -> Passage; 2] = [
        |kind| match kind {
            PAGES | ALL_SENT => Passage::Swallow,
            STARTED => Passage::PassAndCut,
            _ => Passage::Pass,
        },
        |kind| match kind {
            PAGES | ALL_SENT => Passage::Swallow,
            NEED => Passage::Cut,
            _ => Passage::Pass,
        },
    ];
    for cut in cuts {
        let mut source = Movable::start(&["-m", "1G"], &["/usr/bin/python3", "-c", LARGE]);
        assert_eq!(source.line(), "ready\n");
        let relay = Relay::start(&source.address, cut);
        let (status, _, errors) = restore(&relay.address, &[]);
        assert_eq!(status, 125, "{errors}");
        assert!(errors.contains("pando: the connection to the source is broken"), "{errors}");
        assert!(errors.contains("pando: cannot read a page of the program: the source has not sent it"), "{errors}");
        let (status, output, errors) = source.finish();
        assert_eq!((status, &output[..]), (125, ""), "it does not run twice");
        assert!(errors.contains("and the connection broke before all of its pages were sent"), "{errors}");
    }
}

#[test]
fn a_program_whose_handover_is_not_confirmed_never_runs_twice() {
    needs_kvm!();
    let cuts: [fn(u8) -> Passage; 2] = [
        |kind| if kind == HAND_OVER { Passage::Cut } else { Passage::Pass },
        |kind| if kind == STARTED { Passage::Cut } else { Passage::Pass },
    ];
    for cut in cuts {
        let mut source = Movable::start(&["-m", "512M"], &["/usr/bin/python3", "-c", COUNT, "600"]);
        let first = source.line();
        let relay = Relay::start(&source.address, cut);
        let (status, after, errors) = restore(&relay.address, &[]);
        assert_eq!(status, 125, "{errors}");
        let (status, before, errors) = source.finish();
        assert_eq!(status, 125, "{errors}");
        assert!(errors.contains("the connection broke while the program was handed over to "), "{errors}");
        assert!(counted(600).starts_with(&format!("{first}{before}{after}")), "{before}{after}");
    }
}

#[test]
fn peers_without_the_token_or_with_garbage_do_not_disturb_the_program() {
    needs_kvm!();
    let mut source = Movable::start(&["-m", "512M", "--nest", "100"], &["/usr/bin/python3", "-c", COUNT, "600"]);
    let first = source.line();
    let address = source.address.clone();
    let refused = |command: &mut Command| {
        let outcome = command.output().expect("pando starts");
        assert_eq!(outcome.status.code(), Some(125));
        text(&outcome.stderr).to_owned()
    };
    let errors = refused(restorer(&address, &[]).env("PANDO_MOVE_TOKEN", "another token, also of the tests"));
    assert!(errors.ends_with("the token is wrong\n"), "{errors}");
    let errors = refused(restorer(&address, &[]).env_remove("PANDO_MOVE_TOKEN"));
    assert!(errors.contains("there is no token: set PANDO_MOVE_TOKEN"), "{errors}");
    let errors = refused(&mut restorer(&address, &[]));
    assert!(
        errors.contains("may have 100 nested cells at its source, and up to 64 here by default: choose a number with --nest"),
        "{errors}"
    );
    let errors = refused(restorer(&address, &[]).env("PANDO_MOVE_TOKEN", "short"));
    assert!(errors.contains("PANDO_MOVE_TOKEN: a token has 16 to 1024 characters"), "{errors}");
    for garbage in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0xff; 4096], &[1, 0, 0, 0, 16], b""] {
        let mut socket = TcpStream::connect(&address).expect("it listens");
        // It may be closed already.
        let _ = socket.write_all(garbage);
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    // One that is not a source.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let other = listener.local_addr().expect("it has one").to_string();
    thread::spawn(move || listener.incoming().for_each(|socket| drop(socket.map(|mut socket| socket.write_all(b"220 smtp\r\n")))));
    let errors = refused(&mut restorer(&other, &[]));
    assert!(errors.contains("does not speak the protocol of `pando restore`"), "{errors}");
    // A destination that sees other files, and one that breaks off when its cell is built.
    let errors = refused(&mut restorer(&address, &["--nest", "2", "-v", "/etc/passwd:/opt/passwd:ro"]));
    assert!(errors.contains("cannot move it: it sees other files there than it would see here"), "{errors}");
    let relay = Relay::start(&address, |kind| if kind == READY { Passage::Cut } else { Passage::Pass });
    let errors = refused(&mut restorer(&relay.address, &["--nest", "2"]));
    assert!(errors.contains("the program has not moved here"), "{errors}");
    let (status, after, errors) = restore(&address, &["--nest", "2"]);
    assert_eq!((status, &errors[..]), (7, ""), "{after}");
    let (status, before, errors) = source.finish();
    assert_eq!(status, 123, "{errors}");
    assert!(errors.starts_with("pando: the program was not moved, and goes on here"), "{errors}");
    assert_eq!(format!("{first}{before}{after}"), counted(600));
}

#[test]
fn a_silent_destination_halts_the_program_for_a_limited_time() {
    needs_kvm!();
    let ticks = "import time\nwhile True:\n    print(time.monotonic(), flush=True)\n    time.sleep(0.01)";
    let mut source = Movable::start(&["-m", "512M"], &["/usr/bin/python3", "-c", ticks]);
    source.line();
    let relay = Relay::start(&source.address, |kind| if kind == READY { Passage::Swallow } else { Passage::Pass });
    let mut child = restorer(&relay.address, &[]).stderr(Stdio::piped()).spawn().expect("pando starts");
    let mut line = String::new();
    source.errors.read_line(&mut line).expect("it is text");
    assert!(line.contains("was not moved, and goes on here: the other side did not answer in time"), "{line}");
    let mut errors = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("it is text");
    assert!(errors.contains("the program has not moved here"), "{errors}");
    child.wait().expect("it is ours");
    // Lines that it writes from now on.
    let last = (0..2000).map(|_| source.line()).last();
    assert!(last.is_some_and(|line| line.trim().parse::<f64>().is_ok()));
}

/// Has 24 MiB, and forks after its first line of input. Both processes read all of them after the second one.
const FORK: &str = "import hashlib, os, sys
data = os.urandom(24 << 20)
digest = hashlib.sha256(data).hexdigest()
same = lambda: hashlib.sha256(data).hexdigest() == digest
print('ready', flush=True)
sys.stdin.readline()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.read(reader, 1)
    os._exit(7 if same() else 1)
print('forked', flush=True)
sys.stdin.readline()
os.write(writer, b'x')
print(same(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";

#[test]
fn pages_that_two_processes_share_since_the_move_come_and_move_on() {
    needs_kvm!();
    let mut first = Movable::start(&["-m", "512M"], &["/usr/bin/python3", "-c", FORK]);
    assert_eq!(first.line(), "ready\n");
    let relay = Relay::start(&first.address, |kind| if matches!(kind, PAGES | ALL_SENT) { Passage::Hold } else { Passage::Pass });
    let mut second = Movable::of(restorer(&relay.address, &["--port", "0"]));
    second.child.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it reads");
    assert_eq!(second.line(), "forked\n");
    // Now no page is left that only one of them needs.
    let errors = restore(&second.address.clone(), &[]).2;
    assert!(errors.contains("not all of its pages have come: try again later"), "{errors}");
    relay.release.send(()).expect("it waits");
    assert_eq!(first.finish().0, 123);
    let (status, output, errors) = restore(&second.address.clone(), &[]);
    assert_eq!((status, &output[..], &errors[..]), (0, "True 7\n", ""));
    assert_eq!(second.finish().0, 123);
}

/// Has 64 MiB that four child processes share with it, of which each uses the first page after the move.
const SHARE: &str = "import os, sys
data = os.urandom(64 << 20)
digest = sum(data[::4096])
pipes = [(os.pipe(), os.pipe()) for _ in range(4)]
for ((wait, _), (_, done)) in pipes:
    if os.fork() == 0:
        os.read(wait, 1)
        os.write(done, data[:1])
        os.read(wait, 1)
        os._exit(0)
print('ready', flush=True)
sys.stdin.readline()
for ((_, go), (ready, _)) in pipes:
    os.write(go, b'x')
    assert os.read(ready, 1) == data[:1]
print('forked', flush=True)
sys.stdin.readline()
more = os.urandom(32 << 20)
print(sum(data[::4096]) == digest, len(more))";

#[test]
fn pages_that_processes_share_are_not_copied_for_each() {
    needs_kvm!();
    let mut first = Movable::start(&["-m", "320M"], &["/usr/bin/python3", "-c", SHARE]);
    assert_eq!(first.line(), "ready\n");
    let mut second = restorer(&first.address, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    let (mut input, mut output) = (second.stdin.take().expect("it is piped"), second.stdout.take().expect("it is piped"));
    input.write_all(b"\n").expect("it reads");
    // All pages have come.
    assert_eq!(first.finish().0, 123);
    input.write_all(b"\n").expect("it reads");
    let mut lines = String::new();
    output.read_to_string(&mut lines).expect("it is text");
    assert_eq!((&lines[..], as_shell(second.wait().expect("it is ours"))), ("forked\nTrue 33554432\n", 0));
}

#[test]
fn a_program_has_either_checkpoints_or_a_port() {
    let errors = |words: &[&str]| {
        let outcome = Command::new(PANDO).args(words).stdin(Stdio::null()).output().expect("pando starts");
        assert!(!outcome.status.success());
        text(&outcome.stderr).to_owned()
    };
    assert!(errors(&["checkpoint", "--port", "0", "--every", "1s", "-o", "/nowhere", "--", "true"]).contains("cannot be used with"));
    assert!(errors(&["checkpoint", "--", "true"]).contains("--every"));
    assert!(errors(&["restore", "--port", "0", "/nowhere"]).contains("does not move: restore it from the directory elsewhere"));
    assert!(errors(&["restore", "--every", "1s", "127.0.0.1:1"]).contains("--every: it is for a directory of checkpoints"));
    assert!(errors(&["restore", "--token-file", "/a", "/nowhere"]).contains("--token-file: it is for ADDR:PORT"));
    let unused = errors(&["checkpoint", "--every", "1s", "-o", "/nowhere", "--token-file", "/a", "--", "true"]);
    assert!(unused.contains("--token-file: it is for --port"), "{unused}");
    assert!(errors(&["restore", "-v", "/etc/passwd:/a:ro", "/nowhere"]).contains("-v: a checkpoint has its own volumes"));
}
