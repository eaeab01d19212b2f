// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DNS proxy: forwards cells' queries by UDP and TCP to the host's resolvers, one after the other until one answers.

use crate::dns::{DnsQuestion, DnsResponse};
use crate::limits::{MAX_DNS_QUERIES, RESOLVER_TIMEOUT};
use crate::poll::{Poll, Ready, Token};
use crate::routes::Routes;
use crate::sockets;
use crate::timers::Timers;
use pando_stack::{ConnectionId, Datagram, Stack, TxSink};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The longest message with its length prefix.
const BUFFER_SIZE: usize = (1 << 16) + 1;
/// The TTL of responses.
const TTL: u8 = 64;

/// The origin of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DnsClient {
    /// A datagram, to the first address from the second.
    Datagram(SocketAddr, SocketAddr),
    /// A TCP connection.
    Stream(ConnectionId),
}

/// The connection to a resolver.
#[derive(Debug)]
enum ResolverLink {
    /// A UDP socket.
    Datagram(OwnedFd),
    /// A TCP connection, the unsent bytes, and the received ones.
    Stream(OwnedFd, Vec<u8>, Vec<u8>),
}

/// A query to a resolver.
#[derive(Debug)]
struct DnsQuery {
    question: DnsQuestion,
    client: DnsClient,
    link: ResolverLink,
    /// The resolver's index.
    resolver: usize,
    expires: u64,
}

/// A cell's DNS connection: an incomplete query, and an unsent response.
#[derive(Debug, Default)]
struct DnsConnection {
    received: Vec<u8>,
    response: Vec<u8>,
    is_waiting: bool,
}

/// The parts of the gateway that queries use.
pub(crate) struct DnsContext<'a> {
    pub(crate) poll: &'a Poll,
    pub(crate) routes: &'a mut Routes,
    pub(crate) stack: &'a mut Stack,
    pub(crate) sink: &'a mut dyn TxSink,
    pub(crate) now: u64,
}

/// Counters of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsCounts {
    /// All.
    pub queries: u64,
    /// Queries that no rule allows.
    pub refused: u64,
    /// Queries that no resolver answered.
    pub unanswered: u64,
}

/// All pending queries.
#[derive(Debug)]
pub(crate) struct DnsProxy {
    resolvers: Vec<SocketAddr>,
    /// Maximal number of queries, each with a descriptor.
    max_queries: usize,
    list: Slab<DnsQuery>,
    timers: Timers,
    streams: HashMap<ConnectionId, DnsConnection>,
    /// Connections with a response to send.
    ready: Vec<ConnectionId>,
    pub(crate) counts: DnsCounts,
}

