// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streamed bodies of requests and answers.

use super::connections::READ_MAX;
use super::problem::Problem;
use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Bytes of the longest first line.
const LINE_MAX: usize = 1 << 20;
/// How long an unwanted request body is drained.
const LINGER: Duration = Duration::from_secs(5);
/// Pieces of an answer that are queued for a slow reader.
const QUEUED_PIECES: usize = 4;

/// A request's body.
pub(super) struct RequestBody {
    body: Body,
    /// Received bytes that were not consumed.
    rest: Bytes,
}

impl RequestBody {
    pub(super) fn new(body: Body) -> RequestBody {
        RequestBody { body, rest: Bytes::new() }
    }

    /// Parses its first line as JSON.
    ///
    /// # Errors
    /// The line is invalid, too long or late.
    pub(super) async fn first_line<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let late = |_| Problem::timeout("the first line of the body (the request as JSON) did not arrive in time");
        timeout(READ_MAX, self.read_first_line()).await.map_err(late)?
    }

    async fn read_first_line<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let mut line = Vec::new();
        while let Some(mut bytes) = self.next().await? {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                self.rest = bytes.split_off(end + 1);
            }
            line.extend_from_slice(&bytes);
            if line.len() > LINE_MAX {
                return Err(Problem::too_large("the first line of the body (the request as JSON) exceeds 1 MiB"));
            }
            if end.is_some() {
                break;
            }
        }
        serde_json::from_slice(&line).map_err(|error| Problem::request(format!("the first line: {error}")))
    }

    /// The next bytes. `None` at the end.
    ///
    /// # Errors
    /// The client disconnected or timed out.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        match self.body.frame().await {
            None => Ok(None),
            Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
            Some(Err(error)) => Err(Problem::request(format!("the request is incomplete: {error}"))),
        }
    }
}

impl Drop for RequestBody {
    /// Drains the body for a while: a client that still sends could not read the answer if the connection were closed.
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut body = std::mem::take(&mut self.body);
        if !body.is_end_stream() {
            runtime.spawn(tokio::time::timeout(LINGER, async move { while let Some(Ok(_)) = body.frame().await {} }));
        }
    }
}

/// A streamed answer, as long as the client reads it.
pub(super) struct ResponseBody {
    sender: Sender<Bytes, io::Error>,
    body_dropped: oneshot::Receiver<()>,
}

/// The client has disconnected.
#[derive(Debug)]
pub(super) struct ClientDisconnected;

impl ResponseBody {
    /// A new answer and its body.
    pub(super) fn new() -> (ResponseBody, Body) {
        let (sender, body) = Channel::new(QUEUED_PIECES);
        // Dropped with the body.
        let (here, body_dropped) = oneshot::channel::<()>();
        let body = body.map_frame(move |frame| {
            let _ = &here;
            frame
        });
        (ResponseBody { sender, body_dropped }, Body::new(body))
    }

    /// Sends bytes; waits for a slow reader.
    ///
    /// # Errors
    /// The client has disconnected.
    pub(super) async fn send(&mut self, bytes: impl Into<Bytes>) -> Result<(), ClientDisconnected> {
        self.sender.send_data(bytes.into()).await.map_err(|_| ClientDisconnected)
    }

    /// Sends a line of JSON.
    ///
    /// # Errors
    /// The same.
    pub(super) async fn line(&mut self, said: &impl Serialize) -> Result<(), ClientDisconnected> {
        let mut line = serde_json::to_vec(said).map_err(|_| ClientDisconnected)?;
        line.push(b'\n');
        self.send(line).await
    }

    /// Waits for a future, as long as the client stays connected.
    ///
    /// # Errors
    /// The client has disconnected.
    pub(super) async fn unless_disconnected<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ClientDisconnected> {
        tokio::select! {
            // Noticed even if the work never waits.
            biased;
            _ = &mut self.body_dropped => Err(ClientDisconnected),
            done = work => Ok(done),
        }
    }

    /// Aborts the answer, so that the client does not take it for complete.
    pub(super) fn abort(self, error: io::Error) {
        self.sender.abort(error);
    }
}
