// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando exec`: an additional program in a cell of `pando serve`, with the streams of this process.

use super::cells::show;
use crate::api::{JobPiece, NewJob, Source, TerminalSize, TextOrBytes};
use crate::completion;
use crate::connection::{Client, lines, wait_for};
use crate::environment::{self, Variable};
use crate::failure::Failure;
use crate::terminal::{self, RawTerminal};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::ArgValueCandidates;
use hyper::{Method, header};
use signal_hook::consts::SIGCONT;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The variable that names the kind of terminal.
const TERM: &str = "TERM";

/// Options of `pando exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecOptions {
    /// Set a variable in the program's environment, or pass on one of yours (repeatable), in addition to those of the cell's program
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    variables: Vec<Variable>,

    /// Set the working directory in the cell [default: that of the cell's program]
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    directory: Option<String>,

    /// Run as this user and group, by name or number, as the cell's /etc/passwd and /etc/group have them [default: those of the cell's
    /// program]
    #[arg(short = 'u', long = "user", value_name = "USER[:GROUP]")]
    user: Option<String>,

    /// Terminate the program after this time: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::size::duration)]
    timeout: Option<Duration>,

    /// Connect standard input; without this, the program has none
    #[arg(short = 'i', long)]
    interactive: bool,

    /// Give the program a terminal in the cell, and forward every key of yours to it (includes -i)
    #[arg(short = 't', long = "tty")]
    terminal: bool,

    /// Return at once: the program runs without input, and its output is discarded
    #[arg(short = 'd', long, conflicts_with = "terminal")]
    detach: bool,

    /// The cell's number or name, as in `pando ps`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, add = ArgValueCandidates::new(completion::cells))]
    cell: String,

    /// The program (a path in the cell, or a name to find there) and its arguments
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true)]
    words: Vec<String>,
}

/// Runs a program in a cell to its end. Returns its exit status.
///
/// # Errors
/// There is no such cell, or no server runs.
pub(crate) fn exec(options: &ExecOptions) -> Result<u8, Failure> {
    if options.terminal && !terminal::stdin_is_terminal() {
        return Err(Failure::NoTerminal);
    }
    let client = Client::find_or_fail()?;
    let pair = |line: Vec<u8>| {
        let line =
            String::from_utf8(line).map_err(|error| Failure::NotUtf8(String::from_utf8_lossy(error.as_bytes()).into_owned().into()))?;
        let (name, value) = line.split_once('=').unwrap_or((&line, ""));
        Ok((name.to_owned(), value.to_owned()))
    };
    let mut variables: BTreeMap<String, String> =
        environment::given(&options.variables).into_iter().map(pair).collect::<Result<_, Failure>>()?;
    if options.terminal
        && let Ok(kind) = std::env::var(TERM)
    {
        variables.entry(TERM.into()).or_insert(kind);
    }
    let request = NewJob {
        arguments: options.words.clone(),
        environment: variables,
        directory: options.directory.clone(),
        user: options.user.clone(),
        timeout: options.timeout.map(|time| time.as_secs_f64()),
        output_limit: None,
        keep_input: false,
        detach: options.detach,
        terminal: options.terminal.then(window),
    };
    wait_for(async {
        if options.detach {
            client.post_without_input(&format!("/v1/cells/{}/exec", options.cell), &request).await?;
            return Ok(0);
        }
        let mut status = None;
        let path = format!("/v1/cells/{}/exec", options.cell);
        // Input that the program does not get stays for others: a shell's loop may read it.
        let answer = match options.interactive || options.terminal {
            true => client.post_with_input(&path, &request).await?,
            false => client.post_without_input(&path, &request).await?,
        };
        // Before the terminal is raw, so that no signal leaves it so.
        let mut signals = options.terminal.then(TerminalSignals::listen).transpose()?;
        let raw = options.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
        let place = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default().to_owned();
        let take = async |piece| match piece {
            // The libOS's own message, at a terminal that does not add carriage returns.
            JobPiece::Output { stream: Source::Stderr, data } if options.terminal => {
                let text = String::from_utf8_lossy(&data.bytes().unwrap_or_default()).replace('\n', "\r\n");
                show(Source::Stderr, &TextOrBytes::Plain(text)).await
            }
            JobPiece::Output { stream, data } => show(stream, &data).await,
            JobPiece::Ended { exit_code, .. } => {
                status = Some(exit_code);
                Ok(())
            }
        };
        tokio::select! {
            read = lines(answer, take) => read?,
            // The service kills the program of a client that is gone.
            signal = follow(&client, &place, &mut signals) => return Ok(128 + signal?),
        }
        drop(raw);
        status.ok_or_else(|| Failure::ConnectionLost(std::io::ErrorKind::UnexpectedEof.into()))
    })
}

/// The size of this process's terminal.
fn window() -> TerminalSize {
    let [rows, columns] = terminal::window();
    TerminalSize { rows, columns }
}

/// The signals of a process whose terminal a program in a cell has.
struct TerminalSignals {
    resized: Signal,
    continued: Signal,
    /// Those that end this process, by number.
    ends: [(u8, Signal); 4],
}

impl TerminalSignals {
    fn listen() -> Result<TerminalSignals, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::Signals);
        let end = |kind: SignalKind| listen(kind).map(|signal| (kind.as_raw_value() as u8, signal));
        Ok(TerminalSignals {
            resized: listen(SignalKind::window_change())?,
            continued: listen(SignalKind::from_raw(SIGCONT))?,
            ends: [end(SignalKind::interrupt())?, end(SignalKind::terminate())?, end(SignalKind::hangup())?, end(SignalKind::quit())?],
        })
    }
}

/// Forwards the size of this process's terminal whenever it changes. After a stop of this process it makes the terminal raw again. Returns
/// the number of the signal that ends this process.
///
/// # Errors
/// The terminal cannot be made raw.
async fn follow(client: &Client, place: &str, signals: &mut Option<TerminalSignals>) -> Result<u8, Failure> {
    let Some(TerminalSignals { resized, continued, ends }) = signals else { return std::future::pending().await };
    let [first, second, third, fourth] = ends;
    loop {
        let TerminalSize { rows, columns } = window();
        // The program may have ended.
        let _ = client.request::<()>(Method::POST, &format!("{place}/resize?rows={rows}&columns={columns}"), &()).await;
        tokio::select! {
            _ = resized.recv() => {}
            _ = continued.recv() => terminal::resume().map_err(Failure::Terminal)?,
            _ = first.1.recv() => return Ok(first.0),
            _ = second.1.recv() => return Ok(second.0),
            _ = third.1.recv() => return Ok(third.0),
            _ = fourth.1.recv() => return Ok(fourth.0),
        }
    }
}
