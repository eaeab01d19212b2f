// SPDX-License-Identifier: MIT OR Apache-2.0
//! No two clones draw the same, whoever is asked.

use crate::grove::{Grove, PYTHON, first_random_bytes, program};
use pando_machine::PageCount;
use pando_testing::lab::repetitions;
use std::collections::HashSet;

/// Something is drawn before from each source, so that what is left over would be the same in all clones.
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
/// How many things are drawn.
const SOURCES: usize = 15;

#[test]
fn no_two_clones_draw_the_same_from_any_source() {
    let clones = repetitions(2, 50, 1000) as usize;
    if first_random_bytes().is_none() {
        return;
    }
    let Some(mut grove) = Grove::new(PageCount(1 << 18), &[PYTHON, "/usr/lib/python3/dist-packages/numpy"]) else { return };
    let root = grove.root.clone();
    let template = grove.freeze(&root, &program(PYTHON, &["-c", SCRIPT]));
    let mut drawn: Vec<HashSet<String>> = vec![HashSet::new(); SOURCES];
    for _ in 0..clones {
        let clone = grove.clone(&template, &[]);
        clone.port.close_input();
        let said = grove.said(&clone);
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words.len(), SOURCES, "{said}");
        drawn.iter_mut().zip(words).for_each(|(drawn, word)| _ = drawn.insert(word.into()));
    }
    for (source, drawn) in drawn.iter().enumerate() {
        assert_eq!(drawn.len(), clones, "source {source}");
    }
}
