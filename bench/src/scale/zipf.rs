// SPDX-License-Identifier: MIT OR Apache-2.0
//! `zipf-1-half` and others: real web servers in `pando serve` under Zipf load, with memory for a part of them and for all (Denali's
//! section on performance out of core).
//!
//! Two services run side by side, each with clones of busybox's web server. Clients choose a server by its rank, with a probability
//! proportional to rank^-alpha, and compare each page with what that server must have. Each request has a connection of its own.

use crate::process_runs::{BUSYBOX, needs};
use crate::sample::{Side, alternate};
use crate::service::{ServiceProcess, pando};
use crate::{BenchError, BenchOptions, Row};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The rows, each with the exponent and the divisor of the memory.
const ROWS: [(&str, f64, u64); 4] =
    [("zipf-1-half", 1.0, 2), ("zipf-0-half", 0.0, 2), ("zipf-1-quarter", 1.0, 4), ("zipf-0-quarter", 0.0, 4)];
/// Servers of a service.
const SERVERS: usize = 300;
/// Requests of a measurement.
const REQUESTS: usize = 240;
/// Clients at a time.
const CLIENTS: usize = 4;
/// How long a server may be busy after an answer, and the interval of looks at it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(10);
/// Lines of a page.
const LINES: usize = 200;
const TEMPLATE: &str = "web";
/// Writes the page of a server, and serves it.
const SCRIPT: &str = r#"pando-ready; read name < /proc/sys/kernel/hostname; for line in $(seq 200); do echo "line $line of $name"; done > /tmp/index.html
exec busybox httpd -f -p 80 -h /tmp"#;

/// A service with web servers.
struct Site {
    service: ServiceProcess,
    address: SocketAddr,
    servers: usize,
    /// Bytes in use with one server, and with all.
    used: (u64, u64),
}

/// Whether all rows that are requested by name are these.
pub(super) fn is_all(options: BenchOptions<'_>) -> bool {
    !options.only.is_empty() && options.only.iter().all(|name| ROWS.iter().any(|(row, ..)| row == name))
}

/// Measures the rows.
pub(super) fn run(options: BenchOptions<'_>, program: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    if !ROWS.iter().any(|(name, ..)| options.includes(name)) {
        return Ok(());
    }
    needs(BUSYBOX, "busybox (Debian: busybox-static)")?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let directory = directory.path();
    pando(program, directory, &["template", "create", TEMPLATE, "--", BUSYBOX, "sh", "-c", SCRIPT])?;
    let servers = if options.brief { 12 } else { SERVERS };
    let in_core = Site::start(program, directory, "in-core", servers, None)?;
    for divisor in [2, 4] {
        let rows = ROWS.iter().filter(|(name, _, of)| *of == divisor && options.includes(name));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let (one, all) = in_core.used;
        let memory = one + (all - one) / divisor;
        let out_of_core = Site::start(program, directory, "out-of-core", servers, Some(memory))?;
        for (name, alpha, _) in rows {
            let requests = if options.brief { 2 * CLIENTS } else { REQUESTS };
            let load = Load::new(*alpha, servers, requests);
            let mut seed = 0;
            let pairs = alternate(options.rounds(5), |side| {
                seed += 1;
                match side {
                    Side::Ours => load.run(&out_of_core, seed),
                    Side::Theirs => load.run(&in_core, seed),
                }
            })?;
            let note = format!(
                "a page of one of {servers} web servers, alpha {alpha}, {CLIENTS} clients; memory for 1/{divisor} of them, {} sleep at the end",
                out_of_core.asleep()?
            );
            report(Row::pairs(name, "with memory for all", &pairs).noting(note));
        }
    }
    Ok(())
}

