// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `pando run`, and the groups of options that several commands share, with their translation to specifications.

use crate::completion;
use crate::environment::{self, Variable, VariableFile};
use crate::failure::Failure;
use crate::network_options::{AllowRule, Net, NetParser};
use crate::options::StatsFormat;
use crate::size::Size;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use clap_complete::ArgValueCandidates;
use pando_gateway::{PortForward, Protocol, Publication, Rule};
use pando_kernel::network::link::Link;
use pando_kernel::{CpuLimit, Weight};
use pando_manager::limits::Limits;
use pando_manager::network::{NetworkSpec, UplinkSpec};
use pando_manager::view::{ImageSpec, UserName, ViewSpec, VolumeSpec};
use pando_oci::ExposedPort;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// The rule of `--net gateway` without `--allow`.
const PUBLIC: &str = "public";

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Connect the program to this terminal in raw mode: it receives every key and may draw on the whole window
    #[arg(short = 't', long = "tty")]
    pub(crate) terminal: bool,

    /// With -d, keep the program's standard input open for `pando attach`. Without -d no effect: standard input is always connected
    #[arg(short = 'i', long = "interactive")]
    pub(crate) interactive: bool,

    /// No effect: a cell's files are always removed when it ends, except those of the host that -v shows
    #[arg(long = "rm")]
    _remove: bool,

    /// Run in `pando serve`, and print the cell's number, for `pando logs`, `exec` and `kill`. The program cannot write to the host
    #[arg(short = 'd', long, conflicts_with_all = ["terminal", "stats", "strace", "trap_calls"])]
    pub(crate) detach: bool,

    /// With -d, start the program again after its end: no, on-failure, on-failure:NUMBER (of restarts), always or unless-stopped. `pando
    /// kill` ends it for good
    #[arg(long, value_name = "POLICY", requires = "detach", value_parser = crate::options::restart_policy)]
    pub(crate) restart: Option<String>,

    #[command(flatten)]
    pub(crate) view: ViewOptions,

    #[command(flatten)]
    pub(crate) network: NetworkOptions,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    /// Name the cell: with -d, `pando logs`, `exec` and `kill` accept the name, and no two living cells have the same
    #[arg(long, value_name = "NAME", value_parser = crate::options::cell_name)]
    pub(crate) name: Option<String>,

    /// Set the cell's host name [default: its name, or pando]
    #[arg(long = "hostname", value_name = "NAME", value_parser = crate::options::host_name)]
    host_name: Option<String>,

    /// Label the cell (repeatable): `pando ps --filter label=NAME=VALUE` finds it
    #[arg(short = 'l', long = "label", value_name = "NAME[=VALUE]", requires = "detach", value_parser = crate::options::label)]
    pub(crate) labels: Vec<(String, String)>,

    /// Limit the growth of the directories that `-v` shows, in sizes as `ls` shows them: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", default_value = "16G")]
    pub(crate) write_limit: Size,

    /// Let the program have this many nested cells at a time, with all of theirs: `pando run` works inside. They share its limits
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    pub(crate) nest: u32,

    /// Print statistics of the cell on standard error when it ends; with `=json` as one object
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    pub(crate) stats: Option<StatsFormat>,

    /// Print every system call of the program with its arguments and result on standard error, like strace
    #[arg(long)]
    pub(crate) strace: bool,

    /// Trap every system call instead of patching its instruction: slow, for debugging Pando
    #[arg(long)]
    pub(crate) trap_calls: bool,

    /// Name the files that the cell sees in a variable of the program, for `pando checkpoint`
    #[arg(long, hide = true)]
    pub(crate) name_view: bool,

    /// The program (a path, or a name to find in PATH) and its arguments. Options after the program belong to it
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required_unless_present = "image", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
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

    /// Set the variables of a file, one NAME=VALUE per line, or a NAME to pass on; lines with # are comments (repeatable). -e comes after
    /// them
    #[arg(long = "env-file", value_name = "FILE", value_parser = OsStringValueParser::new().try_map(VariableFile::read))]
    pub(crate) variable_files: Vec<VariableFile>,

    /// Run as this user and group, by name or number, as the root's /etc/passwd and /etc/group have them. Without GROUP, the groups are the
    /// user's [default: the image's user, or root]
    #[arg(short = 'u', long = "user", value_name = "USER[:GROUP]", value_parser = crate::options::user_name)]
    pub(crate) user: Option<UserName>,

    /// Use this container image as root, by name or ID, with its environment, working directory and user, as docker does; PROGRAM and ARGS
    /// are the arguments of its entrypoint, or replace its command. `pando pull` and `pando image load` get images
    #[arg(long, value_name = "NAME", conflicts_with_all = ["root", "bare"], add = ArgValueCandidates::new(completion::images))]
    pub(crate) image: Option<String>,

    /// Start this program instead of the image's entrypoint and command; an empty one removes the entrypoint
    #[arg(long, value_name = "PROGRAM", requires = "image")]
    pub(crate) entrypoint: Option<OsString>,

    /// Make this directory of the cell empty, whatever the root has there (repeatable). Like all that a cell writes, its content is in the
    /// cell's memory; the options are `mode=1777` and `rw`
    #[arg(long = "tmpfs", value_name = "DIR[:OPTIONS]", value_parser = OsStringValueParser::new().try_map(crate::options::temporary))]
    pub(crate) temporary: Vec<(PathBuf, u16)>,

    /// Let the program change nothing but temporary directories (--tmpfs) and volumes that are writable. Its devices work
    #[arg(long = "read-only")]
    pub(crate) read_only: bool,

    /// Use this directory, tar archive or image as root instead of the host's software
    #[arg(long, value_name = "DIR|TAR|IMAGE")]
    pub(crate) root: Option<PathBuf>,

    /// Show nothing of the host but the program itself
    #[arg(long, conflicts_with = "root")]
    pub(crate) bare: bool,

    /// Show a file or directory of the host at the path CELL (repeatable). The program's changes are written to the host when it syncs or
    /// ends (`:copy`, the default). With `:live` each side sees the other's changes at once; with `:ro` or `:live,ro` the program can make
    /// none; with `:snapshot`, or PATH alone, which shows it under its own name, they are lost with the cell. A name without a slash is
    /// that of a volume (`pando volume`), which is live and is created at its first use
    #[arg(short = 'v', long = "volume", value_name = "HOST:CELL[:MODE]", value_parser = OsStringValueParser::new().try_map(crate::options::volume))]
    pub(crate) volumes: Vec<VolumeSpec>,
}

