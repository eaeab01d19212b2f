// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone` where `pando serve` runs: a cell of the server's with the streams and signals of whoever asks, as if it were this process's own. It ends with this process.

use super::cells::show;
use super::{Client, lines, wait_for};
use crate::api::{self, Reason};
use crate::failure::Failure;
use crate::run::{SIGPIPE, SIGTERM};
use crate::say;
use crate::signals::{Before, Felt, GRACE, ended_by};
use axum::body::Bytes;
use hyper::{Method, header};
use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

/// How long whoever takes its output may take for the last of it, once the host has ended the program.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Makes so many cells that go on whoever looks, and tells their numbers.
///
/// # Errors
/// One cannot be made, or its number cannot be written.
pub(crate) fn detach(client: &Client, asked: &api::NewCell, count: u32) -> Result<u8, Failure> {
    wait_for(async {
        for _ in 0..count {
            let cell: api::Cell = client.ask(Method::POST, "/v1/cells", asked).await?;
            writeln!(std::io::stdout(), "{}", cell.id)?;
            // Who has ended already reads nothing.
            let _ = client.give(&format!("/v1/cells/{}/input?end=true", cell.id), Bytes::new()).await;
        }
        Ok(0)
    })
}

/// Runs a cell to its end, with the streams of this process. Returns the exit status that tells how it ended.
///
/// # Errors
/// It cannot be made, or what it says cannot be written.
pub(crate) fn visit(client: &Client, asked: &api::NewCell) -> Result<u8, Failure> {
    wait_for(stay(client, asked))
}

/// Runs it with streams and signals until it has ended.
async fn stay(client: &Client, asked: &api::NewCell) -> Result<u8, Failure> {
    let answer = client.attend("/v1/attach", asked).await?;
    let place = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default().to_owned();
    let mut ended = None;
    let said = lines(answer, async |piece| match piece {
        api::Piece::Ended { outcome } => {
            ended = Some(outcome);
            Ok(())
        }
        api::Piece::Said { stream, data, .. } => match show(stream, &data).await {
            // It is told when it writes there again, as a native program is.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => hang_up(client, &place, stream).await,
            shown => shown,
        },
    });
    let wish = Cell::new(None);
    tokio::select! {
        said = said => said?,
        passed = pass_on(client, &place, &wish) => passed?,
    }
    match (ended, wish.get()) {
        (Some(outcome), wish) => Ok(told(&asked.template, &outcome, wish)),
        // Nobody takes its last words, nor would they ours.
        (None, Some(signal)) => Ok(128 + signal),
        (None, None) => Err(Failure::Gone(ErrorKind::UnexpectedEof.into())),
    }
}

/// Tells the program that nobody reads one of its outputs any more.
async fn hang_up(client: &Client, place: &str, stream: api::Source) -> Result<(), Failure> {
    let stream = serde_json::to_value(stream).map_err(std::io::Error::from)?;
    let path = format!("{place}/hang-up?stream={}", stream.as_str().unwrap_or_default());
    // Who has ended hears nothing.
    let _ = client.ask::<()>(Method::POST, &path, &()).await;
    Ok(())
}

/// Says how it ended, if that needs a word, and returns the status: that of the host's signal, if it was this which ended it.
fn told(template: &str, outcome: &api::Outcome, wish: Option<u8>) -> u8 {
    let died_of = |signal| outcome.reason == Reason::Signalled && outcome.exit_code == 128 + signal;
    match wish {
        Some(signal) if outcome.reason == Reason::Killed || died_of(SIGTERM) => {
            say::problem(&format_args!("{template}: {}", ended_by(signal)));
            return 128 + signal;
        }
        _ if outcome.reason == Reason::Exited || died_of(SIGPIPE) => {}
        _ if outcome.reason == Reason::MemoryLimit => {
            say::problem(&format_args!("{template}: {}: give it more with --memory", outcome.message))
        }
        _ => say::problem(&format_args!("{template}: {}", outcome.message)),
    }
    outcome.exit_code
}

/// Passes signals on until one has ended the program and nobody takes what it said last; `wish` is that by which the host wants the end.
async fn pass_on(client: &Client, place: &str, wish: &Cell<Option<u8>>) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(Failure::Signals);
    let mut interrupted = listen(SignalKind::interrupt())?;
    let (mut terminated, mut hung_up, mut quit) =
        (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?, listen(SignalKind::quit())?);
    let mut before = Before::default();
    let mut last_moment = None;
    loop {
        let (kind, felt) = {
            let mut come = |kind: SignalKind| (Some(kind), before.feel(kind.as_raw_value()));
            tokio::select! {
                _ = interrupted.recv() => come(SignalKind::interrupt()),
                _ = terminated.recv() => come(SignalKind::terminate()),
                _ = hung_up.recv() => come(SignalKind::hangup()),
                _ = quit.recv() => come(SignalKind::quit()),
                () = sleep_until(last_moment.unwrap_or_else(Instant::now)), if last_moment.is_some() => (None, Felt::Ended),
            }
        };
        let sent = match felt {
            Felt::Interrupted => "interrupt",
            Felt::Asked => {
                last_moment = Some(Instant::now() + GRACE);
                "terminate"
            }
            Felt::Ended => {
                last_moment = None;
                "kill"
            }
        };
        if felt != Felt::Interrupted {
            wish.set(kind.map(|kind| kind.as_raw_value() as u8).or(wish.get()));
        }
        // Who has ended hears nothing, and that the server has broken off is told by what it says.
        let _ = client.ask::<()>(Method::POST, &format!("{place}/kill?signal={sent}"), &()).await;
        if felt == Felt::Ended {
            sleep(LAST_WORDS).await;
            return Ok(());
        }
    }
}
