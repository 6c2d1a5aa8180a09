"""Runtimes without threads, whose loops Python runs: for functions of Python that the library has to call.

No thread of the library enters Python. What carries the frames of a connection, sees them, or gives it more time has to
be called, though, and not told by events: so those connections live on a loop that the asyncio loop, or a thread of the
package, runs itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Callable, Optional, Set

from ._ffi import bind, bind_waiting
from ._log import add_runtime, remove_runtime
from ._pump import at_end, log
from .errors import check, failure

_runtime_options_new = bind("blip_runtime_options_new")
_runtime_options_release = bind("blip_runtime_options_release")
_runtime_options_set_threads = bind("blip_runtime_options_set_threads")
_runtime_new = bind_waiting("blip_runtime_new")
_runtime_fd = bind("blip_runtime_fd")
# Callbacks run inside, on the thread that calls.
_runtime_run_once = bind_waiting("blip_runtime_run_once")
_runtime_stop = bind_waiting("blip_runtime_stop")
_runtime_release = bind_waiting("blip_runtime_release")


class Driver:
    """A runtime whose loop is run by Python."""

    def __init__(self) -> None:
        self.handle: int = 0
        # Transports at work, which nobody else may keep alive.
        self.transports: Set[Any] = set()
        # What must not end in a callback of the library: KeyboardInterrupt and the like.
        self.raised: Optional[BaseException] = None
        self.has_ended = False
        options = _runtime_options_new()
        try:
            check(_runtime_options_set_threads(options, 0), "runtime")
            out = c_void_p()
            check(_runtime_new(options, byref(out)), "runtime")
            self.handle = out.value or 0
            add_runtime(self.handle)
        finally:
            _runtime_options_release(options)

    def __del__(
        self,
        stop: Callable[..., int] = _runtime_stop,
        release: Callable[[int], None] = _runtime_release,
        forget: Callable[[int], None] = remove_runtime,
    ) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            forget(handle)
            self.has_ended = True
            stop(handle, 0)
            release(handle)

    def run_once(self, timeout: int) -> int:
        """One turn of the loop; its status."""
        status: int = _runtime_run_once(self.handle, timeout, None)
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised
        return status


class LoopDriver(Driver):
    """Its loop runs inside an asyncio loop, which keeps it alive until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        out = c_int()
        check(_runtime_fd(self.handle, byref(out)), "runtime")
        loop.add_reader(out.value, self._run)

    def _run(self) -> None:
        self.run_once(0)


class ThreadDriver(Driver):
    """Its loop has a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.Thread(target=self._run, name="blip-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        status = 0
        while not self.has_ended and status >= 0:
            try:
                status = self.run_once(-1)
            except BaseException:
                # Whoever calls sys.exit in a transport ends no thread that all others need.
                log.exception("what the package called failed")
        if not self.has_ended:
            log.error("the thread of the package's loop stopped: %s", failure(status, "its loop"))

    def end(self) -> None:
        """At exit: no thread is left in Python."""
        self.has_ended = True
        _runtime_stop(self.handle, 0)
        self._thread.join(0.5)


_lock = threading.Lock()
_loop_drivers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[LoopDriver]]" = (
    weakref.WeakKeyDictionary()
)
_thread_driver: Optional[ThreadDriver] = None


def loop_driver() -> Driver:
    """The driver of the running asyncio loop."""
    loop = asyncio.get_running_loop()
    reference = _loop_drivers.get(loop)
    driver = reference() if reference is not None else None
    if driver is None:
        driver = LoopDriver(loop)
        _loop_drivers[loop] = weakref.ref(driver)
    return driver


def thread_driver() -> Driver:
    """The driver of the synchronous interface."""
    global _thread_driver
    with _lock:
        if _thread_driver is None:
            _thread_driver = ThreadDriver()
            at_end(_thread_driver.end)
        return _thread_driver


def _forget_parent() -> None:
    """In a forked child: everything belongs to the parent."""
    global _lock, _thread_driver
    _lock = threading.Lock()
    if _thread_driver is not None:
        _thread_driver.has_ended = True
        _thread_driver = None
    _loop_drivers.clear()


os.register_at_fork(after_in_child=_forget_parent)
