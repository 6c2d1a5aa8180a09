"""Certificates that the program judges."""

from __future__ import annotations

from ctypes import byref, c_int32
from typing import Any, Awaitable, Callable, List, Optional, Union

from ._ffi import OutSlice, Status, bind, take
from ._pump import Pump
from ._question import Question, ask
from .errors import check

TrustHandler = Callable[["Trust"], Union[Optional[bool], Awaitable[Optional[bool]]]]

_trust_certificate = bind("blip_trust_certificate")
_trust_host = bind("blip_trust_host")
_trust_verdict = bind("blip_trust_verdict")
_trust_accept = bind("blip_trust_accept")
_trust_reject = bind("blip_trust_reject")
_event_trust = bind("blip_event_trust")
_event_connection = bind("blip_event_connection")
_connection_remote_address = bind("blip_connection_remote_address")
_connection_set_trust_callback = bind("blip_connection_set_trust_callback")
_listener_set_trust_callback = bind("blip_listener_set_trust_callback")


class Trust(Question):
    """A peer's certificate, to be accepted or refused once, now or later and on any thread. When the last reference
    is gone without an answer, it is refused."""

    __slots__ = ("_handle",)

    def __init__(self, event: int) -> None:
        super().__init__(event)
        self._handle: int = _event_trust(event) or 0

    def __repr__(self) -> str:
        return f"<blip certificate of {self.host or self.remote_address}: {self.text}>"

    @property
    def host(self) -> Optional[str]:
        """Whom the certificate should be for; None: nobody in particular, as of clients."""
        out = OutSlice()
        status = _trust_host(self._handle, byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status)
        return take(out).decode("utf-8", "replace")

    @property
    def remote_address(self) -> Optional[str]:
        """Where the peer is, such as "127.0.0.1:4984"; None if its connection has ended."""
        out = OutSlice()
        if _connection_remote_address(_event_connection(self._event), byref(out)) < 0:
            return None
        return take(out).decode("utf-8", "replace") or None

    @property
    def certificates(self) -> List[bytes]:
        """What the peer has sent, in DER: its own certificate first."""
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

    def _give(self, answer: Optional[bool]) -> None:
        """None: the function has answered itself, or will."""
        if answer is not None:
            (self.accept if answer else self.reject)()

    def _reject(self) -> None:
        _trust_reject(self._handle)


def take_trust(connection: Any, pump: Pump, function: TrustHandler) -> None:
    """Asks the function about the server's certificate."""
    ask(connection, pump, _connection_set_trust_callback, lambda _, event: Trust(event), function, "on_trust")


def take_trust_of_clients(listener: Any, pump: Pump, function: TrustHandler) -> None:
    """Asks the function about the certificates of clients that connect from now on."""
    ask(listener, pump, _listener_set_trust_callback, lambda _, event: Trust(event), function, "on_trust")
