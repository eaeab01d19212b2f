// SPDX-License-Identifier: MIT OR Apache-2.0
//! A town: cells with one program on one network, in a kernel with one vCPU that runs on a thread of its own.

use crate::BenchError;
use crate::program::{Compiled, number, program};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{Config, ConsolePort, Kernel, NetworkConfig, NetworkId, Stream};
use pando_launch::{Program, Root, Template};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Machine, PageCount};
use std::sync::Arc;

/// A kernel with a network, and a program that cells are made from.
pub(super) struct Town {
    pub(super) kernel: Kernel,
    pub(super) network: NetworkId,
    root: Root,
}

/// A cell of a town that has started.
pub(super) struct Resident {
    pub(super) addresses: Addresses,
    port: Arc<ConsolePort>,
}

impl Town {
    /// Where nobody lives yet.
    pub(super) fn new(arena: PageCount, compiled: &Compiled, config: Config) -> Result<Town, BenchError> {
        let machine = Kvm::new(KvmConfig { arena, vcpus: 1, omit: Omit::NOTHING })?;
        let kernel = Kernel::new(machine as Arc<dyn Machine>, config);
        kernel.start_vcpus()?;
        let template = Template::boot(&kernel)?;
        kernel.wait_frozen(template.cell())?;
        let root = compiled.root(&kernel, template)?;
        let network = kernel.add_network(NetworkConfig::default())?;
        Ok(Town { kernel, network, root })
    }

    /// Starts the program in a cell of its own, with its words and so much memory.
    pub(super) fn settle(&self, words: &[&str], memory: PageCount) -> Result<Resident, BenchError> {
        let id = Program { memory, ..program(words) }.prepare(&self.kernel, &self.root)?;
        let addresses = self.kernel.plug(id, self.network, Link::default())?;
        let port = self.kernel.console(id)?;
        self.kernel.start(id)?;
        Ok(Resident { addresses, port })
    }
}

impl Resident {
    /// Sends it a line, and returns the number that the answer is.
    pub(super) fn ask(&self, line: &str) -> Result<f64, BenchError> {
        self.port.send(line.as_bytes());
        self.answer()
    }

    /// The next number that it says.
    pub(super) fn answer(&self) -> Result<f64, BenchError> {
        match self.port.receive() {
            Some((Stream::Output, bytes)) => number(&String::from_utf8_lossy(&bytes)),
            Some((Stream::Errors, bytes)) => Err(BenchError::Failed(String::from_utf8_lossy(&bytes).into())),
            Some((Stream::Notes, _)) | None => Err(BenchError::Astray),
        }
    }
}
