// SPDX-License-Identifier: MIT OR Apache-2.0
//! TCP/IP for cells and for the gateway. It looks up the connection of a packet itself and uses smoltcp for TCP.
//!
//! A [`Stack`] does no I/O and has no clock. The user passes received frames to [`Stack::receive_frame`], lets [`Stack::run`] transmit
//! into a [`TxSink`], and reads events from [`Stack::next_event`]. It calls the stack again when a frame arrives, when it
//! has given the stack data or commands, or at [`Stack::deadline`]. Times are nanoseconds of any monotonic clock of the user.
//!
//! There are no listening sockets: a [`Listeners`] decides on each connection request, so the user sets the accept backlog.
//!
//! # A loop
//!
//! Each [`Stack::receive_frame`] and each [`Stack::run`] may cause events, and each event may cause something to send. The loop is:
//!
//! 1. Take all received frames.
//! 2. Process events until there are none.
//! 3. Run the stack, and process events again, because a timeout may have expired.
//! 4. Wait for a frame or the deadline.
//!
//! If [`Stack::run`] ran out of tx room, [`Stack::deadline`] lies in the past: wait for room, not for it.
//!
//! # The use of smoltcp
//!
//! smoltcp provides the state machine of a connection, its send and receive buffers, and the packet formats. For each packet it walks
//! all its sockets, so each connection has a socket set of its own and the stack finds it (`receive.rs`). Measured, in `tests/stack/`:
//!
//! - One byte and its echo take six polls of connections' sockets with 2 open, and six with 5,000 (`many.rs`). 100,000 connections leak
//!   nothing.
//! - smoltcp sends one neighbour request per second for all addresses together, so the stack has its own neighbour table (`neighbours.rs`).
//! - It has no SYN backlog, and the buffers of a socket never change. A half-open connection takes a KiB or two (`syn_backlog.rs`),
//!   one in TIME-WAIT some hundred bytes (`time_wait.rs`). New connections get smaller buffers as memory fills (`sockets.rs`).
//! - It drops segments that are only partly new. Two sides that retransmit at once then wait forever; `segment_rewrite.rs` rewrites such
//!   segments. Its timer stops at three duplicate acknowledgements of a FIN that is in flight alone, and when the window closes
//!   while something in flight is lost; so it gets neither. Lossy and reordering links found all of these (`faults.rs`).
//! - It delays small segments and acknowledgements too long where segments are long. A fresh connection's 100 KB in
//!   segments of 64 KiB took 4.4 ms on a path of 50 µs, now 0.4 ms (`ack_policy.rs`).
//! - It offers selective acknowledgement and reports one range, but ignores received ranges and takes all reordering
//!   for loss. So loss detection, retransmission and congestion control are done here (`loss_recovery.rs`, `scoreboard.rs`,
//!   `congestion_window.rs`), as in RFC 8985 (RACK) and RFC 9438 (CUBIC, in its Reno-friendly region). 2 MB in packets of 1500,
//!   by the simulated clock of `links.rs`, in MB/s: with 0.1 % loss and 10 ms each way 7.5 instead of 1.1; with 1 %
//!   loss and 1 ms 18 instead of 2.8; with random 1 to 2 ms 55 instead of 2.6; with 5 to 5.2 ms 16 instead of 0.9.
//!   From 20 ms RTT on, buffers of 256 KiB are the limit: 13 MB/s. Peers without SACK profit from the timer alone.
//! - It keeps 4 out-of-order ranges by default and drops the rest; here it keeps 32, at 512 bytes per connection.
//! - It has no timestamps without a clock of its own, no path MTU discovery and no fragmentation. Packets that are too
//!   long for the link are refused ([`Error::TooLong`]), and received fragments are ignored.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ack_policy;
mod config;
mod congestion_window;
mod connection;
mod connection_state;
mod datagram;
mod icmp_arp;
mod limits;
mod loss_recovery;
mod neighbours;
mod network;
pub mod offload;
mod packet;
mod receive;
mod scoreboard;
mod segment;
mod segment_rewrite;
mod sequence;
mod smoltcp_device;
mod socket_events;
mod sockets;
mod stack;
mod syn_backlog;
mod time_wait;
mod timer_queue;
mod transmit;
mod tx_sink;
mod types;

pub use config::{Config, KeepAlive, TcpOptions};
pub use network::mask;
pub use packet::fill_icmp_checksum;
pub use stack::Stack;
pub use tx_sink::{FramePort, TxQueue, TxSink};
pub use types::{
    ConnectionId, Counts, Datagram, DatagramVerdict, Error, Failure, IcmpError, IcmpMessage, Listeners, SocketEvent, SynRefusal, Tuple,
    Unreachable, Verdict,
};
