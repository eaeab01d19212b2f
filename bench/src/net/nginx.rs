// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nginx-2k`, `nginx-100k`, `exits-per-request`: nginx in a cell, reached through the gateway, compared with nginx on the
//! host. The client is wrk with 64 connections.
//!
//! Nothing is pinned: the client, the gateway and the cell have a thread or a process each, and the host schedules them on its cores.

use crate::native::times::{TimedPart, Times};
use crate::process_runs::{WorkDirectory, needs};
use crate::sample::{Pairs, Sample};
use crate::{BenchError, BenchOptions, Row};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NGINX: &str = "/usr/sbin/nginx";
const CLIENT: &str = "wrk";
/// Its port in the cell.
const PORT: u16 = 8080;
/// The number of the client's connections.
const CONNECTIONS: &str = "-c64";
const REFERENCE: &str = "nginx on the host";
/// The timeout for a server's first response.
const START: Duration = Duration::from_secs(30);

/// A document, and the names of its rows.
struct Document {
    name: &'static str,
    bytes: usize,
    worse: &'static str,
    time: &'static str,
    cpu: &'static str,
    gateway: &'static str,
    guest: &'static str,
    kernel: &'static str,
    exits: &'static str,
}

const DOCUMENTS: [Document; 2] = [
    Document {
        name: "2k",
        bytes: 2 << 10,
        worse: "nginx-2k",
        time: "nginx-2k-time",
        cpu: "nginx-2k-cpu",
        gateway: "nginx-2k-gateway",
        guest: "nginx-2k-cell",
        kernel: "nginx-2k-switch",
        exits: "nginx-2k-exits",
    },
    Document {
        name: "100k",
        bytes: 100 << 10,
        worse: "nginx-100k",
        time: "nginx-100k-time",
        cpu: "nginx-100k-cpu",
        gateway: "nginx-100k-gateway",
        guest: "nginx-100k-cell",
        kernel: "nginx-100k-switch",
        exits: "nginx-100k-exits",
    },
];

pub(super) fn run(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    directory: &Path,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    needs(NGINX, "nginx (Debian: nginx-light)")?;
    needs(CLIENT, "wrk (Debian: wrk)")?;
    let site = directory.join("site");
    let write = BenchError::host("write a site for nginx");
    prepare(&site).map_err(write)?;
    let mut theirs = Server::native(place, &site)?;
    let mut ours = Server::in_cell(place, &site)?;
    let mut requests = 0;
    for document in &DOCUMENTS {
        requests += measure(options, document, &mut ours, &mut theirs, report)?;
    }
    let exits = ours.exits()?;
    let row = Row::of("exits-per-request", exits / requests as f64, "exits");
    report(row.noting(format!("{exits} exits of the cell in total, {requests} requests")));
    Ok(())
}

/// Writes the site and nginx's configuration: one process, which is easy to account for.
fn prepare(site: &Path) -> std::io::Result<()> {
    fs::create_dir(site)?;
    for Document { name, bytes, .. } in &DOCUMENTS {
        fs::write(site.join(name), vec![b'x'; *bytes])?;
    }
    Ok(())
}

/// The configuration of a server with this port and site.
fn configuration(port: u16, site: &str, scratch: &str) -> String {
    let temporary: String =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].iter().map(|kind| format!("{kind}_temp_path {scratch}/{kind};\n")).collect();
    format!(
        "daemon off;\nmaster_process off;\nerror_log /dev/null;\npid {scratch}/pid;\nevents {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\nsendfile on;\ntcp_nodelay on;\nkeepalive_requests 1000000000;\n{temporary}\
         server {{ listen {port} backlog=1024; root {site}; }}\n}}\n"
    )
}

/// A running server; terminated when dropped.
struct Server {
    child: Child,
    port: u16,
}

/// A server's cost in nanoseconds for a number of requests.
struct RequestTime {
    requests: u64,
    time: f64,
    cpu: f64,
    parts: Vec<(TimedPart, f64)>,
}

impl Server {
    fn native(place: &WorkDirectory<'_>, site: &Path) -> Result<Server, BenchError> {
        let port = free_port()?;
        let scratch = site.with_file_name("native");
        let file = scratch.join("conf");
        let shown = [site, &scratch].map(|path| path.display().to_string());
        let written = fs::create_dir(&scratch).and_then(|()| fs::write(&file, configuration(port, &shown[0], &shown[1])));
        written.map_err(BenchError::host("write a configuration"))?;
        Server::start(place.native(NGINX, &["-c", &file.display().to_string()]), port)
    }

    fn in_cell(place: &WorkDirectory<'_>, site: &Path) -> Result<Server, BenchError> {
        let port = free_port()?;
        let file = site.join("conf");
        fs::write(&file, configuration(PORT, "/site", "/tmp")).map_err(BenchError::host("write a configuration"))?;
        let (forward, volume) = (format!("{port}:{PORT}"), format!("{}:/site:ro", site.display()));
        let command = place.cell(&["-p", &forward, "-v", &volume, "--stats=json"], NGINX, &["-c", "/site/conf"]);
        Server::start(command, port)
    }

