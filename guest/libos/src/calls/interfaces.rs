// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions about network interfaces, of which there is one, loopback: routing messages, as C libraries ask them.

use alloc::vec;
use alloc::vec::Vec;

use pando_rt::user::{self as memory, UserRange};

use crate::errno::Errno;
use crate::files::socket::SocketId;
use crate::files::socket::address::Address;
use crate::files::socket::cursor::Cursor;
use crate::system::System;
use crate::user::{set_word32, word32, words};

/// Bytes of a message's header: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// Kinds of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
/// The message is one of several.
const MULTI: u16 = 2;
/// The largest question.
const QUESTION_MAX: usize = 4096;
/// The number of loopback.
pub const INDEX: u32 = 1;
/// Its flags: up, loopback, running, lower layer up.
pub const FLAGS: u32 = 0x1_0049;
/// Bytes of its packets.
pub const MTU: u32 = 65536;

/// Takes a question about interfaces, and puts the answers into the socket's own queue.
///
/// # Errors
/// `EFAULT`, `EMSGSIZE`, `ENOMEM`.
pub fn ask(system: &mut System, id: SocketId, ranges: &[UserRange]) -> Result<u64, Errno> {
    let length = Cursor::length(ranges);
    if length > QUESTION_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut question = vec![0; length];
    if Cursor::new(ranges, 0).fill(&mut question) < length {
        return Err(Errno::EFAULT);
    }
    let sockets = &mut system.files.sockets;
    if let Some(header) = question.first_chunk::<HEADER>() {
        if sockets.get(id)?.local == Address::Netlink(0) {
            sockets.get_mut(id)?.local = Address::Netlink(system.process.number);
        }
        let Address::Netlink(port) = sockets.get(id)?.local else { return Err(Errno::EINVAL) };
        let family = question.get(HEADER).copied().unwrap_or_default();
        for answer in answers(header, family, port) {
            sockets.answer(id, Address::Netlink(0), &answer)?;
        }
    }
    Ok(length as u64)
}

/// The datagrams that answer a question.
fn answers(question: &[u8; HEADER], family: u8, port: u32) -> Vec<Vec<u8>> {
    let kind = u16::from_le_bytes([question[4], question[5]]);
    let sequence = [question[8], question[9], question[10], question[11]];
    let message = |kind: u16, flags: u16, body: &[u8]| {
        let length = (HEADER + body.len()) as u32;
        let [kind, flags] = [kind, flags].map(u16::to_le_bytes);
        [&length.to_le_bytes()[..], &kind, &flags, &sequence, &port.to_le_bytes(), body].concat()
    };
    let done = message(DONE, MULTI, &[0; 4]);
    match kind {
        GET_LINK => vec![message(NEW_LINK, MULTI, &link()), done],
        GET_ADDRESS => {
            let hosts: [(u8, u8, &[u8]); 2] = [(2, 8, &[127, 0, 0, 1]), (10, 128, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])];
            let asked = hosts.iter().filter(|(of, ..)| family == 0 || family == *of);
            let all = asked.flat_map(|(of, prefix, host)| message(NEW_ADDRESS, MULTI, &address(*of, *prefix, host))).collect();
            vec![all, done]
        }
        GET_ROUTE => vec![done],
        _ => {
            let refused = (Errno::EOPNOTSUPP as i32).wrapping_neg();
            vec![message(ERROR, 0, &[&refused.to_le_bytes()[..], question].concat())]
        }
    }
}

/// An attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut bytes = [&length.to_le_bytes()[..], &kind.to_le_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// What is said of the interface.
fn link() -> Vec<u8> {
    const KIND: u16 = 772;
    let [index, flags] = [INDEX, FLAGS].map(u32::to_le_bytes);
    let mut bytes = [&[0, 0][..], &KIND.to_le_bytes(), &index, &flags, &[0; 4]].concat();
    for (kind, value) in [(1, &[0; 6][..]), (2, &[0; 6]), (3, b"lo\0"), (4, &MTU.to_le_bytes()), (13, &1000u32.to_le_bytes()), (16, &[0])] {
        bytes.extend(attribute(kind, value));
    }
    bytes
}

