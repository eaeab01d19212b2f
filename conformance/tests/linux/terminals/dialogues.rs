// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dialogues at a terminal: typed input and displayed output, natively and under `pando run -t`, byte for byte.

use crate::case::PANDO;
use crate::compile::{Linkage, program};
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

/// Timeout for a program without output.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The session leader: runs the program in its own group, then prints its status after [`END`] and stays, because Linux
/// discards unread terminal output when the session ends.
const LEADER: &str = r#"trap : INT QUIT TSTP; exec 3>&2 2> /dev/null; (exec "$@" 2>&3 3>&-); status=$?; trap '' TTOU; printf '\033]end %d\a' $status; kill -s STOP $$"#;
/// The leader's mark before the program's status.
const END: &[u8] = b"\x1b]end ";

/// A step of a dialogue.
#[derive(Clone, Copy, Debug)]
pub(super) enum DialogueStep {
    /// Waits until the screen has shown this.
    See(&'static str),
    /// Types this.
    Type(&'static [u8]),
    /// Sets the window size to this many rows and columns.
    Resize(u16, u16),
}

use DialogueStep::{Resize, See, Type};

/// The dialogue with the part `lines` of the test program `typing`.
pub(super) const LINES: &[DialogueStep] = &[
    See("ready\r\n"),
    Type(b"plain\n"),
    See("plain\\n\r\n"),
    Type(b"wrang\x7f\x7f\x7fong\x7f\x7f\x7f\x7f\x7fright\r"),
    See("right\\n\r\n"),
    Type(b"two words\x17\x17one\ttab\x7f\x7f\x7f\x7f \xc3\xa9\xe2\x82\xac\x7f!\n"),
    See("!\\n\r\n"),
    Type(b"killed\x15kept\x16\x03\x12\n"),
    See("<03>\\n\r\n"),
    Type(b"no newline\x04\x04"),
    See("the end\r\n"),
    Type(b"more\n"),
    See("more\\n\r\n"),
    Type(b"\x04"),
    See("the end\r\n"),
];
/// The dialogue with its part `signals`.
pub(super) const SIGNALS: &[DialogueStep] = &[
    See("ready\r\n"),
    Type(b"lost\x03"),
    See("signal 2\r\n"),
    Type(b"\x1c"),
    See("signal 3\r\n"),
    Type(b"\x1a"),
    See("signal 20\r\n"),
    See("computing\r\n"),
    Type(b"\x03"),
    See("signal 2\r\n"),
    See("waiting for a line\r\n"),
    See("Interrupted system call\r\nsignal 14\r\nwaiting for a line\r\n"),
    Type(b"half a line\x03"),
    See("^C"),
    Type(b"line\n"),
    See("line\\n\r\n"),
];
/// The dialogue with its part `window`.
pub(super) const WINDOW: &[DialogueStep] =
    &[See("24 rows 80 columns"), Resize(50, 132), See("signal 28: 50 rows 132 columns"), Resize(7, 9), See("signal 28: 7 rows 9 columns")];

/// The directory of Pando's cache of the host, so that no run prints that it is scanning.
pub(super) fn cache() -> &'static Path {
    static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(PANDO);
        command.args(["run", "busybox", "true"]).env("XDG_CACHE_HOME", directory.path());
        assert!(command.output().expect("it runs").status.success());
        directory
    });
    CACHE.path()
}

/// A terminal with a program.
struct Screen {
    keys: File,
    shown: mpsc::Receiver<Vec<u8>>,
    child: Child,
    transcript: Vec<u8>,
    /// The length of the transcript that was already awaited.
    seen: usize,
}

impl Screen {
    /// Starts a command with a controlling terminal of its own.
    fn new(words: &[&str], directory: &Path) -> Screen {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
        let name = ptsname(&keyboard, Vec::new()).expect("it has a name");
        resize(&keyboard, 24, 80);
        // A setting of modern terminal emulators.
        let mut settings = tcgetattr(&keyboard).expect("a terminal has settings");
        settings.input_modes |= InputModes::IUTF8;
        tcsetattr(&keyboard, OptionalActions::Now, &settings).expect("they can be set");
        let path = Path::new(name.to_str().expect("its name is plain"));
        let open = || File::options().read(true).write(true).open(path).expect("it is there");
        let mut command = Command::new(host_program("setsid"));
        command.args(["--ctty", "sh", "-c", LEADER, "sh"]).args(words).current_dir(directory).stdin(open()).stdout(open()).stderr(open());
        command.env_clear().env("PATH", "/usr/bin:/bin").env("TERM", "linux").env("PS1", "> ").env("HOME", directory);
        command.env("XDG_CACHE_HOME", cache());
        let child = command.spawn().expect("setsid is there");
        let keys = File::from(keyboard);
        let mut screen = keys.try_clone().expect("a second descriptor");
        let (sender, shown) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails when the last program that has the terminal open ends.
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Screen { keys, shown, child, transcript: Vec::new(), seen: 0 }
    }

