// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando attach`: the streams of this process, connected to a cell of `pando serve` that runs already. The cell outlives this process.

use super::cells::print;
use crate::api;
use crate::completion;
use crate::connection::{Client, lines, wait_for};
use crate::diagnostics;
use crate::failure::Failure;
use axum::body::Bytes;
use clap::{ArgAction, Args};
use clap_complete::ArgValueCandidates;
use hyper::Method;
use std::io::ErrorKind;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Bytes of input per request.
const PIECE: usize = 64 << 10;

/// Options of `pando attach`.
#[derive(Debug, Args)]
pub(crate) struct AttachOptions {
    /// Do not forward standard input
    #[arg(long = "no-stdin")]
    no_input: bool,

    /// Forward Ctrl-C and the signals HUP, TERM and QUIT to the program; with `false` they end this command only
    #[arg(long = "sig-proxy", value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    forwards_signals: bool,

    /// The cell's number or name, as in `pando ps`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, add = ArgValueCandidates::new(completion::cells))]
    cell: String,
}

/// Prints a cell's further output and forwards standard input until the cell has ended. Returns its exit status.
///
/// # Errors
/// There is no such cell, it has ended, or no server runs.
pub(crate) fn attach(options: &AttachOptions) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    wait_for(async {
        let cell: api::Cell = client.get(&format!("/v1/cells/{}", options.cell)).await?;
        if cell.outcome.is_some() {
            return Err(Failure::NotAttached(options.cell.clone()));
        }
        let place = format!("/v1/cells/{}", cell.id);
        let mut status = None;
        let output = format!("{place}/output?follow=true&tail=0");
        // From here on no output is missed, also that which signals cause.
        let answer = client.open(&output).await?;
        let read = lines(answer, async |piece| {
            if let api::Piece::Ended { outcome } = &piece {
                status = Some(outcome.exit_code);
            }
            print(&piece).await
        });
        // Without forwarding, they end this process.
        let mut signals = options.forwards_signals.then(Signals::listen).transpose()?;
        tokio::select! {
            read = read => read?,
            failed = forward_input(&client, &place), if !options.no_input => failed?,
            ended = forward_signals(&mut signals, &client, &place) => ended?,
        }
        status.ok_or_else(|| Failure::ConnectionLost(ErrorKind::UnexpectedEof.into()))
    })
}

/// Forwards standard input to the cell. Returns only if that fails for another reason than that the program reads no input.
async fn forward_input(client: &Client, place: &str) -> Result<(), Failure> {
    let mut input = tokio::io::stdin();
    let mut piece = vec![0; PIECE];
    loop {
        // Its end does not end the program's input: another client may attach.
        let count = input.read(&mut piece).await.unwrap_or(0);
        if count == 0 {
            break;
        }
        match client.post_content(&format!("{place}/input"), Bytes::copy_from_slice(&piece[..count])).await {
            Ok(()) => {}
            Err(Failure::Refused { .. }) => {
                diagnostics::print_notice(&"the cell reads no input: `pando run -d -i` keeps it open");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    std::future::pending().await
}

/// Forwards signals, if there are any to forward.
async fn forward_signals(signals: &mut Option<Signals>, client: &Client, place: &str) -> Result<(), Failure> {
    match signals {
        Some(signals) => signals.forward(client, place).await,
        None => std::future::pending().await,
    }
}

/// The signals that are forwarded.
struct Signals([(&'static str, Signal); 4]);

impl Signals {
    fn listen() -> Result<Signals, Failure> {
        let listen = |name, kind| Ok::<_, Failure>((name, signal(kind).map_err(Failure::Signals)?));
        Ok(Signals([
            listen("INT", SignalKind::interrupt())?,
            listen("TERM", SignalKind::terminate())?,
            listen("HUP", SignalKind::hangup())?,
            listen("QUIT", SignalKind::quit())?,
        ]))
    }

    /// Sends them to the cell's program.
    async fn forward(&mut self, client: &Client, place: &str) -> Result<(), Failure> {
        let [first, second, third, fourth] = &mut self.0;
        loop {
            let name = tokio::select! {
                _ = first.1.recv() => first.0,
                _ = second.1.recv() => second.0,
                _ = third.1.recv() => third.0,
                _ = fourth.1.recv() => fourth.0,
            };
            // The cell may have ended.
            let _ = client.request::<()>(Method::POST, &format!("{place}/kill?signal={name}"), &()).await;
        }
    }
}
