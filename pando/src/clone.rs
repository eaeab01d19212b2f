// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone`: programs that go on where a template stands.

mod crowd;
mod lines;

use crate::api::NewCell;
use crate::cli::{Connection, Limits};
use crate::client::{self, Client};
use crate::completion;
use crate::failure::Failure;
use crate::guard::RootGuard;
use crate::host::{self, Variable};
use crate::laps::Laps;
use crate::network::Network;
use crate::options::StatsFormat;
use crate::run::{self, Single};
use crate::size::Size;
use crate::template::{Found, Which};
use crate::{machine, say};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::ArgValueCandidates;
use pando_kernel::Kernel;
use pando_launch::{Calls, LaunchError, Program};
use pando_machine::PageCount;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What to clone, and what the clones are given.
#[derive(Debug, Args)]
pub(crate) struct Clone {
    /// Make so many clones
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,

    /// Let at most so many run at once
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) at_once: u32,

    /// Write what each clone says into files of this directory, N.out and N.err, instead of mixing it line by line
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Give the clone a variable, or pass on one of yours (repeat for more): it finds them in /proc/pando/environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    variables: Vec<Variable>,

    /// What the clone is called, as `hostname` tells [default: the template's name, with the clone's number where there are several]
    #[arg(long = "hostname", value_name = "NAME", conflicts_with_all = ["count", "output"], value_parser = crate::options::host_name)]
    host_name: Option<String>,

    /// Plug the clone into a network of `pando serve`, which is made if there is none of this name: those with the same name reach each other, and nobody else
    #[arg(long, value_name = "NAME", conflicts_with_all = ["output", "stats", "strace"], value_parser = crate::options::network_name)]
    network: Option<String>,

    #[command(flatten)]
    connection: Connection,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Say at the end, on standard error, what the clone did and what it took; with `=json` as one object
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    stats: Option<StatsFormat>,

    /// Print every system call of the clones with its arguments and its result on standard error, as strace does
    #[arg(long)]
    strace: bool,

    /// Let it run in `pando serve`, and print its number; with --count, as many
    #[arg(short = 'd', long, conflicts_with_all = ["at_once", "output", "stats", "strace"])]
    detach: bool,

    /// The template: a name, or a path to a file that has a slash
    #[arg(value_name = "TEMPLATE", add = ArgValueCandidates::new(completion::templates))]
    template: Which,

    /// What the clone is given: it finds them in /proc/pando/arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true)]
    words: Vec<OsString>,
}

impl Clone {
    /// The same as a request to `pando serve`; `None` where only this process can do it.
    fn asked_of_server(&self) -> Option<NewCell> {
        let Which::Kept(name) = &self.template else { return None };
        if self.strace || self.stats.is_some() || self.output.is_some() {
            return None;
        }
        // Of several, each has a name of its own.
        let host_name = if self.count == 1 { Some(name.to_string()) } else { None };
        Some(NewCell {
            network: self.network.clone(),
            allow: self.connection.allowed()?,
            host_name: self.host_name.clone().or(host_name),
            ..client::new_cell(name.to_string(), &self.words, host::given(&self.variables), &self.limits)?
        })
    }

    /// The words as a program, whose path and so on nobody asks for: it runs already.
    fn program(&self, memory: PageCount) -> Program {
        Program {
            arguments: self.words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: host::given(&self.variables),
            calls: Calls { trace: self.strace, trap: false },
            memory,
            ..Program::default()
        }
    }
}

/// A template that is ready to be cloned.
pub(crate) struct Ready {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) root: RootGuard,
    pub(crate) program: Program,
    pub(crate) found: Found,
}

/// Makes the clones, and returns the exit status that tells how they ended.
///
/// # Errors
/// There is no such template, or the host does not let it run.
pub(crate) fn clone(options: &Clone) -> Result<u8, Failure> {
    let is_single = options.count == 1 && options.output.is_none();
    let is_for_one = options.stats.is_some() || options.connection.is_some() || options.network.is_some();
    if !is_single && is_for_one && !options.detach {
        return Err(Failure::OneOnly);
    }
    let asked = options.asked_of_server();
    if options.detach || options.network.is_some() {
        let client = Client::need()?;
        client.server()?;
        let asked = asked.ok_or(Failure::Alone)?;
        return if options.detach { client::detach(&client, &asked, options.count) } else { client::visit(&client, &asked) };
    }
    if let (Some(asked), true) = (&asked, is_single)
        && let Some(status) = visit(asked)?
    {
        return Ok(status);
    }
    pando_confine::forbid_dumps()?;
    let mut laps = Laps::start();
    let found = Found::open(&options.template)?;
    let network = Network::prepare(&options.connection, found.name().as_ref(), false)?;
    let mut asked = found.find()?;
    asked.reach.ports = network.ports();
    if let Some(directory) = &options.output {
        let failed = |source| Failure::Templates { path: directory.clone(), source };
        std::fs::create_dir_all(directory).map_err(failed)?;
        asked.reach.change.push(directory.canonicalize().map_err(failed)?);
    }
    laps.end("view");
    let memory = options.limits.memory.map_or(found.memory(), |size| size.pages());
    // What all have together is what the host has to give; nobody reserves any of it.
    let arena = if is_single { memory } else { PageCount(host::memory().0 / 2).max(memory) };
    let kernel = Arc::new(machine::start(arena, &asked.reach, &mut laps)?);
    let root = found.load(&kernel, &mut asked)?;
    laps.end("template");
    let program = options.program(memory);
    let ready = Ready { kernel, root, program, found };
    let status = if is_single { single(options, &ready, asked, network, &mut laps) } else { crowd::run(options, &ready) };
    if let Some(complaint) = ready.found.complaint() {
        say::problem(&complaint);
    }
    status
}

/// Makes the clone in `pando serve`, where that runs and can. `None`: this process must.
fn visit(asked: &NewCell) -> Result<Option<u8>, Failure> {
    let Some(client) = Client::find()? else { return Ok(None) };
    match client.server() {
        Err(Failure::OtherTemplates { .. }) => return Ok(None),
        Err(failure) => return Err(failure),
        // Where it leads nobody out, this process does.
        Ok(server) if server.gateways == 0 && !asked.allow.is_empty() => return Ok(None),
        Ok(_) => {}
    }
    match client::visit(&client, asked) {
        // It sees less of the host than whoever made the template, or than it would if it had been started later.
        Err(Failure::Asked { problem, .. }) if matches!(&problem[..], "unusable-template" | "cannot-be-shown") => Ok(None),
        done => done.map(Some),
    }
}

/// One clone, with the streams of whoever asks.
fn single(options: &Clone, ready: &Ready, asked: crate::view::Asked, network: Network, laps: &mut Laps) -> Result<u8, Failure> {
    let cell = ready.program.prepare(&ready.kernel, &ready.root)?;
    options.limits.apply(&ready.kernel, cell)?;
    let host_name = options.host_name.as_deref().unwrap_or(ready.found.name());
    ready.kernel.set_host_name(cell, host_name).map_err(LaunchError::from)?;
    laps.end("cell");
    let name = ready.found.name().as_ref();
    let single = Single {
        name,
        terminal: false,
        timeout: options.limits.timeout,
        output: options.limits.output_limit.map(Size::in_bytes),
        // Clones have no way back to the host.
        written: 0,
        stats: options.stats,
        publish: &options.connection.publish,
    };
    run::finish(&single, &ready.kernel, cell, asked, network, laps)
}
