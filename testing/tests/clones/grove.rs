// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's software in a lab: programs that freeze, and their clones, with or without a network.

use pando_image::{Attributes, Builder, HostFile, Readable, Walk};
use pando_kernel::cell::State;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Config, ConsolePort, End, NetworkConfig, NetworkId, Stream};
use pando_launch::{Program, Root, Template, Volume};
use pando_machine::kvm::Omit;
use pando_machine::{Nanos, PageCount};
use pando_testing::are_installed;
use pando_testing::compile::compiled;
use pando_testing::lab::{Lab, kvm_is_there};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub const PYTHON: &str = "/usr/bin/python3";
pub const SHELL: &str = "/bin/sh";
/// Python's and Node's parts of a template, as every root of the command line holds them, and where they lie here.
const PARTS: [(&str, &str); 2] = [
    ("pando.py", include_str!("../../../pando/src/view/parts/pando.py")),
    ("pando.js", include_str!("../../../pando/src/view/parts/pando.js")),
];
const MODULES: &str = "/pando";
/// Directories of the host's software, where they are there.
const SOFTWARE: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
const FILES_MAX: u64 = 8_000_000;
/// What a program may have: 1 GiB.
const QUOTA: PageCount = PageCount(1 << 18);

/// A lab where the host's software can be run.
pub struct Grove {
    pub lab: Lab,
    pub root: Root,
    network: NetworkId,
}

/// A program in a cell.
pub struct Running {
    pub cell: CellId,
    pub addresses: Option<Addresses>,
    pub port: Arc<ConsolePort>,
}

impl Grove {
    /// A lab with so much memory. `None`: this machine has no KVM, or lacks one of these files; that was said.
    pub fn new(arena: PageCount, needs: &[&str]) -> Option<Grove> {
        if !kvm_is_there() || !are_installed(needs) {
            return None;
        }
        let mut lab = Lab::kvm(arena, 1, Config::default(), Omit::NOTHING);
        let template = Template::boot(&lab.kernel).expect("the libOS boots");
        while !matches!(lab.kernel.inspect(template.cell()), Ok((State::Frozen, ..))) {
            assert!(lab.turn(0), "the libOS waits for ever");
        }
        let root = Root::new(&lab.kernel, &template, vec![software()]).expect("room for a root");
        let network = lab.kernel.add_network(NetworkConfig::default()).expect("there are few");
        Some(Grove { lab, root, network })
    }

    /// Runs a program until it says that it is ready.
    pub fn freeze(&mut self, root: &Root, program: &Program) -> Root {
        let running = self.start(root, &Program { is_template: true, ..program.clone() }, None);
        running.port.close_input();
        while let state = self.lab.kernel.inspect(running.cell)
            && !matches!(state, Ok((State::Frozen, ..)))
        {
            if state.is_err() || !self.lab.turn(0) {
                panic!("it is not ready: {}", self.said(&running));
            }
        }
        root.frozen(running.cell)
    }

    /// Starts a program in a cell, or a clone where the root is a template; with a card of the lab's network if it shall have a link.
    pub fn start(&mut self, root: &Root, program: &Program, link: Option<Link>) -> Running {
        let cell = program.prepare(&self.lab.kernel, root).expect("room for a cell");
        let addresses = link.map(|link| self.lab.kernel.plug(cell, self.network, link).expect("it does not run yet"));
        let port = self.lab.kernel.console(cell).expect("it has a console");
        self.lab.kernel.start(cell).expect("it was not started before");
        Running { cell, addresses, port }
    }

    /// Starts a clone that is given words.
    pub fn clone(&mut self, template: &Root, words: &[&str]) -> Running {
        self.start(template, &given(words), None)
    }

    /// Lets everybody go on until a program waits for nothing that comes by itself.
    pub fn rest(&mut self, running: &Running) {
        while let state = self.lab.kernel.inspect(running.cell)
            && !matches!(state, Ok((State::Idle { until: Nanos::NEVER }, ..)))
        {
            if state.is_err() || !self.lab.turn(0) {
                panic!("it does not wait: {}", self.said(running));
            }
        }
    }

