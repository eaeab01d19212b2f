// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells with busybox on one network.

use crate::{common, peer};
use pando_kernel::RunState;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Config, ConsolePort, End, NetworkConfig, NetworkId};
use pando_launch::{Calls, Root};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::lab::{Lab, is_kvm_available};
use std::path::PathBuf;
use std::sync::Arc;

/// 1 GiB.
const ARENA: PageCount = PageCount(1 << 18);
/// The quota of a program: 128 MiB.
const QUOTA: PageCount = PageCount(1 << 15);
/// The names of busybox that scripts call.
const APPLETS: [&str; 11] = ["sh", "seq", "sha256sum", "sleep", "httpd", "wget", "mkdir", "nc", "head", "ping", "ping6"];

/// The size and content of a world.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Physical memory.
    pub arena: PageCount,
    pub network: NetworkConfig,
    /// Host files in the root of all cells.
    pub files: Vec<PathBuf>,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent { arena: ARENA, network: NetworkConfig::default(), files: Vec::new() }
    }
}

/// Cells on one network.
pub struct CellNetwork {
    pub lab: Lab,
    arena: PageCount,
    root: Root,
    pub network: NetworkId,
}

/// A program in a cell.
pub struct Running {
    pub id: CellId,
    pub addresses: Addresses,
    pub port: Arc<ConsolePort>,
}

impl CellNetwork {
    /// Creates a world without cells. `None`: this machine has no KVM.
    pub fn new() -> Option<CellNetwork> {
        CellNetwork::with(Extent::default())
    }

    /// Creates a world of this extent. `None`: this machine has no KVM.
    pub fn with(extent: Extent) -> Option<CellNetwork> {
        if !is_kvm_available() {
            return None;
        }
        let Extent { arena, network, files } = extent;
        let mut lab = Lab::kvm(arena, 1, Config::default(), Omit::NOTHING);
        let root = common::root(&mut lab, &APPLETS, &files);
        let network = lab.kernel.add_network(network).expect("there are few");
        Some(CellNetwork { lab, arena, root, network })
    }

    /// Creates a world with this network, whose cells have [`peer::program`]. `None`: this machine has no KVM, or no compiler.
    pub fn with_peer(network: NetworkConfig) -> Option<CellNetwork> {
        CellNetwork::with(Extent { network, files: vec![peer::program()?], ..Extent::default() })
    }

    /// Starts a script in a cell of its own, with a link of this kind.
    pub fn start(&mut self, script: &str, link: Link) -> Running {
        self.start_with(script, link, QUOTA)
    }

    /// Starts a script with this quota.
    pub fn start_with(&mut self, script: &str, link: Link, quota: PageCount) -> Running {
        let program = self.open(script, link, quota);
        program.port.close_input();
        program
    }

    /// Starts a script whose standard input stays open.
    fn open(&mut self, script: &str, link: Link, quota: PageCount) -> Running {
        let program = common::script(script, quota, Calls::default());
        let id = program.prepare(&self.lab.kernel, &self.root).expect("room for a cell");
        let addresses = self.lab.kernel.plug(id, self.network, link).expect("it does not run yet");
        let port = self.lab.kernel.console(id).expect("it has a console");
        self.lab.kernel.start(id).expect("it was not started before");
        Running { id, addresses, port }
    }

    /// Starts a server, and runs it until it waits.
    pub fn serve(&mut self, script: &str, link: Link) -> Running {
        self.serve_with(script, link, QUOTA)
    }

    /// Starts a server with this quota, and runs it until it waits.
    pub fn serve_with(&mut self, script: &str, link: Link, quota: PageCount) -> Running {
        let server = self.start_with(script, link, quota);
        self.rest(&server);
        server
    }

    /// Drives all cells until a program waits.
    fn rest(&mut self, program: &Running) {
        while !matches!(self.lab.kernel.inspect(program.id), Ok((RunState::Idle { .. }, ..))) {
            assert!(self.lab.turn(0) && self.lab.kernel.inspect(program.id).is_ok(), "it has ended: {}", self.output_of(program));
        }
    }

    /// Returns a program's standard output once it has ended. It must exit with status 0 and print nothing on standard error.
    pub fn output_of(&mut self, program: &Running) -> String {
        common::output_until_end(&mut self.lab, program.id, &program.port)
    }

    /// Runs a script to its end.
    pub fn run(&mut self, script: &str) -> String {
        let program = self.start(script, Link::default());
        self.output_of(&program)
    }

    /// Starts a script whose standard input stays open, and runs it until it waits.
    pub fn listening(&mut self, script: &str, link: Link) -> Running {
        let listener = self.open(script, link, QUOTA);
        self.rest(&listener);
        listener
    }

    /// The private pages of a cell.
    pub fn pages(&self, program: &Running) -> PageCount {
        self.lab.kernel.inspect(program.id).expect("it lives").2.used
    }

    /// Ends a cell.
    pub fn end(&mut self, program: &Running) {
        self.lab.kernel.end(program.id, End::Killed).expect("it lives");
        self.lab.finish(program.id);
    }

    /// The number of used frames without those of the block registry, which need not be returned.
    pub fn owned(&self) -> PageCount {
        self.arena - self.lab.kernel.free() - self.lab.kernel.registry().used
    }
}
