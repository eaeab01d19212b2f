// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in a cell, and clients of the host that use it.

use pando_testing::lab::kvm_is_there;
use pando_testing::{are_installed, host_program};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// After this long a server that has not said that it listens hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often another port is tried where somebody else got the first.
const ATTEMPTS: usize = 5;
/// Seconds after which a client hangs.
const CLIENT_SECONDS: &str = "120";
/// Where programs are, as the clients' shell finds them.
const PATH: &str = "/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// A server that shall run.
pub struct Served<'a> {
    /// Programs that must be there, the clients' too.
    pub needs: &'a [&'a str],
    /// What the cell's shell does: in the end it becomes the server.
    pub script: &'a str,
    /// How ports are published, with `{}` for each in the place of the host's: one number for all of them.
    pub ports: &'a [&'a str],
    /// Part of the line by which the server says that it listens.
    pub ready: &'a str,
}

/// A server that runs in a cell. Ended when dropped.
pub struct Server {
    child: Child,
    /// The port of the host that leads to it.
    pub port: u16,
    /// What it says, once it listens.
    said: Option<thread::JoinHandle<String>>,
    /// Shown to it as `/srv`, as it was when it started; clients stand in it.
    pub directory: PathBuf,
    _kept: tempfile::TempDir,
}

/// Whether the long runs were asked for.
pub fn long_runs() -> bool {
    std::env::var("PANDO_TESTS").as_deref() == Ok("all")
}

impl Served<'_> {
    /// Starts it, with what `prepare` put into the directory; returns when it listens. `None`: this machine lacks something, which was said.
    pub fn start(&self, prepare: impl FnOnce(&Path)) -> Option<Server> {
        if !kvm_is_there() || !are_installed(self.needs) {
            return None;
        }
        let kept = tempfile::tempdir().expect("the host has room");
        let directory = kept.path().join("served");
        fs::create_dir(&directory).expect("it is fresh");
        prepare(&directory);
        let mut told = String::new();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let (reader, mut child) = self.spawn(&directory, port);
            match listen(reader, self.ready) {
                Ok(said) => return Some(Server { child, port, said: Some(said), directory, _kept: kept }),
                Err(said) => told = said,
            }
            // Nobody may listen to it any more, so it is not asked to end.
            let _ = child.kill();
            child.wait().expect("it is ours");
            assert!(told.contains("is taken"), "it does not listen: {told}");
        }
        panic!("no port is free: {told}");
    }

    fn spawn(&self, directory: &Path, port: u16) -> (PipeReader, Child) {
        let (reader, writer) = pipe().expect("the host has a pipe");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.arg("run");
        for published in self.ports {
            command.args(["-p", &published.replace("{}", &port.to_string())]);
        }
        command.arg("-v").arg(format!("{}:/srv:ro", directory.display())).args(["-w", "/", "-u", "0", "--", "sh", "-c", self.script]);
        surround(&mut command);
        // What pando remembers of the host's software from run to run, as the command line's other tests have it.
        command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli/cache"));
        command.stdin(Stdio::null()).stdout(writer.try_clone().expect("a pipe can be shared")).stderr(writer);
        (reader, command.spawn().expect("pando starts"))
    }
}

/// Little is around servers and clients, so that the tests are the same everywhere.
fn surround(command: &mut Command) {
    command.env_clear().envs([("LC_ALL", "C.UTF-8"), ("PATH", PATH), ("TERM", "dumb"), ("TZ", "UTC0")]).current_dir("/");
}

/// Bytes without any order, always the same (xorshift64*).
pub fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        Some(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes())
    };
    std::iter::from_fn(next).flatten().take(size).collect()
}

/// A port that nobody has now, neither of TCP nor of UDP.
fn free_port() -> u16 {
    let both = || {
        let listener = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = listener.local_addr().ok()?.port();
        UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
    };
    (0..100).find_map(|_| both()).expect("the host has a port")
}

/// Waits until a line says that the server listens; goes on reading on a thread of its own. Otherwise all that it said.
fn listen(reader: PipeReader, ready: &str) -> Result<thread::JoinHandle<String>, String> {
    let (sender, receiver) = mpsc::channel();
    let ready = ready.to_owned();
    let thread = thread::spawn(move || {
        let (mut said, mut is_ready) = (String::new(), false);
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let _ = writeln!(said, "{line}");
            if !is_ready && line.contains(&ready) {
                is_ready = true;
                let _ = sender.send(());
            }
        }
        said
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(()) => Ok(thread),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(thread.join().expect("it does not panic")),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("nothing with {CLIENT_SECONDS} s of patience")),
    }
}

impl Server {
    /// Runs a script of the shell on the host, which finds the server's port in `$P`, standing in the server's directory; returns what it says.
    ///
    /// Fails where any of its commands does.
    pub fn client(&self, script: &str) -> String {
        let mut command = Command::new(host_program("timeout"));
        command.args([CLIENT_SECONDS, "bash", "-euo", "pipefail", "-c", script]);
        surround(&mut command);
        let said =
            command.env("P", self.port.to_string()).env("HOME", &self.directory).current_dir(&self.directory).stdin(Stdio::null()).output();
        let said = said.expect("the shell starts");
        let (output, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(said.status.success(), "{script}\nended with {}: {output}\n{errors}", said.status);
        output.into_owned()
    }

    /// Asks it to end. Returns its exit status as a shell has it, and all that it said.
    pub fn end(mut self) -> (i32, String) {
        self.ask();
        let status = self.child.wait().expect("it is ours");
        let said = self.said.take().map(|said| said.join().expect("it does not panic")).unwrap_or_default();
        (status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()), said)
    }

    fn ask(&self) {
        // It may have ended.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.ask();
        let _ = self.child.wait();
        if thread::panicking()
            && let Some(said) = self.said.take()
            && let Ok(said) = said.join()
        {
            println!("the server said:\n{said}");
        }
    }
}
