// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be typed.

use crate::client::{Exec, Kill, Logs};
use crate::clone::Clone;
use crate::completion;
use crate::help;
use crate::host::{self, Variable};
use crate::network::{Allowed, Net, NetParser};
use crate::options::{StatsFormat, User, Volume};
use crate::service::Serve;
use crate::size::Size;
use crate::templates;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::ArgValueCandidates;
use clap_complete::env::Shells;
use pando_gateway::Forward;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel, Share};
use pando_launch::LaunchError;
use pando_machine::PageCount;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What is opened where somebody asks for the world and does not say how much of it.
const PUBLIC: &str = "public";

/// Runs programs in cells: tiny virtual machines that are cloned in constant time.
#[derive(Debug, Parser)]
#[command(name = "pando", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a Linux program in a cell of its own
    #[command(after_help = help::after_help(), override_usage = "pando run [OPTIONS] PROGRAM [ARGS]...")]
    Run(Box<Run>),
    /// Go on where a template stands: in a fraction of the time that its program took to start, as often as you like
    #[command(override_usage = "pando clone [OPTIONS] TEMPLATE [ARGS]...")]
    Clone(Box<Clone>),
    /// Start programs once, to be cloned ever after
    Template {
        #[command(subcommand)]
        command: templates::Command,
    },
    /// Keep templates and cells in one process, for programs that ask at a socket (HTTP and JSON)
    Serve(Serve),
    /// List the cells of `pando serve`
    Ps {
        /// Those that have ended, too
        #[arg(short = 'a', long)]
        all: bool,
        /// Print their numbers alone
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Start another program in a cell of `pando serve`
    #[command(override_usage = "pando exec [OPTIONS] CELL PROGRAM [ARGS]...")]
    Exec(Exec),
    /// Print what a cell of `pando serve` said
    Logs(Logs),
    /// End cells of `pando serve`
    Kill(Kill),
    /// Say what `pando serve` has, or what one of its cells took
    Stats {
        /// The cell's number, which `pando ps` tells
        #[arg(value_name = "CELL", add = ArgValueCandidates::new(completion::all_cells))]
        cell: Option<u64>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make root images
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Look at this host and say whether and how Pando runs on it
    Doctor(Doctor),
    /// Measure Pando against the host, side by side in one run
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: `pando manual run | man -l -`
    Manual {
        /// The command that it is about; without, Pando as a whole
        command: Option<String>,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Give the program this terminal: every key reaches it, and it may draw on the whole window
    #[arg(short = 't', long = "tty")]
    pub(crate) terminal: bool,

    /// Accepted, and changes nothing: standard input is always connected
    #[arg(short = 'i', long = "interactive")]
    _interactive: bool,

    /// Accepted, and changes nothing: what the program writes is gone when it ends, except where -v shows it the host's files
    #[arg(long = "rm")]
    _remove: bool,

    /// Let it run in `pando serve`, and print the cell's number, for `pando logs`, `exec` and `kill`. It sees the host's software
    #[arg(short = 'd', long, conflicts_with_all = ["terminal", "stats", "strace", "trap_calls"])]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) seen: Seen,

    #[command(flatten)]
    pub(crate) connection: Connection,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// What the cell is called, as `hostname` tells [default: pando]
    #[arg(long = "hostname", visible_alias = "name", value_name = "NAME", value_parser = crate::options::host_name)]
    pub(crate) host_name: Option<String>,

    /// Let what `-v` shows grow by no more than this, sizes as `ls` shows them: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", default_value = "16G")]
    pub(crate) write_limit: Size,

    /// Say at the end, on standard error, what the cell did and what it took; with `=json` as one object
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    pub(crate) stats: Option<StatsFormat>,

    /// Print every system call of the program with its arguments and its result on standard error, as strace does
    #[arg(long)]
    pub(crate) strace: bool,

    /// Let every system call trap, instead of patching its place in the program: slow, for who looks for a fault in Pando
    #[arg(long)]
    pub(crate) trap_calls: bool,

    /// The program, a path or a name to look for in PATH, and its arguments: from the program on, nothing is an option of Pando's
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    words: Vec<OsString>,
}

/// What a program sees of the host.
#[derive(Clone, Debug, Args)]
pub(crate) struct Seen {
    /// Set a variable in the program's environment, or pass on one of yours (repeat for more). Without this it sees PATH, TERM, LANG, LC_* and TZ
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    pub(crate) variables: Vec<Variable>,

    /// Start in this directory of the cell [default: where you stand]
    #[arg(short = 'w', long = "workdir", value_name = "DIR", value_parser = OsStringValueParser::new().try_map(crate::options::directory))]
    pub(crate) directory: Option<PathBuf>,

    /// Be this user and group, by number; the group is that of the user's number if left out
    #[arg(short = 'u', long = "user", value_name = "UID[:GID]", default_value = "0:0")]
    pub(crate) user: User,

    /// See what this directory, tar archive or image holds, instead of the host's software
    #[arg(long, value_name = "DIR|TAR|IMAGE")]
    pub(crate) root: Option<PathBuf>,

    /// See nothing of the host but the program itself
    #[arg(long, conflicts_with = "root")]
    pub(crate) bare: bool,

    /// Show this file or directory of the host to the program at the path CELL (repeat for more). What the program changes there is changed on the host when it syncs or ends; with `:ro` never. A PATH alone is short for PATH:PATH:ro
    #[arg(short = 'v', long = "volume", value_name = "HOST:CELL[:ro]", value_parser = OsStringValueParser::new().try_map(Volume::parse))]
    pub(crate) volumes: Vec<Volume>,
}

impl Seen {
    /// Whether it is the host's software, with whatever variables.
    pub(crate) fn is_software(&self) -> bool {
        let Seen { variables: _, directory, user, root, bare, volumes } = self;
        directory.is_none() && *user == User::default() && root.is_none() && !bare && volumes.is_empty()
    }

    /// The host's software, and nothing besides.
    pub(crate) fn software() -> Seen {
        Seen { variables: Vec::new(), directory: None, user: User::default(), root: None, bare: false, volumes: Vec::new() }
    }
}

/// What a cell is connected with.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// What the cell is connected with: `none`; `private`, a network of its own, with nobody else on it; by a `gateway` the world outside; or `tap:NAME`, a TAP device of this host's [default: gateway where -p or --allow is given, otherwise none]. With `gateway` alone, every public address can be reached; none of private networks, none of this host's. Behind a device the cell is 10.77.0.2/16 and fd70:616e:646f::2/64, and its router 10.77.0.1 and fd70:616e:646f::1
    #[arg(long, value_name = "NET", value_parser = NetParser, hide_possible_values = true)]
    pub(crate) net: Option<Net>,

    /// Let others reach the port CELL of the cell at the port HOST of this host (repeat for more): at 127.0.0.1, or at ADDR (0.0.0.0 for everybody). It opens nothing outward
    #[arg(short = 'p', long = "publish", value_name = "[ADDR:]HOST:CELL[/udp]")]
    pub(crate) publish: Vec<Forward>,

    /// Let the cell reach this, and nothing that is not named so (repeat for more): `public` or `private` addresses, an address, a network (10.0.0.0/8), a name or all below one (*.example.org), `host` (this host's 127.0.0.1, at the gateway's address), `dns` (ask for any name); each with :PORT or for all
    #[arg(long, value_name = "WHERE[:PORT]")]
    pub(crate) allow: Vec<Allowed>,

    /// What the cell's link does to frames, each way: `rate=100M` (bits per second), `delay=20ms`, `jitter=5ms` (so much longer at random: frames overtake each other), `loss=1%`, `duplication=0.1%`; some of these, with commas between them
    #[arg(long, value_name = "FAULTS", value_parser = crate::network::link)]
    pub(crate) link: Option<Link>,

    /// Write every frame of the cell's network into this file, for tshark or Wireshark; it may be read while it grows
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

/// What a cell may take.
#[derive(Clone, Debug, Args)]
pub(crate) struct Limits {
    /// The most memory that the cell may have, tables included: bytes, or with K, M, G or T [default: a quarter of the host's]
    #[arg(short = 'm', long, value_name = "SIZE", allow_hyphen_values = true, value_parser = crate::options::memory)]
    pub(crate) memory: Option<Size>,

    /// The most of one core that the cell may use: a number from 0.001 to 1
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = crate::options::share)]
    pub(crate) cpus: Option<Share>,

    /// End the program once it has written more than this to its standard output and standard error together: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) output_limit: Option<Size>,

    /// End the program after this long: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::size::duration)]
    pub(crate) timeout: Option<Duration>,
}

