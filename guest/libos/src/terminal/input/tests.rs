// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the line discipline with a Linux pseudo terminal, and checks its invariants.
//!
//! `recorded.txt` was recorded on Linux 6.18: each line is a fresh terminal and a random sequence of actions on it. `set` gives the
//! flags of input, output and local in octal and the characters in hexadecimal. Bytes are hexadecimal, `-` is none.

use super::{Effects, TYPED_MAX};
use crate::signals::Signal;
use crate::terminal::Terminal;
use crate::terminal::settings::{SIZE, Settings};
use crate::uapi::NOFLSH;
use proptest::prelude::*;
use std::string::{String, ToString};
use std::vec::Vec;

const RECORDED: &str = include_str!("recorded.txt");

fn terminal() -> Terminal {
    Terminal::new(7, true, [24, 80])
}

fn bytes(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| std::format!("{byte:02x}")).collect()
}

fn or<'a>(text: &'a str, nothing: &'a str) -> &'a str {
    if text.is_empty() { nothing } else { text }
}

/// Settings with these flags and characters.
fn settings(flags: [&str; 3], characters: &str) -> Settings {
    let mut all = [0; SIZE];
    for (at, flags) in [0, 4, 12].into_iter().zip(flags) {
        all[at..at + 4].copy_from_slice(&u32::from_str_radix(flags, 8).expect("octal").to_le_bytes());
    }
    all[17..].copy_from_slice(&bytes(characters));
    Settings::default().with_bytes(&all)
}

/// Performs one action. Returns the expected and the actual result.
fn act(terminal: &mut Terminal, action: &str) -> (String, String) {
    let words: Vec<&str> = action.split(' ').collect();
    match words[..] {
        ["set", input, output, local, characters] => {
            terminal.set(settings([input, output, local], characters));
            Default::default()
        }
        ["type", typed, "shows", shown] => {
            let echo = hexadecimal(&terminal.process_input(&bytes(typed)).echo);
            (shown.to_string(), or(&echo, "-").to_string())
        }
        ["write", written, "shows", shown] => {
            (shown.to_string(), or(&hexadecimal(&terminal.process_output(&bytes(written))), "-").to_string())
        }
        ["of", readable, "read", room, "gives", wanted] => {
            let before = terminal.input.readable(&terminal.settings);
            let read = terminal.read(room.parse().expect("a number"));
            let found = read.map_or("nothing".to_string(), |bytes| or(&hexadecimal(&bytes), "end").to_string());
            (std::format!("{wanted} of {readable}"), std::format!("{found} of {before}"))
        }
        _ => panic!("{action}"),
    }
}

fn set_local(terminal: &mut Terminal, local: u32) {
    let mut settings = terminal.settings;
    settings.local = local;
    terminal.set(settings);
}

#[test]
fn it_matches_the_recorded_behaviour_of_linux() {
    let mut wrong = Vec::new();
    for line in RECORDED.lines() {
        let mut terminal = terminal();
        for action in line.split("; ") {
            let (wanted, found) = act(&mut terminal, action);
            if wanted != found {
                wrong.push(std::format!("{line}\n  {action}\n  wanted {wanted}\n  found  {found}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), RECORDED.lines().count(), wrong.join("\n"));
}

#[test]
fn typed_signals_flush_the_input_unless_noflsh_is_set() {
    let mut fresh = terminal();
    assert_eq!(fresh.process_input(b"abc\nd").echo, b"abc\r\nd");
    let effects = fresh.process_input(b"ef\x03\x1c\x1a");
    assert_eq!(effects, Effects { echo: b"^Z".to_vec(), signals: [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP].to_vec() });
    assert!(!fresh.is_ready());
    set_local(&mut fresh, Settings::default().local | NOFLSH);
    assert_eq!(fresh.process_input(b"abc\n\x03").signals, [Signal::SIGINT]);
    assert_eq!(fresh.read(100), Some(b"abc\n".to_vec()));
    set_local(&mut fresh, 0);
    assert_eq!(fresh.process_input(b"\x03"), Effects::default());
    assert_eq!(fresh.read(100), Some(b"\x03".to_vec()));
}

#[test]
fn output_is_held_back_between_two_characters() {
    let mut terminal = terminal();
    assert_eq!(terminal.process_input(b"\x13"), Effects::default());
    assert!(terminal.input.stopped);
    terminal.process_input(b"\x11");
    assert!(!terminal.input.stopped && !terminal.is_ready());
}

#[test]
fn a_line_that_is_too_long_can_be_ended() {
    let mut terminal = terminal();
    terminal.process_input(&[b'x'; 2 * TYPED_MAX]);
    assert!(!terminal.is_ready() && terminal.input.room(&terminal.settings) > 0);
    terminal.process_input(b"y\n");
    let line = terminal.read(2 * TYPED_MAX).expect("a line");
    assert_eq!((line.len(), &line[line.len() - 2..]), (TYPED_MAX, &b"x\n"[..]));
    set_local(&mut terminal, 0);
    terminal.process_input(&[b'x'; 2 * TYPED_MAX]);
    assert_eq!((terminal.input.readable(&terminal.settings), terminal.input.room(&terminal.settings)), (TYPED_MAX, 0));
}

#[test]
fn a_reader_of_several_bytes_is_ready_with_all_of_them_or_with_one_where_a_time_is_set() {
    const TIME: usize = 17 + 5;
    const MINIMUM: usize = 17 + 6;
    for (time, ready) in [(0, [false, true]), (1, [true, true])] {
        let mut terminal = terminal();
        set_local(&mut terminal, 0);
        let mut bytes = terminal.settings.to_bytes();
        (bytes[TIME], bytes[MINIMUM]) = (time, 3);
        terminal.set(terminal.settings.with_bytes(&bytes));
        assert!(!terminal.is_ready());
        let found = [&b"a"[..], b"bc"].map(|keys| {
            terminal.process_input(keys);
            terminal.is_ready()
        });
        assert_eq!(found, ready, "VTIME {time}");
    }
}

proptest! {
    /// For any input and settings: nothing panics, and a read returns at most the bytes that it has room for, in canonical mode of
    /// one line.
    #[test]
    fn reads_return_at_most_the_requested_bytes(
        steps in prop::collection::vec((any::<[u32; 3]>(), prop::collection::vec(any::<u8>(), 0..40), 0..50usize), 1..20)
    ) {
        let mut terminal = terminal();
        for ([input, output, local], keys, room) in steps {
            let mut settings = terminal.settings;
            (settings.input, settings.output, settings.local) = (input, output, local);
            terminal.set(settings);
            terminal.process_input(&keys);
            let before = terminal.input.readable(&terminal.settings);
            if let Some(read) = terminal.read(room) {
                prop_assert!(read.len() <= room.min(before));
                prop_assert_eq!(terminal.input.readable(&terminal.settings), before - read.len());
            }
        }
    }
}
