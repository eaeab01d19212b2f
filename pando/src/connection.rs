// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection to `pando serve`, with its requests and answers.

use crate::failure::Failure;
use crate::socket::ServiceAddress;
use crate::{api, environment, socket};
use axum::body::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, LINK};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use pando_manager::template::TemplateStore;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Bytes of input per read.
const PIECE: usize = 64 << 10;
/// Pieces of input that are queued for the cell.
const QUEUED_PIECES: usize = 4;

/// A connectable server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    address: ServiceAddress,
}

impl Client {
    /// Finds this user's server, if one accepts connections.
    ///
    /// # Errors
    /// The socket's directory is unknown.
    pub(crate) fn find() -> Result<Option<Client>, Failure> {
        if let Some(address) = socket::control()? {
            return Ok(Some(Client { address }));
        }
        let socket = socket::default_path()?;
        // The socket of a killed server refuses connections.
        let is_open = std::os::unix::net::UnixStream::connect(&socket).is_ok();
        Ok(is_open.then_some(Client { address: ServiceAddress::Socket(socket) }))
    }

    /// The server at this socket.
    pub(crate) fn at(socket: PathBuf) -> Client {
        Client { address: ServiceAddress::Socket(socket) }
    }

    /// Finds this user's server.
    ///
    /// # Errors
    /// No server accepts connections.
    pub(crate) fn find_or_fail() -> Result<Client, Failure> {
        let missing = || Ok(Failure::NoServer(socket::default_path()?));
        Client::find()?.map_or_else(|| Err(missing().unwrap_or_else(|failure| failure)), Ok)
    }

    /// The server's state, if it uses the same directory of templates as this process.
    ///
    /// # Errors
    /// It does not answer, or uses another directory.
    pub(crate) fn server(&self) -> Result<api::Server, Failure> {
        if matches!(self.address, ServiceAddress::Control { .. }) {
            return Err(Failure::OnlyControl);
        }
        let server: api::Server = wait_for(self.get("/v1"))?;
        let ours = TemplateStore::of(&environment::caller())?.directory().to_path_buf();
        // A path that does not exist yet cannot be canonicalized.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
        if real(Path::new(&server.templates)) == real(&ours) {
            return Ok(server);
        }
        Err(Failure::OtherTemplates { process: server.process, theirs: server.templates.into(), ours })
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// The server refuses the request or does not answer.
    pub(crate) async fn request<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(std::io::Error::from).map_err(Failure::ConnectionLost)?;
        let answer = self.send(method, path, "application/json", body.into()).await?;
        let bytes = answer.into_body().collect().await.map_err(connection_lost)?.to_bytes();
        // An empty answer stands for `()`.
        let text = if bytes.is_empty() { &b"null"[..] } else { &bytes };
        serde_json::from_slice(text).map_err(|error| Failure::ConnectionLost(error.into()))
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.request(Method::GET, path, &()).await
    }

    /// Requests a page of a list. Returns the path of the next page, too; `None`: it is the last one.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn page<T: DeserializeOwned>(&self, path: &str) -> Result<(T, Option<String>), Failure> {
        let answer = self.open(path).await?;
        let link = answer.headers().get(LINK).and_then(|link| link.to_str().ok()?.strip_prefix('<')?.strip_suffix(">; rel=\"next\""));
        let next = link.map(String::from);
        let bytes = answer.into_body().collect().await.map_err(connection_lost)?.to_bytes();
        Ok((serde_json::from_slice(&bytes).map_err(|error| Failure::ConnectionLost(error.into()))?, next))
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn post_content(&self, path: &str, bytes: Bytes) -> Result<(), Failure> {
        self.send(Method::POST, path, "application/octet-stream", bytes).await.map(|_| ())
    }

