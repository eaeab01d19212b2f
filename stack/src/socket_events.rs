// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pending events for the user: a few bits per connection, and a bounded queue for everything else.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use crate::connection::Connection;
use crate::{ConnectionId, SocketEvent, limits};

/// The events of a connection as bits, in the order in which they are reported.
pub(crate) const ACCEPTED: u8 = 1;
pub(crate) const OPENED: u8 = 2;
pub(crate) const READABLE: u8 = 4;
pub(crate) const WRITABLE: u8 = 8;
pub(crate) const FAILED: u8 = 16;
pub(crate) const CLOSED: u8 = 32;

#[derive(Debug)]
enum Item {
    Connection(ConnectionId),
    Standalone(SocketEvent),
}

#[derive(Debug)]
pub(crate) struct EventQueue {
    queue: VecDeque<Item>,
    bytes: usize,
}

impl EventQueue {
    pub(crate) const fn new() -> Self {
        Self { queue: VecDeque::new(), bytes: 0 }
    }

    /// Bytes of the events that belong to no connection.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an event of a connection, unless its id is released.
    pub(crate) fn add(&mut self, id: ConnectionId, connection: &mut Connection, bit: u8) {
        if connection.hold.is_released() {
            return;
        }
        if connection.pending_events == 0 {
            self.queue.push_back(Item::Connection(id));
        }
        connection.pending_events |= bit;
    }

    /// Adds another event, if there is room for it.
    pub(crate) fn post(&mut self, event: SocketEvent) {
        let bytes = weight(&event);
        if self.bytes + bytes <= limits::WAITING_BYTES {
            self.bytes += bytes;
            self.queue.push_back(Item::Standalone(event));
        }
    }

    pub(crate) fn next(&mut self, connections: &mut BTreeMap<ConnectionId, Box<Connection>>) -> Option<SocketEvent> {
        loop {
            let id = match self.queue.front()? {
                Item::Connection(id) => *id,
                Item::Standalone(_) => {
                    let Some(Item::Standalone(event)) = self.queue.pop_front() else { return None };
                    self.bytes -= weight(&event);
                    return Some(event);
                }
            };
            let Some(connection) = connections.get_mut(&id) else {
                self.queue.pop_front();
                continue;
            };
            let bit = connection.pending_events & connection.pending_events.wrapping_neg();
            connection.pending_events &= !bit;
            if connection.pending_events == 0 {
                self.queue.pop_front();
            }
            return Some(match bit {
                0 => continue,
                ACCEPTED => SocketEvent::Accepted(id),
                OPENED => SocketEvent::Opened(id),
                READABLE => SocketEvent::Readable(id),
                WRITABLE => SocketEvent::Writable(id),
                FAILED => SocketEvent::Failed(id, connection.failure),
                _ => SocketEvent::Closed(id),
            });
        }
    }
}

/// The size of an event in the queue.
fn weight(event: &SocketEvent) -> usize {
    limits::EVENT_OVERHEAD
        + match event {
            SocketEvent::Datagram(datagram) => datagram.bytes.len(),
            SocketEvent::Message(message) => message.bytes.len(),
            SocketEvent::Unreachable(notice) => notice.quoted.len(),
            _ => 0,
        }
}
