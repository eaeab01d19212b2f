// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service's protocol: types of requests and answers. `docs/openapi.json` is generated from them.

mod convert;
mod signal;
mod token;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use pando_kernel::Stream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

pub use signal::Signal;
pub use token::{CellTotals, CreatedToken, NewToken, Token};

/// Control characters that a text may hold, however short it is.
const CONTROLS_MAX: usize = 64;

/// Bytes of a program: as text if they are text (UTF-8 with few control characters), otherwise in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum TextOrBytes {
    /// Text.
    Plain(String),
    /// Anything else.
    Encoded {
        /// The bytes, in base64.
        base64: String,
    },
}

impl TextOrBytes {
    /// Encodes bytes: as text if JSON needs little more space than the bytes themselves.
    pub fn of(bytes: Vec<u8>) -> TextOrBytes {
        let controls = bytes.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
        // JSON encodes each in six bytes.
        if controls > CONTROLS_MAX && controls > bytes.len() / 8 {
            return TextOrBytes::Encoded { base64: STANDARD.encode(&bytes) };
        }
        match String::from_utf8(bytes) {
            Ok(text) => TextOrBytes::Plain(text),
            Err(error) => TextOrBytes::Encoded { base64: STANDARD.encode(error.as_bytes()) },
        }
    }

    /// The bytes; `None` if the base64 is invalid.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            TextOrBytes::Plain(text) => Some(text.clone().into_bytes()),
            TextOrBytes::Encoded { base64 } => STANDARD.decode(base64).ok(),
        }
    }
}

/// The server's state.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// Its process ID.
    pub process: u32,
    /// The directory in which it stores its templates.
    #[serde(default)]
    pub templates: String,
    /// Running cells.
    pub running: usize,
    /// Bytes of memory that its cells may use together, including what they share.
    pub memory_bytes: u64,
    /// Bytes of it that are free.
    pub free_bytes: u64,
    /// Clones that can reach external networks at a time.
    pub gateways: usize,
    /// The address for clients with a token; missing if there is none.
    #[serde(default)]
    pub control: Option<String>,
    /// The address at which clients reach cells by name; missing if there is none.
    #[serde(default)]
    pub listen: Option<String>,
}

/// A template to create.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewTemplate {
    /// Its name.
    pub name: String,
    /// The program and its arguments. If empty: those of the built-in template of this name.
    pub arguments: Vec<String>,
    /// Its environment variables.
    pub environment: BTreeMap<String, String>,
    /// The memory limit of the program, and of each clone that does not ask for less: such as `256M`.
    pub memory: Option<String>,
    /// Seconds that it may take to become ready [default: 300].
    pub timeout: Option<f64>,
    /// Files and directories of the host that it sees: `HOST:CELL`. The server must have been started with access to them.
    pub volumes: Vec<String>,
    /// The root that it sees instead of the host's software: a directory, a tar archive or an image.
    pub root: Option<String>,
    /// The container image that it sees instead of the host's software: a name or an ID. Its arguments replace the image's command.
    pub image: Option<String>,
    /// It sees nothing but the program itself.
    pub bare: bool,
    /// Its user and group, by name or number: `USER` or `USER:GROUP`.
    pub user: Option<String>,
    /// Start the program this many times. Each clone is made from one of these variants at random, so that memory layouts differ.
    pub variants: Option<u32>,
    /// Train the template: run a clone to its end and record which memory it touches [default: for five seconds at most, without
    /// arguments]. `false`: do not.
    pub train: Option<bool>,
    /// Arguments of the training clone.
    pub train_arguments: Vec<String>,
    /// Train with this many clones, one after the other: later clones get the memory that most of them touched.
    pub train_count: Option<u32>,
    /// Replace the template of this name, if there is one.
    pub replace: bool,
}

/// A stored template.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// The memory limit of each clone that does not ask for less.
    pub memory_bytes: u64,
    /// How many variants it has.
    pub variants: usize,
    /// Size of its files in bytes.
    pub file_bytes: u64,
    /// When it was created, as RFC 3339 writes it, in UTC.
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    /// It was frozen by force, or while programs ran that do not notice cloning: its clones' random numbers may not be distinct.
    pub forced: bool,
}

