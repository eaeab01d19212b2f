// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions about names: from cells, by datagrams and by connections, to the host's resolvers, one after the other until one answers.

use crate::dns::{Answer, Question};
use crate::limits::{MAX_QUESTIONS, RESOLVER_TIME};
use crate::poll::{Poll, Ready, Token};
use crate::sockets;
use crate::timers::Timers;
use crate::world::World;
use pando_stack::{ConnectionId, Datagram, Outlet, Stack};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::rand::{GetRandomFlags, getrandom};
use slab::Slab;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The longest message, and its length before it.
const ROOM: usize = (1 << 16) + 1;
/// Routers that an answer may pass.
const HOPS: u8 = 64;

/// Who asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// By a datagram, to the first address from the second.
    Datagram(SocketAddr, SocketAddr),
    /// By a connection.
    Stream(ConnectionId),
}

/// The way to a resolver.
#[derive(Debug)]
enum Line {
    Datagrams(OwnedFd),
    /// A connection, what is still to be said, and what was heard.
    Stream(OwnedFd, Vec<u8>, Vec<u8>),
}

/// A question that a resolver was asked.
#[derive(Debug)]
struct Asked {
    question: Question,
    asker: Asker,
    line: Line,
    /// Which of the resolvers.
    resolver: usize,
    until: u64,
}

/// A cell's connection to the resolver: what it said that is no whole question yet, and what is still to be answered.
#[derive(Debug, Default)]
struct Stream {
    heard: Vec<u8>,
    answer: Vec<u8>,
    waits: bool,
}

/// What questions need of the rest of the gateway.
pub(crate) struct Means<'a> {
    pub(crate) poll: &'a Poll,
    pub(crate) world: &'a mut World,
    pub(crate) stack: &'a mut Stack,
    pub(crate) outlet: &'a mut dyn Outlet,
    pub(crate) now: u64,
}

/// Questions that were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// All.
    pub questions: u64,
    /// Those that no rule allows.
    pub refused: u64,
    /// Those that no resolver answered.
    pub unanswered: u64,
}

/// All questions that are under way.
#[derive(Debug)]
pub(crate) struct Questions {
    resolvers: Vec<SocketAddr>,
    /// Questions that there may be, each with a descriptor.
    most: usize,
    list: Slab<Asked>,
    timers: Timers,
    streams: HashMap<ConnectionId, Stream>,
    /// Those that have got an answer to pass on.
    answered: Vec<ConnectionId>,
    pub(crate) asking: Asking,
}

impl Questions {
    pub(crate) fn new(resolvers: Vec<SocketAddr>, most: usize) -> Questions {
        let (list, timers, streams, answered) = (Slab::new(), Timers::default(), HashMap::new(), Vec::new());
        Questions { resolvers, most, list, timers, streams, answered, asking: Asking::default() }
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// A cell asks by a datagram.
    pub(crate) fn hear(&mut self, datagram: &Datagram, means: &mut Means<'_>) {
        if let Some(question) = Question::read(&datagram.bytes)
            && self.list.len() < self.most
        {
            self.ask(question, Asker::Datagram(datagram.local, datagram.remote), means);
        }
    }

    /// A cell has connected to ask. One of too many is turned away: each may make the gateway keep a question and an answer.
    pub(crate) fn open(&mut self, id: ConnectionId, stack: &mut Stack) {
        if self.streams.len() >= MAX_QUESTIONS {
            return stack.abort(id);
        }
        self.streams.insert(id, Stream::default());
    }

    /// A cell's connection is over.
    pub(crate) fn close(&mut self, id: ConnectionId, stack: &mut Stack) {
        if self.streams.remove(&id).is_some() {
            stack.abort(id);
        }
    }

    /// A cell's connection has something to say, or room.
    pub(crate) fn serve(&mut self, id: ConnectionId, means: &mut Means<'_>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        means.stack.send(id, &mut |room| {
            let length = room.len().min(stream.answer.len());
            room.get_mut(..length).unwrap_or_default().copy_from_slice(&stream.answer[..length]);
            stream.answer.drain(..length);
            length
        });
        // One after the other, so that nobody makes the gateway keep more than one.
        if stream.waits || !stream.answer.is_empty() {
            return;
        }
        means.stack.receive(id, &mut |bytes| {
            let length = bytes.len().min(ROOM - stream.heard.len());
            stream.heard.extend_from_slice(&bytes[..length]);
            length
        });
        match whole(&stream.heard).map(|message| (Question::read(message), message.len())) {
            Some((Some(question), length)) if self.list.len() < self.most => {
                stream.heard.drain(..2 + length);
                stream.waits = true;
                self.ask(question, Asker::Stream(id), means);
            }
            // Nothing sensible, or too much.
            Some(_) => self.close(id, means.stack),
            None if means.stack.has_finished(id) && means.stack.readable(id) == 0 => {
                self.streams.remove(&id);
                means.stack.leave(id, means.now);
            }
            None => {}
        }
    }

    fn ask(&mut self, question: Question, asker: Asker, means: &mut Means<'_>) {
        self.asking.questions += 1;
        if means.world.admit_name(&question.name) {
            return self.ask_from(0, question, asker, means);
        }
        self.asking.refused += 1;
        self.answer(asker, question.refused(), means);
    }

    /// Asks the first resolver from here on that can be asked.
    fn ask_from(&mut self, first: usize, mut question: Question, asker: Asker, means: &mut Means<'_>) {
        for (resolver, address) in self.resolvers.iter().enumerate().skip(first) {
            let entry = self.list.vacant_entry();
            if let Ok(line) = Line::open(*address, &mut question, asker, means.poll, entry.key()) {
                let until = means.now.saturating_add(RESOLVER_TIME.as_nanos() as u64);
                self.timers.add(until, entry.key());
                entry.insert(Asked { question, asker, line, resolver, until });
                return;
            }
        }
        self.asking.unanswered += 1;
        self.answer(asker, question.failed(), means);
    }

    /// Gives an answer to who asked, if that is still there.
    fn answer(&mut self, asker: Asker, bytes: Vec<u8>, means: &mut Means<'_>) {
        match asker {
            Asker::Datagram(local, remote) => {
                // Who does not get it asks again.
                let _ = means.stack.send_datagram(&Datagram { local, remote, bytes, hops: HOPS }, means.now, means.outlet);
            }
            Asker::Stream(id) => {
                if let (Some(stream), Ok(length)) = (self.streams.get_mut(&id), u16::try_from(bytes.len())) {
                    stream.answer = [&length.to_be_bytes(), &bytes[..]].concat();
                    stream.waits = false;
                    self.answered.push(id);
                }
            }
        }
    }

    /// Serves the connections that have got answers. Whether there are more.
    pub(crate) fn run(&mut self, means: &mut Means<'_>) -> bool {
        for id in std::mem::take(&mut self.answered) {
            self.serve(id, means);
        }
        !self.answered.is_empty()
    }

    fn remove(&mut self, index: usize) -> Option<Asked> {
        let asked = self.list.try_remove(index)?;
        self.timers.remove(asked.until, index);
        Some(asked)
    }

    /// A resolver has something to say.
    pub(crate) fn take(&mut self, index: usize, means: &mut Means<'_>) {
        let Some(asked) = self.list.get_mut(index) else { return };
        let answer = match asked.line.progress() {
            Ok(None) => return,
            Ok(Some(reply)) => match asked.question.answer(&reply) {
                // Anybody may have sent it.
                None => return,
                answer => answer,
            },
            Err(_) => None,
        };
        let Some(Asked { question, asker, resolver, .. }) = self.remove(index) else { return };
        match answer {
            Some(Answer { message, addresses, failed }) if !failed || resolver + 1 >= self.resolvers.len() => {
                means.world.learn(&question.name, &addresses, means.now);
                self.answer(asker, message, means);
            }
            _ => self.ask_from(resolver + 1, question, asker, means),
        }
    }

    /// Asks the next resolver where one took too long.
    pub(crate) fn expire(&mut self, means: &mut Means<'_>) {
        while let Some(Asked { question, asker, resolver, .. }) = self.timers.due(means.now).and_then(|index| self.remove(index)) {
            self.ask_from(resolver + 1, question, asker, means);
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.timers.next()
    }
}

