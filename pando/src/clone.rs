// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone`: programs that continue where a template was frozen.

mod batch;
mod lines;
mod service_clones;

use crate::api::NewCell;
use crate::arguments::{LimitOptions, NetworkOptions};
use crate::client;
use crate::completion;
use crate::connection::Client;
use crate::diagnostics;
use crate::environment::{self, Variable};
use crate::failure::Failure;
use crate::nested;
use crate::observer::TerminalObserver;
use crate::options::StatsFormat;
use crate::run::{self, SingleCell};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::ArgValueCandidates;
use pando_kernel::{CellId, Kernel};
use pando_launch::{Calls, Nesting, Program};
use pando_machine::PageCount;
use pando_manager::cell::CellSpec;
use pando_manager::limits::Limits;
use pando_manager::mounts::LiveMounts;
use pando_manager::network::PreparedNetwork;
use pando_manager::root::RootGuard;
use pando_manager::template::{OpenTemplate, TemplateRef, TemplateStore};
use pando_manager::timings::Timings;
use pando_manager::view::PreparedView;
use pando_manager::{host, machine};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of `pando clone`.
#[derive(Debug, Args)]
pub(crate) struct CloneOptions {
    /// Create N clones
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,

    /// Run at most N clones at once
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) at_once: u32,

    /// Write the output of each clone to files in this directory, N.out and N.err, instead of mixing the lines
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Set a variable for the clone, or pass on one of yours (repeatable): it reads them from /proc/pando/environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    variables: Vec<Variable>,

    /// Name the clone: in `pando serve`, `pando logs`, `exec` and `kill` accept the name, and no two living cells have the same
    #[arg(long, value_name = "NAME", conflicts_with_all = ["count", "output"], value_parser = crate::options::cell_name)]
    name: Option<String>,

    /// Set the clone's host name [default: its name, or the template's name, with the clone's number if there are several]
    #[arg(long = "hostname", value_name = "NAME", conflicts_with_all = ["count", "output"], value_parser = crate::options::host_name)]
    host_name: Option<String>,

    /// Label the clone (repeatable): `pando ps --filter label=NAME=VALUE` finds it
    #[arg(short = 'l', long = "label", value_name = "NAME[=VALUE]", requires = "detach", value_parser = crate::options::label)]
    labels: Vec<(String, String)>,

    /// Connect the clone to a network of `pando serve`, which is created if it does not exist: cells with the same network reach each
    /// other and nothing else
    #[arg(long, value_name = "NAME", conflicts_with_all = ["output", "stats", "strace"], value_parser = crate::options::network_name)]
    network: Option<String>,

    /// Let the clone have this many nested cells at a time, with all of theirs: `pando run` works inside. They share its limits, and see
    /// the files that the template saw at its start
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    nest: u32,

    #[command(flatten)]
    connection: NetworkOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    /// Print statistics of the clone on standard error when it ends; with `=json` as one object
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    stats: Option<StatsFormat>,

    /// Print every system call of the clones with its arguments and result on standard error, like strace
    #[arg(long)]
    strace: bool,

    /// Run in `pando serve`, and print the cell's number; with --count, one number per clone
    #[arg(short = 'd', long, conflicts_with_all = ["at_once", "output", "stats", "strace"])]
    detach: bool,

    /// With -d, start the clone again after its end: no, on-failure, on-failure:NUMBER (of restarts), always or unless-stopped. `pando
    /// kill` ends it for good
    #[arg(long, value_name = "POLICY", requires = "detach", value_parser = crate::options::restart_policy)]
    restart: Option<String>,

    /// The template: a name, or a path to a file that has a slash
    #[arg(value_name = "TEMPLATE", add = ArgValueCandidates::new(completion::templates))]
    template: TemplateRef,

    /// The clone's arguments: it reads them from /proc/pando/arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true)]
    words: Vec<OsString>,
}

impl CloneOptions {
    /// The options as a request to `pando serve`; `None` if the service does not support them.
    fn request(&self) -> Option<NewCell> {
        let TemplateRef::Stored(name) = &self.template else { return None };
        if self.strace || self.stats.is_some() {
            return None;
        }
        // Of several clones, each has its own name.
        let host_name = if self.count == 1 { Some(name.to_string()) } else { None };
        Some(NewCell {
            network: self.network.clone(),
            allow: self.connection.allowed()?,
            publish: self.connection.published(),
            labels: self.labels.iter().cloned().collect(),
            nest: self.nest,
            restart: self.restart.clone(),
            name: self.name.clone(),
            host_name: self.host_name.as_ref().or(self.name.as_ref()).cloned().or(host_name),
            ..client::new_cell(name.to_string(), &self.words, environment::given(&self.variables), &self.limits)?
        })
    }

    /// Creates the directory of `--output`, and returns its path without links.
    fn create_output_directory(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(directory) = &self.output else { return Ok(None) };
        let created = std::fs::create_dir_all(directory).and_then(|()| directory.canonicalize());
        created.map(Some).map_err(|source| Failure::File { path: directory.clone(), source })
    }

    /// The first option that a clone in a cell, which is made by a service, does not support.
    fn unsupported_inside(&self) -> Option<&'static str> {
        let options = [
            (matches!(self.template, TemplateRef::File(_)), "a template's file"),
            (self.stats.is_some(), "--stats"),
            (self.strace, "--strace"),
            (self.connection.is_some(), "the network options"),
        ];
        options.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// The clones, without host names. Their nested cells are cloned from `nesting_root`.
    fn spec(&self, memory: PageCount, nesting_root: Option<CellId>) -> CellSpec {
        let nesting = NonZeroU32::new(self.nest).zip(nesting_root);
        let program = Program {
            arguments: self.words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: environment::given(&self.variables),
            calls: Calls { trace: self.strace, trap: false },
            memory,
            nesting: nesting.map(|(descendants, root)| Nesting { descendants, root }),
            ..Program::default()
        };
        CellSpec { program, limits: Limits::from(&self.limits), host_name: None }
    }
}

