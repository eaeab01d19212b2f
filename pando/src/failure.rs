// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a command could not do what it was asked, and the exit status that says so.

use crate::say::OWN_FAILURE;
use pando_image::escaped;
use pando_launch::LaunchError;
use pando_machine::HostError;
use std::ffi::OsString;
use std::path::PathBuf;

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no such program.
    #[error("`{}` was not found{}", escaped(.0), if .0.as_encoded_bytes().contains(&b'/') { "" } else { ": give a path, or a name that PATH leads to" })]
    NotFound(OsString),
    /// The program cannot be executed.
    #[error("{}: {why}", escaped(program))]
    NotExecutable {
        /// What was named.
        program: OsString,
        /// What is wrong with it.
        why: String,
    },
    /// A file that was to be shown cannot be.
    #[error("-v {}: {why}", escaped(file))]
    Volume {
        /// What was named.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// `-p` or `--allow` with a network that leads nowhere.
    #[error("-p and --allow need a gateway: leave --net out, or say `--net gateway`")]
    NoGateway,
    /// An option about a network, without one.
    #[error("{0} needs a network: add `--net gateway`, `--net private` or `--net tap:NAME`")]
    NoNetwork(&'static str),
    /// A TAP device cannot be had.
    #[error("--net tap: {0}")]
    Tap(#[from] pando_machine::TapError),
    /// Nothing can be captured into a file.
    #[error("--pcap {}: {why}", escaped(file))]
    Capture {
        /// What was named.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A forward cannot listen, or there is nothing to make a gateway with.
    #[error("-p: {0}")]
    Bind(#[from] pando_gateway::BindError),
    /// The process may have too few descriptors.
    #[error(
        "this process may open {total} files and connections, too few for {what}: raise the limit (`ulimit -Hn`, LimitNOFILE= of a unit), or ask for less"
    )]
    FewDescriptors {
        /// What it may have.
        total: usize,
        /// What they do not suffice for.
        what: &'static str,
    },
    /// The gateway broke off.
    #[error("the way out of the cell's network broke off: {}", crate::host::plain(.0))]
    Gateway(std::io::Error),
    /// `-t` without a terminal to give.
    #[error("-t: standard input is not a terminal: leave -t out, or run this from one")]
    NoTerminal,
    /// The terminal cannot be switched to passing every key on.
    #[error("-t: the terminal cannot be made raw: {0}")]
    Terminal(std::io::Error),
    /// The host has no KVM for us, or failed.
    #[error("{0}\n       `pando doctor` looks closer")]
    Host(#[from] HostError),
    /// The host has no thread for us.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// The process cannot give up what it does not need.
    #[error(transparent)]
    Confine(#[from] pando_confine::ConfineError),
    /// The host gives no namespaces.
    #[error("cannot leave the host's namespaces: {}", crate::host::plain(.0))]
    Namespaces(#[source] std::io::Error),
    /// The host does not let this process catch its signals.
    #[error("signals cannot be caught: {0}")]
    Signals(std::io::Error),
    /// The cell could not be made.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// What a command has to say could not be said.
    #[error("cannot write to standard output: {0}")]
    Print(#[from] std::io::Error),
    /// What the cell was to see cannot be shown.
    #[error(transparent)]
    View(#[from] crate::view::ViewError),
    /// An image could not be made or used.
    #[error(transparent)]
    Image(#[from] pando_image::Error),
    /// A standard stream failed.
    #[error("cannot write the program's output: {}", crate::host::plain(.0))]
    Output(std::io::Error),
    /// A manual page of something that is no command.
    #[error("there is no command `{0}`: `pando help` lists them")]
    NoManual(String),
    /// Options that only one clone can have.
    #[error(
        "--stats, --network and what connects a clone (--net, -p, --allow, --link, --pcap) are for one clone: leave --count and --output out, or let clones run in `pando serve` with -d"
    )]
    OneOnly,
    /// There is no such template.
    #[error("there is no template `{0}`: `pando template ls` lists them, `pando template create {0} PROGRAM` makes one")]
    NoTemplate(String),
    /// There is one already.
    #[error("there is a template `{0}` already: --replace makes it anew")]
    TemplateThere(String),
    /// Nobody says where templates are kept.
    #[error("nobody says where templates are kept: set HOME or XDG_DATA_HOME")]
    NoHome,
    /// A file of templates cannot be made, read or removed.
    #[error("{}: {}", escaped(path), crate::host::plain(source))]
    Templates {
        /// Which.
        path: PathBuf,
        /// What the host says.
        source: std::io::Error,
    },
    /// It was no command line of ours that made a saved template.
    #[error("{} does not say how it was made: make it anew with `pando template create`", escaped(.0))]
    NoRecipe(PathBuf),
    /// A template that others could have written.
    #[error("{} is not yours, or others may write it: it says which of your files its clones see; copy it if you trust it", escaped(.0))]
    Foreign(PathBuf),
    /// What a template sees is not what it was.
    #[error("the files that template `{0}` sees have changed since it was made: make it anew with `pando template create --replace`")]
    Changed(String),
    /// A template's program ended instead.
    #[error("{}: {end} before it said that it is ready: `pando template create --help` shows how", escaped(program))]
    NotReady {
        /// The program.
        program: OsString,
        /// How it ended.
        end: pando_kernel::End,
    },
    /// A word for a template is no text.
    #[error("{} is no text (UTF-8), and a template cannot remember it", escaped(.0))]
    NoText(OsString),
    /// A template was not saved or loaded.
    #[error(transparent)]
    Store(#[from] pando_store::Error),
    /// The socket of the service cannot be had.
    #[error("{}: {}", escaped(path), crate::host::plain(source))]
    Socket {
        /// Where.
        path: PathBuf,
        /// What the host says.
        source: std::io::Error,
    },
    /// Another process serves there.
    #[error("{}: another `pando serve` listens there: use that one, or give this one a --socket of its own", escaped(.0))]
    Serving(PathBuf),
    /// No service answers.
    #[error("`pando serve` does not run (nobody listens at {}): start `pando serve`", escaped(.0))]
    NoServer(PathBuf),
    /// Only the service could, and what is asked is not for it.
    #[error(
        "-d, --network: `pando serve` runs kept templates, in networks of its own: give a template's name, and leave -p, --link, --pcap and other networks than `--net gateway` out"
    )]
    Alone,
    /// The service says no.
    #[error("{message}")]
    Asked {
        /// Why, for programs.
        problem: String,
        /// The same for people.
        message: String,
    },
    /// The service keeps templates where this process does not.
    #[error("the `pando serve` that answers keeps its templates in {}, and this command in {}: end it (`kill {process}`) and start it here, or set HOME and XDG_DATA_HOME as it has them", theirs.display(), ours.display())]
    OtherTemplates {
        /// Its process.
        process: u32,
        /// Where it keeps them.
        theirs: PathBuf,
        /// Where this process does.
        ours: PathBuf,
    },
    /// A terminal for a program that is started in a running cell.
    #[error(
        "-t: a program that is started in a running cell gets no terminal: leave -t out (`pando exec CELL sh` reads commands from standard input)"
    )]
    NoTerminalThere,
    /// A program that is to run in the service shall see what that does not show.
    #[error(
        "-d: what runs in `pando serve` sees the host's software: leave -v, -w, -u, --root and --bare out, or make a template that sees more (`pando template create`) and clone it with -d"
    )]
    SoftwareOnly,
    /// The service does not answer any more.
    #[error("`pando serve` has broken off: {}", crate::host::plain(.0))]
    Gone(std::io::Error),
    /// A benchmark failed.
    #[error(transparent)]
    Bench(#[from] pando_bench::BenchError),
}

impl Failure {
    /// The exit status that says so.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::NotFound(_) => NOT_FOUND,
            Failure::NotExecutable { .. } => NOT_EXECUTABLE,
            _ => OWN_FAILURE,
        }
    }
}
