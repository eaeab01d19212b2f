// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that see the host's software, on a separate network for each test.

use pando_image::{Attributes, Builder, Readable, Scan};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Config, End, Kernel, NetworkConfig, NetworkId};
use pando_launch::{Jobs, Program, Root, Template, Volume};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_testing::are_installed;
use pando_testing::lab::is_kvm_available;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

/// 4 GiB, which the host allocates on demand.
const ARENA: PageCount = PageCount(1 << 20);
/// The block registry: 512 MiB.
const REGISTRY: PageCount = PageCount(1 << 17);
/// The quota of a program: 768 MiB.
const QUOTA: PageCount = PageCount(3 << 16);
/// Timeout for a hanging program; the slowest one takes a small part of it on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The host's directories of software, as `pando run` shows them.
const SOFTWARE: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];

/// The kernel, and the root of its cells.
struct Shared {
    kernel: Arc<Kernel>,
    root: Root,
}

/// Cells on one network.
pub struct CellNetwork {
    shared: &'static Shared,
    network: NetworkId,
}

/// A program in a cell. Ended when dropped.
pub struct Running {
    pub addresses: Addresses,
    id: CellId,
    kernel: Arc<Kernel>,
    said: Arc<Mutex<String>>,
    /// Notified when a line contains the ready mark, and when the program has ended.
    told: mpsc::Receiver<ProgramEvent>,
}

#[derive(Debug, PartialEq, Eq)]
enum ProgramEvent {
    Ready,
    Ended,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let machine = Kvm::new(KvmConfig { arena: ARENA, vcpus: 2, omit: Omit::NOTHING }).expect("KVM is there");
        let kernel = Kernel::new(machine, Config { registry: REGISTRY, ..Config::default() });
        kernel.start_vcpus().expect("the host has threads");
        let template = Template::boot(&kernel).expect("the libOS boots");
        kernel.wait_frozen(template.cell()).expect("it freezes");
        let mut files = Builder::new();
        // The libOS makes the others that programs expect.
        files.directory("/var", Attributes::root(0o755)).expect("a fresh name");
        let walk = Scan { readable: Readable::ByEveryone, limit: u64::MAX, parallel: true, progress: &|_| () };
        for top in SOFTWARE.into_iter().filter(|top| Path::new(top).exists()) {
            files.host(top, Path::new(top), &walk).expect("everybody may read it");
        }
        let volumes = vec![Volume::new("/", files.image().expect("files make an image"))];
        let root = Root::new(&kernel, &template, volumes).expect("room for a root");
        Shared { kernel: Arc::new(kernel), root }
    })
}

impl CellNetwork {
    /// Creates a network without cells. If this machine lacks something, prints that and returns `None`.
    pub fn new(needs: &[&str]) -> Option<CellNetwork> {
        if !is_kvm_available() || !are_installed(needs) {
            return None;
        }
        let shared = shared();
        let network = shared.kernel.add_network(NetworkConfig::default()).expect("there are few");
        Some(CellNetwork { shared, network })
    }

    /// Starts a shell script in a cell of its own; a line that contains `ready` marks it as ready.
    fn start(&self, script: &str, ready: &str) -> Running {
        self.launch(&self.shared.root, &CellNetwork::program(script), ready)
    }

    fn program(script: &str) -> Program {
        let variables =
            ["PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8", "HOME=/root", "TZ=UTC0"];
        Program {
            path: b"/bin/bash".to_vec(),
            directory: b"/tmp".to_vec(),
            arguments: ["bash", "-euo", "pipefail", "-c", script].map(|word| word.into()).to_vec(),
            environment: variables.map(|variable| variable.into()).to_vec(),
            memory: QUOTA,
            ..Program::default()
        }
    }