/// What is said of one of its addresses.
fn address(family: u8, prefix: u8, host: &[u8]) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    const HOST: u8 = 254;
    let mut bytes = [&[family, prefix, PERMANENT, HOST][..], &INDEX.to_le_bytes()].concat();
    bytes.extend(attribute(1, host));
    if family == 2 {
        bytes.extend(attribute(2, host));
        bytes.extend(attribute(3, b"lo\0"));
    }
    bytes
}

/// Bytes of a `struct ifreq`, and of the name that it begins with.
const REQUEST: usize = 40;
const NAME: usize = 16;
/// The only interface's name.
const LOOPBACK: &[u8] = b"lo\0";

/// An `ioctl` about interfaces. `None`: it is about something else.
///
/// # Errors
/// `ENODEV`: there is no such interface. `EPERM`: nobody changes it. `EFAULT`, `EINVAL`.
pub fn ioctl(request: u32, argument: u64) -> Option<Result<u64, Errno>> {
    /// Lists the interfaces.
    const CONFIGURATION: u32 = 0x8912;
    const NAME_OF: u32 = 0x8910;
    /// Requests that change something.
    const CHANGES: [u32; 8] = [0x8914, 0x8916, 0x8918, 0x891a, 0x891c, 0x891e, 0x8922, 0x8924];
    match request {
        CONFIGURATION => Some(configuration(argument)),
        NAME_OF => Some(name_of(argument)),
        0x8911..=0x8942 if CHANGES.contains(&request) => Some(Err(Errno::EPERM)),
        0x8911..=0x8942 => Some(told(request, argument)).filter(|told| *told != Err(Errno::ENOTTY)),
        _ => None,
    }
}

/// An address as a request holds it.
fn host(host: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = host;
    [2, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn configuration(argument: u64) -> Result<u64, Errno> {
    let room = word32(argument)?.cast_signed();
    let [list] = words(argument.wrapping_add(8))?;
    let mut entry = [0; REQUEST];
    entry[..LOOPBACK.len()].copy_from_slice(LOOPBACK);
    entry[NAME..NAME + 16].copy_from_slice(&host([127, 0, 0, 1]));
    let filled = if list == 0 || room >= REQUEST as i32 { REQUEST } else { 0 };
    if list != 0 {
        memory::write(list, &entry[..filled])?;
    }
    set_word32(argument, filled as u32).map(|()| 0)
}

fn name_of(argument: u64) -> Result<u64, Errno> {
    if word32(argument.wrapping_add(NAME as u64))? != INDEX {
        return Err(Errno::ENODEV);
    }
    Ok(memory::write(argument, LOOPBACK).map(|()| 0)?)
}

/// What is told of the interface that is named.
fn told(request: u32, argument: u64) -> Result<u64, Errno> {
    const HARDWARE: u16 = 772;
    let mut bytes = [0; 16];
    match request {
        // Its flags, as far as they are old ones.
        0x8913 => bytes[..2].copy_from_slice(&(FLAGS as u16).to_le_bytes()),
        0x8915 | 0x8917 => bytes = host([127, 0, 0, 1]),
        0x8919 => bytes = host([0; 4]),
        0x891b => bytes = host([255, 0, 0, 0]),
        0x891d => {}
        0x8921 => bytes[..4].copy_from_slice(&MTU.to_le_bytes()),
        0x8927 => bytes[..2].copy_from_slice(&HARDWARE.to_le_bytes()),
        0x8933 => bytes[..4].copy_from_slice(&INDEX.to_le_bytes()),
        0x8942 => bytes[..4].copy_from_slice(&1000u32.to_le_bytes()),
        _ => return Err(Errno::ENOTTY),
    }
    let mut name = [0; NAME];
    memory::read(argument, &mut name)?;
    if !name.starts_with(LOOPBACK) {
        return Err(Errno::ENODEV);
    }
    memory::write(argument.wrapping_add(NAME as u64), &bytes)?;
    Ok(0)
}
