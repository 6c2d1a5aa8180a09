"""HTTP servers that answer by a script, on raw sockets, and take an upgrade as far as its answer."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import ssl
import threading
from typing import Any, Callable, Optional

Head = bytes


def header(head: Head, name: str) -> Optional[str]:
    found = re.findall(rb"(?mi)^%s: *(.*?)\r$" % name.encode(), head)
    assert len(found) <= 1, head
    return found[0].decode() if found else None


def upgrade(head: Head, extra: str = "") -> bytes:
    key = header(head, "Sec-WebSocket-Key") or ""
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
    accept = base64.b64encode(digest).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: BLIP_3\r\n{extra}\r\n"
    ).encode()


def answer(status: int, *lines: str, body: str = "") -> bytes:
    text = "".join(f"{line}\r\n" for line in lines)
    if not any(line.lower().startswith(("content-length", "transfer-encoding", "connection: close")) for line in lines):
        text += f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} Because\r\n{text}\r\n{body}".encode()


class Site:
    """Calls the script with each request's head and sends what it returns; None ends the connection without a word. An
    answer with "Connection: close" ends it, too; behind status 101 nothing is said."""

    def __init__(self, script: Callable[[Head], Any], tls: Optional[tuple[str, str]] = None) -> None:
        self.script = script
        self.heads: list[Head] = []
        self.connections = 0
        self.context = None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*tls)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.open: list[socket.socket] = []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def url(self, path: str = "/", user: str = "", host: str = "127.0.0.1") -> str:
        return f"{'wss' if self.context else 'ws'}://{user}{host}:{self.port}{path}"

    def accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.append(peer)
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer: socket.socket) -> None:
        try:
            peer.settimeout(60)
            if self.context:
                peer = self.context.wrap_socket(peer, server_side=True)
                self.open.append(peer)
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    more = peer.recv(65536)
                    if not more:
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                head += b"\r\n\r\n"
                self.heads.append(head)
                reply = self.script(head)
                if reply is None:
                    return
                peer.sendall(reply)
                if b" 101 " in reply.split(b"\r\n", 1)[0]:
                    while peer.recv(65536):
                        pass
                    return
                if b"connection: close" in reply.lower():
                    return
        except (OSError, ssl.SSLError):
            pass
        finally:
            peer.close()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *arguments: object) -> None:
        self.listener.close()
        for peer in self.open:
            try:
                # Beside TLS, whose object belongs to the thread.
                socket.socket.shutdown(peer, socket.SHUT_RDWR)
            except OSError:
                pass
