// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager's plain values as types of the protocol.

use super::{CellState, DescendantState, Reason};
use crate::api;
use jiff::Timestamp;
use pando_abi::holding::ChildState;
use pando_kernel::network::address::Addresses;
use pando_launch::{CellPhase, Descendant};
use pando_manager::cells::{
    CellOutcome, CellPort, CellSource, CellSummary, EndReason, ManagedCell, Manager, ManagerSummary, OutputPiece, TemplateSummary,
};

/// The message of a cell that was terminated because there is no memory for its output.
const LOG_LIMIT: &str = "end or remove some cells, or start the service with more memory (--memory)";

impl From<EndReason> for Reason {
    fn from(reason: EndReason) -> Reason {
        match reason {
            EndReason::Exited => Reason::Exited,
            EndReason::Signalled => Reason::Signalled,
            EndReason::TimedOut => Reason::TimedOut,
            EndReason::MemoryLimit => Reason::MemoryLimit,
            EndReason::OutputLimit | EndReason::LogLimit => Reason::OutputLimit,
            EndReason::Killed => Reason::Killed,
            EndReason::Crashed => Reason::Crashed,
            EndReason::MachineFull => Reason::MachineFull,
            EndReason::Frozen => Reason::Frozen,
            EndReason::HostFailure => Reason::HostFailure,
        }
    }
}

impl From<CellOutcome> for api::Outcome {
    fn from(outcome: CellOutcome) -> api::Outcome {
        let CellOutcome { reason, exit_status, message, time, cpu, peak, exits } = outcome;
        api::Outcome {
            reason: reason.into(),
            exit_code: exit_status,
            message: if reason == EndReason::LogLimit { format!("{message}: {LOG_LIMIT}") } else { message },
            seconds: time.as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            peak_bytes: peak.bytes(),
            exits,
        }
    }
}

impl From<CellSummary> for api::Cell {
    fn from(cell: CellSummary) -> api::Cell {
        let CellSummary {
            id,
            name,
            host_name,
            labels,
            source,
            image,
            arguments,
            addresses,
            ports,
            started,
            memory,
            cpu,
            exits,
            phase,
            restarts,
            outcome,
            descendants,
        } = cell;
        let image_id = image;
        let (template, image) = match source {
            CellSource::Template(template) => (Some(template.to_string()), None),
            CellSource::Program(view) => (None, view.image.map(|image| image.name)),
        };
        api::Cell {
            id,
            name,
            host_name,
            labels,
            template,
            image,
            image_id,
            arguments,
            addresses: addresses.map(Into::into),
            ports: ports.into_iter().map(Into::into).collect(),
            // A clock of the host that is far from the present is no reason to fail.
            started: Timestamp::try_from(started).unwrap_or_default(),
            state: state(outcome.is_some(), phase),
            memory_bytes: memory.bytes(),
            cpu_seconds: cpu.as_secs_f64(),
            exits,
            restarts,
            outcome: outcome.map(Into::into),
            descendants: descendants.into_iter().map(Into::into).collect(),
        }
    }
}

fn state(has_ended: bool, phase: CellPhase) -> CellState {
    match (has_ended, phase) {
        (true, _) => CellState::Ended,
        (false, CellPhase::Queued) => CellState::Queued,
        (false, CellPhase::Active) => CellState::Running,
        (false, CellPhase::Asleep) => CellState::Asleep,
    }
}

impl CellState {
    /// The state of a cell.
    pub fn of(cell: &CellSummary) -> CellState {
        state(cell.outcome.is_some(), cell.phase)
    }
}

impl std::fmt::Display for CellState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            CellState::Running => "running",
            CellState::Queued => "queued",
            CellState::Asleep => "asleep",
            CellState::Ended => "ended",
        })
    }
}

impl From<Descendant> for api::Descendant {
    fn from(Descendant { depth, state, usage, name }: Descendant) -> api::Descendant {
        let state = match state {
            ChildState::New => DescendantState::New,
            ChildState::Started { .. } => DescendantState::Running,
            ChildState::Frozen => DescendantState::Frozen,
            ChildState::Halted => DescendantState::Halted,
            _ => DescendantState::Ended,
        };
        api::Descendant { depth, name, state, memory_bytes: usage.memory.bytes(), cpu_seconds: usage.cpu.as_secs_f64() }
    }
}

impl From<CellPort> for api::PublishedPort {
    fn from(CellPort { host, cell, protocol }: CellPort) -> api::PublishedPort {
        api::PublishedPort { host, cell, protocol: protocol.to_string() }
    }
}

impl From<Addresses> for api::Addresses {
    fn from(Addresses { mac, v4, v6, .. }: Addresses) -> api::Addresses {
        api::Addresses { mac: mac.to_string(), ipv4: v4.to_string(), ipv6: v6.to_string() }
    }
}

impl From<OutputPiece> for api::Piece {
    fn from(piece: OutputPiece) -> api::Piece {
        match piece {
            OutputPiece::Bytes { position, stream, bytes } => {
                let next = position + bytes.len() as u64;
                api::Piece::Output { number: position, next, dropped_bytes: 0, stream: stream.into(), data: api::TextOrBytes::of(bytes) }
            }
            OutputPiece::Ended(outcome) => api::Piece::Ended { outcome: outcome.into() },
        }
    }
}

impl From<TemplateSummary> for api::Template {
    fn from(summary: TemplateSummary) -> api::Template {
        let TemplateSummary { name, manifest, variants, file_bytes, is_forced } = summary;
        api::Template {
            name: name.to_string(),
            memory_bytes: manifest.memory().bytes(),
            variants,
            file_bytes,
            created: api::timestamp(manifest.created),
            forced: is_forced,
            arguments: manifest.arguments,
        }
    }
}

impl From<&Manager> for api::Server {
    fn from(manager: &Manager) -> api::Server {
        let ManagerSummary { running, memory, free, gateways, listening } = manager.summary();
        api::Server {
            version: env!("CARGO_PKG_VERSION").into(),
            process: std::process::id(),
            templates: manager.store().directory().display().to_string(),
            running,
            memory_bytes: memory.bytes(),
            gateways,
            control: None,
            listen: listening.map(|hosts| hosts.address.to_string()),
            free_bytes: free.bytes(),
        }
    }
}

impl api::RunResult {
    /// The result of a cell that was run to its end, with its kept output, its error output and its notes.
    pub fn new(outcome: CellOutcome, cell: &ManagedCell) -> api::RunResult {
        let [output, errors, notes] = cell.kept_output();
        api::RunResult {
            outcome: outcome.into(),
            stdout: api::TextOrBytes::of(output),
            stderr: api::TextOrBytes::of(errors),
            notes: String::from_utf8_lossy(&notes).lines().map(Into::into).collect(),
            dropped_bytes: cell.dropped_output(),
        }
    }
}
