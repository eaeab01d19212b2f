// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networked cells: cells with one program on one network, in a kernel with one vCPU on a thread of its own.

use crate::BenchError;
use crate::program::{CompiledProgram, number, program};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{Config, ConsolePort, Kernel, NetworkConfig, NetworkId, Stream};
use pando_launch::{Program, Root, Template};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Machine, PageCount};
use std::sync::Arc;

/// A kernel with a network, and the program of its cells.
pub(super) struct NetworkedCells {
    pub(super) kernel: Kernel,
    pub(super) network: NetworkId,
    root: Root,
}

/// A started cell on the network.
pub(super) struct StartedCell {
    pub(super) addresses: Addresses,
    port: Arc<ConsolePort>,
}

impl NetworkedCells {
    /// Creates the network without cells.
    pub(super) fn new(arena: PageCount, compiled: &CompiledProgram, config: Config) -> Result<NetworkedCells, BenchError> {
        let machine = Kvm::new(KvmConfig { arena, vcpus: 1, omit: Omit::NOTHING })?;
        let kernel = Kernel::new(machine as Arc<dyn Machine>, config);
        kernel.start_vcpus()?;
        let template = Template::boot(&kernel)?;
        kernel.wait_frozen(template.cell())?;
        let root = compiled.root(&kernel, template)?;
        let network = kernel.add_network(NetworkConfig::default())?;
        Ok(NetworkedCells { kernel, network, root })
    }

    /// Starts the program in a cell of its own, with its arguments and this much memory.
    pub(super) fn start_cell(&self, arguments: &[&str], memory: PageCount) -> Result<StartedCell, BenchError> {
        let id = Program { memory, ..program(arguments) }.prepare(&self.kernel, &self.root)?;
        let addresses = self.kernel.plug(id, self.network, Link::default())?;
        let port = self.kernel.console(id)?;
        self.kernel.start(id)?;
        Ok(StartedCell { addresses, port })
    }
}

impl StartedCell {
    /// Sends it a line, and parses the answer as a number.
    pub(super) fn ask(&self, line: &str) -> Result<f64, BenchError> {
        self.port.send(line.as_bytes());
        self.answer()
    }

    /// Parses its next output as a number.
    pub(super) fn answer(&self) -> Result<f64, BenchError> {
        match self.port.receive() {
            Some((Stream::Stdout, bytes)) => number(&String::from_utf8_lossy(&bytes)),
            Some((Stream::Stderr, bytes)) => Err(BenchError::Failed(String::from_utf8_lossy(&bytes).into())),
            Some((Stream::Notes, _)) | None => Err(BenchError::Failed("a cell waits without output".into())),
        }
    }
}
