// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gateways with real sockets of the host on one side, and a stack that plays a cell on the other.

mod cell;
mod connections;
mod datagrams;
mod hostile;
mod names;
mod wire;

use pando_gateway::{BindError, Gateway, PortForward};
use std::net::{TcpListener, UdpSocket};

#[test]
fn a_port_that_is_taken_is_named() {
    let forward = |text: &str| text.parse::<PortForward>().expect("a forward");
    let bind = |text: &str| {
        Gateway::bind(&[forward(text)], Vec::new(), Vec::new(), 100).map(|gateway| gateway.forwards().next().map(|forward| forward.host))
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let taken = listener.local_addr().expect("it has an address");
    assert_eq!(bind(&format!("{}:80", taken.port())), Err(BindError::AddressInUse(taken)));
    assert!(BindError::AddressInUse(taken).to_string().starts_with(&format!("port {} of 127.0.0.1 is taken", taken.port())));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("the host has a port");
    let taken = socket.local_addr().expect("it has an address");
    assert_eq!(bind(&format!("{}:80/udp", taken.port())), Err(BindError::AddressInUse(taken)));
    let nowhere = "198.51.100.7:8080";
    assert_eq!(bind(&format!("{nowhere}:80")), Err(BindError::AddressNotAvailable(nowhere.parse().expect("an address"))));
}

/// Bytes that are not all alike.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) * (at / 251 + 7 + seed)) as u8).collect()
}
