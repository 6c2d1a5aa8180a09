"""Puts what a program gives as a body into a message of the library."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import AsyncIterable as AsyncIterableClass
from collections.abc import Iterable as IterableClass
from ctypes import addressof, c_char
from typing import Any, AsyncIterable, Dict, Iterable, Iterator, List, Optional, Protocol, Tuple, Union

from ._ffi import Slice, bind, bind_waiting
from .errors import check

Buffer = Union[bytes, bytearray, memoryview]


class Readable(Protocol):
    """A binary file, or what reads like one."""

    def read(self, size: int, /) -> Optional[bytes]: ...


Body = Union[
    None,
    Buffer,
    str,
    Dict[str, Any],
    List[Any],
    "os.PathLike[str]",
    Readable,
    Iterable[Buffer],
    AsyncIterable[Buffer],
]

# From here on a body is sent from where it lies, and its object kept alive until it is sent.
BORROW_FROM = 64 * 1024
# At most so much of what an iterator yields is handed over at a time, and read at a time of a file.
CHUNK = 256 * 1024
TO_THE_END = 2**64 - 1
# Kinds of bodies, looked at first, that are there as a whole.
WHOLE = frozenset((bytes, type(None), str, dict, list, bytearray, memoryview))

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


def pieces_of(body: Any) -> Union[None, Iterable[Buffer], AsyncIterable[Buffer]]:
    """What to iterate over if the body comes piece by piece; None if `add_body` takes it as a whole."""
    if type(body) in WHOLE or isinstance(body, (bytes, bytearray, memoryview, str, dict, list)):
        return None
    if isinstance(body, os.PathLike):
        mode = os.stat(body).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"a directory cannot be a body: {os.fsdecode(body)}")
        return None if stat.S_ISREG(mode) else FilePieces(None, body)
    if isinstance(body, io.TextIOBase):
        raise TypeError("a file that is a body must be opened in binary mode")
    if hasattr(body, "read"):
        return None if _descriptor(body) is not None else FilePieces(body)
    if isinstance(body, (IterableClass, AsyncIterableClass)) and not _is_buffer(body):
        return body
    return None


def add_body(message: int, body: Any) -> Optional[object]:
    """Appends a body that is there as a whole. The result, unless None, must be kept alive until it is sent."""
    if isinstance(body, str):
        data = body.encode()
        check(_set_text(message, Slice(data, len(data))), "body")
    elif isinstance(body, (dict, list)):
        data = encode_json(body)
        check(_set_json(message, Slice(data, len(data))), "body")
    elif isinstance(body, (bytes, bytearray, memoryview)):
        return add_bytes(message, body)
    elif isinstance(body, os.PathLike):
        _give_descriptor(message, os.open(body, os.O_RDONLY | os.O_CLOEXEC), 0)
    elif hasattr(body, "read"):
        descriptor = _descriptor(body)
        if descriptor is None:
            raise TypeError("a file that is no longer a regular one cannot be a body")
        _give_descriptor(message, os.dup(descriptor), body.tell())
    else:
        return add_bytes(message, body)
    return None


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def add_bytes(message: int, data: Any) -> Optional[object]:
    memory, keep = _slice_of_body(data)
    if memory.size < BORROW_FROM:
        check(_append_body(message, memory), "body")
        return None
    check(_append_body_borrowed(message, memory, None, None), "body")
    return keep


def _slice_of_body(data: Any) -> Tuple[Slice, object]:
    try:
        return slice_of(data)
    except TypeError:
        raise TypeError(
            "a body is bytes or another buffer, str, a dict or list (as JSON), a path, a binary file "
            f"or an iterator of bytes, not {type(data).__name__}"
        ) from None


def _descriptor(file: Any) -> Optional[int]:
    """The descriptor from which the body can be sent: only of a plain file, not of one that decodes what it reads."""
    if type(file).__module__ == "tempfile":
        file = getattr(file, "file", file)
    raw = getattr(file, "raw", file)
    if not isinstance(raw, io.FileIO) or not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return None
    if not file.readable():
        raise io.UnsupportedOperation("a file that is a body must be opened for reading")
    if file.writable():
        file.flush()
    return raw.fileno()


def _give_descriptor(message: int, descriptor: int, position: int) -> None:
    status = _append_body_file(message, descriptor, position, TO_THE_END, True)
    if status < 0:
        os.close(descriptor)
        check(status, "body from a file")


class FilePieces:
    """What there is to read of a file that is no plain one, as soon as it is there. Reading may wait."""

    def __init__(self, file: Any, path: Any = None) -> None:
        self._file = file
        self._path = path

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        if self._file is None:
            self._file = open(self._path, "rb", buffering=0)
        chunk = getattr(self._file, "read1", self._file.read)(CHUNK)
        if chunk is None:
            raise BlockingIOError("a file that is a body must not be in non-blocking mode")
        return chunk  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[bytes]:
        while True:
            chunk = self.read()
            if not chunk:
                return
            yield chunk

    def close(self) -> None:
        """Closes what was opened here; the program's files stay open."""
        if self._path is not None and self._file is not None:
            self._file.close()


def portions(piece: Any) -> Iterator[Tuple[Slice, object]]:
    """A piece of an iterator's in portions that are fit to be handed over, each with what keeps it alive."""
    if isinstance(piece, str):
        raise TypeError("an iterator that is a body must yield bytes, not str")
    if type(piece) is bytes and len(piece) <= CHUNK:
        if piece:
            yield Slice(piece, len(piece)), piece
        return
    try:
        view = memoryview(piece)
    except TypeError:
        raise TypeError(f"an iterator that is a body must yield bytes, not {type(piece).__name__}") from None
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    view = view.cast("B") if view.nbytes else view
    for start in range(0, view.nbytes, CHUNK):
        yield slice_of(view[start : start + CHUNK])
