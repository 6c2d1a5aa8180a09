"""Messages: what arrives (`Received`, the base of requests and replies) and what is sent."""

from __future__ import annotations

import json
from ctypes import byref, c_bool, c_char, c_uint32, c_uint64, c_void_p, string_at
from typing import Any, Callable, Dict, Mapping, Optional, Protocol, Tuple

from . import _ffi
from ._body import BORROW_FROM, Body, add_body, encode_json
from ._ffi import EMPTY, OutSlice, Slice, Status, bind, take, text
from ._trace import child_trace, read_trace
from .errors import ResponseError, check, fail, read_error

_event_release = bind("blip_event_release")
_request_new = bind("blip_request_new")
_response_new = bind("blip_response_new")
_release = bind("blip_message_release")
_body = bind("blip_message_body")
_body_size = bind("blip_message_body_size")
_properties = bind("blip_message_properties")
_property = bind("blip_message_property")
_profile = bind("blip_message_profile")
_number = bind("blip_message_number")
_flags = bind("blip_message_flags")
_complete = bind("blip_message_is_complete")
_set_properties = bind("blip_message_set_properties")
_set_property = bind("blip_message_set_property")
_set_flags = bind("blip_message_set_flags")
_set_compressed = bind("blip_message_set_compressed")
_set_urgent = bind("blip_message_set_urgent")
_set_content_type = bind("blip_message_set_content_type")
_error = bind("blip_message_error")
_set_error = bind("blip_response_set_error")
_respond = bind("blip_message_respond")
_respond_data = bind("blip_message_respond_data")
_respond_text = bind("blip_message_respond_text")
_respond_json = bind("blip_message_respond_json")
_respond_empty = bind("blip_message_respond_empty")
_respond_error = bind("blip_message_respond_error")

COMPRESSED = _ffi.FLAG_COMPRESSED
URGENT = _ffi.FLAG_URGENT
NO_REPLY = _ffi.FLAG_NO_REPLY

Properties = Mapping[str, str]


class Keeper(Protocol):
    """Keeps an object alive until a message has been sent."""

    def keep(self, message: int, value: object) -> int: ...

    def forget(self, context: int) -> None: ...


def encode_properties(properties: Properties) -> bytes:
    """key NUL value NUL ..., as the library takes them in one call."""
    parts = []
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"property {key!r}: keys and values are str, not {type(value).__name__}")
        parts.append(key)
        parts.append(value)
    joined = "\0".join(parts) + "\0" if parts else ""
    if joined.count("\0") != len(parts):
        raise ValueError("a property must not contain a NUL character")
    return joined.encode()


def decode_properties(encoded: bytes) -> Dict[str, str]:
    """Of keys that come twice the first counts."""
    parts = encoded.decode("utf-8", "replace").split("\0")
    result: Dict[str, str] = {}
    for index in range(0, len(parts) - 1, 2):
        result.setdefault(parts[index], parts[index + 1])
    return result


_profiles: Dict[str, Slice] = {}


def profile_slice(profile: str) -> Slice:
    found = _profiles.get(profile)
    if found is None:
        if len(_profiles) >= 1024:
            _profiles.clear()
        found = _profiles[profile] = text(profile)
    return found


def new_request(
    profile: str,
    properties: Optional[Properties],
    content_type: Optional[str],
    flags: int,
) -> int:
    """A request without its body. The caller releases it."""
    out = c_void_p()
    status = _request_new(EMPTY if properties else profile_slice(profile), byref(out))
    if status < 0:
        fail(status, f"profile {profile!r}")
    message: int = out.value  # type: ignore[assignment]
    try:
        if properties:
            merged = {"Profile": profile} if profile else {}
            for key, value in properties.items():
                merged.setdefault(key, value)
            encoded = encode_properties(merged)
            check(_set_properties(message, Slice(encoded, len(encoded))), "properties")
        if content_type is not None:
            check(_set_content_type(message, text(content_type)), "content type")
        if flags:
            check(_set_flags(message, flags))
    except BaseException:
        _release(message)
        raise
    return message


