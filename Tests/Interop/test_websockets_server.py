"""PyPI's websockets as the server of our client, `blip request`."""

import random
import socket
import threading
import time

import pytest
import wire
from program import blip
from rawsocket import RawSocket, fragments, pings_of
from websockets.frames import Opcode
from websockets.http11 import Response
from websockets.sync.server import serve as serve_normally


class OneConnection:
    """Accepts one connection and plays a server on it; `join` raises what went wrong there."""

    def __init__(self, play, **options):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(20)
        self.url = f"ws://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.failure = None
        self.thread = threading.Thread(target=self._run, args=(play, options), daemon=True)
        self.thread.start()

    def _run(self, play, options):
        try:
            connection, _ = self.listener.accept()
            with connection, RawSocket.accept(connection, **options) as raw:
                play(raw, wire.Peer(raw.send, raw.next_message))
        except BaseException as error:
            self.failure = error

    def join(self):
        self.thread.join(timeout=20)
        assert not self.thread.is_alive(), "the server still waits"
        self.listener.close()
        if self.failure is not None:
            raise self.failure


def wait_for_end(raw):
    """Until the client closes."""
    raw.wait_for_close()


def test_an_ordinary_server():
    def play(websocket):
        peer = wire.Peer(websocket.send, websocket.recv)
        request = peer.message()
        assert request.properties == {"Profile": "hello", "k": "v"}
        peer.reply(request.number, {"answer": "42"}, request.body[::-1], request.flags & wire.COMPRESSED)
        for _ in websocket:
            pass

    with serve_normally(play, "127.0.0.1", 0, subprotocols=["BLIP_3"]) as running:
        port = running.socket.getsockname()[1]
        threading.Thread(target=running.serve_forever, daemon=True).start()
        result = blip("request", port, "hello", "-p", "k=v", "-d", "abc" * 1000, "--compressed", "-v")
        running.shutdown()
    assert (result.returncode, result.stdout) == (0, b"cba" * 1000)
    assert b"< answer: 42\n" in result.stderr and b"(compressed)" in result.stderr


@pytest.mark.parametrize("segment", [None, 1, 100], ids=lambda size: f"segments {size}")
@pytest.mark.parametrize("pings", [False, True], ids=["", "pings"])
@pytest.mark.parametrize("sizes", [[1], [0, 1 << 30], [3, 0, 0, 5, 0, 1000], [1, 126, 2, 125, 127, 3]], ids=str)
def test_any_fragmentation_of_replies(sizes, pings, segment):
    body = random.Random(1).randbytes(500) + bytes(5000)

    def play(raw, peer):
        request = peer.message()
        sent = []
        for frame in peer.encoder.message(request.number, wire.REPLY, {"k": "v"}, body, wire.COMPRESSED, 1000):
            frames = fragments(frame, sizes, pings)
            sent += pings_of(frames)
            raw.send_frames(frames, segment)
        raw.wait_for_pongs(sent)
        assert raw.close_frame is None or raw.close_frame[0] == 1000
        if raw.close_frame is None:
            wait_for_end(raw)

    server = OneConnection(play)
    result = blip("request", server.url, "get", "-v")
    server.join()
    assert (result.returncode, result.stdout) == (0, body)
    assert b"< k: v\n" in result.stderr


def test_our_client_masks_and_asks_in_the_order_given():
    seen = {}

    def play(raw, peer):
        seen["subprotocol"] = raw.subprotocol
        request = peer.message()
        peer.reply(request.number, {})
        wait_for_end(raw)
        seen["close"] = raw.close_frame

    server = OneConnection(play, subprotocols=["BLIP_3+B", "BLIP_3+A"])
    result = blip("request", server.url, "x", "--protocol", "BLIP_3+A", "--protocol", "BLIP_3+B")
    server.join()
    assert result.returncode == 0
    assert seen["subprotocol"] in ("BLIP_3+A", "BLIP_3+B")
    assert seen["close"][0] == 1000


def test_bytes_in_one_segment_with_the_101():
    encoder = wire.Encoder()
    early = encoder.message(1, wire.REQUEST, {"Profile": "early"}, b"you there?")

    def play(raw, peer):
        peer.encoder = encoder
        first, second = peer.message(), peer.message()
        kinds = {first.kind: first, second.kind: second}
        assert kinds[wire.ERROR].properties["Error-Code"] == "404"
        peer.reply(kinds[wire.REQUEST].number, {}, b"fine")
        wait_for_end(raw)

    server = OneConnection(play, early=early)
    result = blip("request", server.url, "x")
    server.join()
    assert (result.returncode, result.stdout) == (0, b"fine")


def test_an_error_reply():
    def play(raw, peer):
        request = peer.message()
        peer.reply(request.number, {"Error-Domain": "HTTP", "Error-Code": "409"}, b"conflict", kind=wire.ERROR)
        wait_for_end(raw)

    server = OneConnection(play)
    result = blip("request", server.url, "x")
    server.join()
    assert result.returncode == 1
    assert b"HTTP/409: conflict" in result.stderr


