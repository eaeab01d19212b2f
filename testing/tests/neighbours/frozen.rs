// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the operator freezes while they run: their clones continue independently.

use crate::world::CellNetwork;
use std::collections::HashSet;

const PYTHON: &str = "/usr/bin/python3";

/// An unbuffered Python program that can detect whether it is a clone: clones receive another, empty script as their argument.
fn python(program: &str) -> String {
    const IS_CLONE: &str = "def is_clone(): return open('/proc/pando/arguments', 'rb').read().endswith(b'-c' + bytes(2))";
    format!("cat > program <<'END'\n{IS_CLONE}\n{program}\nEND\npython3 -u program")
}

/// Runs a program until it prints `here` and freezes it. Returns the remaining output of two clones, which have only the
/// first part in common.
fn clones(program: &str, as_it_stands: bool) -> Option<[String; 2]> {
    let world = CellNetwork::new(&[PYTHON])?;
    let script = python(program);
    let running = world.serve(&script, "here");
    let frozen = world.freeze(&running, as_it_stands);
    let said = [(); 2].map(|()| world.finish(&script, world.resume(&frozen)));
    Some(said)
}

/// Checks that each clone prints `common` first, and then a string that no other prints. The line with `here` may end in the clones.
fn check(said: &[String; 2], common: &str) {
    let own: HashSet<&str> = said.iter().map(|said| said.trim_start().strip_prefix(common).unwrap_or_else(|| panic!("{said}"))).collect();
    assert!(own.len() == 2 && own.iter().all(|own| own.trim().len() == 32), "{said:?}");
}

#[test]
fn one_that_sleeps_or_computes_goes_on() {
    let sleeps = "
import os, time
before = os.urandom(16)
print('here')
while not is_clone(): time.sleep(0.01)
print('slept')
print(os.urandom(16).hex())
";
    let computes = "
import os
total = sum(range(1_000_000))
print('here')
while not is_clone(): total = sum(range(1_000_000))
print(total)
print(os.urandom(16).hex())
";
    for (program, common) in [(sleeps, "slept\n"), (computes, "499999500000\n")] {
        for as_it_stands in [false, true] {
            if let Some(said) = clones(program, as_it_stands) {
                check(&said, common);
            }
        }
    }
}

#[test]
fn the_clock_stands_still_while_it_is_frozen() {
    let program = "
import time
# The largest of many: what interrupts it between the two readings makes a difference smaller.
def moved(): return max(time.time() - time.monotonic() for _ in range(100))
before = moved()
print('here')
while not is_clone(): time.sleep(0.01)
print(moved() - before)
";
    for as_it_stands in [false, true] {
        let Some(said) = clones(program, as_it_stands) else { return };
        // The second clone starts when the first has ended.
        let [first, second] = said.map(|said| said.trim().parse::<f64>().unwrap_or_else(|_| panic!("{said}")));
        assert!(0.0 < first && first < second, "the time of day has moved by {first} and {second} seconds");
    }
}

/// A timer, and waits with a timeout.
const LIMITS: &str = "
import select, signal, threading, time
SECOND, rang = 1.0, []
began = time.monotonic()
def ring(*_): rang.append(time.monotonic() - began)
def late(wait):
    wait()
    ring()
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, SECOND)
for wait in [lambda: select.select([], [], [], SECOND), lambda: select.poll().poll(SECOND * 1000), lambda: threading.Event().wait(SECOND)]:
    threading.Thread(target=late, args=[wait]).start()
print('here')
# Not to its end before it is frozen, however busy the host is.
while len(rang) < 4 or not is_clone(): REST
print(min(rang) >= SECOND)
";

#[test]
fn nothing_happens_sooner_because_the_template_stood() {
    // One computes, so that it is stopped in its own code; the other is stopped while it waits.
    for rest in ["pass", "time.sleep(0.01)"] {
        for as_it_stands in [false, true] {
            // The second clone starts when the first has ended: a second later.
            let Some(said) = clones(&LIMITS.replace("REST", rest), as_it_stands) else { return };
            assert_eq!(said.each_ref().map(|said| said.trim()), ["True"; 2], "{rest}, {as_it_stands}");
        }
    }
}

/// Threads that wait in every possible way, and one that wakes them in the end.
const WAITING: &str = "
import os, queue, selectors, socket, subprocess, threading, time
said = queue.Queue()
def does(name):
    def start(action):
        def run():
            action()
            said.put(name)
        threading.Thread(target=run).start()
        return action
    return start
listener = socket.create_server(('127.0.0.1', 7))
pipe, near = os.pipe(), socket.socketpair()
event, child = threading.Event(), subprocess.Popen(['sleep', '1'])
selector = selectors.EpollSelector()
selector.register(near[0], selectors.EVENT_READ)
@does('accept')
def _(): listener.accept()
@does('read')
def _(): os.read(pipe[0], 1)
@does('epoll')
def _(): selector.select()
@does('futex')
def _(): event.wait()
@does('child')
def _(): child.wait()
@does('sleep')
def _(): time.sleep(1)
print('here')
while not is_clone(): time.sleep(0.01)
socket.create_connection(('127.0.0.1', 7)); os.write(pipe[1], b'x'); near[1].send(b'x'); event.set()
print(*sorted(said.get() for _ in range(6)))
print(os.urandom(16).hex())
";

#[test]
fn threads_wait_on_in_clones() {
    for as_it_stands in [false, true] {
        if let Some(said) = clones(WAITING, as_it_stands) {
            check(&said, "accept child epoll futex read sleep\n");
        }
    }
}

/// A server with a thread for each client, and one more thread with a connection to outside.
const SERVER: &str = "
import http.server, os, socket, sys, threading
def watch(connection):
    try:
        connection.recv(1)
    except ConnectionError as error:
        print(type(error).__name__)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = (os.urandom(16).hex() + '\\n').encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(('', 80), Handler)
# The connection is there before anybody can freeze this program.
if HOST: threading.Thread(target=watch, args=[socket.create_connection((HOST, 80))]).start()
print('here')
server.serve_forever()
";

#[test]
fn a_server_serves_on_under_the_addresses_of_each_clone() {
    let Some(world) = CellNetwork::new(&[PYTHON, "/usr/bin/curl"]) else { return };
    let other = world.serve(&python(&SERVER.replace("HOST", "''")), "here");
    let server = world.serve(&python(&SERVER.replace("HOST", &format!("'{}'", other.addresses.v4))), "here");
    let ask = |host| world.run(&format!("curl -sS http://{host}/"));
    let mut seen = HashSet::from([ask(server.addresses.v4), ask(other.addresses.v4)]);
    let frozen = world.freeze(&server, false);
    // A clone does not own its template's connection.
    let clones = [(); 2].map(|()| world.resume_server(&frozen, "ConnectionResetError"));
    for clone in &clones {
        assert_ne!(clone.addresses.v4, server.addresses.v4);
        for _ in 0..2 {
            assert!(seen.insert(ask(clone.addresses.v4)), "two clones print the same");
        }
    }
    assert!(seen.insert(ask(other.addresses.v4)) && seen.iter().all(|said| said.len() == 33));
}
