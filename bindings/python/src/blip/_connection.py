"""What the asyncio and the synchronous interface have in common: options, facts, handlers, answers."""

from __future__ import annotations

import math
import os
from ctypes import byref, c_bool, c_int32, c_size_t, c_uint16, c_uint64, c_void_p
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union, cast
from urllib.parse import quote

from . import _ffi
from ._counters import Counters, of_connection, of_listener
from ._ffi import EMPTY, OutSlice, Slice, Status, bind, bind_waiting, take, text
from ._message import NO_REPLY, NOBODY_WAITS, Received, answer_error
from ._driver import Driver
from ._pump import HandlerCall, Pump, log, rest_if_ending, runtime
from ._transport import Transport
from .errors import Error, ResponseError, UsageError, check, failure, listener_failure, url_failure, url_slice

PathLike = Union[str, "os.PathLike[str]"]
Headers = Union[Mapping[str, str], Iterable[Tuple[str, str]]]
Identity = Tuple[PathLike, PathLike]

LIMITS = {
    "incoming_frame": _ffi.LIMIT_INCOMING_FRAME,
    "properties": _ffi.LIMIT_PROPERTIES,
    "message": _ffi.LIMIT_MESSAGE,
    "unfinished_messages": _ffi.LIMIT_UNFINISHED_MESSAGES,
    "unfinished_bytes": _ffi.LIMIT_UNFINISHED_BYTES,
    "http_head": _ffi.LIMIT_HTTP_HEAD,
    "responses": _ffi.LIMIT_RESPONSES,
}
IP_POLICIES = {
    "any": _ffi.IP_ANY,
    "prefer4": _ffi.IP_PREFER_4,
    "prefer6": _ffi.IP_PREFER_6,
    "only4": _ffi.IP_ONLY_4,
    "only6": _ffi.IP_ONLY_6,
}
STATES = ("new", "connecting", "open", "closing", "closed")
# `send` waits for its message to be on its way when this many bytes are ahead of it.
BACKLOG = 4 * 1024 * 1024

_connection_options_new = bind("blip_connection_options_new")
_connection_options_release = bind("blip_connection_options_release")
_connection_new = bind_waiting("blip_connection_new")
_connection_from_fd = bind_waiting("blip_connection_from_fd")
_connection_pair = bind_waiting("blip_connection_pair")
_connection_from_transport = bind_waiting("blip_connection_from_transport")
_listener_connect = bind_waiting("blip_listener_connect")
_connection_tls_alpn = bind("blip_connection_tls_alpn")
_connection_tls_is_resumed = bind("blip_connection_tls_is_resumed")
_connection_release = bind("blip_connection_release")
_connection_retain = bind("blip_connection_retain")
_connection_close = bind("blip_connection_close")
_connection_close_gracefully = bind("blip_connection_close_gracefully")
_connection_set_handler = bind("blip_connection_set_handler")
_connection_set_default_handler = bind("blip_connection_set_default_handler")
_connection_set_user_data = bind("blip_connection_set_user_data")
_connection_user_data = bind("blip_connection_user_data")
_connection_state = bind("blip_connection_state")
_connection_version = bind("blip_connection_protocol_version")
_connection_close_code = bind("blip_connection_close_code")
_connection_is_active = bind("blip_connection_is_active")
_connection_is_secure = bind("blip_connection_is_secure")
_connection_is_incoming = bind("blip_connection_is_incoming")
_connection_backlog = bind("blip_connection_backlog")
_connection_http_header = bind("blip_connection_http_header")
_connection_user = bind("blip_connection_user")
_connection_credential_scheme = bind("blip_connection_credential_scheme")
_connection_credential_user = bind("blip_connection_credential_user")
_connection_credential_secret = bind("blip_connection_credential_secret")
_connection_credential_parameter = bind("blip_connection_credential_parameter")
_connection_check_password = bind("blip_connection_check_password")
_connection_defer_accept = bind("blip_connection_defer_accept")
_connection_accept = bind("blip_connection_accept")
_connection_reject = bind("blip_connection_reject")
_connection_add_response_header = bind("blip_connection_add_response_header")
_connection_url = bind("blip_connection_url")
_connection_subprotocol = bind("blip_connection_subprotocol")
_connection_local_address = bind("blip_connection_local_address")
_connection_remote_address = bind("blip_connection_remote_address")
_connection_tls_version = bind("blip_connection_tls_version")
_connection_tls_cipher = bind("blip_connection_tls_cipher")
_connection_peer_certificate = bind("blip_connection_peer_certificate")
_connection_request_path = bind("blip_connection_request_path")
_event_connection = bind("blip_event_connection")
_event_message = bind("blip_event_message")
_event_release = bind("blip_event_release")
_message_profile = bind("blip_message_profile")
_message_defer = bind("blip_message_defer")
_listener_options_new = bind("blip_listener_options_new")
_listener_options_release = bind("blip_listener_options_release")
_listener_new = bind_waiting("blip_listener_new")
_listener_release = bind("blip_listener_release")
_listener_start = bind_waiting("blip_listener_start")
_listener_start_unix = bind_waiting("blip_listener_start_unix")
_listener_start_fd = bind_waiting("blip_listener_start_fd")
_listener_start_systemd = bind_waiting("blip_listener_start_systemd")
_listener_accept_fd = bind_waiting("blip_listener_accept_fd")
_listener_serve_files = bind("blip_listener_serve_files")
_listener_serve_dashboard = bind("blip_listener_serve_dashboard")
_files_options_new = bind("blip_files_options_new")
_files_options_release = bind("blip_files_options_release")
_files_options_set_writable = bind("blip_files_options_set_writable")
_files_options_set_replace = bind("blip_files_options_set_replace")
_files_options_set_hidden = bind("blip_files_options_set_hidden")
_files_options_set_upload_limit = bind("blip_files_options_set_upload_limit")
_listener_stop = bind("blip_listener_stop")
_listener_port = bind("blip_listener_port")
_listener_url = bind("blip_listener_url")
_listener_port_at = bind("blip_listener_port_at")
_listener_url_at = bind("blip_listener_url_at")
_listener_connection_count = bind("blip_listener_connection_count")
_listener_set_handler = bind("blip_listener_set_handler")
_listener_set_default_handler = bind("blip_listener_set_default_handler")
_listener_set_accept_callback = bind("blip_listener_set_accept_callback")
_listener_set_open_callback = bind("blip_listener_set_open_callback")
_listener_set_close_callback = bind("blip_listener_set_close_callback")
_listener_set_stopped_callback = bind("blip_listener_set_stopped_callback")