    /// What a program that waits has said on its standard output since it was asked last; it complains of nothing.
    pub fn heard(&mut self, running: &Running) -> String {
        self.rest(running);
        match running.port.receive() {
            Some((Stream::Output, said)) => String::from_utf8_lossy(&said).into_owned(),
            other => panic!("{:?}", other.map(|(_, said)| String::from_utf8_lossy(&said).into_owned())),
        }
    }

    /// Sends a line to a program that waits for one, and returns its answer.
    pub fn ask(&mut self, running: &Running, line: &str) -> String {
        assert!(running.port.send(line.as_bytes()), "it lives");
        self.heard(running)
    }

    /// All that a program says until it ends.
    pub fn said(&mut self, running: &Running) -> String {
        let outcome = self.lab.finish(running.cell);
        let mut said = String::new();
        while let Some((_, bytes)) = running.port.receive() {
            said.push_str(&String::from_utf8_lossy(&bytes));
        }
        match outcome.end {
            End::Exited { status: 0 } => said,
            end => format!("{said}{end}\n"),
        }
    }

    /// What a program says from its start to its end.
    pub fn run(&mut self, root: &Root, program: &Program, link: Option<Link>) -> String {
        let running = self.start(root, program, link);
        running.port.close_input();
        self.said(&running)
    }

    /// Ends a cell.
    pub fn end(&mut self, cell: CellId) {
        self.lab.kernel.end(cell, End::Killed).expect("it lives");
        self.lab.kernel.collect(cell).expect("it has ended");
    }

    /// Frames that are free once all is released that nobody needs.
    pub fn free(&self) -> PageCount {
        self.lab.kernel.settle();
        self.lab.kernel.free()
    }
}

/// The host's software as everyone may read it, and what tests need besides. Walked through once for all tests.
fn software() -> Volume {
    static SOFTWARE_VOLUME: OnceLock<Volume> = OnceLock::new();
    let walk = || {
        let mut files = Builder::new();
        let walk = Walk { readable: Readable::ByEveryone, limit: FILES_MAX, parallel: true, progress: &|_| () };
        for top in SOFTWARE.map(Path::new).into_iter().filter(|top| top.exists()) {
            files.host(top.as_os_str().as_encoded_bytes(), top, &walk).expect("everyone may read it");
        }
        for (name, part) in PARTS {
            files.file(format!("{MODULES}/{name}"), Attributes::root(0o644), part).expect("a fresh name");
        }
        for (directory, permissions) in [("/tmp", 0o1777), ("/run", 0o755), ("/var", 0o755), ("/root", 0o700)] {
            files.directory(directory, Attributes::root(permissions)).expect("a fresh name");
        }
        if let Some(program) = first_random_bytes() {
            let file = HostFile::new(program).expect("it can be read");
            files.file("/first-random-bytes", file.attributes(), file).expect("a fresh name");
        }
        Volume::new("/", files.image().expect("the host's software makes an image"))
    };
    SOFTWARE_VOLUME.get_or_init(walk).clone()
}

/// A program that says the random bytes that it was started with. `None`: this machine has no compiler.
pub fn first_random_bytes() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clones/programs/first_random_bytes.c");
    PROGRAM.get_or_init(|| compiled(&source, Path::new(env!("CARGO_TARGET_TMPDIR")))).clone()
}

/// A program with its words.
pub fn program(path: &str, words: &[&str]) -> Program {
    Program {
        path: path.into(),
        directory: b"/tmp".to_vec(),
        arguments: std::iter::once(&path).chain(words).map(|word| word.as_bytes().to_vec()).collect(),
        environment: [format!("PYTHONPATH={MODULES}"), "PATH=/usr/sbin:/usr/bin:/sbin:/bin".into()].map(String::into_bytes).into(),
        memory: QUOTA,
        ..Program::default()
    }
}

/// What a clone is given: words, and nothing else of its own.
pub fn given(words: &[&str]) -> Program {
    Program { arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(), environment: Vec::new(), ..program(SHELL, &[]) }
}
