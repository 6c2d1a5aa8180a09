"""Transports: what a program brings to carry the frames of a connection itself."""

from __future__ import annotations

import weakref
from ctypes import CFUNCTYPE, byref, c_int32, c_uint16, c_void_p, cast
from typing import Any, Callable, Optional, Union

from . import _ffi
from ._body import Buffer, slice_of
from ._driver import Driver
from ._ffi import OutSlice, Status, bind, take
from ._pump import log, new_context
from .errors import Error, check, failure

_transport_new = bind("blip_transport_new")
_transport_release = bind("blip_transport_release")
_transport_set_close_callback = bind("blip_transport_set_close_callback")
_transport_set_resume_callback = bind("blip_transport_set_resume_callback")
_transport_did_open = bind("blip_transport_did_open")
_transport_did_receive = bind("blip_transport_did_receive")
_transport_did_drain = bind("blip_transport_did_drain")
_transport_did_close = bind("blip_transport_did_close")


class Transport:
    """Carries the frames of one connection: over a pipe, a serial line, a message bus. A program derives a class from
    this, and gives an object of it to `connect_transport`.

    `send`, `close` and `resume` are the program's to write. They are called on the thread of the asyncio loop, or on a
    thread of the package in `blip.sync`, and must not wait. The methods that begin with `did_` are for the program to
    call, on any thread. Frames are carried whole, in order, and none may be lost.
    """

    _handle: int = 0
    _context: int = 0
    _driver: Optional[Driver] = None

    def __del__(self, release: Callable[[int], None] = _transport_release) -> None:
        handle = self._handle
        if handle:
            self._handle = 0
            release(handle)

    def start(self) -> None:
        """Called when the connection is there. Opens it at once; a transport that opens later has its own, and calls
        `did_open`."""
        self.did_open()

    def send(self, frame: bytes) -> Optional[bool]:
        """Carries one frame to the peer. Returning False: not now; it is offered again after `did_drain`.

        What it raises ends the connection, an `Error` with its status, anything else with `Status.NETWORK`.
        """
        raise NotImplementedError

    def close(self, code: int, reason: str) -> None:
        """Told once that this side has ended the connection, unless that was `did_close`.

        What was taken before should still be carried to the peer, whose program then calls `did_close`.
        """

    def resume(self) -> None:
        """Told that frames are taken again after `did_receive` has returned False."""

    def did_open(self) -> None:
        """Says that the transport carries frames now: the connection opens."""
        self._say(_transport_did_open(self._handle), "did_open")

    def did_receive(self, frame: Buffer) -> bool:
        """Hands over a frame that has come from the peer. False: not taken; again when `resume` is called.

        Raises `ConnectionClosed` if the connection has ended.
        """
        memory, _ = slice_of(frame)
        status = _transport_did_receive(self._handle, memory)
        check(status, "did_receive")
        return bool(status != _ffi.AGAIN)

    def did_drain(self) -> None:
        """Says that frames are taken again, after `send` has returned False."""
        self._say(_transport_did_drain(self._handle), "did_drain")

    def did_close(self, status: int = Status.OK) -> None:
        """Says that the transport has ended; the connection ends when it has received what came before.

        status: `Status.OK`, the peer has closed in order; or what has happened, as `Status.CONNECTION_LOST`.
        """
        self._say(_transport_did_close(self._handle, status), "did_close")
        self._leave()

    @staticmethod
    def _say(status: int, what: str) -> None:
        # That the connection has ended meanwhile is known to the transport by `close`, or will be.
        if status != Status.CLOSED:
            check(status, what)

    def _attach(self, driver: Driver, make: Callable[[int, int], int]) -> int:
        """The connection that `make` makes of the runtime and this transport."""
        if self._handle:
            raise failure(Status.STATE, "the transport has or had a connection")
        self._context = new_context()
        out = c_void_p()
        check(_transport_new(_send_function, self._context, None, byref(out)), "transport")
        self._handle = out.value or 0
        check(_transport_set_close_callback(self._handle, _close_function, self._context, None), "transport")
        check(_transport_set_resume_callback(self._handle, _resume_function, self._context, None), "transport")
        connection = make(driver.handle, self._handle)
        self._driver = driver
        driver.transports.add(self)
        _transports[self._context] = self
        return connection

    def _leave(self) -> None:
        """Nothing is called any more that would need this object."""
        driver = self._driver
        if driver is not None:
            driver.transports.discard(self)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Union[int, Any]:
        """Runs the program's code inside a callback of the library, out of which nothing may be raised."""
        driver = self._driver
        if driver is None or driver.has_ended:
            return int(Status.CLOSED)
        try:
            return function(*arguments)
        except Error as error:
            if error.status < 0:
                return int(error.status)
            log.exception("a transport failed")
        except Exception:
            log.exception("a transport failed")
        except BaseException as error:
            driver.raised = error
        return int(Status.NETWORK)


# By their contexts. They are kept alive by their drivers, while they are at work.
_transports: "weakref.WeakValueDictionary[int, Transport]" = weakref.WeakValueDictionary()


def _on_send(handle: int, frame: OutSlice, context: int) -> int:
    transport = _transports.get(context)
    if transport is None:
        return Status.CLOSED
    taken = transport._call(transport.send, take(frame))
    if taken is False:
        return _ffi.AGAIN
    return int(taken) if type(taken) is int and taken < 0 else 0


def _on_close(handle: int, code: int, reason: OutSlice, context: int) -> None:
    transport = _transports.pop(context, None)
    if transport is not None:
        transport._call(transport.close, code, take(reason).decode("utf-8", "replace"))
        transport._leave()


def _on_resume(handle: int, context: int) -> None:
    transport = _transports.get(context)
    if transport is not None:
        transport._call(transport.resume)


# Three functions for all transports, for good: the library may call them as long as it has a connection.
_send_callback = CFUNCTYPE(c_int32, c_void_p, OutSlice, c_void_p)(_on_send)
_close_callback = CFUNCTYPE(None, c_void_p, c_uint16, OutSlice, c_void_p)(_on_close)
_resume_callback = CFUNCTYPE(None, c_void_p, c_void_p)(_on_resume)
_send_function = cast(_send_callback, c_void_p)
_close_function = cast(_close_callback, c_void_p)
_resume_function = cast(_resume_callback, c_void_p)
