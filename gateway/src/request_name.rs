// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host name that a client requests: from the Host header of its first HTTP request, or from the SNI of its TLS handshake.
//!
//! The bytes are those of a hostile client. `httparse` and `rustls` parse them; nothing is decrypted.

use crate::limits::{MAX_HEAD_BYTES, MAX_HEADERS, MAX_NAME_BYTES};
use rustls::server::Acceptor;

/// The first byte of a TLS handshake record (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// A client's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    /// HTTP/1.
    Http,
    /// TLS.
    Tls,
}

/// The first bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestStart {
    /// More must follow.
    Incomplete,
    /// They name a host, without a port.
    Named(String),
    /// They name none, for this reason.
    Refused(RequestNameError),
}

/// Why a client's first bytes name no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestNameError {
    #[error("this is no request of HTTP/1.0 or HTTP/1.1: use one of these protocols, or TLS")]
    NotHttp,
    #[error("the request needs exactly one Host header: use a client that sends it, such as curl")]
    NoHost,
    #[error("this is no proxy: send the request for the path alone (`GET /path`), with the cell's name in the Host header")]
    Proxied,
    #[error("the head of the request is too long: at most 16 KiB and 100 headers can be sent before the cell is chosen")]
    TooLong,
    #[error("the TLS handshake names no host (SNI)")]
    NoServerName,
}

/// The protocol of a client, by its first byte.
pub(crate) fn protocol(bytes: &[u8]) -> ClientProtocol {
    if bytes.first() == Some(&TLS_HANDSHAKE) { ClientProtocol::Tls } else { ClientProtocol::Http }
}

/// Parses the first bytes of a client.
pub(crate) fn parse(bytes: &[u8]) -> RequestStart {
    let parsed = match protocol(bytes) {
        ClientProtocol::Tls => server_name(bytes),
        ClientProtocol::Http => host(bytes),
    };
    match parsed {
        Ok(Some(name)) => RequestStart::Named(name),
        Ok(None) if bytes.len() >= MAX_HEAD_BYTES => RequestStart::Refused(RequestNameError::TooLong),
        Ok(None) => RequestStart::Incomplete,
        Err(reason) => RequestStart::Refused(reason),
    }
}

/// The host of an HTTP request. `None`: its head is incomplete.
fn host(bytes: &[u8]) -> Result<Option<String>, RequestNameError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestNameError::TooLong),
        Err(_) => return Err(RequestNameError::NotHttp),
    }
    if request.path.is_none_or(|path| !path.starts_with('/') && path != "*") {
        return Err(RequestNameError::Proxied);
    }
    // RFC 9112, section 3.2: no more than one.
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(RequestNameError::NoHost) };
    let host = str::from_utf8(host.value).map_err(|_| RequestNameError::NoHost)?.trim();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    Ok(Some(name.to_owned()))
}

/// The host that a TLS handshake names. `None`: the handshake's first message is incomplete.
fn server_name(mut bytes: &[u8]) -> Result<Option<String>, RequestNameError> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        match acceptor.read_tls(&mut bytes) {
            Ok(1..) => {}
            _ => return Err(RequestNameError::NoServerName),
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                return accepted.client_hello().server_name().map(|name| Some(name.to_owned())).ok_or(RequestNameError::NoServerName);
            }
            Err(_) => return Err(RequestNameError::NoServerName),
        }
    }
    Ok(None)
}

/// The part of a host name before the domain, in lower case. `None`: the name is not below the domain, or has other characters than
/// names of cells.
pub(crate) fn name_below(host: &str, domain: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let name = host.strip_suffix(domain)?.strip_suffix('.')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_plain)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{RequestNameError, RequestStart, name_below, parse};
    use crate::limits::MAX_HEAD_BYTES;

    fn http(name: &str) -> RequestStart {
        RequestStart::Named(name.into())
    }

    #[test]
    fn the_host_of_a_request_is_found_once_its_head_is_complete() {
        let request = b"GET / HTTP/1.1\r\nhOsT:  41.cells.localhost:8080 \r\naccept: */*\r\n\r\nbody";
        let head = request.len() - 4;
        for length in 0..head {
            assert_eq!(parse(&request[..length]), RequestStart::Incomplete, "{length}");
        }
        for length in head..=request.len() {
            assert_eq!(parse(&request[..length]), http("41.cells.localhost"));
        }
        assert_eq!(parse(b"OPTIONS * HTTP/1.0\nHost: a\n\n"), http("a"));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n"), http("[::1]"));
    }

    #[test]
    fn ambiguous_and_malformed_requests_are_refused() {
        let cases: [(&[u8], RequestNameError); 9] = [
            (b"GET / HTTP/1.1\r\n\r\n", RequestNameError::NoHost),
            (b"GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", RequestNameError::NoHost),
            (b"GET / HTTP/1.1\r\nhost: \xff\r\n\r\n", RequestNameError::NoHost),
            (b"GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n", RequestNameError::Proxied),
            (b"CONNECT b:80 HTTP/1.1\r\nhost: a\r\n\r\n", RequestNameError::Proxied),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RequestNameError::NotHttp),
            (b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", RequestNameError::NotHttp),
            (b"\0\x01\x02\x03", RequestNameError::NotHttp),
            (b"GET / HTTP/1.1\r\n host: a\r\n\r\n", RequestNameError::NotHttp),
        ];
        for (bytes, reason) in cases {
            assert_eq!(parse(bytes), RequestStart::Refused(reason), "{}", bytes.escape_ascii());
        }
        let mut long = b"GET / HTTP/1.1\r\nx: ".to_vec();
        long.resize(MAX_HEAD_BYTES - 1, b'x');
        assert_eq!(parse(&long), RequestStart::Incomplete);
        long.push(b'x');
        assert_eq!(parse(&long), RequestStart::Refused(RequestNameError::TooLong));
        let many = [b"GET / HTTP/1.1\r\n".as_slice(), &b"x: y\r\n".repeat(101), b"\r\n"].concat();
        assert_eq!(parse(&many), RequestStart::Refused(RequestNameError::TooLong));
    }

    #[test]
    fn handshakes_without_a_name_are_refused() {
        let tls = |bytes: &[u8]| parse(&[b"\x16\x03\x01", bytes].concat());
        assert_eq!(tls(b"\x00"), RequestStart::Incomplete);
        assert_eq!(tls(b"\x00\x04\x02\x00\x00\x00"), RequestStart::Refused(RequestNameError::NoServerName));
        assert_eq!(tls(b"\xff\xff\x01"), RequestStart::Refused(RequestNameError::NoServerName));
    }

    #[test]
    fn names_are_below_the_domain() {
        assert_eq!(name_below("41.Cells.LOCALHOST.", "cells.localhost").as_deref(), Some("41"));
        assert_eq!(name_below("80.web.cells.localhost", "cells.localhost").as_deref(), Some("80.web"));
        for host in ["cells.localhost", ".cells.localhost", "xcells.localhost", "a.b", "", "a/b.cells.localhost", "a b.cells.localhost"] {
            assert_eq!(name_below(host, "cells.localhost"), None, "{host}");
        }
    }
}
