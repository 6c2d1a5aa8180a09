"""Certificates that the program judges."""

from __future__ import annotations

import inspect
from ctypes import byref, c_int32
from typing import Any, Awaitable, Callable, List, Optional, Union

from ._ffi import OutSlice, Status, bind, take
from ._pump import HandlerCall, OwnerCall, Pump, log
from .errors import check

TrustHandler = Callable[["Trust"], Union[Optional[bool], Awaitable[Optional[bool]]]]

_trust_retain = bind("blip_trust_retain")
_trust_release = bind("blip_trust_release")
_trust_certificate = bind("blip_trust_certificate")
_trust_host = bind("blip_trust_host")
_trust_verdict = bind("blip_trust_verdict")
_trust_accept = bind("blip_trust_accept")
_trust_reject = bind("blip_trust_reject")
_event_trust = bind("blip_event_trust")
_event_release = bind("blip_event_release")
_set_trust_callback = bind("blip_connection_set_trust_callback")


class Trust:
    """A server's certificate, to be accepted or refused once, now or later and on any thread. When the last reference
    is gone without an answer, it is refused."""

    __slots__ = ("_handle",)

    def __init__(self, event: int) -> None:
        self._handle: int = _trust_retain(_event_trust(event)) or 0

    def __del__(self, release: Callable[[int], None] = _trust_release) -> None:
        handle = self._handle
        if handle:
            self._handle = 0
            release(handle)

    def __repr__(self) -> str:
        return f"<blip certificate of {self.host}: {self.text}>"

    @property
    def host(self) -> Optional[str]:
        """Whom the certificate should be for."""
        out = OutSlice()
        status = _trust_host(self._handle, byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status)
        return take(out).decode("utf-8", "replace")

    @property
    def certificates(self) -> List[bytes]:
        """What the server has sent, in DER: its own certificate first."""
        found: List[bytes] = []
        while True:
            out = OutSlice()
            status = _trust_certificate(self._handle, len(found), byref(out))
            if status == Status.NOT_FOUND:
                return found
            check(status)
            found.append(bytes(take(out)))

    @property
    def code(self) -> int:
        """OpenSSL's verify error; 0: it would accept."""
        code = c_int32()
        check(_trust_verdict(self._handle, byref(code), byref(OutSlice())))
        return code.value

    @property
    def text(self) -> str:
        """OpenSSL's words for its opinion."""
        out = OutSlice()
        check(_trust_verdict(self._handle, byref(c_int32()), byref(out)))
        return take(out).decode("utf-8", "replace")

    def accept(self) -> None:
        check(_trust_accept(self._handle), "accept")

    def reject(self) -> None:
        check(_trust_reject(self._handle), "reject")


def take_trust(connection: Any, pump: Pump, handler: TrustHandler) -> None:
    """Asks the handler about the server's certificate. The connection starts what is to be awaited."""

    def ask(owner: Any, event: int, argument: object = None) -> None:
        trust = Trust(event)
        try:
            result = handler(trust)
            if inspect.isawaitable(result):
                owner._start(_answer_later(trust, result))
            else:
                _give(trust, result)
        except Exception:
            _fail(trust)
        finally:
            if argument is not None:
                _event_release(event)

    # An asyncio loop runs it where it is; of threads the one for handlers does.
    call = HandlerCall(connection, ask, True) if not hasattr(connection, "_start") else OwnerCall(connection, ask)
    context = pump.expect(call)
    connection._contexts.append(context)
    check(_set_trust_callback(connection._handle, None, context, None))


def _give(trust: Trust, answer: Optional[bool]) -> None:
    """None: the handler has answered itself, or will."""
    if answer is not None:
        (trust.accept if answer else trust.reject)()


async def _answer_later(trust: Trust, answer: Awaitable[Optional[bool]]) -> None:
    try:
        _give(trust, await answer)
    except Exception:
        _fail(trust)


def _fail(trust: Trust) -> None:
    """The handler has raised. Nobody knows how long the traceback keeps the object, so the answer is no."""
    _trust_reject(trust._handle)
    log.exception("on_trust failed")
