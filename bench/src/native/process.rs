// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native processes: one that measures on request, and the cost of a `fork` of it.

use super::memory::{MappedMemory, Pages};
use super::vm::Vm;
use std::io;
use std::time::Instant;

/// A pipe, closed when dropped.
struct Pipe {
    read: libc::c_int,
    write: libc::c_int,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: the pointer is to two live integers.
        let result = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        if result == 0 { Ok(Pipe { read: ends[0], write: ends[1] }) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends eight bytes: one message, which a pipe never splits.
    fn send(&self, value: f64) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        // SAFETY: the pointer and the length are of one live array.
        let sent = unsafe { libc::write(self.write, bytes.as_ptr().cast(), bytes.len()) };
        if sent == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for a message; restarts after signals.
    fn receive(&self) -> io::Result<f64> {
        let mut bytes = [0; 8];
        loop {
            // SAFETY: the pointer and the length are of one live, writable array.
            let received = unsafe { libc::read(self.read, bytes.as_mut_ptr().cast(), bytes.len()) };
            match received {
                8 => return Ok(f64::from_le_bytes(bytes)),
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return Err(io::Error::last_os_error()),
                _ => return Err(io::Error::other("the other process has ended")),
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for end in [self.read, self.write] {
            // SAFETY: the descriptor is ours and used by nobody afterwards.
            unsafe { libc::close(end) };
        }
    }
}

/// A child process. Killed and waited for when dropped.
struct Child(libc::pid_t);

impl Child {
    /// Forks; the child runs `work` and exits. The caller guarantees that `work` is safe in a forked child: it allocates
    /// little, takes no lock that another thread may hold, and never panics.
    fn fork(work: impl FnOnce()) -> io::Result<Child> {
        // SAFETY: no preconditions in the parent. The child does only what the caller guarantees and leaves by `_exit`, so
        // that nothing of the parent's is flushed or dropped twice.
        unsafe {
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => {
                    work();
                    libc::_exit(0)
                }
                pid => Ok(Child(pid)),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is our child, not waited for yet, so its id has not been reused.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// The code that a forked process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its own instructions.
    Process,
    /// A guest's instructions, whose memory is the process's: the child creates a VM of its own around the inherited memory
    /// (HyperFork's method).
    Vm,
}

/// A process with this much resident memory, which forks on request.
pub(crate) struct Forker {
    requests: Pipe,
    answers: Pipe,
    _process: Child,
}

impl Forker {
    /// Starts the process. Start it before this process has much memory of its own: the forker inherits that.
    pub(crate) fn start(bytes: usize, pages: Pages, kind: Kind) -> io::Result<Forker> {
        let requests = Pipe::new()?;
        let answers = Pipe::new()?;
        let process = Child::fork(|| {
            // SAFETY: the call takes two integers; it makes this process end with its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let _ = serve(&requests, &answers, bytes, pages, kind);
        })?;
        let forker = Forker { requests, answers, _process: process };
        // The first answer confirms that the memory is resident.
        forker.measure()?;
        Ok(forker)
    }

    /// Nanoseconds from before a `fork` until the parent, blocked in `read`, has received the first byte from the child or
    /// its guest. The child is removed on return.
    pub(crate) fn measure(&self) -> io::Result<f64> {
        self.requests.send(0.0)?;
        self.answers.receive()
    }
}

/// The forker's main loop.
fn serve(requests: &Pipe, answers: &Pipe, bytes: usize, pages: Pages, kind: Kind) -> io::Result<()> {
    let mut memory = MappedMemory::map(bytes, pages)?;
    memory.touch();
    let guest = if kind == Kind::Vm { Some(Vm::start(&mut memory)?) } else { None };
    let sign = Pipe::new()?;
    loop {
        requests.receive()?;
        let start = Instant::now();
        let child = Child::fork(|| {
            if guest.as_ref().is_none_or(|(_, saved)| saved.resume(&memory).is_ok()) {
                let _ = sign.send(0.0);
            }
        })?;
        sign.receive()?;
        let time = start.elapsed().as_nanos() as f64;
        drop(child);
        answers.send(time)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{Forker, Kind, Pages};

    #[test]
    fn a_forker_answers_as_often_as_it_is_asked() {
        let forker = Forker::start(1 << 20, Pages::Small, Kind::Process).expect("a small process");
        for _ in 0..3 {
            assert!(forker.measure().expect("it forks") > 0.0);
        }
    }
}
