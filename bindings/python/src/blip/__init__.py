"""BLIP messaging over WebSocket: client and server, for asyncio. `blip.sync` has the same without asyncio.

::

    async with blip.connect("ws://localhost:4984/chat") as connection:
        reply = await connection.request("profile", b"body", properties={"key": "value"})
        print(reply.json())
"""

from __future__ import annotations

from . import sync
from ._asyncio import (
    Connection,
    Listener,
    Pool,
    Reconnector,
    Reply,
    Request,
    connect,
    connect_transport,
    pair,
    reconnect,
    serve,
)
from ._streams import StreamTransport
from ._transport import Transport
from ._trust import Trust
from ._authentication import Challenge, clear_cookies, cookies, hash_password, set_cookie
from ._body import Body
from ._connection import IP_POLICIES, LIMITS
from ._counters import COUNTERS, Counters, counters, metrics_text
from ._ffi import LIBRARY_PATH, TLS_1_2, TLS_1_3, Status
from ._ffi import VERSION as LIBRARY_VERSION
from ._life import OBSERVATIONS, Observation, Observer
from ._log import set_log
from ._message import Response
from ._trace import new_trace
from ._watch import Frame, Stall
from .errors import (
    Cancelled,
    ConnectionClosed,
    ConnectionFailed,
    ConnectTimedOut,
    Error,
    LibraryNotFound,
    ListenFailed,
    ProtocolError,
    ResponseError,
    TimeoutError,
    UsageError,
)

__version__ = "1.0.0"

__all__ = [
    "COUNTERS",
    "LIBRARY_PATH",
    "LIBRARY_VERSION",
    "IP_POLICIES",
    "LIMITS",
    "OBSERVATIONS",
    "TLS_1_2",
    "TLS_1_3",
    "Body",
    "Cancelled",
    "Challenge",
    "ConnectTimedOut",
    "Connection",
    "ConnectionClosed",
    "ConnectionFailed",
    "Counters",
    "Error",
    "Frame",
    "LibraryNotFound",
    "ListenFailed",
    "Listener",
    "Observation",
    "Observer",
    "Pool",
    "ProtocolError",
    "Reconnector",
    "Reply",
    "Request",
    "Response",
    "ResponseError",
    "Stall",
    "Status",
    "StreamTransport",
    "TimeoutError",
    "Transport",
    "Trust",
    "UsageError",
    "clear_cookies",
    "connect",
    "connect_transport",
    "cookies",
    "counters",
    "hash_password",
    "metrics_text",
    "new_trace",
    "pair",
    "reconnect",
    "serve",
    "set_cookie",
    "set_log",
    "sync",
]
