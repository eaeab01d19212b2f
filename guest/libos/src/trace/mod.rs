// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--strace`: prints every system call with its arguments and result on the standard error stream, formatted as by strace.
//!
//! The [table of calls](crate::table) declares the arguments of each call: `read(fd, bytes=, size)`. Each word is a [kind](kinds),
//! which prints a register. With `=` at its end the call fills it in, so it is printed when the call is over. Other arguments are
//! printed before the call, so that a waiting call is visible. A word behind the parentheses is a [kind of result](results).

mod argument;
mod choices;
mod flags;
mod ipc;
mod kinds;
mod request;
mod results;
mod sockets;
mod structures;
mod system;
mod text;
mod waiting;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::virtual_registers::MissingCall;
use pando_rt::console::{self, IoError, Stream};
use pando_rt::registers;
use syscalls::Sysno;

use crate::errno::Errno;
use crate::process::FIRST;
use crate::signals::Signal;
use crate::signals::frame::RT_SIGRETURN;
use crate::signals::info::SigInfo;
use crate::system::System;
use crate::table::{self, Call};
use argument::Argument;
use kinds::Kind;

/// Numbers of the calls that never return.
const EXIT: u64 = 60;
const EXIT_GROUP: u64 = 231;
const ENDS: [u64; 2] = [EXIT, EXIT_GROUP];
/// Column at which results begin.
const RESULT_COLUMN: usize = 40;

/// A call that is being traced.
#[derive(Clone, Copy)]
struct TracedCall {
    number: u64,
    signature: &'static str,
    arguments: [u64; 6],
}

impl TracedCall {
    fn new(number: u64, arguments: [u64; 6]) -> TracedCall {
        TracedCall { number, signature: table::find(number).map_or("", Call::signature), arguments }
    }

    fn name(self) -> String {
        match table::find(self.number) {
            Some(call) => call.name().into(),
            None => Sysno::new(self.number as usize).map_or_else(|| format!("syscall_{:#x}", self.number), |call| call.name().into()),
        }
    }

    /// The words between the parentheses; for an unknown call, six numbers.
    fn words(self) -> impl Iterator<Item = &'static str> {
        let words = if table::find(self.number).is_some() { self.signature } else { "hex, hex, hex, hex, hex, hex" };
        words.split(", ").filter(|word| !word.is_empty())
    }

    /// Appends the printable arguments from `first` on, up to one that the call must fill in first. Returns their number.
    fn show(self, line: &mut String, first: usize, result: Option<Result<u64, Errno>>) -> usize {
        let mut count = first;
        for (index, word) in self.words().enumerate().skip(first).take(self.arguments.len() - first) {
            let kind = Kind::of(word);
            if kind.is_filled && result.is_none() {
                break;
            }
            let mut text = String::new();
            (kind.show)(&Argument { index, all: &self.arguments, result: result.filter(|_| kind.is_filled) }, &mut text);
            // Some arguments exist only for some values of others.
            if !text.is_empty() {
                let comma = if line.ends_with('(') { "" } else { ", " };
                // A string takes everything.
                let _ = write!(line, "{comma}{text}");
            }
            count += 1;
        }
        count
    }

    /// The result as it is printed.
    fn result(self, result: Result<u64, Errno>) -> String {
        match result {
            Err(Errno::ERESTART) => "? ERESTARTSYS (To be restarted if SA_RESTART is set)".into(),
            Err(error) => format!("-1 {error:?} ({})", text::sentence(error.text())),
            Ok(value) => {
                let show = table::find(self.number).and_then(|call| results::find(call.returns()));
                show.map_or_else(|| results::number(value), |show| show(&self.arguments, value))
            }
        }
    }
}

