"""What happens to connections: observers, and those who hold several connections, one after another or for each URL."""

from __future__ import annotations

from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from . import _ffi
from ._connection import milliseconds
from ._ffi import Status, bind, bind_waiting, text
from ._pump import OwnerCall, Pump, event_value, log, runtime
from .errors import check, failure, url_failure, url_slice

_event_status = bind("blip_event_status")
_event_connection = bind("blip_event_connection")
_event_message = bind("blip_event_message")
_event_release = bind("blip_event_release")
_message_describe = bind("blip_message_describe")
_module_new = bind("blip_module_new")
_module_release = bind("blip_module_release")
_module_set_observer = bind("blip_module_set_observer")
_module_set_handler = bind("blip_module_set_handler")
_connection_add_module = bind("blip_connection_add_module")
_connection_remove_module = bind("blip_connection_remove_module")
_connection_retain = bind("blip_connection_retain")
_listener_add_module = bind("blip_listener_add_module")
_listener_remove_module = bind("blip_listener_remove_module")
_reconnector_release = bind("blip_reconnector_release")
_reconnector_set_backoff = bind("blip_reconnector_set_backoff")
_reconnector_set_attempts = bind("blip_reconnector_set_attempts")
_reconnector_set_stable_time = bind("blip_reconnector_set_stable_time")
_reconnector_set_carry_over = bind("blip_reconnector_set_carry_over")
_reconnector_set_persistent = bind("blip_reconnector_set_persistent")
_reconnector_set_state_callback = bind("blip_reconnector_set_state_callback")
_reconnector_add_module = bind("blip_reconnector_add_module")
_reconnector_start = bind("blip_reconnector_start")
_reconnector_stop = bind("blip_reconnector_stop")
_reconnector_wake = bind("blip_reconnector_wake")
_reconnector_state = bind("blip_reconnector_state")
_reconnector_delay = bind("blip_reconnector_delay")
_reconnector_connection = bind("blip_reconnector_connection")
_connection_release = bind("blip_connection_release")
_connection_options_new = bind("blip_connection_options_new")
_connection_options_release = bind("blip_connection_options_release")
_connection_options_set_queue = bind("blip_connection_options_set_queue")
_pool_new = bind_waiting("blip_pool_new")
_pool_connection = bind_waiting("blip_pool_connection")
_pool_release = bind("blip_pool_release")
_pool_add_module = bind("blip_pool_add_module")
_pool_set_idle_timeout = bind("blip_pool_set_idle_timeout")
_pool_count = bind("blip_pool_count")
_pool_close_all = bind("blip_pool_close_all")

OBSERVATIONS = {
    "will_connect": _ffi.OBSERVE_WILL_CONNECT,
    "connected": _ffi.OBSERVE_CONNECTED,
    "will_secure": _ffi.OBSERVE_WILL_SECURE,
    "secured": _ffi.OBSERVE_SECURED,
    "will_authenticate": _ffi.OBSERVE_WILL_AUTHENTICATE,
    "authenticated": _ffi.OBSERVE_AUTHENTICATED,
    "open": _ffi.OBSERVE_OPEN,
    "connect_timed_out": _ffi.OBSERVE_CONNECT_TIMED_OUT,
    "will_close": _ffi.OBSERVE_WILL_CLOSE,
    "closed": _ffi.OBSERVE_CLOSED,
    "sent": _ffi.OBSERVE_SENT,
    "not_sent": _ffi.OBSERVE_NOT_SENT,
    "request": _ffi.OBSERVE_REQUEST,
    "response": _ffi.OBSERVE_RESPONSE,
    "filtered": _ffi.OBSERVE_FILTERED,
}
_NAMES = {number: name for name, number in OBSERVATIONS.items()}
RECONNECTOR_STATES = ("new", "connecting", "open", "waiting", "stopped")


class Observation(NamedTuple):
    """What an observer is told."""

    what: str
    """One of `OBSERVATIONS`."""
    status: int
    """0, or a negative `Status`: why a connection is closed, or a message was not sent."""
    message: Optional[str]
    """One line about the message, if it is about one."""