def milliseconds(seconds: Optional[float]) -> int:
    """None and infinity are for ever. Never rounds a positive time down to "do not wait"."""
    if seconds is None or seconds == math.inf:
        return -1
    if not hasattr(seconds, "__float__"):
        raise TypeError(f"a time is a number of seconds, not {type(seconds).__name__}")
    if seconds < 0:
        raise ValueError(f"a timeout must not be negative: {seconds}")
    return min(int(seconds * 1000 + 0.999), 2**62)


def _path(value: PathLike) -> Slice:
    data = os.fsencode(value)
    return Slice(data, len(data))


def _pairs(headers: Headers) -> Iterable[Tuple[str, str]]:
    if isinstance(headers, Mapping):
        return cast("Mapping[str, str]", headers).items()
    return headers


def _list(value: Union[str, Sequence[str], None]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value or ()


class Options:
    """An options handle of the library: each call names the setter after its common prefix."""

    def __init__(self, prefix: str, handle: int) -> None:
        self._prefix = prefix
        self.handle = handle

    def set(self, name: str, *arguments: Any) -> None:
        function = _options_functions.get(self._prefix + name)
        if function is None:
            function = _options_functions[self._prefix + name] = bind_waiting(self._prefix + name)
        check(function(self.handle, *arguments), name.replace("_", " "))


_options_functions: Dict[str, Callable[..., int]] = {}


def _common_options(options: Options, given: Dict[str, Any]) -> None:
    subprotocols = given.pop("subprotocols", None)
    for name in _list(subprotocols):
        options.set("add_subprotocol", text(name))
    if given.get("close_timeout") is not None:
        options.set("set_close_timeout", milliseconds(given["close_timeout"]))
    for name in ("bye_timeout", "half_close"):
        if given.get(name) is not None:
            options.set("set_" + name, milliseconds(given[name]))
    if given.get("ping") is not None:
        interval, missed = given["ping"]
        options.set("set_ping", milliseconds(interval), missed)
    if given.get("ping_only_idle"):
        options.set("set_ping_only_idle", True)
    if given.get("frame_size") is not None:
        options.set("set_frame_size", given["frame_size"])
    if given.get("compression_level") is not None:
        options.set("set_compression_level", given["compression_level"])
    if given.get("tls_versions") is not None:
        options.set("set_tls_versions", *given["tls_versions"])
    for name in _list(given.get("alpn")):
        options.set("add_tls_alpn", text(name))
    if given.get("ciphers") is not None or given.get("suites") is not None:
        options.set("set_tls_ciphers", text(given.get("ciphers") or ""), text(given.get("suites") or ""))
    for name in ("crl_file", "key_log_file"):
        if given.get(name) is not None:
            options.set("set_tls_" + name, _path(given[name]))
    for name in ("read_timeout", "write_timeout"):
        if given.get(name) is not None:
            options.set("set_" + name, milliseconds(given[name]))
    for name, value in (given.get("limits") or {}).items():
        if name not in LIMITS:
            raise ValueError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}")
        options.set("set_limit", LIMITS[name], value)


