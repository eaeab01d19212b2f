// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every target with its seeds and mutated seeds: a short fuzzing run in every run of the test suite.

use fastrand::Rng;
use pando_fuzz::{TARGETS, Target};
use pando_testing::lab::repetitions;
use pando_testing::mutate::mutate;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The seed of the random mutations.
const SEED: u64 = 1;
/// The maximum size of a seed in bytes.
const SEED_MAX: usize = 32 << 10;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

/// The seeds of a target, with their names.
fn seeds(name: &str) -> Vec<(String, Vec<u8>)> {
    let directory = directory().join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("it can be listed").path();
            (path.file_name().expect("it has a name").display().to_string(), fs::read(&path).expect("it can be read"))
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    seeds
}

/// Runs a target with its seeds and mutated seeds; on a panic reports the input.
fn bear(name: &str) {
    let (_, target): &(_, Target) = TARGETS.iter().find(|(known, _)| *known == name).expect("there is such a target");
    let seeds = seeds(name);
    for (seed, bytes) in &seeds {
        assert!(bytes.len() <= SEED_MAX, "{name}/{seed} has {} bytes", bytes.len());
        println!("{name}/{seed}");
        target(bytes);
    }
    let mut random = Rng::with_seed(SEED);
    for number in 0..repetitions(100, 1_000, 200_000) {
        let (seed, bytes) = &seeds[random.usize(..seeds.len())];
        let mut changed = bytes.clone();
        // Headers are anywhere in the input, not only at its start.
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..=changed.len());
            let rest = mutate(&changed[at..], &mut random);
            changed.truncate(at);
            changed.extend(rest);
        }
        let panicked = std::panic::catch_unwind(|| target(&changed)).is_err();
        assert!(!panicked, "{name}/{seed}, change {number} from seed {SEED}: {changed:02x?}");
    }
}

#[test]
fn every_target_has_seeds_and_nothing_else_has() {
    let found: BTreeSet<String> = fs::read_dir(directory())
        .expect("it is there")
        .map(|entry| entry.expect("it can be listed").file_name().display().to_string())
        .collect();
    assert_eq!(found, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}

/// libFuzzer's manifest and programs match the targets.
#[test]
fn every_target_is_given_to_the_fuzzer() {
    let libfuzzer = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = fs::read_to_string(libfuzzer.join("Cargo.toml")).expect("it is there");
    for (name, _) in TARGETS {
        let path = format!("fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"{path}\"")), "{name}");
        let program = fs::read_to_string(libfuzzer.join(&path)).expect("it is there");
        assert!(program.contains(&format!("pando_fuzz::{name}(data)")), "{program}");
    }
}

macro_rules! bears {
    ($($name:ident),*) => { $(#[test] fn $name() { bear(stringify!($name)); })* };
}

bears!(template, tar, erofs, stack, gateway, write_back, jobs, http);
