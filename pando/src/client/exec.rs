// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando exec`: a program beside the first one of a cell of `pando serve`, with the streams of whoever asks.

use super::cells::show;
use super::{Client, lines, wait_for};
use crate::api::{JobPiece, NewJob};
use crate::completion;
use crate::failure::Failure;
use crate::host::{self, Variable};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::ArgValueCandidates;
use std::time::Duration;

/// What to start, and where.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Set a variable in the program's environment, or pass on one of yours (repeat for more)
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    variables: Vec<Variable>,

    /// Start in this directory of the cell [default: /]
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    directory: Option<String>,

    /// Be this user and group, by number
    #[arg(short = 'u', long = "user", value_name = "UID[:GID]")]
    user: Option<String>,

    /// End the program after this long: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::size::duration)]
    timeout: Option<Duration>,

    /// Accepted, and changes nothing: standard input is always connected
    #[arg(short = 'i', long = "interactive")]
    _interactive: bool,

    #[arg(short = 't', long = "tty", hide = true)]
    terminal: bool,

    /// The cell's number, which `pando ps` tells
    #[arg(value_name = "CELL", add = ArgValueCandidates::new(completion::cells))]
    cell: u64,

    /// The program and its arguments: a path of the cell, or a name to look for there
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true)]
    words: Vec<String>,
}

/// Runs a program in a cell to its end; returns the exit status that tells how it ended.
///
/// # Errors
/// There is no such cell, or nobody serves.
pub(crate) fn exec(options: &Exec) -> Result<u8, Failure> {
    if options.terminal {
        return Err(Failure::NoTerminalThere);
    }
    let client = Client::need()?;
    let pair = |line: Vec<u8>| {
        let line =
            String::from_utf8(line).map_err(|error| Failure::NoText(String::from_utf8_lossy(error.as_bytes()).into_owned().into()))?;
        let (name, value) = line.split_once('=').unwrap_or((&line, ""));
        Ok((name.to_owned(), value.to_owned()))
    };
    let asked = NewJob {
        arguments: options.words.clone(),
        environment: host::given(&options.variables).into_iter().map(pair).collect::<Result<_, Failure>>()?,
        directory: options.directory.clone(),
        user: options.user.clone(),
        timeout: options.timeout.map(|time| time.as_secs_f64()),
    };
    wait_for(async {
        let mut status = None;
        let answer = client.attend(&format!("/v1/cells/{}/exec", options.cell), &asked).await?;
        let take = async |piece| match piece {
            JobPiece::Said { stream, data } => show(stream, &data).await,
            JobPiece::Ended { exit_code, .. } => {
                status = Some(exit_code);
                Ok(())
            }
        };
        lines(answer, take).await?;
        status.ok_or_else(|| Failure::Gone(std::io::ErrorKind::UnexpectedEof.into()))
    })
}
