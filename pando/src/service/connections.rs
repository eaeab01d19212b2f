// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of the service's clients: limited by descriptors, each with a time limit for what it sends.

use super::problem::Problem;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// How long a client may take for a request's head, after connecting or after the last answer, and for each piece of a body.
pub(super) const READ_MAX: Duration = Duration::from_secs(60);
/// Bytes of a connection that are buffered in each direction.
const BUFFER_MAX: usize = 128 << 10;
/// Bytes per second, on the average, of a client that may take longer than that for a whole body.
const RATE_MIN: u64 = 64 << 10;
/// How long a client that is turned away may take to read that.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Clients that are being refused at a time; more are just disconnected.
const REFUSALS: usize = 16;
/// How long to wait if the host has no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening socket.
pub(super) trait Accept {
    /// A connection.
    type Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection.
    async fn next(&self) -> io::Result<Self::Connection>;
}

impl Accept for UnixListener {
    type Connection = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Accept for TcpListener {
    type Connection = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Connections whose clients have not shown a token, in the order in which they came. The oldest is closed if there are too many.
#[derive(Default)]
struct UnauthenticatedClients {
    next: AtomicU64,
    disconnect: Mutex<BTreeMap<u64, oneshot::Sender<()>>>,
}

impl UnauthenticatedClients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<()>>> {
        self.disconnect.lock().expect("no holder of this lock panics")
    }

    /// Adds a connection. The receiver gets a message when the connection is to end.
    fn add(self: &Arc<Self>) -> (UnauthenticatedConnection, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, sender);
        (UnauthenticatedConnection { number, unknown: Arc::clone(self) }, receiver)
    }

    /// Disconnects the first. `false`: all clients have shown a token.
    fn disconnect_first(&self) -> bool {
        let mut clients = self.lock();
        while let Some((_, sender)) = clients.pop_first() {
            // The task of the first may just have ended.
            if sender.send(()).is_ok() {
                return true;
            }
        }
        false
    }
}

/// A connection of the control address, among the extensions of its requests.
#[derive(Clone)]
pub(super) struct UnauthenticatedConnection {
    number: u64,
    unknown: Arc<UnauthenticatedClients>,
}

impl UnauthenticatedConnection {
    /// Records that its client has a token: it does not make way for others any more.
    pub(super) fn note_token(&self) {
        self.unknown.lock().remove(&self.number);
    }
}

/// Accepts and serves connections forever, at most `max` at a time.
pub(super) async fn serve_clients(listener: impl Accept, router: Router, max: usize) -> io::Result<()> {
    serve(listener, router, max, None).await
}

/// The same for clients with tokens. If there are too many, the first that has not shown a token is disconnected for another.
pub(super) async fn serve_token_clients(listener: impl Accept, router: Router, max: usize) -> io::Result<()> {
    serve(listener, router, max, Some(Arc::default())).await
}

async fn serve(listener: impl Accept, router: Router, max: usize, unknown: Option<Arc<UnauthenticatedClients>>) -> io::Result<()> {
    let (permits, refusals) = (Arc::new(Semaphore::new(max)), Arc::new(Semaphore::new(REFUSALS)));
    loop {
        let stream = match listener.next().await {
            Ok(stream) => stream,
            // The client has disconnected, or the host lacks resources: retry later.
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        let permit = match Arc::clone(&permits).try_acquire_owned() {
            // The end of the other connection is a matter of moments.
            Err(_) if unknown.as_ref().is_some_and(|unknown| unknown.disconnect_first()) => Arc::clone(&permits).acquire_owned().await.ok(),
            permit => permit.ok(),
        };
        if let Some(permit) = permit {
            let (mut router, mut must_end) = (router.clone(), None);
            let mark = unknown.as_ref().map(|unknown| unknown.add()).map(|(mark, receiver)| {
                must_end = Some(receiver);
                router = router.clone().layer(Extension(mark.clone()));
                mark
            });
            tokio::spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(READ_MAX).max_buf_size(BUFFER_MAX);
                tokio::select! {
                    // Clients may disconnect at any time.
                    _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)) => {}
                    () = wait_for_disconnect(must_end) => {}
                }
                mark.inspect(UnauthenticatedConnection::note_token);
                drop(permit);
            });
        } else if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
            tokio::spawn(async move {
                // A client that does not read it is disconnected all the same.
                let _ = timeout(REFUSAL_TIME, refuse(stream, max)).await;
                drop(permit);
            });
        }
    }
}

/// Waits until the connection must be closed. Never returns once the client has authenticated.
async fn wait_for_disconnect(must_end: Option<oneshot::Receiver<()>>) {
    let is_ordered = match must_end {
        Some(receiver) => receiver.await.is_ok(),
        None => false,
    };
    if !is_ordered {
        std::future::pending::<()>().await;
    }
}

