"""W3C Trace Context: properties that say to which trace a message belongs."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Callable, Dict, Optional

from ._ffi import EMPTY, OutSlice, Status, bind, take
from .errors import check

_request_new = bind("blip_request_new")
_release = bind("blip_message_release")
_trace_context = bind("blip_message_trace_context")
_continue_trace = bind("blip_message_continue_trace")
_begin_trace = bind("blip_message_begin_trace")


def read_trace(message: int) -> Optional[Dict[str, str]]:
    """The properties of a message's trace context, if it has a well-formed one."""
    parent, state = OutSlice(), OutSlice()
    status = _trace_context(message, byref(parent), byref(state))
    if status == Status.NOT_FOUND:
        return None
    check(status, "trace context")
    found = {"traceparent": take(parent).decode()}
    if state.size:
        found["tracestate"] = take(state).decode()
    return found


def _made(make: Callable[[int], int]) -> Dict[str, str]:
    out = c_void_p()
    check(_request_new(EMPTY, byref(out)), "trace context")
    message = out.value or 0
    try:
        status = make(message)
        if status == Status.NOT_FOUND:
            return {}
        check(status, "trace context")
        return read_trace(message) or {}
    finally:
        _release(message)


def child_trace(of: int) -> Dict[str, str]:
    return _made(lambda message: _continue_trace(message, of))


def new_trace(sampled: bool = True) -> Dict[str, str]:
    """Properties with which a request begins a new trace."""
    return _made(lambda message: _begin_trace(message, sampled))
