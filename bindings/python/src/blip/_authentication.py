"""Challenges of servers, and the cookies of this process."""

from __future__ import annotations

from ctypes import byref, c_bool, c_size_t, c_uint32, create_string_buffer
from typing import Any, Awaitable, Callable, List, Optional, Tuple, Union

from . import _ffi
from ._ffi import EMPTY, OutSlice, Status, bind, bind_waiting, take, text
from ._pump import Pump, runtime
from ._question import Question, ask
from .errors import check

Answer = Optional[Tuple[str, str]]
ChallengeHandler = Callable[["Challenge"], Union[Answer, Awaitable[Answer]]]

_challenge_host = bind("blip_challenge_host")
_challenge_is_proxy = bind("blip_challenge_is_proxy")
_challenge_attempts = bind("blip_challenge_attempts")
_challenge_count = bind("blip_challenge_count")
_challenge_scheme = bind("blip_challenge_scheme")
_challenge_parameter = bind("blip_challenge_parameter")
_challenge_answer_password = bind("blip_challenge_answer_password")
_challenge_answer_token = bind("blip_challenge_answer_token")
_challenge_answer_header = bind("blip_challenge_answer_header")
_challenge_cancel = bind("blip_challenge_cancel")
_event_challenge = bind("blip_event_challenge")
_set_challenge_callback = bind("blip_connection_set_challenge_callback")
_runtime_set_cookie = bind_waiting("blip_runtime_set_cookie")
_password_hash = bind_waiting("blip_password_hash")
_runtime_cookies = bind("blip_runtime_cookies")
_runtime_clear_cookies = bind("blip_runtime_clear_cookies")


class Challenge(Question):
    """A server's demand for authentication, or that of a proxy on the way (`is_proxy`), to be answered once, by one of
    the `answer` methods, now or later and on any thread. When the last reference is gone without an answer, the
    connection fails with status 401, of a proxy 407."""

    __slots__ = ("_handle",)

    def __init__(self, event: int) -> None:
        super().__init__(event)
        self._handle: int = _event_challenge(event) or 0

    def __repr__(self) -> str:
        return f"<blip challenge of {self.host}: {', '.join(self.schemes)}>"

    @property
    def host(self) -> str:
        """Who asks: "host" or "host:port"; after a redirect another one than the connection's URL says."""
        out = OutSlice()
        check(_challenge_host(self._handle, byref(out)))
        return take(out).decode("utf-8", "replace")

    @property
    def is_proxy(self) -> bool:
        out = c_bool()
        check(_challenge_is_proxy(self._handle, byref(out)))
        return out.value

    @property
    def attempts(self) -> int:
        """1 for the first challenge; more if what was sent before was refused, or was one round of several."""
        out = c_uint32()
        check(_challenge_attempts(self._handle, byref(out)))
        return out.value

    @property
    def schemes(self) -> List[str]:
        """What the server takes, in lower case, such as ["digest", "basic"]."""
        count = c_size_t()
        check(_challenge_count(self._handle, byref(count)))
        names = []
        for index in range(count.value):
            out = OutSlice()
            check(_challenge_scheme(self._handle, index, byref(out)))
            names.append(take(out).decode("ascii", "replace"))
        return names

    @property
    def realm(self) -> Optional[str]:
        """The realm of the first scheme that has one."""
        for index in range(len(self.schemes)):
            value = self.parameter("realm", index)
            if value is not None:
                return value
        return None

    def parameter(self, name: str, index: int = 0) -> Optional[str]:
        """A parameter of the scheme with that index; the name "" means what some have in its place (token68)."""
        out = OutSlice()
        status = _challenge_parameter(self._handle, index, text(name) if name else EMPTY, byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status)
        return take(out).decode("utf-8", "replace")

    def answer_password(self, user: str, password: str) -> None:
        """By the strongest scheme that takes them: Digest, else Basic."""
        check(_challenge_answer_password(self._handle, text(user), text(password)), "answer")

    def answer_token(self, token: str) -> None:
        check(_challenge_answer_token(self._handle, text(token)), "answer")

    def answer_header(self, value: str) -> None:
        """With a value for the header Authorization, of whatever scheme."""
        check(_challenge_answer_header(self._handle, text(value)), "answer")

    def cancel(self) -> None:
        """Gives up: the connection fails with status 401."""
        check(_challenge_cancel(self._handle), "cancel")

    def _give(self, answer: Answer) -> None:
        """None: the function has answered itself, or will."""
        if answer is not None:
            user, password = answer
            self.answer_password(user, password)

    def _reject(self) -> None:
        _challenge_cancel(self._handle)


def take_challenges(connection: Any, pump: Pump, function: ChallengeHandler) -> None:
    """Asks the function whenever a server wants authentication."""
    ask(connection, pump, _set_challenge_callback, lambda _, event: Challenge(event), function, "on_challenge")


def set_cookie(url: str, cookie: str) -> None:
    """Puts a cookie into this process's jar, as if the server of that URL had set it: "name=value; Path=/db"."""
    check(_runtime_set_cookie(runtime(), text(url), text(cookie)), "the cookie")


def cookies(url: str) -> str:
    """What connections with cookies=True send to that URL: "name=value; name=value", or ""."""
    buffer = create_string_buffer(_ffi.COOKIES_SIZE)
    size = c_size_t()
    status = _runtime_cookies(runtime(), text(url), buffer, _ffi.COOKIES_SIZE, byref(size))
    if status == Status.NOT_FOUND:
        return ""
    check(status, "cookies")
    return buffer.raw[: size.value].decode("utf-8", "replace")


def hash_password(password: str) -> str:
    """A salted hash of a password, for `user_hashes` of `serve`. Takes about 50 ms."""
    buffer = create_string_buffer(_ffi.PASSWORD_HASH_SIZE)
    size = c_size_t()
    check(_password_hash(text(password), buffer, _ffi.PASSWORD_HASH_SIZE, byref(size)), "hash")
    return buffer.raw[: size.value].decode("ascii")


def clear_cookies() -> None:
    """Forgets all cookies of this process."""
    check(_runtime_clear_cookies(runtime()), "cookies")
