// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs tests, or any program, on KVM with emulated *hardware* virtualisation: SVM by QEMU, VMX by Bochs.
//!
//! The machines on which this project is developed have neither, and correct code on one kind of KVM can be wrong on
//! another. The emulation checks correctness only: its times mean nothing. The emulator boots Debian's kernel with a root
//! in memory ([`initrd`]), whose init runs the programs and reports on the serial line.

mod boot_image;
mod console;
mod emulator;
mod initrd;
mod kernel;
mod plan;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs};

use crate::tally::{OutputParser, Tally};
use console::TimeLimits;
use emulator::Emulator;
use initrd::{InitrdRoot, MARK, Step, quote};
use kernel::Kernel;
use plan::{Plan, Settings};

/// A kind of hardware virtualisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// AMD's, with nested paging, emulated by QEMU; boots in seconds.
    Svm,
    /// Intel's, with EPT and VPID, emulated by Bochs; boots in half a minute.
    Vmx,
}

impl Kind {
    /// Its name on the command line and in `hardware.toml`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Svm => "svm",
            Kind::Vmx => "vmx",
        }
    }

    /// The kernel modules that KVM needs there, in loading order.
    fn modules(self) -> &'static [&'static str] {
        match self {
            Kind::Svm => &["irqbypass", "ccp", "kvm", "kvm-amd"],
            Kind::Vmx => &["irqbypass", "kvm", "kvm-intel"],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The options of `cargo xtask hardware`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Which virtualisation.
    pub(crate) kind: Kind,
    /// Runs the tests that hardware.toml leaves out of the ordinary run, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// Runs the tests whose name contains NAME, whatever hardware.toml says.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "file"])]
    pub(crate) filter: Option<String>,
    /// Memory of the emulated machine in MiB.
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u32>,
    /// Seconds after which the machine is killed.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit: Option<u64>,
    /// Puts these programs, with their libraries, under / and runs COMMAND instead of tests.
    #[arg(long, value_name = "PROGRAM", num_args = 1.., requires = "command")]
    pub(crate) file: Vec<PathBuf>,
    /// A command line for busybox's shell.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl Options {
    /// The ordinary run of one kind, as in `cargo xtask test`.
    pub(crate) fn ordinary(kind: Kind, all: bool) -> Options {
        Options { kind, all, filter: None, memory: None, limit: None, file: Vec::new(), command: Vec::new() }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct HardwareReport {
    /// The counts.
    pub(crate) tally: Tally,
    /// Descriptions of the tests that did not run, with reasons.
    pub(crate) left_out: Vec<String>,
}

/// Ensures that the kernel of the emulated machines is in the cache.
///
/// # Errors
/// If it cannot be downloaded.
pub(crate) fn fetch_kernel() -> Result<()> {
    Kernel::find_or_download().map(|_| ())
}

/// Runs the selected tests or command. A failing test or command is counted in the report.
///
/// # Errors
/// If the programs do not build, or the machine does not finish.
pub(crate) fn run(options: &Options) -> Result<HardwareReport> {
    let kind = options.kind;
    let settings = Settings::read(kind)?;
    let kernel = Kernel::find_or_download()?;
    let work = tempfile::Builder::new().prefix("pando-hardware-").tempdir()?;
    let root = InitrdRoot::create(work.path().join("root"), kind, &kernel)?;
    let mut left_out = Vec::new();
    let steps = if options.command.is_empty() {
        let plan = plan::plan(&settings, &plan::build()?, options.all, options.filter.as_deref())?;
        left_out.extend(omissions(kind, &plan));
        add_tests(&root, &plan)?
    } else {
        for file in &options.file {
            let name = file.file_name().with_context(|| format!("{} is not a program", file.display()))?;
            root.add(file, &name.to_string_lossy())?;
        }
        vec![Step { name: "command".into(), command: options.command.join(" ") }]
    };
    let initrd = work.path().join("initrd");
    root.pack(kind, &steps, &initrd)?;
    let of_table = if options.all || options.filter.is_some() { settings.limit_of_all_seconds } else { settings.limit_seconds };
    let limit = Duration::from_secs(options.limit.unwrap_or(of_table));
    let memory_mib = options.memory.unwrap_or(settings.memory_mib);
    let image = boot_image(&kernel, work.path())?;
    let emulator = Emulator { kind, cpus: settings.cpus, memory_mib, image: &image, initrd: &initrd, work: work.path() };
    println!("{kind}: booting a machine of {} CPUs and {memory_mib} MiB", settings.cpus);
    let mut reader = ConsoleReader::new(kind, options.command.is_empty());
    let limits = TimeLimits { limit, quiet: Duration::from_secs(settings.quiet_seconds) };
    let outcome = console::follow(emulator.start()?, &emulator.serial(), limits, |line| reader.take_line(line));
    let place = reader.step.as_ref().map_or("before its first program".into(), |step| format!("in {}", step.name));
    let place = format!("{place}; {} of {} programs had ended", reader.ended, steps.len());
    if let Err(error) = outcome {
        reader.listener.fail();
        emulator.log_tail().iter().for_each(|line| println!("{kind}: emulator: {line}"));
        println!("{kind}: {error:#} ({place})");
    }
    Ok(HardwareReport { tally: reader.listener.finish(), left_out })
}

/// Writes the boot image without compression, or leaves it compressed if it has another form, as other distributions' may have.
fn boot_image(kernel: &Kernel, work: &Path) -> Result<PathBuf> {
    let compressed = fs::read(kernel.image()).with_context(|| format!("reading {}", kernel.image().display()))?;
    let image = boot_image::without_compression(&compressed, work).unwrap_or_else(|error| {
        println!("{}: {error:#}; the emulated machine decompresses it, which takes minutes", kernel.image().display());
        compressed
    });
    let file = work.join("vmlinuz");
    fs::write(&file, image).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

fn omissions(kind: Kind, plan: &Plan) -> Vec<String> {
    let mut left_out = Vec::new();
    if plan.left_to_all > 0 {
        left_out.push(format!("{kind}: {} tests that only `cargo xtask hardware {kind} --all` runs", plan.left_to_all));
    }
    if plan.skipped > 0 {
        left_out.push(format!("{kind}: {} tests that hardware.toml skips", plan.skipped));
    }
    left_out
}

fn add_tests(root: &InitrdRoot, plan: &Plan) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for run in &plan.runs {
        let path = format!("tests/{}", run.name.replace('/', "-"));
        root.add_stripped(&run.file, &path, "--strip-all")?;
        let words: Vec<String> = [format!("/{path}")].iter().chain(&run.arguments).map(|word| quote(word)).collect();
        println!("{} with {} tests", run.name, run.tests);
        steps.push(Step { name: run.name.clone(), command: words.join(" ") });
    }
    Ok(steps)
}

/// The program that is running in the machine.
#[derive(Debug)]
struct RunningProgram {
    name: String,
    /// The number of test programs with a result, and of failed tests, when it started.
    programs_before: usize,
    failed_before: usize,
}

/// Interprets the machine's console output.
#[derive(Debug)]
struct ConsoleReader {
    kind: Kind,
    are_tests: bool,
    listener: OutputParser,
    step: Option<RunningProgram>,
    ended: usize,
    /// Empty lines held back: init prints one before its report, which is not shown.
    empty_lines: usize,
}

impl ConsoleReader {
    fn new(kind: Kind, are_tests: bool) -> ConsoleReader {
        ConsoleReader { kind, are_tests, listener: OutputParser::default(), step: None, ended: 0, empty_lines: 0 }
    }

    /// Handles a line; `false` once the machine is done.
    fn take_line(&mut self, line: &str) -> Result<bool> {
        if let Some(report) = line.strip_prefix(MARK) {
            return self.report(report);
        }
        ensure!(!line.contains("Kernel panic"), "the machine's own kernel panicked: {line}");
        if line.is_empty() {
            self.empty_lines += 1;
        } else if self.step.is_some() {
            for line in std::iter::repeat_n("", self.empty_lines).chain([line]) {
                if !self.are_tests || self.listener.take_line(line) {
                    // The other machine may be printing, too.
                    println!("{}: {line}", self.kind);
                }
            }
            self.empty_lines = 0;
        }
        Ok(true)
    }

    fn report(&mut self, report: &str) -> Result<bool> {
        let kind = self.kind;
        let (word, rest) = report.split_once(' ').unwrap_or((report, ""));
        self.empty_lines = 0;
        match word {
            "ready" => println!("{kind}: booted"),
            "run" => {
                println!("{kind}: {rest}");
                let (programs_before, failed_before) = (self.listener.programs(), self.listener.failed());
                self.step = Some(RunningProgram { name: rest.into(), programs_before, failed_before });
            }
            "end" => self.end(rest.rsplit(' ').next().unwrap_or_default()),
            "kernel" => println!("{kind}: kernel: {rest}"),
            "broken" => bail!("{rest}"),
            "done" => return Ok(false),
            _ => bail!("init sent the unknown report `{report}`"),
        }
        Ok(true)
    }

    /// Ends a program. One that fails without naming a failed test, or succeeds without a result, counts as a failure of its own.
    fn end(&mut self, status: &str) {
        let Some(step) = self.step.take() else { return };
        self.ended += 1;
        let is_explained = self.listener.failed() > step.failed_before;
        let has_result = self.listener.programs() > step.programs_before || !self.are_tests;
        if status != "0" || !has_result {
            println!("{}: {} ended with status {status}", self.kind, step.name);
            if !is_explained {
                self.listener.fail();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[&str]) -> (Result<bool>, Tally) {
        let mut reader = ConsoleReader::new(Kind::Svm, true);
        let mut last = Ok(true);
        for line in lines {
            last = reader.take_line(line);
            if last.is_err() {
                break;
            }
        }
        (last, reader.listener.finish())
    }

    const OK: &str = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
    const FAILED: &str = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";

    #[test]
    fn results_are_counted_and_done_is_the_end() {
        let (last, tally) = taken(&["[noise]", "@pando ready", "@pando run a", OK, "", "@pando end a 0", "@pando done"]);
        assert!(!last.expect("no error"));
        assert_eq!((tally.passed, tally.failed), (3, 0));
    }

    #[test]
    fn failures_count_once() {
        let (_, tally) = taken(&["@pando run a", FAILED, "@pando end a 101"]);
        assert_eq!((tally.passed, tally.failed), (1, 2));
    }

    #[test]
    fn a_crash_or_a_missing_result_is_a_failure() {
        assert_eq!(taken(&["@pando run a", "@pando end a 139"]).1.failed, 1);
        assert_eq!(taken(&["@pando run a", "@pando end a 0"]).1.failed, 1);
        assert_eq!(taken(&["@pando run a", OK, "@pando end a 139"]).1.failed, 1);
    }

    #[test]
    fn a_broken_machine_is_an_error() {
        assert!(taken(&["@pando broken /dev/kvm is missing"]).0.expect_err("broken").to_string().contains("/dev/kvm"));
        assert!(taken(&["@pando run a", "[ 1.0] Kernel panic - not syncing"]).0.is_err());
    }
}
