# SPDX-License-Identifier: MIT OR Apache-2.0
"""I/O of clients, asynchronous and blocking.

The code of clients and sandboxes exists once, as coroutines, in `_async`. In the asyncio versions, a step that takes a while
suspends its task. In the blocking versions, each such step blocks its thread instead, so that the same coroutines never
suspend: `done` runs one to its end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, AsyncContextManager, AsyncIterator, Callable, ContextManager, Coroutine, Iterator, Iterable, Protocol, TypeVar, Union, cast

import httpx

T = TypeVar("T")
Act = Callable[[], Coroutine[Any, Any, object]]


Body = Union[bytes, Iterable[bytes], None]
"""The body of a request: its bytes, or its pieces."""

_BASE = "http://pando"
# Bytes that Linux takes at a Unix socket all at once or not at all: anyio 3.6 repeats the start of a piece of which
# only a part was taken.
_PIECE = 16 << 10


class Http(Protocol):
    """A client of httpx. The caller reads the body of each response, or calls `end` if it does not read all of it."""

    build_request: Callable[..., httpx.Request]

    async def send(self, request: httpx.Request) -> httpx.Response: ...

    async def read(self, response: httpx.Response) -> bytes: ...

    def parts(self, response: httpx.Response) -> AsyncIterator[bytes]: ...

    async def end(self, response: httpx.Response) -> None: ...

    def content(self, body: Body) -> object:
        """Converts the body of a request."""

    async def close(self) -> None: ...


class Lock(Protocol):
    """A mutual exclusion lock."""

    def held(self) -> AsyncContextManager[None]: ...


class Io(Protocol):
    """The operations that differ between asyncio and threads."""

    def http(self, socket: Path, limits: httpx.Limits) -> Http: ...

    def lock(self) -> Lock: ...

    async def call(self, function: Callable[[], T]) -> T:
        """Calls a blocking function."""

    def after(self, seconds: float, act: Act) -> ContextManager[None]:
        """Runs `act` after this time, unless the block ends before."""

    async def sleep(self, seconds: float) -> None: ...

    async def finish(self, act: Act) -> None:
        """Runs `act` to its end, even if the task is being cancelled."""


class Tasks:
    """I/O with asyncio."""

    def http(self, socket: Path, limits: httpx.Limits) -> Http:
        return _TaskHttp(socket, limits)

    def lock(self) -> Lock:
        return _TaskLock()

    async def call(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)

    @contextmanager
    def after(self, seconds: float, act: Act) -> Iterator[None]:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            await act()

        timer = asyncio.ensure_future(wait())
        try:
            yield
        finally:
            timer.cancel()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def finish(self, act: Act) -> None:
        task = asyncio.ensure_future(act())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled():
                # Marks it as seen.
                task.exception()
            raise


class Threads:
    """I/O with threads: nothing here suspends."""

    def http(self, socket: Path, limits: httpx.Limits) -> Http:
        return _ThreadHttp(socket, limits)

    def lock(self) -> Lock:
        return _ThreadLock()

    async def call(self, function: Callable[[], T]) -> T:
        return function()

    @contextmanager
    def after(self, seconds: float, act: Act) -> Iterator[None]:
        timer = threading.Timer(seconds, lambda: done(act()))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def finish(self, act: Act) -> None:
        await act()


def done(step: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends to its end."""
    try:
        step.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    step.close()
    raise RuntimeError("a blocking coroutine was suspended")


class _TaskLock:
    """A lock that is created on first use: before Python 3.10, it belongs to the loop that runs then."""

    _lock: asyncio.Lock

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        if not hasattr(self, "_lock"):
            self._lock = asyncio.Lock()
        async with self._lock:
            yield


class _ThreadLock:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        with self._lock:
            yield


class _TaskHttp:
    def __init__(self, socket: Path, limits: httpx.Limits) -> None:
        transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=limits, verify=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=_BASE, timeout=None, trust_env=False)
        self.build_request = self._client.build_request

    async def send(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request, stream=True)

    async def read(self, response: httpx.Response) -> bytes:
        return await response.aread()

    def parts(self, response: httpx.Response) -> AsyncIterator[bytes]:
        return response.aiter_raw()

    async def end(self, response: httpx.Response) -> None:
        await response.aclose()

    def content(self, body: Body) -> object:
        if body is None or (isinstance(body, bytes) and len(body) <= _PIECE):
            return body
        return _pieces([body] if isinstance(body, bytes) else body)

    async def close(self) -> None:
        await self._client.aclose()


class _ThreadHttp:
    def __init__(self, socket: Path, limits: httpx.Limits) -> None:
        transport = httpx.HTTPTransport(uds=str(socket), limits=limits, verify=False)
        self._client = httpx.Client(transport=transport, base_url=_BASE, timeout=None, trust_env=False)
        self.build_request = self._client.build_request

    async def send(self, request: httpx.Request) -> httpx.Response:
        return self._client.send(request, stream=True)

    async def read(self, response: httpx.Response) -> bytes:
        return response.read()

    async def parts(self, response: httpx.Response) -> AsyncIterator[bytes]:
        for part in response.iter_raw():
            yield part

    async def end(self, response: httpx.Response) -> None:
        response.close()

    def content(self, body: Body) -> object:
        return body

    async def close(self) -> None:
        self._client.close()


async def _pieces(body: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a body, each of which may take a while: those of a file."""
    pieces = iter(body)
    while True:
        piece = await asyncio.to_thread(lambda: next(pieces, None))
        if piece is None:
            return
        for start in range(0, len(piece), _PIECE):
            yield piece[start : start + _PIECE]
