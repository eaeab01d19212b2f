// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile client: whatever it sends, the server answers or ignores it, and nothing outside of its directory is read or changed.

use pando_fileserver::FileServer;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

const FUSE_LOOKUP: u32 = 1;
const FUSE_SETATTR: u32 = 4;
const FUSE_SYMLINK: u32 = 6;
const FUSE_MKNOD: u32 = 8;
const FUSE_UNLINK: u32 = 10;
const FUSE_OPEN: u32 = 14;
const FUSE_READ: u32 = 15;
const FUSE_IOCTL: u32 = 39;
const FUSE_MKDIR: u32 = 9;
const FUSE_RMDIR: u32 = 11;
const FUSE_RELEASE: u32 = 18;
const FUSE_FSYNC: u32 = 20;
const FUSE_SETXATTR: u32 = 21;
const FUSE_FSYNCDIR: u32 = 30;
const FUSE_CREATE: u32 = 35;
const FUSE_FORGET: u32 = 2;
const PANDO_WATCH: u32 = 0x5057;
const IN_CREATE: u32 = 0x100;
/// The body of a `FUSE_FSYNC` without a handle.
const SYNC: [u8; 16] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
const ROOT: u64 = 1;
const EEXIST: i32 = linux_raw_sys::errno::EEXIST as i32;
const EDQUOT: i32 = linux_raw_sys::errno::EDQUOT as i32;

/// A client of a server that runs on a thread.
struct Client {
    socket: OwnedFd,
    server: thread::JoinHandle<()>,
    last: u64,
}

impl Client {
    fn start(root: &Path, read_only: bool, growth_max: u64) -> Client {
        let (socket, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair of sockets");
        let mut server = FileServer::open(root, read_only, growth_max).expect("the directory can be served");
        let server = thread::spawn(move || server.serve(&other).expect("the socket works"));
        Client { socket, server, last: 0 }
    }

    fn send(&self, bytes: &[u8]) {
        send(&self.socket, bytes, SendFlags::NOSIGNAL).expect("the server is there");
    }

    /// Sends a request, and returns the error and the body of its answer.
    fn ask(&mut self, opcode: u32, nodeid: u64, body: &[u8]) -> (i32, Vec<u8>) {
        self.last += 1;
        self.send(&message(opcode, self.last, nodeid, body));
        let mut answer = vec![0; 1 << 18];
        loop {
            let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty()).expect("the server answers");
            assert!(length >= 16, "an answer has a header");
            if answer[8..16] == self.last.to_le_bytes() {
                let error = i32::from_le_bytes(answer[4..8].try_into().expect("four bytes"));
                return (error, answer[16..length].to_vec());
            }
        }
    }