impl Site {
    /// Starts a service with this memory, and the servers in it, and requests each page once.
    fn start(program: &Path, directory: &Path, name: &str, servers: usize, memory: Option<u64>) -> Result<Site, BenchError> {
        let socket = directory.join(name);
        let swap = format!("{}:8G", directory.display());
        let memory = memory.map(|bytes| (bytes >> 10).to_string() + "K");
        let mut options = vec!["--listen", "127.0.0.1:0", "--swap", &swap];
        options.extend(memory.iter().flat_map(|memory| ["--memory", memory.as_str()]));
        let service = ServiceProcess::start_at(program, directory, &socket, &options)?;
        let start = || service.ask("POST", "/v1/cells", &json!({ "template": TEMPLATE, "publish": ["80"] })).map(drop);
        start()?;
        let server = service.ask("GET", "/v1", &Value::Null)?;
        let address = server["listen"].as_str().and_then(|address| address.parse().ok()).ok_or_else(|| unexpected(&server))?;
        let mut site = Site { service, address, servers, used: (0, 0) };
        site.request(1)?;
        site.used.0 = site.used()?;
        for number in 2..=site.servers {
            site.service.ask("POST", "/v1/cells", &json!({ "template": TEMPLATE, "publish": ["80"] }))?;
            site.request(number)?;
        }
        if memory.is_none() {
            // A server that has slept needs less than one that has just started: what it has not changed is its template's again.
            (1..=site.servers).try_for_each(|number| site.sleep_and_wake(number))?;
        }
        site.used.1 = site.used()?;
        Ok(site)
    }

    /// Puts a server to sleep, and wakes it by a request.
    fn sleep_and_wake(&self, number: usize) -> Result<(), BenchError> {
        let begun = Instant::now();
        // It may still be busy with the last connection.
        while let Err(error) = self.service.ask("POST", &format!("/v1/cells/{number}/sleep"), &Value::Null) {
            if begun.elapsed() > BUSY_TIMEOUT {
                return Err(error);
            }
            std::thread::sleep(INTERVAL);
        }
        self.request(number)
    }

    /// Bytes of memory that the cells use.
    fn used(&self) -> Result<u64, BenchError> {
        let server = self.service.ask("GET", "/v1", &Value::Null)?;
        let bytes = |field: &str| server[field].as_u64().ok_or_else(|| unexpected(&server));
        Ok(bytes("memory_bytes")?.saturating_sub(bytes("free_bytes")?))
    }

    /// Number of sleeping servers.
    fn asleep(&self) -> Result<usize, BenchError> {
        let cells = self.service.ask("GET", "/v1/cells?state=asleep", &Value::Null)?;
        cells.as_array().map(Vec::len).ok_or_else(|| unexpected(&cells))
    }

    /// Requests the page of a server, and compares it.
    fn request(&self, number: usize) -> Result<(), BenchError> {
        let exchange = || {
            let mut stream = TcpStream::connect(self.address)?;
            stream.write_all(format!("GET / HTTP/1.0\r\nhost: {number}.cells.localhost\r\n\r\n").as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(BenchError::host("request a page of a web server"))?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let is_right = body.lines().count() == LINES
            && body.lines().zip(1..).all(|(line, count)| line == format!("line {count} of {TEMPLATE}-{number}"));
        if is_right { Ok(()) } else { Err(BenchError::Failed(format!("web server {number} answered: {answer}"))) }
    }
}

/// The error of an answer that lacks a field.
fn unexpected(answer: &Value) -> BenchError {
    BenchError::Failed(format!("the service answered: {answer}"))
}

/// A Zipf load.
struct Load {
    /// The sums of the probabilities up to each rank.
    sums: Vec<f64>,
    requests: usize,
}

impl Load {
    fn new(alpha: f64, servers: usize, requests: usize) -> Load {
        let mut sum = 0.0;
        let sums = (1..=servers).map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        });
        Load { sums: sums.collect(), requests }
    }

    /// Has the clients make all requests. Nanoseconds for each.
    fn run(&self, site: &Site, seed: u64) -> Result<f64, BenchError> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let clients = (0..CLIENTS as u64).map(|client| scope.spawn(move || self.client(site, seed * CLIENTS as u64 + client)));
            let clients: Vec<_> = clients.collect();
            clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
        })?;
        Ok(start.elapsed().as_nanos() as f64 / self.requests as f64)
    }

    fn client(&self, site: &Site, seed: u64) -> Result<(), BenchError> {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let all = self.sums.last().copied().unwrap_or_default();
        (0..self.requests / CLIENTS).try_for_each(|_| {
            // Knuth's generator (MMIX): enough for a choice.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let point = (random >> 11) as f64 / (1_u64 << 53) as f64 * all;
            site.request(self.sums.partition_point(|sum| *sum <= point).min(site.servers - 1) + 1)
        })
    }
}
