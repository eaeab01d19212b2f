// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said over the socket: the types of requests and answers. `docs/openapi.json` is made of these.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pando_kernel::Stream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Control characters that are told in text whatever else there is.
const CONTROLS_MAX: usize = 64;

/// Bytes of a program's: as text where they are text (UTF-8, with few control characters), otherwise in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Text {
    /// Text.
    Plain(String),
    /// Anything else.
    Encoded {
        /// The bytes, in base64.
        base64: String,
    },
}

impl Text {
    /// Says bytes: as text if JSON needs little more for it than the bytes are.
    pub(crate) fn of(bytes: Vec<u8>) -> Text {
        let controls = bytes.iter().filter(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace()).count();
        // JSON has six bytes for each.
        if controls > CONTROLS_MAX && controls > bytes.len() / 8 {
            return Text::Encoded { base64: STANDARD.encode(&bytes) };
        }
        match String::from_utf8(bytes) {
            Ok(text) => Text::Plain(text),
            Err(error) => Text::Encoded { base64: STANDARD.encode(error.as_bytes()) },
        }
    }

    /// The bytes that are said; `None` where that is no base64.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Text::Plain(text) => Some(text.clone().into_bytes()),
            Text::Encoded { base64 } => STANDARD.decode(base64).ok(),
        }
    }
}

/// What the server is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Server {
    /// Its version.
    pub(crate) version: String,
    /// Its process.
    pub(crate) process: u32,
    /// The directory where it keeps its templates.
    #[serde(default)]
    pub(crate) templates: String,
    /// Cells that run.
    pub(crate) running: usize,
    /// Bytes of memory that its cells and what they share may have together.
    pub(crate) memory_bytes: u64,
    /// Bytes of it that are free.
    pub(crate) free_bytes: u64,
    /// Clones that it can lead to the world outside at a time.
    pub(crate) gateways: usize,
}

/// A template to be made.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewTemplate {
    /// Its name.
    pub(crate) name: String,
    /// The program and its arguments. None at all: those of the standard template of this name.
    pub(crate) arguments: Vec<String>,
    /// Variables of its environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// The most memory that it, and each clone that does not ask for less, may have: such as `256M`.
    pub(crate) memory: Option<String>,
    /// Seconds that it may take until it is ready [default: 300].
    pub(crate) timeout: Option<f64>,
    /// Files and directories of the host that it sees: `HOST:CELL`. They must be among those that the server was started with.
    pub(crate) volumes: Vec<String>,
    /// What it sees instead of the host's software.
    pub(crate) root: Option<String>,
    /// It sees nothing but itself.
    pub(crate) bare: bool,
    /// Who it is: `UID` or `UID:GID`.
    pub(crate) user: Option<String>,
    /// Start the program so many times, and let clones be of any of these by lot: where things lie in memory is different in each.
    pub(crate) variants: Option<u32>,
    /// Run a clone to its end and learn from it what later ones will touch [default: for three seconds at most, without arguments]. `false`: do not.
    pub(crate) train: Option<bool>,
    /// What that clone is given.
    pub(crate) train_arguments: Vec<String>,
    /// Learn from so many clones, one after the other: later ones have what most of them touched.
    pub(crate) train_count: Option<u32>,
    /// Replace the template of this name, if there is one.
    pub(crate) replace: bool,
}

/// A template that is kept.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Template {
    /// Its name.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) arguments: Vec<String>,
    /// The most memory that each clone may have that does not ask for less.
    pub(crate) memory_bytes: u64,
    /// In how many variants it is kept.
    pub(crate) variants: usize,
    /// Bytes of its files.
    pub(crate) file_bytes: u64,
    /// When it was made: seconds since 1970.
    pub(crate) made: u64,
    /// It was stopped as it stood, or while programs ran that do not notice that they are cloned: nothing promises that its clones' random numbers are distinct.
    pub(crate) forced: bool,
}

/// A cell to be cloned.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewCell {
    /// The template. A standard one that is not there yet is made.
    pub(crate) template: String,
    /// What the clone is given.
    pub(crate) arguments: Vec<String>,
    /// Variables that it is given.
    pub(crate) environment: BTreeMap<String, String>,
    /// The most memory that it may have: such as `256M`.
    pub(crate) memory: Option<String>,
    /// The most of one core that it may use: from 0.001 to 1.
    pub(crate) cpus: Option<f64>,
    /// Seconds after which it is ended.
    pub(crate) timeout: Option<f64>,
    /// Bytes after which it is ended if it says more.
    pub(crate) output_limit: Option<u64>,
    /// What it is called [default: the template's name and the cell's number].
    pub(crate) host_name: Option<String>,
    /// The network that it is plugged into: cells that name the same one reach each other, and nobody else. None: it reaches nobody.
    pub(crate) network: Option<String>,
    /// What of the world outside it may reach, through a gateway of its own: each as `pando clone --allow` has it, such as `public` or `example.org:443`. It is in a network of its own then.
    pub(crate) allow: Vec<String>,
    /// Its standard input. Where a cell is made, more can follow; where one is run, none does.
    pub(crate) input: Option<Text>,
}