/// A cell to create from a template, or of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCell {
    /// The template. A built-in one is created if it does not exist yet. If empty, the cell runs a program.
    pub template: String,
    /// The clone's arguments; or the program and its arguments, which replace the command of an image.
    pub arguments: Vec<String>,
    /// The environment variables of the clone or the program. Without an image, `PATH` is also where the program is searched.
    pub environment: BTreeMap<String, String>,
    /// The container image that a program sees instead of the host's software: a name or an ID.
    pub image: Option<String>,
    /// The program instead of the image's entrypoint and command; an empty one removes the entrypoint.
    pub entrypoint: Option<String>,
    /// The directory, tar archive or image that a program sees instead of the host's software.
    pub root: Option<String>,
    /// A program sees nothing of the host but itself.
    #[serde(skip_serializing_if = "is_false")]
    pub bare: bool,
    /// A program may change only its temporary directories, and volumes with `snapshot`.
    #[serde(skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Files and directories of the host that a program sees: `HOST:CELL:ro` or `HOST:CELL:snapshot`. The server must have been started
    /// with access to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Directories of a program's cell that are empty at the start: `DIR[:mode=MODE]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tmpfs: Vec<String>,
    /// The working directory of a program [default: the image's, or `/`].
    pub directory: Option<String>,
    /// The user and group of a program, by name or number: `USER` or `USER:GROUP`.
    pub user: Option<String>,
    /// Its memory limit: such as `256M`.
    pub memory: Option<String>,
    /// Its limit of CPU time, as a share of one core: from 0.001 to 1.
    pub cpus: Option<f64>,
    /// Its part of the CPU time for which it competes with other cells of the service: from 1 to 10000 [default: 100].
    pub cpu_weight: Option<u64>,
    /// Time limit in seconds; the cell is then terminated.
    pub timeout: Option<f64>,
    /// Output limit in bytes; the cell is terminated if it writes more.
    pub output_limit: Option<u64>,
    /// Seconds without use after which the cell is terminated: no input, no output, no request for a program or a file, no program besides
    /// its own, and less than 0.1 % of CPU time.
    pub idle_timeout: Option<f64>,
    /// Its labels: names and values by which clients find it.
    pub labels: BTreeMap<String, String>,
    /// How many nested cells it may have at a time, with all of theirs: `pando` works inside of it. They share its limits.
    pub nest: u32,
    /// Its name: requests accept it instead of the number. No living cell has the same [default: the template's name and the cell's
    /// number].
    pub name: Option<String>,
    /// Its host name [default: its name].
    pub host_name: Option<String>,
    /// The network that it is connected to: cells that name the same network reach each other and nothing else. Without: no network.
    pub network: Option<String>,
    /// Destinations that it may reach through a gateway of its own, as in `pando clone --allow`: such as `public` or
    /// `example.org:443`. It then has a network of its own.
    pub allow: Vec<String>,
    /// Ports of the host that lead to it: `[ADDR:]HOST:CELL[/udp]`, as in `pando clone -p`; port 0 of the host lets the host choose. It
    /// then has a network of its own. A port alone (`80`) is reached by the cell's name, at the address of `pando serve --listen`; the
    /// first one without its number, others as `PORT.NAME`. It then has no other network.
    pub publish: Vec<String>,
    /// When the cell is started again after its end, under its name and number: `no`, `on-failure`, `on-failure:NUMBER` (of
    /// restarts), `always` or `unless-stopped`, which is the same. Only for `POST /v1/cells` [default: no].
    pub restart: Option<String>,
    /// Its standard input. `POST /v1/cells` allows more input later, `POST /v1/run` does not.
    pub input: Option<TextOrBytes>,
}

/// Why a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Its program exited.
    Exited,
    /// A signal ended its program.
    Signalled,
    /// Its time limit expired.
    TimedOut,
    /// It exceeded its memory limit.
    MemoryLimit,
    /// It exceeded its output limit.
    OutputLimit,
    /// A client terminated it.
    Killed,
    /// It did something that is forbidden in a cell.
    Crashed,
    /// The machine was out of memory, and it used the most memory.
    MachineFull,
    /// It was frozen: a template was created from it.
    Frozen,
    /// The host failed.
    HostFailure,
}

