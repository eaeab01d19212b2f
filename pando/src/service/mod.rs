// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve`: one kernel process with templates and cells, for whoever asks at its socket.
//!
//! What is said there stands in [`api`]; the directory of templates is shared with every other command, and is the truth. All threads are started before the process confines itself:
//! those that answer, and those that do what blocks.

mod budget;
mod cell;
mod connections;
mod gateways;
mod jobs;
mod log;
mod networks;
mod order;
mod pool;
mod problem;
mod routes;
mod streams;

use crate::descriptors::Descriptors;
use crate::failure::Failure;
use crate::laps::Laps;
use crate::size::Size;
use crate::template::{self, Found, Which};
use crate::view::{self, Asked};
use crate::watch::Watch;
use crate::{api, host, machine, say, socket};
use axum::Router;
use axum::routing::get;
use budget::Budget;
use cell::{Cell, Order, Reader};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use gateways::Gateways;
use networks::Networks;
use pando_confine::{Needs, Paths, Ports};
use pando_kernel::Kernel;
use pando_machine::PageCount;
use pool::Pool;
use problem::Problem;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use utoipa_axum::router::OpenApiRouter;

/// Threads that answer.
const ANSWERING: usize = 2;
/// Threads that load templates and clone them.
const BLOCKING: usize = 16;
/// Cells that have ended and are remembered.
const REMEMBERED: usize = 1024;

/// What the service is given.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Listen at this socket [default: pando/socket in $XDG_RUNTIME_DIR, or run/socket beside the templates]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// The most memory that all cells may have together [default: half of the host's]; what is remembered of their output takes up to an eighth of it more, or 64 MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::options::memory)]
    pub(crate) memory: Option<Size>,

    /// Let templates that are made here see this directory of the host (repeat for more); besides the host's software, and what those see that there are already
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().try_map(|path| host::absolute(path.as_ref()).map_err(|error| host::plain(&error))))]
    show: Vec<PathBuf>,

    /// Let so many clones at a time reach the world outside, each what its --allow or --net names. Without, this process makes no connections
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(..=1024))]
    gateways: u16,
}

/// All that there is. Lock order: first one of `cells`, a cell's jobs and the networks' names; then a cell's state or the kernel's. Those of the pool are held while no other is.
struct Service {
    kernel: Arc<Kernel>,
    pool: Arc<Pool>,
    networks: Networks,
    gateways: Arc<Gateways>,
    watch: Watch,
    /// What all cells may have together.
    memory: PageCount,
    /// What was free before there was one.
    whole: PageCount,
    /// What the output logs of all cells may take together.
    budget: Arc<Budget>,
    next: AtomicU64,
    cells: Mutex<BTreeMap<u64, Arc<Cell>>>,
}

