// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user will be told: of each connection a few bits, of everything else a bounded queue.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use crate::connection::Connection;
use crate::{ConnectionId, Happening, limits};

/// The bits of a connection, in the order in which they are told.
pub(crate) const ACCEPTED: u8 = 1;
pub(crate) const OPENED: u8 = 2;
pub(crate) const DATA: u8 = 4;
pub(crate) const ROOM: u8 = 8;
pub(crate) const FAILED: u8 = 16;
pub(crate) const CLOSED: u8 = 32;

#[derive(Debug)]
enum Item {
    Of(ConnectionId),
    Other(Happening),
}

#[derive(Debug)]
pub(crate) struct News {
    queue: VecDeque<Item>,
    bytes: usize,
}

impl News {
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new(), bytes: 0 }
    }

    /// Bytes of what is no connection's.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// There is news of a connection, unless nobody wants to know.
    pub(crate) fn add(&mut self, id: ConnectionId, connection: &mut Connection, bit: u8) {
        if connection.is_left {
            return;
        }
        connection.news |= bit;
        if !connection.has_news {
            connection.has_news = true;
            self.queue.push_back(Item::Of(id));
        }
    }

    /// Other news, if there is room for it.
    pub(crate) fn post(&mut self, happening: Happening) {
        let bytes = weight(&happening);
        if self.bytes + bytes <= limits::WAITING_BYTES {
            self.bytes += bytes;
            self.queue.push_back(Item::Other(happening));
        }
    }

    pub(crate) fn next(&mut self, connections: &mut BTreeMap<ConnectionId, Box<Connection>>) -> Option<Happening> {
        loop {
            let id = match self.queue.front()? {
                Item::Of(id) => *id,
                Item::Other(_) => {
                    let Some(Item::Other(happening)) = self.queue.pop_front() else { return None };
                    self.bytes -= weight(&happening);
                    return Some(happening);
                }
            };
            let Some(connection) = connections.get_mut(&id) else {
                self.queue.pop_front();
                continue;
            };
            let bit = connection.news & connection.news.wrapping_neg();
            connection.news &= !bit;
            if connection.news == 0 {
                connection.has_news = false;
                self.queue.pop_front();
            }
            return Some(match bit {
                0 => continue,
                ACCEPTED => Happening::Accepted(id),
                OPENED => Happening::Opened(id),
                DATA => Happening::Data(id),
                ROOM => Happening::Room(id),
                FAILED => Happening::Failed(id, connection.failure),
                _ => Happening::Closed(id),
            });
        }
    }
}

/// What a piece of news counts.
fn weight(happening: &Happening) -> usize {
    limits::PLACE
        + match happening {
            Happening::Datagram(datagram) => datagram.bytes.len(),
            Happening::Message(message) => message.bytes.len(),
            Happening::Unreachable(notice) => notice.quoted.len(),
            _ => 0,
        }
}