def finish_options(message: int, body: object, content_type: Optional[str], compressed: Optional[bool]) -> None:
    """What text and JSON bodies chose by themselves gives way to what was asked for."""
    if content_type is not None and isinstance(body, (str, dict, list)):
        check(_set_content_type(message, text(content_type)), "content type")
    if compressed is False and isinstance(body, (dict, list)):
        check(_set_compressed(message, False))


class Received:
    """A message that has arrived. It holds the library's message; copies are made when first asked for."""

    __slots__ = ("_event", "_handle", "_streaming", "_data_context", "_bytes", "_decoded", "__weakref__")

    def __init__(self, event: int, handle: int) -> None:
        self._event = event
        self._handle = handle
        # Whether there is more of a streamed body to come.
        self._streaming = False
        self._data_context = 0
        self._bytes: Optional[bytes] = None
        self._decoded: Optional[Dict[str, str]] = None

    def __del__(self, release: Callable[[int], None] = _event_release) -> None:
        event = self._event
        if event:
            self._event = 0
            if self._streaming:
                self._abandon(event)
            else:
                release(event)

    def __repr__(self) -> str:
        # Neither properties nor body, which may be secret; and it never raises.
        number, size = c_uint64(), c_uint64()
        if _number(self._handle, byref(number)) < 0 or _body_size(self._handle, byref(size)) < 0:
            return f"<blip {type(self).__name__.lower()}>"
        return f"<blip {type(self).__name__.lower()} {number.value}, {size.value} bytes>"

    def _abandon(self, event: int) -> None:
        """Nobody will read the rest of the body. Releases the event."""
        _event_release(event)

    @property
    def body(self) -> bytes:
        """The whole body."""
        data = self._bytes
        if data is None:
            out = OutSlice()
            status = _body(self._handle, byref(out))
            if status < 0:
                hint = "the body is streamed: use stream() or read()" if status == Status.NOT_COMPLETE else "body"
                fail(status, hint)
            data = self._bytes = string_at(out.data, out.size) if out.size else b""
        return data

    @property
    def memory(self) -> memoryview:
        """The whole body without a copy, read-only; it keeps the message alive."""
        if self._bytes is not None:
            return memoryview(self._bytes)
        out = OutSlice()
        check(_body(self._handle, byref(out)), "body")
        if not out.size:
            return memoryview(b"")
        array: Any = (c_char * out.size).from_address(out.data)
        array.message = self
        return memoryview(array).cast("B").toreadonly()

    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body's JSON value. ValueError if it is none."""
        return json.loads(self.body)

    @property
    def properties(self) -> Dict[str, str]:
        """All properties, Profile and Content-Type among them."""
        found = self._decoded
        if found is None:
            out = OutSlice()
            check(_properties(self._handle, byref(out)), "properties")
            found = self._decoded = decode_properties(take(out))
        return found

    def get(self, key: str, default: Optional[str] = None) -> Optional[str]:
        """One property."""
        return self.properties.get(key, default)

    @property
    def content_type(self) -> Optional[str]:
        return self.get("Content-Type")

    @property
    def trace(self) -> Optional[Dict[str, str]]:
        """The W3C trace context: "traceparent" and maybe "tracestate", if it has a well-formed one."""
        return read_trace(self._handle)

    def child_trace(self) -> Dict[str, str]:
        """Properties that put a request, sent because of this message, into its trace; none if it has no trace."""
        return child_trace(self._handle)

    @property
    def number(self) -> int:
        """The number that request and reply share on their connection."""
        out = c_uint64()
        check(_number(self._handle, byref(out)))
        return out.value

    @property
    def is_complete(self) -> bool:
        out = c_bool()
        check(_complete(self._handle, byref(out)))
        return out.value

    @property
    def body_size(self) -> int:
        """Bytes of the body that have arrived so far."""
        out = c_uint64()
        check(_body_size(self._handle, byref(out)))
        return out.value

    def _get_flags(self) -> int:
        out = c_uint32()
        check(_flags(self._handle, byref(out)))
        return out.value

    @property
    def compressed(self) -> bool:
        return bool(self._get_flags() & COMPRESSED)

    @property
    def urgent(self) -> bool:
        return bool(self._get_flags() & URGENT)


