// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells with busybox on one network.

use pando_image::{Attributes, Builder, HostFile};
use pando_kernel::cell::State;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Config, ConsolePort, NetworkConfig, NetworkId, Stream};
use pando_launch::{Calls, Program, Root, Template, Terminals, Volume};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::lab::{Lab, kvm_is_there};
use std::path::PathBuf;
use std::sync::Arc;

/// 1 GiB.
const ARENA: PageCount = PageCount(1 << 18);
/// What a program may have: 128 MiB.
const QUOTA: PageCount = PageCount(1 << 15);
/// Busybox's names that scripts call.
const APPLETS: [&str; 16] =
    ["sh", "seq", "head", "sha256sum", "true", "sleep", "cat", "httpd", "wget", "nc", "mkdir", "wc", "dd", "echo", "tcpsvd", "rm"];

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

fn busybox() -> PathBuf {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    places.into_iter().find(|place| place.exists()).expect("busybox is there")
}

impl World {
    /// A world where nothing runs. `None`: this machine has no KVM.
    pub fn new() -> Option<World> {
        if !kvm_is_there() {
            eprintln!("left out: no KVM here");
            return None;
        }
        let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
        let template = Template::boot(&lab.kernel).expect("the libOS boots");
        while !matches!(lab.kernel.inspect(template.cell()), Ok((State::Frozen, ..))) {
            assert!(lab.turn(0), "the libOS waits for ever");
        }
        let file = HostFile::new(busybox()).expect("busybox can be read");
        let mut files = Builder::new();
        files.file("/bin/busybox", file.attributes(), file).expect("a fresh name");
        for applet in APPLETS {
            files.symlink(format!("/bin/{applet}"), Attributes::root(0o777), "busybox").expect("a fresh name");
        }
        files.directory("/tmp", Attributes::root(0o1777)).expect("a fresh name");
        let volumes = vec![Volume::new("/", files.image().expect("a few files make an image"))];
        let root = Root::new(&lab.kernel, template, volumes).expect("room for a root");
        let network = lab.kernel.add_network(NetworkConfig::default()).expect("there are few");
        Some(World { lab, root, network })
    }

    /// Starts a script in a cell of its own, with a link of this kind.
    pub fn start(&mut self, script: &str, link: Link) -> Running {
        let program = Program {
            path: b"/bin/sh".to_vec(),
            directory: b"/tmp".to_vec(),
            arguments: ["sh", "-c", script].map(|word| word.into()).to_vec(),
            environment: vec![b"PATH=/bin".to_vec()],
            exports: Vec::new(),
            terminals: Terminals::default(),
            calls: Calls::default(),
            user: 0,
            group: 0,
            memory: QUOTA,
        };
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
        let outcome = self.lab.finish(program.id);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        while let Some((stream, bytes)) = program.port.receive() {
            match stream {
                Stream::Output => output.extend(bytes),
                Stream::Errors => errors.extend(bytes),
            }
        }
        let [output, errors] = [output, errors].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!((outcome.end.to_string(), &errors[..]), ("exited with status 0".into(), ""), "{output}");
        output
    }

    /// Runs a script to its end.
    pub fn run(&mut self, script: &str) -> String {
        let program = self.start(script, Link::default());
        self.said(&program)
    }
}