/// How a cell ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// Why.
    pub reason: Reason,
    /// The exit status that a shell would show.
    pub exit_code: u8,
    /// The same as text for people.
    pub message: String,
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Peak size of its private memory in bytes.
    pub peak_bytes: u64,
    /// VM exits.
    pub exits: u64,
}

/// The state of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CellState {
    /// It runs, or waits.
    #[default]
    Running,
    /// It waits for its start, until others that were started before idle.
    Queued,
    /// It waits, and its memory is in swap space.
    Asleep,
    /// It has ended.
    Ended,
}

/// A cell.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cell {
    /// Its number, never reused.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its host name.
    pub host_name: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The template that it was cloned from; missing if it runs a program.
    pub template: Option<String>,
    /// The container image that its program sees.
    pub image: Option<String>,
    /// The ID of the container image that it sees, also if that is its template's.
    #[serde(default)]
    pub image_id: Option<String>,
    /// Its arguments, or its program and the arguments.
    pub arguments: Vec<String>,
    /// Its network addresses, if it has a network.
    pub addresses: Option<Addresses>,
    /// The ports of the host that lead to it, while it runs.
    #[serde(default)]
    pub ports: Vec<PublishedPort>,
    /// When it was started, as RFC 3339 writes it, in UTC.
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    /// Its state.
    #[serde(default)]
    pub state: CellState,
    /// Current size of its private memory in bytes.
    pub memory_bytes: u64,
    /// CPU time so far, in seconds.
    pub cpu_seconds: f64,
    /// VM exits so far; missing if a service in a cell does not know them.
    #[serde(default)]
    pub exits: Option<u64>,
    /// How often it has been started again under its name.
    #[serde(default)]
    pub restarts: u32,
    /// How it ended; missing while it runs.
    pub outcome: Option<Outcome>,
    /// Its nested cells with theirs, parents before their children; of many, only some. Missing if it has none, or if they were not asked
    /// for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descendants: Vec<Descendant>,
}

/// The state of a nested cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DescendantState {
    /// It was not started: it is being prepared, or is a template.
    New,
    /// It runs, or waits.
    Running,
    /// It is a template.
    Frozen,
    /// A debugger or a tracer has halted it.
    Halted,
    /// It has just ended.
    Ended,
}

/// A nested cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Descendant {
    /// Levels below the cell in which it is listed: 1 for a cell that this one started.
    pub depth: u32,
    /// Its host name.
    pub name: String,
    /// Its state.
    pub state: DescendantState,
    /// Current size of its private memory in bytes, with that of its own nested cells.
    pub memory_bytes: u64,
    /// CPU time so far in seconds, without that of its own nested cells.
    pub cpu_seconds: f64,
}

impl Cell {
    /// The name of its template or image; `-`: it runs a program of the host.
    #[must_use]
    pub fn source(&self) -> &str {
        self.template.as_deref().or(self.image.as_deref()).unwrap_or("-")
    }
}

/// A port of the host that leads to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishedPort {
    /// The address and port at which the host listens: such as `127.0.0.1:8080`.
    pub host: String,
    /// The cell's port.
    pub cell: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
}

/// The addresses of a cell in its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Addresses {
    /// Ethernet address.
    pub mac: String,
    /// IPv4 address.
    pub ipv4: String,
    /// IPv6 address.
    pub ipv6: String,
}

/// The result of a cell that was run to its end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunResult {
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Its standard output.
    pub stdout: TextOrBytes,
    /// Its standard error.
    pub stderr: TextOrBytes,
    /// Its notes to the operator (lines written to /dev/pando).
    pub notes: Vec<String>,
    /// Bytes at the start of its output that were not kept [default: 0].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_bytes: u64,
}

/// A template to create from a running cell.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Freeze {
    /// The template's name.
    pub name: String,
    /// Stop the cell at once instead of asking its program to freeze: its clones' random numbers may not be distinct.
    #[serde(default)]
    pub force: bool,
    /// Replace the template of this name, if there is one.
    #[serde(default)]
    pub replace: bool,
}