def url_of(url: Optional[str], given: Dict[str, Any]) -> str:
    """The URL to connect to: the one given, or that of a Unix socket, whose arguments are taken out of the others."""
    unix_path, path, tls = given.pop("unix_path"), given.pop("path"), given.pop("tls")
    if url is not None:
        for name, value in (("unix_path", unix_path), ("path", path), ("tls", tls or None)):
            if value is not None:
                raise UsageError(f"connect: a URL says all that {name} does; give one or the other")
        return url
    if unix_path is None:
        raise UsageError("connect: a URL is needed, such as ws://host:port/path, or the unix_path of a socket")
    path = path or "/"
    if path[0] not in "/?":
        path = "/" + path
    is_secure = tls or not given["verify"] or any(given[name] is not None for name in _TLS_OPTIONS)
    return f"{'wss' if is_secure else 'ws'}+unix://{quote(os.fsencode(unix_path), safe='')}{path}"


_TLS_OPTIONS = ("ca_file", "identity", "server_name", "tls_versions")


def _way_options(options: Options, given: Dict[str, Any]) -> None:
    """How the server is reached."""
    if given.get("proxy") is not None:
        options.set("set_proxy", text(given["proxy"]))
    if given.get("proxy_from_environment"):
        options.set("set_proxy_from_environment", True)
    if given.get("proxy_ca_file") is not None:
        options.set("set_proxy_tls_ca_file", _path(given["proxy_ca_file"]))
    if given.get("local_address") is not None:
        host, port = given["local_address"]
        options.set("set_local_address", text(host), port)
    if given.get("ip") is not None:
        if given["ip"] not in IP_POLICIES:
            raise ValueError(f"there is no IP policy {given['ip']!r}; there are {', '.join(IP_POLICIES)}")
        options.set("set_ip_policy", IP_POLICIES[given["ip"]])
    if given.get("service_lookup"):
        options.set("set_service_lookup", True)


