// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudo terminals inside the cell, and job control at them: both ends, compared with native runs.

use crate::case::Case;
use pando_testing::lab::is_kvm_available;

/// Both ends in one process: lines, echo, window sizes, and the behaviour after the other end is closed.
const ENDS: &str = r"
import errno, fcntl, os, select, struct, termios, tty
def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
master, slave = os.openpty()
print(os.isatty(master), os.isatty(slave), os.ttyname(slave).startswith('/dev/pts/'), os.path.exists(os.ttyname(slave)))
os.write(master, b'one\x7f\x7fK\ntwo')
print(os.read(slave, 100), os.read(master, 100), select.select([slave], [], [], 0)[0])
os.write(master, b'\x04')
print(os.read(slave, 100))
os.write(slave, b'shown\n\tmore')
print(os.read(master, 5), os.read(master, 100))
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('4H', 30, 100, 0, 0))
print(os.get_terminal_size(slave))
fcntl.ioctl(master, termios.TIOCPKT, struct.pack('i', 1))
os.write(slave, b'packet')
print(os.read(master, 3), os.read(master, 100))
fcntl.ioctl(master, termios.TIOCPKT, struct.pack('i', 0))
tty.setraw(slave)
os.write(master, b'\x03raw\r')
print(os.read(slave, 100), select.select([master], [slave], [], 0)[:2] == ([], [slave]))
poll = select.poll()
poll.register(master)
poll.register(slave)
name = os.ttyname(slave)
os.close(slave)
print(attempt(os.read, master, 10), [event for fd, event in poll.poll(0) if fd == master])
slave = os.open(name, os.O_RDWR | os.O_NOCTTY)
os.write(slave, b'again')
print(os.read(master, 100))
os.close(master)
print(attempt(os.read, slave, 10), attempt(os.write, slave, b'x'), os.path.exists(name), attempt(os.open, name, os.O_RDWR) in ('EIO', 'ENOENT'))
print(attempt(os.open, '/dev/tty', os.O_RDWR))
";

/// A session at a terminal: signal keys, jobs, and the end of the session.
const SESSION: &str = r"
import os, pty, re, sys
child, master = pty.fork()
if child == 0:
    os.execve('/bin/bash', ['bash', '--norc', '-i'], {'PS1': '$ ', 'PATH': '/usr/bin:/bin', 'TERM': 'dumb'})
seen = b''
def until(text):
    global seen
    while text not in seen:
        piece = os.read(master, 1000)
        seen += piece
    before, seen = seen.split(text, 1)
    print(repr(re.sub(rb'\d{2,}|/dev/pts/\d+|\[\?2004.', b'N', before)), text)
def say(keys):
    os.write(master, keys)
until(b'$ ')
say(b'stty -echo\n')
until(b'$ ')
say(b'cat\n')
say(b'first\n')
until(b'first')
say(b'\x03')
until(b'$ ')
say(b'cat\n')
say(b'line\n')
until(b'line')
say(b'\x1a')
until(b'Stopped')
until(b'$ ')
say(b'jobs; fg; echo status $?\n')
until(b'cat')
say(b'more\n')
until(b'more')
say(b'\x04')
until(b'status 0')
until(b'$ ')
say(b'tty >/dev/null; echo tty $?; echo /dev/tty > /dev/tty; exit 5\n')
until(b'tty 0')
try:
    while os.read(master, 100):
        pass
except OSError as error:
    print(error.errno)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

#[test]
fn both_ends_of_a_pseudo_terminal() {
    if is_kvm_available() {
        Case::new("/usr/bin/python3", &["-c", ENDS]).check();
    }
}

#[test]
fn a_shell_at_a_pseudo_terminal_controls_its_jobs() {
    if is_kvm_available() {
        Case::new("/usr/bin/python3", &["-c", SESSION]).check();
    }
}

/// A stopped child whose parent, in the same session and another group, then ends.
const ORPHANS: &str = r"
import os, signal
reader, writer = os.pipe()
middle = os.fork()
if middle == 0:
    os.setsid()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGHUP, lambda *_: os.write(writer, b'hung up '))
        signal.signal(signal.SIGCONT, lambda *_: os.write(writer, b'goes on '))
        os.kill(os.getpid(), signal.SIGSTOP)
        os.write(writer, b'ends')
        os._exit(0)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
    os._exit(0)
os.close(writer)
os.waitpid(middle, 0)
seen = b''
while piece := os.read(reader, 100):
    seen += piece
print(sorted(seen.split()))
";

#[test]
fn stopped_processes_continue_when_their_group_is_orphaned() {
    if is_kvm_available() {
        Case::new("/usr/bin/python3", &["-c", ORPHANS]).check();
    }
}
