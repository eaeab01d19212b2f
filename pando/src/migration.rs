// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses and tokens of programs that move: `--port` of `pando checkpoint` and `pando restore`, and `pando restore ADDR:PORT`.

use crate::checkpointed_program::CheckpointedProgram;
use crate::diagnostics;
use clap::{Args, ValueHint};
use pando_manager::host;
use pando_nest::checkpointer::{MigrationConnection, MigrationListener, MigrationOffer, MigrationToken, RestoreRequirements};
use std::ffi::OsString;
use std::io::{Error, Read, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The variable with the token.
const TOKEN: &str = "PANDO_MOVE_TOKEN";
/// The variable with the description of the program in the cell around it.
const PROGRAM: &str = "PANDO_PROGRAM";
/// The port in the cell around the program.
const PORT_INSIDE: u16 = 7000;
/// The address of the host's 127.0.0.1 in a cell with a gateway.
const HOST_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Bytes of the longest file with a token.
const TOKEN_FILE_MAX: u64 = 4096;

/// The options of a program that may move to another process.
#[derive(Debug, Args)]
pub(crate) struct MoveOptions {
    /// Let another `pando restore ADDR:PORT` take the running program over, at this port of 127.0.0.1 or of ADDR: it continues there at
    /// once, and its memory follows. This process then ends with status 123. Nothing is encrypted: use an SSH tunnel to another host
    #[arg(long, value_name = "[ADDR:]PORT", conflicts_with = "every", value_parser = listen_address)]
    port: Option<SocketAddr>,

    /// Read the token for moves from this file [default: PANDO_MOVE_TOKEN, or for --port a random one, which is printed]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,

    /// The address of the port on the host
    #[arg(long, hide = true)]
    published: Option<String>,
}

/// Parses `[ADDR:]PORT`.
fn listen_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let port = text.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|| text.parse().ok()).ok_or_else(|| format!("`{text}` is not a port: give PORT or ADDR:PORT, such as 7000"))
}

/// The address that a text names: a host and a port. `None`: it is a path.
pub(crate) fn source_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok()?;
    (!host.is_empty() && !host.contains('/')).then_some((host, port))
}

impl MoveOptions {
    /// Whether a file with a token is given.
    pub(crate) fn has_token_file(&self) -> bool {
        self.token_file.is_some()
    }

    /// Whether the program may move.
    pub(crate) fn is_movable(&self) -> bool {
        self.port.is_some()
    }

    /// The options and variables of the cell around a program, and the options of the command in it, if the program may move.
    ///
    /// # Errors
    /// There is no token.
    pub(crate) fn around(&self, program: &CheckpointedProgram) -> Result<MoveCell> {
        let Some(port) = self.port else { return Ok(MoveCell::default()) };
        let token = self.token_or_random()?;
        let published = if port.port() == 0 { format!("{}:PORT", port.ip()) } else { port.to_string() };
        Ok(MoveCell {
            options: vec!["-p".into(), format!("{port}:{PORT_INSIDE}").into(), "-e".into(), TOKEN.into(), "-e".into(), PROGRAM.into()],
            variables: vec![(TOKEN, token.text().into()), (PROGRAM, serde_json::to_string(program)?)],
            inside: [format!("--port={}:{PORT_INSIDE}", Ipv4Addr::UNSPECIFIED), format!("--published={published}")]
                .map(OsString::from)
                .into(),
        })
    }

    /// The socket at which other processes ask for the program, if it may move.
    ///
    /// # Errors
    /// The port is in use, or there is no token.
    pub(crate) fn listener(
        &self,
        requirements: &RestoreRequirements,
        program: impl FnOnce() -> Result<CheckpointedProgram>,
    ) -> Result<Option<MigrationListener>> {
        let Some(port) = self.port else { return Ok(None) };
        let token = self.token_or_random()?;
        let program = match std::env::var(PROGRAM) {
            Ok(program) => program,
            Err(_) => serde_json::to_string(&program()?)?,
        };
        let listener = MigrationListener::bind(port, token, MigrationOffer { requirements: requirements.clone(), program })?;
        let address = self.published.clone().map_or_else(|| listener.address().map(|address| address.to_string()), Ok)?;
        diagnostics::print_notice(&format_args!("`pando restore {address}` takes the program over"));
        Ok(Some(listener))
    }

    /// The token that is given, or a random one, which is printed.
    fn token_or_random(&self) -> Result<MigrationToken> {
        if let Some(token) = self.given_token()? {
            return Ok(token);
        }
        let token = MigrationToken::random()?;
        diagnostics::print_notice(&format_args!("the token for `pando restore` is {}", token.text()));
        Ok(token)
    }

    /// The token of a source.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn token(&self) -> Result<MigrationToken> {
        let missing = "there is no token: set PANDO_MOVE_TOKEN to the one that the source has printed, or give --token-file";
        self.given_token()?.ok_or_else(|| Error::other(missing))
    }

    fn given_token(&self) -> Result<Option<MigrationToken>> {
        let Some(path) = &self.token_file else {
            let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
            return token.map(|token| MigrationToken::new(&token)).transpose().map_err(|error| Error::other(format!("{TOKEN}: {error}")));
        };
        let failed = |error: Error| Error::new(error.kind(), format!("cannot use {}: {}", path.display(), host::plain(&error)));
        let mut text = String::new();
        std::fs::File::open(path).and_then(|file| file.take(TOKEN_FILE_MAX).read_to_string(&mut text)).map_err(failed)?;
        MigrationToken::new(&text).map(Some).map_err(failed)
    }
}

