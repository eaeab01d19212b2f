// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in a cell, and clients on the host that use it.

use pando_testing::lab::is_kvm_available;
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

/// Timeout for a server that does not report that it listens.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The number of attempts with another port if the first one is taken.
const ATTEMPTS: usize = 5;
/// The timeout of a client in seconds.
const CLIENT_SECONDS: &str = "120";
/// The search path of the clients' shell.
const PATH: &str = "/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The configuration of a server.
pub struct Served<'a> {
    /// Programs that must be installed, including the clients.
    pub needs: &'a [&'a str],
    /// The script of the cell's shell, which in the end becomes the server.
    pub script: &'a str,
    /// The port forwards, with `{}` in the place of the host's port: one number for all of them.
    pub ports: &'a [&'a str],
    /// Part of the line that reports that the server listens.
    pub ready: &'a str,
}

/// A server that runs in a cell. Ended when dropped.
pub struct Server {
    child: Child,
    /// The forwarded port of the host.
    pub port: u16,
    /// Its output after it started to listen.
    said: Option<thread::JoinHandle<String>>,
    /// A message for each further report that it listens.
    reports: mpsc::Receiver<()>,
    /// The directory that it sees as `/srv`, as it was at the start; the clients' working directory.
    pub directory: PathBuf,
    _kept: tempfile::TempDir,
}

/// Whether the long runs were requested.
pub fn long_runs() -> bool {
    std::env::var("PANDO_TESTS").as_deref() == Ok("all")
}

impl Served<'_> {
    /// Starts it, after `prepare` has filled the directory, and waits until it listens. If this machine lacks something,
    /// prints that and returns `None`.
    pub fn start(&self, prepare: impl FnOnce(&Path)) -> Option<Server> {
        if !is_kvm_available() || !are_installed(self.needs) {
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
                Ok((said, reports)) => return Some(Server { child, port, said: Some(said), reports, directory, _kept: kept }),
                Err(said) => told = said,
            }
            // Nobody may be reading its output any more, so it is killed.
            let _ = child.kill();
            child.wait().expect("it is ours");
            assert!(told.contains("is taken"), "the server does not listen: {told}");
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
        // Pando's cache of the host's software, shared with the command line's other tests.
        command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli/cache"));
        command.stdin(Stdio::null()).stdout(writer.try_clone().expect("a pipe can be shared")).stderr(writer);
        (reader, command.spawn().expect("pando starts"))
    }
}

/// Sets a minimal environment for servers and clients, so that the tests are the same everywhere.
fn surround(command: &mut Command) {
    command.env_clear().envs([("LC_ALL", "C.UTF-8"), ("PATH", PATH), ("TERM", "dumb"), ("TZ", "UTC0")]).current_dir("/");
    // The cells of these tests may sleep at each idle.
    command.envs(std::env::var_os("PANDO_DROWSY").map(|value| ("PANDO_DROWSY", value)));
}

/// Reproducible random bytes (xorshift64*).
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

/// Finds a port that is free for both TCP and UDP.
fn free_port() -> u16 {
    let both = || {
        let listener = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = listener.local_addr().ok()?.port();
        UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
    };
    (0..100).find_map(|_| both()).expect("the host has a port")
}

/// Waits until a line reports that the server listens; a thread reads the remaining output, and sends a message for each
/// further report. If the server ends before, returns all its output.
fn listen(reader: PipeReader, ready: &str) -> Result<(thread::JoinHandle<String>, mpsc::Receiver<()>), String> {
    let (sender, receiver) = mpsc::channel();
    let ready = ready.to_owned();
    let thread = thread::spawn(move || {
        let mut said = String::new();
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let _ = writeln!(said, "{line}");
            if line.contains(&ready) {
                // The test may have enough of them.
                let _ = sender.send(());
            }
        }
        said
    });
    match receiver.recv_timeout(TIMEOUT) {
        Ok(()) => Ok((thread, receiver)),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(thread.join().expect("it does not panic")),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("no report within {} s", TIMEOUT.as_secs())),
    }
}

impl Server {
    /// Runs a script on the host, in the server's directory, with the server's port in `$P`; returns its output.
    ///
    /// Fails if any of its commands fails.
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

    /// Waits until it reports once more that it listens, for a server that closes its socket after each client.
    ///
    /// Panics after [`TIMEOUT`] or if the server ends.
    pub fn wait_until_it_listens_again(&self) {
        self.reports.recv_timeout(TIMEOUT).expect("the server listens again");
    }

    /// Asks it to end. Returns its exit status as a shell shows it, and all its output.
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
            println!("the server's output:\n{said}");
        }
    }
}
