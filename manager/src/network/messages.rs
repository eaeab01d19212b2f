// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the process of cells, the launcher and gateways. Each is one packet of bounded length.

use pando_gateway::{GatewayAddresses, GatewayReport, PortForward, RefusedDestination, Rule, VirtualHosts};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Bytes of the longest message.
pub(super) const MESSAGE_MAX: usize = 128 << 10;

/// A request to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LauncherRequest {
    /// Start a gateway. The launcher answers with an [`LauncherReply`].
    Start(GatewayConfig),
    /// Close the listening sockets of a cell that has ended. There is no answer.
    Close(ListenersId),
}

/// The launcher's answer to a request to start a gateway.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LauncherReply {
    /// It runs. The addresses have the ports that the host chose.
    Started {
        /// Its port forwards.
        forwards: Vec<PortForward>,
        /// The address of its virtual hosts.
        virtual_hosts: Option<SocketAddr>,
    },
    /// A port forward cannot listen.
    NotListening(String),
    /// The host has no process or descriptor for it.
    Failed(String),
}

/// The identifier of a cell's listening sockets at the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ListenersId(pub(super) u64);

/// The configuration of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayConfig {
    /// Its addresses in the network of its cell.
    pub addresses: GatewayAddresses,
    /// The rules for destinations. A gateway that was bound before its process started ignores this field and the following ones.
    pub rules: Vec<Rule>,
    /// The resolvers that it queries.
    pub resolvers: Vec<SocketAddr>,
    /// Descriptors that it may use for connections.
    pub descriptors: usize,
    /// The sockets with which the launcher listens. A gateway that replaces another one has the same.
    pub listeners: Option<GatewayListeners>,
}

/// The sockets with which the launcher listens for a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayListeners {
    /// Their identifier.
    pub(super) id: ListenersId,
    /// The port forwards.
    pub(super) forwards: Vec<PortForward>,
    /// The address of virtual hosts.
    pub(super) virtual_hosts: Option<VirtualHosts>,
}

/// A report about a gateway, from the gateway itself or from the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GatewayMessage {
    /// It refuses a destination, a name or a query.
    Refused(RefusedDestination),
    /// It requests the address of the cell with this name. The answer is a [`DirectoryAnswer`](pando_gateway::DirectoryAnswer).
    Lookup {
        /// The number of the request.
        query: u64,
        /// The name, in lower case.
        name: String,
    },
    /// It has stopped as requested, with its final report.
    Stopped(Box<GatewayReport>),
    /// Its code panicked, or the host did not let it work.
    Failed(String),
    /// Its process has ended.
    Ended(String),
}

/// Sends a message.
///
/// # Errors
/// It is too long, or the receiver has ended.
pub(super) fn send_message(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    send_message_with(socket, message, SendFlags::empty())
}

/// Sends a message without waiting for room.
///
/// # Errors
/// Those of [`send_message`], and there is no room.
pub(super) fn try_send_message(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    send_message_with(socket, message, SendFlags::DONTWAIT)
}

fn send_message_with(socket: impl AsFd, message: &impl Serialize, flags: SendFlags) -> io::Result<()> {
    let bytes = encode(message)?;
    retry_on_intr(|| send(&socket, &bytes, SendFlags::NOSIGNAL | flags))?;
    Ok(())
}

/// Encodes a message.
///
/// # Errors
/// It is too long.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if bytes.len() > MESSAGE_MAX {
        return Err(io::Error::other(format!("{} bytes are too many for a message: give fewer rules", bytes.len())));
    }
    Ok(bytes)
}

/// Receives a message. `None`: the sender has closed its end.
///
/// # Errors
/// No message is there yet, or it is malformed.
pub(super) fn receive_message<T: DeserializeOwned>(socket: impl AsFd, flags: RecvFlags) -> io::Result<Option<T>> {
    let mut room = vec![0; MESSAGE_MAX];
    let (_, length) = match retry_on_intr(|| recv(&socket, &mut room[..], flags)) {
        Err(Errno::CONNRESET) | Ok((_, 0)) => return Ok(None),
        outcome => outcome?,
    };
    decode(&room[..length.min(MESSAGE_MAX)]).map(Some)
}

/// Decodes a message.
///
/// # Errors
/// It is malformed.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(io::Error::other)
}
