"""Questions of the library's that the program answers, now or later: challenges, certificates, peers that want to close."""

from __future__ import annotations

import inspect
from typing import Any, Awaitable, Callable

from ._ffi import bind
from ._pump import HandlerCall, Pump, log
from .errors import check

_event_release = bind("blip_event_release")


class Question:
    """Something to be answered once. It holds the library's event: without one, the question is answered by itself."""

    __slots__ = ("_event",)

    def __init__(self, event: int) -> None:
        self._event = event

    def __del__(self, release: Callable[[int], None] = _event_release) -> None:
        event = self._event
        if event:
            self._event = 0
            release(event)

    def _subject(self) -> Any:
        """What the program's function is given."""
        return self

    def _give(self, answer: Any) -> None:
        """Answers with what the program's function has returned."""
        raise NotImplementedError

    def _reject(self) -> None:
        """Answers no; whether that is possible any more does not matter."""
        raise NotImplementedError


def ask(
    owner: Any,
    pump: Pump,
    setter: Callable[..., int],
    make: Callable[[Any, int], Question],
    function: Callable[[Any], Any],
    name: str,
) -> None:
    """Has the function answer what comes by the setter's callback. The owner starts what is to be awaited."""

    def on_event(owner: Any, event: int, argument: object) -> None:
        question = make(owner, event)
        try:
            result = function(question._subject())
            if inspect.isawaitable(result):
                owner._start(_answer_later(question, result, name))
            else:
                question._give(result)
        except Exception:
            _fail(question, name)

    context = pump.expect(HandlerCall(owner, on_event, None))
    status = setter(owner._handle, None, context, None)
    if status < 0:
        pump.forget(context)
    check(status, name)
    owner._contexts.append(context)


async def _answer_later(question: Question, answer: Awaitable[Any], name: str) -> None:
    try:
        question._give(await answer)
    except Exception:
        _fail(question, name)
    except BaseException:
        question._reject()
        raise


def _fail(question: Question, name: str) -> None:
    """The function has raised. Nobody knows how long the traceback keeps the question, so the answer is no."""
    question._reject()
    log.exception("%s failed", name)