impl DnsProxy {
    pub(crate) fn new(resolvers: Vec<SocketAddr>, max_queries: usize) -> DnsProxy {
        let (list, timers, streams, ready) = (Slab::new(), Timers::default(), HashMap::new(), Vec::new());
        DnsProxy { resolvers, max_queries, list, timers, streams, ready, counts: DnsCounts::default() }
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Handles a query datagram of a cell.
    pub(crate) fn process(&mut self, datagram: &Datagram, context: &mut DnsContext<'_>) {
        if let Some(question) = DnsQuestion::parse(&datagram.bytes)
            && self.list.len() < self.max_queries
        {
            self.query(question, DnsClient::Datagram(datagram.local, datagram.remote), context);
        }
    }

    /// Handles a new DNS connection. Refuses it beyond the limit: each may make the gateway buffer a query and a response.
    pub(crate) fn open(&mut self, id: ConnectionId, stack: &mut Stack) {
        if self.streams.len() >= MAX_DNS_QUERIES {
            return stack.abort(id);
        }
        self.streams.insert(id, DnsConnection::default());
    }

    /// Removes a cell's connection.
    pub(crate) fn close(&mut self, id: ConnectionId, stack: &mut Stack) {
        if self.streams.remove(&id).is_some() {
            stack.abort(id);
        }
    }

    /// Handles a cell's connection that is readable or writable.
    pub(crate) fn serve(&mut self, id: ConnectionId, context: &mut DnsContext<'_>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        context.stack.send(id, &mut |buffer| {
            let length = buffer.len().min(stream.response.len());
            buffer.get_mut(..length).unwrap_or_default().copy_from_slice(&stream.response[..length]);
            stream.response.drain(..length);
            length
        });
        // One query at a time, so that each connection buffers at most one.
        if stream.is_waiting || !stream.response.is_empty() {
            return;
        }
        context.stack.receive(id, &mut |bytes| {
            let length = bytes.len().min(BUFFER_SIZE - stream.received.len());
            stream.received.extend_from_slice(&bytes[..length]);
            length
        });
        match first_message(&stream.received).map(|message| (DnsQuestion::parse(message), message.len())) {
            Some((Some(question), length)) if self.list.len() < self.max_queries => {
                stream.received.drain(..2 + length);
                stream.is_waiting = true;
                self.query(question, DnsClient::Stream(id), context);
            }
            // The query is malformed or too long, or too many are waiting.
            Some(_) => self.close(id, context.stack),
            None if context.stack.has_finished(id) && context.stack.readable(id) == 0 => {
                self.streams.remove(&id);
                context.stack.release(id, context.now);
            }
            None => {}
        }
    }

    fn query(&mut self, question: DnsQuestion, client: DnsClient, context: &mut DnsContext<'_>) {
        self.counts.queries += 1;
        if context.routes.admit_name(&question.name) {
            return self.query_from(0, question, client, context);
        }
        self.counts.refused += 1;
        self.respond(client, question.refused_response(), context);
    }

    /// Sends a query to the first usable resolver from `first` on.
    fn query_from(&mut self, first: usize, mut question: DnsQuestion, client: DnsClient, context: &mut DnsContext<'_>) {
        for (resolver, address) in self.resolvers.iter().enumerate().skip(first) {
            let entry = self.list.vacant_entry();
            if let Ok(link) = ResolverLink::open(*address, &mut question, client, context.poll, entry.key()) {
                let expires = context.now.saturating_add(RESOLVER_TIMEOUT.as_nanos() as u64);
                self.timers.add(expires, entry.key());
                entry.insert(DnsQuery { question, client, link, resolver, expires });
                return;
            }
        }
        self.counts.unanswered += 1;
        self.respond(client, question.servfail_response(), context);
    }

    /// Sends a response to the query's origin, if that still exists.
    fn respond(&mut self, client: DnsClient, bytes: Vec<u8>, context: &mut DnsContext<'_>) {
        match client {
            DnsClient::Datagram(local, remote) => {
                // If it is lost, the cell retries.
                let _ = context.stack.send_datagram(&Datagram { local, remote, bytes, hops: TTL }, context.now, context.sink);
            }
            DnsClient::Stream(id) => {
                if let (Some(stream), Ok(length)) = (self.streams.get_mut(&id), u16::try_from(bytes.len())) {
                    stream.response = [&length.to_be_bytes(), &bytes[..]].concat();
                    stream.is_waiting = false;
                    self.ready.push(id);
                }
            }
        }
    }

    /// Serves the connections with responses. Returns whether there are more.
    pub(crate) fn run(&mut self, context: &mut DnsContext<'_>) -> bool {
        for id in std::mem::take(&mut self.ready) {
            self.serve(id, context);
        }
        !self.ready.is_empty()
    }

    fn remove(&mut self, index: usize) -> Option<DnsQuery> {
        let query = self.list.try_remove(index)?;
        self.timers.remove(query.expires, index);
        Some(query)
    }

    /// Handles a resolver's descriptor.
    pub(crate) fn process_ready(&mut self, index: usize, context: &mut DnsContext<'_>) {
        let Some(query) = self.list.get_mut(index) else { return };
        let response = match query.link.poll() {
            Ok(None) => return,
            Ok(Some(reply)) => match query.question.parse_response(&reply) {
                // It may be spoofed.
                None => return,
                response => response,
            },
            Err(_) => None,
        };
        let Some(DnsQuery { question, client, resolver, .. }) = self.remove(index) else { return };
        match response {
            Some(DnsResponse { message, addresses, failed }) if !failed || resolver + 1 >= self.resolvers.len() => {
                context.routes.learn(&question.name, &addresses, context.now);
                self.respond(client, message, context);
            }
            _ => self.query_from(resolver + 1, question, client, context),
        }
    }

    /// Asks the next resolver for queries that have timed out.
    pub(crate) fn expire(&mut self, context: &mut DnsContext<'_>) {
        while let Some(DnsQuery { question, client, resolver, .. }) =
            self.timers.pop_expired(context.now).and_then(|index| self.remove(index))
        {
            self.query_from(resolver + 1, question, client, context);
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.timers.next()
    }
}

impl ResolverLink {
    /// Sends a query to a resolver, with the transport that the cell used.
    fn open(to: SocketAddr, question: &mut DnsQuestion, client: DnsClient, poll: &Poll, index: usize) -> Result<ResolverLink, Errno> {
        let mut number = [0; 2];
        getrandom(&mut number, GetRandomFlags::empty())?;
        let message = question.query_message(u16::from_ne_bytes(number)).ok_or(Errno::MSGSIZE)?;
        let token = Token::DnsQuery(index as u32);
        let added = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match client {
            DnsClient::Datagram(..) => {
                let socket = sockets::udp_socket_to(to)?;
                send(&socket, &message, SendFlags::NOSIGNAL)?;
                poll.add(&socket, token, Ready::IN).map_err(added)?;
                Ok(ResolverLink::Datagram(socket))
            }
            DnsClient::Stream(_) => {
                let socket = sockets::connect_stream(to)?;
                poll.add(&socket, token, Ready::IN | Ready::OUT | Ready::ET).map_err(added)?;
                let length = u16::try_from(message.len()).map_err(|_| Errno::MSGSIZE)?;
                Ok(ResolverLink::Stream(socket, [&length.to_be_bytes(), &message[..]].concat(), Vec::new()))
            }
        }
    }

    /// Sends and receives. Returns a complete message, if there is one.
    fn poll(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        let later = |errno| if errno == Errno::AGAIN { Ok(0) } else { Err(errno) };
        let mut buffer = vec![0; BUFFER_SIZE];
        match self {
            ResolverLink::Datagram(socket) => {
                let length = recv(socket, &mut buffer[..], RecvFlags::DONTWAIT).map(|(length, _)| length).or_else(later)?;
                buffer.truncate(length);
                Ok((length > 0).then_some(buffer))
            }
            ResolverLink::Stream(socket, unsent, received) => {
                if !unsent.is_empty() {
                    let sent = send(&*socket, unsent, SendFlags::NOSIGNAL).or_else(later)?;
                    unsent.drain(..sent);
                }
                loop {
                    match recv(&*socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                        Ok((0, _)) => return Err(Errno::CONNRESET),
                        Ok((length, _)) => received.extend_from_slice(&buffer[..length]),
                        Err(Errno::AGAIN) => return Ok(None),
                        Err(errno) => return Err(errno),
                    }
                    if let Some(message) = first_message(received) {
                        return Ok(Some(message.to_vec()));
                    }
                }
            }
        }
    }
}

/// The first message of a stream, if it is complete: a length precedes it.
fn first_message(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..u16::from_be_bytes(*length).into())
}
