// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream-cells` and `rr-cells`: two cells that communicate by TCP, compared with two processes over the host's loopback.
//! All on one core.

use super::networked_cells::NetworkedCells;
use crate::program::{CompiledProgram, Process};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_kernel::Config;
use pando_machine::PageCount;
use std::process::Command;

const SOURCE: &str = include_str!("talk.c");
/// 512 MiB.
const ARENA: PageCount = PageCount(1 << 17);
/// The quota of each of the two cells: 64 MiB.
const QUOTA: PageCount = PageCount(1 << 14);
/// The address where a server listens in its cell, and on the host.
const EVERYWHERE: &str = "0.0.0.0";
const LOOPBACK: &str = "127.0.0.1";
/// Bytes of one streamed piece.
const PIECE: f64 = 65_536.0;
/// Pieces in one measurement: 128 MiB.
const PIECES: u32 = 2048;
/// Request-response pairs in one measurement.
const QUESTIONS: u32 = 1000;
/// The factor by which a brief run does less.
const BRIEF: u32 = 16;

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let compiled = CompiledProgram::new(SOURCE)?;
    let stream = compare(options, &compiled, "stream", PIECES, |pairs| Row::pairs("stream-cells", REFERENCE, pairs))?;
    report(Row { unit: "ns/KiB", value: per_kibibyte(stream.value), reference_value: stream.reference_value.map(per_kibibyte), ..stream });
    let echo = compare(options, &compiled, "echo", QUESTIONS, |pairs| Row::pairs("rr-cells", REFERENCE, pairs))?;
    report(echo.noting("one byte in each direction"));
    Ok(())
}

const REFERENCE: &str = "two processes over the host's loopback";

/// Converts microseconds per piece to nanoseconds per KiB.
fn per_kibibyte(micros: f64) -> f64 {
    micros * 1000.0 / (PIECE / 1024.0)
}

fn compare(
    options: BenchOptions<'_>,
    compiled: &CompiledProgram,
    what: &str,
    count: u32,
    row: impl FnOnce(&crate::sample::Pairs) -> Row,
) -> Result<Row, BenchError> {
    let count = if options.brief { count / BRIEF } else { count };
    let network = NetworkedCells::new(ARENA, compiled, Config::default())?;
    let server = network.start_cell(&["serve", EVERYWHERE], QUOTA)?;
    let port = server.answer()?.to_string();
    let client = network.start_cell(&[what, &server.addresses.v4.to_string(), &port], QUOTA)?;

    let native = |arguments: &[&str]| {
        let mut command = Command::new(compiled.path());
        command.args(arguments);
        Process::start(command)
    };
    let mut listening = native(&["serve", LOOPBACK])?;
    let port = listening.line()?;
    let mut asking = native(&[what, LOOPBACK, port.trim()])?;

    let line = format!("{count}\n");
    let pairs = alternate(options.rounds(20), |side| {
        let nanos = match side {
            Side::Ours => client.ask(&line)?,
            Side::Theirs => asking.ask(&line)?,
        };
        Ok(nanos / f64::from(count))
    })?;
    Ok(row(&pairs))
}
