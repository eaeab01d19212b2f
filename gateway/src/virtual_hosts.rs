// SPDX-License-Identifier: MIT OR Apache-2.0
//! Name-based virtual hosts: one listening address that leads each connection to the cell whose name the client requests.
//!
//! The first bytes of a client stay in its socket while they are examined, so that the cell receives them unchanged. A connection belongs
//! to the cell of its first request until it ends. Each client has a time limit for its head, and a refused one is told why.

use crate::limits::{CLOSING_TIMEOUT, DIRECTORY_TIMEOUT, HEAD_TIMEOUT, MAX_ACCEPTS, MAX_DISCARDED_BYTES, MAX_HEAD_BYTES, MAX_NAME_QUERIES};
use crate::listeners::BindError;
use crate::poll::{Poll, Ready, Token};
use crate::request_name::{ClientProtocol, RequestNameError, RequestStart, name_below, parse, protocol};
use crate::sockets;
use crate::timers::Timers;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, accept_with, getsockname, recv, send, shutdown};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// The alert `unrecognized_name` (RFC 6066, section 3), fatal, in a record of TLS 1.2.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The address and the domain of virtual hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualHosts {
    /// The address at which the host listens; port 0 lets the host choose.
    pub address: SocketAddr,
    /// The domain below which the names of cells stand, in lower case.
    pub domain: String,
}

/// Finds cells by name. An answer comes later.
pub trait NameDirectory {
    /// A descriptor that becomes readable, with a new edge, when there are answers.
    fn event(&self) -> BorrowedFd<'_>;

    /// Requests the address of the cell with this name, in lower case.
    ///
    /// # Errors
    /// The directory cannot be reached.
    fn request(&mut self, query: u64, name: &str) -> io::Result<()>;

    /// Takes the next answer. `None`: there is none at present.
    ///
    /// # Errors
    /// The directory cannot be reached.
    fn answer(&mut self) -> io::Result<Option<DirectoryAnswer>>;
}

/// The answer to a request for the address of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryAnswer {
    /// The number of the request.
    pub query: u64,
    /// The address, or the reason why there is none, for the client.
    pub found: Result<SocketAddr, String>,
}

/// The listening socket of virtual hosts.
#[derive(Debug)]
pub(crate) struct VirtualHostListener {
    pub(crate) socket: OwnedFd,
    /// Its address, with the port that the host chose if it was 0.
    pub(crate) config: VirtualHosts,
}

impl VirtualHostListener {
    pub(crate) fn bind(config: VirtualHosts) -> Result<VirtualHostListener, BindError> {
        let bound = sockets::listener(config.address);
        let named = bound.and_then(|socket| Ok((SocketAddr::try_from(getsockname(&socket)?)?, socket)));
        let (address, socket) = named.map_err(|errno| BindError::of(errno, config.address))?;
        Ok(VirtualHostListener { socket, config: VirtualHosts { address, ..config } })
    }

    pub(crate) fn duplicate(&self) -> io::Result<VirtualHostListener> {
        Ok(VirtualHostListener { socket: self.socket.try_clone()?, config: self.config.clone() })
    }
}

/// The state of a client whose cell is not connected.
///
/// ```text
///   Reading ── name complete ──► Queued ── a query is free ──► Requested ── found ──► routed to the TCP proxy ── retry ──► Reading
///      │                           │                               │
///      └── refused or late ──► Closing ◄────── unknown or late ────┘
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientState {
    /// Its first bytes are incomplete.
    Reading,
    /// Its name waits for a free query.
    Queued(String),
    /// The directory is to answer this query.
    Requested(u64),
    /// It was refused, and its further bytes are discarded: closing at once would reset the connection before it reads the reason.
    Closing,
}

/// A client whose cell is not connected.
#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    state: ClientState,
    protocol: ClientProtocol,
    /// When its state ends.
    until: u64,
    /// Bytes that were discarded.
    discarded: usize,
    /// When it was first led to a cell, if it was.
    since: Option<u64>,
}

/// A client that is led to a cell.
#[derive(Debug)]
pub(crate) struct RoutedClient {
    pub(crate) socket: OwnedFd,
    pub(crate) to: SocketAddr,
    pub(crate) protocol: ClientProtocol,
    /// When it was first led to a cell; `None`: it is now.
    pub(crate) since: Option<u64>,
}

/// All clients whose cells are not connected.
pub(crate) struct VirtualHostProxy<'a> {
    listener: Option<VirtualHostListener>,
    directory: Option<&'a mut dyn NameDirectory>,
    may_accept: bool,
    clients: Slab<Client>,
    timers: Timers,
    queued: VecDeque<usize>,
    queries: HashMap<u64, usize>,
    next_query: u64,
    routed: VecDeque<RoutedClient>,
    /// Clients at a time.
    max_clients: usize,
    head: Vec<u8>,
}

