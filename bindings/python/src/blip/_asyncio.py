"""The asyncio interface."""

from __future__ import annotations

import asyncio
import inspect
import sys
from ctypes import byref, c_int32, c_size_t, create_string_buffer, string_at
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Dict,
    Generator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Set,
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
from ._driver import loop_driver
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
from ._pump import HandlerCall, LoopPump, OwnerCall, Pump, event_value, log, loop_pump, new_context
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
from .errors import ResponseError, check, connect_failure, failure, listener_failure

_connection_connect = bind("blip_connection_connect")
_connection_wait_open = bind_waiting("blip_connection_wait_open")
_connection_send = bind("blip_connection_send")
_connection_set_open_callback = bind("blip_connection_set_open_callback")
_connection_set_close_callback = bind("blip_connection_set_close_callback")
_connection_ping = bind("blip_connection_ping")
_connection_say_bye = bind("blip_connection_say_bye")
_connection_set_close_request_callback = bind("blip_connection_set_close_request_callback")
_connection_set_backlog_callback = bind("blip_connection_set_backlog_callback")
_connection_backlog = bind("blip_connection_backlog")
_event_status = bind("blip_event_status")
_event_message = bind("blip_event_message")
_event_request = bind("blip_event_request")
_event_release = bind("blip_event_release")
_message_release = bind("blip_message_release")
_message_type = bind("blip_message_type")
_message_cancel = bind("blip_message_cancel")
_message_append_body = bind("blip_message_append_body")
_message_set_timeout = bind("blip_message_set_timeout")
_message_set_streamed = bind("blip_message_set_streamed")
_message_set_sent_callback = bind("blip_message_set_sent_callback")
_message_set_progress_callback = bind("blip_message_set_progress_callback")
_message_read = bind("blip_message_read")
_reconnector_new = bind_waiting("blip_reconnector_new")
_reconnector_send = bind("blip_reconnector_send")
_listener_set_close_request_callback = bind("blip_listener_set_close_request_callback")
_message_respond = bind("blip_message_respond")

HandlerResult = Union[Body, Response]
Handler = Callable[["Request"], Union[HandlerResult, Awaitable[HandlerResult]]]
AnyHandler = Callable[["Request"], Any]
HandlerFunction = TypeVar("HandlerFunction", bound=AnyHandler)

READ_SIZE = 64 * 1024
_EAGER: Dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}

Result = TypeVar("Result")


async def _portions(pieces: Any) -> AsyncGenerator[Tuple[Slice, object], None]:
    try:
        if hasattr(pieces, "__aiter__"):
            async for piece in pieces:
                for portion in portions(piece):
                    yield portion
        elif isinstance(pieces, FilePieces):
            # Reading may wait, and the loop must not.
            loop = asyncio.get_running_loop()
            while piece := await loop.run_in_executor(None, pieces.read):
                for portion in portions(piece):
                    yield portion
        else:
            for piece in pieces:
                for portion in portions(piece):
                    yield portion
    finally:
        if inspect.isasyncgen(pieces):
            await pieces.aclose()
        elif inspect.isgenerator(pieces) or isinstance(pieces, FilePieces):
            pieces.close()