class Response:
    """What a handler returns when bytes, str or a dict do not say enough."""

    __slots__ = ("body", "properties", "content_type", "compressed", "urgent")

    def __init__(
        self,
        body: Body = None,
        *,
        properties: Optional[Properties] = None,
        content_type: Optional[str] = None,
        compressed: Optional[bool] = None,
        urgent: Optional[bool] = None,
    ) -> None:
        self.body = body
        self.properties = properties
        self.content_type = content_type
        self.compressed = compressed
        self.urgent = urgent


def response_error(handle: int, reply: object) -> ResponseError:
    """The exception for an error reply that has arrived whole."""
    out = c_void_p()
    check(_error(handle, byref(out)), "error of a reply")
    domain, code, words = read_error(out.value or 0)
    out_properties = OutSlice()
    check(_properties(handle, byref(out_properties)), "properties")
    details = decode_properties(take(out_properties))
    for key in ("Error-Domain", "Error-Code"):
        details.pop(key, None)
    return ResponseError(code, words, domain, reply=reply, details=details)


def begin_response(request: int, response: Response) -> Tuple[int, int]:
    """A response with everything but its body, which the caller releases, and a status: if negative, there is none."""
    out = c_void_p()
    status = _response_new(request, byref(out))
    if status < 0:
        return 0, status
    message: int = out.value  # type: ignore[assignment]
    try:
        if response.properties:
            for key, value in response.properties.items():
                if not isinstance(key, str) or not isinstance(value, str):
                    raise TypeError(f"property {key!r}: keys and values are str, not {type(value).__name__}")
                check(_set_property(message, text(key), text(value)), f"property {key!r}")
        if response.content_type is not None:
            check(_set_content_type(message, text(response.content_type)), "content type")
        if response.compressed is not None:
            check(_set_compressed(message, response.compressed))
        if response.urgent is not None:
            check(_set_urgent(message, response.urgent))
    except BaseException:
        _release(message)
        raise
    return message, 0


def answer(request: int, result: Any, keeper: Keeper) -> int:
    """Responds with what a handler returned, unless it comes in pieces. The result is the status of responding."""
    kind = type(result)
    if kind is bytes:
        if len(result) < BORROW_FROM:
            return _respond_data(request, Slice(result, len(result)), EMPTY)  # type: ignore[no-any-return]
    elif result is None:
        return _respond_empty(request)  # type: ignore[no-any-return]
    elif kind is str:
        data = result.encode()
        return _respond_text(request, Slice(data, len(data)))  # type: ignore[no-any-return]
    elif kind is dict or kind is list:
        data = encode_json(result)
        return _respond_json(request, Slice(data, len(data)))  # type: ignore[no-any-return]
    response = result if isinstance(result, Response) else Response(result)
    status: int
    message, status = begin_response(request, response)
    if status < 0:
        return status
    try:
        keep = add_body(message, response.body) if response.body is not None else None
        finish_options(message, response.body, response.content_type, response.compressed)
        context = keeper.keep(message, keep) if keep is not None else 0
        status = _respond(request, message)
        if status < 0 and context:
            keeper.forget(context)
        return status
    finally:
        _release(message)


def answer_error(request: int, error: ResponseError) -> int:
    words = error.text.encode()
    status: int
    if not error.details:
        status = _respond_error(request, text(error.domain), error.code, Slice(words, len(words)))
        return status
    message, status = begin_response(request, Response(properties=error.details))
    if status < 0:
        return status
    try:
        check(_set_error(message, text(error.domain), error.code, Slice(words, len(words))), "error")
        status = _respond(request, message)
        return status
    finally:
        _release(message)


# Statuses of responding that say only that nobody waits for the answer.
NOBODY_WAITS = frozenset(
    (
        Status.NO_REPLY,
        Status.ALREADY_RESPONDED,
        Status.CLOSED,
        Status.PEER_CLOSED,
        Status.CONNECTION_LOST,
        Status.PEER_SILENT,
        Status.STOPPED,
    )
)
