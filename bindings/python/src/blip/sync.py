"""The same as the package's asyncio interface, for programs without asyncio.

    with blip.sync.connect("ws://localhost:4984/chat") as connection:
        print(connection.request("profile", b"body").json())

All objects may be used from several threads. Handlers run one after another on a thread of the package, or
on `workers` threads of their own; streaming handlers on a thread each.
"""

from __future__ import annotations

import inspect
import threading
import time
from _thread import get_ident
from ctypes import byref, c_int32, c_size_t, create_string_buffer, string_at
from queue import SimpleQueue
from types import TracebackType
from typing import (
    Any,
    Callable,
    Generator,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
    overload,
)

from . import _ffi
from ._body import BORROW_FROM, WHOLE, Body, FilePieces, add_body, pieces_of, portions
from ._bye import Permission, take_close_requests
from ._authentication import ChallengeHandler, take_challenges
from ._trust import TrustHandler, take_trust, take_trust_of_clients
from ._connection import (
    BACKLOG,
    BaseConnection,
    BaseListener,
    BaseRequest,
    Headers,
    Identity,
    PathLike,
    milliseconds,
    new_connection,
    new_connection_over,
    new_connection_to,
    new_listener,
    new_pair,
    url_of,
)
from ._driver import thread_driver
from ._streams import PipeTransport
from ._transport import Transport
from ._feed import AGAIN, CLOSED, Feed
from ._ffi import Slice, Status, bind, bind_waiting
from ._message import (
    COMPRESSED,
    NO_REPLY,
    URGENT,
    Properties,
    Received,
    Response,
    answer,
    begin_response,
    finish_options,
    new_request,
    response_error,
)
from ._pump import (
    PIECE,
    HandlerCall,
    OwnerCall,
    ThreadPump,
    Waiter,
    event_value,
    log,
    new_context,
    rest_if_ending,
    thread_pump,
)
from ._life import (
    BasePool,
    BaseReconnector,
    Observation,
    Observer,
    new_pool,
    observe_connection,
    observe_listener,
    pool_connection,
    release_connection,
)
from ._watch import FrameFunction, StallFunction, is_watched, watch_connection, watch_listener
from .errors import Error, ResponseError, TimeoutError, check, connect_failure, failure, listener_failure

__all__ = [
    "Connection",
    "Listener",
    "PipeTransport",
    "Pool",
    "Reconnector",
    "Reply",
    "Request",
    "Response",
    "ResponseError",
    "connect",
    "connect_transport",
    "pair",
    "reconnect",
    "serve",
]

_connection_wait_open = bind_waiting("blip_connection_wait_open")
_connection_wait_closed = bind_waiting("blip_connection_wait_closed")
_connection_send = bind("blip_connection_send")
_connection_set_close_callback = bind("blip_connection_set_close_callback")
_connection_ping = bind("blip_connection_ping")
_connection_say_bye = bind("blip_connection_say_bye")
_connection_set_close_request_callback = bind("blip_connection_set_close_request_callback")
_event_status = bind("blip_event_status")
_event_message = bind("blip_event_message")
_event_release = bind("blip_event_release")
_message_release = bind("blip_message_release")
_message_type = bind("blip_message_type")
_message_cancel = bind("blip_message_cancel")
_message_append_body = bind("blip_message_append_body")
_message_set_timeout = bind("blip_message_set_timeout")
_message_set_streamed = bind("blip_message_set_streamed")
_message_set_progress_callback = bind("blip_message_set_progress_callback")
_message_set_sent_callback = bind("blip_message_set_sent_callback")
_message_read_wait = bind_waiting("blip_message_read_wait")
_message_respond = bind("blip_message_respond")
_reconnector_new = bind_waiting("blip_reconnector_new")
_reconnector_send = bind("blip_reconnector_send")
_reconnector_wait_stopped = bind_waiting("blip_reconnector_wait_stopped")
_reconnector_wait_open = bind_waiting("blip_reconnector_wait_open")
_listener_set_close_request_callback = bind("blip_listener_set_close_request_callback")
_listener_wait_stopped = bind_waiting("blip_listener_wait_stopped")

Handler = Callable[["Request"], Union[Body, Response]]
AnyHandler = Callable[["Request"], Any]
HandlerFunction = TypeVar("HandlerFunction", bound=AnyHandler)

READ_SIZE = 64 * 1024


def _failure(status: int, what: str, handle: Optional[int] = None) -> Error:
    rest_if_ending()
    return failure(status, what, handle)


