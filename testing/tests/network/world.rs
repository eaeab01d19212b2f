// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells with busybox on one network.

use crate::common;
use pando_kernel::cell::State;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Config, ConsolePort, NetworkConfig, NetworkId};
use pando_launch::{Calls, Root};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::lab::{Lab, kvm_is_there};
use std::sync::Arc;

/// 1 GiB.
const ARENA: PageCount = PageCount(1 << 18);
/// What a program may have: 128 MiB.
const QUOTA: PageCount = PageCount(1 << 15);
/// Busybox's names that scripts call.
const APPLETS: [&str; 7] = ["sh", "seq", "sha256sum", "sleep", "httpd", "wget", "mkdir"];

/// Cells on one network.
pub struct World {
    pub lab: Lab,
    root: Root,
    pub network: NetworkId,
}

/// A program in a cell.
pub struct Running {
    pub id: CellId,
    pub addresses: Addresses,
    pub port: Arc<ConsolePort>,
}

impl World {
    /// A world where nothing runs. `None`: this machine has no KVM.
    pub fn new() -> Option<World> {
        if !kvm_is_there() {
            eprintln!("left out: no KVM here");
            return None;
        }
        let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
        let root = common::root(&mut lab, &APPLETS);
        let network = lab.kernel.add_network(NetworkConfig::default()).expect("there are few");
        Some(World { lab, root, network })
    }

    /// Starts a script in a cell of its own, with a link of this kind.
    pub fn start(&mut self, script: &str, link: Link) -> Running {
        let program = common::script(script, QUOTA, Calls::default());
        let id = program.prepare(&self.lab.kernel, &self.root).expect("room for a cell");
        let addresses = self.lab.kernel.plug(id, self.network, link).expect("it does not run yet");
        let port = self.lab.kernel.console(id).expect("it has a console");
        port.close_input();
        self.lab.kernel.start(id).expect("it was not started before");
        Running { id, addresses, port }
    }

    /// Starts a server, and lets it run until it waits.
    pub fn serve(&mut self, script: &str, link: Link) -> Running {
        let server = self.start(script, link);
        while !matches!(self.lab.kernel.inspect(server.id), Ok((State::Idle { .. }, ..))) {
            assert!(self.lab.turn(0), "it neither runs nor waits");
        }
        server
    }

    /// What a program says on its standard output until it ends, with status 0 and no complaint.
    pub fn said(&mut self, program: &Running) -> String {
        common::said(&mut self.lab, program.id, &program.port)
    }

    /// Runs a script to its end.
    pub fn run(&mut self, script: &str) -> String {
        let program = self.start(script, Link::default());
        self.said(&program)
    }
}
