// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of sockets, as events of `poll`.

use super::transfer::is_full_for_others;
use super::{Family, SockType, SocketId, Sockets, State};
use crate::files::poll::{READING, WRITING};
use crate::uapi::{POLLERR, POLLHUP, POLLPRI, POLLRDHUP, POLLWRBAND};

impl Sockets {
    /// A socket's `poll` events.
    #[must_use]
    pub fn ready(&self, id: SocketId) -> u16 {
        let Ok(socket) = self.get(id) else { return POLLERR | POLLHUP };
        let mut ready = if socket.error.is_some() || !socket.error_queue.is_empty() { POLLERR } else { 0 };
        if let State::Listening { accept_queue, .. } = &socket.state
            && socket.is_tcp()
        {
            return ready | if accept_queue.is_empty() { 0 } else { READING };
        }
        let is_idle = matches!(socket.state, State::Idle | State::Closed);
        if socket.is_rcv_shutdown && socket.is_send_shutdown || is_idle && socket.needs_connection() {
            ready |= POLLHUP;
        }
        if socket.is_rcv_shutdown {
            ready |= POLLRDHUP | READING;
        }
        let has_waiting = matches!(&socket.state, State::Listening { accept_queue, .. } if !accept_queue.is_empty());
        if !socket.queue.is_empty() || has_waiting {
            ready |= READING;
        }
        if socket.queue.is_urgent() {
            ready |= POLLPRI;
        }
        if !matches!(socket.state, State::Connecting(_)) && self.has_room(id) {
            let band = if socket.is_tcp() { 0 } else { POLLWRBAND };
            ready |= WRITING | band;
        }
        ready
    }

    /// Whether there is enough space to make sending worthwhile.
    pub(super) fn has_room(&self, id: SocketId) -> bool {
        let Ok(socket) = self.get(id) else { return false };
        if socket.listens() {
            return false;
        }
        let limit = socket.options.send_limit(socket.is_tcp());
        let Some(other) = socket.peer().and_then(|peer| self.get(peer).ok()) else { return true };
        if let Some(remote_end) = &other.remote_end {
            return socket.is_send_shutdown || self.inet.room(remote_end) > 0;
        }
        let used = other.queue.used();
        match (socket.family, socket.socket_type) {
            (Family::Inet | Family::Inet6, SockType::Stream) => socket.is_send_shutdown || used * 3 <= limit * 2,
            (Family::Unix, SockType::Datagram) if other.peer() != Some(id) => !is_full_for_others(other),
            (Family::Unix, _) => used * 4 <= limit,
            _ => true,
        }
    }
}
