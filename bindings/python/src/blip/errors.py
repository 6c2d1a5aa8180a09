"""The exceptions of this package. All of them are `Error`."""

from __future__ import annotations

import builtins
from ctypes import byref, c_int64, c_void_p
from typing import Callable, Dict, Mapping, NoReturn, Optional, Tuple, Type

from ._ffi import OutSlice, Slice, Status, bind, take
from ._library import LibraryNotFound

__all__ = [
    "Cancelled",
    "ConnectTimedOut",
    "ConnectionClosed",
    "ConnectionFailed",
    "Error",
    "LibraryNotFound",
    "ListenFailed",
    "ProtocolError",
    "ResponseError",
    "TimeoutError",
    "UsageError",
]

_status_name = bind("blip_status_name")
_status_message = bind("blip_status_message")
_error_domain = bind("blip_error_domain")
_error_code = bind("blip_error_code")
_error_message = bind("blip_error_message")
_error_release = bind("blip_error_release")
_connection_error = bind("blip_connection_error")
_reconnector_error = bind("blip_reconnector_error")
_connection_url = bind("blip_connection_url")
_listener_error = bind("blip_listener_error")
_url_check = bind("blip_url_check")


class Error(Exception):
    """What went wrong: `status` of the library, and where there is more to say, `domain` and `code`.

    Domains: "BLIP", "WebSocket", "HTTP", "POSIX", "TLS", "DNS", or one of the peer's. Empty: no detail.
    """

    def __init__(self, message: str, *, status: int = 0, domain: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.domain = domain
        self.code = code

    def __str__(self) -> str:
        return self.message


class UsageError(Error, ValueError):
    """An argument that cannot be used, or a call that does not fit the object it was made on."""


class ConnectionFailed(Error, ConnectionError):
    """The connection could not be made: name, network, TLS, HTTP or subprotocol."""


class ListenFailed(Error):
    """Listening could not begin: the address, or the certificate, key or CA file."""


class ConnectionClosed(Error, ConnectionError):
    """The connection is closed, by either side, or was lost."""


class TimeoutError(Error, builtins.TimeoutError):
    """Something did not happen in time."""


class ConnectTimedOut(TimeoutError, ConnectionFailed):
    """The connection could not be made in time."""


class Cancelled(Error):
    """The request was cancelled."""


class ProtocolError(Error):
    """The peer broke BLIP or WebSocket, or a message of its cannot be read."""


class ResponseError(Error):
    """An error response. `request` raises it for the peer's; a handler raises it to answer with an error.

    details: properties of the response besides domain and code.
    """

    def __init__(
        self,
        code: int,
        text: str = "",
        domain: str = "BLIP",
        *,
        reply: object = None,
        details: Optional[Mapping[str, str]] = None,
    ) -> None:
        super().__init__(f"{domain}/{code}: {text}" if text else f"{domain}/{code}", domain=domain, code=code)
        self.text = text
        self.reply = reply
        self.details: Dict[str, str] = dict(details or {})


_CLASSES = {
    Status.FORKED: Error,
    Status.WOULD_DEADLOCK: Error,
    Status.UNSUPPORTED: Error,
    Status.CLOSED: ConnectionClosed,
    Status.STOPPED: ConnectionClosed,
    Status.PEER_CLOSED: ConnectionClosed,
    Status.CONNECTION_LOST: ConnectionClosed,
    Status.PEER_SILENT: ConnectionClosed,
    Status.CANCELLED: Cancelled,
    Status.TIMEOUT: TimeoutError,
    Status.FILE: Error,
}


def _class_of(status: int) -> Type[Error]:
    known = _CLASSES.get(status)  # type: ignore[call-overload]
    if known is not None:
        return known  # type: ignore[no-any-return]
    if -50 < status < 0:
        return UsageError
    if -200 < status <= -100:
        return ProtocolError
    if -500 < status <= -200:
        return ConnectionFailed
    return Error


def _describe(status: int) -> str:
    text: bytes = _status_message(status)
    name: bytes = _status_name(status)
    return f"{text.decode()} ({name.decode()})"


def _build(kind: Type[Error], status: int, what: str, detail: int) -> Error:
    domain, code, text = read_error(detail) if detail else ("", 0, "")
    known = text or _describe(status)
    return kind(f"{what}: {known}" if what else known, status=status, domain=domain, code=code)


def read_error(detail: int) -> Tuple[str, int, str]:
    """Domain, code and text of a blip_error."""
    domain, code, text = OutSlice(), c_int64(), OutSlice()
    _error_domain(detail, byref(domain))
    _error_code(detail, byref(code))
    _error_message(detail, byref(text))
    return take(domain).decode("utf-8", "replace"), code.value, take(text).decode("utf-8", "replace")


def _detail(getter: Callable[..., int], handle: Optional[int]) -> int:
    out = c_void_p()
    if handle and getter(handle, byref(out)) == 0:
        return out.value or 0
    return 0


def failure(status: int, what: str = "", handle: Optional[int] = None) -> Error:
    """The exception for a negative status; the own error of the connection, or reconnector, is told where it is the
    reason."""
    kind = _class_of(status)
    if kind not in (ConnectionClosed, ConnectionFailed, ProtocolError):
        return _build(kind, status, what, 0)
    lent = _detail(_connection_error, handle)
    ours = _detail(_reconnector_error, handle) if not lent else 0
    try:
        return _build(kind, status, what, lent or ours)
    finally:
        if ours:
            _error_release(ours)


def url_slice(url: str) -> Slice:
    """A URL for the library. No exception here quotes it: it may hold a password."""
    if not isinstance(url, str):
        raise TypeError(f"a URL must be a str, not {type(url).__name__}")
    data = url.encode("utf-8", "surrogatepass")
    return Slice(data, len(data))


def url_failure(status: int, url: Slice) -> Error:
    """The exception for a connection that could not be made of a URL: what is wrong with it, and where.

    A URL that cannot be read is not quoted, for nobody knows where a password in it would be.
    """
    kind = _class_of(status)
    if status != Status.URL:
        return _build(kind, status, "cannot connect", 0)
    detail = c_void_p()
    try:
        _url_check(url, byref(detail))
        return _build(kind, status, "cannot connect", detail.value or 0)
    finally:
        if detail.value:
            _error_release(detail.value)


def connect_failure(status: int, connection: int) -> Error:
    """The exception for a connection that failed. Its URL is the library's, without user name and password."""
    out = OutSlice()
    url = take(out).decode("utf-8", "replace") if _connection_url(connection, byref(out)) >= 0 else ""
    kind = ConnectTimedOut if status == Status.TIMEOUT else ConnectionFailed
    if status in (Status.FORKED, Status.HANDLE):
        kind = Error  # type: ignore[assignment]
    what = f"cannot connect to {url}" if url else "cannot connect"
    return _build(kind, status, what, _detail(_connection_error, connection))


def listener_failure(status: int, what: str, listener: Optional[int]) -> Error:
    kind = ListenFailed if status <= -100 else _class_of(status)
    return _build(kind, status, what, _detail(_listener_error, listener))


def fail(status: int, what: str = "") -> NoReturn:
    raise failure(status, what)


def check(status: int, what: str = "") -> None:
    """Raises for a negative status."""
    if status < 0:
        raise failure(status, what)