/// Why a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// By itself.
    Exited,
    /// By a signal.
    Signalled,
    /// Its time was up.
    TimedOut,
    /// It needed more memory than it may have.
    MemoryLimit,
    /// It said more than it may.
    OutputLimit,
    /// Somebody ended it.
    Killed,
    /// It did what nothing in a cell may do.
    Crashed,
    /// The machine was full, and it had exceeded its share most.
    MachineFull,
    /// It was frozen: a template was made of it.
    Frozen,
    /// The host failed.
    HostFailure,
}

/// How a cell ended.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Outcome {
    /// Why.
    pub(crate) reason: Reason,
    /// The status that a shell would show.
    pub(crate) exit_code: u8,
    /// The same for people.
    pub(crate) message: String,
    /// Seconds from its start to its end.
    pub(crate) seconds: f64,
    /// Seconds of a core that it took.
    pub(crate) cpu_seconds: f64,
    /// The most memory that it had of its own.
    pub(crate) peak_bytes: u64,
    /// How often it came to the kernel.
    pub(crate) exits: u64,
}

/// A cell.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Cell {
    /// Its number, never given twice.
    pub(crate) id: u64,
    /// The template that it was cloned from.
    pub(crate) template: String,
    /// What it was given.
    pub(crate) arguments: Vec<String>,
    /// Where it is in its network, if it is in one.
    pub(crate) addresses: Option<Addresses>,
    /// When it was started: seconds since 1970.
    pub(crate) started: f64,
    /// Memory that it has of its own now.
    pub(crate) memory_bytes: u64,
    /// Seconds of a core that it took so far.
    pub(crate) cpu_seconds: f64,
    /// How it ended; nothing while it runs.
    pub(crate) outcome: Option<Outcome>,
}

/// Where a cell is in its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Addresses {
    /// Of Ethernet.
    pub(crate) mac: String,
    /// Of IPv4.
    pub(crate) ipv4: String,
    /// Of IPv6.
    pub(crate) ipv6: String,
}

/// A cell that was run to its end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Ran {
    /// How it ended.
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    /// What it said on its standard output.
    pub(crate) stdout: Text,
    /// What it said on its standard error.
    pub(crate) stderr: Text,
    /// What it said to whoever keeps it (lines written to /dev/pando).
    pub(crate) notes: Vec<String>,
}

/// What is sent to a cell's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signal {
    /// SIGINT, as Ctrl-C is.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// The cell's end, whatever its program thinks of it.
    #[default]
    Kill,
}

/// A template to be made of a cell that runs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Freeze {
    /// The template's name.
    pub(crate) name: String,
    /// Stop the cell as it stands, instead of asking it: nothing promises that its clones' random numbers are distinct.
    #[serde(default)]
    pub(crate) force: bool,
    /// Replace the template of this name, if there is one.
    #[serde(default)]
    pub(crate) replace: bool,
}

/// Which of a cell's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// What it says to whoever keeps it: whole lines.
    Notes,
}

impl From<Stream> for Source {
    fn from(stream: Stream) -> Source {
        match stream {
            Stream::Output => Source::Stdout,
            Stream::Errors => Source::Stderr,
            Stream::Notes => Source::Notes,
        }
    }
}

impl From<Source> for Stream {
    fn from(source: Source) -> Stream {
        match source {
            Source::Stdout => Stream::Output,
            Source::Stderr => Stream::Errors,
            Source::Notes => Stream::Notes,
        }
    }
}

/// A piece of what a cell said, or its end: a line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Piece {
    /// It said something.
    Said {
        /// The position of its first byte among all that it said: `from` begins there.
        number: u64,
        /// The position behind its last byte: `from` goes on there.
        next: u64,
        /// Where.
        stream: Source,
        /// What.
        data: Text,
    },
    /// It ended.
    Ended {
        /// How.
        outcome: Outcome,
    },
}

/// A program to be started in a cell that runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewJob {
    /// The program and its arguments: a path, or a name that the cell's `/usr/bin/env` finds.
    pub(crate) arguments: Vec<String>,
    /// Variables of its environment, beside a PATH and a HOME.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it starts [default: /].
    pub(crate) directory: Option<String>,
    /// Who it is: `UID` or `UID:GID` [default: 0:0].
    pub(crate) user: Option<String>,
    /// Seconds after which it is ended.
    pub(crate) timeout: Option<f64>,
}

/// A piece of what a program in a cell said, or its end: a line of JSON each.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum JobPiece {
    /// It said something.
    Said {
        /// Where.
        stream: Source,
        /// What.
        data: Text,
    },
    /// It ended.
    Ended {
        /// The status that a shell would show.
        exit_code: u8,
        /// The same for people.
        message: String,
    },
}

/// Why something could not be done.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Problem {
    /// For programs: a word or two with dashes.
    pub(crate) problem: String,
    /// For people: what happened, and what to do.
    pub(crate) message: String,
}