/// The part of a cell around a program that is for moves.
#[derive(Debug, Default)]
pub(crate) struct MoveCell {
    /// Options of `pando run`.
    pub(crate) options: Vec<OsString>,
    /// Variables of `pando run`.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Options of the command in the cell.
    pub(crate) inside: Vec<OsString>,
}

/// A source with which the host was connected.
pub(crate) struct Source {
    /// The program.
    pub(crate) program: CheckpointedProgram,
    /// The rule that lets a cell reach it.
    rule: String,
    /// Its address in that cell.
    address: SocketAddr,
}

impl Source {
    /// Asks a source for its program's description, and lets the program alone.
    ///
    /// # Errors
    /// There is no source at the address, or its token is another one.
    pub(crate) fn find((name, port): (&str, u16), token: &MigrationToken) -> Result<Source> {
        let addresses = (name, port).to_socket_addrs().map_err(|error| cannot_reach(name, port, &error))?;
        let mut failed = Error::other("the name has no address");
        for address in addresses {
            match MigrationConnection::open(address, token) {
                Ok(connection) => {
                    let program = serde_json::from_str(&connection.offer().program);
                    let program =
                        program.map_err(|error| cannot_reach(name, port, &Error::other(format!("its offer is invalid: {error}"))))?;
                    let (rule, address) = inside(address).ok_or_else(|| {
                        cannot_reach(name, port, &Error::other("a cell reaches only 127.0.0.1 of this host's loopback addresses"))
                    })?;
                    return Ok(Source { program, rule, address });
                }
                Err(error) => failed = error,
            }
        }
        Err(cannot_reach(name, port, &failed))
    }

    /// The options and variables of a cell that connects with it.
    pub(crate) fn around(&self, token: &MigrationToken) -> MoveCell {
        MoveCell {
            options: ["--allow", &self.rule, "-e", TOKEN].map(OsString::from).into(),
            variables: vec![(TOKEN, token.text().into())],
            inside: vec![self.address.to_string().into()],
        }
    }
}

/// The rule of `--allow` that opens an address for a cell, and the address in the cell.
fn inside(address: SocketAddr) -> Option<(String, SocketAddr)> {
    let port = address.port();
    match address.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some((format!("host:{port}"), (HOST_INSIDE, port).into())),
        ip if ip.is_loopback() => None,
        _ => Some((address.to_string(), address)),
    }
}

/// Connects a process in a cell with a source.
///
/// # Errors
/// There is none, or its token is another one.
pub(crate) fn connect((name, port): (&str, u16), token: &MigrationToken) -> Result<MigrationConnection> {
    let mut addresses = (name, port).to_socket_addrs().map_err(|error| cannot_reach(name, port, &error))?;
    let address = addresses.next().ok_or_else(|| cannot_reach(name, port, &Error::other("the name has no address")))?;
    MigrationConnection::open(address, token).map_err(|error| cannot_reach(name, port, &error))
}

fn cannot_reach(name: &str, port: u16, error: &Error) -> Error {
    Error::new(error.kind(), format!("cannot get the program from {name}:{port}: {}", host::plain(error)))
}

/// The name of this process for the user of a source.
pub(crate) fn own_name() -> String {
    let name = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
    format!("{} (process {})", name.trim(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::{inside, listen_address, source_address};

    #[test]
    fn addresses_are_told_from_directories() {
        assert_eq!(source_address("127.0.0.1:7000"), Some(("127.0.0.1", 7000)));
        assert_eq!(source_address("build.example.org:7000"), Some(("build.example.org", 7000)));
        assert_eq!(source_address("[2001:db8::1]:7000"), Some(("2001:db8::1", 7000)));
        for path in ["checkpoints", "/var/tmp/run@3", "./a:7000", ":7000", "a:b", "a:70000", "/tmp/a:1/b"] {
            assert_eq!(source_address(path), None, "{path}");
        }
    }

    #[test]
    fn ports_are_those_of_loopback_unless_an_address_is_given() {
        assert_eq!(listen_address("7000").map(|address| address.to_string()), Ok("127.0.0.1:7000".into()));
        assert_eq!(listen_address("0.0.0.0:7000").map(|address| address.to_string()), Ok("0.0.0.0:7000".into()));
        assert!(listen_address("70000").is_err() && listen_address("host:7000").is_err());
    }

    #[test]
    fn a_cell_may_reach_the_source_and_nothing_else() {
        let of = |text: &str| inside(text.parse().expect("an address")).map(|(rule, address)| (rule, address.to_string()));
        assert_eq!(of("127.0.0.1:7000"), Some(("host:7000".into(), "10.77.0.1:7000".into())));
        assert_eq!(of("192.0.2.1:7000"), Some(("192.0.2.1:7000".into(), "192.0.2.1:7000".into())));
        assert_eq!(of("[::1]:7000"), None);
    }
}