    /// Puts bytes at a path.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn put(&self, path: &str, bytes: Bytes) -> Result<(), Failure> {
        self.send(Method::PUT, path, "application/octet-stream", bytes).await.map(|_| ())
    }

    /// Reads a cell's output until the cell has ended, or to the end of the present output.
    ///
    /// # Errors
    /// The server refuses, the answer breaks off, or `take` fails.
    pub(crate) async fn follow(&self, path: &str, take: impl AsyncFnMut(api::Piece) -> Result<(), Failure>) -> Result<(), Failure> {
        lines(self.send(Method::GET, path, "application/json", Bytes::new()).await?, take).await
    }

    /// Sends a GET request, and returns the answer with its body, which is not read yet.
    ///
    /// # Errors
    /// The server refuses or does not answer.
    pub(crate) async fn open(&self, path: &str) -> Result<Response<Incoming>, Failure> {
        self.send(Method::GET, path, "application/json", Bytes::new()).await
    }

    /// Starts a program that reads this process's standard input; `first` describes it. Its output comes as lines of the answer.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) async fn post_with_input(&self, path: &str, first: &impl Serialize) -> Result<Response<Incoming>, Failure> {
        let mut line = serde_json::to_vec(first).map_err(std::io::Error::from).map_err(Failure::ConnectionLost)?;
        line.push(b'\n');
        let (sender, body) = Channel::<Bytes>::new(QUEUED_PIECES);
        let (accept, accepted) = oneshot::channel();
        tokio::spawn(send_input(sender, line, accepted));
        let answer = self.send_body(Method::POST, path, "application/x-ndjson", body.boxed()).await?;
        // The input task waits for this message.
        let _ = accept.send(());
        Ok(answer)
    }

    /// Starts a program whose standard input is what is sent through the channel; `first` describes it. Its output comes as lines of the
    /// answer.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) async fn post_with_channel(
        &self,
        path: &str,
        first: &impl Serialize,
    ) -> Result<(Sender<Bytes, Infallible>, Response<Incoming>), Failure> {
        let mut line = serde_json::to_vec(first).map_err(std::io::Error::from).map_err(Failure::ConnectionLost)?;
        line.push(b'\n');
        let (mut sender, body) = Channel::<Bytes>::new(QUEUED_PIECES);
        // There is room for it.
        let _ = sender.send_data(line.into()).await;
        let answer = self.send_body(Method::POST, path, "application/x-ndjson", body.boxed()).await?;
        Ok((sender, answer))
    }

    /// Sends what is sent through the channel as the request's body.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) async fn post_bytes(&self, path: &str) -> Result<(Sender<Bytes, Infallible>, Response<Incoming>), Failure> {
        let (sender, body) = Channel::<Bytes>::new(QUEUED_PIECES);
        let answer = self.send_body(Method::POST, path, "application/octet-stream", body.boxed()).await?;
        Ok((sender, answer))
    }

    /// Starts a program without standard input; `first` describes it. Its output comes as lines of the answer.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) async fn post_without_input(&self, path: &str, first: &impl Serialize) -> Result<Response<Incoming>, Failure> {
        let mut line = serde_json::to_vec(first).map_err(std::io::Error::from).map_err(Failure::ConnectionLost)?;
        line.push(b'\n');
        self.send(Method::POST, path, "application/x-ndjson", line.into()).await
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Bytes) -> Result<Response<Incoming>, Failure> {
        self.send_body(method, path, kind, Full::new(body).boxed()).await
    }

    async fn send_body(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: BoxBody<Bytes, Infallible>,
    ) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder().method(method).uri(path).header("host", "pando").header("content-type", kind);
        let (mut sender, request) = match &self.address {
            ServiceAddress::Socket(socket) => (open(UnixStream::connect(socket).await).await?, request),
            ServiceAddress::Control { address, token } => {
                (open(TcpStream::connect(address).await).await?, request.header(AUTHORIZATION, format!("Bearer {token}")))
            }
        };
        let request = request.body(body).map_err(|error| Failure::ConnectionLost(std::io::Error::other(error)))?;
        let answer = sender.send_request(request).await.map_err(connection_lost)?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let bytes = answer.into_body().collect().await.map_err(connection_lost)?.to_bytes();
        let problem: api::Problem = serde_json::from_slice(&bytes).map_err(|error| Failure::ConnectionLost(error.into()))?;
        Err(Failure::Refused { problem: problem.problem, message: problem.message })
    }
}