impl RunOptions {
    /// The first option that a nested cell does not support.
    pub(crate) fn unsupported_inside(&self) -> Option<&'static str> {
        let options = [
            (self.network.is_some(), "the network options"),
            (self.stats.is_some(), "--stats"),
            (self.strace, "--strace"),
            (self.trap_calls, "--trap-calls"),
        ];
        self.view.unsupported_inside().or_else(|| options.into_iter().find_map(|(is_given, name)| is_given.then_some(name)))
    }
}

impl ViewOptions {
    /// The first option that a nested cell does not support.
    pub(crate) fn unsupported_inside(&self) -> Option<&'static str> {
        let options = [
            (!self.volumes.is_empty(), "-v"),
            (self.root.is_some(), "--root"),
            (self.image.is_some(), "--image"),
            (!self.temporary.is_empty(), "--tmpfs"),
            (self.read_only, "--read-only"),
            (self.bare, "--bare"),
        ];
        options.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

impl From<&ViewOptions> for ViewSpec {
    fn from(options: &ViewOptions) -> ViewSpec {
        let ViewOptions { variables, variable_files, directory, user, image, entrypoint, temporary, read_only, root, bare, volumes } =
            options.clone();
        let variables: Vec<Variable> = variable_files.into_iter().flat_map(|file| file.0).chain(variables).collect();
        let variables = environment::values(&variables).collect();
        let image = image.map(|name| ImageSpec { name, entrypoint, has_terminal: false });
        ViewSpec { variables, directory, user, root, image, temporary, read_only, bare, volumes }
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
    /// allows no outgoing connections. A port alone (`80`) is published by name, at the address of `pando serve --listen`: with -d
    #[arg(short = 'p', long = "publish", value_name = "[[ADDR:]HOST:]CELL[/udp]")]
    pub(crate) publish: Vec<Publication>,

    /// Publish every port that the container image exposes, each at a port of 127.0.0.1 that the host chooses
    #[arg(short = 'P', long)]
    pub(crate) publish_all: bool,

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
    pub(crate) cpus: Option<CpuLimit>,

    /// Give the cell this part of the CPU time for which it competes with the other cells of the same service or of the same cell
    /// around it: a number from 1 to 10000 [default: 100]
    #[arg(long, value_name = "WEIGHT", allow_hyphen_values = true, value_parser = crate::options::weight)]
    pub(crate) cpu_weight: Option<Weight>,

    /// Terminate the program when its standard output and standard error together exceed this: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) output_limit: Option<Size>,

    /// Terminate the program after this time: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::size::duration)]
    pub(crate) timeout: Option<Duration>,
}

impl NetworkOptions {
    /// The options with the ports that an image exposes, if all are to be published.
    pub(crate) fn with_exposed(&self, ports: &[ExposedPort]) -> NetworkOptions {
        let mut options = NetworkOptions { publish_all: false, ..self.clone() };
        let forward = |port: &ExposedPort| {
            Publication::Forward(PortForward {
                host: (Ipv4Addr::LOCALHOST, 0).into(),
                cell: port.number,
                protocol: if port.is_udp { Protocol::Udp } else { Protocol::Tcp },
            })
        };
        options.publish.extend(ports.iter().filter(|_| self.publish_all).map(forward));
        options
    }