def _in_pieces(call: Callable[[int], int], timeout: Optional[float]) -> int:
    """Waits in C, a piece at a time, so that Ctrl-C gets through; TIMEOUT only when the whole time is over."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        piece = PIECE
        if deadline is not None:
            piece = max(0, min(PIECE, milliseconds(max(0.0, deadline - time.monotonic()))))
        status = call(piece)
        if status != Status.TIMEOUT or (deadline is not None and time.monotonic() >= deadline):
            return status


def _portions(pieces: Any) -> Generator[Tuple[Slice, object], None, None]:
    try:
        for piece in pieces:
            yield from portions(piece)
    finally:
        if inspect.isgenerator(pieces) or isinstance(pieces, FilePieces):
            pieces.close()


class _FeedWaiter(Waiter):
    """Waits for the end of a request whose body is still being handed over."""

    __slots__ = ("_feed",)

    def __init__(self, feed: ThreadFeed) -> None:
        super().__init__()
        self._feed = feed

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        self._feed._may_go_on()


class ThreadFeed(Feed):
    """A feed whose iterator runs on the thread that sends the message."""

    _pump: ThreadPump

    def __init__(
        self, pump: ThreadPump, message: int, pieces: Any, progress: Optional[Callable[[int], None]] = None
    ) -> None:
        super().__init__(pump, message, progress)
        if not hasattr(pieces, "__iter__"):
            self.leave()
            super().let_go()
            raise TypeError("an asynchronous iterator can only be a body in the asyncio interface")
        self._portions = _portions(pieces)
        self._moved = Waiter()
        self.sent = Waiter()
        self.result = _FeedWaiter(self)

    def start(self, timeout: Optional[float] = None) -> Optional[float]:
        """Puts the first piece into the message; how much of the time is left."""
        start = time.monotonic()
        for memory, _ in self._portions:
            self._push(memory)
            break
        else:
            self._push_end()
        return None if timeout is None else max(0.0, timeout - (time.monotonic() - start))

    def run(self) -> None:
        """Hands over what follows, unless the message or its request fails meanwhile."""
        for memory, _ in self._portions:
            while True:
                # Before anything is looked at, so that nothing gets lost between looking and waiting.
                moved = self._moved = Waiter()
                if type(self.result.result) is int:
                    return
                status = self._push(memory)
                if status != AGAIN:
                    break
                self._pump.wait(moved)
            if status == CLOSED:
                return
        self._push_end()

    def let_go(self) -> None:
        self._portions.close()
        super().let_go()

    def _did_send(self, status: int) -> None:
        self.sent.set_result((status,))

    def _may_go_on(self) -> None:
        moved = self._moved
        if not moved.done():
            moved.set_result(True)


class _Streamable(Received):
    __slots__ = ()

    def stream(self, timeout: Optional[float] = None) -> Iterator[bytes]:
        """The body as it arrives; timeout: the longest wait for a next piece."""
        if not self._streaming:
            if self.body:
                yield self.body
            return
        buffer = create_string_buffer(READ_SIZE)
        size = c_size_t()

        def read(piece: int) -> int:
            return _message_read_wait(self._handle, buffer, READ_SIZE, piece, byref(size))  # type: ignore[no-any-return]

        while True:
            status = _in_pieces(read, timeout)
            if status < 0 and status != Status.TIMEOUT:
                self._streaming = False
            if status < 0:
                raise _failure(status, "the body did not arrive whole")
            if status == _ffi.DATA_END:
                self._streaming = False
            if status != _ffi.AGAIN and size.value:
                yield string_at(buffer, size.value)
            if status == _ffi.DATA_END:
                return

    def read(self, timeout: Optional[float] = None) -> bytes:
        """The rest of the body, once it is there."""
        return b"".join(self.stream(timeout)) if self._streaming else self.body


class Reply(_Streamable):
    """The reply to a request."""

    __slots__ = ()


class Request(BaseRequest, _Streamable):
    """A request of the peer's, as a handler gets it."""

    __slots__ = ()

    def __init__(self, event: int, handle: int, owner: Any, stream: bool) -> None:
        super().__init__(event, handle, owner)
        self._streaming = stream

    @property
    def connection(self) -> Connection:
        """The connection it came by, on which the handler may send requests of its own.

        Raises `ConnectionClosed` if that has ended.
        """
        return cast(Connection, self._owner._connection_of(self._event))

    def respond(self, result: Union[Body, Response] = None) -> None:
        """Answers now, from any thread. What the handler returns later is ignored."""
        self._answered = True
        check(self._answer(result), "respond")

    def _answer(self, result: Any) -> int:
        response = result if isinstance(result, Response) else Response(result)
        pieces = pieces_of(response.body)
        if pieces is None:
            return answer(self._handle, result, self._owner._pump)
        status: int
        message, status = begin_response(self._handle, response)
        if status < 0:
            return status
        feed: Optional[ThreadFeed] = None
        try:
            feed = ThreadFeed(self._owner._pump, message, pieces)
            feed.start()
            status = _message_respond(self._handle, message)
            if status >= 0:
                self._answered = True
                feed.run()
                (status,) = self._owner._pump.wait(feed.sent)
            return status
        finally:
            _message_release(message)
            if feed is not None:
                feed.let_go()
                feed.leave()

    def _run(self, function: AnyHandler) -> None:
        try:
            result = function(self)
            body = result.body if isinstance(result, Response) else result
            is_whole = type(body) in WHOLE or pieces_of(body) is None
        except BaseException as error:
            self._fail(error)
            return
        if is_whole or self._answered:
            self._finish(result)
        else:
            self._owner._run_apart(lambda: self._finish(result))

    def _finish(self, result: Any) -> None:
        try:
            if not self._answered:
                status = self._answer(result)
                self._answered = True
                self._done(status)
        except BaseException as error:
            self._fail(error)


