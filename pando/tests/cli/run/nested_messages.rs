// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between programs in nested cells, by ports and references of `/dev/cells`.

use crate::case::{PANDO, text};
use pando_testing::needs_kvm;
use std::process::{Command, Stdio};

/// Functions for both sides.
const COMMON: &str = "import ctypes, errno, fcntl, os, signal, struct, sys, threading, time
CALL, ROOT, ARGUMENTS, FOREVER = 0xc038ce01, 0x1000, 0x7f00001f0000, 2**64 - 1
device = os.open('/dev/cells', os.O_RDWR)
def call(*words):
    record = bytearray(struct.pack('7Q', *[getattr(word, 'place', word) for word in words], *[0] * (7 - len(words))))
    try:
        fcntl.ioctl(device, CALL, record)
    except OSError as error:
        return errno.errorcode[error.errno]
    return struct.unpack('7q', record)[6]
class Message:
    def __init__(self, sent=b'', size=100, holding=0, accepted=0):
        self.sent, self.room = ctypes.create_string_buffer(sent, len(sent) + 1), ctypes.create_string_buffer(size + 1)
        place = ctypes.addressof
        self.words = (ctypes.c_uint64 * 11)(place(self.sent), len(sent), holding, 0, place(self.room), size | accepted << 32)
        self.place = place(self.words)
    label = property(lambda self: self.words[7])
    reply = property(lambda self: self.words[8])
    holding = property(lambda self: self.words[9])
def soon(): return time.monotonic_ns() + 20_000_000
";

const CLIENT: &str = "reference, name = 0x1001, sys.argv[1]
for round in range(3):
    message = Message(f'{name}{round}'.encode())
    count = call(44, reference, message, FOREVER)
    print(message.room.raw[:count].decode(), message.label, flush=True)
print(call(44, reference, Message(b'x' * 200), FOREVER), call(44, reference, Message(size=1), FOREVER))
print(call(44, reference + 1, Message(), FOREVER), call(44, reference, Message(), 0))
";

const SERVER: &str = "port = call(43)
def start(name, label):
    cell = call(22, ROOT, 50000, 1)
    words = [b'/usr/bin/python3', b'/', b'python3', b'-c', sys.argv[1].encode(), name.encode()]
    strings = b''.join(word + bytes(1) for word in words)
    block = struct.pack('15I', 4, 0, len(strings), 0, 16, *[0] * 10) + strings
    for at in range(0, len(block), 4096):
        piece = ctypes.create_string_buffer(block[at:at + 4096])
        assert call(16, cell << 32 | 0xffffffff, ARGUMENTS + at, ctypes.addressof(piece), len(block[at:at + 4096])) == 0
    assert call(31, cell, ROOT) == ROOT and call(31, cell, port, label) == ROOT + 1 and call(23, cell) == 0
    return cell
def output(cell):
    room, found = ctypes.create_string_buffer(4096), b''
    while True:
        result = call(32, cell, ctypes.addressof(room), 4096, 0)
        if result >> 40 & 1: return found.decode()
        found += room.raw[:result & 0xffff]
cells = [start(name, label) for name, label in (('a', 7), ('b', 2**64 - 1))]
# The other threads of the cell go on while one waits.
ticks, done = [], threading.Event()
def tick():
    while not done.wait(0.001): ticks.append(1)
thread = threading.Thread(target=tick)
thread.start()
reply, answer = 0, Message()
# Three calls of each client, and two: of one the message is too long, of the other the answer.
for served in range(8):
    count = call(45, port, answer, FOREVER, reply)
    asked, reply, label = answer.room.raw[:count], answer.reply, answer.label
    answer = Message(asked.upper() + b' of %d' % (label % 1000) if asked else b'long')
assert call(46, reply, answer) == 0
done.set()
thread.join()
print(len(ticks) > 3)
for cell in cells: print(output(cell), end='')
print(call(45, port, answer, 0), call(45, port, answer, soon()), call(46, reply, answer), call(45, port + 1, answer, 0))
# A thread calls a port of its own cell, which has it pass a reference.
reference, other = call(31, 0, port, 5), call(43)
given = call(31, 0, other, 6)
found = []
def ask(): found.append(call(44, reference, Message(b'take', holding=given), FOREVER))
thread = threading.Thread(target=ask)
thread.start()
answer = Message(accepted=1)
assert call(45, port, answer, FOREVER) == 4 and answer.label == 5 and answer.holding != given
assert call(46, answer.reply, Message(b'ok')) == 0
thread.join()
# A signal withdraws a call, as its deadline does. A port that is dropped refuses the calls that wait.
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.02)
print(call(44, reference, answer, FOREVER), call(44, reference, answer, soon()), call(45, port, Message(), 0))
print(call(26, other), call(44, answer.holding, answer, FOREVER))
thread = threading.Thread(target=ask)
thread.start()
time.sleep(0.03)
given = 0
print(call(26, port))
thread.join()
print(found)
";

#[test]
fn programs_in_nested_cells_call_a_program_around_them() {
    needs_kvm!();
    let mut command = Command::new(PANDO);
    command.args(["run", "--nest", "6", "--", "python3", "-c", &format!("{COMMON}{SERVER}"), &format!("{COMMON}{CLIENT}")]);
    let outcome = command.stdin(Stdio::null()).output().expect("pando starts");
    let of = |name: &str, label: u64| format!("{name}0 of {label} 0\n{name}1 of {label} 0\n{name}2 of {label} 0\n-21 -21\n-14 EINVAL\n");
    let wanted = format!("True\n{}{}-18 -19 EPERM -14\nEINTR -19 -18\n0 -14\n0\n[2, -14]\n", of("A", 7), of("B", 615));
    assert_eq!(text(&outcome.stdout), wanted, "{}", text(&outcome.stderr));
}
