// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab for the host's software: programs that freeze, and their clones, with or without a network.

use pando_image::{Attributes, Builder, HostFile, Readable, Scan};
use pando_kernel::RunState;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Config, ConsolePort, End, NetworkConfig, NetworkId, Stream};
use pando_launch::{Program, Root, Template, Volume};
use pando_machine::kvm::Omit;
use pando_machine::{Nanos, PageCount};
use pando_testing::are_installed;
use pando_testing::compile::compiled;
use pando_testing::lab::{Lab, is_kvm_available};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub const PYTHON: &str = "/usr/bin/python3";
pub const SHELL: &str = "/bin/sh";
/// The helper modules for Python and Node, as the command line puts them into every root, and their sources.
const PARTS: [(&str, &str); 2] = [
    ("pando.py", include_str!("../../../manager/src/view/parts/pando/__init__.py")),
    ("pando.js", include_str!("../../../manager/src/view/parts/pando.js")),
];
const MODULES: &str = "/pando";
/// Directories of the host's software; missing ones are skipped.
const SOFTWARE: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
const FILES_MAX: u64 = 8_000_000;
/// The quota of a program: 1 GiB.
const QUOTA: PageCount = PageCount(1 << 18);

/// A lab in which the host's software runs.
pub struct CloneFixture {
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

impl CloneFixture {
    /// Creates a lab with this much memory. Without KVM or one of these files, prints the reason and returns `None`.
    pub fn new(arena: PageCount, needs: &[&str]) -> Option<CloneFixture> {
        if !is_kvm_available() || !are_installed(needs) {
            return None;
        }
        let mut lab = Lab::kvm(arena, 1, Config::default(), Omit::NOTHING);
        let template = Template::boot(&lab.kernel).expect("the libOS boots");
        while !matches!(lab.kernel.inspect(template.cell()), Ok((RunState::Frozen, ..))) {
            assert!(lab.turn(0), "the libOS waits for ever");
        }
        let root = Root::new(&lab.kernel, &template, vec![software()]).expect("room for a root");
        let network = lab.kernel.add_network(NetworkConfig::default()).expect("there are few");
        Some(CloneFixture { lab, root, network })
    }

    /// Runs a program until it reports that it is ready.
    pub fn freeze(&mut self, root: &Root, program: &Program) -> Root {
        let running = self.start(root, &Program { is_template: true, ..program.clone() }, None);
        running.port.close_input();
        while let state = self.lab.kernel.inspect(running.cell)
            && !matches!(state, Ok((RunState::Frozen, ..)))
        {
            if state.is_err() || !self.lab.turn(0) {
                panic!("it is not ready: {}", self.output_until_end(&running));
            }
        }
        root.frozen(running.cell)
    }

    /// Starts a program in a cell, or a clone if the root is a template; with a network card if `link` is given.
    pub fn start(&mut self, root: &Root, program: &Program, link: Option<Link>) -> Running {
        let cell = program.prepare(&self.lab.kernel, root).expect("room for a cell");
        let addresses = link.map(|link| self.lab.kernel.plug(cell, self.network, link).expect("it does not run yet"));
        let port = self.lab.kernel.console(cell).expect("it has a console");
        self.lab.kernel.start(cell).expect("it was not started before");
        Running { cell, addresses, port }
    }

    /// Starts a clone with these arguments.
    pub fn clone(&mut self, template: &Root, words: &[&str]) -> Running {
        self.start(template, &given(words), None)
    }

    /// Drives the kernel until a program waits for input and no timer is pending.
    pub fn rest(&mut self, running: &Running) {
        while let state = self.lab.kernel.inspect(running.cell)
            && !matches!(state, Ok((RunState::Idle { until: Nanos::NEVER }, ..)))
        {
            if state.is_err() || !self.lab.turn(0) {
                panic!("it does not wait: {}", self.output_until_end(running));
            }
        }
    }

    /// Drives the kernel until a program waits, and returns its standard output since the last call. Output on standard
    /// error fails the test.
    pub fn output_until_wait(&mut self, running: &Running) -> String {
        self.rest(running);
        match running.port.receive() {
            Some((Stream::Stdout, said)) => String::from_utf8_lossy(&said).into_owned(),
            other => panic!("{:?}", other.map(|(_, said)| String::from_utf8_lossy(&said).into_owned())),
        }
    }

    /// Sends a line to a program that waits for one, and returns its answer.
    pub fn ask(&mut self, running: &Running, line: &str) -> String {
        assert!(running.port.send(line.as_bytes()), "it lives");
        self.output_until_wait(running)
    }

    /// Returns all output of a program until it ends.
    pub fn output_until_end(&mut self, running: &Running) -> String {
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

    /// Runs a program from start to end and returns its output.
    pub fn run(&mut self, root: &Root, program: &Program, link: Option<Link>) -> String {
        let running = self.start(root, program, link);
        running.port.close_input();
        self.output_until_end(&running)
    }

    /// Ends a cell.
    pub fn end(&mut self, cell: CellId) {
        self.lab.kernel.end(cell, End::Killed).expect("it lives");
        self.lab.kernel.collect(cell).expect("it has ended");
    }

    /// The number of free frames after all unused ones are released.
    pub fn free(&self) -> PageCount {
        self.lab.kernel.free_unused_frames();
        self.lab.kernel.free()
    }
}

/// A volume of the host's software, readable by everyone, and of further files for the tests. Scanned once for all tests.
fn software() -> Volume {
    static SOFTWARE_VOLUME: OnceLock<Volume> = OnceLock::new();
    let walk = || {
        let mut files = Builder::new();
        let walk = Scan { readable: Readable::ByEveryone, limit: FILES_MAX, parallel: true, progress: &|_| () };
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

/// A program that prints its random bytes (AT_RANDOM). `None`: this machine has no compiler.
pub fn first_random_bytes() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clones/programs/first_random_bytes.c");
    PROGRAM.get_or_init(|| compiled(&source, Path::new(env!("CARGO_TARGET_TMPDIR")))).clone()
}

/// A program with its arguments.
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

/// The request for a clone: arguments, and nothing else of its own.
pub fn given(words: &[&str]) -> Program {
    Program { arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(), environment: Vec::new(), ..program(SHELL, &[]) }
}
