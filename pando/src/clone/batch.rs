// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of clones: several at once, each with a thread that reads its output. They run on a kernel of this process, or in a service.

use super::lines::LineWriter;
use super::{CloneOptions, ReadyTemplate};
use crate::diagnostics;
use crate::failure::Failure;
use pando_confine::SyscallGroups;
use pando_kernel::{End, Kernel, Outcome, Stream};
use pando_manager::cell::CellSpec;
use pando_manager::outcome::exit_status;
use pando_manager::time_limits::TimeLimits;
use pando_manager::{host, machine, output_file};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Whole lines of a clone's output.
pub(super) type OutputLines = LineWriter<Box<dyn Write>>;

/// Exit status: some clones failed.
const SOME_FAILED: u8 = 1;
/// Failures that are reported one by one; more are only counted.
const REPORTED_MAX: u32 = 10;

/// Runs clones of a template.
pub(super) trait CloneRunner: Sync {
    /// Runs the clone of this number to its end, and writes its output. Returns how it failed, if it failed.
    ///
    /// # Errors
    /// It could not be created, or its output could not be written.
    fn run(&self, number: u32) -> Result<Option<String>, Failure>;
}

/// Clones on a kernel of this process.
struct OwnClones<'a> {
    options: &'a CloneOptions,
    ready: &'a ReadyTemplate,
    time_limits: TimeLimits,
}

/// State that all threads share.
struct CloneBatch<'a> {
    options: &'a CloneOptions,
    runner: &'a dyn CloneRunner,
    /// Clones that were started, at most their count.
    started: AtomicU32,
    failed: AtomicU32,
    /// Why no more clones are started.
    first_failure: Mutex<Option<Failure>>,
}

/// Creates the clones on a kernel of this process, which is confined. Returns 0 if all of them succeeded.
///
/// # Errors
/// A clone could not be created, or its output could not be written.
pub(super) fn run(options: &CloneOptions, ready: &ReadyTemplate) -> Result<u8, Failure> {
    let time_limits = TimeLimits::start(Arc::<Kernel>::clone(&ready.kernel)).map_err(Failure::Thread)?;
    let needs = SyscallGroups { writing_back: options.output.is_some(), ..SyscallGroups::default() };
    run_all(options, &OwnClones { options, ready, time_limits }, || Ok(machine::install_seccomp_filter(needs)?))
}

/// Creates the clones. `prepare` is called once all threads have started. Returns 0 if all clones succeeded.
///
/// # Errors
/// A clone could not be created, or its output could not be written.
pub(super) fn run_all(
    options: &CloneOptions,
    runner: &dyn CloneRunner,
    prepare: impl FnOnce() -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let batch = CloneBatch { options, runner, started: AtomicU32::new(0), failed: AtomicU32::new(0), first_failure: Mutex::default() };
    let threads = options.count.min(options.at_once);
    // A confined process cannot start threads, so all are started before; they wait for this lock.
    let unconfined = RwLock::new(());
    let confining = unconfined.write().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let body = || {
                drop(unconfined.read());
                batch.work();
            };
            if let Err(error) = std::thread::Builder::new().name("clones".into()).spawn_scoped(scope, body) {
                batch.give_up(Failure::Thread(error));
                break;
            }
        }
        prepare().unwrap_or_else(|failure| batch.give_up(failure));
        drop(confining);
    });
    if let Some(failure) = batch.first_failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(failure);
    }
    match batch.failed.into_inner() {
        0 => Ok(0),
        failed => {
            diagnostics::print_error(&format_args!("{failed} of {} clones failed", options.count));
            Ok(SOME_FAILED)
        }
    }
}

impl CloneBatch<'_> {
    /// Creates clones until none is left.
    fn work(&self) {
        let next = |started: u32| (started < self.options.count).then_some(started + 1);
        while let Ok(number) = self.started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            match self.runner.run(number) {
                Ok(None) => {}
                Ok(Some(failure)) => self.report(number, &failure),
                Err(failure) => self.give_up(failure),
            }
        }
    }

    /// Stops the creation of clones.
    fn give_up(&self, failure: Failure) {
        self.started.store(self.options.count, Ordering::Relaxed);
        self.first_failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    fn report(&self, number: u32, failure: &str) {
        if self.failed.fetch_add(1, Ordering::Relaxed) < REPORTED_MAX {
            diagnostics::print_error(&format_args!("clone {number}: {failure}"));
        }
    }
}

impl CloneRunner for OwnClones<'_> {
    fn run(&self, number: u32) -> Result<Option<String>, Failure> {
        let Outcome { end, .. } = self.run_to_end(number)?;
        Ok((exit_status(&end) != 0).then(|| end.to_string()))
    }
}

impl OwnClones<'_> {
    /// Creates a clone and reads its output until it has ended.
    fn run_to_end(&self, number: u32) -> Result<Outcome, Failure> {
        let ReadyTemplate { kernel, root, spec, template, .. } = self.ready;
        let spec = CellSpec { host_name: Some(format!("{}-{number}", template.name())), ..spec.clone() };
        let cell = spec.create(Arc::<Kernel>::clone(kernel), root)?;
        let port = cell.console()?;
        port.close_input();
        cell.start(&spec.limits, &self.time_limits)?;
        let is_within_limit = Cell::new(true);
        let exceeded = || {
            is_within_limit.set(false);
            cell.end(End::OutputLimit);
        };
        let copied = sinks(self.options, number).and_then(|sinks| copy_streams(&port, sinks, spec.limits.output, exceeded));
        if copied.is_err() {
            cell.end(End::Killed);
        }
        let mut outcome = cell.wait()?;
        copied.map_err(Failure::Output)?;
        // It may have ended by itself before its output was read.
        if !is_within_limit.get() {
            outcome.end = End::OutputLimit;
        }
        Ok(outcome)
    }
}

/// Where the output of a clone goes, line by line.
pub(super) fn sinks(options: &CloneOptions, number: u32) -> io::Result<(OutputLines, OutputLines)> {
    let (output, errors): (Box<dyn Write>, Box<dyn Write>) = match &options.output {
        Some(directory) => {
            let [output, errors] = files(directory, number)?;
            (Box::new(output), Box::new(errors))
        }
        None => (Box::new(io::stdout()), Box::new(io::stderr())),
    };
    Ok((LineWriter::new(output), LineWriter::new(errors)))
}

/// The files of a clone.
fn files(directory: &Path, number: u32) -> io::Result<[File; 2]> {
    let file = |kind: &str| {
        let path = directory.join(format!("{number}.{kind}"));
        output_file::create_regular(&path).map_err(|error| io::Error::other(format!("{}: {}", path.display(), host::plain(&error))))
    };
    Ok([file("out")?, file("err")?])
}

/// Copies a cell's output until the cell has ended. Calls `exceeded` if it is longer than the limit.
fn copy_streams(
    port: &pando_kernel::ConsolePort,
    (mut output, mut errors): (OutputLines, OutputLines),
    most: Option<u64>,
    exceeded: impl Fn(),
) -> io::Result<()> {
    let mut left = most.unwrap_or(u64::MAX);
    while let Some((stream, mut bytes)) = port.receive() {
        if bytes.len() as u64 > left {
            bytes.truncate(left as usize);
            exceeded();
        }
        left -= bytes.len() as u64;
        match stream {
            Stream::Stdout => output.take(&bytes)?,
            Stream::Stderr => errors.take(&bytes)?,
            // Notes are for operators that offer a service with them.
            Stream::Notes => {}
        }
    }
    output.finish()?;
    errors.finish()
}
