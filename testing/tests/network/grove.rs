// SPDX-License-Identifier: MIT OR Apache-2.0
//! A web server in each of a thousand cells on one switch, and somebody who asks them as Zipf's law says (Denali, section 4.3.2).

use crate::outsider::Outsider;
use crate::world::{Extent, Running, World};
use pando_kernel::network::link::Link;
use pando_machine::PageCount;
use pando_stack::ConnectionId;
use pando_testing::lab::repetitions;
use std::collections::HashMap;
use std::time::Instant;

/// What each server may have: 32 MiB.
const QUOTA: PageCount = PageCount(1 << 13);
/// 6 GiB of physical memory, of which what nobody touches costs nothing.
const ARENA: PageCount = PageCount(3 << 19);
/// Questions that are open at once.
const AT_ONCE: usize = 16;
/// Bytes of an answer: Denali's small object, about the median of the web's.
const LENGTH: usize = 2258;
/// How much more often a popular server is asked: the exponent of the law.
const ALPHA: f64 = 1.0;

/// Draws servers: the first is asked most.
struct Zipf {
    /// The sum of the weights up to each.
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

/// What a server answers: a line, over and over.
fn content(server: usize) -> Vec<u8> {
    format!("I am server {server:04}, and nobody else.\n").bytes().cycle().take(LENGTH).collect()
}

fn serve(world: &mut World, server: usize) -> Running {
    let line = format!("I am server {server:04}, and nobody else.");
    // A shell that makes its page itself, and then becomes the server.
    let script = format!(
        "i=0; while [ $i -lt 90 ]; do echo '{line}'; i=$((i+1)); done | head -c {LENGTH} > index.html; exec httpd -f -p 80 -h /tmp"
    );
    world.serve_with(&script, Link::default(), QUOTA)
}

/// What all servers have cost so far: exits, and pages that are theirs alone.
fn costs(world: &World, servers: &[Running]) -> (u64, u64) {
    let each = servers.iter().map(|server| world.lab.kernel.inspect(server.id).expect("it lives"));
    each.fold((0, 0), |(exits, pages), (_, counters, usage)| (exits + counters.exits, pages + usage.used.0))
}

/// Asks servers as the law says, some at once, and compares each answer with what its server has. Returns how many were asked at all.
fn ask(world: &mut World, servers: &[Running], questions: usize) -> usize {
    let mut outsider = Outsider::new(world, world.network);
    let mut zipf = Zipf::new(servers.len(), 1);
    let mut open: HashMap<ConnectionId, usize> = HashMap::new();
    let mut asked = vec![0; servers.len()];
    let (mut answered, mut sent) = (0, 0);
    while answered < questions {
        while sent < questions && open.len() < AT_ONCE {
            let server = zipf.draw();
            let id = outsider.connect(world, (servers[server].addresses.v4, 80).into(), b"GET / HTTP/1.0\r\n\r\n");
            open.insert(id, server);
            asked[server] += 1;
            sent += 1;
        }
        let over = outsider.until(world, |outsider, _| open.keys().copied().find(|id| outsider.ends[id].is_over()));
        let (end, server) = (outsider.ends.remove(&over).expect("it was just seen"), open.remove(&over).expect("it was asked"));
        assert_eq!(end.failure, None, "server {server}");
        let body = end.heard.windows(4).position(|four| four == b"\r\n\r\n").map(|at| &end.heard[at + 4..]);
        assert!(
            end.heard.starts_with(b"HTTP/1.1 200 OK\r\n") && body == Some(&content(server)),
            "server {server} answers as another would"
        );
        answered += 1;
    }
    asked.iter().filter(|times| **times > 0).count()
}

#[test]
fn each_of_a_thousand_web_servers_answers_for_itself() {
    let count = repetitions(4, 100, 1000) as usize;
    let questions = repetitions(20, 500, 20_000) as usize;
    let Some(mut world) = World::with(Extent { arena: ARENA, ..Extent::default() }) else { return };
    // One before the others, so that what all share is there.
    let first = serve(&mut world, 0);
    ask(&mut world, std::slice::from_ref(&first), 1);
    world.end(&first);
    world.lab.kernel.settle();
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
    world.lab.kernel.settle();
    assert_eq!(world.owned(), before, "every frame has come back");
}
