// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small static C programs, compiled here, that answer lines: in a cell that the measuring thread drives, and as processes.

use crate::BenchError;
use crate::harness::Harness;
use pando_image::{Builder, HostFile};
use pando_kernel::RunState;
use pando_kernel::{CellId, ConsolePort, Kernel, Stream};
use pando_launch::{LaunchError, Program, Root, Template, Volume};
use pando_machine::PageCount;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// The program's path in cells.
const PATH: &[u8] = b"/program";
/// The quota of a cell with it.
pub(crate) const QUOTA: PageCount = PageCount(4096);

/// A compiled program; its file is removed when this is dropped.
pub(crate) struct CompiledProgram {
    file: PathBuf,
    _directory: TempDir,
}

impl CompiledProgram {
    /// Compiles a program with the host's C compiler.
    pub(crate) fn new(source: &str) -> Result<CompiledProgram, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
        let [text, file] = ["program.c", "program"].map(|name| directory.path().join(name));
        std::fs::write(&text, source).map_err(BenchError::host("write a C program"))?;
        let output = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&file).arg(&text).output();
        let output = output.map_err(BenchError::host("start the C compiler `cc`"))?;
        if output.status.success() {
            return Ok(CompiledProgram { file, _directory: directory });
        }
        Err(BenchError::Compiler(String::from_utf8_lossy(&output.stderr).trim().into()))
    }

    /// Starts the program in a cell and runs it until it waits for input.
    pub(crate) fn in_cell(&self, harness: &mut Harness) -> Result<CellId, BenchError> {
        let root = self.booted(harness)?;
        let cell = program(&[]).prepare(&harness.kernel, &root)?;
        harness.kernel.start(cell)?;
        harness.turn_until(cell, is_idle)?;
        Ok(cell)
    }

    /// Creates a root with only the program, in a kernel where no libOS has booted yet.
    pub(crate) fn booted(&self, harness: &mut Harness) -> Result<Root, BenchError> {
        boot(harness, vec![self.volume()?])
    }

    /// Creates a root with only the program, over a template.
    pub(crate) fn root(&self, kernel: &Kernel, template: Template) -> Result<Root, BenchError> {
        Ok(Root::new(kernel, &template, vec![self.volume()?])?)
    }

    /// The volume of such a root.
    pub(crate) fn volume(&self) -> Result<Volume, BenchError> {
        let file = HostFile::new(&self.file).map_err(LaunchError::from)?;
        let mut files = Builder::new();
        files.file(PATH, file.attributes(), file).map_err(LaunchError::from)?;
        Ok(Volume::new("/", files.image().map_err(LaunchError::from)?))
    }

    /// Starts the program as a process.
    pub(crate) fn as_process(&self) -> Result<Process, BenchError> {
        Process::start(Command::new(&self.file))
    }

    /// The path of its file.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }
}

/// Creates a root with these volumes, in a kernel where no libOS has booted yet.
pub(crate) fn boot(harness: &mut Harness, volumes: Vec<Volume>) -> Result<Root, BenchError> {
    let template = Template::boot(&harness.kernel)?;
    harness.turn_until(template.cell(), |state| state == RunState::Frozen)?;
    Ok(Root::new(&harness.kernel, &template, volumes)?)
}

/// The program of such a root, with these arguments after its own name.
pub(crate) fn program(arguments: &[&str]) -> Program {
    Program {
        path: PATH.to_vec(),
        directory: b"/".to_vec(),
        arguments: std::iter::once(PATH.to_vec()).chain(arguments.iter().map(|argument| argument.as_bytes().to_vec())).collect(),
        memory: QUOTA,
        ..Program::default()
    }
}

/// Whether a cell is idle.
pub(crate) fn is_idle(state: RunState) -> bool {
    matches!(state, RunState::Idle { .. })
}

/// A program in a cell that answers lines.
pub(crate) struct LineServer {
    cell: CellId,
    port: Arc<ConsolePort>,
}

impl LineServer {
    /// Opens the console of a cell that waits for its first line; discards its output so far.
    pub(crate) fn new(harness: &Harness, cell: CellId) -> Result<LineServer, BenchError> {
        let port = harness.kernel.console(cell)?;
        port.receive();
        Ok(LineServer { cell, port })
    }

    /// Sends a line, and parses the answer as a number.
    pub(crate) fn ask(&self, harness: &mut Harness, line: &str) -> Result<f64, BenchError> {
        self.port.send(line.as_bytes());
        harness.turn_until(self.cell, is_idle)?;
        match self.port.receive() {
            Some((Stream::Stdout, bytes)) => number(&String::from_utf8_lossy(&bytes)),
            _ => Err(BenchError::Failed(format!("a cell waits without an answer to {line:?}"))),
        }
    }
}

/// A process that answers lines; terminated when dropped.
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
            _ => Err(BenchError::Failed("the small program has no pipes".into())),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its next output line.
    pub(crate) fn line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(BenchError::host("read the output of the small program"))?;
        Ok(line)
    }

    /// Sends a line, and parses the answer as a number.
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

/// Parses an answer as a number.
pub(crate) fn number(line: &str) -> Result<f64, BenchError> {
    line.trim().parse().map_err(|_| BenchError::Failed(format!("a program printed {line:?}, not a number")))
}
