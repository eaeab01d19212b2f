// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone` where `pando serve` runs: a cell of the server's with the streams and signals of whoever asks.

use super::cells::print;
use super::{Client, wait_for};
use crate::api;
use crate::failure::Failure;
use crate::say;
use axum::body::Bytes;
use hyper::Method;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

/// Bytes of input that are read at a time.
const PIECE: usize = 64 << 10;

/// Runs a cell to its end, with the streams of this process; or only makes it, and tells its number. Returns the exit status that tells how it ended.
///
/// # Errors
/// It cannot be made, or what it says cannot be written.
pub(crate) fn visit(client: &Client, asked: &api::NewCell, detached: bool) -> Result<u8, Failure> {
    wait_for(async {
        let cell: api::Cell = client.ask(Method::POST, "/v1/cells", asked).await?;
        if detached {
            println!("{}", cell.id);
            return client.give(&format!("/v1/cells/{}/input?end=true", cell.id), Bytes::new()).await.map(|()| 0);
        }
        let outcome = attend(client, cell.id).await;
        // The streams were all that anybody wanted of it.
        let forgotten = client.ask::<()>(Method::DELETE, &format!("/v1/cells/{}", cell.id), &()).await;
        let outcome = outcome?;
        forgotten?;
        if !matches!(outcome.reason, api::Reason::Exited) {
            say::problem(&format_args!("{}: {}", asked.template, outcome.message));
        }
        Ok(outcome.exit_code)
    })
}

/// Carries streams and signals until the cell has ended.
async fn attend(client: &Client, id: u64) -> Result<api::Outcome, Failure> {
    let signals = async {
        let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::Signals)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
        loop {
            let sent = tokio::select! {
                _ = interrupted.recv() => "interrupt",
                _ = terminated.recv() => "terminate",
            };
            client.ask::<()>(Method::POST, &format!("/v1/cells/{id}/kill?signal={sent}"), &()).await?;
        }
    };
    let mut ended = None;
    let path = format!("/v1/cells/{id}/output?follow=true&whole=true");
    let output = client.follow(&path, |piece| match piece {
        api::Piece::Ended { outcome } => {
            ended = Some(outcome);
            Ok(())
        }
        piece => print(&piece),
    });
    // What the cell does not read is nobody's failure.
    let input = async {
        let _ = carry_input(client, id).await;
        std::future::pending::<()>().await;
    };
    let failed: Result<(), Failure> = tokio::select! {
        done = output => done,
        () = input => Ok(()),
        failed = signals => failed,
    };
    failed?;
    ended.ok_or_else(|| Failure::Gone(std::io::ErrorKind::UnexpectedEof.into()))
}

async fn carry_input(client: &Client, id: u64) -> Result<(), Failure> {
    let mut input = tokio::io::stdin();
    let mut piece = vec![0; PIECE];
    loop {
        let count = input.read(&mut piece).await.unwrap_or_default();
        let end = count == 0;
        client.give(&format!("/v1/cells/{id}/input?end={end}"), Bytes::copy_from_slice(&piece[..count])).await?;
        if end {
            return Ok(());
        }
    }
}
