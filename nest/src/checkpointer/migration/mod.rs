// SPDX-License-Identifier: MIT OR Apache-2.0
//! Post-copy migration: a program moves to another checkpointer, which starts it before it has its pages.
//!
//! ```text
//! destination                            source
//!                                   <-   Hello: nonce
//! Answer: nonce, proof              ->
//!                                   <-   Proof, Offer: program and requirements
//! Move: name                        ->   halts the family, and clones it
//!                                   <-   Image, NeededPages: the libOS's and those of nested cells
//! builds the cell; Ready            ->
//!                                   <-   HandOver: from now on the program is the destination's
//! runs the cells; Started           ->   ends its own cell
//! Need: a page; Credit               ->
//!                                   <-   NeededPages; Pages in the background, AllSent
//! Done                              ->   ends
//! ```
//!
//! Before the handover, each error and each time limit lets the program continue at the source. After it, the program continues there only
//! if the destination reports that it could not start it, so it never runs twice.

mod connection;
mod frame;
mod listener;
mod moving_pages;
mod source;
#[cfg(test)]
mod tests;
mod token;

pub use connection::MigrationConnection;
pub(super) use frame::left;
pub(super) use listener::Peer;
pub use listener::{MigrationListener, MigrationOffer};
pub(super) use source::{HANDOVER_TIMEOUT, HandOverError, MovedFamily, hand_over, serve_pages};
pub use token::MigrationToken;

use std::time::Duration;

/// How long a peer may take to present its token.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// How long a peer may take to ask for the program when it has the offer.
const MOVE_TIME: Duration = Duration::from_secs(60);
/// The time after which each side sends a keepalive if it has sent nothing.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The time without a received byte after which a peer counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Frames of pages on their way that the destination has not asked for: 1 MiB, besides what gateways and tunnels have in their buffers.
/// A page that the program waits for comes after them.
const WINDOW: usize = 4;
/// Bytes of the longest image.
const IMAGE_MAX: usize = 64 << 20;
/// Bytes of the longest name of a destination.
const NAME_MAX: usize = 256;