class Observer:
    """What `observe` returns: `remove` ends it."""

    def __init__(self, pump: Pump, function: Callable[[Observation], Any], kinds: Tuple[str, ...]) -> None:
        unknown = set(kinds) - set(OBSERVATIONS)
        if unknown:
            raise ValueError(f"nothing to observe is called {unknown.pop()!r}; there are {', '.join(OBSERVATIONS)}")
        self._pump = pump
        self._function = function
        mask = 0
        for kind in kinds or OBSERVATIONS:
            mask |= OBSERVATIONS[kind]
        self._context = pump.expect(self._on_event)
        self._module = new_module(pump, mask, self._context)
        self._owner = 0
        self._remove: Callable[[int, int], int] = _connection_remove_module

    def _on_event(self, event: int) -> None:
        what = _NAMES.get(event_value(event))
        message = _event_message(event)
        line = _ffi.OutSlice()
        described = None
        if message and _message_describe(message, False, byref(line)) >= 0:
            described = _ffi.take(line).decode("utf-8", "replace")
        observation = Observation(what or "", _event_status(event), described)
        _event_release(event)
        if what is not None:
            self._function(observation)

    def _add(self, owner: int, add: Callable[[int, int], int], remove: Callable[[int, int], int]) -> None:
        status = add(owner, self._module)
        if status < 0:
            self.remove()
            raise failure(status, "observe")
        self._owner = owner
        self._remove = remove

    def remove(self) -> None:
        """Nothing is told from now on."""
        if self._module:
            if self._owner:
                self._remove(self._owner, self._module)
            _module_release(self._module)
            self._module = 0
            self._pump.forget(self._context)

    def __del__(self, release: Callable[[int], None] = _module_release) -> None:
        module = getattr(self, "_module", 0)
        if module:
            release(module)


def new_module(pump: Pump, mask: int, context: int) -> int:
    """A module that puts what it observes into the pump's queue."""
    out = c_void_p()
    check(_module_new(text(""), byref(out)), "module")
    module = out.value or 0
    status = _module_set_observer(module, mask, pump.queue, None, context, None)
    if status < 0:
        _module_release(module)
        raise failure(status, "observe")
    return module


def observe_connection(handle: int, pump: Pump, function: Callable[[Observation], Any], kinds: Tuple[str, ...]) -> Observer:
    observer = Observer(pump, function, kinds)
    observer._add(handle, _connection_add_module, _connection_remove_module)
    return observer


def observe_listener(handle: int, pump: Pump, function: Callable[[Observation], Any], kinds: Tuple[str, ...]) -> Observer:
    observer = Observer(pump, function, kinds)
    observer._add(handle, _listener_add_module, _listener_remove_module)
    return observer


def new_pool(queue: int) -> int:
    options = _connection_options_new()
    try:
        check(_connection_options_set_queue(options, queue), "queue")
        out = c_void_p()
        check(_pool_new(runtime(), options, byref(out)), "pool")
        return out.value or 0
    finally:
        _connection_options_release(options)


def pool_connection(pool: int, url: str) -> int:
    """A reference to the connection to a URL, which connects if it is new."""
    out = c_void_p()
    address = url_slice(url)
    status = _pool_connection(pool, address, byref(out))
    if status < 0:
        raise url_failure(status, address)
    return out.value or 0


release_connection = _connection_release


class Family:
    """Connections that the library makes by itself, as objects; it learns of their beginning and end."""

    def __init__(self, pump: Pump, make: Callable[[], Any]) -> None:
        self._pump = pump
        self._make = make
        self._members: Dict[int, Any] = {}
        self._context = pump.expect(OwnerCall(self, Family._on_event))
        self.module = new_module(pump, _ffi.OBSERVE_OPEN | _ffi.OBSERVE_CLOSED, self._context)

    def __del__(self, release: Callable[[int], None] = _module_release) -> None:
        module = getattr(self, "module", 0)
        if module:
            self.module = 0
            release(module)
            self._pump.forget(self._context)

    def of(self, handle: int) -> Any:
        """The object for a connection; its handle is borrowed."""
        member = self._members.get(handle)
        if member is None:
            member = self._make()
            member._setup(_connection_retain(handle), self._pump)
            if member.state == "closed":
                # Its end may have been told already, and is not told again.
                member._did_end(Status.CLOSED)
            else:
                self._members[handle] = member
        return member

    def _on_event(self, event: int) -> None:
        handle = _event_connection(event)
        if event_value(event) == _ffi.OBSERVE_OPEN:
            member = self._members.get(handle)
            if member is not None:
                member._did_open()
            return
        member = self._members.pop(handle, None)
        if member is not None:
            member._did_end(_event_status(event))


