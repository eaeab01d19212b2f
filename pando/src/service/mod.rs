// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve`: one kernel process with templates and cells, for clients of its socket.
//!
//! [`api`](crate::api) defines the protocol, and [`pando_manager::cells`] does the work; this module translates. The directory of
//! templates is authoritative and shared with every other command. All threads are started before the process confines itself: those
//! that answer, and those for blocking work.

mod connections;
mod control;
mod debugger;
mod jobs;
mod problem;
mod program_routes;
mod prometheus;
mod queries;
mod request;
mod revocable_body;
mod routes;
mod streams;
mod token_routes;
mod tokens;
mod watch;

use crate::failure::Failure;
use crate::size::Size;
use crate::{diagnostics, environment, nested, socket};
use axum::routing::get;
use axum::{Extension, Router};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use pando_confine::SyscallGroups;
use pando_gateway::VirtualHosts;
use pando_machine::{CellsDevice, PageCount};
use pando_manager::cells::{Manager, ManagerConfig, PreparedGateways, SwapConfig};
use pando_manager::descriptors::Descriptors;
use pando_manager::template::{TemplateStore, create_private_directory};
use pando_manager::{host, machine};
use problem::Problem;
use routes::ControlAddress;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tokens::Tokens;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use utoipa_axum::router::OpenApiRouter;

/// Threads that answer.
const ANSWERING: usize = 2;
/// Threads that load templates and clone them, and those of debuggers.
const BLOCKING: usize = 16 + debugger::DEBUGGERS;
/// Connections of clients with a token, a quarter of all at most. The others are those of the socket's owner.
const CONTROL_CONNECTIONS: usize = 64;

/// Options of `pando serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Listen on this socket [default: $PANDO_SOCKET, or pando/socket in $XDG_RUNTIME_DIR, or run/socket beside the templates]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Limit the memory of all cells together [default: half of the host's]; their logged output may take another eighth of it, at least
    /// 64 MiB. If the host or the service's cgroup has less memory left, cells get less: idle ones sleep
    #[arg(long, value_name = "SIZE", value_parser = crate::options::memory)]
    pub(crate) memory: Option<Size>,

    /// Let templates and cells of this service see this directory of the host (repeatable), in addition to the host's software, the
    /// container images, and what existing templates see
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().try_map(|path| host::absolute(path.as_ref()).map_err(|error| host::plain(&error))))]
    show: Vec<PathBuf>,

    /// Start N gateway processes, one for each clone with --allow or --net at a time. The service itself makes no connections
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(..=1024))]
    gateways: u16,

    /// Route connections to this address to the cells published by name (`--publish 80`): a request for
    /// `http://NAME.cells.localhost:8080/`, or a TLS connection to this name, reaches the cell of that name or number. 127.0.0.1:8080
    /// for this host, 0.0.0.0:80 for all interfaces
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,

    /// The domain of the cells' names for --listen: its names and all names below it must lead to that address
    #[arg(long, value_name = "DOMAIN", default_value = "cells.localhost", requires = "listen", value_parser = crate::options::domain)]
    domain: String,

    /// Listen at this address of the loopback interface for clients with a token (`pando token create`): a cell with
    /// `--allow host:PORT`, such as one with a server for remote shells
    #[arg(long, value_name = "ADDR:PORT", value_parser = loopback)]
    control: Option<SocketAddr>,

    /// Keep the memory of sleeping cells in an unlinked file of SIZE in this directory (repeatable) [default: compressed in memory, up to
    /// an eighth of --memory]
    #[arg(long, value_name = "DIR:SIZE", value_parser = OsStringValueParser::new().try_map(crate::options::swap))]
    swap: Vec<(PathBuf, Size)>,

    /// Put a cell to sleep when it has been idle for this long and will be idle for more than 2 s: 30s, 5m [default: only on
    /// `pando sleep`, or when memory is short]
    #[arg(long, value_name = "TIME", value_parser = crate::size::duration)]
    sleep_after: Option<Duration>,

    /// End with the process that has started this one, which has this ID
    #[arg(long, hide = true, value_name = "PROCESS")]
    end_with_parent: Option<u32>,
}