    fn lookup(&mut self, parent: u64, name: &str) -> (i32, u64) {
        let (error, body) = self.ask(FUSE_LOOKUP, parent, format!("{name}\0").as_bytes());
        (error, body.get(..8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes"))))
    }

    fn finish(self) {
        drop(self.socket);
        self.server.join().expect("the server does not panic");
    }
}

fn message(opcode: u32, unique: u64, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((40 + body.len()) as u32).to_le_bytes().to_vec();
    bytes.extend(opcode.to_le_bytes());
    bytes.extend(unique.to_le_bytes());
    bytes.extend(nodeid.to_le_bytes());
    bytes.extend([0xff; 16]);
    bytes.extend(body);
    bytes
}

/// A directory to be served, beside a file that nobody may reach.
fn fixture() -> TempDir {
    let fixture = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| fixture.path().join(name);
    fs::create_dir_all(path("served/sub")).expect("it was not there");
    fs::write(path("secret"), "secret").expect("the directory is ours");
    fs::write(path("served/file"), "text").expect("the directory is ours");
    symlink("../secret", path("served/link")).expect("it was not there");
    rustix::fs::mknodat(rustix::fs::CWD, path("served/fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("it was not there");
    fixture
}

#[test]
fn names_lead_nowhere_else() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 1 << 20);
    let (_, sub) = client.lookup(ROOT, "sub");
    for name in ["..", ".", "../secret", "sub/..", "/etc/passwd", ""] {
        assert_ne!(client.lookup(ROOT, name).0, 0, "{name}");
        assert_ne!(client.lookup(sub, name).0, 0, "{name}");
        assert_ne!(client.ask(FUSE_UNLINK, sub, format!("{name}\0").as_bytes()).0, 0, "{name}");
    }
    // A link is an inode of its own, and is not opened; neither is a FIFO.
    for name in ["link", "fifo"] {
        let (found, inode) = client.lookup(ROOT, name);
        assert_eq!(found, 0);
        assert_ne!(client.ask(FUSE_OPEN, inode, &[0; 8]).0, 0, "{name}");
        let mut read = u64::MAX.to_le_bytes().to_vec();
        read.extend([0; 8]);
        read.extend(100_u32.to_le_bytes());
        read.extend([0; 20]);
        assert_ne!(client.ask(FUSE_READ, inode, &read).0, 0, "{name}");
        assert_ne!(client.ask(FUSE_FSYNC, inode, &SYNC).0, 0, "{name}");
    }
    // A link that the client makes is not followed either.
    assert_eq!(client.ask(FUSE_SYMLINK, ROOT, b"own\0../secret\0").0, 0);
    let (_, own) = client.lookup(ROOT, "own");
    assert_ne!(client.ask(FUSE_OPEN, own, &[0; 8]).0, 0);
    assert_ne!(client.lookup(own, "x").0, 0);
    client.finish();
    assert_eq!(fs::read_to_string(fixture.path().join("secret")).expect("it is there"), "secret");
}

#[test]
fn files_and_directories_are_synchronised_without_a_handle() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 1 << 20);
    let (_, file) = client.lookup(ROOT, "file");
    let (_, sub) = client.lookup(ROOT, "sub");
    for (opcode, inode) in [(FUSE_FSYNC, file), (FUSE_FSYNCDIR, sub), (FUSE_FSYNCDIR, ROOT)] {
        assert_eq!(client.ask(opcode, inode, &SYNC).0, 0, "{opcode} of {inode}");
    }
    assert_ne!(client.ask(FUSE_FSYNCDIR, file, &SYNC).0, 0);
    client.finish();
}

#[test]
fn a_directory_that_was_replaced_by_a_link_is_not_left() {
    let fixture = fixture();
    let path = |name: &str| fixture.path().join(name);
    let mut client = Client::start(&path("served"), false, 1 << 20);
    let (_, sub) = client.lookup(ROOT, "sub");
    fs::rename(path("served/sub"), path("served/moved")).expect("it is there");
    symlink("..", path("served/sub")).expect("it was not there");
    assert_ne!(client.lookup(sub, "secret").0, 0, "the inode is still the directory");
    let (_, link) = client.lookup(ROOT, "sub");
    assert_ne!(client.lookup(link, "secret").0, 0, "the link is no directory");
    client.finish();
}

#[test]
fn privileges_are_not_given() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 100);
    let (_, file) = client.lookup(ROOT, "file");
    let setattr = |valid: u32, size: u64, mode: u32| {
        let mut body = [0; 88];
        body[..4].copy_from_slice(&valid.to_le_bytes());
        body[16..24].copy_from_slice(&size.to_le_bytes());
        body[68..72].copy_from_slice(&mode.to_le_bytes());
        body[76..84].copy_from_slice(&[7; 8]);
        body
    };
    let before = fs::metadata(fixture.path().join("served/file")).expect("it is there");
    client.ask(FUSE_SETATTR, file, &setattr(1 | 2 | 4, 0, 0o106_755));
    let after = fs::metadata(fixture.path().join("served/file")).expect("it is there");
    use std::os::unix::fs::MetadataExt;
    assert_eq!((after.mode() & 0o7777, after.uid(), after.gid()), (0o755, before.uid(), before.gid()));
    // A device, a file beyond the limit, and an operation that is not served.
    let device = [&0o020_666_u32.to_le_bytes()[..], &0x103_u32.to_le_bytes(), &[0; 8], b"null\0"].concat();
    assert_ne!(client.ask(FUSE_MKNOD, ROOT, &device).0, 0);
    assert_ne!(client.ask(FUSE_SETATTR, file, &setattr(8, 1000, 0)).0, 0);
    assert_ne!(client.ask(FUSE_IOCTL, file, &[0; 32]).0, 0);
    client.finish();
}

