// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line's grammar.

use crate::client::{Exec, Kill, Logs};
use crate::clone::Clone;
use crate::completion;
use crate::environment::{self, Variable};
use crate::failure::Failure;
use crate::help;
use crate::network_options::{AllowRule, Net, NetParser};
use crate::options::StatsFormat;
use crate::service::Serve;
use crate::size::Size;
use crate::templates;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::ArgValueCandidates;
use clap_complete::env::Shells;
use pando_gateway::{PortForward, Rule};
use pando_kernel::Share;
use pando_kernel::network::link::Link;
use pando_manager::limits::Limits;
use pando_manager::network::{NetworkSpec, UplinkSpec};
use pando_manager::view::{User, ViewSpec, VolumeSpec};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The rule of `--net gateway` without `--allow`.
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
    /// Clone a template: its program continues where it was frozen, without starting again
    #[command(override_usage = "pando clone [OPTIONS] TEMPLATE [ARGS]...")]
    Clone(Box<Clone>),
    /// Create and manage templates: started programs to be cloned
    Template {
        #[command(subcommand)]
        command: templates::Command,
    },
    /// Serve templates and cells to programs on a Unix socket (HTTP and JSON)
    Serve(Serve),
    /// List the cells of `pando serve`
    Ps {
        /// Include cells that have ended
        #[arg(short = 'a', long)]
        all: bool,
        /// Print only the cells' numbers
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Start another program in a cell of `pando serve`
    #[command(override_usage = "pando exec [OPTIONS] CELL PROGRAM [ARGS]...")]
    Exec(Exec),
    /// Print the output of a cell of `pando serve`
    Logs(Logs),
    /// Terminate cells of `pando serve`
    Kill(Kill),
    /// Print the state of `pando serve`, or what one of its cells used
    Stats {
        /// The cell's number, as in `pando ps`
        #[arg(value_name = "CELL", add = ArgValueCandidates::new(completion::all_cells))]
        cell: Option<u64>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Build root images
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Check whether and how Pando runs on this host
    Doctor(Doctor),
    /// Measure Pando against the host, side by side in one run
    Bench(Bench),
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: `pando manual run | man -l -`
    Manual {
        /// The command [default: Pando as a whole]
        command: Option<String>,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Connect the program to this terminal in raw mode: it receives every key and may draw on the whole window
    #[arg(short = 't', long = "tty")]
    pub(crate) terminal: bool,

    /// No effect: standard input is always connected
    #[arg(short = 'i', long = "interactive")]
    _interactive: bool,

    /// No effect: a cell's files are always removed when it ends, except those of the host that -v shows
    #[arg(long = "rm")]
    _remove: bool,

    /// Run in `pando serve`, and print the cell's number, for `pando logs`, `exec` and `kill`. The program sees the host's software
    #[arg(short = 'd', long, conflicts_with_all = ["terminal", "stats", "strace", "trap_calls"])]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) view: ViewOptions,

    #[command(flatten)]
    pub(crate) network: NetworkOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    /// Set the cell's host name [default: pando]
    #[arg(long = "hostname", visible_alias = "name", value_name = "NAME", value_parser = crate::options::host_name)]
    pub(crate) host_name: Option<String>,

    /// Limit the growth of the directories that `-v` shows, in sizes as `ls` shows them: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", default_value = "16G")]
    pub(crate) write_limit: Size,

    /// Print statistics of the cell on standard error when it ends; with `=json` as one object
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    pub(crate) stats: Option<StatsFormat>,

    /// Print every system call of the program with its arguments and result on standard error, like strace
    #[arg(long)]
    pub(crate) strace: bool,

    /// Trap every system call instead of patching its instruction: slow, for debugging Pando
    #[arg(long)]
    pub(crate) trap_calls: bool,

    /// The program (a path, or a name to find in PATH) and its arguments. Options after the program belong to it
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    words: Vec<OsString>,
}

/// Options for the files and the environment that a program sees.
#[derive(Clone, Debug, Args)]
pub(crate) struct ViewOptions {
    /// Set a variable in the program's environment, or pass on one of yours (repeatable). PATH, TERM, LANG, LC_* and TZ are always passed
    /// on
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    pub(crate) variables: Vec<Variable>,

    /// Set the working directory in the cell [default: the current directory]
    #[arg(short = 'w', long = "workdir", value_name = "DIR", value_parser = OsStringValueParser::new().try_map(crate::options::directory))]
    pub(crate) directory: Option<PathBuf>,

    /// Run as this user and group, by number; without GID, the group has the user's number
    #[arg(short = 'u', long = "user", value_name = "UID[:GID]", default_value = "0:0", value_parser = crate::options::user)]
    pub(crate) user: User,

    /// Use this directory, tar archive or image as root instead of the host's software
    #[arg(long, value_name = "DIR|TAR|IMAGE")]
    pub(crate) root: Option<PathBuf>,

    /// Show nothing of the host but the program itself
    #[arg(long, conflicts_with = "root")]
    pub(crate) bare: bool,

    /// Show a file or directory of the host at the path CELL (repeatable). The program's changes are written to the host when it syncs or
    /// ends; never with `:ro`. PATH alone is short for PATH:PATH:ro
    #[arg(short = 'v', long = "volume", value_name = "HOST:CELL[:ro]", value_parser = OsStringValueParser::new().try_map(crate::options::volume))]
    pub(crate) volumes: Vec<VolumeSpec>,
}

impl From<&ViewOptions> for ViewSpec {
    fn from(options: &ViewOptions) -> ViewSpec {
        let ViewOptions { variables, directory, user, root, bare, volumes } = options.clone();
        ViewSpec { variables: environment::values(&variables).collect(), directory, user, root, bare, volumes }
    }
}

/// Options for a cell's network.
#[derive(Clone, Debug, Args)]
pub(crate) struct NetworkOptions {
    /// Connect the cell to a network: `none`; `private`, a network of its own without other hosts; `gateway`, the host's networks through
    /// a proxy; or `tap:NAME`, a TAP device of this host [default: gateway with -p or --allow, otherwise none]. `gateway` alone allows
    /// every public address, but no private networks and not this host. On a TAP device the cell is 10.77.0.2/16 and
    /// fd70:616e:646f::2/64, and its router 10.77.0.1 and fd70:616e:646f::1
    #[arg(long, value_name = "NET", value_parser = NetParser, hide_possible_values = true)]
    pub(crate) net: Option<Net>,

    /// Publish the cell's port CELL at this host's port HOST (repeatable): at 127.0.0.1, or at ADDR (0.0.0.0 for all interfaces). It
    /// allows no outgoing connections
    #[arg(short = 'p', long = "publish", value_name = "[ADDR:]HOST:CELL[/udp]")]
    pub(crate) publish: Vec<PortForward>,

    /// Allow the cell to reach only the named destinations (repeatable): `public` or `private` addresses, an address, a network
    /// (10.0.0.0/8), a name or all below one (*.example.org), `host` (this host's 127.0.0.1, at the gateway's address), `dns` (resolve
    /// any name); each with :PORT or for all ports
    #[arg(long, value_name = "WHERE[:PORT]")]
    pub(crate) allow: Vec<AllowRule>,

    /// Emulate a link, in each direction: `rate=100M` (bits per second), `delay=20ms`, `jitter=5ms` (random extra delay: frames may be
    /// reordered), `loss=1%`, `duplication=0.1%`; separate several with commas
    #[arg(long, value_name = "FAULTS", value_parser = crate::network_options::link)]
    pub(crate) link: Option<Link>,

    /// Capture every frame of the cell's network into this file, for tshark or Wireshark; it can be read while it grows
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

/// Options for a cell's resource limits.
#[derive(Clone, Debug, Args)]
pub(crate) struct LimitOptions {
    /// Limit the cell's memory, tables included: bytes, or with K, M, G or T [default: a quarter of the host's]
    #[arg(short = 'm', long, value_name = "SIZE", allow_hyphen_values = true, value_parser = crate::options::memory)]
    pub(crate) memory: Option<Size>,

    /// Limit the cell to a share of one core: a number from 0.001 to 1
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = crate::options::share)]
    pub(crate) cpus: Option<Share>,

    /// Terminate the program when its standard output and standard error together exceed this: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) output_limit: Option<Size>,

    /// Terminate the program after this time: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::size::duration)]
    pub(crate) timeout: Option<Duration>,
}

impl NetworkOptions {
    /// Whether any network option is given.
    pub(crate) fn is_some(&self) -> bool {
        let NetworkOptions { net, publish, allow, link, pcap } = self;
        net.is_some() || !publish.is_empty() || !allow.is_empty() || link.is_some() || pcap.is_some()
    }

    /// The rules for `pando serve`; `None`: the service cannot connect a cell like this.
    pub(crate) fn allowed(&self) -> Option<Vec<String>> {
        if self.is_some() { self.gateway_rules() } else { Some(Vec::new()) }
    }

    /// The rules if no other option than `--net gateway` and `--allow` is given; otherwise `None`.
    fn gateway_rules(&self) -> Option<Vec<String>> {
        let NetworkOptions { net, publish, allow, link, pcap } = self;
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

impl TryFrom<&NetworkOptions> for NetworkSpec {
    type Error = Failure;

    /// Fails if the options contradict each other.
    fn try_from(options: &NetworkOptions) -> Result<NetworkSpec, Failure> {
        let NetworkOptions { net, publish, allow, link, pcap } = options;
        let uplink = match (net, publish.is_empty() && allow.is_empty()) {
            (Some(Net::None), true) | (None, true) => UplinkSpec::None,
            (Some(Net::Private), true) => UplinkSpec::Private,
            (Some(Net::Tap(name)), true) => UplinkSpec::Tap(name.clone()),
            (Some(Net::None | Net::Private | Net::Tap(_)), false) => return Err(Failure::NoGateway),
            (Some(Net::Gateway) | None, _) => {
                // `--net gateway` alone allows public addresses; `-p` alone allows no outgoing connections.
                let is_public = allow.is_empty() && net.is_some();
                let rules = if is_public { vec![Rule::PUBLIC] } else { allow.iter().map(AllowRule::rule).collect() };
                UplinkSpec::Gateway { rules, forwards: publish.clone() }
            }
        };
        let without = match (&uplink, link, pcap) {
            (UplinkSpec::None, Some(_), _) => Some("--link"),
            (UplinkSpec::None, None, Some(_)) => Some("--pcap"),
            _ => None,
        };
        match without {
            Some(option) => Err(Failure::NoNetwork(option)),
            None => Ok(NetworkSpec { uplink, link: link.unwrap_or_default(), capture: pcap.clone() }),
        }
    }
}

impl From<&LimitOptions> for Limits {
    fn from(options: &LimitOptions) -> Limits {
        let LimitOptions { memory, cpus, output_limit, timeout } = *options;
        Limits { memory: memory.map(Size::pages), share: cpus, output: output_limit.map(Size::in_bytes), time: timeout }
    }
}

impl Run {
    /// The program as the command line names it.
    pub(crate) fn program(&self) -> &OsString {
        &self.words[0]
    }

    /// Its arguments, its own name first.
    pub(crate) fn arguments(&self) -> &[OsString] {
        &self.words
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Write a root image, with all its content, to one file
    Build(BuildImage),
}

#[derive(Debug, Args)]
pub(crate) struct BuildImage {
    /// The content: a directory, a tar archive, or `-` for an archive on standard input
    #[arg(value_name = "DIR|TAR", required_unless_present = "host", conflicts_with = "host")]
    pub(crate) source: Option<PathBuf>,

    /// Use the host's software, as a cell without --root sees it
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
    /// The benchmark [default: list all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(pando_bench::NAMES))]
    pub(crate) name: Option<String>,

    /// Run for seconds instead of minutes, at small sizes: checks that everything works; the figures mean little
    #[arg(long)]
    pub(crate) brief: bool,

    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the plots (of net) into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
}

/// Prints the completion script that a shell loads.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> std::io::Result<()> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).ok_or(std::io::ErrorKind::Unsupported)?;
    // In one write, so that no part of it arrives alone.
    let mut text = Vec::new();
    completer.write_registration(completion::VARIABLE, "pando", "pando", "pando", &mut text)?;
    std::io::stdout().write_all(&text)
}

/// Prints the version, as `--version` does.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_version() -> std::io::Result<()> {
    writeln!(std::io::stdout(), "pando {}", env!("CARGO_PKG_VERSION"))
}
