// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small static C programs, compiled here, that answer lines: in a cell that the measuring thread drives, and as processes.

use crate::BenchError;
use crate::stage::Stage;
use pando_image::{Builder, HostFile};
use pando_kernel::cell::State;
use pando_kernel::{CellId, ConsolePort, Kernel, Stream};
use pando_launch::{LaunchError, Program, Root, Template, Volume};
use pando_machine::PageCount;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// Where cells find the program.
const PATH: &[u8] = b"/program";
/// What a cell with it may have.
pub(crate) const QUOTA: PageCount = PageCount(4096);

/// A compiled program; its file goes when this is dropped.
pub(crate) struct Compiled {
    file: PathBuf,
    _directory: TempDir,
}

impl Compiled {
    /// Compiles a program with the host's C compiler.
    pub(crate) fn new(source: &str) -> Result<Compiled, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
        let [text, file] = ["program.c", "program"].map(|name| directory.path().join(name));
        std::fs::write(&text, source).map_err(BenchError::host("write a C program"))?;
        let output = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&file).arg(&text).output();
        let output = output.map_err(BenchError::host("start the C compiler `cc`, which makes the small program"))?;
        if output.status.success() {
            return Ok(Compiled { file, _directory: directory });
        }
        Err(BenchError::Compiler(String::from_utf8_lossy(&output.stderr).trim().into()))
    }

    /// The program in a cell, run until it waits for input.
    pub(crate) fn in_cell(&self, stage: &mut Stage) -> Result<CellId, BenchError> {
        let root = self.booted(stage)?;
        let cell = program(&[]).prepare(&stage.kernel, &root)?;
        stage.kernel.start(cell)?;
        stage.turn_until(cell, is_idle)?;
        Ok(cell)
    }

    /// A root with nothing but the program, on a stage where no libOS has booted yet.
    pub(crate) fn booted(&self, stage: &mut Stage) -> Result<Root, BenchError> {
        boot(stage, vec![self.volume()?])
    }

    /// A root with nothing but the program, over a template.
    pub(crate) fn root(&self, kernel: &Kernel, template: Template) -> Result<Root, BenchError> {
        Ok(Root::new(kernel, &template, vec![self.volume()?])?)
    }

    /// What such a root sees.
    pub(crate) fn volume(&self) -> Result<Volume, BenchError> {
        let file = HostFile::new(&self.file).map_err(LaunchError::from)?;
        let mut files = Builder::new();
        files.file(PATH, file.attributes(), file).map_err(LaunchError::from)?;
        Ok(Volume::new("/", files.image().map_err(LaunchError::from)?))
    }

    /// The program as a process.
    pub(crate) fn as_process(&self) -> Result<Process, BenchError> {
        Process::start(Command::new(&self.file))
    }

    /// Where its file lies.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }
}

/// A root with these volumes, on a stage where no libOS has booted yet.
pub(crate) fn boot(stage: &mut Stage, volumes: Vec<Volume>) -> Result<Root, BenchError> {
    let template = Template::boot(&stage.kernel)?;
    stage.turn_until(template.cell(), |state| state == State::Frozen)?;
    Ok(Root::new(&stage.kernel, &template, volumes)?)
}

/// The program of such a root, with its arguments behind its own name.
pub(crate) fn program(words: &[&str]) -> Program {
    Program {
        path: PATH.to_vec(),
        directory: b"/".to_vec(),
        arguments: std::iter::once(PATH.to_vec()).chain(words.iter().map(|word| word.as_bytes().to_vec())).collect(),
        memory: QUOTA,
        ..Program::default()
    }
}

/// Whether a cell waits.
pub(crate) fn is_idle(state: State) -> bool {
    matches!(state, State::Idle { .. })
}

/// A program in a cell that answers lines.
pub(crate) struct Asked {
    cell: CellId,
    port: Arc<ConsolePort>,
}

impl Asked {
    /// Of a cell that waits for its first line; what it has said so far is forgotten.
    pub(crate) fn new(stage: &Stage, cell: CellId) -> Result<Asked, BenchError> {
        let port = stage.kernel.console(cell)?;
        port.receive();
        Ok(Asked { cell, port })
    }

    /// Sends a line, and returns the number that the answer is.
    pub(crate) fn ask(&self, stage: &mut Stage, line: &str) -> Result<f64, BenchError> {
        self.port.send(line.as_bytes());
        stage.turn_until(self.cell, is_idle)?;
        match self.port.receive() {
            Some((Stream::Output, bytes)) => number(&String::from_utf8_lossy(&bytes)),
            _ => Err(BenchError::Astray),
        }
    }
}

/// A process that answers lines; ended when dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Result<Process, BenchError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(BenchError::host("start the small program"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        match (input, output) {
            (Some(input), Some(output)) => Ok(Process { child, input, output }),
            _ => Err(BenchError::Astray),
        }
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(BenchError::host("read what the small program says"))?;
        Ok(line)
    }

    /// Sends a line, and returns the number that the answer is.
    pub(crate) fn ask(&mut self, line: &str) -> Result<f64, BenchError> {
        self.input.write_all(line.as_bytes()).map_err(BenchError::host("write to the small program"))?;
        number(&self.line()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number that an answer is.
pub(crate) fn number(line: &str) -> Result<f64, BenchError> {
    line.trim().parse().map_err(|_| BenchError::Astray)
}