class LoopFeed(Feed):
    """A feed that waits in an asyncio task of its own, so that the end of the message is seen meanwhile."""

    def __init__(
        self, pump: Pump, message: int, pieces: object, progress: Optional[Callable[[int], None]] = None
    ) -> None:
        super().__init__(pump, message, progress)
        self._loop = asyncio.get_running_loop()
        self.sent: asyncio.Future[int] = self._loop.create_future()
        self._portions = _portions(pieces)
        self._future: Optional[asyncio.Future[None]] = None
        self._has_begun = False
        self._is_detached = False

    async def start(self, timeout: Optional[float] = None) -> Optional[float]:
        """Puts the first piece into the message; how much of the time is left."""
        if timeout is None:
            await self._first()
            return None
        milliseconds(timeout)
        deadline = self._loop.time() + timeout
        first = self._loop.create_task(self._first())
        try:
            await asyncio.wait((first,), timeout=timeout)
        finally:
            if not first.done():
                first.cancel()
        if not first.done():
            raise failure(Status.TIMEOUT, "the first piece of the body")
        first.result()
        return max(0.0, deadline - self._loop.time())

    async def _first(self) -> None:
        async for memory, _ in self._portions:
            self._push(memory)
            return
        self._push_end()

    async def until(self, result: asyncio.Future[Result], tasks: Set[asyncio.Task[None]]) -> Result:
        """Hands over what follows, until there is the result of sending the message.

        What the iterator raises is raised. After a good result that came early the feed goes on in the
        background, because the peer waits for the rest.
        """
        task = self._loop.create_task(self._rest())
        setattr(task, "_log_destroy_pending", False)
        self._has_begun = True
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._did_end)
        try:
            await asyncio.wait((task, result), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return await result
            outcome = result.result()
        except BaseException:
            task.cancel()
            raise
        if isinstance(outcome, int) and outcome < 0:
            task.cancel()
        else:
            self._is_detached = True
        return outcome

    async def _rest(self) -> None:
        try:
            async for memory, _ in self._portions:
                while True:
                    status = self._push(memory)
                    if status != AGAIN:
                        break
                    self._future = self._loop.create_future()
                    await self._future
                if status == CLOSED:
                    return
            self._push_end()
        finally:
            self._future = None
            await self._portions.aclose()

    def _did_send(self, status: int) -> None:
        if not self.sent.done():
            self.sent.set_result(status)

    def _may_go_on(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        super().leave()
        if not self._has_begun:
            self.let_go()

    def _did_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._is_detached:
            log.error("a body could not be handed over to its end", exc_info=error)
        self.let_go()


class Stream:
    """The body of a streamed message, as it comes. What is not read is not acknowledged to the sender."""

    __slots__ = ("_message", "_pump", "_call", "_future", "_ready", "_ended", "_buffer", "__weakref__")

    def __init__(self, message: Received, pump: Pump) -> None:
        self._message = message
        self._pump = pump
        self._future: Optional[asyncio.Future[None]] = None
        self._ready = False
        self._ended = False
        self._buffer = create_string_buffer(READ_SIZE)
        self._call = OwnerCall(self, Stream._on_data)
        status = pump.expect_data(message, self._call)
        if status < 0:
            self._ended = True
            raise failure(status, "stream")

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        self._ended = True
        context = self._message._data_context
        if self._pump.calls.get(context) is self._call:
            self._pump.forget(context)

    def _finish(self) -> None:
        self._message._streaming = False
        self._end()

    def _on_data(self, event: int) -> None:
        self._ready = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        size = c_size_t()
        while not self._ended:
            self._ready = False
            status = _message_read(self._message._handle, self._buffer, READ_SIZE, byref(size))
            if status < 0:
                self._finish()
                raise failure(status, "the body did not arrive whole")
            if status == _ffi.DATA_END:
                self._finish()
            if status != _ffi.AGAIN and size.value:
                return string_at(self._buffer, size.value)
            if status == _ffi.AGAIN and not self._ready:
                self._future = asyncio.get_running_loop().create_future()
                try:
                    await self._future
                finally:
                    self._future = None
        raise StopAsyncIteration


class _Streamable(Received):
    __slots__ = ()

    def _get_pump(self) -> Pump:
        raise NotImplementedError

    def stream(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Of a message that is not streamed: its whole body in one piece."""
        if not self._streaming:
            return self._whole()
        return Stream(self, self._get_pump())

    async def _whole(self) -> AsyncIterator[bytes]:
        body = self.body
        if body:
            yield body

    async def read(self) -> bytes:
        """The rest of the body, once it is there."""
        if not self._streaming:
            return self.body
        return b"".join([chunk async for chunk in self.stream()])


class Reply(_Streamable):
    """The reply to a request."""

    __slots__ = ()

    def _get_pump(self) -> Pump:
        return loop_pump(Reply)

    def _abandon(self, event: int) -> None:
        _message_cancel(_event_request(event))
        _event_release(event)


class Request(BaseRequest, _Streamable):
    """A request of the peer's, as a handler gets it."""

    __slots__ = ()

    def __init__(self, event: int, handle: int, owner: Any, stream: bool) -> None:
        super().__init__(event, handle, owner)
        self._streaming = stream

    def _get_pump(self) -> Pump:
        return cast(Pump, self._owner._pump)

    @property
    def connection(self) -> Connection:
        """The connection it came by, on which the handler may send requests of its own.

        Raises `ConnectionClosed` if that has ended.
        """
        return cast(Connection, self._owner._connection_of(self._event))

    async def respond(self, result: HandlerResult = None) -> None:
        """Answers now. What the handler returns later is ignored."""
        self._answered = True
        check(await self._answer(result), "respond")

    async def _answer(self, result: Any) -> int:
        response = result if isinstance(result, Response) else Response(result)
        pieces = pieces_of(response.body)
        if pieces is None:
            return answer(self._handle, result, self._get_pump())
        status: int
        message, status = begin_response(self._handle, response)
        if status < 0:
            return status
        feed: Optional[LoopFeed] = None
        try:
            feed = LoopFeed(self._get_pump(), message, pieces)
            await feed.start()
            status = _message_respond(self._handle, message)
            if status < 0:
                return status
            self._answered = True
            return await feed.until(feed.sent, self._owner._tasks)
        finally:
            _message_release(message)
            if feed is not None:
                feed.leave()

    def _finish(self, result: Any) -> None:
        if not self._answered:
            self._answered = True
            try:
                self._done(answer(self._handle, result, self._get_pump()))
            except Exception as error:
                self._answered = False
                self._fail(error)

    async def _finish_later(self, result: Any) -> None:
        try:
            if inspect.isawaitable(result):
                result = await result
            if type(result) in WHOLE:
                self._finish(result)
            elif not self._answered:
                status = await self._answer(result)
                self._answered = True
                self._done(status)
        except Exception as error:
            self._fail(error)
        except BaseException:
            # Cancelled, or the program ends: the peer is told, quietly.
            if not self._answered:
                self._fail(ResponseError(501, "the handler was stopped"))
            raise


class _Handlers:
    """Registers handlers and runs them; the common part of connections and listeners."""

    _pump: Pump
    _tasks: Set[asyncio.Task[None]]
    _loop: asyncio.AbstractEventLoop

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        raise NotImplementedError

    @overload
    def handler(self, profile: HandlerFunction) -> HandlerFunction: ...

    @overload
    def handler(
        self, profile: Optional[str] = None, *, stream: bool = False
    ) -> Callable[[HandlerFunction], HandlerFunction]: ...

    def handler(self, profile: Union[str, None, AnyHandler] = None, *, stream: bool = False) -> Any:
        """Decorator: the function or coroutine function answers requests of that profile.

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
        context = self._pump.expect(HandlerCall(self, _Handlers._on_request, (function, stream)))
        self._register(profile, stream, context)

    def _add_handlers(self, handlers: Optional[Mapping[Optional[str], AnyHandler]]) -> None:
        for profile, function in (handlers or {}).items():
            self.add_handler(profile, function)

    def _on_request(self, event: int, argument: Tuple[AnyHandler, bool]) -> None:
        function, stream = argument
        request = Request(event, _event_message(event), self, stream)
        try:
            result = function(request)
        except Exception as error:
            request._fail(error)
            return
        kind = type(result)
        if kind in WHOLE or (kind is Response and type(result.body) in WHOLE):
            request._finish(result)
        else:
            self._start(request._finish_later(result))

    def _start(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = asyncio.Task(coroutine, loop=self._loop, **_EAGER)
        # Of a request that comes while the loop ends there is nobody to tell.
        setattr(task, "_log_destroy_pending", False)
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _Sender(_Handlers):
    """Sends requests, through a connection or a reconnector."""

    _handle: int
    _send: Callable[..., int] = staticmethod(_connection_send)

    @property
    def backlog(self) -> int:
        """Bytes accepted for sending and not yet handed to the operating system."""
        return 0

    async def request(
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
        iterator, synchronous or not, of buffers. Buffers of 64 KiB and more are not copied: leave them
        unchanged until the reply is there. timeout: seconds until the reply must be there, whole or, with
        `stream`, its properties. stream: returns when the reply's properties are there; read
        `reply.stream()`. progress: called with the number of bytes of the body that have been sent.

        An iterator's pieces are sent as they come, and it is asked for more only when the peer takes them.
        What it raises is raised. If that happens after its first piece, or the request is cancelled or late
        before its last, the connection closes, because BLIP cannot take back what was begun.

        An error reply raises `ResponseError`. If the task is cancelled, so is the request.
        """
        flags = (COMPRESSED if compressed else 0) | (URGENT if urgent else 0)
        message = new_request(profile, properties, content_type, flags)
        pump = self._pump
        kept = context = told = 0
        feed: Optional[LoopFeed] = None
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
                        feed = LoopFeed(pump, message, pieces, progress)
                        timeout = await feed.start(timeout)
            if timeout is not None:
                check(_message_set_timeout(message, milliseconds(timeout)), "timeout")
            if stream:
                check(_message_set_streamed(message, True))
            if progress is not None and feed is None:
                told = self._tell(message, progress)
            future = self._loop.create_future()
            context = new_context()
            pump.waiters[context] = future
            status = self._send(self._handle, message, None, context, None)
            if status < 0:
                del pump.waiters[context]
                raise failure(status, f"request {profile!r}", self._handle)
            is_sent = True
            try:
                reply: Any = await (future if feed is None else feed.until(future, self._tasks))
            except BaseException:
                _message_cancel(message)
                raise
        finally:
            _message_release(message)
            if not is_sent:
                pump.forget(kept)
            if feed is not None:
                feed.leave()
            elif told:
                pump.forget(told)
        if type(reply) is int:
            raise failure(reply or Status.NO_REPLY, f"request {profile!r}", self._handle)
        kind = c_int32()
        _message_type(reply._handle, byref(kind))
        if kind.value == _ffi.MESSAGE_ERROR:
            raise response_error(reply._handle, reply)
        reply._streaming = stream
        return reply  # type: ignore[no-any-return]

    async def send(
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
        feed: Optional[LoopFeed] = None
        is_sent = False
        future: Optional[asyncio.Future[int]] = None
        try:
            pieces = pieces_of(body)
            if pieces is not None:
                feed = LoopFeed(pump, message, pieces, progress)
                await feed.start()
            elif body is not None:
                kept = self._add_body(message, body, content_type, compressed)
            if progress is not None and feed is None:
                told = self._tell(message, progress)
            if feed is None and (wait or progress is not None or self.backlog > BACKLOG):
                future = self._loop.create_future()
                kept = self._expect_status(future, kept)
                check(_message_set_sent_callback(message, None, kept, None))
            status = self._send(self._handle, message, None, None, None)
            is_sent = status >= 0
            if is_sent and feed is not None:
                status = await feed.until(feed.sent, self._tasks)
            elif is_sent and future is not None:
                status = await future
            if status < 0:
                raise failure(status, f"message {profile!r}", self._handle)
        finally:
            _message_release(message)
            if not is_sent:
                pump.forget(kept)
            if feed is not None:
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

    def _expect_status(self, future: asyncio.Future[int], context: int) -> int:
        """A context (that one, if not 0) whose event completes the future with its status."""
        context = context or new_context()
        pump = self._pump

        def complete(event: int) -> None:
            pump.forget(context)
            if not future.done():
                future.set_result(_event_status(event))
            _event_release(event)

        pump.calls[context] = complete
        return context

class Connection(_Sender, BaseConnection):
    """A BLIP connection in an asyncio program. Made by `connect`, or by a listener."""

    backlog = BaseConnection.backlog

    def observe(self, function: Callable[[Observation], Any], *kinds: str) -> Observer:
        """Calls the function with what the connection does; kinds: those of `blip.OBSERVATIONS` that are wanted, or all.

        What this returns has `remove`; letting go of it ends nothing.
        """
        self._observers.append(observer := observe_connection(self._handle, self._pump, function, kinds))
        return observer

    def _setup(self, handle: int, pump: Pump) -> None:
        super()._setup(handle, pump)
        self._loop = asyncio.get_running_loop()
        self._tasks = set()
        self._closed: asyncio.Future[int] = self._loop.create_future()
        self._drainers: List[asyncio.Future[int]] = []
        self._backlog_context = 0

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            await self.close_gracefully(timeout=5)
        else:
            await self.close()

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        BaseConnection._register(self, profile, stream, context)

    def _connection_of(self, event: int) -> Connection:
        return self

    def _did_close(self, status: int) -> None:
        if not self._closed.done():
            self._closed.set_result(status)
        self._end_draining(status if status < 0 else Status.CLOSED)
        self._drop_contexts()

    async def drain(self) -> None:
        """Returns when the program may send more: at once, unless more than 4 MiB wait to be sent.

        Then when that has fallen to 1 MiB. For programs that start many requests without waiting for their replies.
        Raises `ConnectionClosed` if the connection ends first.
        """
        if self.backlog <= BACKLOG:
            return
        future: asyncio.Future[int] = self._loop.create_future()
        self._drainers.append(future)
        if not self._backlog_context:
            self._backlog_context = self._pump.expect(OwnerCall(self, Connection._on_backlog))
            self._contexts.append(self._backlog_context)
        # Set anew each time: its first event tells how things are, so that nobody waits for what has happened.
        status = _connection_set_backlog_callback(
            self._handle, BACKLOG // 4, BACKLOG, None, self._backlog_context, None
        )
        if status >= 0:
            status = await future
        if status < 0:
            raise failure(status, "drain", self._handle)

    def _on_backlog(self, event: int) -> None:
        # What closing has thrown away is no room: the connection's end follows.
        if _event_status(event) != _ffi.AGAIN and self.state not in ("closing", "closed"):
            self._end_draining(0)

    def _end_draining(self, status: int) -> None:
        waiting, self._drainers = self._drainers, []
        for future in waiting:
            if not future.done():
                future.set_result(status)

    async def _ask(self, call: Callable[[int], int], what: str) -> int:
        """Makes a call whose event has a status and a value; waits for that."""
        future: asyncio.Future[Tuple[int, int]] = self._loop.create_future()
        pump = self._pump

        def complete(event: int) -> None:
            pump.forget(context)
            if not future.done():
                future.set_result((_event_status(event), event_value(event)))
            _event_release(event)

        context = pump.expect(complete)
        status = call(context)
        value = 0
        if status < 0:
            pump.forget(context)
        else:
            status, value = await future
        if status < 0:
            raise failure(status, what, self._handle)
        return value

    async def ping(self, timeout: Optional[float] = 10) -> float:
        """Sends a WebSocket ping; the seconds until its pong."""
        limit = milliseconds(timeout)
        return await self._ask(lambda context: _connection_ping(self._handle, limit, None, context, None), "ping") / 1e6

    async def say_bye(self) -> bool:
        """Asks the peer whether the connection may close, by the message "Bye" of BLIP 1 and 2; returns what it says.

        If it agrees, no new request can be sent, and the connection closes when nothing is under way any more:
        `wait_closed`. If it refuses, everything goes on. Raises `Error` with BLIP 3, which has no such message.
        """
        return bool(await self._ask(lambda context: _connection_say_bye(self._handle, None, context, None), "say_bye"))

    def on_close_request(self, function: Callable[[Connection], Permission]) -> Callable[[Connection], Permission]:
        """Decorator: the function, or coroutine function, decides whether the peer may close, which it asks for by the
        message "Bye" of BLIP 1 and 2. It is called with the connection, and refuses by returning False.

        If it raises, the peer is refused. It takes the place of the one before, also of the listener's.
        """
        take_close_requests(self, self._pump, _connection_set_close_request_callback, function)
        return function

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes now; requests that wait for a reply fail with `ConnectionClosed`."""
        self._start_close(code, reason)
        await self.wait_closed()

    async def close_gracefully(self, timeout: Optional[float] = None) -> None:
        """Starts no more requests, finishes what is under way, both ways, then closes."""
        self._start_close_gracefully(timeout)
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Returns when the connection is closed, whoever closed it and why."""
        await asyncio.shield(self._closed)


class _ClientConnection(Connection):
    _opened: Optional[asyncio.Future[int]] = None

    def _watch(self) -> int:
        """Asks for open and close events. The result says if the connection has ended already."""
        for setter, method in (
            (_connection_set_open_callback, _ClientConnection._on_open),
            (_connection_set_close_callback, _ClientConnection._on_close),
        ):
            context = self._pump.expect(OwnerCall(self, method))
            self._contexts.append(context)
            status: int = setter(self._handle, None, context, None)
            if status == Status.CLOSED:
                self._did_close(status)
                return status
            check(status)
        return 0

    async def _open(self, begin: Callable[[int], int]) -> None:
        """Waits until the connection is open. `begin` begins to connect: AGAIN, it will be open; 0, it is."""
        opened: asyncio.Future[int] = self._loop.create_future()
        self._opened = opened
        try:
            status = self._watch()
            if status >= 0:
                status = begin(self._handle)
            if status == _ffi.AGAIN:
                status = await opened
        except BaseException:
            self._start_close(1001, "")
            raise
        finally:
            self._opened = None
        if status < 0:
            raise connect_failure(status, self._handle)

    def _on_open(self, event: int) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(0)

    def _on_close(self, event: int) -> None:
        status = _event_status(event)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(status if status < 0 else Status.CLOSED)
        self._did_close(status)


class _Awaitable:
    """What is to be awaited or used in `async with`; says so to those who do neither."""

    _call: str

    # Type checkers do not see these, so that they still find such mistakes.
    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError(self._advice())

        def __exit__(self, *arguments: object) -> None:
            pass

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"there is no {name!r} yet: {self._advice()}")

    def _advice(self) -> str:
        return f"use 'async with', or await {self._call}(…)"


class _Connecting(_Awaitable):
    """What `connect` returns: await it, or use it in `async with`."""

    _call = "blip.connect"

    def __init__(
        self,
        make: Callable[[int], int],
        begin: Callable[[int], int],
        handlers: Optional[Mapping[Optional[str], AnyHandler]],
        given: Dict[str, Any],
    ) -> None:
        self._make = make
        self._begin = begin
        self._handlers = handlers
        self._given = given
        self._connection: Optional[Connection] = None

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._connect().__await__()

    async def _connect(self) -> Connection:
        pump = loop_pump(Reply)
        connection = _ClientConnection()
        connection._setup(self._make(pump.queue), pump)
        connection._add_handlers(self._handlers)
        if self._given.get("on_challenge") is not None:
            take_challenges(connection, pump, self._given["on_challenge"])
        if self._given.get("on_trust") is not None:
            take_trust(connection, pump, self._given["on_trust"])
        if self._given.get("on_close_request") is not None:
            connection.on_close_request(self._given["on_close_request"])
        watch_connection(connection, loop_driver, self._given)
        await connection._open(self._begin)
        return connection

    async def __aenter__(self) -> Connection:
        self._connection = await self._connect()
        return self._connection

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._connection is not None:
            await self._connection.__aexit__(kind, error, trace)


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
) -> _Connecting:
    """Connects to ws:// and wss:// (or ws+unix://, wss+unix://), or by BLIP 1 to blip:// and blips:// (or blip+unix://,
    blips+unix://): `await connect(url)` or `async with connect(url) as c`.

    unix_path: the path of a Unix socket, instead of a URL; with it path: what to ask for there, such as "/chat", and
    tls, which every other argument for TLS implies. subprotocols: such as "BLIP_3+CBMobile_3", the preferred one first;
    by default BLIP_3, then BLIP. ca_file: PEM, instead of the system's store. identity: paths of our PEM certificate
    chain and key. proxy: http://, https://, socks5:// or socks5h://; proxy_from_environment: or the one of
    `http_proxy` and so on. local_address: (address or interface, port) to connect from. ip: one of `IP_POLICIES`.
    service_lookup: SRV records say where the host's servers are. on_trust: called with the server's certificate as a
    `Trust`; returns whether it is accepted, whatever OpenSSL says; may be a coroutine. fd: a connected socket to use,
    which is taken over; the URL says what to ask for. alpn, ciphers (of TLS 1.2), suites (of TLS 1.3), crl_file and
    key_log_file are about TLS. read_timeout, write_timeout: seconds for which a message under way may stand still;
    on_timeout: called with a `Stall` then, returns how many seconds more the connection gets; None: none, it ends.
    on_frame: called with each `Frame`, for diagnosis. These two are functions, no coroutines, and should return soon: a
    connection that has one lives on the thread of the asyncio loop, which makes it slower; it has cookies of its own and
    is not in the sums of `counters()`.
    credentials: (user, password), as in the URL, sent by Basic at once (preemptive) or by Digest or Basic when the
    server asks. token: a bearer token. on_challenge: called with a `Challenge` that these do not satisfy; returns
    (user, password), or answers by the challenge's methods; may be a coroutine. redirects: how many are followed; 10 by
    default. cookies: send and keep those of this process (`set_cookie`).
    timeout: seconds for lookup, connection, proxy, TLS and upgrade together; 15 by default. ping: (seconds
    between pings, missed ones that mean the peer is gone). ping_only_idle: none while something comes. bye_timeout:
    seconds that closing by "Bye" takes at most; 60 by default. half_close: seconds for which a connection still responds
    whose peer has ended its own direction of the stream only; by default that is a lost connection. limits: see
    `LIMITS`. handlers: {profile: function}, in place before the first request can arrive; on_close_request: the same for `Connection.on_close_request`. Raises
    `ConnectionFailed`, and `UsageError` for a URL that is none.
    """
    given = dict(locals())
    given.pop("url")
    given.pop("handlers")
    address = url_of(url, given)

    def make(queue: int) -> int:
        return new_connection(address, queue, given, driver=loop_driver() if is_watched(given) else None)

    return _Connecting(make, _begin_to_connect, handlers, given)


def _begin_to_connect(handle: int) -> int:
    status: int = _connection_connect(handle)
    return _ffi.AGAIN if status >= 0 else status


def _state_of_opening(handle: int) -> int:
    """Of a connection that opens by itself."""
    status: int = _connection_wait_open(handle, 0)
    return _ffi.AGAIN if status == Status.TIMEOUT else status


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
) -> _Connecting:
    """A connection whose frames the program carries: `await connect_transport(transport)`, or in `async with`.

    transport: a `StreamTransport`, or an object of a class of the program's, derived from `Transport`. subprotocol:
    "BLIP_3", "BLIP" or "BLIP_1", after the first two maybe a plus sign and a name; the same on both sides, because
    nothing is negotiated. timeout: seconds until the transport is open. The others are those of `connect`.

    The connection lives on the thread of the asyncio loop. It is not in the sums of `counters()`.
    """
    given = dict(locals())
    for name in ("transport", "subprotocol", "handlers"):
        given.pop(name)

    def make(queue: int) -> int:
        return new_connection_over(transport, loop_driver(), subprotocol, queue, given)

    def begin(handle: int) -> int:
        transport.start()
        return _ffi.AGAIN

    return _Connecting(make, begin, handlers, given)


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
    """Two connections that are joined in memory and open; inside a running asyncio loop.

    They speak the first of the subprotocols, by default BLIP 3. The other arguments are those of `connect`.
    """
    given = dict(locals())
    pump = loop_pump(Reply)
    ends = _ClientConnection(), _ClientConnection()
    for end, handle in zip(ends, new_pair(pump.queue, given)):
        end._setup(handle, pump)
    for end in ends:
        end._watch()
    return ends


class _Member(Connection):
    """A connection that a reconnector or a pool has made."""

    def _setup(self, handle: int, pump: Pump) -> None:
        super()._setup(handle, pump)
        self._opened: asyncio.Future[int] = self._loop.create_future()
        if self.is_open:
            self._opened.set_result(0)

    def _did_open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(0)

    def _did_end(self, status: int) -> None:
        if not self._opened.done():
            self._opened.set_result(status if status < 0 else Status.CLOSED)
        self._did_close(status)


class Reconnector(_Sender, BaseReconnector):
    """A connection to one URL, and another one whenever that has ended. Made by `reconnect`."""

    _send = staticmethod(_reconnector_send)

    def _begin(self, handle: int, pump: Pump, given: Dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = set()
        self._changed: asyncio.Future[None] = self._loop.create_future()
        # What the events have told: with the status, and in order.
        self._told = ("new", 0)
        self._setup(handle, pump, given, _Member)

    async def __aenter__(self) -> Reconnector:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.stop(timeout=5 if kind is None else 0)

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        BaseReconnector._register(self, profile, stream, context)

    def _connection_of(self, event: int) -> Connection:
        return cast(Connection, BaseReconnector._connection_of(self, event))

    def _did_change(self, state: str, status: int) -> None:
        self._told = (state, status)
        if not self._changed.done():
            self._changed.set_result(None)
        self._changed = self._loop.create_future()

    @property
    def connection(self) -> Optional[Connection]:
        """The connection of the moment."""
        return cast(Optional[Connection], self._current())

    async def _until(self, *states: str) -> Tuple[str, int]:
        while self._told[0] not in states:
            await asyncio.shield(self._changed)
        return self._told

    async def wait_open(self) -> None:
        """Returns when a connection is open; raises why there will be none."""
        state, status = await self._until("open", "stopped")
        if state == "stopped":
            raise failure(status or Status.CLOSED, "no connection", self._handle)

    async def stop(self, timeout: float = 0) -> None:
        """Ends for ever; the connection closes, gracefully within the timeout."""
        self._stop(timeout)
        await self._until("stopped")


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
    """Begins to connect, and does so again whenever the connection has ended; inside a running asyncio loop.

    The arguments are those of `connect`, but for fd and its functions, and: backoff: (seconds, seconds, factor): the longest wait behind the first
    failure, the longest of all, and how it grows; the waits are random parts of these; by default (0.5, 30, 2).
    attempts: how many tries in a row may fail. stable_time: seconds that a connection has to be open for the count to
    begin anew. carry_over: requests of which nothing was sent wait for the next connection; those of which a part was
    sent are never sent again. persistent: go on also after what cannot get better, such as HTTP 404. handlers:
    {profile: function}.
    """
    given = dict(locals())
    for name in ("url", "handlers"):
        given.pop(name)
    pump = loop_pump(Reply)
    reconnector = Reconnector()
    reconnector._begin(new_connection(url_of(url, given), pump.queue, given, _reconnector_new), pump, given)
    reconnector._add_handlers(handlers)
    reconnector._connect()
    return reconnector


class Pool(BasePool):
    """One open connection for each URL: `await pool.connection(url)`; inside a running asyncio loop.

    idle_timeout: after so many seconds a connection that nobody refers to and that carries nothing is closed.
    """

    def __init__(self, *, idle_timeout: Optional[float] = None) -> None:
        pump = loop_pump(Reply)
        self._setup(new_pool(pump.queue), pump, idle_timeout, _Member)

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def connection(self, url: str) -> Connection:
        """The open connection to a URL, made if there is none."""
        handle = pool_connection(self._handle, url)
        try:
            connection = cast(_Member, self._family.of(handle))
            status = await asyncio.shield(connection._opened)
            if status < 0:
                raise connect_failure(status, handle)
            return connection
        finally:
            release_connection(handle)

    async def close(self, code: int = 1001, reason: str = "") -> None:
        """Closes all connections. The pool can be used again."""
        for connection in self._close_all(code, reason):
            await connection.wait_closed()


class Listener(_Handlers, BaseListener):
    """Accepts connections in an asyncio program. Made by `serve`."""

    def observe(self, function: Callable[[Observation], Any], *kinds: str) -> Observer:
        """Calls the function with what its connections do; kinds: those of `blip.OBSERVATIONS` that are wanted, or all.

        What this returns has `remove`; letting go of it ends nothing.
        """
        self._observers.append(observer := observe_listener(self._handle, self._pump, function, kinds))
        return observer

    def _setup(self, handle: int, pump: Pump) -> None:
        super()._setup(handle, pump)
        self._loop = asyncio.get_running_loop()
        self._tasks = set()
        self._stopped: asyncio.Future[int] = self._loop.create_future()
        self._callbacks(
            pump.expect,
            HandlerCall(self, Listener._on_accept, None),
            OwnerCall(self, Listener._on_close),
            OwnerCall(self, Listener._on_stopped),
        )

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close(graceful=kind is None)

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        BaseListener._register(self, profile, stream, context)

    @property
    def connections(self) -> List[Connection]:
        """The connections that are open now."""
        return list(self._connections.values())

    def on_connect(self, function: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        """Decorator: the function, or coroutine function, is called with each new connection, before it opens.

        It may reject the client, or defer that; a coroutine before it waits for anything.
        """
        self._accept_functions.append(function)
        return function

    def on_close_request(self, function: Callable[[Connection], Permission]) -> Callable[[Connection], Permission]:
        """Decorator: the function, or coroutine function, decides whether clients that connect from now on may close, which they ask
        for by the message "Bye" of BLIP 1 and 2; see `Connection.on_close_request`."""
        take_close_requests(self, self._pump, _listener_set_close_request_callback, function)
        return function

    def _connection_of(self, event: int) -> Connection:
        return cast(Connection, self._member_of(event))

    def _on_accept(self, event: int, argument: object) -> None:
        has_begun = False
        try:
            connection = Connection.__new__(Connection)
            self._adopt(event, connection)
            for function in self._accept_functions:
                result = function(connection)
                if inspect.isawaitable(result):
                    has_begun = True
                    self._start(_log_failure(result))
        except Exception:
            log.exception("on_connect failed")
        finally:
            # The client goes on when the event is released: behind the first step of a coroutine, which may defer that.
            if has_begun and not _EAGER:
                self._loop.call_soon(_event_release, event)
            else:
                _event_release(event)

    def _on_close(self, event: int) -> None:
        connection = self._connections.pop(self._number_of(event), None)
        if connection is not None:
            connection._did_close(_event_status(event))

    def _on_stopped(self, event: int) -> None:
        if not self._stopped.done():
            self._stopped.set_result(_event_status(event))

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
    ) -> _Connecting:
        """Connects to this listener in memory, without a socket: `await listener.connect()`, or in `async with`.

        To the listener it is a client like others. The arguments are those of `blip.connect`.
        """
        given = dict(locals())
        for name in ("self", "handlers"):
            given.pop(name)
        return _Connecting(
            lambda queue: new_connection_to(self._handle, queue, given), _state_of_opening, handlers, given
        )

    async def close(self, *, graceful: bool = True, timeout: Optional[float] = 10) -> None:
        """Stops listening and closes the connections: gracefully, within the timeout, or at once."""
        self._stop(graceful, timeout)
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Returns when the listener has stopped and its connections are closed."""
        status = await asyncio.shield(self._stopped)
        if status < 0 and status not in (Status.CLOSED, Status.STOPPED, Status.TIMEOUT):
            raise listener_failure(status, "the listener stopped", self._handle)


async def _log_failure(awaitable: Awaitable[Any]) -> None:
    try:
        await awaitable
    except Exception:
        log.exception("on_connect failed")


class _Serving(_Awaitable):
    """What `serve` returns: await it, or use it in `async with`."""

    _call = "blip.serve"

    def __init__(
        self,
        where: Tuple[str, int, Optional[PathLike], Optional[int], Optional[str]],
        handlers: Optional[Mapping[Optional[str], AnyHandler]],
        given: Dict[str, Any],
    ) -> None:
        self._where = where
        self._handlers = handlers
        self._given = given
        self._listener: Optional[Listener] = None

    def __await__(self) -> Generator[Any, None, Listener]:
        return self._serve().__await__()

    async def _serve(self) -> Listener:
        pump: LoopPump = loop_pump(Reply)
        listener = Listener()
        driver = loop_driver() if is_watched(self._given) else None
        if self._given.get("users"):
            # Each password takes about 50 ms.
            loop = asyncio.get_running_loop()
            handle = await loop.run_in_executor(None, new_listener, pump.queue, self._given, driver)
        else:
            handle = new_listener(pump.queue, self._given, driver)
        listener._setup(handle, pump)
        listener._add_handlers(self._handlers)
        if self._given.get("on_trust") is not None:
            take_trust_of_clients(listener, pump, self._given["on_trust"])
        watch_listener(listener, loop_driver, self._given)
        if self._given.get("on_close_request") is not None:
            listener.on_close_request(self._given["on_close_request"])
        listener._listen(*self._where)
        return listener

    async def __aenter__(self) -> Listener:
        self._listener = await self._serve()
        return self._listener

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._listener is not None:
            await self._listener.__aexit__(kind, error, trace)


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
) -> _Serving:
    """Listens: `await serve("127.0.0.1", 0)` or `async with serve(...) as listener`; at more places with
    `listener.listen(...)`.

    interface: an address, "localhost", or "" for all; port 0: any free one, see `listener.port`. unix_path: a
    Unix socket instead; fd: a socket that listens already, which is taken over; systemd: the name of sockets that
    systemd has opened, "" for all. tls: paths of the PEM certificate chain and key. paths: what clients may ask for; any
    by default. blip1: also take clients of BLIP 1, which has no WebSocket, path or credentials; websocket=False:
    take no others. users: {name: password} that clients must have, or user_hashes: {name: hash} as `hash_password`
    makes them; realm: what clients are told then. origins: of web pages that may connect, by default those of the same
    host and port; "*" for all. hosts: names by which browsers may ask for pages, besides addresses and the host's own.
    metrics_path: such as "/metrics", where plain HTTP GET gets `metrics_text()`. handlers: {profile:
    function}, in place before the first request can arrive; more can be added with `@listener.handler(profile)`.
    on_close_request: see `Listener.on_close_request`. bye_timeout, half_close: as in `connect`. on_trust: called with the
    certificate of each client that has one, as a `Trust`; returns whether it is accepted, whatever OpenSSL says; may be a
    coroutine. Clients are asked for a certificate then; whether they must have one says client_certificate_required.
    on_frame, on_timeout: as in `connect`, for all connections of the listener.
    """
    given = dict(locals())
    for name in ("interface", "port", "unix_path", "fd", "systemd", "handlers"):
        given.pop(name)
    return _Serving((interface, port, unix_path, fd, systemd), handlers, given)