class BaseReconnector:
    """A connection to one URL, and another one whenever that has ended."""

    _handle: int = 0
    _pump: Pump

    def __del__(self, release: Callable[[int], None] = _reconnector_release) -> None:
        handle = self._handle
        if handle:
            self._handle = 0
            self._drop_contexts()
            release(handle)

    def _setup(self, handle: int, pump: Pump, given: Dict[str, Any], make: Callable[[], Any]) -> None:
        self._handle = handle
        self._pump = pump
        self._contexts: List[int] = []
        self._profiles: Set[Optional[str]] = set()
        self._functions: List[Callable[[str, int], Any]] = []
        self._family = Family(pump, make)
        check(_reconnector_add_module(handle, self._family.module), "module")
        if given.get("backoff") is not None:
            initial, maximum, growth = given["backoff"]
            check(
                _reconnector_set_backoff(handle, milliseconds(initial), milliseconds(maximum), round(growth * 100)),
                "backoff",
            )
        if given.get("attempts") is not None:
            check(_reconnector_set_attempts(handle, given["attempts"]), "attempts")
        if given.get("stable_time") is not None:
            check(_reconnector_set_stable_time(handle, milliseconds(given["stable_time"])), "stable_time")
        check(_reconnector_set_carry_over(handle, bool(given.get("carry_over"))), "carry_over")
        check(_reconnector_set_persistent(handle, bool(given.get("persistent"))), "persistent")
        context = pump.expect(OwnerCall(self, BaseReconnector._on_event))
        self._contexts.append(context)
        check(_reconnector_set_state_callback(handle, None, context, None), "callback")

    def _drop_contexts(self) -> None:
        for context in self._contexts:
            self._pump.forget(context)
        self._contexts.clear()

    def _connect(self) -> None:
        check(_reconnector_start(self._handle), "start")

    def __repr__(self) -> str:
        return f"<blip reconnector {self.state}>"

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        if profile is None:
            self._pump.forget(context)
            raise ValueError("a reconnector has no default handler: name the profile")
        out = c_void_p()
        check(_module_new(text(profile), byref(out)), "module")
        module = out.value or 0
        flags = _ffi.HANDLER_STREAM if stream else 0
        status = _module_set_handler(module, text(profile), flags, None, context, None)
        if status >= 0:
            status = _reconnector_add_module(self._handle, module)
        _module_release(module)
        if status < 0:
            self._pump.forget(context)
            raise failure(status, f"handler for {profile!r}")
        self._contexts.append(context)

    def _connection_of(self, event: int) -> Any:
        return self._family.of(_event_connection(event))

    def _on_event(self, event: int) -> None:
        value = event_value(event)
        status = _event_status(event)
        state = RECONNECTOR_STATES[value] if 0 <= value < len(RECONNECTOR_STATES) else str(value)
        self._did_change(state, status)
        for function in self._functions:
            try:
                function(state, status)
            except Exception:
                log.exception("on_state failed")

    def _did_change(self, state: str, status: int) -> None:
        pass

    def on_state(self, function: Callable[[str, int], Any]) -> Callable[[str, int], Any]:
        """Decorator: the function is called with each new state, and with the `Status` that a connection ended with.

        The states are "connecting", "open", "waiting" and, as the last one, "stopped".
        """
        self._functions.append(function)
        return function

    @property
    def state(self) -> str:
        """ "new", "connecting", "open", "waiting" or "stopped"."""
        out = c_int32()
        check(_reconnector_state(self._handle, byref(out)))
        return RECONNECTOR_STATES[out.value] if 0 <= out.value < len(RECONNECTOR_STATES) else str(out.value)

    @property
    def delay(self) -> Optional[float]:
        """Seconds until the next try; None if none is due."""
        out = c_int64()
        status = _reconnector_delay(self._handle, byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status)
        return out.value / 1000

    def wake(self) -> None:
        """Tries now instead of waiting: for programs that know that the network is back."""
        status = _reconnector_wake(self._handle)
        if status != Status.CLOSED:
            check(status, "wake")

    def _current(self) -> Any:
        out = c_void_p()
        status = _reconnector_connection(self._handle, byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status)
        handle = out.value or 0
        try:
            return self._family.of(handle)
        finally:
            _connection_release(handle)

    def _stop(self, timeout: Optional[float]) -> None:
        check(_reconnector_stop(self._handle, milliseconds(timeout)), "stop")


class BasePool:
    """One open connection for each URL."""

    _handle: int = 0
    _pump: Pump

    def __del__(self, release: Callable[[int], None] = _pool_release) -> None:
        handle = self._handle
        if handle:
            self._handle = 0
            release(handle)

    def _setup(self, handle: int, pump: Pump, idle_timeout: Optional[float], make: Callable[[], Any]) -> None:
        self._handle = handle
        self._pump = pump
        self._family = Family(pump, make)
        check(_pool_add_module(handle, self._family.module), "module")
        if idle_timeout is not None:
            check(_pool_set_idle_timeout(handle, milliseconds(idle_timeout)), "idle_timeout")

    def __len__(self) -> int:
        out = c_size_t()
        check(_pool_count(self._handle, byref(out)))
        return out.value

    def _close_all(self, code: int, reason: str) -> List[Any]:
        members = list(self._family._members.values())
        check(_pool_close_all(self._handle, code, text(reason)), "close")
        return members

