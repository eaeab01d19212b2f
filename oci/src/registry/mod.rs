// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client of registries: the pulling part of the [distribution specification].
//!
//! HTTPS everywhere but for registries on this host's loopback. Answers are bounded, and nothing in them is trusted before its digest is
//! checked. Redirects never carry credentials to another host, and never lead from HTTPS to HTTP.
//!
//! [distribution specification]: https://github.com/opencontainers/distribution-spec/blob/main/spec.md

mod auth;
pub(crate) mod download;

use crate::digest::Digest;
use crate::error::{Error, plain};
use crate::limits::JSON_MAX;
use crate::names::ImageName;
use auth::Challenge;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Where hosts keep the certificates of authorities: Debian, Fedora, SUSE, Alpine.
const AUTHORITIES: [&str; 4] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"];
/// How long a connection may take to open.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// How long the registry may be silent.
const READ_MAX: Duration = Duration::from_secs(60);
/// How long an answer may take to begin.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// How long a small answer may take in all.
const SMALL_ANSWER_MAX: Duration = Duration::from_secs(300);
/// How often a request is repeated that failed for a reason that may pass.
pub(crate) const RETRIES: u32 = 5;
/// The types of documents that are understood.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                        application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// A name and a password for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password, or a token in its place.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.user)
    }
}

/// A repository of a registry.
pub(crate) struct Repository {
    /// The image's name, for errors.
    name: String,
    agent: Agent,
    /// `https://REGISTRY/v2/REPOSITORY`.
    place: String,
    repository: String,
    credentials: Option<Credentials>,
    /// The header that the registry wants, once it has asked for it.
    authorization: Mutex<Option<String>>,
    /// How long to wait before the first repetition.
    pub(crate) retry_delay: Duration,
}

/// A document, and its media type.
pub(crate) struct Document {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media_type: String,
}

impl Repository {
    /// The repository of an image. Nothing is asked yet.
    pub(crate) fn new(name: &ImageName, credentials: Option<Credentials>) -> Repository {
        let reference = name.reference();
        let host = reference.resolve_registry();
        let is_local = is_loopback(host);
        let scheme = if is_local { "http" } else { "https" };
        let repository = reference.repository().to_string();
        Repository {
            name: name.familiar(),
            agent: agent(!is_local),
            place: format!("{scheme}://{host}/v2/{repository}"),
            repository,
            credentials,
            authorization: Mutex::default(),
            retry_delay: Duration::from_secs(1),
        }
    }

    /// A manifest or an index: by tag or by digest, which is then checked.
    pub(crate) fn manifest(&self, reference: &str) -> Result<Document, Error> {
        let part = format!("manifest {reference}");
        let mut answer = self.get(&format!("manifests/{reference}"), &[("accept", ACCEPTED)], Some(SMALL_ANSWER_MAX), &part)?;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(ToString::to_string);
        let (media_type, claimed) = (header("content-type").unwrap_or_default(), header("docker-content-digest"));
        let bytes = self.small(&mut answer, &part)?;
        // The digest that was asked for counts more than the one that the registry names. A tag has no colon.
        let expected = match reference.contains(':') {
            true => Some(reference.parse().map_err(|()| self.error("only SHA-256 digests are supported"))?),
            false => claimed.and_then(|claimed| claimed.parse().ok()),
        };
        if let Some(expected) = expected {
            self.check(&bytes, expected, &part)?;
        }
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_string();
        Ok(Document { bytes, media_type })
    }

    /// A small blob.
    pub(crate) fn blob(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        let part = format!("blob {digest}");
        let bytes = self.small(&mut self.get(&format!("blobs/{digest}"), &[], Some(SMALL_ANSWER_MAX), &part)?, &part)?;
        self.check(&bytes, digest, &part)?;
        Ok(bytes)
    }

    /// The content of a blob from an offset on, and whether it begins there; otherwise it begins at 0.
    pub(crate) fn open_blob(&self, digest: Digest, offset: u64) -> Result<(impl Read + use<>, bool), Error> {
        let range = format!("bytes={offset}-");
        let headers: &[(&str, &str)] = if offset == 0 { &[] } else { &[("range", &range)] };
        let answer = self.get(&format!("blobs/{digest}"), headers, None, &format!("blob {digest}"))?;
        let is_part = answer.status() == StatusCode::PARTIAL_CONTENT;
        Ok((answer.into_body().into_with_config().limit(u64::MAX).reader(), is_part))
    }

