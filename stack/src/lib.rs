// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP/IP for cells and for the gateway: finds the connection of a packet itself, and leaves TCP to smoltcp.
//!
//! A [`Stack`] does no I/O and has no clock. Its user hands it the frames that arrived ([`Stack::take`]), lets it say what it has to say
//! ([`Stack::run`]) into an [`Outlet`], asks what happened ([`Stack::next_happening`]), and calls it again when a frame arrives, when it has
//! given it something to do, or at [`Stack::deadline`]. Moments are nanoseconds of whatever clock the user has.
//!
//! Nothing listens: whoever knocks is put to a [`Doorkeeper`], so a backlog is a number of the user's.
//!
//! # A loop
//!
//! After each [`Stack::take`] and each [`Stack::run`] there may be happenings, and after a happening there may be something to say. So: take what
//! arrived, hear what happened until there is no more, run, hear again what happened (a time may have run out), and wait for a frame or the deadline.
//! Where [`Stack::run`] was cut short for want of room, the deadline has passed: wait for room.
//!
//! # What smoltcp does, and what is done around it
//!
//! smoltcp has the state machine of a connection, what waits to be sent and to be read, and the formats of packets. It walks all its
//! sockets for each packet, so each connection has a set of its own, and the stack finds it (`hear.rs`). Measured, in `tests/stack/`:
//!
//! - A byte and its echo take six looks at connections with 2 open, and six with 5,000 (`many.rs`). 100,000 connections leave nothing behind.
//! - smoltcp asks for one neighbour in a second, all together; so neighbours are the stack's own (`neighbours.rs`).
//! - It has no backlog, and a socket's buffers never change. A stranger is a KiB or two (`strangers.rs`), a connection that is over some hundred bytes
//!   (`lingering.rs`); new connections' buffers shrink as memory fills (`sockets.rs`).
//! - It throws away segments of which half is news. Two sides that send again at once then wait without end; mended in `mend.rs`. Its clock stops when it hears
//!   three times of an end that is under way alone, and when the window closes while something under way is lost; so it hears neither. All were found by
//!   links that lose and reorder (`faults.rs`).
//! - It keeps little pieces and acknowledgements back too long where segments are long: a fresh connection's 100 KB in segments of 64 KiB took
//!   4.4 ms where the way takes 50 µs, now 0.4 ms (`steer.rs`).
//! - It offers selective acknowledgement and tells one range, but sends by it nothing, and takes every change of order for a loss. So what is lost, what is sent
//!   again and how much may be under way is decided here (`recovery.rs`, `flight.rs`, `window.rs`): as RFC 8985 (RACK) and 9438 (CUBIC, where it
//!   grows as Reno does) have it. 2 MB in packets of 1500, by the simulated clock of `links.rs`, in megabytes in a second: with 0.1 % lost and 10 ms each way 7.5 instead of 1.1,
//!   with 1 % lost and 1 ms 18 instead of 2.8, with 1 to 2 ms at random 55 instead of 2.6, with 5 to 5.2 ms 16 instead of 0.9.
//!   From 20 ms there and back on, buffers of 256 KiB are the limit: 13 MB/s. Who does not tell ranges is helped by the clock alone.
//! - Of what came too early it keeps 4 ranges unless told otherwise, and drops the rest; here 32, at 512 bytes for each connection.
//! - It has neither timestamps without a clock of its own, nor discovery of the path's largest packet, nor fragments: what is too long for the link is refused
//!   ([`Error::TooLong`]), and fragments that arrive are ignored.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
mod config;
mod connection;
mod datagram;
mod flight;
mod hear;
mod limits;
mod lingering;
mod mend;
mod messages;
mod neighbours;
mod network;
mod news;
pub mod offload;
mod outlet;
mod packet;
mod port;
mod recovery;
mod sockets;
mod speak;
mod stack;
mod steer;
mod strangers;
mod window;
mod words;

pub use config::{Config, KeepAlive, TcpOptions};
pub use network::mask;
pub use outlet::{Outbox, Outlet, Station};
pub use packet::sum;
pub use stack::Stack;
pub use words::{
    ConnectionId, Counts, Datagram, Doorkeeper, Error, Failure, Happening, Hearing, Message, Notice, Obstacle, Refusal, Tuple, Verdict,
};
