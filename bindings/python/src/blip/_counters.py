"""Figures of connections, listeners and everything together."""

from __future__ import annotations

from ctypes import byref, c_int64, c_size_t, c_uint64, c_void_p
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _ffi
from ._ffi import OutSlice, Status, bind, bind_waiting, take
from ._pump import runtime
from .errors import check

COUNTERS = {
    "messages_sent": _ffi.COUNTER_MESSAGES_SENT,
    "messages_received": _ffi.COUNTER_MESSAGES_RECEIVED,
    "frames_sent": _ffi.COUNTER_FRAMES_SENT,
    "frames_received": _ffi.COUNTER_FRAMES_RECEIVED,
    "bytes_sent": _ffi.COUNTER_BYTES_SENT,
    "bytes_received": _ffi.COUNTER_BYTES_RECEIVED,
    "requests_pending": _ffi.COUNTER_REQUESTS_PENDING,
    "requests_unanswered": _ffi.COUNTER_REQUESTS_UNANSWERED,
    "messages_queued": _ffi.COUNTER_MESSAGES_QUEUED,
    "compression_input": _ffi.COUNTER_COMPRESSION_INPUT,
    "compression_output": _ffi.COUNTER_COMPRESSION_OUTPUT,
    "decompression_input": _ffi.COUNTER_DECOMPRESSION_INPUT,
    "decompression_output": _ffi.COUNTER_DECOMPRESSION_OUTPUT,
    "errors_sent": _ffi.COUNTER_ERRORS_SENT,
    "errors_received": _ffi.COUNTER_ERRORS_RECEIVED,
    "round_trips": _ffi.COUNTER_ROUND_TRIPS,
    "round_trip_time": _ffi.COUNTER_ROUND_TRIP_TIME,
    "reading_paused_time": _ffi.COUNTER_READING_PAUSED_TIME,
    "sending_paused_time": _ffi.COUNTER_SENDING_PAUSED_TIME,
    "messages_paused": _ffi.COUNTER_MESSAGES_PAUSED,
    "messages_unfinished": _ffi.COUNTER_MESSAGES_UNFINISHED,
    "memory": _ffi.COUNTER_MEMORY,
    "backlog": _ffi.COUNTER_BACKLOG,
    "connections": _ffi.COUNTER_CONNECTIONS,
    "connections_opened": _ffi.COUNTER_CONNECTIONS_OPENED,
    "connections_failed": _ffi.COUNTER_CONNECTIONS_FAILED,
}

_new = bind("blip_counters_new")
_release = bind("blip_counters_release")
_value = bind("blip_counters_value")
_add = bind("blip_counters_add")
_percentile = bind("blip_counters_percentile")
_bucket = bind("blip_counters_bucket")
# These wait for the loops' locks.
_of_connection = bind_waiting("blip_connection_counters")
_of_listener = bind_waiting("blip_listener_counters")
_of_runtime = bind_waiting("blip_runtime_counters")
_metrics_text = bind_waiting("blip_runtime_metrics_text")


class Counters(Mapping[str, int]):
    """Figures of one moment, by the names in `COUNTERS`. They can be added up. Times are microseconds."""

    __slots__ = ("_handle", "_values")

    def __init__(self) -> None:
        self._handle: int = _new() or 0
        self._values: Optional[Dict[str, int]] = None

    @classmethod
    def _taken(cls, function: Callable[..., int], *arguments: object) -> Counters:
        out = c_void_p()
        check(function(*arguments, byref(out)), "counters")
        counters = cls.__new__(cls)
        counters._handle = out.value or 0
        counters._values = None
        return counters

    def __del__(self, release: Callable[[int], None] = _release) -> None:
        handle = getattr(self, "_handle", 0)
        if handle:
            self._handle = 0
            release(handle)

    def _read(self) -> Dict[str, int]:
        if self._values is None:
            out = c_uint64()
            values = {}
            for name, number in COUNTERS.items():
                check(_value(self._handle, number, byref(out)), name)
                values[name] = out.value
            self._values = values
        return self._values

    def __getitem__(self, name: str) -> int:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COUNTERS)

    def __len__(self) -> int:
        return len(COUNTERS)

    def __repr__(self) -> str:
        return f"Counters({self._read()!r})"

    def __add__(self, other: Counters) -> Counters:
        total = Counters()
        for part in (self, other):
            check(_add(total._handle, part._handle), "counters")
        return total

    def percentile(self, percent: float) -> Optional[float]:
        """The seconds that so many percent of the round trips did not exceed; None if there was none."""
        out = c_int64()
        status = _percentile(self._handle, percent, byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status, f"percentile {percent}")
        return out.value / 1e6

    def buckets(self) -> List[Tuple[float, int]]:
        """The histogram of round trips: (end in seconds, how many took less and not less than the end before)."""
        end, count = c_uint64(), c_uint64()
        index = c_size_t()
        found: List[Tuple[float, int]] = []
        while _bucket(self._handle, index, byref(end), byref(count)) == Status.OK:
            found.append((float("inf") if end.value == 2**64 - 1 else end.value / 1e9, count.value))
            index.value += 1
        return found


def of_connection(handle: int) -> Counters:
    return Counters._taken(_of_connection, handle)


def of_listener(handle: int) -> Counters:
    return Counters._taken(_of_listener, handle)


def counters() -> Counters:
    """The sums over all connections of this process, ended ones included."""
    return Counters._taken(_of_runtime, runtime())


def metrics_text() -> str:
    """The same as text for Prometheus, with figures of each listener; "text/plain; version=0.0.4"."""
    out, text = c_void_p(), OutSlice()
    check(_metrics_text(runtime(), byref(out), byref(text)), "metrics")
    try:
        return take(text).decode()
    finally:
        _release(out.value)
