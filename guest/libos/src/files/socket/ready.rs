// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of sockets, as events of `poll`.

use super::transfer::is_crowded;
use super::{Family, SocketId, Sockets, State, Style};
use crate::files::poll::{READING, WRITING};
use crate::uapi::{POLLERR, POLLHUP, POLLPRI, POLLRDHUP, POLLWRBAND};

impl Sockets {
    /// A socket's `poll` events.
    #[must_use]
    pub fn ready(&self, id: SocketId) -> u16 {
        let Ok(socket) = self.get(id) else { return POLLERR | POLLHUP };
        let mut ready = if socket.error.is_some() || !socket.notices.is_empty() { POLLERR } else { 0 };
        if let State::Listening { waiting, .. } = &socket.state
            && socket.is_tcp()
        {
            return ready | if waiting.is_empty() { 0 } else { READING };
        }
        let is_idle = matches!(socket.state, State::Idle | State::Closed);
        if socket.reads_ended && socket.sends_ended || is_idle && socket.needs_connection() {
            ready |= POLLHUP;
        }
        if socket.reads_ended {
            ready |= POLLRDHUP | READING;
        }
        let somebody_waits = matches!(&socket.state, State::Listening { waiting, .. } if !waiting.is_empty());
        if !socket.queue.is_empty() || somebody_waits {
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
        if let Some(far) = &other.far {
            return socket.sends_ended || self.outside.room(far) > 0;
        }
        let used = other.queue.used();
        match (socket.family, socket.style) {
            (Family::Internet4 | Family::Internet6, Style::Stream) => socket.sends_ended || used * 3 <= limit * 2,
            (Family::Unix, Style::Datagram) if other.peer() != Some(id) => !is_crowded(other),
            (Family::Unix, _) => used * 4 <= limit,
            _ => true,
        }
    }
}
