"""BLIP 1 through the binding and real sockets: the vectors of Tests/Vectors, byte for byte."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from typing import Any

import pytest
from conftest import LIMIT, ROOT, eventually

import blip
import blip.sync

CASES = json.loads((ROOT / "Tests/Vectors/v1-frames.json").read_text())["cases"]


def body_of(description: dict[str, Any]) -> bytes:
    if description["kind"] == "hex":
        return bytes.fromhex(description["hex"])
    size = description["size"]
    if description["kind"] == "text":
        text = description["text"].encode()
        return (text * (size // len(text) + 1))[:size]
    return bytes(index * description["step"] & 0xFF for index in range(size))


def seen(message: Any) -> tuple[Any, ...]:
    return (list(message.properties.items()), bytes(message.body))


def expected(message: dict[str, Any]) -> tuple[Any, ...]:
    return ([tuple(pair) for pair in message["properties"]], body_of(message["body"]))


@pytest.mark.parametrize("size", [None, 1, 7, 5000])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_frames_of_the_vectors_are_received(case: dict[str, Any], size: int | None) -> None:
    """`size`: how many bytes go into each write; None: all."""
    data = b"".join(map(bytes.fromhex, case["frames"]))
    if size == 1 and len(data) > 5000:
        pytest.skip("takes long, and tells no more")
    found: list[tuple[Any, ...]] = []

    def take(message: Any) -> None:
        found.append(seen(message))

    if case["messages"][0]["kind"] == "MSG":
        with blip.sync.serve("127.0.0.1", 0, blip1=True, handlers={None: take}) as listener:
            with socket.create_connection(("127.0.0.1", listener.port), LIMIT) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for start in range(0, len(data), size or len(data)):
                    peer.sendall(data[start : start + (size or len(data))])
                eventually(lambda: len(found) == len(case["messages"]))
    else:
        found = replies(case, data)
    assert found == [expected(message) for message in sorted(case["messages"], key=lambda m: m["number"])]


def replies(case: dict[str, Any], data: bytes) -> list[tuple[Any, ...]]:
    """What a client gets whose requests are answered so, in the order of the requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[bytes] = []

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            for _ in case["messages"]:
                taken.append(take_frame(peer))
            peer.sendall(data)
            # Bye.
            take_frame(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    found: dict[int, tuple[Any, ...]] = {}
    with listener, blip.sync.connect(f"blip://127.0.0.1:{listener.getsockname()[1]}") as connection:

        def ask(index: int) -> None:
            try:
                found[index] = seen(connection.request("any", timeout=LIMIT))
            except blip.ResponseError as error:
                found[index] = seen(error.reply)

        askers = [threading.Thread(target=ask, args=(index,)) for index in range(len(case["messages"]))]
        for count, asker in enumerate(askers, 1):
            asker.start()
            eventually(lambda count=count: len(taken) == count)
        for asker in askers:
            asker.join(LIMIT)
    thread.join(LIMIT)
    return [found[index] for index in sorted(found)]


def take_frame(peer: socket.socket) -> bytes:
    header = take(peer, 12)
    assert len(header) == 12
    return header + take(peer, struct.unpack(">H", header[10:])[0] - 12)


def take(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            break
        data += more
    return data


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["exact_when_encoding"] and len(case["frames"]) == len(case["messages"])],
    ids=lambda case: case["name"],
)
def test_requests_are_the_frames_of_the_vectors(case: dict[str, Any]) -> None:
    if case["messages"][0]["kind"] != "MSG" or not any(key == "Profile" for key, _ in case["messages"][0]["properties"]):
        pytest.skip("not what the binding sends as a client")
    sent: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            for message in case["messages"]:
                frame = take_frame(peer)
                sent.append(frame)
                if not message["noreply"]:
                    peer.sendall(struct.pack(">IIHHH", 0x9B34F206, message["number"], 1, 14, 0))
            # Bye.
            take_frame(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener, blip.sync.connect(f"blip://127.0.0.1:{listener.getsockname()[1]}") as connection:
        for message in case["messages"]:
            properties = dict(message["properties"])
            send = connection.send if message["noreply"] else connection.request
            profile, body = properties.pop("Profile"), body_of(message["body"])
            send(profile, body, properties=properties, urgent=message["urgent"], compressed=False)
    thread.join(LIMIT)
    assert [frame.hex() for frame in sent] == case["frames"]


def test_a_bye_that_is_never_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"blip://127.0.0.1:{silent.getsockname()[1]}"
        connection = blip.sync.connect(url, bye_timeout=0.5, close_timeout=0.1)
        start = time.monotonic()
        connection.close_gracefully(LIMIT)
        eventually(lambda: not connection.is_open and connection.state == "closed")
        assert time.monotonic() - start >= 0.49
