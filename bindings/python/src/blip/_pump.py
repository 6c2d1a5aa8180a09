"""Takes events out of the library's queues and hands them to whom they are for.

No thread of the library calls Python. Whatever would be a callback is registered with a NULL function and
an integer as its context; its event comes out of a `blip_queue`, and the integer finds the receiver here:

* `waiters`: those who await a response, asyncio futures or `Waiter`s. Once each.
* `calls`: functions that take the event and own it from then on.
* objects kept alive until a body that lies in them has been sent, for all pumps together, because a
  message may outlive the pump.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import threading
import time
import weakref
from _thread import allocate_lock, get_ident
from collections import deque
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p, create_string_buffer
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import _ffi
from ._ffi import bind, bind_waiting
from ._message import Received
from .errors import check, failure

log = logging.getLogger("blip")

_runtime_options_new = bind("blip_runtime_options_new")
_runtime_options_release = bind("blip_runtime_options_release")
_runtime_new = bind_waiting("blip_runtime_new")
_runtime_stop = bind_waiting("blip_runtime_stop")
_queue_new = bind("blip_queue_new")
_queue_release = bind("blip_queue_release")
_queue_fd = bind("blip_queue_fd")
_queue_next = bind("blip_queue_next")
_queue_next_waiting = bind_waiting("blip_queue_next")
_queue_wake = bind("blip_queue_wake")
_event_status = bind("blip_event_status")
_event_value = bind("blip_event_value")
_event_context = bind("blip_event_context")
_event_message = bind("blip_event_message")
_event_release = bind("blip_event_release")
_message_read = bind("blip_message_read")
_set_sent_callback = bind("blip_message_set_sent_callback")
_set_data_callback = bind("blip_message_set_data_callback")

BATCH = 256
DISCARD_SIZE = 64 * 1024
# A wait in C is cut into pieces of this many milliseconds, so that signals (Ctrl-C) are seen.
PIECE = 200

new_context = itertools.count(1).__next__
_kept: Dict[int, object] = {}


def event_value(event: int) -> int:
    out = c_int64()
    _event_value(event, byref(out))
    return out.value


class Pump:
    """One queue and the receivers of its events."""

    def __init__(self, make_reply: Callable[[int, int], Received]) -> None:
        self._make_reply = make_reply
        out = c_void_p()
        check(_queue_new(0, byref(out)), "event queue")
        self.queue: int = out.value or 0
        self.waiters: Dict[int, Any] = {}
        self.calls: Dict[int, Callable[[int], None]] = {}
        self._events = (c_void_p * BATCH)()
        self._undelivered: Tuple[int, ...] = ()
        self._count = c_size_t()

    def __del__(self, release: Callable[[int], None] = _queue_release) -> None:
        queue = getattr(self, "queue", 0)
        if queue:
            self.queue = 0
            release(queue)

    def expect(self, function: Callable[[int], None]) -> int:
        """A context whose events go to the function."""
        context = new_context()
        self.calls[context] = function
        return context

    def forget(self, context: int) -> None:
        self.calls.pop(context, None)
        _kept.pop(context, None)

    def keep(self, message: int, value: object) -> int:
        """Keeps the object alive until the message has been sent, or never will be."""
        context = new_context()
        _kept[context] = value
        check(_set_sent_callback(message, None, context, None))
        return context

    def expect_data(self, message: Received, function: Callable[[int], None]) -> int:
        """The function is told that a streamed message has more to read; 0 or a status.

        A message has one context for that, for good: what was announced to an earlier receiver, and not yet
        taken from the queue, must reach the present one, because it is not announced again.
        """
        context = message._data_context
        if context:
            self.calls[context] = function
            return 0
        context = message._data_context = self.expect(function)
        status: int = _set_data_callback(message._handle, None, context, None)
        if status < 0:
            self.forget(context)
        return status

    def discard(self, event: int, message: Received) -> None:
        """Nobody will read the rest of a streamed body, but its sender must get to its end. Releases the event.

        The library throws away what nobody can read any more; but once a message's arrivals are told by events,
        it takes those for readers, and the rest has to be read.
        """
        if not message._data_context:
            _event_release(event)
            return
        handle = message._handle
        buffer = create_string_buffer(DISCARD_SIZE)
        size = c_size_t()

        def read() -> bool:
            status = 0
            while status == 0:
                status = _message_read(handle, buffer, DISCARD_SIZE, byref(size))
            return status == _ffi.AGAIN

        def more(data_event: int) -> None:
            _event_release(data_event)
            if not read():
                self.forget(context)
                _event_release(event)

        status = self.expect_data(message, more)
        context = message._data_context
        if status < 0 or not read():
            self.forget(context)
            _event_release(event)

    def dispatch(self, events: List[int]) -> None:
        context = c_void_p()
        reference = byref(context)
        take = self.waiters.pop
        calls = self.calls
        make_reply = self._make_reply
        left = iter([*self._undelivered, *events] if self._undelivered else events)
        self._undelivered = ()
        try:
            for event in left:
                if _event_context(event, reference) < 0:
                    _event_release(event)
                    continue
                number = context.value or 0
                waiter = take(number, None)
                if waiter is not None:
                    message = _event_message(event)
                    if message:
                        result: Any = make_reply(event, message)
                    else:
                        result = _event_status(event)
                        _event_release(event)
                    if not waiter.done():
                        waiter.set_result(result)
                    continue
                call = calls.get(number)
                if call is not None:
                    self.run(call, event)
                    continue
                _kept.pop(number, None)
                _event_release(event)
        except BaseException:
            # Interrupted, in the middle of what others wait for: they get it the next time.
            self._undelivered = tuple(left)
            raise

    def run(self, call: Callable[[int], None], event: int) -> None:
        try:
            call(event)
        except Exception:
            log.exception("an event could not be handled")


class LoopPump(Pump):
    """The events of one asyncio loop; it is woken by the queue's descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make_reply: Callable[[int, int], Received]) -> None:
        super().__init__(make_reply)
        out = c_int()
        check(_queue_fd(self.queue, byref(out)), "event queue")
        loop.add_reader(out.value, self.take_events)

    def take_events(self) -> None:
        # A full batch leaves the descriptor readable: the loop gets its turn, then comes back here.
        count = self._count
        count.value = 0
        _queue_next(self.queue, self._events, BATCH, 0, byref(count))
        if count.value or self._undelivered:
            self.dispatch(self._events[: count.value])  # type: ignore[arg-type]