/// A template that is ready to be cloned.
pub(crate) struct ReadyTemplate {
    /// The kernel.
    pub(crate) kernel: Arc<Kernel>,
    /// The root of the clones' nested cells, if they may have any. It is dropped before the template whose disks it uses.
    _nesting_root: Option<RootGuard>,
    /// The loaded template.
    pub(crate) root: RootGuard,
    /// The clones, without host names.
    pub(crate) spec: CellSpec,
    /// The template's file.
    pub(crate) template: OpenTemplate,
}

/// Creates the clones. Returns the exit status.
///
/// # Errors
/// There is no such template, or the host cannot run it.
pub(crate) fn clone(options: &CloneOptions) -> Result<u8, Failure> {
    let is_single = options.count == 1 && options.output.is_none();
    let is_for_one = options.stats.is_some() || options.connection.is_some() || options.network.is_some();
    if !is_single && is_for_one && !options.detach {
        return Err(Failure::OneOnly);
    }
    let request = options.request();
    if options.detach || options.network.is_some() {
        let client = Client::find_or_fail()?;
        client.server()?;
        let request = request.ok_or(Failure::NotInService)?;
        return if options.detach {
            client::run_detached(&client, &request, options.count, false)
        } else {
            client::run_attached(&client, &request)
        };
    }
    // This process announces the ports of a clone that it waits for.
    if let (Some(request), true) = (&request, is_single)
        && request.publish.is_empty()
        && let Some(status) = run_in_service(request)?
    {
        return Ok(status);
    }
    if nested::device()?.is_some() {
        if let Some(option) = options.unsupported_inside() {
            return Err(Failure::NotInside(option));
        }
        let client = Client::find_or_fail()?;
        client.server()?;
        options.create_output_directory()?;
        return service_clones::run(options, &client, &request.ok_or(Failure::NotInService)?);
    }
    pando_confine::forbid_dumps()?;
    let mut timings = Timings::start();
    let caller = environment::caller();
    let template = TemplateStore::of(&caller)?.open(&options.template)?;
    let observer = TerminalObserver::deferring(false);
    let network = run::prepare_network(&options.connection, template.name().as_ref(), &observer)?;
    let mut view = template.find(&caller)?;
    view.visible.change.extend(options.create_output_directory()?);
    timings.end("view");
    let memory = options.limits.memory.map_or(template.memory(), |size| size.pages());
    // All clones together may use half of the host's memory; it is not reserved.
    let arena = if is_single { memory } else { PageCount(host::memory().0 / 2).max(memory) };
    let kernel = Arc::new(machine::start(arena, machine::vcpus_for_many_cells(), is_single, &view.visible, &mut timings)?);
    let root = template.load(&kernel, &mut view)?;
    timings.end("template");
    let nesting_root = if options.nest > 0 { Some(machine::nesting_root(&kernel, &root, &mut timings)?) } else { None };
    let spec = options.spec(memory, nesting_root.as_ref().map(|root| root.cell()));
    let ready = ReadyTemplate { kernel, _nesting_root: nesting_root, root, spec, template };
    let status = if is_single { single(options, &ready, view, (network, &observer), &mut timings) } else { batch::run(options, &ready) };
    if let Some(last_error) = ready.template.last_error() {
        diagnostics::print_error(&last_error);
    }
    status
}

/// Creates the clone in `pando serve`, if that runs and supports the request. Returns `None` if this process must create it.
fn run_in_service(request: &NewCell) -> Result<Option<u8>, Failure> {
    let Some(client) = Client::find()? else { return Ok(None) };
    match client.server() {
        Err(Failure::OtherTemplates { .. }) => return Ok(None),
        Err(failure) => return Err(failure),
        // A service without gateways cannot connect it; this process can.
        Ok(server) if server.gateways == 0 && !request.allow.is_empty() => return Ok(None),
        Ok(_) => {}
    }
    match client::run_attached(&client, request) {
        // The service may see less of the host than the template's creator, or an older state of it.
        Err(Failure::Refused { problem, .. }) if matches!(&problem[..], "unusable-template" | "cannot-be-shown") => Ok(None),
        done => done.map(Some),
    }
}

/// Runs one clone with the streams of this process.
fn single(
    options: &CloneOptions,
    ready: &ReadyTemplate,
    view: PreparedView,
    (network, observer): (PreparedNetwork, &TerminalObserver),
    timings: &mut Timings,
) -> Result<u8, Failure> {
    let host_name = options.host_name.as_deref().or(options.name.as_deref()).unwrap_or(ready.template.name());
    let spec = CellSpec { host_name: Some(host_name.into()), ..ready.spec.clone() };
    let cell = spec.create(Arc::<Kernel>::clone(&ready.kernel), &ready.root)?;
    timings.end("cell");
    let name = ready.template.name().as_ref();
    let single = SingleCell {
        name,
        terminal: false,
        limits: spec.limits,
        // Clones write nothing back to the host.
        write_limit: 0,
        stats: options.stats,
        publish: &options.connection.forwards(),
        observer,
        start: None,
    };
    run::start_and_wait(&single, &ready.kernel, cell, (view, LiveMounts::default()), network, timings)
}
