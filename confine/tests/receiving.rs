// SPDX-License-Identifier: MIT OR Apache-2.0
//! A confined process whose gateways run in other processes makes no socket itself. There is one test, because the confinement of
//! this process is permanent.

use pando_confine::{Paths, SyscallGroups, install_seccomp_filter, limit_paths};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, socketpair};
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

fn denied<T>(what: &str, outcome: Result<T, rustix::io::Errno>) {
    let kind = outcome.err().map(|error| Error::from(error).kind());
    assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{what} was not refused");
}

#[test]
fn processes_that_only_receive_descriptors_make_no_connections() {
    let open = UdpSocket::bind("127.0.0.1:0").expect("the host has a port");
    let nowhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    limit_paths(&Paths::default()).expect("Landlock limits what it can");
    install_seccomp_filter(&SyscallGroups { receiving: true, ..SyscallGroups::default() }).expect("seccomp limits calls");
    for family in [AddressFamily::INET, AddressFamily::INET6, AddressFamily::UNIX, AddressFamily::NETLINK] {
        for kind in [SocketType::STREAM, SocketType::DGRAM, SocketType::RAW] {
            denied("a socket", socket(family, kind, None));
        }
    }
    denied("a pair", socketpair(AddressFamily::UNIX, SocketType::STREAM, rustix::net::SocketFlags::empty(), None));
    denied("a connection", connect(&open, &nowhere));
    denied("a port", bind(&open, &nowhere));
    denied("an epoll instance", epoll::create(epoll::CreateFlags::CLOEXEC));
    denied("an eventfd", eventfd(0, EventfdFlags::CLOEXEC));
    denied("a process", rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()));
}