#[test]
fn any_bytes_are_answered_or_ignored() {
    let fixture = fixture();
    for seed in 0..20 {
        let mut client = Client::start(&fixture.path().join("served"), seed % 2 == 0, 1 << 20);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut answers = vec![0; 1 << 18];
        for _ in 0..300 {
            let body: Vec<u8> = (0..random.usize(..120)).map(|_| if random.bool() { 0 } else { random.u8(..) }).collect();
            let mut bytes = message(random.u32(..50), random.u64(..), random.u64(..8), &body);
            if random.u8(..4) == 0 {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            if random.u8(..8) == 0 {
                bytes.truncate(random.usize(1..bytes.len()));
            }
            client.send(&bytes);
            while recv(&client.socket, &mut answers[..], RecvFlags::DONTWAIT).is_ok() {}
        }
        // The server still serves.
        assert_eq!(client.lookup(ROOT, "sub").0 == 0, fixture.path().join("served/sub").is_dir());
        client.finish();
    }
    assert_eq!(fs::read_to_string(fixture.path().join("secret")).expect("it is there"), "secret");
    assert_eq!(fs::read_dir(fixture.path()).expect("it is there").count(), 2);
}

/// The body of a `FUSE_SETATTR` that sets a size by this handle.
fn set_size(handle: u64, size: u64) -> [u8; 88] {
    let mut body = [0; 88];
    body[..4].copy_from_slice(&(8_u32 | 64).to_le_bytes());
    body[8..16].copy_from_slice(&handle.to_le_bytes());
    body[16..24].copy_from_slice(&size.to_le_bytes());
    body
}

/// The body of a `FUSE_CREATE`.
fn create(name: &str) -> Vec<u8> {
    [&2_u32.to_le_bytes()[..], &0o100_644_u32.to_le_bytes(), &[0; 8], name.as_bytes(), &[0]].concat()
}

/// The inode and the handle in the answer to a `FUSE_CREATE`.
fn created((error, body): (i32, Vec<u8>)) -> (u64, u64) {
    assert_eq!(error, 0);
    let long = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
    (long(0), long(128))
}

#[test]
fn a_failed_cut_gives_nothing_back() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 10_000);
    let (file, handle) = created(client.ask(FUSE_CREATE, ROOT, &create("new")));
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 5000)).0, 0);
    assert_ne!(client.ask(FUSE_SETATTR, file, &set_size(handle + 1, 0)).0, 0);
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 10_000)).0, -EDQUOT);
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 0)).0, 0);
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 5000)).0, 0);
    client.finish();
}

#[test]
fn a_failed_growth_is_not_charged() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 10_000);
    let (file, handle) = created(client.ask(FUSE_CREATE, ROOT, &create("new")));
    for _ in 0..3 {
        assert_ne!(client.ask(FUSE_SETATTR, file, &set_size(handle + 1, 5000)).0, 0);
    }
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 5000)).0, 0);
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 10_000)).0, -EDQUOT);
    client.finish();
}

