// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs on a stage that say that they are ready, and are cloned from then on.

use crate::BenchError;
use crate::program::is_idle;
use crate::stage::Stage;
use pando_kernel::cell::State;
use pando_kernel::{CellId, ConsolePort, Counters, End, Stream};
use pando_launch::{Program, Root};
use std::sync::Arc;
use std::time::Instant;

/// A program that has frozen, and what its clones are given.
pub(super) struct Template {
    pub(super) root: Root,
    program: Program,
}

/// A cell that has not started.
pub(super) struct Fresh {
    pub(super) cell: CellId,
    port: Arc<ConsolePort>,
}

impl Template {
    /// Runs a program until it says that it is ready.
    pub(super) fn new(stage: &mut Stage, root: &Root, program: Program) -> Result<Template, BenchError> {
        let program = Program { is_template: true, ..program };
        let fresh = Fresh::new(stage, root, &program)?;
        fresh.port.close_input();
        stage.template(fresh.cell).map_err(|error| fresh.complaint(error))?;
        Ok(Template::of(root.frozen(fresh.cell), program))
    }

    /// The same, which has learned from a clone what those touch until they wait.
    pub(super) fn trained(stage: &mut Stage, root: &Root, program: Program) -> Result<Template, BenchError> {
        let template = Template::new(stage, root, program)?;
        template.train(stage, Template::wait)?;
        Ok(template)
    }

    /// How a clone is taught from that comes to wait.
    pub(super) fn wait(teacher: Fresh, stage: &mut Stage) -> Result<(), BenchError> {
        teacher.settle(stage)?;
        stage.end(teacher.cell)
    }

    /// How a clone is taught from that comes to an end.
    pub(super) fn end(teacher: Fresh, stage: &mut Stage) -> Result<(), BenchError> {
        teacher.finish(stage).map(drop)
    }

    /// A root that is a program which has frozen. Its clones are given nothing, as by `pando clone` without words.
    pub(super) fn of(root: Root, program: Program) -> Template {
        Template { root, program: Program { is_template: false, arguments: Vec::new(), environment: Vec::new(), ..program } }
    }

    /// The same, whose clones are given these words.
    pub(super) fn giving(mut self, words: &[&str]) -> Template {
        self.program.arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self
    }

    /// A clone.
    pub(super) fn clone(&self, stage: &Stage) -> Result<Fresh, BenchError> {
        Fresh::new(stage, &self.root, &self.program)
    }

    /// Has the template learn from a clone, which runs until `until` is done with it.
    pub(super) fn train(&self, stage: &mut Stage, until: impl Fn(Fresh, &mut Stage) -> Result<(), BenchError>) -> Result<(), BenchError> {
        let teacher = self.clone(stage)?;
        stage.kernel.teach(self.root.cell(), teacher.cell)?;
        until(teacher, stage)?;
        // As in a template that comes from a file.
        Ok(stage.kernel.foresee(self.root.cell())?)
    }

    /// Nanoseconds from the wish to clone until the clone has given up the CPU for the first time. It is gone when this returns.
    pub(super) fn first_instruction(&self, stage: &mut Stage) -> Result<f64, BenchError> {
        let start = Instant::now();
        let Fresh { cell, .. } = self.clone(stage)?;
        stage.kernel.start(cell)?;
        stage.turn()?;
        let time = start.elapsed().as_nanos() as f64;
        let (state, counters, _) = stage.kernel.inspect(cell)?;
        stage.end(cell)?;
        if state == State::Ready && counters.preemptions == 0 { Ok(time) } else { Err(BenchError::Astray) }
    }

    /// Nanoseconds from the wish to clone until the clone waits, and has said something. It is gone when this returns.
    pub(super) fn first_line(&self, stage: &mut Stage) -> Result<f64, BenchError> {
        let start = Instant::now();
        let clone = self.clone(stage)?;
        clone.say(stage)?;
        let time = start.elapsed().as_nanos() as f64;
        stage.end(clone.cell)?;
        Ok(time)
    }
}

impl Fresh {
    /// A program in a cell.
    pub(super) fn new(stage: &Stage, root: &Root, program: &Program) -> Result<Fresh, BenchError> {
        let cell = program.prepare(&stage.kernel, root)?;
        Ok(Fresh { cell, port: stage.kernel.console(cell)? })
    }

    /// Starts it and lets it run until it waits.
    pub(super) fn settle(&self, stage: &mut Stage) -> Result<(), BenchError> {
        stage.kernel.start(self.cell)?;
        stage.turn_until(self.cell, is_idle).map_err(|error| self.complaint(error))
    }

    /// The same; returns what it has said, which is something.
    pub(super) fn say(&self, stage: &mut Stage) -> Result<String, BenchError> {
        self.settle(stage)?;
        match self.port.receive() {
            Some((Stream::Output, said)) => Ok(String::from_utf8_lossy(&said).into_owned()),
            Some((Stream::Errors, said)) => Err(BenchError::Failed(String::from_utf8_lossy(&said).into_owned())),
            Some((Stream::Notes, _)) | None => Err(BenchError::Astray),
        }
    }

    /// Starts it and lets it run to its end, which has to be a good one with something said; returns what it did.
    pub(super) fn finish(self, stage: &mut Stage) -> Result<Counters, BenchError> {
        self.port.close_input();
        stage.kernel.start(self.cell)?;
        let outcome = stage.finish(self.cell)?;
        match (self.port.receive(), &outcome.end) {
            (Some((Stream::Output, _)), End::Exited { status: 0 }) => Ok(outcome.counters),
            (Some((_, said)), end) => Err(BenchError::Failed(format!("{end}: {}", String::from_utf8_lossy(&said)))),
            (None, _) => Err(BenchError::CellEnded(outcome.end)),
        }
    }

    /// Why it ended: what it said, if it ended and said anything.
    fn complaint(&self, error: BenchError) -> BenchError {
        match error {
            BenchError::CellEnded(end) => match self.port.receive() {
                Some((_, said)) => BenchError::Failed(format!("{end}: {}", String::from_utf8_lossy(&said))),
                None => BenchError::CellEnded(end),
            },
            error => error,
        }
    }
}
