// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of the service's clients: as many as there are descriptors for, each with a time limit for what it sends.

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// How long a client may take for the head of a request, from its connection or its last answer on; and how long it may send nothing of a body that is waited for.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long a client that is turned away may take to read that.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Clients that are being turned away at a time; more are just disconnected.
const REFUSALS: usize = 16;
/// How long to wait where the host has no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers whoever connects, for ever; so many at a time.
pub(super) async fn answer(listener: UnixListener, router: Router, most: usize) -> io::Result<()> {
    let (places, refusals) = (Arc::new(Semaphore::new(most)), Arc::new(Semaphore::new(REFUSALS)));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // A client has gone, or the host is short of something: another time.
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let router = router.clone();
            tokio::spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(SILENCE_MAX);
                // Clients break off as they like.
                let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
                drop(place);
            });
        } else if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
            tokio::spawn(async move {
                // A client that does not read it is disconnected all the same.
                let _ = timeout(REFUSAL_TIME, refuse(stream, most)).await;
                drop(place);
            });
        }
    }
}

/// Tells a client that there are too many.
async fn refuse(mut stream: UnixStream, most: usize) -> io::Result<()> {
    let message = format!(
        "all {most} connections of this service are in use: close some, or start it with a higher limit of open files (`ulimit -n`)"
    );
    let body = serde_json::json!({ "problem": "too-many-connections", "message": message }).to_string();
    let length = body.len();
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).await?;
    stream.shutdown().await?;
    // The rest of the request is read, or the reset of the connection would discard the answer.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Lets a request's body break off if its client sends nothing for too long.
pub(super) async fn limit_silence(request: Request) -> Request {
    request.map(|body| Body::new(Limited { body, silence: Box::pin(sleep(SILENCE_MAX)) }))
}

/// A body with a time limit for each piece.
struct Limited {
    body: Body,
    silence: Pin<Box<Sleep>>,
}

impl HttpBody for Limited {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
            return Poll::Ready(frame);
        }
        ready!(self.silence.as_mut().poll(context));
        let seconds = SILENCE_MAX.as_secs();
        Poll::Ready(Some(Err(axum::Error::new(io::Error::other(format!("nothing came for {seconds} seconds"))))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::{answer, limit_silence};
    use axum::Router;
    use axum::middleware::map_request;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};

    /// Time passes here as soon as everybody waits for it.
    #[tokio::test(start_paused = true)]
    async fn who_sends_nothing_is_not_waited_for() {
        let place = tempfile::tempdir().expect("there is room");
        let path = place.path().join("socket");
        let router = Router::new().route("/", post(|body: String| async move { body })).layer(map_request(limit_silence));
        let listener = UnixListener::bind(&path).expect("there is room");
        tokio::spawn(answer(listener, router, 4));
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n";
        for (sent, answered) in [("", ""), ("POST / HTT", ""), (head, "HTTP/1.1 400"), (&format!("{head}body"), "HTTP/1.1 200")] {
            let mut stream = UnixStream::connect(&path).await.expect("it listens");
            stream.write_all(sent.as_bytes()).await.expect("it reads");
            let mut said = Vec::new();
            // It may have something to say to half a head.
            stream.read_to_end(&mut said).await.expect("it ends");
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with(answered), "{sent:?}: {said}");
        }
    }
}
