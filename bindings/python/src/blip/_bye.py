"""The message "Bye" of BLIP 1 and 2, by which one side asks the other whether it may close."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Optional, Union

from ._ffi import bind
from ._pump import Pump
from ._question import Question, ask

Permission = Union[Optional[bool], Awaitable[Optional[bool]]]

_answer_close_request = bind("blip_connection_answer_close_request")
_event_connection = bind("blip_event_connection")


class CloseRequest(Question):
    """A peer that asks to close. Without an answer it may."""

    __slots__ = ("_handle", "_connection")

    def __init__(self, owner: Any, event: int) -> None:
        super().__init__(event)
        self._handle: int = _event_connection(event) or 0
        self._connection = owner._connection_of(event)

    def _subject(self) -> Any:
        return self._connection

    def _give(self, answer: Optional[bool]) -> None:
        # That the connection has ended meanwhile is as good as any answer.
        _answer_close_request(self._handle, answer is None or bool(answer))

    def _reject(self) -> None:
        _answer_close_request(self._handle, False)


def take_close_requests(owner: Any, pump: Pump, setter: Callable[..., int], function: Callable[[Any], Permission]) -> None:
    """Asks the function whenever a peer says Bye."""
    ask(owner, pump, setter, CloseRequest, function, "on_close_request")
