// SPDX-License-Identifier: MIT OR Apache-2.0
//! Epoll compared with Linux's: the same random pipes, counters and instances, changed and watched in the same way, must
//! report the same events.

use crate::compare::empty_files;
use pando_libos::errno::Errno;
use pando_libos::files::edge::EventTimes;
use pando_libos::files::epoll::Interest;
use pando_libos::files::epoll_file::EpollOperation;
use pando_libos::files::eventfd::EventCounter;
use pando_libos::files::pipe_file::PipeFile;
use pando_libos::files::{DescriptorTarget, FileObject, Files, OpenFile};
use pando_libos::uapi::{O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};
use proptest::prelude::*;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};

/// The maximum number of events of one wait.
const MANY: usize = 64;

#[derive(Clone, Debug)]
enum Step {
    /// Opens a pipe, a counter with this initial value, or an instance.
    Pipe,
    Counter(u8),
    Instance,
    /// Duplicates or closes a descriptor of an open file.
    Duplicate(usize),
    Close(usize),
    /// Changes the interest list of an instance.
    Add(usize, usize, u32),
    Modify(usize, usize, u32),
    Remove(usize, usize),
    /// Writes or reads this many bytes of a pipe; adds to a counter, or reads it.
    Put(usize, usize),
    Take(usize, usize),
    /// Waits at an instance.
    Wait(usize),
}

/// A change of an interest list.
enum InterestChange {
    Add(u32),
    Modify(u32),
    Remove,
}

fn interest() -> impl Strategy<Value = u32> {
    let events = prop_oneof![Just(1_u32), Just(4), Just(5), Just(0)];
    let how = prop_oneof![3 => Just(0_u32), 3 => Just(1 << 31), 1 => Just(1 << 30), 1 => Just(3 << 30)];
    (events, how).prop_map(|(events, how)| events | how)
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..8_usize;
    let bytes = prop_oneof![Just(1_usize), 1..5000_usize, Just(4096), Just(65_536), Just(100_000)];
    prop_oneof![
        2 => Just(Step::Pipe),
        2 => (0..3_u8).prop_map(Step::Counter),
        1 => Just(Step::Instance),
        1 => any.clone().prop_map(Step::Duplicate),
        2 => any.clone().prop_map(Step::Close),
        6 => (any.clone(), any.clone(), interest()).prop_map(|(epoll, file, events)| Step::Add(epoll, file, events)),
        2 => (any.clone(), any.clone(), interest()).prop_map(|(epoll, file, events)| Step::Modify(epoll, file, events)),
        1 => (any.clone(), any.clone()).prop_map(|(epoll, file)| Step::Remove(epoll, file)),
        6 => (any.clone(), bytes.clone()).prop_map(|(file, bytes)| Step::Put(file, bytes)),
        6 => (any.clone(), bytes).prop_map(|(file, bytes)| Step::Take(file, bytes)),
        8 => any.prop_map(Step::Wait),
    ]
}

/// An open file on both sides: a descriptor of the host and one of the libOS, under a common number.
struct Open {
    number: u64,
    host: OwnedFd,
    fd: u64,
    is_instance: bool,
}

/// Events and their data, sorted by data; or an error number.
type CallResult = Result<Vec<(u64, u32)>, i32>;

struct ComparedEpoll {
    files: Files,
    open: Vec<Open>,
    opened: u64,
}

fn linux<T>(result: rustix::io::Result<T>) -> Result<T, i32> {
    result.map_err(rustix::io::Errno::raw_os_error)
}

fn ours<T>(result: Result<T, Errno>) -> Result<T, i32> {
    result.map_err(|error| i32::from(error as u16))
}

impl ComparedEpoll {
    fn opens(&mut self, host: OwnedFd, fd: u64, is_instance: bool) {
        self.open.push(Open { number: self.opened, host, fd, is_instance });
        self.opened += 1;
    }

    fn opens_file(&mut self, host: OwnedFd, object: impl Into<FileObject>, flags: u64) {
        let fd = self.files.insert(OpenFile::new(object, flags | O_NONBLOCK), false).expect("there are not many");
        self.opens(host, fd, false);
    }

    /// Changes the interest list of an instance.
    fn control(&mut self, epoll: usize, file: usize, how: InterestChange) -> Option<(CallResult, CallResult)> {
        let open = |index: usize| self.open.get(index % self.open.len().max(1));
        let (epoll, file) = (open(epoll)?, open(file)?);
        // Instances watch only younger ones, so that they never watch each other.
        if !epoll.is_instance || file.is_instance && file.number <= epoll.number {
            return None;
        }
        let data = epoll::EventData::new_u64(file.number);
        let interest = |events| Interest { events, data: file.number };
        let (host, change) = match how {
            InterestChange::Add(events) => (
                epoll::add(&epoll.host, &file.host, data, epoll::EventFlags::from_bits_retain(events)),
                EpollOperation::Add(interest(events)),
            ),
            InterestChange::Modify(events) => (
                epoll::modify(&epoll.host, &file.host, data, epoll::EventFlags::from_bits_retain(events)),
                EpollOperation::Modify(interest(events)),
            ),
            InterestChange::Remove => (epoll::delete(&epoll.host, &file.host), EpollOperation::Remove),
        };
        let found = ours(self.files.control_epoll(epoll.fd, file.fd, || Ok(change)));
        Some((found.map(|()| Vec::new()), linux(host).map(|()| Vec::new())))
    }

