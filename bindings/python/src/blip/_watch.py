"""Functions of the program that see each frame of a connection, or give one more time on which nothing moves.

The library calls both on the loop's thread, and waits for the second one's answer. No thread of the library may enter
Python; so connections that have such a function live on a loop that Python runs itself, as those of transports do.
"""

from __future__ import annotations

import inspect
import weakref
from ctypes import CFUNCTYPE, c_bool, c_int64, c_uint32, c_uint64, c_void_p, cast
from typing import Any, Callable, Mapping, NamedTuple, Optional

from . import _ffi
from ._driver import Driver
from ._ffi import OutSlice, bind, take
from ._pump import log, new_context
from .errors import check

_connection_set_frame_callback = bind("blip_connection_set_frame_callback")
_connection_set_timeout_callback = bind("blip_connection_set_timeout_callback")
_listener_set_frame_callback = bind("blip_listener_set_frame_callback")
_listener_set_timeout_callback = bind("blip_listener_set_timeout_callback")

FRAME_KINDS = {0: "request", 1: "response", 2: "error", 4: "request_ack", 5: "response_ack"}
MORE_COMING = 0x40
LONGEST = 2**53


class Frame(NamedTuple):
    """A frame of BLIP, as `on_frame` sees it."""

    connection: Any
    """The connection it belongs to."""
    outgoing: bool
    """Whether it is about to be sent; else it was received."""
    number: int
    """The message's number; each side counts its own requests."""
    kind: str
    """ "request", "response", "error", or "request_ack" and "response_ack", which acknowledge what was received."""
    flags: int
    """The flags as they are on the wire."""
    data: bytes
    """The whole frame as it is on the wire, header included, compressed or not."""

    @property
    def compressed(self) -> bool:
        return bool(self.flags & _ffi.FLAG_COMPRESSED)

    @property
    def urgent(self) -> bool:
        return bool(self.flags & _ffi.FLAG_URGENT)

    @property
    def no_reply(self) -> bool:
        return bool(self.flags & _ffi.FLAG_NO_REPLY)

    @property
    def more_coming(self) -> bool:
        """Whether further frames of the message follow."""
        return bool(self.flags & MORE_COMING)


class Stall(NamedTuple):
    """A connection on which nothing moves, as `on_timeout` is told."""

    connection: Any
    """The connection, which ends unless it gets more time."""
    writing: bool
    """Whether it is the write timeout that is over; else it is the read timeout."""
    elapsed: float
    """For how many seconds nothing has moved that way."""
    bytes: int
    """How many bytes have gone that way since the connection was made."""


FrameFunction = Callable[[Frame], Any]
StallFunction = Callable[[Stall], Optional[float]]


def is_watched(given: Mapping[str, Any]) -> bool:
    return given.get("on_frame") is not None or given.get("on_timeout") is not None


class Watcher:
    """A function of the program for one connection, or for those of a listener. It does not keep its owner alive."""

    __slots__ = ("_owner", "_driver", "_function", "_name", "__weakref__")

    def __init__(self, owner: Any, driver: Driver, function: Callable[[Any], Any], name: str) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} has to answer at once: it cannot be a coroutine function")
        self._owner = weakref.ref(owner)
        self._driver = driver
        self._function = function
        self._name = name

    def call(self, handle: int, make: Callable[[Any], Any], use: Callable[[Any], int]) -> int:
        """Runs the program's code inside a callback of the library, out of which nothing may be raised."""
        try:
            owner = self._owner()
            connection = None if owner is None or self._driver.has_ended else owner._connection_at(handle)
            if connection is not None:
                return use(self._function(make(connection)))
        except Exception:
            log.exception("%s failed", self._name)
        except BaseException as error:
            self._driver.raised = error
        return 0


# By their contexts. They are kept alive by their owners.
_watchers: "weakref.WeakValueDictionary[int, Watcher]" = weakref.WeakValueDictionary()


def _watch(owner: Any, watcher: Watcher, setter: Callable[..., int], function: Any, name: str) -> None:
    context = new_context()
    _watchers[context] = watcher
    check(setter(owner._handle, function, context, None), name)
    owner._watchers.append(watcher)


def watch_connection(owner: Any, driver: Callable[[], Driver], given: Mapping[str, Any]) -> None:
    """Registers the functions that were given for a connection, which lives on the driver's loop."""
    _watch_both(owner, driver, given, _connection_set_frame_callback, _connection_set_timeout_callback)


def watch_listener(owner: Any, driver: Callable[[], Driver], given: Mapping[str, Any]) -> None:
    """The same for the connections of a listener."""
    _watch_both(owner, driver, given, _listener_set_frame_callback, _listener_set_timeout_callback)


def _watch_both(
    owner: Any,
    driver: Callable[[], Driver],
    given: Mapping[str, Any],
    set_frame: Callable[..., int],
    set_timeout: Callable[..., int],
) -> None:
    for name, setter, function in (
        ("on_frame", set_frame, _frame_function),
        ("on_timeout", set_timeout, _timeout_function),
    ):
        if given.get(name) is not None:
            _watch(owner, Watcher(owner, driver(), given[name], name), setter, function, name)


def _on_frame(handle: int, outgoing: bool, number: int, kind: int, flags: int, data: OutSlice, context: int) -> None:
    watcher = _watchers.get(context)
    if watcher is not None:
        name = FRAME_KINDS.get(kind) or str(kind)
        watcher.call(
            handle, lambda connection: Frame(connection, outgoing, number, name, flags, take(data)), lambda _: 0
        )


def _on_timeout(handle: int, writing: bool, elapsed: int, count: int, context: int) -> int:
    watcher = _watchers.get(context)
    if watcher is None:
        return 0
    return watcher.call(
        handle, lambda connection: Stall(connection, writing, elapsed / 1000, count), _extension
    )


def _extension(seconds: Optional[float]) -> int:
    """Milliseconds more; a positive time is never rounded down to none."""
    if not seconds or seconds <= 0:
        return 0
    return int(min(seconds * 1000 + 0.999, LONGEST))


# Two functions for all connections, for good: the library may call them as long as it has one.
_frame_callback = CFUNCTYPE(None, c_void_p, c_bool, c_uint64, c_uint32, c_uint32, OutSlice, c_void_p)(_on_frame)
_timeout_callback = CFUNCTYPE(c_int64, c_void_p, c_bool, c_int64, c_uint64, c_void_p)(_on_timeout)
_frame_function = cast(_frame_callback, c_void_p)
_timeout_function = cast(_timeout_callback, c_void_p)