/// Serves until a signal stops it.
///
/// # Errors
/// There is no KVM, or the socket cannot be opened.
pub(crate) fn serve(options: &ServeOptions) -> Result<u8, Failure> {
    if let Some(parent) = options.end_with_parent {
        set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| Failure::Signals(error.into()))?;
        // It may have ended before.
        if getppid().map(|process| process.as_raw_nonzero().get()) != i32::try_from(parent).ok() {
            return Ok(0);
        }
    }
    if let Some(device) = nested::device()? {
        return serve_inside(options, device);
    }
    pando_confine::forbid_dumps()?;
    for path in &options.show {
        std::fs::read_dir(path).map_err(|source| Failure::ShowDirectory { path: path.clone(), source })?;
    }
    let descriptors = Descriptors::divide();
    descriptors.check_service()?;
    let control = options.control.map(ControlSocket::open).transpose()?;
    // Taken first: the processes of gateways do not keep it.
    let inherited = if options.socket.is_none() { socket::inherited()? } else { None };
    // Started while there is one thread, and no resource that another process should not have.
    let virtual_hosts = options.listen.map(|address| VirtualHosts { address, domain: options.domain.clone() });
    let gateways = PreparedGateways::start(options.gateways.into(), virtual_hosts, descriptors).map_err(Failure::Network)?;
    let environment = environment::caller();
    let store = TemplateStore::of(&environment)?;
    store.create_directory()?;
    let socket = ServiceSocket::open(options, inherited)?;
    // It takes some milliseconds, so a process that runs one program does without it: no call that it keeps reaches any of these.
    match pando_machine::unshare_namespaces() {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(Failure::Namespaces(error)),
        // `pando doctor` reports that.
        _ => {}
    }
    let config = ManagerConfig {
        environment,
        store,
        memory: options.memory.map_or(PageCount(host::memory().0 / 2), Size::pages),
        shown: options.show.clone(),
        writable: socket.own_directory.iter().cloned().collect(),
        descriptors,
        swap: SwapConfig {
            directories: options.swap.iter().map(|(directory, size)| (directory.clone(), size.pages().bytes())).collect(),
            sleep_after: options.sleep_after,
            sleeps_when_idle: environment::sleeps_when_idle(),
        },
    };
    let manager = Manager::start(config, gateways)?;
    let receiving = options.gateways > 0 || options.listen.is_some();
    let needs = SyscallGroups { writing_back: true, serving: true, receiving, ..SyscallGroups::default() };
    serve_until_signal(manager, (socket, control), descriptors.connections, Some(needs))
}

/// Serves in a cell, which confines the process already.
fn serve_inside(options: &ServeOptions, device: CellsDevice) -> Result<u8, Failure> {
    let refused = [
        (!options.show.is_empty(), "--show"),
        (options.gateways > 0, "--gateways"),
        (options.listen.is_some(), "--listen"),
        (options.control.is_some(), "--control"),
        (!options.swap.is_empty(), "--swap"),
        (options.sleep_after.is_some(), "--sleep-after"),
    ];
    if let Some((_, option)) = refused.into_iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::NotInside(option));
    }
    let descriptors = Descriptors::divide();
    descriptors.check_service()?;
    let environment = environment::caller();
    // No files are stored there. Its path tells clients that the service is theirs.
    let store = TemplateStore::of(&environment)?;
    let inherited = if options.socket.is_none() { socket::inherited()? } else { None };
    let socket = ServiceSocket::open(options, inherited)?;
    let memory = options.memory.map_or_else(host::memory, Size::pages);
    let config =
        ManagerConfig { environment, store, memory, shown: Vec::new(), writable: Vec::new(), descriptors, swap: SwapConfig::default() };
    serve_until_signal(Manager::start_nested(device, config)?, (socket, None), descriptors.connections, None)
}