#[test]
fn names_and_attributes_count() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 2 * 4096 + 10);
    assert_eq!(client.ask(FUSE_SYMLINK, ROOT, b"l\0target\0").0, 0);
    let directory = [&0o755_u32.to_le_bytes()[..], &[0; 4], b"d\0"].concat();
    assert_eq!(client.ask(FUSE_MKDIR, ROOT, &directory).0, 0);
    assert_eq!(client.ask(FUSE_MKDIR, ROOT, &directory).0, -EEXIST);
    assert_eq!(client.ask(FUSE_CREATE, ROOT, &create("f")).0, -EDQUOT);
    // A file that exists is opened.
    assert_eq!(client.ask(FUSE_CREATE, ROOT, &create("file")).0, 0);
    let (_, file) = client.lookup(ROOT, "file");
    let attribute = |length: u32| [&length.to_le_bytes()[..], &[0; 4], b"user.a\0", &vec![1; length as usize]].concat();
    assert_eq!(client.ask(FUSE_SETXATTR, file, &attribute(100)).0, -EDQUOT);
    assert_eq!(client.ask(FUSE_RMDIR, ROOT, b"d\0").0, 0);
    assert_ne!(client.ask(FUSE_RMDIR, ROOT, b"d\0").0, 0);
    assert_eq!(client.ask(FUSE_CREATE, ROOT, &create("f")).0, 0);
    client.finish();
}

#[test]
fn a_removed_file_counts_until_it_is_closed_and_forgotten() {
    let fixture = fixture();
    let mut client = Client::start(&fixture.path().join("served"), false, 20_000);
    let (file, handle) = created(client.ask(FUSE_CREATE, ROOT, &create("new")));
    assert_eq!(client.ask(FUSE_SETATTR, file, &set_size(handle, 15_000)).0, 0);
    assert_eq!(client.ask(FUSE_UNLINK, ROOT, b"new\0").0, 0);
    let (next, other) = created(client.ask(FUSE_CREATE, ROOT, &create("next")));
    let again = set_size(other, 15_000);
    assert_eq!(client.ask(FUSE_SETATTR, next, &again).0, -EDQUOT);
    client.send(&message(FUSE_FORGET, 0, file, &1_u64.to_le_bytes()));
    assert_eq!(client.ask(FUSE_SETATTR, next, &again).0, -EDQUOT);
    let release = [&handle.to_le_bytes()[..], &[0; 16]].concat();
    assert_eq!(client.ask(FUSE_RELEASE, file, &release).0, 0);
    assert_eq!(client.ask(FUSE_SETATTR, next, &again).0, 0);
    // A failure gives nothing back, and a file of the same name gives way.
    assert_ne!(client.ask(FUSE_UNLINK, ROOT, b"new\0").0, 0);
    assert_eq!(client.ask(FUSE_SETATTR, next, &set_size(other, 17_000)).0, -EDQUOT);
    client.finish();
}

/// A directory that is moved away for a moment, and a link to another in its place.
#[test]
fn a_watch_is_of_the_directory_that_was_meant() {
    let fixture = fixture();
    let served = fixture.path().join("served");
    fs::create_dir_all(served.join("one/same")).expect("it was not there");
    fs::create_dir(fixture.path().join("same")).expect("it was not there");
    symlink(fixture.path(), served.join("other")).expect("it was not there");
    let mut client = Client::start(&served, false, 1 << 20);
    let one = client.lookup(ROOT, "one").1;
    let (found, inode) = client.lookup(one, "same");
    assert_eq!(found, 0);
    let (names, stop) = (["one", "other"].map(|name| served.join(name)), Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&stop);
    let swapping = thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            renameat_with(CWD, &names[0], CWD, &names[1], RenameFlags::EXCHANGE).expect("both are there");
        }
    });
    let watches = (0..20_000).filter(|_| client.ask(PANDO_WATCH, inode, &IN_CREATE.to_le_bytes()).0 == 0).count();
    stop.store(true, Ordering::Relaxed);
    swapping.join().expect("both names are there");
    assert_ne!(watches, 0, "a watch succeeds if nothing changes meanwhile");
    let real = if served.join("one").is_symlink() { "other" } else { "one" };
    fs::write(fixture.path().join("same/outside"), "").expect("it is ours");
    fs::write(served.join(real).join("same/inside"), "").expect("it is ours");
    let mut event = vec![0; 1 << 18];
    loop {
        let (length, _) = recv(&client.socket, &mut event[..], RecvFlags::empty()).expect("the server reports");
        let text = String::from_utf8_lossy(&event[..length]);
        assert!(!text.contains("outside"), "it reports what happens outside");
        if text.contains("inside") {
            break;
        }
    }
    client.finish();
}
