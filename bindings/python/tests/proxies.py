"""Small proxies for tests: HTTP CONNECT, plain or in TLS, and SOCKS 5; they behave, or misbehave, as they are told."""

from __future__ import annotations

import base64
import hashlib
import re
import select
import socket
import ssl
import threading
from typing import Any, Optional


def _receive(connection: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the client is gone")
        data += piece
    return data


class Proxy:
    """Accepts on a port of 127.0.0.1. `seen` lists what it was asked for: "host:port"."""

    scheme = "http"

    def __init__(
        self,
        user: Optional[str] = None,
        password: str = "",
        answer: Optional[bytes] = None,
        tls: Optional[tuple[str, str]] = None,
        host: str = "127.0.0.1",
        target: Optional[int] = None,
    ) -> None:
        self.user, self.password, self.answer, self.target = user, password, answer, target
        self.seen: list[str] = []
        self.heads: list[bytes] = []
        self.problems: list[BaseException] = []
        self._context: Optional[ssl.SSLContext] = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*tls)
        self._sockets: list[Any] = []
        self._threads: list[threading.Thread] = []
        self.connections = 0
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listener.bind((host, 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def url(self, secret: str = "", scheme: Optional[str] = None) -> str:
        secure = scheme or ("https" if self._context and self.scheme == "http" else self.scheme)
        host = "localhost" if self._context else "127.0.0.1"
        return f"{secure}://{secret}{host}:{self.port}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing is closed under a thread that uses it: each is woken by the end of its streams, and closes them.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for each in self._sockets:
            try:
                # Beside TLS, whose object belongs to the thread.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: Any) -> None:
        try:
            connection.settimeout(60)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._sockets.append(connection)
                connection.do_handshake()
            self.negotiate(connection)
        except (OSError, ConnectionError) as problem:
            self.problems.append(problem)
        finally:
            connection.close()

    def negotiate(self, connection: Any) -> None:
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                head += _receive(connection, 1)
            self.heads.append(head)
            method, authority, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            self.seen.append(authority)
            if self.answer is not None:
                connection.sendall(self.answer)
                if b" 200 " not in self.answer:
                    self._wait_for_end(connection)
                    return
            if method != "CONNECT":
                connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
                return
            if not self.is_allowed(head.decode("latin-1"), authority):
                connection.sendall(self.refusal)
                if b"close" in self.refusal:
                    return
                continue
            host, _, port = authority.rpartition(":")
            self.relay(connection, host.strip("[]"), int(port), b"HTTP/1.1 200 Yes\r\nX-Name: \xe9\r\n\r\n")
            return

    refusal = b"HTTP/1.1 407 Denied\r\nContent-Length: 3\r\nProxy-Authenticate: Basic realm=x\r\n\r\nno\n"

    def is_allowed(self, head: str, authority: str) -> bool:
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return self.user is None or f"\r\nProxy-Authorization: Basic {pair}\r\n" in head

    def relay(self, connection: Any, host: str, port: int, answer: bytes) -> None:
        with socket.create_connection((host, self.target or port), timeout=60) as server:
            self._sockets.append(server)
            connection.sendall(b"" if self.answer is not None else answer)
            # One thread for both ways: TLS sockets are not for two.
            connection.setblocking(False)
            server.setblocking(False)
            other = {connection: server, server: connection}
            waiting: dict[Any, bytes] = {connection: b"", server: b""}
            ended: set[Any] = set()
            while len(ended) < 2:
                readers = [each for each in other if each not in ended and len(waiting[other[each]]) < 1 << 18]
                writers = [each for each in other if waiting[each]]
                buffered = any(isinstance(each, ssl.SSLSocket) and each.pending() for each in readers)
                select.select(readers, writers, [], 0 if buffered else 60)
                for each in readers:
                    try:
                        data = each.recv(65536)
                    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        continue
                    waiting[other[each]] += data
                    if not data:
                        ended.add(each)
                for each in other:
                    try:
                        while waiting[each]:
                            waiting[each] = waiting[each][each.send(waiting[each]) :]
                    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        continue
                    if other[each] in ended:
                        each.shutdown(socket.SHUT_WR)

    @staticmethod
    def _wait_for_end(connection: Any) -> None:
        while connection.recv(4096):
            pass


class DigestProxy(Proxy):
    """Wants a Digest (RFC 7616), and ends the connection with each refusal."""

    refusal = (
        b"HTTP/1.1 407 Denied\r\nConnection: close\r\nProxy-Authenticate: Basic realm=x\r\n"
        b'Proxy-Authenticate: Digest realm="there", nonce="abc", qop="auth", algorithm=MD5\r\n\r\n'
    )

    def is_allowed(self, head: str, authority: str) -> bool:
        line = re.search("\r\nProxy-Authorization: Digest (.*)\r\n", head)
        if line is None:
            return False
        fields = {name: quoted or bare for name, quoted, bare in re.findall(r'(\w+)=(?:"([^"]*)"|([^,"]+))', line[1])}

        def digest(text: str) -> str:
            return hashlib.md5(text.encode()).hexdigest()

        first = digest(f"{self.user}:there:{self.password}")
        second = digest(f"CONNECT:{authority}")
        middle = ":".join(("abc", fields["nc"], fields["cnonce"], "auth"))
        return fields["response"] == digest(f"{first}:{middle}:{second}")


class ForgetfulProxy(Proxy):
    """Ends a connection on which it is asked again, without a word."""

    def __init__(self, **options: Any) -> None:
        self.refused: set[Any] = set()
        super().__init__(**options)

    def negotiate(self, connection: Any) -> None:
        self.connection = connection
        super().negotiate(connection)

    def is_allowed(self, head: str, authority: str) -> bool:
        if self.connection in self.refused:
            raise ConnectionError("asked again")
        self.refused.add(self.connection)
        return super().is_allowed(head, authority)


class SocksProxy(Proxy):
    scheme = "socks5h"

    def negotiate(self, connection: Any) -> None:
        if self.answer is not None:
            connection.sendall(self.answer)
            self._wait_for_end(connection)
            return
        version, count = _receive(connection, 2)
        assert version == 5
        methods = _receive(connection, count)
        if self.user is None:
            connection.sendall(b"\x05\x00")
        elif 2 not in methods:
            connection.sendall(b"\x05\xff")
            return
        else:
            connection.sendall(b"\x05\x02")
            _receive(connection, 1)
            user = _receive(connection, _receive(connection, 1)[0]).decode()
            password = _receive(connection, _receive(connection, 1)[0]).decode()
            good = (user, password) == (self.user, self.password)
            connection.sendall(b"\x01\x00" if good else b"\x01\x01")
            if not good:
                return
        kind = _receive(connection, 4)[3]
        if kind == 3:
            host = _receive(connection, _receive(connection, 1)[0]).decode()
        elif kind == 1:
            host = socket.inet_ntop(socket.AF_INET, _receive(connection, 4))
        else:
            host = socket.inet_ntop(socket.AF_INET6, _receive(connection, 16))
        port = int.from_bytes(_receive(connection, 2), "big")
        self.seen.append(f"{host}:{port}")
        try:
            self.relay(connection, host, port, b"\x05\x00\x00\x01\x7f\x00\x00\x01\x12\x34")
        except ConnectionRefusedError:
            connection.sendall(b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00")