/// Answers requests until a signal comes, on at most `connections` at a time. Limits the process to the system calls that it needs.
fn serve_until_signal(
    manager: Manager,
    (socket, control): (ServiceSocket, Option<ControlSocket>),
    connections: usize,
    needs: Option<SyscallGroups>,
) -> Result<u8, Failure> {
    let ServiceSocket { listener, path, is_inherited, .. } = socket;
    let (manager, tokens) = (Arc::new(manager), Arc::<Tokens>::default());
    let address = control.as_ref().map(|control| control.address);
    let runtime = runtime().map_err(Failure::Thread)?;
    let listening = manager.summary().listening;
    let served = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let control = control.map(|control| tokio::net::TcpListener::from_std(control.listener)).transpose()?;
        let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        needs.map_or(Ok(()), machine::install_seccomp_filter)?;
        diagnostics::print_notice(&format_args!("serving at {}", path.display()));
        if let Some(VirtualHosts { address, domain }) = listening {
            diagnostics::print_notice(&format_args!("cells with a port published by name are at http://NAME.{domain}:{}/", address.port()));
        }
        if let Some(address) = address {
            diagnostics::print_notice(&format_args!("clients with a token are served at {address} (PANDO_HOST=tcp://{address})"));
        }
        let routes = router(Arc::clone(&manager), Arc::clone(&tokens), ControlAddress(address));
        let for_tokens = control::router(routes.clone(), manager, tokens);
        let of_control = control.as_ref().map_or(0, |_| CONTROL_CONNECTIONS.min(connections / 4));
        let controlled = async move {
            match control {
                Some(control) => connections::serve_token_clients(control, for_tokens, of_control).await,
                None => std::future::pending().await,
            }
        };
        let stopped = async move {
            tokio::select! { _ = terminated.recv() => {}, _ = interrupted.recv() => {} };
        };
        // Cells end with the process, and so do requests that wait for them.
        tokio::select! {
            served = connections::serve_clients(listener, routes, connections - of_control) => served,
            served = controlled => served,
            () = stopped => Ok(()),
        }
        .map_err(Failure::Print)
    });
    // A leftover socket is harmless: clients report that no server runs. The service manager keeps its own.
    if !is_inherited {
        let _ = std::fs::remove_file(&path);
    }
    runtime.shutdown_background();
    served.map(|()| 0)
}

/// The socket on which the service listens.
struct ServiceSocket {
    listener: UnixListener,
    path: PathBuf,
    /// The directory of the default socket. It is writable, to remove the socket at the end. A directory given with `--socket` may hold
    /// other files: the next service replaces a leftover socket there.
    own_directory: Option<PathBuf>,
    /// The service manager opened it, and keeps it.
    is_inherited: bool,
}

impl ServiceSocket {
    /// Takes the inherited socket, or listens on that of the options or on the default one.
    fn open(options: &ServeOptions, inherited: Option<(UnixListener, PathBuf)>) -> Result<ServiceSocket, Failure> {
        if let Some((listener, path)) = inherited {
            return Ok(ServiceSocket { listener, path, own_directory: None, is_inherited: true });
        }
        let named = options.socket.clone().map_or_else(socket::named, |socket| Ok(Some(socket)))?;
        let own = named.is_none();
        let path = named.map_or_else(socket::default_path, Ok)?;
        let own_directory = path.parent().filter(|_| own).map(PathBuf::from);
        if let Some(directory) = &own_directory {
            create_private_directory(directory).map_err(|source| Failure::Socket { path: directory.clone(), source })?;
        }
        Ok(ServiceSocket { listener: socket::listen(&path)?, path, own_directory, is_inherited: false })
    }
}

/// The socket at which the service listens for clients with a token.
struct ControlSocket {
    listener: TcpListener,
    address: SocketAddr,
}

impl ControlSocket {
    fn open(address: SocketAddr) -> Result<ControlSocket, Failure> {
        let opened = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(ControlSocket { address: listener.local_addr()?, listener })
        };
        opened().map_err(|source| Failure::Control { address, source })
    }
}

/// Parses an address of the loopback interface: tokens are sent in the clear.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| format!("`{text}` is not an address: give ADDR:PORT, such as 127.0.0.1:9000"))?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!(
        "{} is not an address of the loopback interface, and tokens are not encrypted: give 127.0.0.1:{}",
        address.ip(),
        address.port()
    ))
}

/// All routes, with their description at `/v1/openapi.json`.
fn router(manager: Arc<Manager>, tokens: Arc<Tokens>, control: ControlAddress) -> Router {
    let (router, description) = OpenApiRouter::split_for_parts(routes::router());
    let description = description.to_json().unwrap_or_default();
    let described = move || async move { ([("content-type", "application/json")], description) };
    let router = router.route("/v1/openapi.json", get(described)).with_state(manager).layer(Extension(tokens)).layer(Extension(control));
    router.layer(axum::middleware::map_response(problem::convert_errors))
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

/// Runs blocking work on another thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::server(error)))
}

#[cfg(test)]
mod tests {
    use super::routes;

    #[test]
    fn the_description_in_the_repository_matches_the_served_one() {
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