def test_an_error_reply_without_domain_and_code():
    def play(raw, peer):
        request = peer.message()
        peer.reply(request.number, {}, kind=wire.ERROR)
        wait_for_end(raw)

    server = OneConnection(play)
    result = blip("request", server.url, "x")
    server.join()
    assert result.returncode == 1
    assert b"BLIP/599" in result.stderr


def change_subprotocol(*names):
    def change(response):
        headers = response.headers
        del headers["Sec-WebSocket-Protocol"]
        for name in names:
            headers["Sec-WebSocket-Protocol"] = name
        return response

    return change


@pytest.mark.parametrize("names", [[], ["BLIP_4"], ["BLIP_3", "BLIP"], ["BLIP_3, BLIP"], ["BLIP_3+x"]], ids=str)
def test_a_subprotocol_that_was_not_agreed_is_said_so(names):
    server = OneConnection(lambda raw, peer: raw.wait_for_close(), change=change_subprotocol(*names))
    result = blip("request", server.url, "x", "--timeout", "5")
    assert result.returncode == 2
    assert b"protocol" in result.stderr and result.stderr.count(b"\n") == 1
    server.thread.join(timeout=20)
    assert not isinstance(server.failure, AssertionError)
    server.listener.close()


@pytest.mark.parametrize("header", [("Upgrade", "h2c"), ("Connection", "close"), ("Sec-WebSocket-Accept", "no")])
def test_a_wrong_101_is_refused(header):
    def change(response):
        del response.headers[header[0]]
        response.headers[header[0]] = header[1]
        return response

    server = OneConnection(lambda raw, peer: raw.wait_for_close(), change=change)
    result = blip("request", server.url, "x", "--timeout", "5")
    assert result.returncode == 2
    assert result.stderr.count(b"\n") == 1
    server.listener.close()


def test_an_upload_pauses_until_it_is_acknowledged():
    size = 1_000_000

    def play(raw, peer):
        peer.acknowledges = False
        received = 0
        while raw.has_message_within(0.5):
            assert peer.take(raw.next_message()) is None
            received = sum(frame.wire_size for frame in peer._unfinished[(True, 1)])
            assert received < 128_000 + 16_384
        assert received >= 128_000
        peer.acknowledges = True
        raw.send(wire.acknowledgement(1, wire.REQUEST, received))
        request = peer.message()
        assert len(request.body) == size
        peer.reply(1, {}, b"got it")
        wait_for_end(raw)

    server = OneConnection(play)
    result = blip("request", server.url, "x", "-", input=bytes(size))
    server.join()
    assert (result.returncode, result.stdout) == (0, b"got it")


def test_an_upload_that_is_never_acknowledged_ends():
    def play(raw, peer):
        peer.acknowledges = False
        raw.wait_for_close()

    server = OneConnection(play)
    start = time.monotonic()
    result = blip("request", server.url, "x", "--timeout", "1", "-", input=bytes(1_000_000))
    assert 1 <= time.monotonic() - start < 6
    assert result.returncode == 2
    assert b"has not answered for 1 s" in result.stderr
    server.join()


@pytest.mark.parametrize(
    ["end", "says"],
    [
        (lambda raw: raw.close(), b"lost the connection"),
        (lambda raw: raw.send_frames([(Opcode.CLOSE, b"\x03\xe9going \x1b[1maway", True)]), b"lost the connection"),
        (lambda raw: raw.send(b"\x01\x01bad checksum"), b"lost the connection"),
        (lambda raw: raw.send_frames([(Opcode.TEXT, b"text", True)]), b"lost the connection"),
    ],
    ids=["cut", "closed", "checksum", "text"],
)
def test_a_connection_that_ends_instead_of_a_reply(end, says):
    def play(raw, peer):
        peer.message()
        end(raw)
        if raw.socket.fileno() >= 0:
            raw.wait_for_close()

    server = OneConnection(play)
    result = blip("request", server.url, "x")
    server.join()
    assert result.returncode == 2
    assert says in result.stderr and result.stderr.count(b"\n") == 1
    assert b"\x1b" not in result.stderr


def test_a_reply_that_breaks_off():
    def play(raw, peer):
        request = peer.message()
        raw.send(peer.encoder.frame(request.number, wire.REPLY | wire.MORE, b"\0half of it"))
        time.sleep(0.2)

    server = OneConnection(play)
    result = blip("request", server.url, "x")
    server.join()
    assert (result.returncode, result.stdout) == (2, b"half of it")
    assert b"of the reply" in result.stderr


def test_an_upgrade_that_is_refused_shows_the_status():
    def change(response):
        return Response(401, "Unauthorized", response.headers.__class__({"Content-Length": "0"}), b"")

    server = OneConnection(lambda raw, peer: None, change=change)
    result = blip("request", server.url, "x", "--timeout", "5")
    assert result.returncode == 2
    assert b"401" in result.stderr
    server.listener.close()
