// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando doctor`: checks the host and reports the findings.

use crate::failure::Failure;
use anstyle::{AnsiColor, Style};
use clap::Args;
use pando_confine::Enforcement;
use pando_machine::kvm::{Kvm, KvmConfig, Omit, Probe, Virtualization};
use pando_machine::{Context, Exit, FrameId, Machine, Nanos, PageCount, Root};
use pando_manager::host;
use serde_json::json;
use std::io::Write;

/// Options of `pando doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The effect of a finding on cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    /// As it should be.
    Good,
    /// It works, but slower or with restrictions.
    Fair,
    /// No cell can run.
    Bad,
}

struct Finding {
    what: &'static str,
    grade: Grade,
    found: String,
}

/// Prints the findings. Returns 1 if no cell can run.
pub(crate) fn doctor(options: &DoctorOptions) -> Result<u8, Failure> {
    let findings = examine();
    let has_failed_check = findings.iter().any(|finding| finding.grade == Grade::Bad);
    let mut output = anstream::stdout();
    if options.json {
        let list: Vec<_> =
            findings.iter().map(|finding| json!({ "what": finding.what, "grade": word(finding.grade), "found": finding.found })).collect();
        writeln!(output, "{}", json!({ "runs": !has_failed_check, "findings": list }))?;
    } else {
        for finding in &findings {
            let style = style(finding.grade);
            writeln!(output, "{style}{:>4}{style:#}  {:<16}{}", word(finding.grade), finding.what, finding.found)?;
        }
        writeln!(output, "\n{}", if has_failed_check { "Pando cannot run cells on this host." } else { "Pando runs on this host." })?;
    }
    Ok(u8::from(has_failed_check))
}

/// The style of a grade on a terminal.
fn style(grade: Grade) -> Style {
    let colour = match grade {
        Grade::Good => AnsiColor::Green,
        Grade::Fair => AnsiColor::Yellow,
        Grade::Bad => AnsiColor::Red,
    };
    Style::new().fg_color(Some(colour.into()))
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "ok",
        Grade::Fair => "fair",
        Grade::Bad => "BAD",
    }
}

fn examine() -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |what, grade, found: String| findings.push(Finding { what, grade, found });
    match Probe::host() {
        Err(error) => note("KVM", Grade::Bad, error.to_string()),
        Ok(probe) => {
            let (grade, text) = match probe.virtualization {
                Virtualization::Vmx => (Grade::Good, "hardware virtualisation (Intel VMX)"),
                Virtualization::Svm => (Grade::Good, "hardware virtualisation (AMD SVM)"),
                Virtualization::Software => {
                    (Grade::Fair, "this host is a VM whose KVM works in software: every exit costs tens of microseconds")
                }
            };
            note("KVM", grade, text.into());
            let (grade, text) = if probe.smep {
                (Grade::Good, "no code of a cell can run in privileged mode (SMEP)")
            } else {
                (
                    Grade::Bad,
                    "this CPU, or its KVM, lacks SMEP, which keeps code of cells from privileged mode: use a newer CPU, or a host that offers it",
                )
            };
            note("SMEP", grade, text.into());
            let (grade, text) = if probe.cpuid_faulting {
                (Grade::Good, "`cpuid` faults in cells, so each sees exactly the features it was promised")
            } else {
                (Grade::Fair, "`cpuid` cannot be made to fault: KVM answers it, with an exit each time")
            };
            note("CPUID", grade, text.into());
            let split = if probe.bus_lock_exits { "slow down only the cell that makes them" } else { "cannot be noticed on this CPU" };
            note("split locks", if probe.bus_lock_exits { Grade::Good } else { Grade::Fair }, split.into());
            note("vCPUs", Grade::Good, format!("at most {} in a VM; TSC at {} MHz", probe.max_vcpus, probe.tsc_khz / 1000));
            match test_vcpu() {
                Ok(()) => note("first steps", Grade::Good, "a virtual CPU ran an instruction and came back".into()),
                Err(problem) => note("first steps", Grade::Bad, problem),
            }
        }
    }
    let available = host::memory_info("MemAvailable").unwrap_or_default();
    let grade = if available > PageCount(1 << 16) { Grade::Good } else { Grade::Fair };
    note("memory", grade, format!("{} available of {}", available, host::memory()));
    let (grade, text) = huge_pages();
    note("huge pages", grade, text);
    let (grade, text) = confinement();
    note("confinement", grade, text.into());
    // Last, because this process cannot return from the new namespaces.
    let (grade, text) = namespaces();
    note("namespaces", grade, text);
    findings
}

/// Runs one instruction on a machine of the smallest size.
fn test_vcpu() -> Result<(), String> {
    let machine = Kvm::new(KvmConfig { arena: PageCount(1024), vcpus: 1, omit: Omit::NOTHING }).map_err(|error| error.to_string())?;
    let mut vcpu = machine.take_vcpu(0).map_err(|error| error.to_string())?;
    let root = FrameId(512);
    machine.arena().store(root, pando_machine::EntryIndex::new(pando_machine::SUPERVISOR_SLOT), machine.supervisor_entry());
    // Nothing is mapped at the first instruction, so a page fault is expected.
    let exit = vcpu.run(Root { table: root, stamp: 0 }, &mut Context::at(0x1000), Nanos::NEVER);
    match exit {
        Exit::Exception(exception) if exception.vector == pando_machine::Exception::PAGE_FAULT => Ok(()),
        other => Err(format!("a virtual CPU returned with an unexpected exit: {other:?}")),
    }
}

fn confinement() -> (Grade, &'static str) {
    match pando_confine::supported_enforcement() {
        Enforcement::Limited => (Grade::Good, "the process of a cell reaches no files but those that the cell is shown (Landlock)"),
        Enforcement::Partly => {
            (Grade::Fair, "this host's Linux has an older Landlock: files are kept from the process of a cell, not all else")
        }
        Enforcement::Unlimited => (
            Grade::Fair,
            "this host's Linux has no Landlock, or has it switched off: the process of a cell can open your files, if the kernel has a vulnerability",
        ),
    }
}

fn namespaces() -> (Grade, String) {
    match pando_machine::unshare_namespaces() {
        Ok(()) => (Grade::Good, "`pando serve` has mounts, IPC and a network of its own".into()),
        Err(error) => {
            let why = host::plain(&error);
            (
                Grade::Fair,
                format!(
                    "`pando serve` shares those of the host ({why}): the systemd unit dist/systemd/system/pando@.service gives it its own"
                ),
            )
        }
    }
}

fn huge_pages() -> (Grade, String) {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some(("never", _)) | None => {
            (Grade::Fair, "switched off: memory is slower to touch; `echo madvise` into /sys/kernel/mm/transparent_hugepage/enabled".into())
        }
        Some((mode, _)) => (Grade::Good, format!("transparent ones are on ({mode})")),
    }
}
