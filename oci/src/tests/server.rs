// SPDX-License-Identifier: MIT OR Apache-2.0
//! A registry on the loopback, which misbehaves as it is told.

use super::archives::Files;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How the server differs from one that behaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFaults {
    /// It wants a token, and gives one to this NAME:PASSWORD in base64, or to anybody if that is empty.
    pub(crate) token_for: Option<String>,
    /// It wants this NAME:PASSWORD in base64 with each request.
    pub(crate) basic_for: Option<String>,
    /// The place of tokens, instead of its own.
    pub(crate) realm: Option<String>,
    /// It breaks each connection after this many bytes of a blob.
    pub(crate) breaks_after: Option<usize>,
    /// It sends whole blobs, whatever range is wanted.
    pub(crate) ignores_ranges: bool,
    /// It answers this many requests with 503 first.
    pub(crate) busy: usize,
    /// It sends blobs from this other server.
    pub(crate) redirects_to: Option<u16>,
    /// It adds this to each blob.
    pub(crate) adds: Vec<u8>,
    /// It accepts a token for this many requests only.
    pub(crate) token_lasts: Option<usize>,
}

/// A running registry, which ends with the test.
pub(crate) struct Server {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    files: Files,
    manners: ServerFaults,
    asked: Mutex<Vec<Request>>,
    busy: AtomicUsize,
    tokens: AtomicUsize,
    uses: AtomicUsize,
    has_ended: AtomicBool,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) range: Option<usize>,
}

impl Server {
    /// Serves these files by their paths.
    pub(crate) fn start(files: Files, manners: ServerFaults) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        let busy = AtomicUsize::new(manners.busy);
        let (tokens, uses, has_ended) = Default::default();
        let state = Arc::new(State { files, manners, asked: Mutex::default(), busy, tokens, uses, has_ended });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                if state.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Server { port, state }
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.state.asked.lock().expect("no test panics with it").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    /// Serves one request.
    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_string();
        let (mut authorization, mut range) = (None, None);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim().split_once(": ") else { break };
            match &name.to_ascii_lowercase()[..] {
                "authorization" => authorization = Some(value.to_string()),
                "range" => range = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok(),
                _ => {}
            }
        }
        let request = Request { path, authorization, range };
        self.asked.lock().expect("no test panics with it").push(request.clone());
        self.answer(stream, &request)
    }

    fn answer(&self, mut stream: TcpStream, request: &Request) -> Option<()> {
        let manners = &self.manners;
        let mut send = |head: &str, body: &[u8]| {
            let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n");
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()
        };
        let whole = |body: &str| format!("content-length: {}\r\n\r\n{body}", body.len());
        if self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return send("503 Busy", whole("").as_bytes());
        }
        if request.path.starts_with("/token") {
            let wanted = manners.token_for.as_deref().filter(|wanted| !wanted.is_empty()).map(|wanted| format!("Basic {wanted}"));
            if wanted.is_some() && wanted != request.authorization {
                return send("401 Unauthorized", whole("{}").as_bytes());
            }
            self.uses.store(0, Ordering::Relaxed);
            let number = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
            return send("200 OK", whole(&format!("{{\"token\": \"token-{number}\"}}")).as_bytes());
        }
        if manners.token_for.is_some() {
            let valid = format!("Bearer token-{}", self.tokens.load(Ordering::Relaxed));
            let uses = self.uses.fetch_add(1, Ordering::Relaxed);
            if request.authorization.as_ref() != Some(&valid) || manners.token_lasts.is_some_and(|most| uses >= most) {
                let realm = manners
                    .realm
                    .clone()
                    .unwrap_or_else(|| format!("http://{}/token", stream.local_addr().ok().map(|at| at.to_string()).unwrap_or_default()));
                let head = format!(
                    "401 Unauthorized\r\nwww-authenticate: Bearer realm=\"{realm}\",service=\"test\",scope=\"repository:app:pull\""
                );
                let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                return stream.write_all(head.as_bytes()).ok();
            }
        }
        if let Some(wanted) = &manners.basic_for
            && request.authorization.as_deref() != Some(&format!("Basic {wanted}"))
        {
            return send("401 Unauthorized\r\nwww-authenticate: Basic realm=\"test\"", whole("").as_bytes());
        }
        let is_blob = request.path.contains("/blobs/");
        if let (Some(port), true) = (manners.redirects_to, is_blob) {
            return send(&format!("307 Temporary Redirect\r\nlocation: http://localhost:{port}{}", request.path), whole("").as_bytes());
        }
        let Some((_, content)) = self.files.iter().find(|(path, _)| *path == request.path) else {
            return send("404 Not Found", whole("{\"errors\": [{\"code\": \"MANIFEST_UNKNOWN\"}]}").as_bytes());
        };
        let content = [&content[..], if is_blob { &manners.adds } else { b"" }].concat();
        let from = request.range.filter(|_| !manners.ignores_ranges).unwrap_or(0).min(content.len());
        let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
        let most = manners.breaks_after.filter(|_| is_blob).unwrap_or(usize::MAX).min(content.len() - from);
        let head = format!("{status}\r\ncontent-type: application/vnd.oci.image.manifest.v1+json");
        let body = [format!("content-length: {}\r\n\r\n", content.len() - from).as_bytes(), &content[from..from + most]].concat();
        send(&head, &body)
    }
}
