// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack as its user sees it.

use crate::{Config, ConnectionId, Counts, Datagram, Doorkeeper, Echo, Error, Happening, Outlet, Refusal, TcpOptions, Tuple};

/// A host's end of a network.
#[derive(Debug)]
pub struct Stack {
    counts: Counts,
}

impl Stack {
    /// A stack that has heard and said nothing yet.
    pub fn new(_config: Config, _now: u64) -> Self {
        Self { counts: Counts::default() }
    }

    /// Hears an Ethernet frame that arrived. What must be answered at once is; the rest says [`Stack::run`].
    pub fn take(&mut self, _frame: &[u8], _now: u64, _doorkeeper: &mut dyn Doorkeeper, _outlet: &mut dyn Outlet) {
        self.counts.taken += 1;
    }

    /// Says everything that there is to say, as far as the outlet has room, and does what is due. Whether nothing is left to be said.
    pub fn run(&mut self, _now: u64, _outlet: &mut dyn Outlet) -> bool {
        true
    }

    /// When [`Stack::run`] must be called next, if nothing happens before: a moment that may have passed. Connections at rest have none.
    pub fn deadline(&self) -> Option<u64> {
        None
    }

    /// What happened, in turn.
    pub fn next_happening(&mut self) -> Option<Happening> {
        None
    }

    /// Asks the other side of a tuple for a connection.
    pub fn connect(&mut self, _tuple: Tuple, _options: TcpOptions, _now: u64) -> Result<ConnectionId, Error> {
        Err(Error::NoRoute)
    }

    /// Lets a stranger in that was held. Nothing if it is not there any more.
    pub fn admit(&mut self, _tuple: &Tuple) {}

    /// Refuses a stranger that was held.
    pub fn refuse(&mut self, _tuple: &Tuple, _refusal: Refusal) {}

    /// Whose connection this is. None: it is over.
    pub fn tuple(&self, _id: ConnectionId) -> Option<Tuple> {
        None
    }

    /// Lets `give` write what is to be sent into the room there is, in one or two pieces; it says how much it wrote. Returns how much there was in all.
    ///
    /// Where no room is left, [`Happening::Room`] tells of some.
    pub fn send(&mut self, _id: ConnectionId, _give: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        0
    }

    /// Lets `take` read what arrived, in one or two pieces; it says how much it is done with. Returns how much that was in all.
    pub fn receive(&mut self, _id: ConnectionId, _take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        0
    }

    /// Bytes that can be read.
    pub fn readable(&self, _id: ConnectionId) -> usize {
        0
    }

    /// Bytes that can be sent at once.
    pub fn writable(&self, _id: ConnectionId) -> usize {
        0
    }

    /// Bytes that were given to be sent and are not known to have arrived.
    pub fn unanswered(&self, _id: ConnectionId) -> usize {
        0
    }

    /// The other side will send no more than what can be read.
    pub fn has_finished(&self, _id: ConnectionId) -> bool {
        true
    }

    /// Nothing more will be sent (FIN, after all that was given).
    pub fn finish(&mut self, _id: ConnectionId) {}

    /// Nobody will read or send any more, and the name is forgotten: what was given is still sent, and what is unread or still arrives breaks the connection (RST).
    pub fn leave(&mut self, _id: ConnectionId) {}

    /// Breaks the connection (RST), and forgets its name.
    pub fn abort(&mut self, _id: ConnectionId) {}

    /// Sets what can be set.
    pub fn set(&mut self, _id: ConnectionId, _options: TcpOptions) {}

    /// Sends a datagram. Where the neighbour is not known yet, it waits a while for it.
    pub fn send_datagram(&mut self, _datagram: &Datagram, _now: u64, _outlet: &mut dyn Outlet) -> Result<(), Error> {
        Err(Error::NoRoute)
    }

    /// Asks for an echo.
    pub fn ping(&mut self, _echo: &Echo, _now: u64, _outlet: &mut dyn Outlet) -> Result<(), Error> {
        Err(Error::NoRoute)
    }

    /// The address that packets to `remote` should come from. None: no route leads there.
    pub fn address_for(&self, _remote: core::net::IpAddr) -> Option<core::net::IpAddr> {
        None
    }

    /// How much there is of everything.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
