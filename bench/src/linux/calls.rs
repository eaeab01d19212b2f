// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls and short sequences of them: a static C program repeats each many times.

use super::{LineServer, REFERENCE};
use crate::process_runs::WorkDirectory;
use crate::program::CompiledProgram;
use crate::{BenchError, BenchOptions, Row};

/// A row: its name, its repetitions in one measurement, and a note. A measurement takes a few milliseconds at most on
/// either side: on a busy machine a longer one is preempted, and the shorter side is not.
struct CallBenchmark(&'static str, u32, &'static str);

const BENCHMARKS: &[CallBenchmark] = &[
    CallBenchmark("getppid", 20_000, ""),
    CallBenchmark("read-1", 10_000, "of a file that the program has written, byte by byte"),
    CallBenchmark("read-4k", 5_000, "the same, page by page"),
    CallBenchmark("read-4k-host", 5_000, "pread of a file of the host"),
    CallBenchmark("write-4k", 5_000, "over a file that the program has written"),
    CallBenchmark("fstat", 10_000, ""),
    CallBenchmark("stat", 2_000, "of a file of the host"),
    CallBenchmark("open-close", 2_000, "of a file of the host"),
    CallBenchmark("select-10", 2_000, "empty pipes"),
    CallBenchmark("select-100", 200, "empty pipes"),
    CallBenchmark("signal-install", 10_000, "sigaction"),
    CallBenchmark("signal-deliver", 100, "kill of itself, with a handler"),
    CallBenchmark("mmap", 20, "mmap and munmap of 64 KiB, untouched"),
    CallBenchmark("page-fault", 256, "a page of a shared mapping of 1 MiB, mmap and munmap included"),
    CallBenchmark("pipe-threads", 100, "there and back between two threads"),
    CallBenchmark("pipe-processes", 10, "there and back between two processes"),
    CallBenchmark("pipe-ring", 4, "around eight processes"),
    CallBenchmark("unix-socket", 10, "there and back between two processes"),
    CallBenchmark("fork-exit", 2, "fork, exit and wait of a small process"),
    CallBenchmark("fork-exec", 1, "the same with execve of a static program"),
    CallBenchmark("fork-shell", 1, "the same of sh -c :"),
    CallBenchmark("fork-64m", 1, "fork, exit and wait with 64 MiB resident in 4 KiB pages"),
    CallBenchmark("fork-64m-huge", 2, "the same in 2 MiB pages"),
];
/// The factor by which a brief run does less.
const BRIEF: u32 = 50;

pub(super) fn run(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    program: &CompiledProgram,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    for CallBenchmark(name, count, note) in BENCHMARKS {
        let count = if options.brief { count.div_ceil(BRIEF) } else { *count };
        let pairs = LineServer::start(place, &[], program.path(), &[name])?.compare(options.rounds(50), count)?;
        let row = Row::pairs(name, REFERENCE, &pairs);
        report(if note.is_empty() { row } else { row.noting(*note) });
    }
    Ok(())
}
