// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando token`: credentials for the control address of `pando serve`.

use crate::api;
use crate::connection::{Client, wait_for};
use crate::failure::Failure;
use clap::Subcommand;
use hyper::Method;
use pando_image::escaped;
use std::io::Write;

/// The subcommands of `pando token`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a token and print it: its bearer may list, inspect, end, put to sleep and wake cells, and read their output
    Create {
        /// The cells that it is for: those with this label (repeatable: those with all of them)
        #[arg(short = 'l', long = "label", value_name = "NAME=VALUE", required = true, value_parser = crate::options::label)]
        labels: Vec<(String, String)>,
    },
    /// List the tokens: their numbers and labels
    #[command(visible_alias = "list")]
    Ls {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Remove tokens: they are refused from now on
    Rm {
        /// The tokens' numbers, as in `pando token ls`
        #[arg(value_name = "NUMBER", required = true)]
        tokens: Vec<u64>,
    },
}

/// Runs a subcommand.
///
/// # Errors
/// The service refuses, or does not run.
pub(crate) fn command(command: &Command) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    let mut out = std::io::stdout().lock();
    match command {
        Command::Create { labels } => {
            let spec = api::NewToken { labels: labels.iter().cloned().collect() };
            let created: api::CreatedToken = wait_for(client.request(Method::POST, "/v1/tokens", &spec))?;
            writeln!(out, "{}", created.token)?;
        }
        Command::Ls { json } => {
            let tokens: Vec<api::Token> = wait_for(client.get("/v1/tokens"))?;
            if !json {
                writeln!(out, "{:>6}  LABELS", "TOKEN")?;
            }
            for token in tokens {
                if *json {
                    writeln!(out, "{}", serde_json::to_string(&token).map_err(std::io::Error::from)?)?;
                } else {
                    let labels: Vec<String> = token.labels.iter().map(|(name, value)| escaped(format!("{name}={value}"))).collect();
                    writeln!(out, "{:>6}  {}", token.id, labels.join(", "))?;
                }
            }
        }
        Command::Rm { tokens } => wait_for(async {
            for token in tokens {
                client.request::<()>(Method::DELETE, &format!("/v1/tokens/{token}"), &()).await?;
            }
            Ok(())
        })?,
    }
    Ok(0)
}
