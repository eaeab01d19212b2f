// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls of a static Rust program, part by part; each prints the same in a cell as on the host.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, IsTerminal, Read, Seek, SeekFrom, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, io};

fn main() -> ExitCode {
    // The usual message contains the thread's number, which differs.
    std::panic::set_hook(Box::new(|information| eprintln!("{information}")));
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["surroundings", ..] => surroundings(&words),
        ["collections"] => collections(),
        ["input"] => input(),
        ["files", name] => files(name),
        ["clocks"] => clocks(),
        ["panic"] => panic!("on purpose, with {}", words.len()),
        ["abort"] => std::process::abort(),
        ["exit", status] => std::process::exit(status.parse().expect("a number")),
        ["thread"] => return thread(),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn surroundings(words: &[&str]) {
    println!("{words:?}");
    let variables: BTreeMap<String, String> = env::vars().collect();
    println!("{variables:#?}");
    println!("{:?} {:?}", env::var("NOTHING"), env::current_exe().map(|path| path.is_absolute()).map_err(|error| error.kind()));
    println!("{} {} {}", io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal());
    eprintln!("to standard error");
}

fn collections() {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut seed = 1u64;
    for _ in 0..200_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *counts.entry(seed >> 48).or_default() += 1;
    }
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_unstable_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
    println!("{:?} of {}", &sorted[..3], sorted.len());
    let text: String = (0..10_000).map(|number| char::from_u32(0x1f300 + number % 200).unwrap_or('?')).rev().collect();
    println!("{} {:?} {:.6} {:e}", text.len(), text.chars().nth(7), std::f64::consts::PI.powf(1.5), 1.0 / 3.0);
    println!("{:?}", std::panic::catch_unwind(|| [1, 2, 3][sorted.len()]).is_err());
    let large = vec![7u8; 100 << 20];
    println!("{}", large.iter().map(|&byte| u64::from(byte)).sum::<u64>());
}

fn input() {
    let stdin = io::stdin();
    let mut first = String::new();
    stdin.lock().read_line(&mut first).expect("standard input is text");
    let mut rest = Vec::new();
    stdin.lock().read_to_end(&mut rest).expect("standard input can be read");
    io::stdout().write_all(&rest).expect("standard output can be written");
    println!("{first:?} and {} bytes", rest.len());
}

fn files(name: &str) {
    let text = fs::read_to_string(name).expect("the file is text");
    let metadata = fs::metadata(name).expect("the file is there");
    println!("{} {} {}", text.lines().count(), metadata.len() == text.len() as u64, metadata.is_file());
    let mut file = fs::File::open(name).expect("the file is there");
    file.seek(SeekFrom::End(-10)).expect("the file is longer");
    let mut end = String::new();
    file.read_to_string(&mut end).expect("the file is text");
    println!("{end:?}");
    println!("{:?}", fs::read("nothing").map_err(|error| error.kind()));
    println!("{:?}", fs::read_dir(".").expect("the directory is there").filter_map(|entry| entry.ok()).any(|entry| entry.file_name() == *name));
    println!("{:?}", fs::metadata(format!("{name}/below")).map(|_| ()).map_err(|error| error.kind()));
}

fn clocks() {
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(5));
    println!("{}", start.elapsed() >= Duration::from_millis(5));
    println!("{}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.as_secs() > 1_700_000_000));
}

/// Runs a second thread and prints its result.
fn thread() -> ExitCode {
    match std::thread::Builder::new().spawn(|| 42) {
        Ok(thread) => println!("{:?}", thread.join().ok()),
        Err(error) => println!("no thread: {error}"),
    }
    ExitCode::SUCCESS
}