class Waiter:
    """A thread that waits for one result."""

    __slots__ = ("result", "lock")

    def __init__(self) -> None:
        self.result: Any = None
        self.lock: Any = None

    def done(self) -> bool:
        return self.result is not None

    def set_result(self, result: Any) -> None:
        self.result = result
        self.wake()

    def wake(self) -> None:
        lock = self.lock
        if lock is not None:
            try:
                lock.release()
            except RuntimeError:
                pass  # woken twice


class ThreadPump(Pump):
    """The events of the synchronous interface.

    A thread that waits for a response leads: it takes events straight from the queue, for everybody, until
    it has its own, so a round trip costs no hand-over between threads of Python. Others that wait meanwhile
    sleep until they are served or have to lead. As soon as something must be served that nobody waits for
    (handlers, a listener), a thread of its own leads all the time; handlers run on it alone.
    """

    def __init__(self, name: str, make_reply: Callable[[int, int], Received]) -> None:
        super().__init__(make_reply)
        self._name = name
        self._followers: Dict[Waiter, None] = {}
        self._lead = allocate_lock()
        self._leader = 0
        self._nested = 0
        self._thread: Optional[threading.Thread] = None
        self.thread_ident = 0
        self._start_lock = allocate_lock()
        self._backlog: Deque[Tuple[Callable[[int], None], int]] = deque()
        self.ending = False

    def start(self) -> None:
        with self._start_lock:
            if self._thread is None and not self.ending:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()

    def run(self, call: Callable[[int], None], event: int) -> None:
        if isinstance(call, HandlerCall) and (self._backlog or self._nested or get_ident() != self.thread_ident):
            self._backlog.append((call, event))
        else:
            self._run_now(call, event)

    def _run_now(self, call: Callable[[int], None], event: int) -> None:
        try:
            super().run(call, event)
        except BaseException:
            # Whoever calls sys.exit in a callback ends no thread that all others need.
            if get_ident() != self.thread_ident:
                raise
            log.exception("an event could not be handled")

    def _take_events(self, timeout: int) -> None:
        count = self._count
        count.value = 0
        if self._undelivered:
            timeout = 0
        status = _queue_next_waiting(self.queue, self._events, BATCH, timeout, byref(count))
        if count.value or self._undelivered:
            self.dispatch(self._events[: count.value])  # type: ignore[arg-type]
        elif status < 0 and status != _ffi.Status.TIMEOUT:
            raise failure(status, "event queue")

    def wait(self, waiter: Waiter) -> Any:
        """Waits until the waiter has its result. Ctrl-C gets through."""
        me = get_ident()
        if self._leader == me:
            self._nested += 1
            try:
                while waiter.result is None:
                    self._take_events(PIECE)
            finally:
                self._nested -= 1
            return waiter.result
        try:
            while waiter.result is None:
                if self._lead.acquire(False):
                    self._leader = me
                    try:
                        while waiter.result is None:
                            self._take_events(PIECE)
                    finally:
                        self._leader = 0
                        self._lead.release()
                        if self._followers:
                            self._promote()
                elif waiter.lock is None:
                    # Look again with the lock in place, so that no wake gets lost between looking and sleeping.
                    waiter.lock = allocate_lock()
                    waiter.lock.acquire()
                    self._followers[waiter] = None
                else:
                    waiter.lock.acquire(timeout=1)
        finally:
            self._followers.pop(waiter, None)
        return waiter.result

    def poll(self) -> None:
        """Takes what is there, if nobody else does."""
        if self._thread is None and self._lead.acquire(False):
            self._leader = get_ident()
            try:
                self._take_events(0)
            finally:
                self._leader = 0
                self._lead.release()

    def drain(self) -> None:
        """At the end, when its thread is gone: takes what is left."""
        if self._lead.acquire(timeout=0.5):
            self._leader = get_ident()
            try:
                self._take_events(0)
                while self._count.value:
                    self._take_events(0)
            finally:
                self._leader = 0
                self._lead.release()

    def _promote(self) -> None:
        for waiter in tuple(self._followers):
            if waiter.result is None:
                waiter.wake()
                return

    def _serve(self) -> None:
        self.thread_ident = get_ident()
        while not self.ending:
            if not self._lead.acquire(timeout=0.05):
                self._run_backlog()
                continue
            self._leader = self.thread_ident
            try:
                while not self.ending:
                    self._run_backlog()
                    self._take_events(-1 if not self._backlog else 0)
            except Exception:
                log.exception("the event thread stopped")
                return
            finally:
                self._leader = 0
                self._lead.release()

    def _run_backlog(self) -> None:
        while self._backlog:
            call, event = self._backlog.popleft()
            self._run_now(call, event)

    def end(self) -> None:
        self.ending = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            for _ in range(50):
                _queue_wake(self.queue)
                thread.join(0.01)
                if not thread.is_alive():
                    break


