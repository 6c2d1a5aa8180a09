"""Bodies that an iterator gives, handed over piece by piece while they are sent."""

from __future__ import annotations

from typing import Callable, Optional

from . import _ffi
from ._ffi import EMPTY, Slice, Status, bind
from ._pump import Pump, event_value
from .errors import check

_event_release = bind("blip_event_release")
_event_status = bind("blip_event_status")
_message_retain = bind("blip_message_retain")
_message_release = bind("blip_message_release")
_append_body_pushed = bind("blip_message_append_body_pushed")
_push_body = bind("blip_message_push_body")
_set_progress_callback = bind("blip_message_set_progress_callback")
_set_sent_callback = bind("blip_message_set_sent_callback")

AGAIN = _ffi.AGAIN
CLOSED = Status.CLOSED


class Feed:
    """The way of an iterator's pieces into one message; what both interfaces have in common.

    The message is to be sent when the first piece is in it: what the iterator raises before that harms nobody.
    Afterwards BLIP cannot take the message back. If its body does not come to its end, the library closes the
    connection as soon as the feed lets go of the message.
    """

    def __init__(self, pump: Pump, message: int, progress: Optional[Callable[[int], None]]) -> None:
        self._pump = pump
        self._progress = progress
        self._message: int = 0
        self._left = False
        self._has_ended = False
        self._progress_context = pump.expect(self._on_progress)
        self._sent_context = pump.expect(self._on_sent)
        try:
            check(_append_body_pushed(message), "body")
            check(_set_progress_callback(message, None, self._progress_context, None), "body")
            check(_set_sent_callback(message, None, self._sent_context, None), "body")
        except BaseException:
            self.leave()
            raise
        self._message = _message_retain(message)

    def let_go(self) -> None:
        """Nothing more is handed over."""
        message, self._message = self._message, 0
        if message:
            _message_release(message)
        self._settle()

    def leave(self) -> None:
        """Whoever sends the message has got its result: nobody is told of progress any more."""
        self._left = True
        self._progress = None
        self._settle()

    def _settle(self) -> None:
        if self._left and not self._message:
            self._pump.forget(self._progress_context)
            self._pump.forget(self._sent_context)

    def _on_progress(self, event: int) -> None:
        sent = event_value(event)
        _event_release(event)
        self._may_go_on()
        if self._progress is not None:
            self._progress(sent)

    def _on_sent(self, event: int) -> None:
        status = _event_status(event)
        _event_release(event)
        self._did_send(status)
        self._may_go_on()

    def _did_send(self, status: int) -> None:
        """The whole message was handed to the operating system, or will not be."""
        raise NotImplementedError

    def _may_go_on(self) -> None:
        """There was progress, or there will be none any more."""
        raise NotImplementedError

    def _push(self, memory: Slice, last: bool = False) -> int:
        """0; AGAIN: nothing was taken until there is progress; or CLOSED: the message's own end tells why."""
        status: int = _push_body(self._message, memory, last)
        if status != Status.CLOSED:
            check(status, "body")
        return status

    def _push_end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._push(EMPTY, True)
