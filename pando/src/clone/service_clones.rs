// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of clones in `pando serve`, for a process in a cell: only the service has the templates there.

use super::CloneOptions;
use super::batch::{self, CloneRunner};
use crate::api::{NewCell, Outcome, Piece, Source};
use crate::connection::{Client, lines, wait_for};
use crate::failure::Failure;
use std::io::ErrorKind;

/// Clones in a service.
struct ServiceClones<'a> {
    options: &'a CloneOptions,
    client: &'a Client,
    request: &'a NewCell,
}

/// Creates the clones. Returns 0 if all of them succeeded.
///
/// # Errors
/// A clone could not be created, or its output could not be written.
pub(super) fn run(options: &CloneOptions, client: &Client, request: &NewCell) -> Result<u8, Failure> {
    batch::run_all(options, &ServiceClones { options, client, request }, || Ok(()))
}

impl CloneRunner for ServiceClones<'_> {
    fn run(&self, number: u32) -> Result<Option<String>, Failure> {
        let outcome = wait_for(self.run_to_end(number))?;
        Ok((outcome.exit_code != 0).then_some(outcome.message))
    }
}

impl ServiceClones<'_> {
    /// Creates a clone and reads its output until it has ended. It ends with this process.
    async fn run_to_end(&self, number: u32) -> Result<Outcome, Failure> {
        let host_name = Some(format!("{}-{number}", self.request.template));
        let answer = self.client.post_without_input("/v1/attach", &NewCell { host_name, ..self.request.clone() }).await?;
        let (mut output, mut errors) = batch::sinks(self.options, number).map_err(Failure::Output)?;
        let mut outcome = None;
        lines(answer, async |piece| {
            let (sink, data) = match piece {
                Piece::Output { stream: Source::Stdout, data, .. } => (&mut output, data),
                Piece::Output { stream: Source::Stderr, data, .. } => (&mut errors, data),
                Piece::Output { stream: Source::Notes, .. } => return Ok(()),
                Piece::Ended { outcome: ended } => {
                    outcome = Some(ended);
                    return Ok(());
                }
            };
            sink.take(&data.bytes().unwrap_or_default()).map_err(Failure::Output)
        })
        .await?;
        output.finish().and_then(|()| errors.finish()).map_err(Failure::Output)?;
        outcome.ok_or_else(|| Failure::ConnectionLost(ErrorKind::UnexpectedEof.into()))
    }
}