    /// Asks for a part of the repository, again if the reason of a failure may pass, and with a token if the registry wants one. Each
    /// answer may take as long as `limit` in all.
    fn get(&self, path: &str, headers: &[(&str, &str)], limit: Option<Duration>, part: &str) -> Result<Response<Body>, Error> {
        let mut was_refused = false;
        let mut retries = 0;
        loop {
            let answer = match self.ask(path, headers, limit) {
                Ok(answer) => answer,
                Err(error) if retries < RETRIES && is_passing(&error) => {
                    self.wait(&mut retries);
                    continue;
                }
                Err(error) => return Err(self.error(format!("{part}: {}", text(&error)))),
            };
            match answer.status() {
                status if status.is_success() => return Ok(answer),
                StatusCode::UNAUTHORIZED if !was_refused => {
                    was_refused = true;
                    self.authorize(&answer)?;
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT if retries < RETRIES => self.wait(&mut retries),
                status if status.is_server_error() && retries < RETRIES => self.wait(&mut retries),
                status => return Err(self.refusal(status, answer, part)),
            }
        }
    }

    fn ask(&self, path: &str, headers: &[(&str, &str)], limit: Option<Duration>) -> Result<Response<Body>, ureq::Error> {
        let mut request = self.agent.get(format!("{}/{path}", self.place)).config().timeout_global(limit).build();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let authorization = lock(&self.authorization).clone();
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        request.call()
    }

    /// Waits before a repetition, longer each time.
    pub(crate) fn wait(&self, retries: &mut u32) {
        std::thread::sleep(self.retry_delay * 2_u32.saturating_pow(*retries));
        *retries += 1;
    }

    /// Gets what the registry wants to see before it answers.
    fn authorize(&self, answer: &Response<Body>) -> Result<(), Error> {
        let challenges = answer.headers().get_all("www-authenticate").iter().filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(Challenge::parse).next();
        let challenge = challenge.ok_or_else(|| self.error("the registry asks for a kind of login that is not supported"))?;
        let authorization = match challenge {
            Challenge::Basic => {
                let credentials = self.credentials.as_ref().ok_or_else(|| self.error("the registry asks for a login"))?;
                auth::basic(credentials)
            }
            Challenge::Bearer(bearer) => {
                let scope = bearer.scope.clone().unwrap_or_else(|| format!("repository:{}:pull", self.repository));
                if self.place.starts_with("https://") && !bearer.realm.starts_with("https://") {
                    return Err(self.error("the registry names a place for logins that is not safe"));
                }
                let token = bearer.token(&self.agent, &scope, self.credentials.as_ref());
                format!("Bearer {}", token.map_err(|problem| self.error(format!("cannot get a token: {problem}")))?)
            }
        };
        *lock(&self.authorization) = Some(authorization);
        Ok(())
    }

    /// All of a small answer.
    fn small(&self, answer: &mut Response<Body>, part: &str) -> Result<Vec<u8>, Error> {
        let bytes = answer.body_mut().with_config().limit(JSON_MAX).read_to_vec();
        bytes.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => self.error(format!("{part} has more than {JSON_MAX} bytes")),
            error => self.error(format!("{part}: {}", text(&error))),
        })
    }

    fn check(&self, bytes: &[u8], expected: Digest, part: &str) -> Result<(), Error> {
        let found = Digest::of(bytes);
        if found == expected { Ok(()) } else { Err(Error::Mismatch { origin: self.name.clone(), part: part.into(), expected, found }) }
    }

    /// The error of an answer that is a refusal, with the registry's words.
    fn refusal(&self, status: StatusCode, mut answer: Response<Body>, part: &str) -> Error {
        let text = answer.body_mut().with_config().limit(1 << 16).read_to_vec().unwrap_or_default();
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let words = read["errors"][0]["message"].as_str().or(read["errors"][0]["code"].as_str()).unwrap_or_default();
        let words: String = words.chars().take(300).collect();
        match status {
            StatusCode::NOT_FOUND => self.error(format!("the registry does not have it ({part})")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.error("the registry refuses it: it does not exist, or it needs a login (`docker login` or `podman login` stores one)")
            }
            StatusCode::TOO_MANY_REQUESTS => self.error("the registry refuses more requests for now: try again later, or log in"),
            status if words.is_empty() => self.error(format!("{part}: the registry answers {status}")),
            status => self.error(format!("{part}: the registry answers {status}: {words}")),
        }
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::Registry { name: self.name.clone(), problem: problem.into() }
    }
}

/// Whether a registry, HOST or HOST:PORT, is on this host: then it may be without TLS, as docker has it.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => registry.rsplit_once(':').map_or(registry, |(host, _)| host),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether the reason of a failure may pass: a connection broke. A name, a certificate or a port that is wrong stays wrong.
fn is_passing(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::BrokenPipe
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
                | ErrorKind::Interrupted
                | ErrorKind::TimedOut
                | ErrorKind::UnexpectedEof
        ),
        ureq::Error::Timeout(_) => true,
        _ => false,
    }
}

/// The text of a failure.
fn text(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => plain(error),
        error => error.to_string(),
    }
}

fn agent(is_secure: bool) -> Agent {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(authorities()).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(is_secure)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .tls_config(tls)
        .user_agent(concat!("pando/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_recv_response(Some(ANSWER_MAX))
        .timeout_per_read(Some(READ_MAX));
    config.build().new_agent()
}

/// The certificates of the authorities that the host trusts. Without any, no registry is trusted.
fn authorities() -> RootCerts {
    let text = AUTHORITIES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    let certificates: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    RootCerts::new_with_certs(&certificates)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The value is whole even if a thread panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_registries_of_this_host_may_be_without_tls() {
        assert!(is_loopback("localhost:5000") && is_loopback("127.0.0.1") && is_loopback("127.1.2.3:80"));
        assert!(is_loopback("[::1]:5000") && is_loopback("[::1]") && !is_loopback("[2001:db8::1]:5000"));
        assert!(!is_loopback("localhost.example.org") && !is_loopback("192.0.2.1:5000") && !is_loopback("example.org"));
    }
}
