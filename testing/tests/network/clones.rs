// SPDX-License-Identifier: MIT OR Apache-2.0
//! A web server in each of a thousand cells on one switch, and a client whose requests follow Zipf's law (Denali, section 4.3.2).

use crate::host_peer::HostPeer;
use crate::world::{CellNetwork, Extent, Running};
use pando_kernel::network::link::Link;
use pando_machine::PageCount;
use pando_stack::ConnectionId;
use pando_testing::lab::repetitions;
use std::collections::HashMap;
use std::time::Instant;

/// The quota of each server: 32 MiB.
const QUOTA: PageCount = PageCount(1 << 13);
/// 6 GiB of physical memory; untouched parts cost nothing.
const ARENA: PageCount = PageCount(3 << 19);
/// Requests in flight at once.
const AT_ONCE: usize = 16;
/// Bytes of a response: Denali's small object, about the median of the web's.
const LENGTH: usize = 2258;
/// The exponent of Zipf's law: the bias towards popular servers.
const ALPHA: f64 = 1.0;

/// Draws servers by Zipf's law: the first most often.
struct Zipf {
    /// The cumulative weights.
    sums: Vec<f64>,
    random: fastrand::Rng,
}

impl Zipf {
    fn new(servers: usize, seed: u64) -> Zipf {
        let weights = (1..=servers).map(|rank| (rank as f64).powf(-ALPHA));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect(), random: fastrand::Rng::with_seed(seed) }
    }

    fn draw(&mut self) -> usize {
        let point = self.random.f64() * self.sums.last().expect("there are servers");
        self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1)
    }
}

/// A server's response: one line, repeated.
fn content(server: usize) -> Vec<u8> {
    format!("I am server {server:04}, and nobody else.\n").bytes().cycle().take(LENGTH).collect()
}

fn serve(world: &mut CellNetwork, server: usize) -> Running {
    let line = format!("I am server {server:04}, and nobody else.");
    // A shell that creates its page itself, and then executes the server.
    let script = format!(
        "i=0; while [ $i -lt 90 ]; do echo '{line}'; i=$((i+1)); done | head -c {LENGTH} > index.html; exec httpd -f -p 80 -h /tmp"
    );
    world.serve_with(&script, Link::default(), QUOTA)
}

/// The cost of all servers so far: exits, and private pages.
fn costs(world: &CellNetwork, servers: &[Running]) -> (u64, u64) {
    let each = servers.iter().map(|server| world.lab.kernel.inspect(server.id).expect("it lives"));
    each.fold((0, 0), |(exits, pages), (_, counters, usage)| (exits + counters.exits, pages + usage.used.0))
}

/// Sends requests by Zipf's law, several at once, and compares each response with its server's content. Returns the number
/// of servers that got a request.
fn ask(world: &mut CellNetwork, servers: &[Running], questions: usize) -> usize {
    let mut host_peer = HostPeer::new(world, world.network);
    let mut zipf = Zipf::new(servers.len(), 1);
    let mut open: HashMap<ConnectionId, usize> = HashMap::new();
    let mut asked = vec![0; servers.len()];
    let (mut answered, mut sent) = (0, 0);
    while answered < questions {
        while sent < questions && open.len() < AT_ONCE {
            let server = zipf.draw();
            let id = host_peer.connect(world, (servers[server].addresses.v4, 80).into(), b"GET / HTTP/1.0\r\n\r\n");
            open.insert(id, server);
            asked[server] += 1;
            sent += 1;
        }
        let over = host_peer.until(world, |host_peer, _| open.keys().copied().find(|id| host_peer.ends[id].is_over()));
        let (end, server) = (host_peer.ends.remove(&over).expect("it was just seen"), open.remove(&over).expect("it was asked"));
        assert_eq!(end.failure, None, "server {server}");
        let body = end.heard.windows(4).position(|four| four == b"\r\n\r\n").map(|at| &end.heard[at + 4..]);
        assert!(
            end.heard.starts_with(b"HTTP/1.1 200 OK\r\n") && body == Some(&content(server)),
            "server {server} answers with another's content"
        );
        answered += 1;
    }
    asked.iter().filter(|times| **times > 0).count()
}

#[test]
fn each_of_a_thousand_web_servers_answers_for_itself() {
    let count = repetitions(4, 100, 1000) as usize;
    let questions = repetitions(20, 500, 20_000) as usize;
    let Some(mut world) = CellNetwork::with(Extent { arena: ARENA, ..Extent::default() }) else { return };
    // One server first, so that all shared pages exist.
    let first = serve(&mut world, 0);
    ask(&mut world, std::slice::from_ref(&first), 1);
    world.end(&first);
    world.lab.kernel.free_unused_frames();
    let before = world.owned();

    let start = Instant::now();
    let servers: Vec<Running> = (0..count).map(|server| serve(&mut world, server)).collect();
    let started = start.elapsed() / count as u32;
    let (exits, pages) = costs(&world, &servers);
    println!(
        "{count} servers: {started:?} and {} exits to start each, {} KiB of memory each",
        exits / count as u64,
        4 * pages / count as u64
    );
    let start = Instant::now();
    let asked = ask(&mut world, &servers, questions);
    let took = start.elapsed();
    let (exits_after, pages) = costs(&world, &servers);
    println!(
        "{questions} questions to {asked} of them, {AT_ONCE} at once: {:?} and {:.1} exits of the servers each,",
        took / questions as u32,
        (exits_after - exits) as f64 / questions as f64
    );
    println!("{} KiB of memory for each server in the end", 4 * pages / count as u64);

    for server in &servers {
        world.end(server);
    }
    world.lab.kernel.free_unused_frames();
    assert_eq!(world.owned(), before, "every frame has come back");
}