class _Workers:
    """Threads that run handlers. They end when their owner does."""

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()
        self._count = count
        for number in range(count):
            target = _Workers._work
            threading.Thread(target=target, args=(self._jobs,), name=f"blip-worker-{number}", daemon=True).start()

    def __del__(self) -> None:
        for _ in range(self._count):
            self._jobs.put(None)

    @staticmethod
    def _work(jobs: SimpleQueue[Optional[Callable[[], None]]]) -> None:
        while True:
            job = jobs.get()
            if job is None:
                return
            job()
            del job

    def run(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)


class _Handlers:
    _pump: ThreadPump
    _workers: Optional[_Workers]

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        raise NotImplementedError

    @overload
    def handler(self, profile: HandlerFunction) -> HandlerFunction: ...

    @overload
    def handler(
        self, profile: Optional[str] = None, *, stream: bool = False
    ) -> Callable[[HandlerFunction], HandlerFunction]: ...

    def handler(self, profile: Union[str, None, AnyHandler] = None, *, stream: bool = False) -> Any:
        """Decorator: the function answers requests of that profile.

        It gets the `Request` and returns bytes, str, a dict or list (sent as JSON), any other body, a
        `Response`, or None for an empty reply. `ResponseError` answers with an error; any other exception
        with BLIP/501, and is logged. Without a profile: for all requests that have no other handler.
        With `stream` it is called as soon as the properties are there, and reads `request.stream()`.
        """
        if callable(profile):
            self.add_handler(None, profile)
            return profile

        def decorate(function: AnyHandler) -> AnyHandler:
            self.add_handler(profile, function, stream=stream)
            return function

        return decorate

    def add_handler(self, profile: Optional[str], function: AnyHandler, *, stream: bool = False) -> None:
        """What the decorator `handler` does, as a call."""
        call = HandlerCall(self, _Handlers._on_request, (function, stream))
        self._register(profile, stream, self._pump.expect(call))
        self._pump.start()

    def _add_handlers(self, handlers: Optional[Mapping[Optional[str], AnyHandler]]) -> None:
        for profile, function in (handlers or {}).items():
            self.add_handler(profile, function)

    def _on_request(self, event: int, argument: Tuple[AnyHandler, bool]) -> None:
        function, stream = argument
        request = Request(event, _event_message(event), self, stream)
        if self._workers is not None:
            self._workers.run(lambda: request._run(function))
        elif stream:
            self._start_thread(lambda: request._run(function))
        else:
            request._run(function)

    def _run_apart(self, job: Callable[[], None]) -> None:
        """Runs what may wait for the peer: not on the thread that all handlers share."""
        if get_ident() == self._pump.thread_ident:
            self._start_thread(job)
        else:
            job()

    @staticmethod
    def _start_thread(job: Callable[[], None]) -> None:
        threading.Thread(target=job, name="blip-stream", daemon=True).start()


