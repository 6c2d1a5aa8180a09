"""Puts what a program gives as a body into a message of the library."""

from __future__ import annotations

import io
import json
import os
import stat
import tempfile
from collections.abc import AsyncIterable as AsyncIterableClass
from collections.abc import Iterable as IterableClass
from ctypes import addressof, c_char
from typing import IO, Any, AsyncIterable, Dict, Iterable, List, Optional, Tuple, Union

from ._ffi import Slice, bind, bind_waiting
from .errors import check

Buffer = Union[bytes, bytearray, memoryview]
Body = Union[
    None,
    Buffer,
    str,
    Dict[str, Any],
    List[Any],
    "os.PathLike[str]",
    IO[bytes],
    Iterable[Buffer],
    AsyncIterable[Buffer],
]

# From here on a body is sent from where it lies, and its object kept alive until it is sent.
BORROW_FROM = 64 * 1024
# What an iterator yields stays in memory up to here, and goes through an unnamed file beyond.
SPOOL_FROM = 1024 * 1024
CHUNK = 256 * 1024
TO_THE_END = 2**64 - 1
EMPTY_JSON_COMPRESSED = 100

_set_text = bind("blip_message_set_text")
_set_json = bind("blip_message_set_json")
_append_body = bind("blip_message_append_body")
_append_body_borrowed = bind("blip_message_append_body_borrowed")
_append_body_file = bind_waiting("blip_message_append_body_file")


def encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def slice_of(data: Any) -> Tuple[Slice, object]:
    """The memory of any buffer, and what keeps it alive. Copies only what is read-only and not bytes."""
    if isinstance(data, bytes):
        return Slice(data, len(data)), data
    view = memoryview(data)
    if view.nbytes == 0:
        return Slice(None, 0), None
    if view.readonly or not view.c_contiguous:
        owner = view.obj
        if view.c_contiguous and isinstance(owner, bytes) and len(owner) == view.nbytes:
            return Slice(owner, len(owner)), owner
        copy = view.tobytes()
        return Slice(copy, len(copy)), copy
    array = (c_char * view.nbytes).from_buffer(view.cast("B") if view.format != "B" or view.ndim != 1 else view)
    return Slice(addressof(array), view.nbytes), array


def add_body(message: int, body: Any) -> Optional[object]:
    """Appends the body. The result, unless None, must be kept alive until the message is sent."""
    if isinstance(body, str):
        data = body.encode()
        check(_set_text(message, Slice(data, len(data))), "body")
    elif isinstance(body, (dict, list)):
        data = encode_json(body)
        check(_set_json(message, Slice(data, len(data))), "body")
    elif isinstance(body, (bytes, bytearray, memoryview)):
        return add_bytes(message, body)
    elif isinstance(body, os.PathLike):
        _add_path(message, os.fspath(body))
    elif hasattr(body, "read"):
        _add_file(message, body)
    elif isinstance(body, IterableClass) and not _is_buffer(body):
        spool = Spool(message)
        for chunk in body:
            spool.add(chunk)
        spool.finish()
    elif isinstance(body, AsyncIterableClass):
        raise TypeError("an asynchronous iterator can only be a body in the asyncio interface")
    else:
        return add_bytes(message, body)
    return None


async def add_body_async(message: int, body: AsyncIterable[Buffer]) -> None:
    spool = Spool(message)
    async for chunk in body:
        spool.add(chunk)
    spool.finish()


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def add_bytes(message: int, data: Any) -> Optional[object]:
    try:
        memory, keep = slice_of(data)
    except TypeError:
        raise TypeError(
            "a body is bytes or another buffer, str, a dict or list (as JSON), a path, a binary file "
            f"or an iterator of bytes, not {type(data).__name__}"
        ) from None
    if memory.size < BORROW_FROM:
        check(_append_body(message, memory), "body")
        return None
    check(_append_body_borrowed(message, memory, None, None), "body")
    return keep


def _add_path(message: int, path: Any) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"a directory cannot be a body: {os.fsdecode(path)}")
        if not stat.S_ISREG(mode):
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                _copy_file(message, file)
            os.close(descriptor)
            return
    except BaseException:
        os.close(descriptor)
        raise
    _give_descriptor(message, descriptor, 0)


def _add_file(message: int, file: Any) -> None:
    if isinstance(file, io.TextIOBase):
        raise TypeError("a file that is a body must be opened in binary mode")
    try:
        descriptor = file.fileno()
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        position = file.tell() if regular else 0
    except (AttributeError, OSError):
        regular = False
    if regular:
        _give_descriptor(message, os.dup(descriptor), position)
    else:
        _copy_file(message, file)


def _copy_file(message: int, file: Any) -> None:
    spool = Spool(message)
    while True:
        chunk = file.read(CHUNK)
        if not chunk:
            break
        spool.add(chunk)
    spool.finish()


def _give_descriptor(message: int, descriptor: int, position: int) -> None:
    status = _append_body_file(message, descriptor, position, TO_THE_END, True)
    if status < 0:
        os.close(descriptor)
        check(status, "body from a file")


class Spool:
    """A body that comes in pieces: into the message while it is small, through an unnamed file beyond."""

    __slots__ = ("_message", "_size", "_file")

    def __init__(self, message: int) -> None:
        self._message = message
        self._size = 0
        self._file: Optional[IO[bytes]] = None

    def add(self, chunk: Any) -> None:
        if isinstance(chunk, str):
            raise TypeError("an iterator that is a body must yield bytes, not str")
        memory, keep = slice_of(chunk)
        if self._file is None and self._size + memory.size > SPOOL_FROM:
            self._file = tempfile.TemporaryFile(buffering=0)
        if self._file is None:
            check(_append_body(self._message, memory), "body")
        else:
            view = memoryview(chunk).cast("B")
            while view.nbytes:
                view = view[self._file.write(view) :]
        self._size += memory.size
        del keep

    def finish(self) -> None:
        if self._file is not None:
            _give_descriptor(self._message, os.dup(self._file.fileno()), 0)
            self._file.close()