/// Forks of a running cell to start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The number of forks [default: 1].
    #[serde(default = "one")]
    pub count: u32,
}

fn one() -> u32 {
    1
}

/// One of a cell's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// Its notes to the operator: whole lines.
    Notes,
}

impl From<Stream> for Source {
    fn from(stream: Stream) -> Source {
        match stream {
            Stream::Stdout => Source::Stdout,
            Stream::Stderr => Source::Stderr,
            Stream::Notes => Source::Notes,
        }
    }
}

impl From<Source> for Stream {
    fn from(source: Source) -> Stream {
        match source {
            Source::Stdout => Stream::Stdout,
            Source::Stderr => Stream::Stderr,
            Source::Notes => Stream::Notes,
        }
    }
}

/// A piece of a cell's output, or its end: one line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Piece {
    /// Output.
    Output {
        /// The position of its first byte in all output of the cell: `from` starts there.
        number: u64,
        /// The position after its last byte: `from` continues there.
        next: u64,
        /// Bytes between the requested position and `number`, which were not kept [default: 0].
        #[serde(default, skip_serializing_if = "is_zero")]
        dropped_bytes: u64,
        /// The stream.
        stream: Source,
        /// The bytes.
        data: TextOrBytes,
    },
    /// It ended.
    Ended {
        /// How.
        outcome: Outcome,
    },
}

/// A time in seconds since 1970.
pub fn timestamp(seconds: u64) -> Timestamp {
    i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default()
}

/// Whether a flag is not set: then it is left out.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Whether a count is zero: then it is left out.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A program to start in a running cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewJob {
    /// The program and its arguments: a path, or a name that is found in its PATH.
    pub arguments: Vec<String>,
    /// Its environment variables, in addition to those with which the cell's program was started.
    pub environment: BTreeMap<String, String>,
    /// Its working directory [default: that in which the cell's program was started].
    pub directory: Option<String>,
    /// Its user and group, by name or number, as the cell's `/etc/passwd` and `/etc/group` have them: `USER` or `USER:GROUP` [default:
    /// those of the cell's program].
    pub user: Option<String>,
    /// Time limit in seconds; the program is then killed.
    pub timeout: Option<f64>,
    /// Output limit in bytes; a program that writes more is killed.
    pub output_limit: Option<u64>,
    /// More input follows by `POST` to the `input` of the program, whose path is the answer's `location`.
    pub keep_input: bool,
    /// The answer comes at once and is empty: the program has no input, and its output is discarded. It does not end with its client.
    #[serde(skip_serializing_if = "is_false")]
    pub detach: bool,
    /// It gets a new terminal of this size for all its streams. Its output is then on standard output, and the end of its input is typed
    /// as the end-of-file character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
}

/// The size of a terminal in characters. 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TerminalSize {
    /// The number of rows.
    pub rows: u16,
    /// The number of columns.
    pub columns: u16,
}

/// A piece of the output of a program in a cell, or its end: one line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum JobPiece {
    /// Output.
    Output {
        /// The stream.
        stream: Source,
        /// The bytes.
        data: TextOrBytes,
    },
    /// It ended.
    Ended {
        /// The exit status that a shell would show.
        exit_code: u8,
        /// The same as text for people.
        message: String,
    },
}

/// The kind of an event of a file in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileEventKind {
    /// The watch has begun. The first event.
    Started,
    /// It was created.
    Create,
    /// Its content was changed.
    Write,
    /// Its permissions, owner or times were changed.
    Attributes,
    /// It was removed.
    Remove,
    /// It was moved away from here.
    MovedFrom,
    /// It was moved here.
    MovedTo,
    /// Events were lost.
    Overflow,
}

/// An event of a file of a cell: one line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileEvent {
    /// The event.
    pub event: FileEventKind,
    /// The file's path: that of the watch, and the name below it.
    pub path: TextOrBytes,
    /// It is a directory.
    pub is_directory: bool,
    /// The two events of a move have the same number, which is otherwise 0.
    pub cookie: u32,
}

/// Why a request failed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// An error code for programs: words with dashes.
    pub problem: String,
    /// A message for people: what happened and what to do.
    pub message: String,
}