impl Connection {
    /// Whether anything of it is wanted.
    pub(crate) fn is_some(&self) -> bool {
        let Connection { net, publish, allow, link, pcap } = self;
        net.is_some() || !publish.is_empty() || !allow.is_empty() || link.is_some() || pcap.is_some()
    }
}

impl Connection {
    /// What `pando serve` is to open of the world outside; `None`: it cannot connect a cell like this.
    pub(crate) fn allowed(&self) -> Option<Vec<String>> {
        if self.is_some() { self.way_out() } else { Some(Vec::new()) }
    }

    /// What of the world outside is opened, where nothing else is asked for: nothing if that is not all.
    fn way_out(&self) -> Option<Vec<String>> {
        let Connection { net, publish, allow, link, pcap } = self;
        if !publish.is_empty() || link.is_some() || pcap.is_some() {
            return None;
        }
        match net {
            None | Some(Net::Gateway) if !allow.is_empty() => Some(allow.iter().map(|allowed| allowed.text().into()).collect()),
            Some(Net::Gateway) => Some(vec![PUBLIC.into()]),
            _ => None,
        }
    }
}

impl Limits {
    /// Limits a cell's share of the CPU, where that is wanted.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn apply(&self, kernel: &Kernel, cell: CellId) -> Result<(), LaunchError> {
        Ok(self.cpus.map_or(Ok(()), |share| kernel.set_share(cell, share))?)
    }

    /// The memory that a cell may have.
    pub(crate) fn memory(&self) -> PageCount {
        self.memory.map_or(PageCount(host::memory().0 / 4), |size| size.pages())
    }
}

