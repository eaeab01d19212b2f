// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources and destinations that have the token, or say so, and lie.

use super::connection::MovedProgram;
use super::frame::{FrameStream, FrameType, PAYLOAD_MAX, encode_pages};
use super::token::{MigrationSide, MigrationToken, NONCE, random};
use super::{MigrationConnection, MigrationListener, MigrationOffer};
use crate::checkpointer::file::RestoreRequirements;
use crate::checkpointer::image::{CellImage, FamilyImage, MemberRecord, MemberRunState, StoredContent, StoredExtent, TreeExtents};
use crate::checkpointer::page_store::PageStore;
use pando_abi::PAGE_SIZE;
use std::io::{Error, Read, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = PAGE_SIZE as usize;

fn token() -> MigrationToken {
    MigrationToken::new("a token of the tests").expect("it is long enough")
}

fn offer() -> MigrationOffer {
    MigrationOffer { requirements: RestoreRequirements::default(), program: "{}".into() }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Starts a source that greets with a token, and then does something else.
fn source(token: MigrationToken, then: impl FnOnce(&mut FrameStream) -> Result<()> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one");
    thread::spawn(move || -> Result<()> {
        let mut stream = FrameStream::new(listener.accept()?.0)?;
        let nonce = random::<NONCE>()?;
        stream.send(FrameType::Hello, &nonce, soon())?;
        let answer = stream.expect(FrameType::Answer, soon())?;
        let destination_nonce = answer[..NONCE].try_into().expect("a nonce");
        stream.send(FrameType::Proof, &token.proof(MigrationSide::Source, [&nonce, &destination_nonce]), soon())?;
        stream.payload_max = PAYLOAD_MAX;
        stream.send(FrameType::Offer, &postcard::to_allocvec(&offer()).expect("memory"), soon())?;
        stream.expect(FrameType::Move, soon())?;
        then(&mut stream)?;
        // Until the destination has ended the connection.
        stream.socket.read_to_end(&mut Vec::new()).map(drop)
    });
    address
}

/// An image with eight stored pages from a number on.
fn image(first: u32) -> FamilyImage {
    let mut extents = TreeExtents::default();
    extents.replace(0, 8, Some(StoredExtent { count: 8, permissions: 3, content: StoredContent::Stored(first) }));
    let member_record = MemberRecord { path: Vec::new(), state: MemberRunState::Started, holdings: Vec::new(), console: Vec::new() };
    FamilyImage { members: vec![(member_record, CellImage { trees: vec![(0, extents)], ..CellImage::default() })] }
}

fn send_image(stream: &mut FrameStream, image: &FamilyImage) -> Result<()> {
    stream.send(FrameType::Image, &postcard::to_allocvec(image).expect("memory"), soon())?;
    stream.send(FrameType::ImageEnd, &[], soon())
}

/// A program that has moved from a source that goes on like this after the handover.
fn moved(then: impl FnOnce(&mut FrameStream) -> Result<()> + Send + 'static) -> MovedProgram {
    let address = source(token(), |stream| {
        send_image(stream, &image(0))?;
        stream.expect(FrameType::Ready, soon())?;
        stream.send(FrameType::HandOver, &[], soon())?;
        stream.expect(FrameType::Started, soon())?;
        then(stream)
    });
    let mut program = MigrationConnection::open(address, &token()).and_then(|source| source.receive("here")).expect("it moves");
    program.take_over().expect("it is handed over");
    program.confirm_start(Ok(())).expect("it was started");
    program
}

#[test]
fn both_sides_prove_the_token() {
    let listener = MigrationListener::bind(([127, 0, 0, 1], 0).into(), token(), offer()).expect("a free port");
    let address = listener.address().expect("it has one");
    let (mut woken, waker) = UnixStream::pair().expect("a pair");
    let peers = listener.start(waker).expect("a thread");
    let other = MigrationToken::random().expect("there are random numbers");
    let error = MigrationConnection::open(address, &other).expect_err("the token is another one");
    assert_eq!(error.to_string(), "the token is wrong");
    let connection = MigrationConnection::open(address, &token()).expect("the token is the same");
    assert_eq!(connection.offer().program, "{}");
    // The source hears of a destination that asks for the program.
    thread::spawn(move || drop(connection.receive("here")));
    woken.read_exact(&mut [0]).expect("it is woken");
    assert_eq!(peers.recv().expect("there is one").name, "here");
    let error = MigrationConnection::open(source(other, |_| Ok(())), &token()).expect_err("the source does not have it");
    assert_eq!(error.to_string(), "the process at this address does not have the token");
}

#[test]
fn silent_peers_do_not_delay_others() {
    let listener = MigrationListener::bind(([127, 0, 0, 1], 0).into(), token(), offer()).expect("a free port");
    let address = listener.address().expect("it has one");
    let (_woken, waker) = UnixStream::pair().expect("a pair");
    let peers = listener.start(waker).expect("a thread");
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let connection = MigrationConnection::open(address, &token()).expect("it is greeted meanwhile");
    // The oldest ones were disconnected.
    (&silent[0]).read_to_end(&mut Vec::new()).expect("it has ended");
    thread::spawn(move || drop(connection.receive("here")));
    let peer = peers.recv().expect("there is one");
    let refused = |text: &str| {
        let error = MigrationConnection::open(address, &token()).expect_err("the program is not free");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused("is handed over to another process at this moment");
    drop(peer);
    thread::spawn(move || drop(MigrationConnection::open(address, &token()).and_then(|connection| connection.receive("there"))));
    drop(peers.recv().expect("it is free again").into_stream());
    refused("the program has moved to there already");
}

#[test]
fn a_program_that_cannot_be_started_is_refused_after_the_handover() {
    let (sender, receiver) = channel();
    let address = source(token(), move |stream| {
        send_image(stream, &image(0))?;
        stream.expect(FrameType::Ready, soon())?;
        stream.send(FrameType::HandOver, &[], soon())?;
        sender.send(stream.receive_any(soon())?).map_err(Error::other)
    });
    let mut program = MigrationConnection::open(address, &token()).and_then(|source| source.receive("here")).expect("it moves");
    program.take_over().expect("it is handed over");
    let error = program.confirm_start(Err(Error::other("n".repeat(1000)))).expect_err("it was not started");
    assert!(error.to_string().starts_with("the program has not moved here: nnn"), "{error}");
    let frame = receiver.recv().expect("it came");
    assert_eq!((frame.kind, frame.payload.len()), (FrameType::Failed, 256));
}

#[test]
fn images_that_are_damaged_are_refused() {
    let refused = |then: fn(&mut FrameStream) -> Result<()>| {
        let connection = MigrationConnection::open(source(token(), then), &token()).expect("the token is the same");
        connection.receive("here").expect_err("it is refused").to_string()
    };
    let garbage = refused(|stream| {
        stream.send(FrameType::Image, &[0xff; 5000], soon())?;
        stream.send(FrameType::ImageEnd, &[], soon())
    });
    assert_eq!(garbage, "the image of the program is invalid");
    assert_eq!(refused(|stream| send_image(stream, &FamilyImage::default())), "the image of the program is invalid");
    assert_eq!(refused(|stream| send_image(stream, &image(u32::MAX - 3))), "the image of the program has too many pages");
    assert!(refused(|stream| stream.send(FrameType::HandOver, &[], soon())).contains("does not speak the protocol"));
    assert_eq!(refused(|stream| stream.send(FrameType::Failed, b"no", soon())), "no");
}

#[test]
fn pages_count_only_if_they_were_requested_or_come_in_the_background() {
    let mut buffer = vec![0; 8 * PAGE];
    let mut program = moved(|stream| {
        stream.send(FrameType::Pages, &encode_pages(4, &[4; 4 * PAGE])?, soon())?;
        // The other half is requested.
        stream.expect(FrameType::Need, soon())?;
        stream.send(FrameType::NeededPages, &encode_pages(0, &[1; 4 * PAGE])?, soon())
    });
    program.receive();
    assert_eq!(program.load(5, &mut buffer).expect("it is there"), Some(3));
    assert_eq!(buffer[..3 * PAGE], [4; 3 * PAGE]);
    assert_eq!(program.load(2, &mut buffer).expect("it is requested"), None);
    program.receive();
    assert_eq!(program.load(2, &mut buffer).expect("it is there"), Some(2));
    assert!(program.lost().is_none() && !program.is_complete());
    for frame in [FrameType::NeededPages, FrameType::Offer, FrameType::HandOver, FrameType::Need] {
        let mut program = moved(move |stream| stream.send(frame, &encode_pages(0, &[1; PAGE])?, soon()));
        program.receive();
        assert!(program.lost().is_some_and(|reason| reason.contains("does not speak the protocol")), "{frame:?}");
        assert!(program.load(0, &mut buffer).is_err(), "a page that was not requested is not used");
    }
    // More than the window allows.
    let mut program = moved(|stream| {
        let pages = encode_pages(0, &[1; PAGE])?;
        (0..100).try_for_each(|_| stream.send(FrameType::Pages, &pages, soon()))
    });
    while program.descriptor().is_some() {
        program.receive();
    }
    assert!(program.lost().is_some_and(|reason| reason.contains("does not speak the protocol")));
}