/// Serves until it is asked to end.
///
/// # Errors
/// There is no KVM, or nobody can be listened to.
pub(crate) fn serve(options: &Serve) -> Result<u8, Failure> {
    pando_confine::forbid_dumps()?;
    let descriptors = Descriptors::share_out();
    descriptors.check_service()?;
    let templates = template::directory()?;
    template::make_directory(&templates)?;
    let path = options.socket.clone().map_or_else(socket::place, Ok)?;
    if let Some(directory) = path.parent().filter(|_| options.socket.is_none()) {
        template::make_directory(directory)?;
    }
    let listener = socket::listen(&path)?;
    let memory = options.memory.map_or(PageCount(host::memory().0 / 2), Size::pages);
    let mut reach = reach(&options.show);
    reach.change.extend([templates]);
    // To remove it in the end. A directory that others have files in is not for that: what is left behind there is replaced by the next.
    reach.change.extend(path.parent().filter(|_| options.socket.is_none()).map(Into::into));
    if options.gateways > 0 {
        // Which, the gateways say.
        reach.ports = Ports::All;
    }
    // It takes some milliseconds, so who runs one program goes without; no call that is left would reach anything of these.
    match pando_machine::leave_namespaces(options.gateways == 0) {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(Failure::Namespaces(error)),
        // `pando doctor` says so.
        _ => {}
    }
    let mut laps = Laps::start();
    let kernel = Arc::new(machine::start(memory, &reach, &mut laps)?);
    let libos = machine::libos(&kernel, &mut laps)?;
    let watch = Watch::start(&kernel).map_err(Failure::Thread)?;
    let gateways = Arc::new(Gateways::start(options.gateways.into(), descriptors)?);
    let runtime = runtime().map_err(Failure::Thread)?;
    let pool = Arc::new(Pool::new(Arc::clone(&kernel), libos, watch.clone(), descriptors.templates));
    let networks = Networks::new(Arc::clone(&kernel));
    let whole = kernel.free() + kernel.registry().used;
    let (budget, next) = (Budget::for_memory(memory), AtomicU64::new(1));
    let service = Service { kernel, pool, networks, gateways, watch, memory, whole, budget, next, cells: Mutex::default() };
    let served = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        machine::limit_calls(Needs { writing_back: true, serving: true, connecting: options.gateways > 0, ..Needs::default() })
            .map_err(Failure::from)?;
        say::note(&format_args!("serving at {}", path.display()));
        let asked = async move {
            tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} };
        };
        // Cells end with the process, and so do those who wait for them.
        tokio::select! {
            served = connections::answer(listener, router(service), descriptors.connections) => served,
            () = asked => Ok(()),
        }
        .map_err(Failure::Print)
    });
    // Who finds it there although nobody listens is told so.
    let _ = std::fs::remove_file(&path);
    runtime.shutdown_background();
    served.map(|()| 0)
}

/// Every route, and the description of all at `/v1/openapi.json`.
fn router(service: Service) -> Router {
    let (router, description) = OpenApiRouter::split_for_parts(routes::router());
    let description = description.to_json().unwrap_or_default();
    let described = move || async move { ([("content-type", "application/json")], description) };
    let router = router.route("/v1/openapi.json", get(described)).with_state(Arc::new(service));
    router.layer(axum::middleware::map_response(problem::tell))
}

/// What of the host its templates may see.
fn reach(shown: &[PathBuf]) -> Paths {
    let mut reach = view::software();
    let mut add = |asked: Result<Asked, Failure>| {
        // One that cannot be found now is told to whoever asks for it.
        if let Ok(asked) = asked {
            reach.read.extend(asked.reach.read);
            reach.change.extend(asked.reach.change);
            reach.authority = reach.authority.and(asked.reach.authority);
        }
    };
    // What the standard templates are made of.
    ["python3", "/bin/sh"].into_iter().for_each(|program| add(Asked::for_program(program)));
    for (name, _) in template::all().into_iter().flatten() {
        add(Found::open(&Which::Kept(name)).and_then(|found| found.find()));
    }
    reach.read.extend_from_slice(shown);
    // What lies in these is looked at when a template is made.
    reach.authority.read |= !shown.is_empty();
    reach
}

/// A runtime all of whose threads are there.
fn runtime() -> std::io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(ANSWERING)
        .max_blocking_threads(BLOCKING)
        .thread_keep_alive(Duration::MAX)
        .enable_all()
        .build()?;
    let all = Arc::new(Barrier::new(BLOCKING + 1));
    for _ in 0..BLOCKING {
        let all = Arc::clone(&all);
        runtime.spawn_blocking(move || _ = all.wait());
    }
    all.wait();
    Ok(runtime)
}