impl Line {
    /// Asks a resolver, in the way in which the gateway was asked.
    fn open(to: SocketAddr, question: &mut Question, asker: Asker, poll: &Poll, index: usize) -> Result<Line, Errno> {
        let mut number = [0; 2];
        getrandom(&mut number, GetRandomFlags::empty())?;
        let message = question.message(u16::from_ne_bytes(number)).ok_or(Errno::MSGSIZE)?;
        let token = Token::Question(index as u32);
        let added = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        match asker {
            Asker::Datagram(..) => {
                let socket = sockets::datagrams_with(to)?;
                send(&socket, &message, SendFlags::NOSIGNAL)?;
                poll.add(&socket, token, Ready::IN).map_err(added)?;
                Ok(Line::Datagrams(socket))
            }
            Asker::Stream(_) => {
                let socket = sockets::call(to)?;
                poll.add(&socket, token, Ready::IN | Ready::OUT | Ready::ET).map_err(added)?;
                let length = u16::try_from(message.len()).map_err(|_| Errno::MSGSIZE)?;
                Ok(Line::Stream(socket, [&length.to_be_bytes(), &message[..]].concat(), Vec::new()))
            }
        }
    }

    /// Says what is still to be said, and hears. A whole message, if there is one.
    fn progress(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        let later = |errno| if errno == Errno::AGAIN { Ok(0) } else { Err(errno) };
        let mut room = vec![0; ROOM];
        match self {
            Line::Datagrams(socket) => {
                let length = recv(socket, &mut room[..], RecvFlags::DONTWAIT).map(|(length, _)| length).or_else(later)?;
                room.truncate(length);
                Ok((length > 0).then_some(room))
            }
            Line::Stream(socket, said, heard) => {
                if !said.is_empty() {
                    let sent = send(&*socket, said, SendFlags::NOSIGNAL).or_else(later)?;
                    said.drain(..sent);
                }
                loop {
                    match recv(&*socket, &mut room[..], RecvFlags::DONTWAIT) {
                        Ok((0, _)) => return Err(Errno::CONNRESET),
                        Ok((length, _)) => heard.extend_from_slice(&room[..length]),
                        Err(Errno::AGAIN) => return Ok(None),
                        Err(errno) => return Err(errno),
                    }
                    if let Some(message) = whole(heard) {
                        return Ok(Some(message.to_vec()));
                    }
                }
            }
        }
    }
}

/// The first message of a stream, if it is there as a whole: its length comes before it.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..u16::from_be_bytes(*length).into())
}