class HandlerCall:
    """A receiver that runs the program's code. It does not keep its owner alive."""

    __slots__ = ("_owner", "_method", "_argument")

    def __init__(self, owner: object, method: Callable[[Any, int, Any], None], argument: object) -> None:
        self._owner = weakref.ref(owner)
        self._method = method
        self._argument = argument

    def __call__(self, event: int) -> None:
        owner = self._owner()
        if owner is None:
            _event_release(event)
        else:
            self._method(owner, event, self._argument)


class OwnerCall:
    """A receiver of what happens to an object that it does not keep alive. Releases the event."""

    __slots__ = ("_owner", "_method")

    def __init__(self, owner: object, method: Callable[[Any, int], None]) -> None:
        self._owner = weakref.ref(owner)
        self._method = method

    def __call__(self, event: int) -> None:
        try:
            owner = self._owner()
            if owner is not None:
                self._method(owner, event)
        finally:
            _event_release(event)


_state_lock = threading.Lock()
_runtime = 0
# A loop keeps its pump by the reader of its descriptor. A pump refers to its loop, by the futures of those who wait:
# were it kept here, no loop that was closed meanwhile would ever go away.
_loop_pumps: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[LoopPump]]" = (
    weakref.WeakKeyDictionary()
)
_thread_pumps: Dict[str, ThreadPump] = {}
_ended = False
_endings: List[Callable[[], None]] = []
_last_endings: List[Callable[[], None]] = []


def at_end(function: Callable[[], None]) -> None:
    """Has the function called at exit, before the runtime stops."""
    _endings.append(function)


def at_last(function: Callable[[], None]) -> None:
    """Has the function called at exit, after the runtime has stopped."""
    _last_endings.append(function)


def runtime() -> int:
    """The runtime of this process."""
    global _runtime
    rest_if_ending()
    with _state_lock:
        if not _runtime:
            if _ended:
                raise failure(_ffi.Status.STOPPED, "the interpreter is ending")
            out = c_void_p()
            check(_runtime_new(None, byref(out)), "runtime")
            _runtime = out.value or 0
        return _runtime


def loop_pump(make_reply: Callable[[int, int], Received]) -> LoopPump:
    """The pump of the running asyncio loop."""
    loop = asyncio.get_running_loop()
    reference = _loop_pumps.get(loop)
    pump = reference() if reference is not None else None
    if pump is None:
        pump = LoopPump(loop, make_reply)
        _loop_pumps[loop] = weakref.ref(pump)
    return pump


def thread_pump(name: str, make_reply: Callable[[int, int], Received]) -> ThreadPump:
    """The process-wide pump of synchronous clients or of synchronous listeners."""
    with _state_lock:
        pump = _thread_pumps.get(name)
        if pump is None:
            pump = _thread_pumps[name] = ThreadPump(f"blip-{name}", make_reply)
        return pump


def _end() -> None:
    """At exit: no event thread is left in Python, and no thread of the library in TLS, when the process ends."""
    global _ended, _runtime
    _ended = True
    for ending in _endings:
        ending()
    for pump in list(_thread_pumps.values()):
        pump.end()
    if _runtime:
        _runtime_stop(_runtime, 200)
        _runtime = 0
    for ending in _last_endings:
        ending()


def rest_if_ending() -> None:
    """At exit, a daemon thread whose request fails because of that stops here, instead of printing a traceback."""
    while _ended and threading.current_thread() is not threading.main_thread():
        time.sleep(60)


def _forget_parent() -> None:
    """In a forked child: everything belongs to the parent. What is made from now on is the child's own."""
    global _runtime, _state_lock
    _state_lock = threading.Lock()
    _runtime = 0
    for pump in _thread_pumps.values():
        pump.ending = True
    _thread_pumps.clear()
    _loop_pumps.clear()
    _endings.clear()
    _last_endings.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget_parent)