    /// Performs a step on both, if its object exists. Returns both answers.
    fn take(&mut self, step: &Step) -> Option<(CallResult, CallResult)> {
        let open = |index: usize| self.open.get(index % self.open.len().max(1));
        match *step {
            Step::Pipe => {
                let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).expect("the host has pipes");
                let id = self.files.pipes.open(None, true, true).expect("there is memory");
                self.opens_file(reader, PipeFile::new(id), O_RDONLY);
                self.opens_file(writer, PipeFile::new(id), O_WRONLY);
                None
            }
            Step::Counter(count) => {
                let host = eventfd(count.into(), EventfdFlags::NONBLOCK).expect("the host has counters");
                let event = EventCounter { count: count.into(), one_by_one: false, event_times: EventTimes::default() };
                self.opens_file(host, event, O_RDWR);
                None
            }
            Step::Instance => {
                let host = epoll::create(epoll::CreateFlags::empty()).expect("the host has epoll");
                let fd = self.files.create_epoll(false).expect("there are not many");
                self.opens(host, fd, true);
                None
            }
            Step::Duplicate(index) => {
                let Open { host, fd, is_instance, .. } = open(index)?;
                let (host, is_instance) = (rustix::io::dup(host).expect("there are not many"), *is_instance);
                let fd = self.files.duplicate(*fd, DescriptorTarget::From(0), false).expect("there are not many");
                self.opens(host, fd, is_instance);
                None
            }
            Step::Close(index) => {
                let index = index % self.open.len().max(1);
                (index < self.open.len()).then(|| {
                    let closed = self.open.remove(index);
                    self.files.close(closed.fd).expect("it is open");
                });
                None
            }
            Step::Add(epoll, file, events) => self.control(epoll, file, InterestChange::Add(events)),
            Step::Modify(epoll, file, events) => self.control(epoll, file, InterestChange::Modify(events)),
            Step::Remove(epoll, file) => self.control(epoll, file, InterestChange::Remove),
            Step::Put(index, bytes) => {
                let Open { host, fd, is_instance: false, .. } = open(index)? else { return None };
                let (host, fd) = (linux(put(host, self.files.raw_file(*fd).ok()?, bytes)?), *fd);
                Some((ours(put_here(&mut self.files, fd, bytes)?).map(counted), host.map(counted)))
            }
            Step::Take(index, bytes) => {
                let Open { host, fd, is_instance: false, .. } = open(index)? else { return None };
                let mut room = vec![0; bytes.max(8)];
                let readable = self.files.raw_file(*fd).is_ok_and(OpenFile::readable);
                let (host, fd) = (readable.then(|| linux(rustix::io::read(host, &mut room[..])))?, *fd);
                Some((ours(take_here(&mut self.files, fd, bytes.max(8))?).map(counted), host.map(counted)))
            }
            Step::Wait(index) => {
                let Open { host, fd, is_instance: true, .. } = open(index)? else { return None };
                let (host, fd) = (wait(host), *fd);
                Some((ours(wait_here(&mut self.files, fd)), linux(host)))
            }
        }
    }
}

/// The number of bytes moved, as an answer.
fn counted(bytes: usize) -> Vec<(u64, u32)> {
    vec![(bytes as u64, 0)]
}

fn put(host: &OwnedFd, file: &OpenFile, bytes: usize) -> Option<rustix::io::Result<usize>> {
    match file.object {
        FileObject::Pipe(_) if file.writable() => Some(rustix::io::write(host, &vec![1; bytes])),
        FileObject::EventCounter(_) => Some(rustix::io::write(host, &(bytes as u64).to_ne_bytes())),
        _ => None,
    }
}

fn put_here(files: &mut Files, fd: u64, bytes: usize) -> Option<Result<usize, Errno>> {
    match &mut files.get(fd).ok()?.object {
        FileObject::Pipe(file) => {
            let id = file.pipe;
            Some(files.pipes.get_mut(id).and_then(|pipe| pipe.push(&vec![1; bytes])))
        }
        FileObject::EventCounter(event) => Some(event.add(bytes as u64).map(|()| 8)),
        _ => None,
    }
}

fn take_here(files: &mut Files, fd: u64, bytes: usize) -> Option<Result<usize, Errno>> {
    match &mut files.get(fd).ok()?.object {
        FileObject::Pipe(file) => {
            let id = file.pipe;
            let pipe = files.pipes.get_mut(id).ok()?;
            let taken = pipe.length().min(bytes);
            Some(pipe.check_filled().map(|()| {
                pipe.skip(taken);
                taken
            }))
        }
        FileObject::EventCounter(event) => Some(event.take().map(|_| 8)),
        _ => None,
    }
}

fn wait(host: &OwnedFd) -> rustix::io::Result<Vec<(u64, u32)>> {
    let mut events = Vec::with_capacity(MANY);
    epoll::wait(host, rustix::buffer::spare_capacity(&mut events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let mut events: Vec<(u64, u32)> = events.iter().map(|event| (event.data.u64(), { event.flags }.bits())).collect();
    events.sort_unstable();
    Ok(events)
}

fn wait_here(files: &mut Files, fd: u64) -> Result<Vec<(u64, u32)>, Errno> {
    let id = files.epoll(fd)?;
    let mut events = Vec::new();
    files.collect_epoll(id, MANY, |_, Interest { events: ready, data }| {
        events.push((data, ready));
        Ok(())
    })?;
    events.sort_unstable();
    Ok(events)
}

proptest! {
    #![proptest_config(crate::config())]

    #[test]
    fn epoll_reports_the_events_of_linux(steps in prop::collection::vec(step(), 1..80)) {
        let mut both = ComparedEpoll { files: empty_files(), open: Vec::new(), opened: 0 };
        for (number, step) in steps.iter().enumerate() {
            if let Some((found, wanted)) = both.take(step) {
                prop_assert_eq!(found, wanted, "step {}: {:?}", number, step);
            }
        }
    }
}
