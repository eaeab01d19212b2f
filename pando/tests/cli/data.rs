// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input data sets for programs: the same in every run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Reproducible pseudo-random numbers (xorshift64*).
pub(crate) struct Numbers(u64);

impl Numbers {
    /// Starts a sequence from a seed.
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 32) as usize % end
    }
}

/// A data set, and its file.
pub(crate) struct DataSet {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: PathBuf,
}

/// The directory of this test program's files.
pub(crate) fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
        fs::create_dir_all(&directory).expect("the target directory can be written");
        directory
    })
}

/// The small data sets, one of each kind.
pub(crate) fn sets() -> &'static [DataSet] {
    static SETS: OnceLock<Vec<DataSet>> = OnceLock::new();
    SETS.get_or_init(|| {
        let set = |name: &'static str, bytes: Vec<u8>| {
            let file = directory().join(name);
            fs::write(&file, &bytes).expect("the target directory can be written");
            DataSet { name, bytes, file }
        };
        vec![
            set("empty", Vec::new()),
            set("no-newline", b"one line without an end".to_vec()),
            set("unicode", "Zitterpappel\nosika\n\u{30dd}\u{30d7}\u{30e9} \u{1f333}\n\u{e9}l\u{e8}ve\n".repeat(40).into_bytes()),
            set("text", text(1 << 20)),
            set("binary", binary(1 << 20)),
            set("long-lines", long_lines()),
        ]
    })
}

/// A large text file, created once: 200 MB.
pub(crate) fn large() -> &'static DataSet {
    static LARGE: OnceLock<DataSet> = OnceLock::new();
    LARGE.get_or_init(|| {
        let piece = text(1_000_000);
        let mut bytes = Vec::with_capacity(200 * piece.len());
        for number in 0..200 {
            // The pieces differ, so that a lost, duplicated or misplaced piece is detected.
            bytes.extend_from_slice(format!("piece {number}\n").as_bytes());
            bytes.extend_from_slice(&piece);
        }
        let file = directory().join("large");
        fs::write(&file, &bytes).expect("the target directory has room for 200 MB");
        DataSet { name: "large", bytes, file }
    })
}

/// Lines of words and numbers.
pub(crate) fn text(size: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = ["aspen", "grove", "root", "trunk", "leaf", "clone", "Pando", "Utah", "quakes", "in", "the", "wind"];
    let mut numbers = Numbers::new(1);
    let mut text = String::with_capacity(size + 100);
    while text.len() < size {
        text += &format!("{} ", numbers.below(100_000));
        for _ in 0..numbers.below(9) {
            text += WORDS[numbers.below(WORDS.len())];
            text.push(if numbers.below(10) == 0 { '\t' } else { ' ' });
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// Every byte value once, then random bytes.
pub(crate) fn binary(size: usize) -> Vec<u8> {
    let mut numbers = Numbers::new(2);
    (0..=255).chain(std::iter::repeat_with(|| numbers.next().to_le_bytes()).flatten()).take(size).collect()
}

/// Lines longer than any buffer of an applet.
fn long_lines() -> Vec<u8> {
    let mut numbers = Numbers::new(3);
    let mut bytes = Vec::new();
    for length in [4095, 4096, 4097, 65_535, 65_536, 65_537, 700_000] {
        bytes.extend(std::iter::repeat_with(|| b'a' + numbers.below(26) as u8).take(length));
        bytes.push(b'\n');
    }
    bytes
}
