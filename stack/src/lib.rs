// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP/IP for cells and for the gateway: finds the connection of a packet itself, and leaves TCP to smoltcp.
//!
//! A [`Stack`] does no I/O and has no clock. Its user hands it the frames that arrived ([`Stack::take`]), lets it say what it has to say
//! ([`Stack::run`]) into an [`Outlet`], asks what happened ([`Stack::next_happening`]), and calls it again when a frame arrives, when it has
//! given it something to do, or at [`Stack::deadline`]. Moments are nanoseconds of whatever clock the user has.
//!
//! Nothing listens: whoever knocks is put to a [`Doorkeeper`], so a backlog is a number of the user's.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
mod config;
mod connection;
mod datagram;
mod hear;
mod limits;
mod lingering;
mod mend;
mod messages;
mod neighbours;
mod network;
mod news;
mod outlet;
mod packet;
mod port;
mod sockets;
mod speak;
mod stack;
mod steer;
mod strangers;
mod words;

pub use config::{Config, KeepAlive, TcpOptions};
pub use outlet::{Outbox, Outlet};
pub use stack::Stack;
pub use words::{ConnectionId, Counts, Datagram, Doorkeeper, Echo, Error, Failure, Happening, Hearing, Obstacle, Refusal, Tuple, Verdict};