def _two(value: Any, name: str, shape: str) -> Tuple[Any, Any]:
    """Both parts of an argument that has two. A text of two letters is none, and no exception shows a password."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or len(value) != 2:
        raise TypeError(f"{name}: {shape} is needed")
    first, second = value
    return first, second


def _http_options(options: Options, given: Dict[str, Any]) -> None:
    """Authentication, redirects, cookies."""
    if given.get("credentials") is not None:
        user, password = _two(given["credentials"], "credentials", "(user, password)")
        options.set("set_credentials", text(user), text(password))
    if given.get("token") is not None:
        options.set("set_bearer_token", text(given["token"]))
    if not given.get("preemptive", True):
        options.set("set_preemptive", False)
    if given.get("redirects") is not None:
        options.set("set_redirect_limit", given["redirects"])
    if given.get("cookies"):
        options.set("set_cookies", True)


def _connection_options(queue: int, given: Dict[str, Any]) -> Options:
    """Options, which the caller releases."""
    options = Options("blip_connection_options_", _connection_options_new())
    try:
        options.set("set_queue", queue)
        _common_options(options, given)
        for name, value in _pairs(given.get("headers") or ()):
            options.set("add_header", text(name), text(value))
        if given.get("user_agent") is not None:
            options.set("set_user_agent", text(given["user_agent"]))
        if given.get("timeout") is not None:
            options.set("set_connect_timeout", milliseconds(given["timeout"]))
        if given.get("ca_file") is not None:
            options.set("set_tls_ca_file", _path(given["ca_file"]))
        if not given.get("verify", True):
            options.set("set_tls_verify", False)
        if given.get("identity") is not None:
            certificate, key = _two(given["identity"], "identity", "(certificate, key)")
            options.set("set_tls_identity", _path(certificate), _path(key))
        if given.get("server_name") is not None:
            options.set("set_tls_server_name", text(given["server_name"]))
        _way_options(options, given)
        _http_options(options, given)
        return options
    except BaseException:
        _connection_options_release(options.handle)
        raise


def new_connection(
    url: str,
    queue: int,
    given: Dict[str, Any],
    make: Callable[..., int] = _connection_new,
    driver: Optional[Driver] = None,
) -> int:
    """A connection that is not yet connecting, or what `make` makes of a URL and options; it lives on the loop of the
    driver, if there is one."""
    options = _connection_options(queue, given)
    try:
        out = c_void_p()
        address = url_slice(url)
        place = runtime() if driver is None else driver.handle
        if given.get("fd") is not None:
            status = _connection_from_fd(place, given["fd"], address, options.handle, byref(out))
        else:
            status = make(place, address, options.handle, byref(out))
        if status == Status.STOPPED:
            rest_if_ending()
        if status < 0:
            raise url_failure(status, address)
        return out.value or 0
    finally:
        _connection_options_release(options.handle)


def new_pair(queue: int, given: Dict[str, Any]) -> Tuple[int, int]:
    """Two connections that are joined in memory."""
    options = _connection_options(queue, given)
    try:
        first, second = c_void_p(), c_void_p()
        check(_connection_pair(runtime(), runtime(), options.handle, byref(first), byref(second)), "pair")
        return first.value or 0, second.value or 0
    finally:
        _connection_options_release(options.handle)


def new_connection_to(listener: int, queue: int, given: Dict[str, Any]) -> int:
    """A connection to a listener of this process, in memory."""
    options = _connection_options(queue, given)
    try:
        out = c_void_p()
        status = _listener_connect(listener, runtime(), options.handle, byref(out))
        if status < 0:
            raise listener_failure(status, "cannot connect to the listener", listener)
        return out.value or 0
    finally:
        _connection_options_release(options.handle)


def new_connection_over(
    transport: Transport, driver: Driver, subprotocol: str, queue: int, given: Dict[str, Any]
) -> int:
    """A connection over a transport of the program's, on a loop that Python runs."""
    options = _connection_options(queue, given)

    def make(runtime: int, handle: int) -> int:
        out = c_void_p()
        status = _connection_from_transport(runtime, handle, text(subprotocol), options.handle, byref(out))
        check(status, f"subprotocol {subprotocol!r}")
        return out.value or 0

    try:
        return transport._attach(driver, make)
    finally:
        _connection_options_release(options.handle)


def new_listener(queue: int, given: Dict[str, Any], driver: Optional[Driver] = None) -> int:
    options = Options("blip_listener_options_", _listener_options_new())
    try:
        options.set("set_queue", queue)
        _common_options(options, given)
        for path in _list(given.get("paths")):
            options.set("add_path", text(path))
        if given.get("tls") is not None:
            certificate, key = _two(given["tls"], "tls", "(certificate, key)")
            options.set("set_tls_identity", _path(certificate), _path(key))
        if given.get("client_ca_file") is not None:
            options.set(
                "set_tls_client_ca_file", _path(given["client_ca_file"]), bool(given.get("client_certificate_required"))
            )
        if given.get("handshake_timeout") is not None:
            options.set("set_handshake_timeout", milliseconds(given["handshake_timeout"]))
        if given.get("blip1"):
            options.set("set_blip1", True)
        if not given.get("websocket", True):
            options.set("set_websocket", False)
        if given.get("max_connections") is not None:
            options.set("set_max_connections", given["max_connections"])
        if given.get("realm") is not None:
            options.set("set_realm", text(given["realm"]))
        for name, password in (given.get("users") or {}).items():
            options.set("add_user", text(name), text(password))
        for name, hashed in (given.get("user_hashes") or {}).items():
            options.set("add_user_hash", text(name), text(hashed))
        for origin in _list(given.get("origins")):
            options.set("add_origin", text(origin))
        for name in _list(given.get("hosts")):
            options.set("add_host", text(name))
        if given.get("metrics_path") is not None:
            options.set("set_metrics_path", text(given["metrics_path"]))
        out = c_void_p()
        place = runtime() if driver is None else driver.handle
        status = _listener_new(place, options.handle, byref(out))
        if status < 0:
            raise failure(status, "cannot listen")
        return out.value or 0
    finally:
        _listener_options_release(options.handle)


