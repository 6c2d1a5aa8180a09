"""A program of test_service_lookup.py, for a network of its own: a name server on 127.0.0.1:53, and connections by it.

    unshare --mount --net python3 service_lookup.py FOLDER CA CERTIFICATE KEY
"""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Optional

import blip.sync
from blip.errors import ConnectionFailed

SRV, A = 33, 1
# "name": [(priority, weight, port, target)]
services: dict[str, list[tuple[int, int, int, str]]] = {}
asked: list[tuple[str, int]] = []


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


def use_own_files(folder: Path) -> None:
    """Has the system's resolver ask 127.0.0.1 alone. Nobody outside of this program's mounts sees it."""
    for name, text in (("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: dns\n")):
        (folder / name).write_text(text)
        subprocess.run(["mount", "--bind", str(folder / name), str(Path("/etc", name).resolve())], check=True)


def encode(name: str) -> bytes:
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


def respond(query: bytes) -> bytes:
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    (kind,) = struct.unpack_from(">H", query, at + 1)
    name = ".".join(labels)
    asked.append((name, kind))
    data = []
    if kind == SRV:
        data = [struct.pack(">HHH", *service[:3]) + encode(service[3]) for service in services.get(name, [])]
    elif kind == A:
        data = [socket.inet_aton("127.0.0.1")]
    records = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 60, len(each)) + each for each in data)
    return query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(data), 0, 0) + query[12 : at + 5] + records


def serve_names() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        ready.set()
        while True:
            query, peer = server.recvfrom(4096)
            server.sendto(respond(query), peer)


def names_asked(kind: int) -> list[str]:
    found = [name for name, each in asked if each == kind]
    asked.clear()
    return found


def echo(request: Any) -> bytes:
    return bytes(request.body)


def talk(url: str, port: Optional[int] = None, **options: Any) -> None:
    with blip.sync.connect(url, **options) as connection:
        assert bytes(connection.request("echo", b"x").body) == b"x"
        assert port is None or connection.remote_address == f"127.0.0.1:{port}", connection.remote_address


def main() -> None:
    ca, *identity = sys.argv[2:5]
    hosts: list[Optional[str]] = []
    plain = blip.sync.serve("127.0.0.1", 0, handlers={"echo": echo})
    at_home = blip.sync.serve("127.0.0.1", 80, handlers={"echo": echo})
    secure = blip.sync.serve("127.0.0.1", 0, tls=tuple(identity), handlers={"echo": echo})
    plain.on_connect(lambda connection: hosts.append(connection.http_header("Host")))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refusing = unused.getsockname()[1]

    # By priority, and the next one when one refuses.
    services["_blip._tcp.site.test"] = [(20, 0, plain.port, "b.test"), (10, 0, refusing, "a.test")]
    talk("ws://site.test/", plain.port, service_lookup=True)
    assert hosts == ["site.test"], hosts
    assert [(name, kind) for name, kind in asked if kind == A] == [("a.test", A), ("b.test", A)], asked
    assert names_asked(SRV) == ["_blip._tcp.site.test"]

    # Not without the option, nor for a port or an address of the URL's own.
    talk("ws://site.test/", 80)
    talk(f"ws://site.test:{plain.port}/", plain.port, service_lookup=True)
    talk("ws://127.0.0.1/", 80, service_lookup=True)
    assert names_asked(SRV) == []

    # Without records it is the name itself.
    talk("ws://other.test/", 80, service_lookup=True)
    assert names_asked(SRV) == ["_blip._tcp.other.test"]

    # The certificate stays that of the URL's host.
    services["_blip._tcp.localhost"] = [(1, 1, secure.port, "c.test")]
    talk("wss://localhost/", secure.port, ca_file=ca, service_lookup=True)
    services["_blip._tcp.wrong.test"] = [(1, 1, secure.port, "localhost")]
    for name, words in (("wrong.test", "certificate"), ("gone.test", "not offered")):
        services["_blip._tcp.gone.test"] = [(0, 0, 0, ".")]
        try:
            talk(f"wss://{name}/", ca_file=ca, service_lookup=True)
        except ConnectionFailed as problem:
            assert words in str(problem), problem
        else:
            raise AssertionError(f"{name} was connected to")
    for listener in (plain, at_home, secure):
        listener.close()
    print("done")


bring_loopback_up()
use_own_files(Path(sys.argv[1]))
ready = threading.Event()
threading.Thread(target=serve_names, daemon=True).start()
assert ready.wait(10)
main()