    fn start(mut command: Command, port: u16) -> Result<Server, BenchError> {
        let child = command.stderr(Stdio::piped()).spawn().map_err(BenchError::host("start nginx (Debian: nginx-light)"))?;
        let mut server = Server { child, port };
        let end = Instant::now() + START;
        while ask(port).is_err() {
            let ended = server.child.try_wait().map_err(BenchError::host("check whether nginx runs"))?;
            if ended.is_some() || Instant::now() > end {
                return Err(BenchError::Failed(format!("{command:?}: {}", server.last_error())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Its error output before it ended.
    fn last_error(&mut self) -> String {
        let mut text = String::new();
        let _ = self.child.kill();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut text);
        }
        text
    }

    /// Lets the client request a document for `duration`.
    fn load(&self, document: &Document, duration: &str) -> Result<RequestTime, BenchError> {
        let times = || Times::of(self.child.id()).map_err(BenchError::host("read the CPU times of a server"));
        let before = times()?;
        let start = Instant::now();
        let url = format!("http://127.0.0.1:{}/{}", self.port, document.name);
        let output = Command::new(CLIENT).args(["-t1", CONNECTIONS, "-d", duration, &url]).output();
        let output = output.map_err(BenchError::host("start the client"))?;
        let elapsed = start.elapsed().as_nanos() as f64;
        let used = times()?.since(&before);
        let text = String::from_utf8_lossy(&output.stdout);
        let requests = asked(&text).ok_or_else(|| BenchError::Failed(format!("{url}: {text}")))?;
        let each = |nanos: f64| nanos / requests as f64;
        let parts = used.parts().into_iter().map(|(part, nanos)| (part, each(nanos))).collect();
        Ok(RequestTime { requests, time: each(elapsed), cpu: each(used.whole()), parts })
    }

    /// Terminates it; returns the number of exits of its cell.
    fn exits(mut self) -> Result<f64, BenchError> {
        let ended = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        ended.map_err(BenchError::host("terminate nginx"))?;
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut said).map_err(BenchError::host("read the statistics of a cell"))?;
        }
        let stats: Option<Value> = said.lines().find_map(|line| serde_json::from_str(line).ok());
        stats.and_then(|stats| stats["exits"].as_f64()).ok_or(BenchError::Failed(said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures one document on both sides in turn, and reports its rows. Returns the number of requests that the cell has answered.
fn measure(
    options: BenchOptions<'_>,
    document: &Document,
    ours: &mut Server,
    theirs: &mut Server,
    report: &mut dyn FnMut(Row),
) -> Result<u64, BenchError> {
    let duration = if options.brief { "1s" } else { "2s" };
    // Warms up both.
    let mut requests = ours.load(document, "1s")?.requests;
    theirs.load(document, "1s")?;
    let (mut own, mut native) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds(7) {
        own.push(ours.load(document, duration)?);
        native.push(theirs.load(document, duration)?);
    }
    requests += own.iter().map(|taken| taken.requests).sum::<u64>();
    let pairs = |of: fn(&RequestTime) -> f64| Pairs::of(own.iter().map(of).collect(), native.iter().map(of).collect());
    let time = Row::pairs(document.time, REFERENCE, &pairs(|taken| taken.time)).noting("for each request");
    let cpu = Row::pairs(document.cpu, REFERENCE, &pairs(|taken| taken.cpu)).noting("of the server, for each request");
    let worse = if time.ratio > cpu.ratio { &time } else { &cpu };
    report(Row { name: document.worse, ..worse.clone() }.noting(format!("the worse of {} and {}", document.time, document.cpu)));
    report(time);
    report(cpu);
    let stages = [
        (document.gateway, TimedPart::Gateway, "the gateway's process, and the thread that carries its frames"),
        (document.guest, TimedPart::Guest, "nginx and the libOS in the cell"),
        (document.kernel, TimedPart::Kernel, "the kernel between exits: switch, copies"),
        (document.exits, TimedPart::Host, "the host's kernel under the cell: exits"),
    ];
    for (name, part, note) in stages {
        let of = |taken: &RequestTime| taken.parts.iter().filter(|(its, _)| *its == part).map(|(_, nanos)| nanos).sum();
        report(Row::time(name, &Sample::of(own.iter().map(of).collect())).noting(note));
    }
    Ok(requests)
}

/// A port that is free at this moment.
fn free_port() -> Result<u16, BenchError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(BenchError::host("find a free port"))
}

/// Succeeds if a server answers at the port.
fn ask(port: u16) -> std::io::Result<()> {
    use std::io::Write;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(START))?;
    stream.write_all(b"GET /2k HTTP/1.0\r\n\r\n")?;
    let mut first = [0; 12];
    stream.read_exact(&mut first)?;
    if first == *b"HTTP/1.1 200" { Ok(()) } else { Err(std::io::Error::other("another answer")) }
}

/// The number of requests answered, from the client's output; `None` if it reports failures.
fn asked(text: &str) -> Option<u64> {
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return None;
    }
    text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::asked;

    #[test]
    fn the_clients_output_is_parsed() {
        assert_eq!(asked("Running 1s test\n  2 threads\n  91012 requests in 2.00s, 197.26MB read\n"), Some(91012));
        assert_eq!(asked("  10 requests in 2.00s, 1MB read\n  Socket errors: connect 0, read 3, write 0, timeout 0\n"), None);
    }
}
