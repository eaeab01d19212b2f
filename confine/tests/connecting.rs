// SPDX-License-Identifier: MIT OR Apache-2.0
//! A confined process with a gateway connects to the listed ports, and listens nowhere. One test, because it binds
//! this process permanently.

use pando_confine::{Enforcement, Paths, Ports, SyscallGroups, install_seccomp_filter, limit_paths};
use rustix::net::sockopt::{set_socket_broadcast, set_socket_keepalive, set_tcp_keepidle, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketType, socket};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn denied<T>(what: &str, outcome: Result<T, Error>) {
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::PermissionDenied), "{what} was not refused");
}

#[test]
fn connecting_processes_reach_their_named_ports_only() {
    let bind = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
        let address = listener.local_addr().expect("it has an address");
        (listener, address)
    };
    let ((open, to_open), (_closed, to_closed)) = (bind(), bind());
    let heard = UdpSocket::bind("127.0.0.1:0").expect("the host has a port");
    let to_heard = heard.local_addr().expect("it has an address");
    let ports = Ports::Only(vec![to_open.port()]);
    let reach = limit_paths(&Paths { ports, ..Paths::default() }).expect("Landlock limits what it can");
    install_seccomp_filter(&SyscallGroups { connecting: true, ..SyscallGroups::default() }).expect("seccomp limits calls");

    let mut stream = TcpStream::connect(to_open).expect("the port is allowed");
    set_tcp_nodelay(&stream, true).expect("a gateway does");
    set_socket_keepalive(&stream, true).expect("a gateway does");
    set_tcp_keepidle(&stream, Duration::from_secs(60)).expect("a gateway does");
    let (mut other, _) = open.accept().expect("it listened before");
    stream.write_all(b"said").expect("it is open");
    drop(stream);
    let mut text = String::new();
    other.read_to_string(&mut text).expect("it is open");
    assert_eq!(text, "said");
    let speaks = UdpSocket::bind("127.0.0.1:0").expect("a gateway may bind to learn whether an address is its own");
    speaks.send_to(b"said", to_heard).expect("datagrams are sent");

    if reach == Enforcement::Limited {
        denied("another port", TcpStream::connect(to_closed));
    } else {
        println!("left out: this host's Landlock is {reach:?}");
    }
    denied("listening", TcpListener::bind("127.0.0.1:0"));
    denied("a local socket", UnixStream::pair());
    denied("a raw socket", socket(AddressFamily::INET, SocketType::RAW, None).map_err(Into::into));
    denied("a socket of the kernel's", socket(AddressFamily::NETLINK, SocketType::DGRAM, None).map_err(Into::into));
    denied("another option", set_socket_broadcast(&heard, true).map_err(Into::into));
    denied("a thread", std::thread::Builder::new().spawn(|| ()));
}
