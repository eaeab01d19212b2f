// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve`: one kernel process with templates and cells, for clients of its socket.
//!
//! [`api`] defines the protocol. The directory of templates is authoritative and shared with every other command. All threads are
//! started before the process confines itself: those that answer, and those for blocking work.

mod budget;
mod cell;
mod connections;
mod gateways;
mod jobs;
mod log;
mod networks;
mod pool;
mod problem;
mod request;
mod routes;
mod streams;

use crate::failure::Failure;
use crate::size::Size;
use crate::{api, diagnostics, environment, socket};
use axum::Router;
use axum::routing::get;
use budget::Budget;
use cell::{Cell, CellRequest, Reader};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use gateways::{Gateways, Prepared};
use networks::Networks;
use pando_confine::{Needs, Paths};
use pando_kernel::Kernel;
use pando_machine::PageCount;
use pando_manager::descriptors::Descriptors;
use pando_manager::environment::HostEnvironment;
use pando_manager::template::{PROGRAMS, TemplateRef, TemplateStore, create_private_directory};
use pando_manager::time_limits::TimeLimits;
use pando_manager::timings::Timings;
use pando_manager::view::{self, PreparedView};
use pando_manager::{host, machine};
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
/// Ended cells that are kept.
const REMEMBERED: usize = 1024;

/// Options of `pando serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Listen on this socket [default: pando/socket in $XDG_RUNTIME_DIR, or run/socket beside the templates]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Limit the memory of all cells together [default: half of the host's]; their logged output takes up to an eighth of it more, or 64
    /// MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::options::memory)]
    pub(crate) memory: Option<Size>,

    /// Allow templates that are created here to see this directory of the host (repeatable), in addition to the host's software and what
    /// existing templates see
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().try_map(|path| host::absolute(path.as_ref()).map_err(|error| host::plain(&error))))]
    show: Vec<PathBuf>,

    /// Let so many clones at a time reach the world outside, each what its --allow or --net names, by a process of its own. This process makes no connections
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(..=1024))]
    gateways: u16,
}

/// The service's state. Lock order: first one of `cells`, a cell's jobs and the networks' names; then a cell's state or the kernel's
/// locks. The pool's locks are taken while no other is held.
struct Service {
    kernel: Arc<Kernel>,
    pool: Arc<Pool>,
    environment: HostEnvironment,
    store: TemplateStore,
    networks: Networks,
    gateways: Gateways,
    watch: TimeLimits,
    /// The memory limit of all cells together.
    memory: PageCount,
    /// The free memory before the first cell.
    whole: PageCount,
    /// The budget of all output logs.
    budget: Arc<Budget>,
    next: AtomicU64,
    cells: Mutex<BTreeMap<u64, Arc<Cell>>>,
}

/// Serves until a signal stops it.
///
/// # Errors
/// There is no KVM, or the socket cannot be opened.
pub(crate) fn serve(options: &Serve) -> Result<u8, Failure> {
    pando_confine::forbid_dumps()?;
    let descriptors = Descriptors::divide();
    descriptors.check_service()?;
    // While there is one thread, and nothing that another process should not have.
    let gateways = Prepared::start(options.gateways.into(), descriptors)?;
    let environment = environment::caller();
    let store = TemplateStore::of(&environment)?;
    store.create_directory()?;
    let path = options.socket.clone().map_or_else(socket::place, Ok)?;
    if let Some(directory) = path.parent().filter(|_| options.socket.is_none()) {
        create_private_directory(directory).map_err(|source| Failure::Socket { path: directory.into(), source })?;
    }
    let listener = socket::listen(&path)?;
    let memory = options.memory.map_or(PageCount(host::memory().0 / 2), Size::pages);
    let mut visible = visible(&options.show, &environment, &store);
    visible.change.push(store.directory().into());
    // To remove the socket at the end. A directory given with `--socket` may hold other files, so it is not made writable: the next
    // service replaces a leftover socket.
    visible.change.extend(path.parent().filter(|_| options.socket.is_none()).map(Into::into));
    // It takes some milliseconds, so who runs one program goes without; no call that is left would reach anything of these.
    match pando_machine::unshare_namespaces(true) {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(Failure::Namespaces(error)),
        // `pando doctor` reports that.
        _ => {}
    }
    let mut timings = Timings::start();
    let kernel = Arc::new(machine::start(memory, &visible, &mut timings)?);
    let libos = machine::libos(&kernel, &mut timings)?;
    let watch = TimeLimits::start(&kernel).map_err(Failure::Thread)?;
    let gateways = gateways.threads()?;
    let runtime = runtime().map_err(Failure::Thread)?;
    let pool = Arc::new(Pool::new(Arc::clone(&kernel), libos, watch.clone(), (environment.clone(), store.clone()), descriptors.templates));
    let networks = Networks::new(Arc::clone(&kernel));
    let whole = kernel.free() + kernel.registry().used;
    let (budget, next) = (Budget::for_memory(memory), AtomicU64::new(1));
    let service =
        Service { kernel, pool, environment, store, networks, gateways, watch, memory, whole, budget, next, cells: Mutex::default() };
    let served = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        machine::limit_calls(Needs { writing_back: true, serving: true, receiving: options.gateways > 0, ..Needs::default() })
            .map_err(Failure::from)?;
        diagnostics::note(&format_args!("serving at {}", path.display()));
        let asked = async move {
            tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} };
        };
        // Cells end with the process, and so do requests that wait for them.
        tokio::select! {
            served = connections::answer(listener, router(service), descriptors.connections) => served,
            () = asked => Ok(()),
        }
        .map_err(Failure::Print)
    });
    // A leftover socket is harmless: clients report that no server runs.
    let _ = std::fs::remove_file(&path);
    runtime.shutdown_background();
    served.map(|()| 0)
}

