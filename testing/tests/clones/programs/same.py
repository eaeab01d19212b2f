# SPDX-License-Identifier: MIT OR Apache-2.0
"""Becomes a template of which much can be seen, and says in each clone what of it is not as it was; then changes all of it."""
import fcntl
import hashlib
import mmap
import os
import resource
import select
import signal
import threading
import time

import pando

heard = []
signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
os.kill(os.getpid(), signal.SIGHUP)

os.makedirs("/tmp/place/below")
os.chdir("/tmp/place")
os.umask(0o027)
os.environ["KEPT"] = "yes"
resource.setrlimit(resource.RLIMIT_NOFILE, (500, 600))

heap = bytearray(os.urandom(4 << 20))
objects = {number: [str(number)] * 3 for number in range(20_000)}
shared = mmap.mmap(-1, 1 << 20)
shared[:] = os.urandom(1 << 20)
with open("mapped", "wb") as file:
    file.write(os.urandom(300_000))
with open("mapped", "r+b") as file:
    private = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
private[1000:1004] = b"mine"

with open("file", "w") as file:
    file.write("".join(f"line {number}\n" for number in range(5000)))
reader = open("file", "rb", buffering=0)
reader.seek(12_345)
appender = os.open("file", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
again = os.dup2(reader.fileno(), 77, inheritable=True)
os.symlink("file", "link")
gone = open("gone", "w+b", buffering=0)
gone.write(b"still here")
os.unlink("gone")
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)

pipe = os.pipe2(os.O_NONBLOCK)
fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 1 << 17)
os.write(pipe[1], b"under way")
poll = select.epoll()
poll.register(pipe[0], select.EPOLLIN)

# A thread that waits, with a value on its stack, and a child process that does the same.
asked, answered, told = threading.Event(), threading.Event(), []


def thread_life():
    own = sum(heap[:100])
    while True:
        asked.wait()
        asked.clear()
        own += 1
        told.append(own)
        answered.set()


threading.Thread(target=thread_life, name="waiting", daemon=True).start()
to_child, from_child = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    own = os.close(to_child[1]) or 0
    while os.read(to_child[0], 1):
        own += 1
        os.write(from_child[1], b"%d %d " % (own, sum(heap[:100])))
    os._exit(0)


def flags(descriptor):
    return (
        fcntl.fcntl(descriptor, fcntl.F_GETFL),
        fcntl.fcntl(descriptor, fcntl.F_GETFD),
        os.readlink(f"/proc/self/fd/{descriptor}"),
    )


def digest(data):
    return hashlib.sha256(bytes(data)).hexdigest()


def seen():
    """All that shall be the same in a clone."""
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    known = [reader.fileno(), appender, again, gone.fileno(), lock.fileno(), *pipe, *to_child, *from_child, poll.fileno()]
    mask = os.umask(0)
    os.umask(mask)
    with open("file", "rb") as file, open("mapped", "rb") as mapped:
        files = digest(file.read()), digest(mapped.read())
    return {
        "handlers": [str(signal.getsignal(number)) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "pending": sorted(signal.sigpending()),
        "heard": list(heard),
        "directory": (os.getcwd(), sorted(os.listdir(".")), os.readlink("link")),
        "mask": mask,
        "environment": os.environ["KEPT"],
        "limits": (resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_STACK)),
        "process": (os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0), os.getuid(), os.getgid()),
        "heap": (digest(heap), len(objects), objects[777], id(heap)),
        "mappings": (digest(shared), digest(private)),
        "files": files,
        # One descriptor is open to list them.
        "descriptors": (len(descriptors), [flags(descriptor) for descriptor in known]),
        "offsets": (reader.tell(), os.lseek(again, 0, os.SEEK_CUR), gone.tell(), os.pread(gone.fileno(), 100, 0)),
        "pipe": (fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ), poll.poll(0)),
        "threads": sorted((thread.name, thread.is_alive()) for thread in threading.enumerate()),
        "told": list(told),
    }


# Fires in a thousand seconds: a clone has somewhat less left, whenever it is created. Another timer fires soon.
signal.setitimer(signal.ITIMER_REAL, 1000.0)
before = seen()
clock = time.monotonic()
pando.ready()
passed = time.monotonic() - clock
left = signal.getitimer(signal.ITIMER_REAL)[0]
after = seen()
for name in before:
    if before[name] != after[name]:
        print(f"{name}: {before[name]} became {after[name]}")
if not 0 <= passed < 60:
    print(f"the clock went on by {passed}")
if not 900 < left <= 1000:
    print(f"the timer has {left} seconds left")

# Waiting threads continue at their point of waiting.
asked.set()
answered.wait()
os.write(to_child[1], b"x")
number, own = os.read(from_child[0], 100).split()
if told != [sum(heap[:100]) + 1] or (int(number), int(own)) != (1, sum(heap[:100])):
    print(f"the thread answered {told}, the child {number} {own}")
os.kill(os.getpid(), signal.SIGUSR1)
# An alarm may come after `heard` was looked at and before the pause begins, here as on Linux: the next one ends it.
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while signal.SIGALRM not in heard:
    signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0)
if set(heard) != {signal.SIGUSR1, signal.SIGALRM} or heard.count(signal.SIGUSR1) != 1:
    print(f"heard {heard}")
if os.read(pipe[0], 100) != b"under way" or reader.read(4) != b"".join(b"line %d\n" % number for number in range(5000))[12_345:12_349]:
    print("something else is read")

# Now everything is changed: no other clone may see it.
heap[:] = bytes(len(heap))
objects.clear()
shared[:] = bytes(len(shared))
private[:] = bytes(len(private))
os.write(appender, b"more")
with open("mapped", "r+b") as file:
    file.write(b"changed")
gone.write(b"changed")
os.write(pipe[1], b"another")
os.environ["KEPT"] = "no"
os.unlink("link")
os.chdir("/")
os.umask(0)
signal.signal(signal.SIGUSR1, signal.SIG_DFL)
os.close(to_child[1])
os.waitpid(child, 0)
print("changed", flush=True)
os._exit(0)
