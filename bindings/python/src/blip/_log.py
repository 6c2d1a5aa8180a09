"""The library's log, in Python's.

Lines come from any thread of the library. They go through a queue, and a thread of the package hands them to `logging`.
"""

from __future__ import annotations

import logging
import os
from ctypes import byref
from typing import Dict, Optional, Set, Union

from . import _ffi
from ._ffi import OutSlice, bind, take
from ._message import Received
from ._pump import ThreadPump, at_last, event_value, runtime, thread_pump
from .errors import check

_runtime_set_log_queue = bind("blip_runtime_set_log_queue")
_event_log_line = bind("blip_event_log_line")
_event_release = bind("blip_event_release")

_LEVELS = {
    _ffi.LOG_ERROR: logging.ERROR,
    _ffi.LOG_WARNING: logging.WARNING,
    _ffi.LOG_INFO: logging.INFO,
    _ffi.LOG_DEBUG: logging.DEBUG,
}

# Runtimes beside the one of the process, whose log goes the same way.
_others: Set[int] = set()
_pump: Optional[ThreadPump] = None
_context = 0
_level = 0
_logger = logging.getLogger("blip")
_loggers: Dict[str, logging.Logger] = {}


def set_log(level: Union[int, str, None] = logging.INFO, logger: Optional[logging.Logger] = None) -> None:
    """Has what the library itself tells of its connections and listeners written into Python's `logging`.

    level: one of `logging`, by number or name, and what is more important; None: nothing, as it is at first. logger: the
    parent of those that are used, by default "blip": a line about a listener goes to "blip.listener". What these loggers
    let through is up to `logging`. Lines are written by a thread of the package, and before the program ends; of more
    than 4096 that wait, the last are lost. A forked child has to ask for its own.
    """
    global _pump, _context, _level, _logger
    wanted = _level_of(level)
    _logger = logger or logging.getLogger("blip")
    _loggers.clear()
    if _pump is None:
        if not wanted:
            return
        _pump = thread_pump("log", Received)
        _context = _pump.expect(_take_line)
        at_last(_pump.drain)
    _pump.start()
    _level = wanted
    check(_runtime_set_log_queue(runtime(), _level, _pump.queue, None, _context, None), "log")
    for other in list(_others):
        _runtime_set_log_queue(other, _level, _pump.queue, None, _context, None)


def _level_of(level: Union[int, str, None]) -> int:
    if level is None:
        return 0
    if isinstance(level, str):
        number = logging.getLevelName(level.upper())
        if not isinstance(number, int):
            raise ValueError(f"logging has no level {level!r}")
        level = number
    if level > logging.ERROR:
        return 0
    for mine in (_ffi.LOG_DEBUG, _ffi.LOG_INFO, _ffi.LOG_WARNING):
        if level <= _LEVELS[mine]:
            return mine
    return _ffi.LOG_ERROR


def add_runtime(handle: int) -> None:
    """A runtime is there whose log is to go the same way."""
    _others.add(handle)
    if _level and _pump is not None:
        _runtime_set_log_queue(handle, _level, _pump.queue, None, _context, None)


def remove_runtime(handle: int) -> None:
    _others.discard(handle)


def _take_line(event: int) -> None:
    domain, line = OutSlice(), OutSlice()
    status = _event_log_line(event, byref(domain), byref(line))
    level = _LEVELS.get(event_value(event), logging.INFO)
    name, text = take(domain).decode("utf-8", "replace"), take(line).decode("utf-8", "replace")
    _event_release(event)
    if status >= 0:
        logger = _loggers.get(name)
        if logger is None:
            logger = _loggers[name] = _logger.getChild(name)
        logger.log(level, "%s", text)


def _forget_parent() -> None:
    """In a forked child: everything belongs to the parent."""
    global _pump, _level
    _pump = None
    _level = 0
    _others.clear()


os.register_at_fork(after_in_child=_forget_parent)