/// Answers that there are too many connections.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, max: usize) -> io::Result<()> {
    let message = format!(
        "all {max} connections of this service are in use: close some, or start it with a higher limit of open files (`ulimit -n`)"
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

/// Ends a request with 408 if its client sends nothing for too long, or too slowly.
pub(super) async fn limit_body(request: Request, next: Next) -> Response {
    let timed_out = Arc::<AtomicBool>::default();
    let of_body = Arc::clone(&timed_out);
    let answer = next.run(request.map(|body| Body::new(TimedBody::new(body, of_body)))).await;
    match timed_out.load(Ordering::Relaxed) && answer.status().is_client_error() {
        true => Problem::timeout(format!("timed out while reading the request's body: send at least {RATE_MIN} bytes per second"))
            .into_response(),
        false => answer,
    }
}

/// A body with a time limit for each piece, and one for all of it that grows with the bytes received. Only the time counts in which
/// the server waits for the client.
struct TimedBody {
    body: Body,
    received: u64,
    waited: Duration,
    /// Since when the server waits.
    since: Option<Instant>,
    limit: Pin<Box<Sleep>>,
    timed_out: Arc<AtomicBool>,
}

impl TimedBody {
    fn new(body: Body, timed_out: Arc<AtomicBool>) -> TimedBody {
        TimedBody { body, received: 0, waited: Duration::ZERO, since: None, limit: Box::pin(sleep(READ_MAX)), timed_out }
    }

    /// How long the server waits from now on.
    fn remaining(&self) -> Duration {
        let limit = READ_MAX + Duration::from_secs(self.received / RATE_MIN);
        limit.saturating_sub(self.waited).min(READ_MAX)
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            self.waited += waited;
            if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
                self.received += data.map_or(0, Bytes::len) as u64;
            }
            return Poll::Ready(frame);
        }
        if self.since.is_none() {
            let now = Instant::now();
            let end = now + self.remaining();
            self.since = Some(now);
            self.limit.as_mut().reset(end);
        }
        ready!(self.limit.as_mut().poll(context));
        self.timed_out.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut)))))
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
    use super::{RATE_MIN, READ_MAX, UnauthenticatedConnection, limit_body, serve_clients, serve_token_clients};
    use axum::middleware::from_fn;
    use axum::routing::{get, post};
    use axum::{Extension, Router};
    use std::time::Duration;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
    use tokio::time::{Instant, sleep};

    /// A server that answers with what it is sent.
    async fn connect() -> (TempDir, UnixStream) {
        let place = tempfile::tempdir().expect("there is room");
        let path = place.path().join("socket");
        let router = Router::new().route("/", post(|body: String| async move { body })).layer(from_fn(limit_body));
        tokio::spawn(serve_clients(UnixListener::bind(&path).expect("there is room"), router, 4));
        let stream = UnixStream::connect(&path).await.expect("it listens");
        (place, stream)
    }

    /// Sends pieces with pauses between them for as long as the server takes them. Returns the answer.
    async fn send(head: &str, pieces: impl IntoIterator<Item = &[u8]>, pause: Duration) -> String {
        let (_place, stream) = connect().await;
        let (mut reader, mut writer) = stream.into_split();
        writer.write_all(head.as_bytes()).await.expect("it reads");
        let pieces = pieces.into_iter();
        let sending = async {
            for piece in pieces {
                sleep(pause).await;
                if writer.write_all(piece).await.is_err() {
                    break;
                }
            }
            // It stays connected.
            std::future::pending::<()>().await;
        };
        let mut said = Vec::new();
        tokio::select! {
            // The answer arrives although the connection is reset.
            _ = reader.read_to_end(&mut said) => {}
            () = sending => {}
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Sends a request, whose token is noted, and returns what comes back until the connection is silent.
    async fn request(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it reads");
        let mut said = [0; 1024];
        let length = stream.read(&mut said).await.expect("it answers");
        String::from_utf8_lossy(&said[..length]).into_owned()
    }

    #[tokio::test]
    async fn clients_without_a_token_make_way_for_others() {
        let noted = get(async |Extension(mark): Extension<UnauthenticatedConnection>| mark.note_token());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it has one");
        tokio::spawn(serve_token_clients(listener, Router::new().route("/", noted), 3));
        let connect = async || TcpStream::connect(address).await.expect("it listens");
        let mut known = connect().await;
        assert!(request(&mut known).await.starts_with("HTTP/1.1 200"));
        let (mut first, mut second) = (connect().await, connect().await);
        // Many more than there may be: each takes the place of the one before it.
        for _ in 0..5 {
            let mut other = connect().await;
            assert!(request(&mut other).await.starts_with("HTTP/1.1 200"));
        }
        // The first has ended, without an answer.
        assert_eq!(first.read(&mut [0; 8]).await.unwrap_or(0), 0);
        // All of these have a token, so the next one is refused.
        assert!(request(&mut second).await.starts_with("HTTP/1.1 200"));
        let mut third = connect().await;
        assert!(request(&mut third).await.starts_with("HTTP/1.1 200"));
        let mut refused = connect().await;
        assert!(request(&mut refused).await.starts_with("HTTP/1.1 503"));
        assert!(request(&mut known).await.starts_with("HTTP/1.1 200"));
    }

    /// The clock is paused: it advances when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_not_waited_for() {
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n";
        for (sent, answered) in [("", ""), ("POST / HTT", ""), (head, "HTTP/1.1 408"), (&format!("{head}body"), "HTTP/1.1 200")] {
            let (_place, mut stream) = connect().await;
            stream.write_all(sent.as_bytes()).await.expect("it reads");
            let mut said = Vec::new();
            // The server may answer half a head.
            stream.read_to_end(&mut said).await.expect("it ends");
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with(answered), "{sent:?}: {said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_a_byte_now_and_then_is_not_waited_for() {
        let began = Instant::now();
        let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
        let answer = send(head, std::iter::repeat_n(&b"x"[..], 1000), Duration::from_secs(20)).await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("\"timeout\""), "{answer}");
        assert!(began.elapsed() < 2 * READ_MAX, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_fast_enough_may_take_its_time() {
        let piece = vec![b'x'; 30 * RATE_MIN as usize / 10];
        let length = 10 * piece.len();
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        let pieces: Vec<&[u8]> = vec![&piece; 10];
        let answer = send(&head, pieces, Duration::from_secs(8)).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{}", &answer[..answer.len().min(500)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_without_end_gets_413() {
        let chunk = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
        let head = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = send(head, std::iter::repeat(&chunk[..]), Duration::ZERO).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    }
}