impl<'a> VirtualHostProxy<'a> {
    /// Watches the listener and the directory. Without both, it accepts nothing.
    pub(crate) fn new(
        poll: &Poll,
        listener: Option<VirtualHostListener>,
        directory: Option<&'a mut dyn NameDirectory>,
        max_clients: usize,
    ) -> io::Result<VirtualHostProxy<'a>> {
        if let (Some(listener), Some(directory)) = (&listener, &directory) {
            poll.add(&listener.socket, Token::VirtualHosts, Ready::IN | Ready::ET)?;
            poll.add(directory.event(), Token::Directory, Ready::IN | Ready::ET)?;
        }
        Ok(VirtualHostProxy {
            may_accept: listener.is_some() && directory.is_some(),
            head: if listener.is_some() { vec![0; MAX_HEAD_BYTES] } else { Vec::new() },
            listener,
            directory,
            clients: Slab::new(),
            timers: Timers::default(),
            queued: VecDeque::new(),
            queries: HashMap::new(),
            next_query: 0,
            routed: VecDeque::new(),
            max_clients,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Notes that connections may be pending.
    pub(crate) fn note_connections(&mut self) {
        self.may_accept = self.listener.is_some() && self.directory.is_some();
    }

    /// Accepts connections while there is room for them. Returns whether more are pending.
    pub(crate) fn accept(&mut self, poll: &Poll, mut room: usize, now: u64) -> bool {
        let mut accepted = 0;
        while self.may_accept && room > 0 {
            if accepted == MAX_ACCEPTS {
                return true;
            }
            accepted += 1;
            let Some(listener) = &self.listener else { return false };
            match accept_with(&listener.socket, sockets::FLAGS) {
                Ok(socket) => {
                    // A socket without these options works all the same.
                    let _ = sockets::prepare(&socket);
                    room -= 1;
                    if self.clients.len() >= self.max_clients
                        && let Some(oldest) = self.timers.pop_first()
                    {
                        self.remove(oldest);
                    }
                    let (protocol, until) = (ClientProtocol::Http, after(now, HEAD_TIMEOUT));
                    // Without resources of the host, it is closed.
                    let _ = self.insert(poll, Client { socket, state: ClientState::Reading, protocol, until, discarded: 0, since: None });
                }
                // The client has disconnected.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                // Without descriptors they stay in the backlog.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => break,
                Err(_) => self.may_accept = false,
            }
        }
        false
    }

    fn insert(&mut self, poll: &Poll, client: Client) -> io::Result<()> {
        let entry = self.clients.vacant_entry();
        poll.add(&client.socket, Token::VirtualHostClient(entry.key() as u32), Ready::IN | Ready::RDHUP | Ready::ET)?;
        self.timers.add(client.until, entry.key());
        entry.insert(client);
        Ok(())
    }

    fn remove(&mut self, index: usize) -> Option<Client> {
        let client = self.clients.try_remove(index)?;
        self.timers.remove(client.until, index);
        match &client.state {
            ClientState::Queued(_) => self.queued.retain(|queued| *queued != index),
            // The answer to a request still comes, and counts until then.
            ClientState::Reading | ClientState::Requested(_) | ClientState::Closing => {}
        }
        Some(client)
    }

    fn set_state(&mut self, index: usize, state: ClientState, until: u64) {
        if let Some(client) = self.clients.get_mut(index) {
            self.timers.remove(client.until, index);
            (client.state, client.until) = (state, until);
            self.timers.add(until, index);
        }
    }

    /// Handles events of a client's socket.
    pub(crate) fn process(&mut self, index: usize, ready: Ready, now: u64) {
        // It may have been closed after the event was reported.
        match self.clients.get(index).map(|client| &client.state) {
            Some(ClientState::Reading) => self.read_head(index, ready, now),
            Some(ClientState::Closing) => self.discard(index),
            // Its end is noticed when the cell is connected.
            Some(ClientState::Queued(_) | ClientState::Requested(_)) | None => {}
        }
    }

    fn read_head(&mut self, index: usize, ready: Ready, now: u64) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let length = match recv(&client.socket, &mut self.head[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((length @ 1.., _)) => length,
            // It has disconnected.
            Ok(_) | Err(_) => return drop(self.remove(index)),
        };
        let head = self.head.get(..length).unwrap_or_default();
        client.protocol = protocol(head);
        match parse(head) {
            // No more will come.
            RequestStart::Incomplete if ready.intersects(Ready::RDHUP | Ready::HUP | Ready::ERR) => drop(self.remove(index)),
            RequestStart::Incomplete => {}
            RequestStart::Refused(reason) => {
                let status = if reason == RequestNameError::TooLong { 431 } else { 400 };
                self.refuse(index, status, &reason.to_string(), now);
            }
            RequestStart::Named(host) => {
                let domain = self.listener.as_ref().map_or("", |listener| &listener.config.domain);
                match name_below(&host, domain) {
                    Some(name) => {
                        self.set_state(index, ClientState::Queued(name), after(now, DIRECTORY_TIMEOUT));
                        self.queued.push_back(index);
                        self.request(now);
                    }
                    None => {
                        let advice = format!("this address leads to cells by name: request NAME.{domain}; `pando ps` lists the names");
                        self.refuse(index, 404, &advice, now);
                    }
                }
            }
        }
    }

    /// Discards the bytes of a refused client. One that sends many, or has ended, is closed.
    fn discard(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        while client.discarded < MAX_DISCARDED_BYTES {
            match recv(&client.socket, &mut self.head[..], RecvFlags::DONTWAIT) {
                Ok((length @ 1.., _)) => client.discarded += length,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok(_) | Err(_) => break,
            }
        }
        self.remove(index);
    }

    /// Requests the addresses of queued names, as far as queries are free.
    fn request(&mut self, now: u64) {
        while self.queries.len() < MAX_NAME_QUERIES
            && let Some(index) = self.queued.pop_front()
        {
            let Some(Client { state: ClientState::Queued(name), until, .. }) = self.clients.get(index) else { continue };
            let (name, until, query) = (name.clone(), *until, self.next_query);
            self.next_query += 1;
            match self.directory.as_mut().map(|directory| directory.request(query, &name)) {
                Some(Ok(())) => {
                    self.queries.insert(query, index);
                    self.set_state(index, ClientState::Requested(query), until);
                }
                Some(Err(_)) | None => self.refuse(index, 503, "the service is too busy to look for the cell: try again", now),
            }
        }
    }

    /// Handles the answers of the directory.
    ///
    /// # Errors
    /// The directory cannot be reached any more.
    pub(crate) fn process_answers(&mut self, poll: &Poll, now: u64) -> io::Result<()> {
        while let Some(DirectoryAnswer { query, found }) = self.directory.as_mut().map_or(Ok(None), |directory| directory.answer())? {
            let Some(index) = self.queries.remove(&query) else { continue };
            // The client may be gone, and another one in its place.
            if self.clients.get(index).is_none_or(|client| client.state != ClientState::Requested(query)) {
                continue;
            }
            match found {
                Ok(to) => {
                    if let Some(Client { socket, protocol, since, .. }) = self.remove(index) {
                        // Another part of the gateway watches it from now on.
                        poll.remove(&socket)?;
                        self.routed.push_back(RoutedClient { socket, to, protocol, since });
                    }
                }
                Err(reason) => self.refuse(index, 404, &reason, now),
            }
        }
        self.request(now);
        Ok(())
    }

    /// The next client that is to be connected with its cell.
    pub(crate) fn next_routed(&mut self) -> Option<RoutedClient> {
        self.routed.pop_front()
    }

    /// Takes back a client whose cell has not accepted it yet. Its name is looked up again, because it may mean another cell by now.
    pub(crate) fn retry_client(&mut self, poll: &Poll, socket: OwnedFd, protocol: ClientProtocol, since: u64, now: u64) {
        let (state, until) = (ClientState::Reading, after(now, HEAD_TIMEOUT));
        // The head is still in its socket. Without resources of the host, it is closed.
        let _ = self.insert(poll, Client { socket, state, protocol, until, discarded: 0, since: Some(since) });
    }

    /// Takes back a client whose cell does not accept it.
    pub(crate) fn return_client(&mut self, poll: &Poll, socket: OwnedFd, protocol: ClientProtocol, now: u64) {
        let (state, until) = (ClientState::Closing, after(now, CLOSING_TIMEOUT));
        let index = self.clients.vacant_key();
        if self.insert(poll, Client { socket, state, protocol, until, discarded: 0, since: None }).is_ok() {
            let reason =
                "the cell does not listen at its published port: look at `pando logs CELL`, or try again when its program has started";
            self.refuse(index, 502, reason, now);
        }
    }

    /// Tells a client why it is refused, and closes its connection.
    fn refuse(&mut self, index: usize, status: u16, reason: &str, now: u64) {
        let Some(client) = self.clients.get(index) else { return };
        let answer = match client.protocol {
            ClientProtocol::Http => response(status, reason),
            ClientProtocol::Tls => UNRECOGNIZED_NAME.to_vec(),
        };
        // A client that does not read it gets nothing.
        let _ = send(&client.socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        let _ = shutdown(&client.socket, Shutdown::Write);
        self.set_state(index, ClientState::Closing, after(now, CLOSING_TIMEOUT));
        self.discard(index);
    }

    /// Refuses clients that are too slow, and removes refused ones.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(index) = self.timers.pop_expired(now) {
            match self.clients.get(index).map(|client| &client.state) {
                Some(ClientState::Reading) => self.refuse(index, 408, "the head of the request did not come in time: send it at once", now),
                Some(ClientState::Queued(_)) => {
                    self.queued.retain(|queued| *queued != index);
                    self.refuse(index, 503, "the service is too busy to look for the cell: try again", now);
                }
                Some(ClientState::Requested(_)) => {
                    self.refuse(index, 503, "the service is too busy to look for the cell: try again", now);
                }
                Some(ClientState::Closing) | None => drop(self.remove(index)),
            }
        }
    }
}

/// A response of HTTP with a line of text, after which the connection is closed.
fn response(status: u16, reason: &str) -> Vec<u8> {
    let phrase = match status {
        400 => "Bad Request",
        404 => "Not Found",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        _ => "Service Unavailable",
    };
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\ncache-control: no-store\r\n\
        connection: close\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

fn after(now: u64, time: Duration) -> u64 {
    now.saturating_add(time.as_nanos() as u64)
}