/// Begins HTTP on a connection.
async fn open<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: std::io::Result<S>,
) -> Result<http1::SendRequest<BoxBody<Bytes, Infallible>>, Failure> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream.map_err(Failure::ConnectionLost)?)).await.map_err(connection_lost)?;
    // The task ends when its answer has been read.
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends the first line, then standard input once the request is accepted: a refused request consumes no input.
async fn send_input(mut sender: Sender<Bytes, Infallible>, first: Vec<u8>, accepted: oneshot::Receiver<()>) {
    if sender.send_data(Bytes::from(first)).await.is_err() || accepted.await.is_err() {
        return;
    }
    let mut input = tokio::io::stdin();
    let mut piece = Vec::new();
    // If the server stops reading, the program has ended; the answer reports it.
    while piece.is_empty() || sender.send_data(Bytes::from(piece)).await.is_ok() {
        piece = vec![0; PIECE];
        match input.read(&mut piece).await {
            Ok(count) if count > 0 => piece.truncate(count),
            Ok(_) | Err(_) => return,
        }
    }
}

/// Parses an answer's lines, each as JSON.
///
/// # Errors
/// The answer breaks off, a line is invalid, or `take` fails.
pub(crate) async fn lines<T: DeserializeOwned>(
    answer: Response<Incoming>,
    mut take: impl AsyncFnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut lines = JsonLines::of(answer);
    while let Some(line) = lines.next().await? {
        take(line).await?;
    }
    Ok(())
}

/// The lines of an answer.
pub(crate) struct JsonLines {
    body: Incoming,
    rest: Vec<u8>,
}

impl JsonLines {
    /// Those of this answer.
    pub(crate) fn of(answer: Response<Incoming>) -> JsonLines {
        JsonLines { body: answer.into_body(), rest: Vec::new() }
    }

    /// The next line, parsed as JSON; `None` at the end.
    ///
    /// # Errors
    /// The answer breaks off, or the line is invalid.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|error| Failure::ConnectionLost(error.into()));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Some(bytes) = frame.map_err(connection_lost)?.data_ref() {
                self.rest.extend_from_slice(bytes);
            }
        }
    }
}

fn connection_lost(error: hyper::Error) -> Failure {
    Failure::ConnectionLost(std::io::Error::other(error))
}

/// Runs a future on a runtime of its own.
///
/// # Errors
/// The future fails.
pub(crate) fn wait_for<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Thread)?;
    let outcome = runtime.block_on(work);
    // A read of standard input may block forever.
    runtime.shutdown_background();
    outcome
}

/// Cells of a page of the list.
const PAGE: usize = 1000;

/// The running cells and those that ended last; with `descendants` also the nested cells of each.
///
/// # Errors
/// No server runs.
pub(crate) fn list(descendants: bool) -> Result<Vec<api::Cell>, Failure> {
    let mut cells = Vec::new();
    visit_cells(descendants, None, PAGE, |cell| {
        cells.push(cell);
        Ok(true)
    })?;
    Ok(cells)
}

/// Calls `visit` for each of these cells, or only for those in a state, in the order of their numbers, until it returns `false`. They are
/// requested page by page, `limit` at most in each.
///
/// # Errors
/// No server runs, or `visit` fails.
pub(crate) fn visit_cells(
    descendants: bool,
    state: Option<api::CellState>,
    limit: usize,
    mut visit: impl FnMut(api::Cell) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let client = Client::find_or_fail()?;
    wait_for(async {
        let state = state.map_or_else(String::new, |state| format!("&state={state}"));
        let mut path = Some(format!("/v1/cells?descendants={descendants}&limit={}{state}", limit.clamp(1, PAGE)));
        while let Some(present) = path {
            let (page, next): (Vec<api::Cell>, _) = client.page(&present).await?;
            for cell in page {
                if !visit(cell)? {
                    return Ok(());
                }
            }
            path = next;
        }
        Ok(())
    })
}