impl Run {
    /// The program as it was named.
    pub(crate) fn program(&self) -> &OsString {
        &self.words[0]
    }

    /// What it is given: its own name first.
    pub(crate) fn arguments(&self) -> &[OsString] {
        &self.words
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Write a root image, with all that is in it, to one file
    Build(BuildImage),
}

#[derive(Debug, Args)]
pub(crate) struct BuildImage {
    /// What shall be in it: a directory, a tar archive, or `-` for an archive on standard input
    #[arg(value_name = "DIR|TAR", required_unless_present = "host", conflicts_with = "host")]
    pub(crate) source: Option<PathBuf>,

    /// The host's software, as a cell without --root sees it
    #[arg(long)]
    pub(crate) host: bool,

    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Which: without a name, those there are
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(pando_bench::NAMES))]
    pub(crate) name: Option<String>,

    /// Seconds instead of minutes, at small sizes: shows that all works; the figures mean little
    #[arg(long)]
    pub(crate) brief: bool,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    /// Write plots of what has some (net) into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
}

/// Prints the completions that a shell loads.
///
/// # Errors
/// Nobody takes them.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> std::io::Result<()> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).ok_or(std::io::ErrorKind::Unsupported)?;
    // In one piece, or not at all.
    let mut text = Vec::new();
    completer.write_registration(completion::VARIABLE, "pando", "pando", "pando", &mut text)?;
    std::io::stdout().write_all(&text)
}

/// Prints the version, as `--version` does.
///
/// # Errors
/// Nobody takes it.
pub(crate) fn print_version() -> std::io::Result<()> {
    writeln!(std::io::stdout(), "pando {}", env!("CARGO_PKG_VERSION"))
}