/// Performs a system call and prints it: the known part when it begins, the rest when it is over. If another thread has printed
/// meanwhile, the line is resumed.
pub fn call(system: &mut System, number: u64, arguments: [u64; 6]) -> u64 {
    let call = TracedCall::new(number, arguments);
    let mut line = prefix(system) + &call.name() + "(";
    let count = call.show(&mut line, 0, None);
    let all = count == call.words().count().min(arguments.len());
    // `rt_sigreturn` restores these from its frame, which is gone afterwards.
    let frame = (number == RT_SIGRETURN).then(|| structures::returned(system.thread.signals.stack_pointer)).flatten();
    if let Some((mask, _)) = &frame {
        line += mask;
    }
    if all {
        line.push(')');
    }
    let (again, thread) = (system.thread.call.is_restarted, system.thread.number);
    if !again {
        if ENDS.contains(&number) {
            pad(&mut line);
            line += "= ?\n";
            if number == EXIT_GROUP || system.process.threads.len() == 1 {
                line += &format!("{}+++ exited with {} +++\n", prefix(system), arguments[0] & 0xff);
            }
            print(system, &line);
            if system.process.number == FIRST {
                summary(system);
            }
            return table::perform(system, number, arguments);
        }
        print(system, &line);
        system.unfinished = Some(thread);
    }
    let raw = table::perform(system, number, arguments);
    if raw == Errno::WAITS.to_result() {
        return raw;
    }
    if system.unfinished != Some(thread) {
        let resumed = format!("{}<... {} resumed>", prefix(system), call.name());
        print(system, &resumed);
        line.clone_from(&resumed);
    }
    system.unfinished = None;
    let printed = line.len();
    let result = Errno::from_result(frame.map_or(raw, |(_, result)| result));
    if !all {
        call.show(&mut line, count, Some(result));
        line.push(')');
    }
    pad(&mut line);
    print(system, &format!("{}= {}\n", &line[printed..], call.result(result)));
    raw
}

/// The thread that a line belongs to, if there are several.
fn prefix(system: &System) -> String {
    if system.is_alone() { String::new() } else { format!("[pid {:>5}] ", system.thread.number) }
}

/// Pads a line to the column of its result.
fn pad(line: &mut String) {
    let missing = RESULT_COLUMN.saturating_sub(line.chars().count()).max(1);
    line.extend(core::iter::repeat_n(' ', missing));
}

/// Prints that a signal is being delivered.
pub fn signal(system: &mut System, info: &SigInfo) {
    if system.traced {
        let line = format!("{}--- {} {} ---\n", prefix(system), choices::signal(info.signal()), structures::information(info));
        print(system, &line);
    }
}

/// Prints that a signal ends the program.
pub fn end(system: &mut System, signal: Signal) {
    if system.traced {
        print(system, &format!("{}+++ killed by {} +++\n", prefix(system), choices::signal(signal)));
        if system.process.number == FIRST {
            summary(system);
        }
    }
}

/// Prints the unsupported calls that were made, and how often.
fn summary(system: &mut System) {
    let call = |call: MissingCall| format!("{} ({})", TracedCall::new(call.number.into(), [0; 6]).name(), call.count);
    let calls: Vec<String> = registers::missing_calls().map(call).collect();
    if !calls.is_empty() {
        print(system, &format!("pando: calls that are not implemented: {}\n", calls.join(", ")));
    }
}

/// Prints text on the program's standard error stream.
fn print(system: &mut System, text: &str) {
    if system.unfinished.take_if(|thread| *thread != system.thread.number).is_some() {
        print(system, " <unfinished ...>\n");
    }
    let output =
        if system.terminal.shows(Stream::Stderr) { system.terminal.process_output(text.as_bytes()) } else { text.as_bytes().to_vec() };
    let mut rest = &output[..];
    while !rest.is_empty() {
        match console::send_copy(Stream::Stderr, rest) {
            Ok(sent) => rest = &rest[sent..],
            Err(IoError::Event) => system.process_events(),
            // The operator has closed the stream.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::kinds::Kind;
    use super::results;
    use crate::table::TABLE;

    #[test]
    fn every_call_declares_its_arguments() {
        for call in TABLE {
            assert!(
                call.name().len() < call.declaration.len(),
                "{}: give its arguments, as `{}(fd, bytes=, size)`",
                call.declaration,
                call.declaration
            );
            for word in call.signature().split(", ").filter(|word| !word.is_empty()) {
                assert!(Kind::find(word).is_some(), "{}: `{word}` is no kind of argument: see `trace/kinds.rs`", call.declaration);
            }
            assert!(results::find(call.returns()).is_some(), "{}: `{}` is no kind of result", call.declaration, call.returns());
        }
    }
}
