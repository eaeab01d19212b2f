// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a clone, and the descriptions of cells for front ends.

use super::restart_policy::RestartPolicy;
use super::virtual_hosts::CellPort;
use crate::limits::Limits;
use crate::template::TemplateName;
use crate::view::{User, ViewSpec};
use pando_gateway::{Publication, Rule, VirtualHosts};
use pando_kernel::network::address::Addresses;
use pando_kernel::{End, Stream};
use pando_launch::{CellPhase, Descendant};
use pando_machine::PageCount;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The source of a cell.
#[derive(Clone, Debug)]
pub enum CellSource {
    /// A stored template; a built-in one is created if it does not exist.
    Template(TemplateName),
    /// A program, which starts in this view.
    Program(Box<ViewSpec>),
}

/// A cell to create.
#[derive(Clone, Debug)]
pub struct ManagedCellSpec {
    /// The source.
    pub source: CellSource,
    /// The clone's arguments, or the program and its arguments.
    pub arguments: Vec<String>,
    /// Environment variables of a clone, each as NAME=VALUE. Those of a program are in its view.
    pub environment: Vec<Vec<u8>>,
    /// Its limits.
    pub limits: Limits,
    /// The time without use after which it is terminated.
    pub idle_timeout: Option<Duration>,
    /// Labels, by which clients find it.
    pub labels: BTreeMap<String, String>,
    /// How many nested cells it may have at a time.
    pub nest: u32,
    /// Its name, which no living cell has; `None`: the template's name and the cell's number.
    pub name: Option<String>,
    /// Its host name; `None`: its name.
    pub host_name: Option<String>,
    /// The named network to which it is connected.
    pub network: Option<String>,
    /// The external destinations that it may reach. If there are any, it has a network of its own.
    pub allow: Vec<Rule>,
    /// Its published ports. If ports of the host lead to it, it has a network of its own. If it is reached by name, it has no other
    /// network.
    pub publish: Vec<Publication>,
    /// The start of its standard input.
    pub input: Vec<u8>,
    /// No input follows `input`.
    pub input_ends: bool,
    /// A client reads all its output; the cell waits for the client.
    pub is_read_completely: bool,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// How often it has been started again.
    pub restarts: u32,
}

/// Why a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its program exited.
    Exited,
    /// A signal ended its program.
    Signalled,
    /// Its time limit expired.
    TimedOut,
    /// It exceeded its memory limit.
    MemoryLimit,
    /// It exceeded its output limit.
    OutputLimit,
    /// The logged output of all cells exceeded the manager's memory for it.
    LogLimit,
    /// A client terminated it.
    Killed,
    /// It did something that is forbidden in a cell.
    Crashed,
    /// The machine was out of memory, and it used the most memory.
    MachineFull,
    /// It was frozen: a template was created from it.
    Frozen,
    /// The host failed.
    HostFailure,
}

/// How a cell ended, and what it used.
#[derive(Clone, Debug, PartialEq)]
pub struct CellOutcome {
    /// Why it ended.
    pub reason: EndReason,
    /// The exit status that a shell would show.
    pub exit_status: u8,
    /// The same as text.
    pub message: String,
    /// The time from its start to its end.
    pub time: Duration,
    /// CPU time.
    pub cpu: Duration,
    /// Peak size of its private memory.
    pub peak: PageCount,
    /// VM exits.
    pub exits: u64,
}

/// The state of a cell.
#[derive(Clone, Debug)]
pub struct CellSummary {
    /// Its number, never reused.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its host name.
    pub host_name: String,
    /// Its source.
    pub source: CellSource,
    /// The ID of the container image that it sees.
    pub image: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The arguments of a clone, or the program and its arguments.
    pub arguments: Vec<String>,
    /// Its addresses, if it has a network.
    pub addresses: Option<Addresses>,
    /// Its published ports.
    pub ports: Vec<CellPort>,
    /// When it was started.
    pub started: SystemTime,
    /// Current size of its private memory.
    pub memory: PageCount,
    /// CPU time so far.
    pub cpu: Duration,
    /// VM exits so far; `None`: unknown.
    pub exits: Option<u64>,
    /// Whether it is queued, active or asleep; without meaning after its end.
    pub phase: CellPhase,
    /// How often it has been started again under its name.
    pub restarts: u32,
    /// How it ended; `None` while it runs.
    pub outcome: Option<CellOutcome>,
    /// Its nested cells with theirs, parents before their children, if they were asked for.
    pub descendants: Vec<Descendant>,
}

/// The configuration of a cell's program.
#[derive(Clone, Debug, Default)]
pub struct ProgramConfiguration {
    /// Its environment.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Its user.
    pub user: User,
}

/// A signal for a cell's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// Terminates the cell; the program cannot catch it.
    Kill,
    /// Another signal, by Linux's number.
    Other(u8),
}

impl CellSignal {
    /// Whether it asks a program to end. Others ask it to reload, to continue, or to do what it has chosen for them.
    pub(super) fn ends(self) -> bool {
        let others = [Signal::HUP, Signal::USR1, Signal::USR2, Signal::CONT, Signal::WINCH];
        !matches!(self, CellSignal::Other(number) if others.iter().any(|other| other.as_raw() == i32::from(number)))
    }
}

/// A piece of a cell's output, or its end.
#[derive(Clone, Debug)]
pub enum OutputPiece {
    /// Output.
    Bytes {
        /// The position of its first byte in all output of the cell.
        position: u64,
        /// The stream.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The cell has ended.
    Ended(CellOutcome),
}

/// The state of a manager.
#[derive(Clone, Debug)]
pub struct ManagerSummary {
    /// Running cells.
    pub running: usize,
    /// The memory that its cells may use together, including what they share.
    pub memory: PageCount,
    /// The part of it that is free.
    pub free: PageCount,
    /// Cells that can reach external networks at a time.
    pub gateways: usize,
    /// The address at which clients choose their cell by name.
    pub listening: Option<VirtualHosts>,
}

impl From<&End> for EndReason {
    fn from(end: &End) -> EndReason {
        match end {
            End::Exited { .. } => EndReason::Exited,
            End::Signalled { .. } => EndReason::Signalled,
            End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } => EndReason::Crashed,
            End::Quota => EndReason::MemoryLimit,
            End::MachineFull => EndReason::MachineFull,
            End::Killed => EndReason::Killed,
            End::TimedOut => EndReason::TimedOut,
            End::OutputLimit => EndReason::OutputLimit,
            End::Host(_) => EndReason::HostFailure,
        }
    }
}
