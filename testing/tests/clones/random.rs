// SPDX-License-Identifier: MIT OR Apache-2.0
//! No two clones draw the same random numbers from any source.

use crate::fixture::{CloneFixture, PYTHON, first_random_bytes, program};
use pando_launch::Program;
use pando_machine::PageCount;
use pando_testing::lab::repetitions;
use std::collections::HashSet;

/// Draws from each source before the freeze, so that left-over buffered bytes would be the same in all clones.
const SCRIPT: &str = "
import os, random, secrets, ssl, subprocess, tempfile, uuid, numpy, pando
device = open('/dev/urandom', 'rb', buffering=0)
def draw():
    return [os.getrandom(16).hex(), device.read(16).hex(), open('/dev/random', 'rb').read(16).hex(), random.random(), random.SystemRandom().random(),
        secrets.token_hex(), uuid.uuid1(), uuid.uuid4(), numpy.random.random(), numpy.random.default_rng().random(), ssl.RAND_bytes(16).hex(),
        next(tempfile._get_candidate_names()), open('/proc/sys/kernel/random/uuid').read().strip(), os.urandom(16).hex(),
        subprocess.run(['/first-random-bytes'], capture_output=True, text=True, check=True).stdout.strip()]
draw()
pando.ready()
print(*draw(), flush=True)
os._exit(0)
";
/// The number of values drawn.
const SOURCES: usize = 15;
const NODE_SOURCES: usize = 9;

/// The same for Node, which has its own generators.
const NODE: &str = "
const crypto = require('crypto')
const { promisify } = require('util')
const { Worker } = require('worker_threads')
async function draw () {
  const worker = new Worker(\"require('worker_threads').parentPort.postMessage(Math.random())\", { eval: true })
  const drawnByWorker = await new Promise(resolve => worker.once('message', resolve))
  return [drawnByWorker, (await promisify(crypto.randomBytes)(16)).toString('hex'), Math.random(), crypto.randomBytes(16).toString('hex'), crypto.randomUUID(), crypto.randomInt(2 ** 47), crypto.getRandomValues(new Uint32Array(2)).join(),
    crypto.generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'der' }).toString('hex'), require('fs').mkdtempSync('/tmp/draw-')]
}
draw().then(() => {
  require('/pando/pando.js').ready()
  return draw()
}).then(drawn => console.log(drawn.join(' ')))
";

#[test]
fn no_two_clones_draw_the_same_from_any_source() {
    if first_random_bytes().is_none() {
        return;
    }
    let clones = repetitions(2, 50, 1000) as usize;
    check(&[PYTHON, "/usr/lib/python3/dist-packages/numpy"], &program(PYTHON, &["-c", SCRIPT]), SOURCES, clones);
}

#[test]
fn no_two_clones_of_node_draw_the_same_from_any_source() {
    check(&["/usr/bin/node"], &program("/usr/bin/node", &["-e", NODE]), NODE_SOURCES, repetitions(2, 5, 100) as usize);
}

/// Checks that this many clones draw distinct values from this many sources. Left out on machines that lack the needed files.
fn check(needs: &[&str], program: &Program, sources: usize, clones: usize) {
    let Some(mut fixture) = CloneFixture::new(PageCount(1 << 18), needs) else { return };
    let root = fixture.root.clone();
    let template = fixture.freeze(&root, program);
    let mut drawn: Vec<HashSet<String>> = vec![HashSet::new(); sources];
    for _ in 0..clones {
        let clone = fixture.clone(&template, &[]);
        clone.port.close_input();
        let said = fixture.output_until_end(&clone);
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words.len(), sources, "{said}");
        drawn.iter_mut().zip(words).for_each(|(drawn, word)| _ = drawn.insert(word.into()));
    }
    for (source, drawn) in drawn.iter().enumerate() {
        assert_eq!(drawn.len(), clones, "source {source}");
    }
}
