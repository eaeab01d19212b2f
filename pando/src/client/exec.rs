// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando exec`: an additional program in a cell of `pando serve`, with the streams of this process.

use super::cells::show;
use crate::api::{JobPiece, NewJob};
use crate::completion;
use crate::connection::{Client, lines, wait_for};
use crate::environment::{self, Variable};
use crate::failure::Failure;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::ArgValueCandidates;
use std::time::Duration;

/// Options of `pando exec`.
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Set a variable in the program's environment, or pass on one of yours (repeatable), in addition to those of the cell's program
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    variables: Vec<Variable>,

    /// Set the working directory in the cell [default: that of the cell's program]
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    directory: Option<String>,

    /// Run as this user and group, by number [default: those of the cell's program]
    #[arg(short = 'u', long = "user", value_name = "UID[:GID]")]
    user: Option<String>,

    /// Terminate the program after this time: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::size::duration)]
    timeout: Option<Duration>,

    /// No effect: standard input is always connected
    #[arg(short = 'i', long = "interactive")]
    _interactive: bool,

    #[arg(short = 't', long = "tty", hide = true)]
    terminal: bool,

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
pub(crate) fn exec(options: &Exec) -> Result<u8, Failure> {
    if options.terminal {
        return Err(Failure::NoTerminalThere);
    }
    let client = Client::need()?;
    let pair = |line: Vec<u8>| {
        let line =
            String::from_utf8(line).map_err(|error| Failure::NotUtf8(String::from_utf8_lossy(error.as_bytes()).into_owned().into()))?;
        let (name, value) = line.split_once('=').unwrap_or((&line, ""));
        Ok((name.to_owned(), value.to_owned()))
    };
    let request = NewJob {
        arguments: options.words.clone(),
        environment: environment::given(&options.variables).into_iter().map(pair).collect::<Result<_, Failure>>()?,
        directory: options.directory.clone(),
        user: options.user.clone(),
        timeout: options.timeout.map(|time| time.as_secs_f64()),
        keep_input: false,
    };
    wait_for(async {
        let mut status = None;
        let answer = client.post_with_input(&format!("/v1/cells/{}/exec", options.cell), &request).await?;
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