class BaseConnection:
    """The facts of a connection, and its handlers."""

    _handle: int = 0
    _pump: Pump
    # The event of an accepted connection's opening: the library keeps the HTTP head as long as it is held.
    _opening: int = 0

    def __del__(
        self,
        release: Callable[[int], None] = _connection_release,
        release_event: Callable[[int], None] = _event_release,
    ) -> None:
        handle = self._handle
        if handle:
            self._handle = 0
            self._drop_contexts()
            if self._opening:
                release_event(self._opening)
            release(handle)

    def _setup(self, handle: int, pump: Pump) -> None:
        self._handle = handle
        self._pump = pump
        self._contexts: List[int] = []
        self._observers: List[Any] = []
        self._watchers: List[Any] = []
        self._profiles: Set[Optional[str]] = set()

    def _did_close(self, status: int) -> None:
        """The connection has ended, and nothing comes any more."""
        self._drop_contexts()

    def _drop_contexts(self) -> None:
        for context in self._contexts:
            self._pump.forget(context)
        self._contexts.clear()
        for observer in self._observers:
            observer.remove()
        self._observers.clear()
        self._watchers.clear()

    def _connection_at(self, handle: int) -> Any:
        return self

    def __repr__(self) -> str:
        url = self.url  # empty without a network
        return f"<blip connection {url} {self.state}>" if url else f"<blip connection {self.state}>"

    def _text(self, function: Callable[..., int]) -> Optional[str]:
        out = OutSlice()
        status = function(self._handle, byref(out))
        if status in (Status.NOT_FOUND, Status.STATE):
            return None
        check(status)
        return take(out).decode("utf-8", "replace") or None

    def _flag(self, function: Callable[..., int]) -> bool:
        out = c_bool()
        check(function(self._handle, byref(out)))
        return out.value

    def _integer(self, function: Callable[..., int]) -> int:
        out = c_int32()
        check(function(self._handle, byref(out)))
        return out.value

    @property
    def url(self) -> str:
        return self._text(_connection_url) or ""

    @property
    def state(self) -> str:
        """ "new", "connecting", "open", "closing" or "closed"."""
        number = self._integer(_connection_state)
        return STATES[number] if 0 <= number < len(STATES) else str(number)

    @property
    def is_open(self) -> bool:
        return self._integer(_connection_state) == _ffi.STATE_OPEN

    @property
    def subprotocol(self) -> Optional[str]:
        """The subprotocol that was agreed, such as "BLIP_3+CBMobile_3"."""
        return self._text(_connection_subprotocol)

    @property
    def protocol_version(self) -> int:
        """1, 2 or 3; 0 before the connection is open."""
        return self._integer(_connection_version)

    @property
    def local_address(self) -> Optional[str]:
        return self._text(_connection_local_address)

    @property
    def remote_address(self) -> Optional[str]:
        return self._text(_connection_remote_address)

    @property
    def is_secure(self) -> bool:
        return self._flag(_connection_is_secure)

    @property
    def is_incoming(self) -> bool:
        return self._flag(_connection_is_incoming)

    @property
    def is_active(self) -> bool:
        """Whether messages are under way, either way."""
        return self._flag(_connection_is_active)

    @property
    def tls_version(self) -> Optional[str]:
        return self._text(_connection_tls_version)

    @property
    def tls_alpn(self) -> Optional[str]:
        """The protocol that ALPN agreed on."""
        return self._text(_connection_tls_alpn)

    @property
    def tls_is_resumed(self) -> bool:
        """Whether TLS went on from an earlier connection to the server."""
        return self._flag(_connection_tls_is_resumed)

    @property
    def tls_cipher(self) -> Optional[str]:
        return self._text(_connection_tls_cipher)

    @property
    def peer_certificate(self) -> Optional[bytes]:
        """The peer's certificate, DER."""
        out = OutSlice()
        status = _connection_peer_certificate(self._handle, byref(out))
        if status in (Status.NOT_FOUND, Status.STATE):
            return None
        check(status)
        return take(out) or None

    @property
    def request_path(self) -> Optional[str]:
        """The path, with its query, of the HTTP request that opened the connection."""
        return self._text(_connection_request_path)

    def http_header(self, name: str) -> Optional[str]:
        """A header of the peer's HTTP request or response."""
        out = OutSlice()
        status = _connection_http_header(self._handle, text(name), byref(out))
        if status in (Status.NOT_FOUND, Status.STATE):
            return None
        check(status)
        return take(out).decode("utf-8", "replace")

    @property
    def user(self) -> Optional[str]:
        """The user of an accepted connection, if one is known."""
        return self._text(_connection_user)

    @property
    def credentials(self) -> Optional[Tuple[str, Optional[str], Optional[str]]]:
        """What a client presents, for `on_connect`: scheme, user, password or token."""
        scheme = self._text(_connection_credential_scheme)
        if scheme is None:
            return None
        return scheme, self._text(_connection_credential_user), self._text(_connection_credential_secret)

    def credential(self, name: str) -> Optional[str]:
        """A parameter of the credentials that a client presents, for `on_connect`, such as "nonce" of Digest."""
        out = OutSlice()
        status = _connection_credential_parameter(self._handle, text(name), byref(out))
        if status == Status.NOT_FOUND:
            return None
        check(status)
        return take(out).decode("utf-8", "replace")

    def check_password(self, password: str) -> bool:
        """Whether a client presents this password, by Basic or Digest; for `on_connect`."""
        out = c_bool()
        status = _connection_check_password(self._handle, text(password), byref(out))
        if status == Status.NOT_FOUND:
            return False
        check(status)
        return out.value

    def defer_accept(self) -> None:
        """In `on_connect`: the client waits until it is accepted or rejected."""
        check(_connection_defer_accept(self._handle), "defer")

    def accept(self, user: str = "") -> None:
        """Lets a client in that waits, as that user."""
        check(_connection_accept(self._handle, text(user)), "accept")

    def reject(self, status: int = 403, reason: str = "", headers: Optional[Headers] = None) -> None:
        """In `on_connect`, or later if deferred: turns the client away with an HTTP status."""
        for name, value in _pairs(headers or ()):
            check(_connection_add_response_header(self._handle, text(name), text(value)), "reject")
        check(_connection_reject(self._handle, status, text(reason)), "reject")

    @property
    def close_code(self) -> int:
        """The WebSocket close code: received, else sent, else 0."""
        return self._integer(_connection_close_code)

    @property
    def backlog(self) -> int:
        """Bytes accepted for sending and not yet handed to the operating system."""
        out = c_uint64()
        check(_connection_backlog(self._handle, byref(out)))
        return out.value

    def counters(self) -> Counters:
        """All counters, read together."""
        return of_connection(self._handle)

    def _start_close(self, code: int, reason: str) -> None:
        self._ended(_connection_close(self._handle, code, text(reason)))

    def _start_close_gracefully(self, timeout: Optional[float]) -> None:
        self._ended(_connection_close_gracefully(self._handle, milliseconds(timeout)))

    @staticmethod
    def _ended(status: int) -> None:
        if status not in (Status.CLOSED, Status.STATE, Status.STOPPED):
            check(status, "close")

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        status = self._set_handler(profile, stream, context)
        if status < 0:
            self._pump.forget(context)
            raise failure(status, f"handler for {profile!r}")
        self._contexts.append(context)
        self._profiles.add(profile)

    def _set_handler(self, profile: Optional[str], stream: bool, context: int) -> int:
        flags = _ffi.HANDLER_STREAM if stream else 0
        if profile is None:
            return _connection_set_default_handler(  # type: ignore[no-any-return]
                self._handle, flags, None, context, None
            )
        return _connection_set_handler(  # type: ignore[no-any-return]
            self._handle, text(profile), flags, None, context, None
        )

    def _inherit(self, late: List[Tuple[Optional[str], bool, int]]) -> None:
        """Takes handlers that its listener got after the connection was accepted; its own ones win."""
        for profile, stream, context in late:
            if profile not in self._profiles:
                self._set_handler(profile, stream, context)


