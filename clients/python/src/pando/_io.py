# SPDX-License-Identifier: MIT OR Apache-2.0
"""How clients wait.

What clients and sandboxes do is written once, as coroutines, in `_async`. In asyncio's, a step that takes a while suspends
its task. In those for code that waits, each such step blocks its thread instead, so that the same coroutines never suspend:
`done` takes one to its end.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, AsyncContextManager, AsyncIterator, Callable, ContextManager, Coroutine, Iterator, Protocol, TypeVar, cast

import httpx

T = TypeVar("T")
Act = Callable[[], Coroutine[Any, Any, object]]


_BASE = "http://pando"


class Http(Protocol):
    """A client of httpx. The body of each answer is left to be read; whoever does not read it to its end ends it."""

    build_request: Callable[..., httpx.Request]

    async def send(self, request: httpx.Request) -> httpx.Response: ...

    async def read(self, response: httpx.Response) -> bytes: ...

    def parts(self, response: httpx.Response) -> AsyncIterator[bytes]: ...

    async def end(self, response: httpx.Response) -> None: ...

    async def close(self) -> None: ...


class Lock(Protocol):
    """Lets one of several through at a time."""

    def held(self) -> AsyncContextManager[None]: ...


class Io(Protocol):
    """What differs between the two kinds."""

    def http(self, socket: Path, limits: httpx.Limits) -> Http: ...

    def lock(self) -> Lock: ...

    async def call(self, function: Callable[[], T]) -> T:
        """Calls what blocks."""

    def after(self, seconds: float, act: Act) -> ContextManager[None]:
        """Does something when the time is up, unless the block ends before."""

    async def finish(self, act: Act) -> None:
        """Does something to its end, also where the task is being cancelled."""


class Tasks:
    """Of asyncio."""

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

    async def finish(self, act: Act) -> None:
        await asyncio.shield(act())


class Threads:
    """Of threads: nothing here suspends."""

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

    async def finish(self, act: Act) -> None:
        await act()


def done(step: Coroutine[Any, Any, T]) -> T:
    """Takes a coroutine that never suspends to its end."""
    try:
        step.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    step.close()
    raise RuntimeError("what only threads wait for has suspended a task")


class _TaskLock:
    """Made when it is needed first: before Python 3.10, it belongs to the loop that runs then."""

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

    async def close(self) -> None:
        self._client.close()
