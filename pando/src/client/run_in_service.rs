// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone` through `pando serve`: a cell of the server with the streams and signals of this process. It ends with this process.

use super::cells::show;
use crate::api::{self, Reason};
use crate::connection::{Client, lines, wait_for};
use crate::diagnostics;
use crate::failure::Failure;
use crate::signals::{GRACE_PERIOD, SIGNAL_TO_END, SignalAction, SignalHistory, ended_by};
use axum::body::Bytes;
use hyper::{Method, header};
use pando_gateway::Publication;
use pando_manager::outcome::SIGPIPE;
use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

/// How long the last output may take after a host signal has ended the program.
const DRAIN_TIME: Duration = Duration::from_secs(3);

/// Creates `count` detached cells and prints their numbers, and the ports of the host that lead to them if the host chose these, or
/// the name of a single one that is published by name. Their standard input ends at once, unless `keep_input`.
///
/// # Errors
/// A cell cannot be created, or its number cannot be written.
pub(crate) fn run_detached(client: &Client, request: &api::NewCell, count: u32, keep_input: bool) -> Result<u8, Failure> {
    let is_chosen = |text: &String| match text.parse() {
        Ok(Publication::Forward(forward)) => forward.host.port() == 0,
        Ok(Publication::ByName(_)) => count == 1,
        Err(_) => false,
    };
    let chooses_port = request.publish.iter().any(is_chosen);
    wait_for(async {
        for _ in 0..count {
            let cell: api::Cell = client.request(Method::POST, "/v1/cells", request).await?;
            writeln!(std::io::stdout(), "{}", cell.id)?;
            for port in cell.ports.iter().filter(|_| chooses_port) {
                diagnostics::print_notice(&format_args!("{} is forwarded to port {} of cell {}", port.host, port.cell, cell.id));
            }
            if keep_input {
                continue;
            }
            // A cell that has ended reads nothing.
            let _ = client.post_content(&format!("/v1/cells/{}/input?end=true", cell.id), Bytes::new()).await;
        }
        Ok(0)
    })
}

/// Runs a cell to its end, with the streams of this process. Returns its exit status.
///
/// # Errors
/// It cannot be created, or its output cannot be written.
pub(crate) fn run_attached(client: &Client, request: &api::NewCell) -> Result<u8, Failure> {
    wait_for(run(client, request))
}

/// Runs it with streams and signals until it has ended.
async fn run(client: &Client, request: &api::NewCell) -> Result<u8, Failure> {
    let answer = client.post_with_input("/v1/attach", request).await?;
    let place = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default().to_owned();
    let mut ended = None;
    let said = lines(answer, async |piece| match piece {
        api::Piece::Ended { outcome } => {
            ended = Some(outcome);
            Ok(())
        }
        api::Piece::Output { stream, data, .. } => match show(stream, &data).await {
            // The program gets SIGPIPE when it writes there again, as a native program does.
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => close_stream(client, &place, stream).await,
            shown => shown,
        },
    });
    let end_signal = Cell::new(None);
    tokio::select! {
        said = said => said?,
        passed = forward(client, &place, &end_signal) => passed?,
    }
    match (ended, end_signal.get()) {
        (Some(outcome), end_signal) => Ok(report_end(&request.template, &outcome, end_signal)),
        // The output's reader does not read the last output; a message would not be read either.
        (None, Some(signal)) => Ok(128 + signal),
        (None, None) => Err(Failure::ConnectionLost(ErrorKind::UnexpectedEof.into())),
    }
}

/// Closes the read end of one of the program's outputs.
async fn close_stream(client: &Client, place: &str, stream: api::Source) -> Result<(), Failure> {
    let stream = serde_json::to_value(stream).map_err(std::io::Error::from)?;
    let path = format!("{place}/close-stream?stream={}", stream.as_str().unwrap_or_default());
    // The cell may have ended.
    let _ = client.request::<()>(Method::POST, &path, &()).await;
    Ok(())
}

/// Reports how the cell ended if that needs a message. Returns its exit status, or that of the host's signal if that ended it.
fn report_end(template: &str, outcome: &api::Outcome, end_signal: Option<u8>) -> u8 {
    let died_of = |signal| outcome.reason == Reason::Signalled && outcome.exit_code == 128 + signal;
    match end_signal {
        Some(signal) if outcome.reason == Reason::Killed || died_of(SIGNAL_TO_END) => {
            diagnostics::print_error(&format_args!("{template}: {}", ended_by(signal)));
            return 128 + signal;
        }
        _ if outcome.reason == Reason::Exited || died_of(SIGPIPE) => {}
        _ if outcome.reason == Reason::MemoryLimit => {
            diagnostics::print_error(&format_args!("{template}: {}: give it more with --memory", outcome.message))
        }
        _ => diagnostics::print_error(&format_args!("{template}: {}", outcome.message)),
    }
    outcome.exit_code
}

/// Forwards signals. Returns when one has ended the program and its last output was not read in time. `end_signal` receives the
/// signal by which the host asked for the end.
async fn forward(client: &Client, place: &str, end_signal: &Cell<Option<u8>>) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(Failure::Signals);
    let mut interrupted = listen(SignalKind::interrupt())?;
    let (mut terminated, mut hung_up, mut quit) =
        (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?, listen(SignalKind::quit())?);
    let mut before = SignalHistory::default();
    let mut last_moment = None;
    loop {
        let (kind, action) = {
            let mut come = |kind: SignalKind| (Some(kind), before.receive(kind.as_raw_value()));
            tokio::select! {
                _ = interrupted.recv() => come(SignalKind::interrupt()),
                _ = terminated.recv() => come(SignalKind::terminate()),
                _ = hung_up.recv() => come(SignalKind::hangup()),
                _ = quit.recv() => come(SignalKind::quit()),
                () = sleep_until(last_moment.unwrap_or_else(Instant::now)), if last_moment.is_some() => (None, SignalAction::End),
            }
        };
        let sent = match action {
            SignalAction::Interrupt => "interrupt",
            SignalAction::RequestEnd => {
                last_moment = Some(Instant::now() + GRACE_PERIOD);
                "terminate"
            }
            SignalAction::End => {
                last_moment = None;
                "kill"
            }
        };
        if action != SignalAction::Interrupt {
            end_signal.set(kind.map(|kind| kind.as_raw_value() as u8).or(end_signal.get()));
        }
        // The cell may have ended. A failed server shows in the cell's output.
        let _ = client.request::<()>(Method::POST, &format!("{place}/kill?signal={sent}"), &()).await;
        if action == SignalAction::End {
            sleep(DRAIN_TIME).await;
            return Ok(());
        }
    }
}