    /// Starts a program in a clone of a root; a line that contains `ready` marks it as ready.
    fn launch(&self, root: &Root, program: &Program, ready: &str) -> Running {
        let kernel = &self.shared.kernel;
        let id = program.prepare(&**kernel, root).expect("room for a cell");
        let addresses = kernel.plug(id, self.network, Link::default()).expect("it does not run yet");
        let port = kernel.console(id).expect("it has a console");
        port.close_input();
        kernel.start(id).expect("it was not started before");
        let (said, ready) = (Arc::<Mutex<String>>::default(), ready.to_owned());
        let (sender, told) = mpsc::channel();
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            while let Some((_, bytes)) = port.receive() {
                let mut said = heard.lock().expect("nobody panics with it");
                let was_ready = said.contains(&ready);
                said.push_str(&String::from_utf8_lossy(&bytes));
                if !was_ready && said.contains(&ready) {
                    let _ = sender.send(ProgramEvent::Ready);
                }
            }
            let _ = sender.send(ProgramEvent::Ended);
        });
        Running { addresses, id, kernel: Arc::clone(kernel), said, told }
    }

    /// Starts a server and waits until it listens.
    pub fn serve(&self, script: &str, ready: &str) -> Running {
        CellNetwork::wait(script, self.start(script, ready))
    }

    fn wait(script: &str, server: Running) -> Running {
        let told = server.told.recv_timeout(TIMEOUT);
        assert_eq!(told, Ok(ProgramEvent::Ready), "{script}\ndoes not listen: {}", server.output_so_far());
        server
    }

    /// Freezes a running program, by a request or as it stands. Returns the root of its clones.
    pub fn freeze(&self, running: &Running, as_it_stands: bool) -> Root {
        let Shared { kernel, root } = self.shared;
        let asked = if as_it_stands { kernel.force_freeze(running.id) } else { kernel.request_freeze(running.id) };
        assert_eq!(asked, Ok(()), "it has ended: {}", running.output_so_far());
        assert_eq!(kernel.wait_frozen_for(running.id, TIMEOUT), Ok(true), "it does not freeze: {}", running.output_so_far());
        // None of these programs requests a signal in its clones, so their random numbers are not guaranteed to differ.
        assert_eq!(kernel.is_forced(running.id), Ok(true));
        root.frozen(running.id)
    }

    /// Starts a clone of a frozen program, which continues.
    pub fn resume(&self, frozen: &Root) -> Running {
        self.launch(frozen, &CellNetwork::program(""), "\0")
    }

    /// Starts a clone of a frozen server, and waits until it is ready.
    pub fn resume_server(&self, frozen: &Root, ready: &str) -> Running {
        CellNetwork::wait("a clone", self.launch(frozen, &CellNetwork::program(""), ready))
    }

    /// Runs a client until it ends, which must succeed. Returns its output.
    pub fn run(&self, script: &str) -> String {
        self.finish(script, self.start(script, "\0"))
    }

    /// Waits for a started client in the same way.
    pub fn finish(&self, script: &str, client: Running) -> String {
        let told = client.told.recv_timeout(TIMEOUT);
        assert_eq!(told, Ok(ProgramEvent::Ended), "{script}\nhangs: {}", client.output_so_far());
        let outcome = client.kernel.wait(client.id).expect("it is known");
        assert_eq!(outcome.end.to_string(), "exited with status 0", "{script}\noutput: {}", client.output_so_far());
        client.output_so_far()
    }
}

impl Running {
    /// The handle that starts jobs beside this program.
    pub fn jobs(&self) -> Jobs {
        Jobs::open(&*self.kernel, self.id).expect("it lives, and this is the first time")
    }

    /// Ends it.
    pub fn end(&self) {
        self.kernel.end(self.id, End::Killed).expect("it lives");
    }

    /// Its output so far.
    pub fn output_so_far(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A client has ended and was waited for already.
        if self.kernel.end(self.id, End::Killed).is_ok() {
            let _ = self.kernel.wait(self.id);
        }
        if thread::panicking() {
            println!("its output:\n{}", self.output_so_far());
        }
    }
}