    /// Whether any network option is given.
    pub(crate) fn is_some(&self) -> bool {
        let NetworkOptions { net, publish, publish_all, allow, link, pcap } = self;
        *publish_all || net.is_some() || !publish.is_empty() || !allow.is_empty() || link.is_some() || pcap.is_some()
    }

    /// The rules for `pando serve`; `None`: the service cannot connect a cell like this.
    pub(crate) fn allowed(&self) -> Option<Vec<String>> {
        if self.is_some() { self.gateway_rules() } else { Some(Vec::new()) }
    }

    /// The port forwards for `pando serve`.
    pub(crate) fn published(&self) -> Vec<String> {
        self.publish.iter().map(ToString::to_string).collect()
    }

    /// The ports of the host that lead to the cell.
    pub(crate) fn forwards(&self) -> Vec<PortForward> {
        let forward = |published: &Publication| if let Publication::Forward(forward) = published { Some(*forward) } else { None };
        self.publish.iter().filter_map(forward).collect()
    }

    /// The rules if no other options than `--net gateway`, `--allow` and `-p` are given; otherwise `None`.
    fn gateway_rules(&self) -> Option<Vec<String>> {
        let NetworkOptions { net, publish, publish_all, allow, link, pcap } = self;
        if *publish_all || link.is_some() || pcap.is_some() {
            return None;
        }
        match net {
            None | Some(Net::Gateway) if !allow.is_empty() => Some(allow.iter().map(|allowed| allowed.text().into()).collect()),
            None if !publish.is_empty() => Some(Vec::new()),
            Some(Net::Gateway) => Some(vec![PUBLIC.into()]),
            _ => None,
        }
    }
}

impl TryFrom<&NetworkOptions> for NetworkSpec {
    type Error = Failure;

    /// Fails if the options contradict each other.
    fn try_from(options: &NetworkOptions) -> Result<NetworkSpec, Failure> {
        let NetworkOptions { net, publish, publish_all: _, allow, link, pcap } = options;
        if let Some(Publication::ByName(port)) = publish.iter().find(|published| matches!(published, Publication::ByName(_))) {
            return Err(Failure::ByName(*port));
        }
        let uplink = match (net, publish.is_empty() && allow.is_empty()) {
            (Some(Net::None), true) | (None, true) => UplinkSpec::None,
            (Some(Net::Private), true) => UplinkSpec::Private,
            (Some(Net::Tap(name)), true) => UplinkSpec::Tap(name.clone()),
            (Some(Net::None | Net::Private | Net::Tap(_)), false) => return Err(Failure::NoGateway),
            (Some(Net::Gateway) | None, _) => {
                // `--net gateway` alone allows public addresses; `-p` alone allows no outgoing connections.
                let is_public = allow.is_empty() && net.is_some();
                let rules = if is_public { vec![Rule::PUBLIC] } else { allow.iter().map(AllowRule::rule).collect() };
                UplinkSpec::Gateway { rules, forwards: options.forwards() }
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
        let LimitOptions { memory, cpus, cpu_weight, output_limit, timeout } = *options;
        let (memory, output) = (memory.map(Size::pages), output_limit.map(Size::in_bytes));
        Limits { memory, cpu_limit: cpus, weight: cpu_weight, output, time: timeout }
    }
}

impl RunOptions {
    /// The cell's host name.
    pub(crate) fn host_name(&self) -> Option<String> {
        self.host_name.clone().or_else(|| self.name.clone())
    }

    /// The program as the command line names it, or the container image.
    pub(crate) fn program(&self) -> &OsStr {
        let image = self.view.image.as_ref().map(OsStr::new);
        image.or(self.words.first().map(OsString::as_os_str)).unwrap_or_default()
    }

    /// Its arguments, its own name first.
    pub(crate) fn arguments(&self) -> &[OsString] {
        &self.words
    }
}
