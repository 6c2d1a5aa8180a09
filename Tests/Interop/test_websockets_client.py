"""PyPI's websockets as a client of our server: in order first, then as hostile as the standard allows."""

import json
import random
import time

import pytest
import wire
from program import Server
from rawsocket import RawSocket, fragments, pings_of
from websockets.exceptions import InvalidStatus
from websockets.frames import Opcode
from websockets.sync.client import connect as connect_normally

JSON_TEXT = json.dumps([{"id": number, "name": f"item {number}"} for number in range(3000)]).encode()


@pytest.fixture
def raw(server):
    with RawSocket.connect(server.url) as connection:
        yield connection


@pytest.fixture
def peer(raw):
    return wire.Peer(raw.send, raw.next_message)


def test_an_ordinary_client(server):
    with connect_normally(server.url, subprotocols=["BLIP_3"], max_size=None) as websocket:
        assert websocket.subprotocol == "BLIP_3"
        assert "Sec-WebSocket-Extensions" not in websocket.response.headers, "permessage-deflate was offered"
        peer = wire.Peer(websocket.send, websocket.recv)
        for flags in [0, wire.URGENT, wire.COMPRESSED, wire.COMPRESSED | wire.URGENT]:
            for body in [b"", b"x", JSON_TEXT]:
                reply = peer.call({"Profile": "echo", "k": "v"}, body, flags)
                assert (reply.properties, reply.body, reply.flags & 0x38) == ({"k": "v"}, body, flags)
        websocket.ping().wait(5)


def test_the_upgrade_response_is_what_deployed_clients_compare(server):
    with connect_normally(server.url, subprotocols=["x", "BLIP_3", "BLIP"]) as websocket:
        headers = websocket.response.headers
        assert headers.get_all("Connection") == ["Upgrade"]
        assert headers.get_all("Upgrade") == ["websocket"]
        assert headers.get_all("Sec-WebSocket-Protocol") == ["BLIP_3"]


def test_the_client_s_order_of_subprotocols_counts():
    with Server("--protocol", "BLIP_3+A", "--protocol", "BLIP_3+B") as server:
        with RawSocket.connect(server.url, ["BLIP_3+B", "BLIP_3+A"]) as raw:
            assert raw.subprotocol == "BLIP_3+B"


def test_no_common_subprotocol_is_refused_with_400(server):
    with pytest.raises(InvalidStatus) as caught:
        connect_normally(server.url, subprotocols=["BLIP_4", "blip_3"])
    assert caught.value.response.status_code == 400
    body = bytes(caught.value.response.body or b"").decode() + caught.value.response.reason_phrase
    assert "BLIP_3" in body or caught.value.response.body is None


CUTS = {
    "whole": [1 << 30],
    "bytes": [1],
    "empty first": [0, 1 << 30],
    "empty between": [3, 0, 0, 5, 0, 1 << 30],
    "last byte alone": None,
    "odd": [1, 126, 2, 125, 127, 3],
}


@pytest.mark.parametrize("segment", [None, 1, 7, 1460], ids=lambda size: f"segments {size}")
@pytest.mark.parametrize("pings", [False, True], ids=["", "pings"])
@pytest.mark.parametrize("cut", CUTS)
def test_any_fragmentation(raw, cut, pings, segment):
    peer = wire.Peer(raw.send, raw.next_message)
    sent = []
    for number, (size, flags) in enumerate(
        [(0, 0), (5, wire.COMPRESSED), (300, 0), (2000, wire.COMPRESSED | wire.URGENT)], 1
    ):
        body = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
        (frame,) = peer.encoder.message(number, wire.REQUEST, {"Profile": "echo", "n": str(size)}, body, flags)
        sizes = CUTS[cut] or [len(frame) - 1, 1]
        frames = fragments(frame, sizes, pings)
        sent += pings_of(frames)
        raw.send_frames(frames, segment)
        reply = peer.message()
        assert (reply.number, reply.properties, reply.body) == (number, {"n": str(size)}, body)
        assert reply.flags & 0x38 == flags
    raw.wait_for_pongs(sent)