impl Service {
    /// Starts a cell, which is kept from its first moment on, whoever waits for it.
    ///
    /// # Errors
    /// There is no such template, or no room.
    async fn start(self: &Arc<Self>, order: Order) -> Result<Awaited, Problem> {
        if self.taken() >= self.memory {
            return Err(Problem::full(self.memory));
        }
        let template = self.pool.get(&order.template).await?;
        let place = if order.allow.is_empty() { None } else { Some(self.gateways.place().await?) };
        let service = Arc::clone(self);
        blocking(move || {
            let id = service.next.fetch_add(1, Ordering::Relaxed);
            let is_whole = order.whole;
            let cell = Cell::start(&service, id, order, template, place)?;
            service.remember(&cell);
            let reader = is_whole.then(|| Reader::new(&cell, 0));
            tokio::spawn(Arc::clone(&cell).keep(Arc::clone(&service)));
            if cell.has_input() {
                let cell = Arc::clone(&cell);
                tokio::spawn(async move { cell.give_first().await });
            }
            Ok(Awaited { service, cell, reader, is_released: false })
        })
        .await
    }

    /// Remembers a cell, and forgets those that ended long ago.
    fn remember(&self, cell: &Arc<Cell>) {
        let mut cells = self.lock();
        cells.insert(cell.id, Arc::clone(cell));
        if cells.len() > REMEMBERED {
            let ended: Vec<u64> = cells.iter().filter(|(_, cell)| cell.has_ended()).map(|(id, _)| *id).collect();
            let surplus = ended.len().saturating_sub(REMEMBERED);
            ended.iter().take(surplus).for_each(|id| _ = cells.remove(id));
        }
    }

    /// Forgets cells that have ended, the oldest first, until the logs of the others take no more than they may. One that somebody reads stays.
    fn forget_ended(&self) {
        let mut cells = self.lock();
        let is_ended = |(_, cell): &(&u64, &Arc<Cell>)| Arc::strong_count(cell) == 1 && cell.has_ended();
        let ended: Vec<u64> = cells.iter().filter(is_ended).map(|(id, _)| *id).collect();
        for id in ended {
            if !self.budget.is_short() {
                return;
            }
            cells.remove(&id);
        }
    }

    fn find(&self, id: u64) -> Result<Arc<Cell>, Problem> {
        self.lock().get(&id).cloned().ok_or_else(|| Problem::no_cell(id))
    }

    fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    fn cells(&self) -> Vec<Arc<Cell>> {
        self.lock().values().cloned().collect()
    }

    /// What cells and templates have of their own; blocks of files make way for them.
    fn taken(&self) -> PageCount {
        PageCount(self.whole.0.saturating_sub((self.kernel.free() + self.kernel.registry().used).0))
    }

    fn told(&self) -> api::Server {
        api::Server {
            version: env!("CARGO_PKG_VERSION").into(),
            process: std::process::id(),
            templates: template::directory().map(|path| path.display().to_string()).unwrap_or_default(),
            running: self.cells().iter().filter(|cell| !cell.has_ended()).count(),
            memory_bytes: self.memory.bytes(),
            gateways: self.gateways.count(),
            free_bytes: self.memory.bytes().saturating_sub(self.taken().bytes()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Cell>>> {
        lock(&self.cells)
    }
}

/// A cell that somebody waits for: when this is dropped, as it is when they break off, it is ended and forgotten.
struct Awaited {
    service: Arc<Service>,
    cell: Arc<Cell>,
    /// Who reads all of it from its beginning, if that was ordered.
    reader: Option<Reader>,
    /// It goes on whoever waits.
    is_released: bool,
}

impl Awaited {
    /// Lets it go on whoever waits.
    fn release(mut self) -> Arc<Cell> {
        self.is_released = true;
        Arc::clone(&self.cell)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.is_released {
            self.cell.signal(api::Signal::Kill);
            self.service.forget(self.cell.id);
        }
    }
}

/// Does what may take its time.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::server(error)))
}

/// What is under the locks of the service is whole at every step, whoever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::routes;

    #[test]
    fn the_description_in_the_repository_is_what_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
        let made = routes::router().into_openapi().to_pretty_json().expect("it can be written") + "\n";
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        if kept != made {
            let fresh = std::env::temp_dir().join("pando-openapi.json");
            std::fs::write(&fresh, made).expect("a file can be written");
            panic!("docs/openapi.json is not what is served: compare it with {}, and take that", fresh.display());
        }
    }
}
