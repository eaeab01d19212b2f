// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that become templates, and their clones.

use crate::BenchError;
use crate::harness::Harness;
use crate::program::is_idle;
use pando_kernel::RunState;
use pando_kernel::{CellId, ConsolePort, Counters, End, Stream};
use pando_launch::{Program, Root};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// A program that has frozen, and the request for its clones.
pub(super) struct FrozenTemplate {
    pub(super) root: Root,
    program: Program,
}

/// A cell that has not started.
pub(super) struct UnstartedCell {
    pub(super) cell: CellId,
    port: Arc<ConsolePort>,
}

impl FrozenTemplate {
    /// Runs a program until it reports that it is ready.
    pub(super) fn new(harness: &mut Harness, root: &Root, program: Program) -> Result<FrozenTemplate, BenchError> {
        let program = Program { is_template: true, ..program };
        let fresh = UnstartedCell::new(harness, root, &program)?;
        fresh.port.close_input();
        harness.template(fresh.cell).map_err(|error| fresh.last_error(error))?;
        Ok(FrozenTemplate::of(root.frozen(fresh.cell), program))
    }

    /// Creates a template that is trained with a clone up to its first wait.
    pub(super) fn trained(harness: &mut Harness, root: &Root, program: Program) -> Result<FrozenTemplate, BenchError> {
        let template = FrozenTemplate::new(harness, root, program)?;
        template.train(harness, FrozenTemplate::wait)?;
        Ok(template)
    }

    /// Trains with a clone until it waits; for [`FrozenTemplate::train`].
    pub(super) fn wait(trainee: UnstartedCell, harness: &mut Harness) -> Result<(), BenchError> {
        trainee.run_until_wait(harness)?;
        harness.end(trainee.cell)
    }

    /// Trains with a clone until it exits; for [`FrozenTemplate::train`].
    pub(super) fn end(trainee: UnstartedCell, harness: &mut Harness) -> Result<(), BenchError> {
        trainee.finish(harness).map(drop)
    }

    /// A root that is a frozen program. Its clones get no arguments, like those of `pando clone` without any.
    pub(super) fn of(root: Root, program: Program) -> FrozenTemplate {
        FrozenTemplate { root, program: Program { is_template: false, arguments: Vec::new(), environment: Vec::new(), ..program } }
    }

    /// Sets the arguments of its clones.
    pub(super) fn with_arguments(mut self, arguments: &[&str]) -> FrozenTemplate {
        self.program.arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        self
    }

    /// Creates a clone.
    pub(super) fn clone(&self, harness: &Harness) -> Result<UnstartedCell, BenchError> {
        UnstartedCell::new(harness, &self.root, &self.program)
    }

    /// Trains the template with a clone; `until` runs the clone to the end of the training.
    pub(super) fn train(
        &self,
        harness: &mut Harness,
        until: impl Fn(UnstartedCell, &mut Harness) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let trainee = self.clone(harness)?;
        harness.kernel.train(self.root.cell(), trainee.cell)?;
        until(trainee, harness)?;
        // Prefetches the pages, as in a template loaded from a file.
        Ok(harness.kernel.prefetch(self.root.cell())?)
    }

    /// Nanoseconds from the start of cloning until the clone first gives up the CPU. The clone is removed on return.
    pub(super) fn first_instruction(&self, harness: &mut Harness) -> Result<f64, BenchError> {
        let start = Instant::now();
        let UnstartedCell { cell, .. } = self.clone(harness)?;
        harness.kernel.start(cell)?;
        harness.turn()?;
        let time = start.elapsed().as_nanos() as f64;
        let (state, counters, _) = harness.kernel.inspect(cell)?;
        harness.end(cell)?;
        if state == RunState::Ready && counters.preemptions == 0 { Ok(time) } else { Err(BenchError::NoHypercall) }
    }

    /// Runs a clone to its exit. Returns the nanoseconds from the start of cloning to its first output, and its counters.
    pub(super) fn first_output(&self, harness: &mut Harness) -> Result<(f64, Counters), BenchError> {
        let start = Instant::now();
        let clone = self.clone(harness)?;
        let (sender, moments) = mpsc::channel();
        // The receiver lives longer than the cell.
        clone.port.listen(move || sender.send(Instant::now()).unwrap_or_default());
        let counters = clone.finish(harness)?;
        // The first call was made by `listen`; the clone reads no input, so the next one announces output.
        let moment = moments.into_iter().nth(1).ok_or_else(|| BenchError::Failed("a clone ended without output".into()))?;
        Ok((moment.duration_since(start).as_nanos() as f64, counters))
    }

    /// Nanoseconds from the start of cloning until the clone has printed a line and waits. The clone is removed on return.
    pub(super) fn first_line(&self, harness: &mut Harness) -> Result<f64, BenchError> {
        let start = Instant::now();
        let clone = self.clone(harness)?;
        clone.say(harness)?;
        let time = start.elapsed().as_nanos() as f64;
        harness.end(clone.cell)?;
        Ok(time)
    }
}

impl UnstartedCell {
    /// Prepares a program in a cell.
    pub(super) fn new(harness: &Harness, root: &Root, program: &Program) -> Result<UnstartedCell, BenchError> {
        let cell = program.prepare(&harness.kernel, root)?;
        Ok(UnstartedCell { cell, port: harness.kernel.console(cell)? })
    }

    /// Starts it and runs it until it waits.
    pub(super) fn run_until_wait(&self, harness: &mut Harness) -> Result<(), BenchError> {
        harness.kernel.start(self.cell)?;
        harness.turn_until(self.cell, is_idle).map_err(|error| self.last_error(error))
    }

    /// Starts it, runs it until it waits, and returns its output, which must not be empty.
    pub(super) fn say(&self, harness: &mut Harness) -> Result<String, BenchError> {
        self.run_until_wait(harness)?;
        match self.port.receive() {
            Some((Stream::Stdout, said)) => Ok(String::from_utf8_lossy(&said).into_owned()),
            Some((Stream::Stderr, said)) => Err(BenchError::Failed(String::from_utf8_lossy(&said).into_owned())),
            Some((Stream::Notes, _)) | None => Err(BenchError::Failed("a cell waits without output".into())),
        }
    }

    /// Starts it and runs it until it exits, which must be with status 0 and some output; returns its counters.
    pub(super) fn finish(self, harness: &mut Harness) -> Result<Counters, BenchError> {
        self.port.close_input();
        harness.kernel.start(self.cell)?;
        let outcome = harness.finish(self.cell)?;
        match (self.port.receive(), &outcome.end) {
            (Some((Stream::Stdout, _)), End::Exited { status: 0 }) => Ok(outcome.counters),
            (Some((_, said)), end) => Err(BenchError::Failed(format!("{end}: {}", String::from_utf8_lossy(&said)))),
            (None, _) => Err(BenchError::CellEnded(outcome.end)),
        }
    }

    /// Adds the cell's output to an error about its end, if there is any.
    fn last_error(&self, error: BenchError) -> BenchError {
        match error {
            BenchError::CellEnded(end) => match self.port.receive() {
                Some((_, said)) => BenchError::Failed(format!("{end}: {}", String::from_utf8_lossy(&said))),
                None => BenchError::CellEnded(end),
            },
            error => error,
        }
    }
}