/// All routes, with their description at `/v1/openapi.json`.
fn router(service: Service) -> Router {
    let (router, description) = OpenApiRouter::split_for_parts(routes::router());
    let description = description.to_json().unwrap_or_default();
    let described = move || async move { ([("content-type", "application/json")], description) };
    let router = router.route("/v1/openapi.json", get(described)).with_state(Arc::new(service));
    router.layer(axum::middleware::map_response(problem::tell))
}

/// The host paths that its templates may see.
fn visible(shown: &[PathBuf], environment: &HostEnvironment, store: &TemplateStore) -> Paths {
    let mut visible = view::software(environment);
    let mut add = |view: PreparedView| {
        visible.read.extend(view.visible.read);
        visible.change.extend(view.visible.change);
        visible.authority = visible.authority.and(view.visible.authority);
    };
    // The files of the built-in templates. A template that cannot be found now reports its error when it is used.
    PROGRAMS.iter().filter_map(|program| PreparedView::for_program(program, environment).ok()).for_each(&mut add);
    for (name, _) in store.all().into_iter().flatten() {
        if let Ok(view) = store.open(&TemplateRef::Stored(name)).and_then(|template| template.find(environment)) {
            add(view);
        }
    }
    visible.read.extend_from_slice(shown);
    // The content of these is read when a template is created.
    visible.authority.read |= !shown.is_empty();
    visible
}

/// A runtime whose threads are all started.
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
    /// Starts a cell, whose output is read from the start, even if the client disconnects.
    ///
    /// # Errors
    /// There is no such template, or not enough memory.
    async fn start(self: &Arc<Self>, order: CellRequest) -> Result<AttachedCell, Problem> {
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
            Ok(AttachedCell { service, cell, reader, is_released: false })
        })
        .await
    }

    /// Adds a cell, and removes the oldest of too many ended ones.
    fn remember(&self, cell: &Arc<Cell>) {
        let mut cells = self.lock();
        cells.insert(cell.id, Arc::clone(cell));
        if cells.len() > REMEMBERED {
            let ended: Vec<u64> = cells.iter().filter(|(_, cell)| cell.has_ended()).map(|(id, _)| *id).collect();
            let surplus = ended.len().saturating_sub(REMEMBERED);
            ended.iter().take(surplus).for_each(|id| _ = cells.remove(id));
        }
    }

    /// Removes ended cells, the oldest first, until the logs of the others fit their budget. Those that a client reads stay.
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

    /// The memory of cells and templates, without cached file blocks, which are evicted for them.
    fn taken(&self) -> PageCount {
        PageCount(self.whole.0.saturating_sub((self.kernel.free() + self.kernel.registry().used).0))
    }

    fn told(&self) -> api::Server {
        api::Server {
            version: env!("CARGO_PKG_VERSION").into(),
            process: std::process::id(),
            templates: self.store.directory().display().to_string(),
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

/// A cell that a client waits for: dropping this, as when the client disconnects, terminates and removes it.
struct AttachedCell {
    service: Arc<Service>,
    cell: Arc<Cell>,
    /// The reader of all its output, if requested.
    reader: Option<Reader>,
    /// It continues without the client.
    is_released: bool,
}

impl AttachedCell {
    /// Lets it continue without the client.
    fn release(mut self) -> Arc<Cell> {
        self.is_released = true;
        Arc::clone(&self.cell)
    }
}

impl Drop for AttachedCell {
    fn drop(&mut self) {
        if !self.is_released {
            self.cell.signal(api::Signal::Kill);
            self.service.forget(self.cell.id);
        }
    }
}

/// Runs blocking work on another thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::server(error)))
}

/// Locks a mutex. Poisoning is ignored: the data is consistent at every step, even after a panic.
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
            panic!("docs/openapi.json is outdated: compare it with {}, and replace it", fresh.display());
        }
    }
}