class _Sender(_Handlers):
    """Sends requests, through a connection or a reconnector."""

    _handle: int
    _send: Callable[..., int] = staticmethod(_connection_send)
    _workers: Optional[_Workers] = None

    @property
    def backlog(self) -> int:
        """Bytes accepted for sending and not yet handed to the operating system."""
        return 0

    def request(
        self,
        profile: str,
        body: Body = None,
        *,
        properties: Optional[Properties] = None,
        content_type: Optional[str] = None,
        compressed: Optional[bool] = None,
        urgent: bool = False,
        timeout: Optional[float] = None,
        stream: bool = False,
        progress: Optional[Callable[[int], None]] = None,
    ) -> Reply:
        """Sends a request and returns its reply.

        body: bytes or another buffer, str, a dict or list (sent as JSON), a path, a binary file, or an
        iterator of buffers. Buffers of 64 KiB and more are not copied: leave them unchanged until the reply
        is there. timeout: seconds until the reply must be there, whole or, with `stream`, its properties.
        stream: returns when the reply's properties are there; read `reply.stream()`. progress: called, on
        this thread or the package's, with the number of bytes of the body that have been sent.

        An iterator's pieces are sent as they come, and it is asked for more, on this thread, only when the
        peer takes them. What it raises is raised. If that happens after its first piece, or the request is
        late before its last, the connection closes, because BLIP cannot take back what was begun.

        An error reply raises `ResponseError`.
        """
        flags = (COMPRESSED if compressed else 0) | (URGENT if urgent else 0)
        message = new_request(profile, properties, content_type, flags)
        pump = self._pump
        kept = told = 0
        feed: Optional[ThreadFeed] = None
        is_sent = False
        try:
            if body is not None:
                if type(body) is bytes and len(body) < BORROW_FROM:
                    check(_message_append_body(message, Slice(body, len(body))), "body")
                else:
                    pieces = pieces_of(body)
                    if pieces is None:
                        kept = self._add_body(message, body, content_type, compressed)
                    else:
                        feed = ThreadFeed(pump, message, pieces, progress)
                        timeout = feed.start(timeout)
            if timeout is not None:
                check(_message_set_timeout(message, milliseconds(timeout)), "timeout")
            if stream:
                check(_message_set_streamed(message, True))
            if progress is not None and feed is None:
                told = self._tell(message, progress)
            waiter = Waiter() if feed is None else feed.result
            context = new_context()
            pump.waiters[context] = waiter
            status = self._send(self._handle, message, None, context, None)
            if status < 0:
                del pump.waiters[context]
                raise _failure(status, f"request {profile!r}", self._handle)
            is_sent = True
            try:
                if feed is not None:
                    feed.run()
                reply = pump.wait(waiter)
            except BaseException:
                _message_cancel(message)
                raise
        finally:
            _message_release(message)
            if not is_sent:
                pump.forget(kept)
            if feed is not None:
                feed.let_go()
                feed.leave()
            elif told:
                pump.forget(told)
        if type(reply) is int:
            raise _failure(reply or Status.NO_REPLY, f"request {profile!r}", self._handle)
        kind = c_int32()
        _message_type(reply._handle, byref(kind))
        if kind.value == _ffi.MESSAGE_ERROR:
            raise response_error(reply._handle, reply)
        reply._streaming = stream
        return reply  # type: ignore[no-any-return]

    def send(
        self,
        profile: str,
        body: Body = None,
        *,
        properties: Optional[Properties] = None,
        content_type: Optional[str] = None,
        compressed: Optional[bool] = None,
        urgent: bool = False,
        wait: bool = False,
        progress: Optional[Callable[[int], None]] = None,
    ) -> None:
        """Sends a request that wants no reply.

        Returns when it is queued; with `wait`, or when 4 MiB are queued before it, when its last byte has
        been handed to the operating system. progress: see `request`; it and iterators imply `wait`.
        """
        flags = NO_REPLY | (COMPRESSED if compressed else 0) | (URGENT if urgent else 0)
        message = new_request(profile, properties, content_type, flags)
        pump = self._pump
        kept = told = 0
        feed: Optional[ThreadFeed] = None
        is_sent = False
        waiter: Optional[Waiter] = None
        try:
            pieces = pieces_of(body)
            if pieces is not None:
                feed = ThreadFeed(pump, message, pieces, progress)
                feed.start()
                waiter = feed.sent
            elif body is not None:
                kept = self._add_body(message, body, content_type, compressed)
            if progress is not None and feed is None:
                told = self._tell(message, progress)
            if feed is None and (wait or progress is not None or self.backlog > BACKLOG):
                waiter = Waiter()
                kept = self._expect_status(waiter, kept)
                check(_message_set_sent_callback(message, None, kept, None))
            status = self._send(self._handle, message, None, None, None)
            is_sent = status >= 0
            if is_sent:
                if feed is not None:
                    feed.run()
                if waiter is not None:
                    (status,) = pump.wait(waiter)
            if status < 0:
                raise _failure(status, f"message {profile!r}", self._handle)
        finally:
            _message_release(message)
            if not is_sent:
                pump.forget(kept)
            if feed is not None:
                feed.let_go()
                feed.leave()
            elif told:
                pump.forget(told)

    def _add_body(self, message: int, body: Any, content_type: Optional[str], compressed: Optional[bool]) -> int:
        """The context under which the body is kept alive, or 0."""
        keep = add_body(message, body)
        finish_options(message, body, content_type, compressed)
        return self._pump.keep(message, keep) if keep is not None else 0

    def _tell(self, message: int, progress: Callable[[int], None]) -> int:
        def tell(event: int) -> None:
            value = event_value(event)
            _event_release(event)
            progress(value)

        context = self._pump.expect(tell)
        check(_message_set_progress_callback(message, None, context, None))
        return context

    def _expect_status(self, waiter: Waiter, context: int) -> int:
        """A context (that one, if not 0) whose event gives the waiter its status."""
        context = context or new_context()
        pump = self._pump

        def complete(event: int) -> None:
            pump.forget(context)
            waiter.set_result((_event_status(event),))
            _event_release(event)

        pump.calls[context] = complete
        return context