class BaseRequest(Received):
    """A request of the peer's."""

    __slots__ = ("_owner", "_answered")

    def __init__(self, event: int, handle: int, owner: Any) -> None:
        super().__init__(event, handle)
        self._owner = owner
        self._answered = False

    @property
    def profile(self) -> str:
        out = OutSlice()
        check(_message_profile(self._handle, byref(out)))
        return take(out).decode("utf-8", "replace")

    @property
    def no_reply(self) -> bool:
        """Whether the peer wants no reply. Whatever the handler returns is then dropped."""
        return bool(self._get_flags() & NO_REPLY)

    def _abandon(self, event: int) -> None:
        # The reply goes out after the last byte of the request has come: the rest is read and thrown away.
        self._owner._pump.discard(event, self)

    def defer(self) -> None:
        """The reply comes later, by `respond`. If this object goes away before, the peer gets BLIP/501."""
        check(_message_defer(self._handle), "defer")
        self._answered = True

    def respond_error(self, code: int, text: str = "", domain: str = "BLIP") -> None:
        """Answers with an error response now."""
        self._answered = True
        check(answer_error(self._handle, ResponseError(code, text, domain)), "respond")

    def _fail(self, error: BaseException) -> None:
        """Answers for a handler that raised."""
        if not isinstance(error, ResponseError) or self._answered:
            log.error("the handler of %r failed", self._profile_or_none(), exc_info=error)
        if not isinstance(error, ResponseError):
            error = ResponseError(501, "the handler failed")
        if not self._answered:
            self._answered = True
            self._done(answer_error(self._handle, error))

    def _done(self, status: int) -> None:
        if status < 0 and status not in NOBODY_WAITS:
            log.error("the reply to %r could not be sent: %s", self._profile_or_none(), failure(status))

    def _profile_or_none(self) -> Optional[str]:
        try:
            return self.profile
        except Error:
            return None