    fn step(&mut self, step: DialogueStep) {
        match step {
            Type(keys) => self.keys.write_all(keys).expect("the terminal takes keys"),
            Resize(rows, columns) => resize(&self.keys, rows, columns),
            See(text) => {
                while !self.transcript[self.seen..].windows(text.len()).any(|window| window == text.as_bytes()) {
                    assert!(self.receive_output(), "{text:?} was not shown: {}", String::from_utf8_lossy(&self.transcript));
                }
                let place = self.transcript[self.seen..].windows(text.len()).position(|window| window == text.as_bytes());
                self.seen += place.unwrap_or_default() + text.len();
            }
        }
    }

    /// Receives the next output. `false`: there is no more.
    fn receive_output(&mut self) -> bool {
        let piece = self.shown.recv_timeout(TIMEOUT).unwrap_or_default();
        self.transcript.extend(&piece);
        !piece.is_empty()
    }

    /// Waits for the end. Returns the output and the exit status.
    fn finish(mut self) -> (String, i32) {
        loop {
            let end = self.transcript.windows(END.len()).position(|window| window == END);
            if let Some(end) = end
                && let Some(status) = self.transcript[end + END.len()..].strip_suffix(b"\x07")
            {
                let status = String::from_utf8_lossy(status).parse().expect("a status is a number");
                return (String::from_utf8_lossy(&self.transcript[..end]).into_owned(), status);
            }
            assert!(self.receive_output(), "no end was shown: {}", String::from_utf8_lossy(&self.transcript));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The session's leader waits for this; remaining processes of its group get SIGHUP.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &impl std::os::fd::AsFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal has a size");
}

/// Performs a dialogue. Returns the output and the exit status.
pub(super) fn lead(words: &[&str], directory: &Path, steps: &[DialogueStep]) -> (String, i32) {
    let mut screen = Screen::new(words, directory);
    steps.iter().for_each(|step| screen.step(*step));
    screen.finish()
}

/// Performs a dialogue natively and in a cell. Returns the output and the exit status of both.
fn lead_both(words: &[&str], options: &[&str], directory: &Path, steps: &[DialogueStep]) -> ((String, i32), (String, i32)) {
    (lead(words, directory, steps), lead(&[&[PANDO, "run", "-t"], options, &["--"], words].concat(), directory, steps))
}

/// Checks that the output and the exit status are the same.
fn check(words: &[&str], options: &[&str], directory: &Path, steps: &[DialogueStep]) {
    let (native, cell) = lead_both(words, options, directory, steps);
    assert_eq!(native, cell, "{words:?}");
}

/// Checks a part of the test program `typing`.
fn check_typing(part: &str, steps: &[DialogueStep]) {
    needs_kvm!();
    let typing = program("typing", Linkage::GLIBC);
    check(&[typing.to_str().expect("a plain path"), part], &[], typing.parent().expect("a directory"), steps);
}

#[test]
fn lines_are_edited() {
    check_typing("lines", LINES);
}

#[test]
fn keys_come_one_by_one() {
    let steps = [
        See("ready\r\n"),
        Type(b"a"),
        See("61"),
        Type(b"\x03"),
        See("03"),
        Type(b"\r"),
        See("0d"),
        Type(b"\x1b[A"),
        See("1b5b41"),
        Type(b"\x04"),
        See("04"),
        See("three at least"),
        Type(b"ab"),
        Type(b"c"),
        See("616263"),
        See("half a second"),
        See("nothing"),
        Type(b"z"),
        See("7a"),
        See("at once"),
        See("nothing"),
    ];
    check_typing("keys", &steps);
}

#[test]
fn keys_are_signals() {
    check_typing("signals", SIGNALS);
}

#[test]
fn keys_end_a_program_that_does_not_mind() {
    needs_kvm!();
    let typing = program("typing", Linkage::GLIBC);
    let words = [typing.to_str().expect("a plain path"), "lines"];
    for (key, shown, status) in [(b"\x03", "^C", 130), (b"\x1c", "^\\", 131)] {
        // The terminal's only program is not stopped, because nobody could continue it.
        let steps = [See("ready\r\n"), Type(b"\x1a"), See("^Z"), Type(b"lost\x1akept\n"), See("kept\\n\r\n"), Type(key)];
        let (native, cell) = lead_both(&words, &[], Path::new("/"), &steps);
        assert_eq!((native.1, cell.1), (status, status));
        // Linux sends the signal before it echoes the key: if the program has ended in between, the echo comes late or
        // never. Pando always echoes it.
        let before = native.0.strip_suffix(shown).unwrap_or(&native.0);
        assert!(cell.0.strip_prefix(before).is_some_and(|end| end.starts_with(shown)), "{native:?} {cell:?}");
    }
}

#[test]
fn windows_change_their_size() {
    check_typing("window", WINDOW);
}

#[test]
fn settings_are_kept_and_returned() {
    check_typing("settings", &[See("ready\r\n"), Type(b"typed ahead\n"), See("done")]);
}

#[test]
fn a_shell_is_used() {
    needs_kvm!();
    // The shell queries the cursor position before any input: so the test types nothing before the query.
    let steps = [
        See("> \x1b[6n"),
        Type(b"echo one\x7f\x7f\x7ftwo\r"),
        See("two\r\n> \x1b[6n"),
        Type(b"echo 'a  b' | cat\x15echo $((6 * 7))\r"),
        See("42\r\n> \x1b[6n"),
        Type(b"\x1b[A"),
        See("$((6 * 7))"),
        Type(b"\x01\x1b[C\x1b[C\x1b[C\x1b[C\x1b[C9\r"),
        See("942\r\n> \x1b[6n"),
        Type(b"read -p 'a line: ' line; echo \"<$line>\"\r"),
        See("\r\na line: "),
        Type(b"typod\x7f\x7fed\n"),
        See("<typed>\r\n> \x1b[6n"),
        Type(b"unfinished\x03"),
        See("> \x1b[6n"),
        Type(b"exit 7\r"),
    ];
    let directory = tempfile::tempdir().expect("a directory");
    check(&["busybox", "sh"], &["-e", "PS1", "-e", "HOME"], directory.path(), &steps);
}

#[test]
fn an_editor_draws_and_saves() {
    needs_kvm!();
    // An editor redraws once no more input is pending: so each key waits for the output after the one before.
    let steps = [
        See("- text 1/1 100%\x1b[1;1H"),
        Type(b"i"),
        See("I text 1/1 100%\x1b[1;1H"),
        Type(b"first line"),
        See("first line\x1b[1;11H"),
        Type(b"\r"),
        See("I text [Modified] 2/2 100%\x1b[2;1H"),
        Type(b"second"),
        See("second\x1b[2;7H"),
        Type(b"\x1b"),
        See("- text [Modified] 2/2 100%\x1b[2;6H"),
        Type(b"0"),
        See("\x1b[2;1H"),
        Type(b"xx"),
        See("cond  \x1b[2;1H"),
        Type(b"iSec"),
        See("Seccond\x1b[2;4H"),
        Type(b"\x1b"),
        See("100%\x1b[2;3H"),
        Type(b":w\r"),
        See("'text' 2L, 19C\x1b[2;3H"),
        Type(b"dd"),
        See("Delete 1 lines (8 chars) from [D]\x1b[1;1H"),
        Type(b":e! text\r"),
        See("'text' 2L, 19C\x1b[1;1H"),
        Type(b":q\r"),
    ];
    let (native, cell) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let shown = [(&native, &["busybox", "vi", "text"][..]), (&cell, &[PANDO, "run", "-t", "busybox", "vi", "text"][..])].map(
        |(directory, words)| {
            let mut screen = Screen::new(words, directory.path());
            steps.iter().for_each(|step| screen.step(*step));
            screen.finish()
        },
    );
    assert_eq!(shown[0], shown[1]);
    assert_eq!(std::fs::read(native.path().join("text")).expect("it was saved"), b"first line\nSeccond\n");
    assert!(!cell.path().join("text").exists(), "a cell's writes are private");
}

/// A background process of its terminal: it may not read from it, write to it if that is forbidden, or change its settings.
const BACKGROUND: &str = r"
import os, signal, termios
print(os.ttyname(0).rstrip('0123456789'), os.path.samestat(os.stat(os.ttyname(0)), os.fstat(0)), os.readlink('/proc/self/fd/1') == os.ttyname(1), flush=True)
def stop_output(flag):
    settings = termios.tcgetattr(0)
    settings[3] = settings[3] & ~termios.TOSTOP | flag
    termios.tcsetattr(0, termios.TCSANOW, settings)
def change():
    status = os.waitpid(-1, os.WUNTRACED)[1]
    print(signal.Signals(os.WSTOPSIG(status)).name if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status), flush=True)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
(told, tells), (asked, asks) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.write(tells, os.read(0, 100))
    os.read(asked, 1)
    os.write(1, b'written\n')
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    try:
        os.read(0, 100)
    except OSError as error:
        os._exit(error.errno)
change()
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGCONT)
print(os.read(told, 100))
os.tcsetpgrp(0, os.getpgrp())
stop_output(termios.TOSTOP)
os.write(asks, b'.')
change()
stop_output(0)
os.kill(child, signal.SIGCONT)
change()
";

#[test]
fn background_processes_do_not_read_the_terminal() {
    if is_kvm_available() {
        check(&["/usr/bin/python3", "-c", BACKGROUND], &[], Path::new("/"), &[See("SIGTTIN\r\n"), Type(b"line\n")]);
    }
}