class Connection(_Sender, BaseConnection):
    """A BLIP connection. Made by `connect`, or by a listener."""

    _pump: ThreadPump
    _workers: Optional[_Workers] = None
    backlog = BaseConnection.backlog

    def observe(self, function: Callable[[Observation], Any], *kinds: str) -> Observer:
        """Calls the function with what the connection does; kinds: those of `blip.OBSERVATIONS` that are wanted, or all.

        What this returns has `remove`; letting go of it ends nothing.
        """
        self._pump.start()
        self._observers.append(observer := observe_connection(self._handle, self._pump, function, kinds))
        self._watch_close()
        return observer

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.close_gracefully(timeout=5)
        else:
            self.close()

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        BaseConnection._register(self, profile, stream, context)
        self._watch_close()

    def _watch_close(self) -> None:
        """Has `_did_close` called at the end: the program's functions, which may refer to this object, are let go of."""

    def _connection_of(self, event: int) -> Connection:
        return self

    def _ask(self, call: Callable[[int], int], what: str) -> int:
        """Makes a call whose event has a status and a value; waits for that."""
        waiter = Waiter()
        pump = self._pump

        def complete(event: int) -> None:
            pump.forget(context)
            waiter.set_result((_event_status(event), event_value(event)))
            _event_release(event)

        context = pump.expect(complete)
        status = call(context)
        value: int = 0
        if status < 0:
            pump.forget(context)
        else:
            status, value = pump.wait(waiter)
        if status < 0:
            raise _failure(status, what, self._handle)
        return value

    def ping(self, timeout: Optional[float] = 10) -> float:
        """Sends a WebSocket ping; the seconds until its pong."""
        limit = milliseconds(timeout)
        return self._ask(lambda context: _connection_ping(self._handle, limit, None, context, None), "ping") / 1e6

    def say_bye(self) -> bool:
        """Asks the peer whether the connection may close, by BLIP 1 and 2; see `blip.Connection.say_bye`."""
        return bool(self._ask(lambda context: _connection_say_bye(self._handle, None, context, None), "say_bye"))

    def on_close_request(self, function: Callable[[Connection], Permission]) -> Callable[[Connection], Permission]:
        """Decorator: the function decides whether the peer may close; see `blip.Connection.on_close_request`."""
        take_close_requests(self, self._pump, _connection_set_close_request_callback, function)
        self._watch_close()
        self._pump.start()
        return function

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes now; requests that wait for a reply fail with `ConnectionClosed`."""
        self._start_close(code, reason)
        self.wait_closed()

    def close_gracefully(self, timeout: Optional[float] = None) -> None:
        """Starts no more requests, finishes what is under way, both ways, then closes."""
        self._start_close_gracefully(timeout)
        self.wait_closed()

    def wait_closed(self, timeout: Optional[float] = None) -> None:
        """Returns when the connection is closed, whoever closed it and why."""

        def wait(piece: int) -> int:
            self._pump.poll()
            return _connection_wait_closed(self._handle, piece)  # type: ignore[no-any-return]

        status = _in_pieces(wait, timeout)
        self._pump.poll()
        if status == Status.TIMEOUT and timeout is not None and self.state != "closed":
            raise TimeoutError("the connection is not closed yet", status=status)
        if status in (Status.HANDLE, Status.FORKED, Status.WOULD_DEADLOCK):
            check(status, "wait for the close")


class _ClientConnection(Connection):
    _watches_close = False

    def _watch_close(self) -> None:
        if self._watches_close:
            return
        self._watches_close = True
        context = self._pump.expect(HandlerCall(self, _ClientConnection._on_close, None))
        self._contexts.append(context)
        status = _connection_set_close_callback(self._handle, None, context, None)
        if status == Status.CLOSED:
            self._did_close(status)
        else:
            check(status)

    def _on_close(self, event: int, argument: object) -> None:
        self._did_close(_event_status(event))
        _event_release(event)


def connect(
    url: Optional[str] = None,
    *,
    unix_path: Optional[PathLike] = None,
    path: Optional[str] = None,
    tls: bool = False,
    subprotocols: Union[str, Sequence[str], None] = None,
    headers: Optional[Headers] = None,
    user_agent: Optional[str] = None,
    ca_file: Optional[PathLike] = None,
    verify: bool = True,
    identity: Optional[Identity] = None,
    server_name: Optional[str] = None,
    tls_versions: Optional[Tuple[int, int]] = None,
    credentials: Optional[Tuple[str, str]] = None,
    token: Optional[str] = None,
    preemptive: bool = True,
    on_challenge: Optional[ChallengeHandler] = None,
    on_trust: Optional[TrustHandler] = None,
    on_close_request: Optional[Callable[[Connection], Permission]] = None,
    on_frame: Optional[FrameFunction] = None,
    on_timeout: Optional[StallFunction] = None,
    redirects: Optional[int] = None,
    cookies: bool = False,
    proxy: Optional[str] = None,
    proxy_from_environment: bool = False,
    proxy_ca_file: Optional[PathLike] = None,
    local_address: Optional[Tuple[str, int]] = None,
    ip: Optional[str] = None,
    service_lookup: bool = False,
    fd: Optional[int] = None,
    alpn: Union[str, Sequence[str], None] = None,
    ciphers: Optional[str] = None,
    suites: Optional[str] = None,
    crl_file: Optional[PathLike] = None,
    key_log_file: Optional[PathLike] = None,
    read_timeout: Optional[float] = None,
    write_timeout: Optional[float] = None,
    timeout: Optional[float] = None,
    close_timeout: Optional[float] = None,
    bye_timeout: Optional[float] = None,
    half_close: Optional[float] = None,
    ping: Optional[Tuple[float, int]] = None,
    ping_only_idle: bool = False,
    frame_size: Optional[int] = None,
    compression_level: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
    handlers: Optional[Mapping[Optional[str], AnyHandler]] = None,
    workers: int = 0,
) -> Connection:
    """Connects; the arguments are those of `blip.connect`. workers: threads for this connection's handlers. on_frame,
    on_timeout: called on a thread that all connections with such functions share, so they must not wait."""
    given = dict(locals())
    for name in ("url", "handlers", "workers", "on_challenge", "on_trust", "on_close_request"):
        given.pop(name)
    pump = thread_pump("client", Reply)
    connection = _ClientConnection()
    driver = thread_driver() if is_watched(given) else None
    connection._setup(new_connection(url_of(url, given), pump.queue, given, driver=driver), pump)
    if workers:
        connection._workers = _Workers(workers)
    connection._add_handlers(handlers)
    if on_challenge is not None:
        take_challenges(connection, pump, on_challenge)
    if on_trust is not None:
        take_trust(connection, pump, on_trust)
    if on_close_request is not None:
        connection.on_close_request(on_close_request)
    watch_connection(connection, thread_driver, given)
    if on_challenge is not None or on_trust is not None:
        # While this thread waits, somebody has to answer.
        pump.start()
    return _opened(connection)


def _opened(connection: Connection) -> Connection:
    """The connection, when it is open."""
    try:
        status: int = Status.TIMEOUT
        while status == Status.TIMEOUT:
            ended = connection.state == "closed"
            status = _connection_wait_open(connection._handle, PIECE)
            if ended:
                break
    except BaseException:
        connection._start_close(1001, "")
        raise
    if status < 0:
        rest_if_ending()
        raise connect_failure(status, connection._handle)
    return connection


def connect_transport(
    transport: Transport,
    subprotocol: str = "BLIP_3",
    *,
    read_timeout: Optional[float] = None,
    write_timeout: Optional[float] = None,
    timeout: Optional[float] = None,
    close_timeout: Optional[float] = None,
    frame_size: Optional[int] = None,
    compression_level: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
    on_close_request: Optional[Callable[[Connection], Permission]] = None,
    on_frame: Optional[FrameFunction] = None,
    on_timeout: Optional[StallFunction] = None,
    handlers: Optional[Mapping[Optional[str], AnyHandler]] = None,
    workers: int = 0,
) -> Connection:
    """A connection whose frames the program carries, by a `PipeTransport` or a class of its own, derived from
    `blip.Transport`.

    The arguments are those of `blip.connect_transport` and `connect`. The transport's functions are called on a thread
    that all connections of this kind share, so they must not wait.
    """
    given = dict(locals())
    for name in ("transport", "subprotocol", "handlers", "workers", "on_close_request"):
        given.pop(name)
    pump = thread_pump("client", Reply)
    connection = _ClientConnection()
    connection._setup(new_connection_over(transport, thread_driver(), subprotocol, pump.queue, given), pump)
    if workers:
        connection._workers = _Workers(workers)
    connection._add_handlers(handlers)
    if on_close_request is not None:
        connection.on_close_request(on_close_request)
    watch_connection(connection, thread_driver, given)
    try:
        transport.start()
    except BaseException:
        connection._start_close(1001, "")
        raise
    return _opened(connection)


def pair(
    *,
    subprotocols: Union[str, Sequence[str], None] = None,
    read_timeout: Optional[float] = None,
    write_timeout: Optional[float] = None,
    close_timeout: Optional[float] = None,
    frame_size: Optional[int] = None,
    compression_level: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
) -> Tuple[Connection, Connection]:
    """Two connections that are joined in memory and open; see `blip.pair`."""
    given = dict(locals())
    pump = thread_pump("client", Reply)
    ends = _ClientConnection(), _ClientConnection()
    for end, handle in zip(ends, new_pair(pump.queue, given)):
        end._setup(handle, pump)
    return ends


class _Member(Connection):
    """A connection that a reconnector or a pool has made."""

    def _did_open(self) -> None:
        pass

    def _did_end(self, status: int) -> None:
        self._did_close(status)


class Reconnector(_Sender, BaseReconnector):
    """A connection to one URL, and another one whenever that has ended. Made by `reconnect`."""

    _pump: ThreadPump
    _send = staticmethod(_reconnector_send)

    def __enter__(self) -> Reconnector:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop(timeout=5 if kind is None else 0)

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        BaseReconnector._register(self, profile, stream, context)

    def _connection_of(self, event: int) -> Connection:
        return cast(Connection, BaseReconnector._connection_of(self, event))

    def on_state(self, function: Callable[[str, int], Any]) -> Callable[[str, int], Any]:
        """Decorator: the function is called, on a thread of the package, with each new state and a `Status`."""
        self._pump.start()
        return BaseReconnector.on_state(self, function)

    @property
    def connection(self) -> Optional[Connection]:
        """The connection of the moment."""
        return cast(Optional[Connection], self._current())

    def wait_open(self, timeout: Optional[float] = None) -> None:
        """Returns when a connection is open; raises why there will be none."""

        def wait(piece: int) -> int:
            self._pump.poll()
            return _reconnector_wait_open(self._handle, piece)  # type: ignore[no-any-return]

        status = _in_pieces(wait, timeout)
        if status < 0:
            raise _failure(status, "no connection", self._handle)

    def stop(self, timeout: float = 0) -> None:
        """Ends for ever; the connection closes, gracefully within the timeout."""
        self._stop(timeout)

        def wait(piece: int) -> int:
            self._pump.poll()
            return _reconnector_wait_stopped(self._handle, piece)  # type: ignore[no-any-return]

        check(_in_pieces(wait, None), "stop")
        self._pump.poll()


def reconnect(
    url: Optional[str] = None,
    *,
    unix_path: Optional[PathLike] = None,
    path: Optional[str] = None,
    tls: bool = False,
    subprotocols: Union[str, Sequence[str], None] = None,
    headers: Optional[Headers] = None,
    user_agent: Optional[str] = None,
    ca_file: Optional[PathLike] = None,
    verify: bool = True,
    identity: Optional[Identity] = None,
    server_name: Optional[str] = None,
    tls_versions: Optional[Tuple[int, int]] = None,
    credentials: Optional[Tuple[str, str]] = None,
    token: Optional[str] = None,
    preemptive: bool = True,
    redirects: Optional[int] = None,
    cookies: bool = False,
    proxy: Optional[str] = None,
    proxy_from_environment: bool = False,
    proxy_ca_file: Optional[PathLike] = None,
    local_address: Optional[Tuple[str, int]] = None,
    ip: Optional[str] = None,
    service_lookup: bool = False,
    alpn: Union[str, Sequence[str], None] = None,
    ciphers: Optional[str] = None,
    suites: Optional[str] = None,
    crl_file: Optional[PathLike] = None,
    key_log_file: Optional[PathLike] = None,
    read_timeout: Optional[float] = None,
    write_timeout: Optional[float] = None,
    timeout: Optional[float] = None,
    close_timeout: Optional[float] = None,
    bye_timeout: Optional[float] = None,
    half_close: Optional[float] = None,
    ping: Optional[Tuple[float, int]] = None,
    ping_only_idle: bool = False,
    frame_size: Optional[int] = None,
    compression_level: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
    backoff: Optional[Tuple[float, float, float]] = None,
    attempts: Optional[int] = None,
    stable_time: Optional[float] = None,
    carry_over: bool = False,
    persistent: bool = False,
    handlers: Optional[Mapping[Optional[str], AnyHandler]] = None,
) -> Reconnector:
    """Begins to connect, and does so again whenever the connection has ended; see `blip.reconnect`."""
    given = dict(locals())
    for name in ("url", "handlers"):
        given.pop(name)
    pump = thread_pump("client", Reply)
    reconnector = Reconnector()
    handle = new_connection(url_of(url, given), pump.queue, given, _reconnector_new)
    reconnector._setup(handle, pump, given, _Member)
    reconnector._add_handlers(handlers)
    reconnector._connect()
    return reconnector


class Pool(BasePool):
    """One open connection for each URL; see `blip.Pool`."""

    def __init__(self, *, idle_timeout: Optional[float] = None) -> None:
        pump = thread_pump("client", Reply)
        self._setup(new_pool(pump.queue), pump, idle_timeout, _Member)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def connection(self, url: str, timeout: Optional[float] = None) -> Connection:
        """The open connection to a URL, made if there is none."""
        handle = pool_connection(self._handle, url)
        try:
            connection = cast(Connection, self._family.of(handle))
            status = _in_pieces(lambda piece: _connection_wait_open(handle, piece), timeout)
            if status < 0:
                raise connect_failure(status, handle)
            return connection
        finally:
            release_connection(handle)

    def close(self, code: int = 1001, reason: str = "") -> None:
        """Closes all connections. The pool can be used again."""
        for connection in self._close_all(code, reason):
            connection.wait_closed()


class Listener(_Handlers, BaseListener):
    """Accepts connections. Made by `serve`."""

    _pump: ThreadPump
    _workers: Optional[_Workers] = None

    def observe(self, function: Callable[[Observation], Any], *kinds: str) -> Observer:
        """Calls the function with what its connections do; kinds: those of `blip.OBSERVATIONS` that are wanted, or all.

        What this returns has `remove`; letting go of it ends nothing.
        """
        self._pump.start()
        self._observers.append(observer := observe_listener(self._handle, self._pump, function, kinds))
        return observer

    def _begin(self, handle: int, pump: ThreadPump) -> None:
        self._setup(handle, pump)
        self._callbacks(
            pump.expect,
            HandlerCall(self, Listener._on_accept, None),
            HandlerCall(self, Listener._on_close, None),
            OwnerCall(self, Listener._on_stopped),
        )

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close(graceful=kind is None)

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        BaseListener._register(self, profile, stream, context)

    @property
    def connections(self) -> List[Connection]:
        """The connections that are open now."""
        return list(self._connections.values())

    def on_connect(self, function: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        """Decorator: the function is called with each new connection."""
        self._accept_functions.append(function)
        return function

    def on_close_request(self, function: Callable[[Connection], Permission]) -> Callable[[Connection], Permission]:
        """Decorator: the function decides whether clients that connect from now on may close, which they ask
        for by the message "Bye" of BLIP 1 and 2; see `Connection.on_close_request`."""
        take_close_requests(self, self._pump, _listener_set_close_request_callback, function)
        return function

    def _connection_of(self, event: int) -> Connection:
        return cast(Connection, self._member_of(event))

    def _on_accept(self, event: int, argument: object) -> None:
        try:
            connection = Connection.__new__(Connection)
            self._adopt(event, connection)
            connection._workers = self._workers
            for function in self._accept_functions:
                function(connection)
        except Exception:
            log.exception("on_connect failed")
        finally:
            _event_release(event)

    def _on_close(self, event: int, argument: object) -> None:
        connection = self._connections.pop(self._number_of(event), None)
        if connection is not None:
            connection._did_close(_event_status(event))
        _event_release(event)

    def _on_stopped(self, event: int) -> None:
        pass

    def connect(
        self,
        *,
        subprotocols: Union[str, Sequence[str], None] = None,
        read_timeout: Optional[float] = None,
        write_timeout: Optional[float] = None,
        close_timeout: Optional[float] = None,
        frame_size: Optional[int] = None,
        compression_level: Optional[int] = None,
        limits: Optional[Mapping[str, int]] = None,
        on_close_request: Optional[Callable[[Connection], Permission]] = None,
        handlers: Optional[Mapping[Optional[str], AnyHandler]] = None,
    ) -> Connection:
        """Connects to this listener in memory, without a socket; see `blip.Listener.connect`."""
        given = dict(locals())
        for name in ("self", "handlers", "on_close_request"):
            given.pop(name)
        pump = thread_pump("client", Reply)
        connection = _ClientConnection()
        connection._setup(new_connection_to(self._handle, pump.queue, given), pump)
        connection._add_handlers(handlers)
        if on_close_request is not None:
            connection.on_close_request(on_close_request)
        return _opened(connection)

    def close(self, *, graceful: bool = True, timeout: Optional[float] = 10) -> None:
        """Stops listening and closes the connections: gracefully, within the timeout, or at once."""
        self._stop(graceful, timeout)
        self.wait_closed()

    def wait_closed(self, timeout: Optional[float] = None) -> None:
        """Returns when the listener has stopped and its connections are closed."""

        def wait(piece: int) -> int:
            return _listener_wait_stopped(self._handle, piece)  # type: ignore[no-any-return]

        status = _in_pieces(wait, timeout)
        if status < 0 and status not in (Status.CLOSED, Status.STOPPED):
            raise listener_failure(status, "waiting for the listener to stop", self._handle)


def serve(
    interface: str = "",
    port: int = 0,
    *,
    unix_path: Optional[PathLike] = None,
    fd: Optional[int] = None,
    systemd: Optional[str] = None,
    tls: Optional[Identity] = None,
    client_ca_file: Optional[PathLike] = None,
    client_certificate_required: bool = False,
    tls_versions: Optional[Tuple[int, int]] = None,
    alpn: Union[str, Sequence[str], None] = None,
    ciphers: Optional[str] = None,
    suites: Optional[str] = None,
    crl_file: Optional[PathLike] = None,
    key_log_file: Optional[PathLike] = None,
    read_timeout: Optional[float] = None,
    write_timeout: Optional[float] = None,
    paths: Union[str, Sequence[str], None] = None,
    subprotocols: Union[str, Sequence[str], None] = None,
    handshake_timeout: Optional[float] = None,
    close_timeout: Optional[float] = None,
    bye_timeout: Optional[float] = None,
    half_close: Optional[float] = None,
    ping: Optional[Tuple[float, int]] = None,
    ping_only_idle: bool = False,
    frame_size: Optional[int] = None,
    compression_level: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
    max_connections: Optional[int] = None,
    blip1: bool = False,
    websocket: bool = True,
    realm: Optional[str] = None,
    users: Optional[Mapping[str, str]] = None,
    user_hashes: Optional[Mapping[str, str]] = None,
    origins: Union[str, Sequence[str], None] = None,
    hosts: Union[str, Sequence[str], None] = None,
    metrics_path: Optional[str] = None,
    on_trust: Optional[TrustHandler] = None,
    on_frame: Optional[FrameFunction] = None,
    on_timeout: Optional[StallFunction] = None,
    on_close_request: Optional[Callable[[Connection], Permission]] = None,
    handlers: Optional[Mapping[Optional[str], AnyHandler]] = None,
    workers: int = 0,
) -> Listener:
    """Listens; the arguments are those of `blip.serve`.

    workers: handlers run on that many threads; with 0 on the package's own, one after another.
    """
    given = dict(locals())
    for name in ("interface", "port", "unix_path", "fd", "systemd", "handlers", "workers", "on_trust", "on_close_request"):
        given.pop(name)
    pump = thread_pump("server", Reply)
    listener = Listener()
    listener._begin(new_listener(pump.queue, given, thread_driver() if is_watched(given) else None), pump)
    if workers:
        listener._workers = _Workers(workers)
    listener._add_handlers(handlers)
    if on_close_request is not None:
        listener.on_close_request(on_close_request)
    if on_trust is not None:
        take_trust_of_clients(listener, pump, on_trust)
    watch_listener(listener, thread_driver, given)
    pump.start()
    listener._listen(interface, port, unix_path, fd, systemd)
    return listener
