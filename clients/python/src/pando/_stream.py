# SPDX-License-Identifier: MIT OR Apache-2.0
"""Streamed responses, and the requests that they answer."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import contextmanager
from typing import Any, AsyncIterator, Callable, Deque, Generic, Iterator, Protocol, TypeVar

import httpx

from . import _wire
from ._errors import ConnectionLost
from ._io import Http

T = TypeVar("T")


@contextmanager
def translated() -> Iterator[None]:
    """Translates errors of the transport."""
    try:
        yield
    except httpx.TransportError as error:
        raise ConnectionLost(f"the server closed the connection: {error or type(error).__name__}") from error


class ResponseLines(Generic[T]):
    """A streamed response, line by line. The reader closes it if it does not read to the end."""

    def __init__(self, http: Http, response: httpx.Response, read: Callable[[Any], T]) -> None:
        self._http = http
        self._response = response
        self._parts = http.parts(response)
        self._lines = _wire.Lines(read)
        self._whole: Deque[T] = deque()
        self._is_listened_to = False
        self._is_over = False
        self._is_left = False
        self.location = response.headers.get("location", "")
        """The path of what answers."""

    def __aiter__(self) -> ResponseLines[T]:
        return self

    async def __anext__(self) -> T:
        if self._is_left:
            raise StopAsyncIteration
        self._is_listened_to = True
        try:
            while not self._whole:
                with translated():
                    part = await self._parts.__anext__()
                self._whole.extend(self._lines.add(part))
            return self._whole.popleft()
        except ConnectionLost:
            if self._is_left:
                raise StopAsyncIteration from None
            raise
        finally:
            self._is_listened_to = False
            if self._is_over:
                await self._http.end(self._response)

    async def aclose(self) -> None:
        self._is_over = True
        # Otherwise, the reader closes the response.
        if not self._is_listened_to:
            await self._http.end(self._response)

    async def leave(self) -> None:
        """Closes it, and ends the iteration of another task or thread, which may wait for a line that never comes."""
        self._is_left = True
        if self._is_listened_to:
            stream = self._response.extensions.get("network_stream")
            try:
                # The server notices, and the reader gets the end. A closed socket would not wake a thread that reads it.
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
            except (AttributeError, OSError):
                # It is closed already.
                pass
        await self.aclose()


class Requests(Protocol):
    """Sends requests to the server: the part of a client that its cells use."""

    async def do(self, operation: _wire.Operation[T]) -> T: ...

    async def stream(self, operation: _wire.Operation[None], read: Callable[[Any], T]) -> ResponseLines[T]: ...

    async def stream_bytes(self, operation: _wire.Operation[bytes]) -> AsyncIterator[bytes]: ...