@pytest.mark.parametrize("seed", range(10))
def test_random_cuts_of_many_messages(raw, seed):
    """Several long messages, their frames interleaved, each cut at random, with pings and pongs anywhere."""
    chance = random.Random(seed)
    peer = wire.Peer(raw.send, raw.next_message)
    bodies = {}
    queues = []
    for number in range(1, 9):
        body = chance.randbytes(chance.randrange(60_000)) + b"json " * chance.randrange(8_000)
        flags = chance.choice([0, wire.COMPRESSED])
        bodies[number] = body
        queues.append((number, flags, wire.pack_properties({"Profile": "echo"}) + body))
    started = 0
    active = []
    stream = []
    pings = []
    while queues or active:
        if queues and (not active or chance.random() < 0.3):
            active.append(list(queues.pop(0)))
            entry = active[-1]
            started += 1
        else:
            entry = chance.choice(active)
        number, flags, content = entry
        size = chance.choice([1, 100, 4000, 16_000])
        piece, rest = content[:size], content[size:]
        entry[2] = rest
        if not rest:
            active.remove(entry)
        frame = peer.encoder.frame(number, wire.REQUEST | flags | (wire.MORE if rest else 0), piece)
        sizes = [chance.choice([0, 1, 50, 1000]) for _ in range(4)] + [chance.choice([1000, 5000, 1 << 20])]
        with_pings = chance.random() < 0.3
        frames = fragments(frame, sizes, with_pings)
        pings += pings_of(frames)
        if chance.random() < 0.1:
            frames.append((Opcode.PONG, b"nobody asked", True))
        stream += frames
    raw.send_frames(stream, chance.choice([None, 100, 1460, 65_536]))
    for _ in list(bodies):
        reply = peer.message()
        assert reply.kind == wire.REPLY
        assert reply.body == bodies.pop(reply.number)
    assert bodies == {}
    raw.wait_for_pongs(pings)


def test_bytes_in_one_segment_with_the_upgrade_request(server):
    encoder = wire.Encoder()
    early = [
        frame
        for number in (1, 2)
        for frame in encoder.message(number, wire.REQUEST, {"Profile": "echo"}, b"early %d" % number)
    ]
    with RawSocket.connect(server.url, early=early) as raw:
        peer = wire.Peer(raw.send, raw.next_message)
        assert [peer.message().body, peer.message().body] == [b"early 1", b"early 2"]


def test_largest_ping_and_empty_ping(raw, peer):
    for payload in [bytes(125), b""]:
        raw.send_frames([(Opcode.PING, payload, True)])
        raw.wait_for_pongs([payload])
        assert raw.pongs == [payload]
        raw.pongs.clear()
    assert peer.call({"Profile": "echo"}, b"x").body == b"x"


def test_odd_frames_that_deployed_peers_send(raw, peer):
    """Empty last frames, compressed or not, and frames whose compression differs from the message's others."""
    content = wire.pack_properties({"Profile": "echo"}) + b"body"
    encoder = peer.encoder
    raw.send(encoder.frame(1, wire.MORE, content))
    raw.send(encoder.frame(1, 0, b""))
    assert peer.message().body == b"body"
    raw.send(encoder.frame(2, wire.MORE | wire.COMPRESSED, content))
    raw.send(encoder.frame(2, wire.COMPRESSED, b"", raw=b""))
    assert peer.message().body == b"body"
    raw.send(encoder.frame(3, wire.MORE | wire.COMPRESSED, content))
    raw.send(encoder.frame(3, wire.COMPRESSED, b"", raw=b"\x00"))
    assert peer.message().body == b"body"
    raw.send(encoder.frame(4, wire.MORE | wire.COMPRESSED, content))
    raw.send(encoder.frame(4, wire.MORE, b" plain"))
    raw.send(encoder.frame(4, wire.COMPRESSED, b" packed"))
    assert peer.message().body == b"body plain packed"
    assert peer.encoder is encoder
    peer.last_request = 4
    assert peer.call({"Profile": "echo"}, JSON_TEXT, wire.COMPRESSED).body == JSON_TEXT


def test_properties_over_several_frames(raw, peer):
    content = wire.pack_properties({"Profile": "echo", "long": "v" * 20_000}) + b"body"
    for start in range(0, len(content), 3000):
        more = wire.MORE if start + 3000 < len(content) else 0
        raw.send(peer.encoder.frame(1, more, content[start : start + 3000]))
    reply = peer.message()
    assert (reply.properties, reply.body) == ({"long": "v" * 20_000}, b"body")


def test_what_a_peer_may_send_and_nobody_needs(raw, peer):
    for kind in (wire.REQUEST, wire.REPLY):
        raw.send(wire.acknowledgement(99, kind, 1 << 40))
    raw.send(wire.varint(1) + wire.varint(3) + b"unknown type")
    raw.send(wire.varint(1) + wire.varint(7))
    raw.send(wire.varint(2) + wire.varint(6) + b"more")
    assert peer.call({"Profile": "echo"}, b"x").body == b"x"


@pytest.mark.parametrize(
    ["frames", "codes"],
    [
        ([b""], (1002,)),
        ([b"\x01"], (1002,)),
        ([b"\xff" * 11], (1002,)),
        ([b"\x01\x00\x00"], (1002,)),
        ([b"\x01\x00\x00" + bytes(4)], (1002,)),
        ([b"\x02\x00\x00" + wire.Encoder().frame(1, 0, b"\0")[-4:]], (1002,)),
        ([b"\x01\x08" + b"\xff" * 20], (1002, 1007)),
        ([wire.Encoder().frame(1, wire.REPLY, b"\0")], (1002,)),
    ],
    ids=["empty", "no flags", "varint", "no checksum", "checksum", "number", "deflate", "no such request"],
)
def test_what_breaks_the_protocol_closes_the_connection(server, frames, codes):
    with RawSocket.connect(server.url) as raw:
        for frame in frames:
            raw.send(frame)
        code, reason = raw.wait_for_close()
        assert code in codes
        assert reason.decode()


