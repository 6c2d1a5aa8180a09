"""Frames over a stream of bytes: a transport for asyncio streams, and one for descriptors without asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from typing import Deque, List, Optional, Protocol, Union

from ._ffi import Status
from ._transport import Transport
from .errors import ConnectionClosed, Error

# Each frame has its length in front, in so many bytes, the most significant one first.
LENGTH = 4
# The limit "incoming_frame" of a connection, unless it is set.
LARGEST = 1024 * 1024
# So much waits to be written before frames are taken no more, and again.
FULL = 256 * 1024
ROOM = 64 * 1024


def _with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(LENGTH, "big") + frame


def _length_of(head: bytes, largest: int) -> int:
    size = int.from_bytes(head, "big")
    if size > largest:
        raise Error(f"a frame of {size} bytes", status=Status.LIMIT)
    return size


class StreamTransport(Transport):
    """Frames over a pair of asyncio streams, as of `asyncio.open_connection` or of a subprocess.

    Each frame is sent behind its length in four bytes, the most significant one first. The end of the connection is
    the end of the stream. Both streams are taken over. largest: bytes of the largest frame that the peer may send.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, largest: int = LARGEST
    ) -> None:
        self._largest = largest
        self._reader = reader
        self._writer = writer
        self._may_resume = asyncio.Event()
        self._drainer: Optional[asyncio.Task[None]] = None
        self._reading: Optional[asyncio.Task[None]] = None

    def start(self) -> None:
        self.did_open()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def send(self, frame: bytes) -> bool:
        if self._drainer is not None:
            return False
        if self._writer.transport.is_closing():
            raise ConnectionClosed("the stream is closed", status=Status.CONNECTION_LOST)
        self._writer.write(_with_length(frame))
        if self._writer.transport.get_write_buffer_size() > FULL:
            self._drainer = asyncio.get_running_loop().create_task(self._drain())
        return True

    def close(self, code: int, reason: str) -> None:
        # What was written is still sent.
        self._writer.close()
        if self._reading is not None:
            self._reading.cancel()

    def resume(self) -> None:
        self._may_resume.set()

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError:
            self.did_close(Status.CONNECTION_LOST)
        finally:
            self._drainer = None
        self.did_drain()

    async def _read(self) -> None:
        status: int = Status.CONNECTION_LOST
        try:
            while True:
                head = await self._reader.readexactly(LENGTH)
                frame = await self._reader.readexactly(_length_of(head, self._largest))
                while not self.did_receive(frame):
                    self._may_resume.clear()
                    await self._may_resume.wait()
        except asyncio.IncompleteReadError as error:
            if error.expected == LENGTH and not error.partial:
                status = Status.OK
        except Error as error:
            status = error.status
        except OSError:
            pass
        finally:
            self.did_close(status)
            self._writer.close()


class HasDescriptor(Protocol):
    """A file or socket."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class PipeTransport(Transport):
    """Frames over two descriptors, or files or sockets that have them: pipes, standard input and output, a socket.

    The same frames as those of `blip.StreamTransport`. Each way has a thread, which waits where the descriptor makes it
    wait. What a file has in its own buffer is not seen; both are taken over and closed.
    """

    def __init__(
        self, reader: Union[int, HasDescriptor], writer: Union[int, HasDescriptor], *, largest: int = LARGEST
    ) -> None:
        self._largest = largest
        self._reader = reader
        self._writer = writer
        self._input = _descriptor(reader)
        self._output = _descriptor(writer)
        self._at_work = 2
        self._frames: Deque[Optional[bytes]] = deque()
        self._waiting = 0
        self._is_full = False
        self._changed = threading.Condition()
        self._may_resume = threading.Event()

    def start(self) -> None:
        # First: what comes before would be refused.
        self.did_open()
        for target, name in ((self._read, "reader"), (self._write, "writer")):
            threading.Thread(target=target, name=f"blip-{name}", daemon=True).start()

    def send(self, frame: bytes) -> bool:
        with self._changed:
            if self._waiting > FULL:
                self._is_full = True
                return False
            self._frames.append(frame)
            self._waiting += len(frame)
            self._changed.notify()
        return True

    def close(self, code: int, reason: str) -> None:
        self._end()

    def resume(self) -> None:
        self._may_resume.set()

    def _end(self) -> None:
        """The thread that writes ends after what was taken."""
        with self._changed:
            self._frames.append(None)
            self._changed.notify()

    def _write(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._frames:
                        self._changed.wait()
                    frame = self._frames.popleft()
                if frame is None:
                    break
                data = memoryview(_with_length(frame))
                while data:
                    data = data[os.write(self._output, data) :]
                with self._changed:
                    self._waiting -= len(frame)
                    has_room = self._is_full and self._waiting <= ROOM
                    self._is_full = self._is_full and not has_room
                if has_room:
                    self.did_drain()
        except OSError:
            self.did_close(Status.CONNECTION_LOST)
        self._finish(self._writer)

    def _read(self) -> None:
        status: int = Status.CONNECTION_LOST
        try:
            while True:
                head = _read_exactly(self._input, LENGTH, may_end=True)
                if not head:
                    status = Status.OK
                    break
                frame = _read_exactly(self._input, _length_of(head, self._largest))
                while True:
                    # Before the frame is offered, so that no call of `resume` gets lost.
                    self._may_resume.clear()
                    if self.did_receive(frame):
                        break
                    self._may_resume.wait()
        except Error as error:
            status = error.status
        except OSError:
            pass
        self.did_close(status)
        self._end()
        self._finish(self._reader)

    def _finish(self, end: Union[int, HasDescriptor]) -> None:
        """A thread has ended. What both use is closed by the last one."""
        _shut_down(self._input if end is self._reader else self._output)
        with self._changed:
            self._at_work -= 1
            is_last = self._at_work == 0
        if self._input != self._output:
            _close(end)
        elif is_last:
            _close(self._reader)
            if not isinstance(self._writer, int) and self._writer is not self._reader:
                _close(self._writer)


def _descriptor(end: Union[int, HasDescriptor]) -> int:
    return end if isinstance(end, int) else end.fileno()


def _close(end: Union[int, HasDescriptor]) -> None:
    try:
        if isinstance(end, int):
            os.close(end)
        else:
            end.close()
    except OSError:
        pass  # closed already, or with the other


def _shut_down(descriptor: int) -> None:
    """Ends a socket for the peer, and for the thread that reads from it, whatever other descriptors of it there are."""
    try:
        end = socket.socket(fileno=descriptor)
    except OSError:
        return  # none
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        end.detach()


def _read_exactly(descriptor: int, size: int, may_end: bool = False) -> bytes:
    """So many bytes; none if the stream may end before the first one, and does."""
    parts: List[bytes] = []
    left = size
    while left:
        part = os.read(descriptor, min(left, FULL))
        if not part:
            if may_end and not parts:
                return b""
            raise ConnectionClosed("the stream ended inside a frame", status=Status.CONNECTION_LOST)
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
