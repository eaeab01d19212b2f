// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of commands, and their exit statuses.

use crate::messages;
use pando_image::{escaped, escaped_lines};
use pando_launch::LaunchError;
use pando_manager::cells::ManagerError;
use pando_manager::descriptors::TooFewDescriptors;
use pando_manager::environment::ProgramError;
use pando_manager::host;
use pando_manager::machine::MachineError;
use pando_manager::network::NetworkError;
use pando_manager::outcome::PANDO_FAILURE_STATUS;
use pando_manager::template::TemplateError;
use pando_manager::view::ViewError;
use pando_manager::volumes::VolumeError;
use pando_manager::write_back::WriteBackError;
use std::ffi::OsString;
use std::path::PathBuf;

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The program does not exist, or cannot be executed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The files of a cell cannot be shown.
    #[error("{}", messages::view(.0))]
    View(#[from] ViewError),
    /// A container image cannot be loaded, found or removed.
    #[error("{}", messages::container_image(.0))]
    ContainerImage(#[from] pando_oci::Error),
    /// A named volume cannot be created, used or removed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A template cannot be created, used or removed.
    #[error("{}", messages::template(.0))]
    Template(#[from] TemplateError),
    /// Changes cannot be written back to the host.
    #[error(transparent)]
    WriteBack(#[from] WriteBackError),
    /// A word of the command line is not UTF-8.
    #[error("{} is not valid UTF-8, which templates require", escaped(.0))]
    NotUtf8(OsString),
    /// `--process` without a running cell.
    #[error("--process is for a running cell: give its number or name and no options for a program (`pando ps` lists the cells)")]
    NoCellToDebug,
    /// `-p` or `--allow` with a network other than the gateway.
    #[error("-p and --allow need a gateway: omit --net, or use `--net gateway`")]
    NoGateway,
    /// A port is to be published by name, without the service.
    #[error(
        "--publish {0} publishes the port by name, which only `pando serve --listen` does: add -d, or give HOST:CELL, such as --publish 8080:{0}"
    )]
    ByName(u16),
    /// A network option without a network.
    #[error("{0} needs a network: add `--net gateway`, `--net private` or `--net tap:NAME`")]
    NoNetwork(&'static str),
    /// A cell's network cannot be created.
    #[error("{}", messages::network(.0))]
    Network(#[from] NetworkError),
    /// The process's limit of descriptors is too low.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// The manager refuses a request.
    #[error("{}", messages::manager(.0))]
    Manager(ManagerError),
    /// The gateway failed.
    #[error("the gateway of the cell's network failed: {}", host::plain(.0))]
    Gateway(std::io::Error),
    /// `-t` without a terminal.
    #[error("-t: standard input is not a terminal: omit -t, or run this from one")]
    NoTerminal,
    /// The terminal cannot be switched to raw mode.
    #[error("-t: cannot switch the terminal to raw mode: {0}")]
    Terminal(std::io::Error),
    /// The kernel cannot be started.
    #[error("{}{}", .0, doctor(.0))]
    Machine(#[from] MachineError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The process cannot be confined.
    #[error(transparent)]
    Confine(#[from] pando_confine::ConfineError),
    /// The host refuses new namespaces.
    #[error("cannot leave the host's namespaces: {}", host::plain(.0))]
    Namespaces(#[source] std::io::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
    /// A nested cell cannot be made, or used.
    #[error("{}", host::plain(.0))]
    Nested(std::io::Error),
    /// The cell that this process runs in may have no descendants.
    #[error("this cell may have no cells of its own: start it with `--nest NUMBER`")]
    NoNesting,
    /// A variable that is given is invalid.
    #[error("{0}")]
    Variable(String),
    /// An option that a nested cell does not support.
    #[error("{0}: a nested cell sees the files of its parent as they were at its start, and has no network: omit this option")]
    NotInside(&'static str),
    /// The cell could not be created.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A command's output could not be written.
    #[error("cannot write to standard output: {0}")]
    Print(#[from] std::io::Error),
    /// An image could not be built or used.
    #[error(transparent)]
    Image(#[from] pando_image::Error),
    /// No archive is given.
    #[error("standard input is a terminal: name the archive, or redirect it (`pando image load <FILE`)")]
    NoArchive,
    /// A standard stream failed.
    #[error("cannot write the program's output: {}", host::plain(.0))]
    Output(std::io::Error),
    /// A manual page of an unknown command.
    #[error("there is no command `{0}`: `pando help` lists them")]
    NoManual(String),
    /// Options that need a single clone.
    #[error(
        "--stats, --network and the network options (--net, -p, --allow, --link, --pcap) apply to a single clone: omit --count and --output, or run the clones in `pando serve` with -d"
    )]
    OneOnly,
    /// A file of the host cannot be created, read or removed.
    #[error("{}: {}", escaped(path), host::plain(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// The service's socket cannot be created.
    #[error("cannot listen on {}: {}: give another --socket", escaped(path), host::plain(source))]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// The service manager passed a descriptor that is no socket for the service.
    #[error("cannot use the socket of the service manager: {}: pass one Unix stream socket with a path, as dist/systemd does", host::plain(.0))]
    InheritedSocket(std::io::Error),
    /// Another process listens on the socket.
    #[error("cannot listen on {}: another `pando serve` uses it: use that one, or give this one another --socket", escaped(.0))]
    SocketInUse(PathBuf),
    /// No service accepts connections.
    #[error("cannot connect to `pando serve` at {}: it is not running: start `pando serve`", escaped(.0))]
    NoServer(PathBuf),
    /// The service cannot listen for clients with a token.
    #[error("cannot listen at {address} for clients with a token: {}: choose another address (--control)", host::plain(.source))]
    Control {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The environment names a service's socket by a relative path.
    #[error("PANDO_SOCKET={}: not an absolute path: give the whole path of the service's socket", escaped(.0))]
    RelativeSocket(String),
    /// The environment names a service by an invalid address.
    #[error("PANDO_HOST={}: not an address: give tcp://HOST:PORT, such as tcp://127.0.0.1:9000, and no name like localhost", escaped(.0))]
    InvalidHost(String),
    /// A command that needs the service's socket.
    #[error(
        "cannot do this at PANDO_HOST: a token allows ps, inspect, stats, logs, kill, sleep and wake only: unset PANDO_HOST to use the service of this host"
    )]
    OnlyControl,
    /// The environment names a service, and no token for it.
    #[error("cannot use `pando serve` at {}: set PANDO_TOKEN to a token that `pando token create` printed there", escaped(.0))]
    NoToken(String),
    /// Options that need the service, with others that it does not support.
    #[error(
        "cannot run this clone in `pando serve` (-d, --network): it needs a stored template, and does not support -P, --link, --pcap, or --net other than gateway: omit these options, or omit -d and --network"
    )]
    NotInService,
    /// The service refuses the request.
    #[error("{message}")]
    Refused {
        /// The error code for programs.
        problem: String,
        /// The message for people.
        message: String,
    },
    /// The service uses another directory of templates.
    #[error("the running `pando serve` stores its templates in {}, but this command in {}: stop it (`kill {process}`) and start it here, or set HOME and XDG_DATA_HOME as it has them", theirs.display(), ours.display())]
    OtherTemplates {
        /// The service's process ID.
        process: u32,
        /// The service's directory.
        theirs: PathBuf,
        /// This process's directory.
        ours: PathBuf,
    },
    /// An option that the service does not support for programs without a template.
    #[error("-d does not support {option}: {advice}")]
    NotDetached {
        /// The option.
        option: &'static str,
        /// The reason, and the way to the same result.
        advice: &'static str,
    },
    /// A cell that runs is not removed.
    #[error("cannot remove cell {0}: it is running: stop it first (`pando stop {0}`), or use -f")]
    Running(String),
    /// The cell has ended.
    #[error("cannot attach to cell {0}: it has ended: `pando logs {0}` prints its output")]
    NotAttached(String),
    /// A cell of which no image can be made.
    #[error("cannot commit cell {cell}: {reason}")]
    NotCommitted {
        /// The cell, as it was named.
        cell: String,
        /// The reason, and what to do.
        reason: &'static str,
    },
    /// A recipe of a template cannot be used.
    #[error("{}: {}", escaped(path), escaped_lines(reason))]
    Recipe {
        /// Its file.
        path: PathBuf,
        /// The reason, and what to do.
        reason: String,
    },
    /// A step of a recipe has failed.
    #[error("{}: {}{advice}", escaped(step), escaped(reason))]
    Step {
        /// The step.
        step: String,
        /// The reason.
        reason: String,
        /// The advice.
        advice: &'static str,
    },
    /// A file that a recipe copies cannot be read.
    #[error("{}: {}", escaped(path), host::plain(source))]
    Copy {
        /// The recipe, or the file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// No service can be started for a recipe.
    #[error("cannot start `pando serve` for the recipe's steps: {}", escaped_lines(.0))]
    OwnService(String),
    /// Volumes are not removed without a confirmation.
    #[error("cannot ask for a confirmation: standard input is not a terminal: use `pando volume prune -f`")]
    NotConfirmed,
    /// A directory that the service is to show cannot be read.
    #[error("cannot show {} to cells (--show): {}", escaped(path), host::plain(source))]
    ShowDirectory {
        /// The directory.
        path: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// A program that the service does not see.
    #[error(
        "-d: {} is not part of the host's software, and programs in `pando serve` see nothing else: create a template with it (`pando template create`) and clone it with -d",
        escaped(.0)
    )]
    NotSoftware(PathBuf),
    /// The connection to the service failed.
    #[error("lost the connection to `pando serve`: {}", host::plain(.0))]
    ConnectionLost(std::io::Error),
    /// A benchmark failed.
    #[error(transparent)]
    Bench(#[from] pando_bench::BenchError),
}

impl Failure {
    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Program(error) | Failure::View(ViewError::Program(error)) => of_program(error),
            Failure::Template(TemplateError::View(ViewError::Program(error))) => of_program(error),
            _ => PANDO_FAILURE_STATUS,
        }
    }
}

fn of_program(error: &ProgramError) -> u8 {
    match error {
        ProgramError::NotFound(_) => NOT_FOUND,
        ProgramError::NotExecutable { .. } => NOT_EXECUTABLE,
    }
}

impl From<ManagerError> for Failure {
    fn from(error: ManagerError) -> Failure {
        match error {
            ManagerError::Machine(error) => Failure::Machine(error),
            error => Failure::Manager(error),
        }
    }
}

/// The advice for a failure of the host.
fn doctor(error: &MachineError) -> &'static str {
    if matches!(error, MachineError::Host(_)) { "\n       run `pando doctor` for details" } else { "" }
}