@pytest.mark.parametrize(
    ["frames", "codes"],
    [
        ([(Opcode.TEXT, b"hello", True)], (1002, 1003)),
        ([(Opcode.CONT, b"x", True)], (1002,)),
        ([(Opcode.BINARY, b"x", False), (Opcode.BINARY, b"y", True)], (1002,)),
        ([(Opcode.TEXT, b"\xff", True)], (1002, 1003, 1007)),
    ],
    ids=["text", "continuation of nothing", "message in a message", "text that is none"],
)
def test_what_breaks_websocket_closes_the_connection(server, frames, codes):
    with RawSocket.connect(server.url) as raw:
        raw.send_frames(frames)
        assert raw.wait_for_close()[0] in codes


def test_malformed_properties_are_an_error_reply_and_no_end(raw, peer):
    raw.send(peer.encoder.frame(1, 0, b"\x07Profile"))
    reply = peer.message()
    assert reply.kind == wire.ERROR
    assert (reply.properties["Error-Domain"], reply.properties["Error-Code"]) == ("BLIP", "400")
    peer.last_request = 1
    assert peer.call({"Profile": "echo"}, b"x").body == b"x"


def test_our_frames_keep_the_size_that_deployed_peers_take(peer):
    reply = peer.call({"Profile": "source", "size": "400000"})
    assert len(reply.body) == 400_000
    number_and_flags = 2
    assert all(number_and_flags + frame.wire_size <= 16_384 for frame in reply.frames)
    assert all(frame.content for frame in reply.frames), "MoreComing only when bytes remain"


def test_our_acknowledgements(peer):
    """One for each multiple of 50,000 crossed, rising, counted with checksums and without headers."""
    peer.request_in_step({"Profile": "sink"}, bytes(400_000), chunk=4000)
    assert peer.message().body == b"400000"
    counts = [ack.acknowledged for ack in peer.acknowledgements]
    assert all(ack.number == 1 and ack.kind == wire.ACK_REQUEST for ack in peer.acknowledgements)
    assert [count // 50_000 for count in counts] == list(range(1, 9))
    assert all(count % 4004 == 0 for count in counts)


def test_a_reply_pauses_until_it_is_acknowledged(raw, peer):
    peer.acknowledges = False
    peer.request({"Profile": "source", "size": "1000000"})
    received = 0
    while raw.has_message_within(0.5):
        assert peer.take(raw.next_message()) is None
        frames = peer._unfinished[(False, 1)]
        received = sum(frame.wire_size for frame in frames)
        assert received < 128_000 + 16_384, "it goes on without acknowledgement"
    assert received >= 128_000
    # Others go on meanwhile.
    peer.request({"Profile": "echo"}, b"passing")
    reply = peer.message()
    assert (reply.number, reply.body) == (2, b"passing")
    peer.acknowledges = True
    raw.send(wire.acknowledgement(1, wire.REPLY, received))
    reply = peer.message()
    assert (reply.number, len(reply.body)) == (1, 1_000_000)


def test_odd_acknowledgements_do_no_harm(raw, peer):
    peer.acknowledges = False
    peer.request({"Profile": "source", "size": "300000"})
    while raw.has_message_within(0.3):
        assert peer.take(raw.next_message()) is None
    received = sum(frame.wire_size for frame in peer._unfinished[(False, 1)])
    for count in (received + 1, 1 << 63, (1 << 64) - 1, 0):
        raw.send(wire.acknowledgement(1, wire.REPLY, count))
    assert not raw.has_message_within(0.3), "more was acknowledged than was sent"
    peer.acknowledges = True
    raw.send(wire.acknowledgement(1, wire.REPLY, received))
    raw.send(wire.acknowledgement(1, wire.REPLY, 10))
    assert len(peer.message().body) == 300_000


def test_urgent_replies_overtake_a_long_one(raw, peer):
    peer.request({"Profile": "source", "size": "5000000"})
    while not peer._unfinished:
        assert peer.take(raw.next_message()) is None
    peer.request({"Profile": "echo"}, b"urgent", wire.URGENT)
    first = peer.message()
    assert (first.number, first.body) == (2, b"urgent")
    assert len(peer.message().body) == 5_000_000


def test_a_close_is_answered(raw):
    raw.send_frames([(Opcode.CLOSE, (1000).to_bytes(2, "big") + b"bye", True)])
    assert raw.wait_for_close()[0] == 1000


def test_a_client_that_reads_nothing_holds_nobody_up(server):
    with RawSocket.connect(server.url) as lazy, RawSocket.connect(server.url) as other:
        slow = wire.Peer(lazy.send, lazy.next_message)
        for _ in range(200):
            slow.request({"Profile": "source", "size": "100000"})
        peer = wire.Peer(other.send, other.next_message)
        start = time.monotonic()
        for _ in range(20):
            assert peer.call({"Profile": "echo"}, b"x").body == b"x"
        assert time.monotonic() - start < 3