class BaseListener:
    """Listening: its address, its handlers and the connections it has accepted."""

    _handle: int = 0
    _pump: Pump

    def __del__(self, release: Callable[[int], None] = _listener_release) -> None:
        handle = self._handle
        if handle:
            self._handle = 0
            for context in self._contexts:
                self._pump.forget(context)
            for observer in self._observers:
                observer.remove()
            release(handle)

    def _setup(self, handle: int, pump: Pump) -> None:
        self._handle = handle
        self._pump = pump
        self._contexts: List[int] = []
        self._observers: List[Any] = []
        self._watchers: List[Any] = []
        self._connections: Dict[int, Any] = {}
        self._next_connection = 1
        self._accept_functions: List[Callable[[Any], Any]] = []
        # Handlers that came while connections were there, and how many of those may not have been announced.
        self._late: List[Tuple[Optional[str], bool, int]] = []
        self._unannounced = 0

    def _callbacks(self, expect: Callable[[Any], int], accepted: Any, closed: Any, stopped: Any) -> None:
        for setter, function in (
            (_listener_set_accept_callback, accepted),
            (_listener_set_open_callback, HandlerCall(self, BaseListener._on_open, None)),
            (_listener_set_close_callback, closed),
            (_listener_set_stopped_callback, stopped),
        ):
            context = expect(function)
            self._contexts.append(context)
            check(setter(self._handle, None, context, None))

    def accept_fd(self, fd: int) -> None:
        """Takes over a connected socket, as if a client had connected."""
        status = _listener_accept_fd(self._handle, fd)
        if status < 0:
            raise listener_failure(status, f"cannot take over descriptor {fd}", self._handle)

    def listen(
        self,
        interface: str = "",
        port: int = 0,
        *,
        unix_path: Optional[PathLike] = None,
        fd: Optional[int] = None,
        systemd: Optional[str] = None,
    ) -> None:
        """Listens there as well, as `serve` does; the last of `urls` says where. If it fails, the others go on."""
        self._listen(interface, port, unix_path, fd, systemd)

    def _listen(
        self,
        interface: str,
        port: int,
        path: Optional[PathLike],
        fd: Optional[int] = None,
        systemd: Optional[str] = None,
    ) -> None:
        if fd is not None:
            what = f"cannot listen on descriptor {fd}"
            status = _listener_start_fd(self._handle, fd)
        elif systemd is not None:
            what = f"cannot listen on the sockets of systemd named {systemd or 'anything'}"
            status = _listener_start_systemd(self._handle, text(systemd))
        elif path is not None:
            what = f"cannot listen at {os.fsdecode(path)}"
            status = _listener_start_unix(self._handle, _path(path))
        else:
            if not 0 <= port <= 65535:
                raise ValueError(f"a port is 0 to 65535, not {port}")
            what = f"cannot listen at {interface or '*'}:{port}"
            status = _listener_start(self._handle, text(interface), port)
        if status < 0:
            raise listener_failure(status, what, self._handle)

    def __repr__(self) -> str:
        return f"<blip listener at {self.url}>"

    def serve_dashboard(self, prefix: str) -> None:
        """Shows browsers what the runtime does, at the path `prefix` of this listener's port: to all who can connect."""
        check(_listener_serve_dashboard(self._handle, text(prefix)), prefix)

    def serve_files(
        self,
        prefix: str,
        folder: PathLike,
        *,
        writable: bool = False,
        replace: bool = False,
        hidden: bool = False,
        upload_limit: Optional[int] = None,
    ) -> None:
        """Shows browsers the files below `folder`, at the path `prefix` of this listener's port.

        writable: uploads, new folders and removal; replace: uploads may replace files; hidden: names that begin with a
        dot too; upload_limit: bytes of one uploaded file. Nothing outside of the folder is reached.
        """
        options = _files_options_new()
        try:
            check(_files_options_set_writable(options, writable))
            check(_files_options_set_replace(options, replace))
            check(_files_options_set_hidden(options, hidden))
            if upload_limit is not None:
                check(_files_options_set_upload_limit(options, upload_limit), "upload_limit")
            status = _listener_serve_files(self._handle, text(prefix), _path(folder), options)
            if status < 0:
                raise listener_failure(status, f"cannot serve {os.fsdecode(folder)} at {prefix}", self._handle)
        finally:
            _files_options_release(options)

    def counters(self) -> Counters:
        """The sums over all connections that it has accepted, ended ones included."""
        return of_listener(self._handle)

    @property
    def port(self) -> int:
        out = c_uint16()
        check(_listener_port(self._handle, byref(out)), "port")
        return out.value

    @property
    def url(self) -> str:
        """A URL with which a client on this machine reaches the listener."""
        out = OutSlice()
        if _listener_url(self._handle, byref(out)) < 0:
            return ""
        return take(out).decode("utf-8", "replace")

    @property
    def urls(self) -> List[str]:
        """A URL of each place where it listens, in the order in which it began to."""
        found: List[str] = []
        out = OutSlice()
        while _listener_url_at(self._handle, len(found), byref(out)) >= 0:
            found.append(take(out).decode("utf-8", "replace"))
        return found

    @property
    def ports(self) -> List[Optional[int]]:
        """The port of each place where it listens; None for a Unix socket."""
        found: List[Optional[int]] = []
        out = c_uint16()
        while (status := _listener_port_at(self._handle, len(found), byref(out))) != Status.NOT_FOUND:
            if status != Status.STATE:
                check(status, "ports")
            found.append(out.value if status >= 0 else None)
        return found

    @property
    def connection_count(self) -> int:
        out = c_size_t()
        check(_listener_connection_count(self._handle, byref(out)))
        return out.value

    def _register(self, profile: Optional[str], stream: bool, context: int) -> None:
        flags = _ffi.HANDLER_STREAM if stream else 0
        if profile is None:
            status = _listener_set_default_handler(self._handle, flags, None, context, None)
        else:
            status = _listener_set_handler(self._handle, text(profile), flags, None, context, None)
        if status < 0:
            self._pump.forget(context)
            raise failure(status, f"handler for {profile!r}")
        self._contexts.append(context)
        # The library gives a connection the handlers that are there when it is accepted.
        count = self.connection_count
        if count:
            late = (profile, stream, context)
            for connection in tuple(self._connections.values()):
                connection._inherit([late])
            self._late.append(late)
            self._unannounced = count

    def _adopt(self, event: int, connection: BaseConnection) -> None:
        """Takes a connection that was accepted; from now on its number leads back to the object."""
        handle = _connection_retain(_event_connection(event))
        connection._setup(handle, self._pump)
        number = self._next_connection
        self._next_connection = number + 1
        check(_connection_set_user_data(handle, number, None))
        self._connections[number] = connection
        if self._unannounced:
            self._unannounced -= 1
            connection._inherit(self._late)
            if not self._unannounced:
                self._late.clear()

    def _on_open(self, event: int, argument: object) -> None:
        connection = self._connections.get(self._number_of(event))
        if connection is None:
            _event_release(event)
        else:
            connection._opening = event

    def _member_of(self, event: int) -> Any:
        """The object of an event's connection, which a request may outlive."""
        connection = self._connections.get(self._number_of(event))
        if connection is None:
            raise failure(Status.CLOSED, "the request's connection")
        return connection

    def _connection_at(self, handle: int) -> Any:
        """The object of a connection, or None."""
        return self._connections.get(self._number_at(handle))

    def _number_of(self, event: int) -> int:
        return self._number_at(_event_connection(event))

    @staticmethod
    def _number_at(handle: int) -> int:
        out = c_void_p()
        if _connection_user_data(handle, byref(out)) < 0:
            return 0
        return out.value or 0

    def _stop(self, graceful: bool, timeout: Optional[float]) -> None:
        status = _listener_stop(self._handle, graceful, milliseconds(timeout))
        if status not in (Status.STATE, Status.CLOSED, Status.STOPPED):
            check(status, "stop")


__all__ = ["BaseConnection", "BaseListener", "BaseRequest", "EMPTY", "HandlerCall", "_event_message", "_event_release"]
