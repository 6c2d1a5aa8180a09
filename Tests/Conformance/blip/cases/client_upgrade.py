"""The upgrade as a client under test has to ask for it, and what it may accept."""

import base64
import time

from ..peer import check
from ..trial import case
from ..wire import REQUEST

DECISION = "RFC 6455 §4.1; BLIP 3 §Negotiation"


def rejects(trial, answer):
    """The client must not take this answer to its upgrade request: it ends with an error and sends no BLIP frame."""
    connection, head = trial.accept()
    data = answer(head) if callable(answer) else answer
    connection.write(data)
    connection.begin()
    connection.pump(lambda: connection.is_ended or connection.messages, trial.timeout)
    check(not connection.messages, f"it took {data[:200]!r} and sent a frame")
    check(connection.is_ended or connection.close_code is not None, f"it keeps the connection after {data[:200]!r}")
    connection.close()
    status, _, errors = trial.client_result()
    check(status != 0, f"it ended with status 0 after {data[:200]!r}")
    trial.strict(errors.strip(), "it failed without a word on standard error")
    return errors


def accepts(trial, answer, segment=None, **options):
    connection, head = trial.accept(**options)
    connection.write(answer(head), segment)
    connection.begin()
    with trial.talk(connection) as peer:
        peer.wait(lambda: peer.frames, "it sends no request")


@case("upgrade/request", DECISION, "client")
def request(t):
    """The upgrade request is a valid one and offers the subprotocols, newest first, and no extension."""
    connection, head = t.accept()
    parts = head.first.split(" ")
    check(len(parts) == 3 and parts[0] == "GET" and parts[2] == "HTTP/1.1", f"request line {head.first}")
    check(parts[1] == "/conformance", f"the target is {parts[1]}, not that of the URL")
    check(len(head.all("Host")) == 1, "not one Host")
    check(head.get("Upgrade").lower() == "websocket", f"Upgrade: {head.get('Upgrade')}")
    check("upgrade" in head.get("Connection").lower(), f"Connection: {head.get('Connection')}")
    check(head.all("Sec-WebSocket-Version") == ["13"], f"version {head.all('Sec-WebSocket-Version')}")
    key = head.get("Sec-WebSocket-Key") or ""
    check(len(base64.b64decode(key, validate=True)) == 16, f"key {key}")
    offered = [name.strip() for name in ",".join(head.all("Sec-WebSocket-Protocol")).split(",")]
    check(t.subprotocol in offered, f"it offers {offered}, not {t.subprotocol}")
    wanted = [name for name in t.all_subprotocols if name in offered]
    t.strict([name for name in offered if name in wanted] == wanted, f"it offers {offered}, not the newest first")
    t.strict(not head.all("Sec-WebSocket-Extensions"), f"it offers {head.get('Sec-WebSocket-Extensions')}")
    connection.write(t.switch(head))
    connection.begin()
    with t.talk(connection) as peer:
        peer.wait(lambda: peer.frames, "it sends no request")
        check(len(connection.mask_keys) > 0, "its frames are not masked")


@case("upgrade/fresh-randomness", "RFC 6455 §4.1, §5.3", "client")
def fresh_randomness(t):
    """The key of the upgrade and the masking keys differ each time."""
    keys = set()
    for _ in range(2):
        connection, head = t.accept(body=b"x" * 100_000)
        keys.add(head.get("Sec-WebSocket-Key"))
        connection.write(t.switch(head))
        connection.begin()
        with t.talk(connection) as peer:
            peer.wait_request()
            check(len(set(connection.mask_keys)) == len(connection.mask_keys), "masking keys repeat")
            check(len(connection.mask_keys) > 4, "few frames for 100,000 bytes")
    check(len(keys) == 2, "the key of the upgrade repeats")


@case("upgrade/no-subprotocol", DECISION, "client")
def no_subprotocol(t):
    """An answer without subprotocol is not taken: the peer may not speak BLIP."""
    errors = rejects(t, lambda head: t.switch(head, Sec_WebSocket_Protocol=None))
    t.strict("subprotocol" in errors.lower(), f"the error does not say so: {errors.strip()!r}")


@case("upgrade/other-subprotocol", DECISION, "client")
def other_subprotocol(t):
    """A subprotocol that was not offered is not taken, however similar."""
    for name in ("chat", t.subprotocol.swapcase(), t.subprotocol + "+Nobody", t.subprotocol[:-1] or "X"):
        if name not in t.all_subprotocols:
            rejects(t, lambda head, name=name: t.switch(head, protocol=name))


@case("upgrade/two-subprotocols", DECISION, "client")
def two_subprotocols(t):
    """Two subprotocols, in one line or in two, are not taken."""
    rejects(t, lambda head: t.switch(head, protocol=f"{t.subprotocol}, {t.subprotocol}"))
    rejects(t, lambda head: t.switch(head, Sec_WebSocket_Protocol=["BLIP_3", "BLIP"]))


@case("upgrade/wrong-accept", "RFC 6455 §4.1", "client")
def wrong_accept(t):
    """A missing or wrong Sec-WebSocket-Accept is not taken."""
    rejects(t, lambda head: t.switch(head, Sec_WebSocket_Accept=None))
    rejects(t, lambda head: t.switch(head, Sec_WebSocket_Accept="s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))


@case("upgrade/other-status", "RFC 6455 §4.1", "client")
def other_status(t):
    """Another status than 101 ends in an error that names it."""
    for status in ("200 OK", "400 Bad Request", "401 Unauthorized", "404 Not Found", "503 Service Unavailable"):
        errors = rejects(t, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        t.strict(status[:3] in errors, f"the error does not name {status}: {errors.strip()!r}")


@case("upgrade/bad-answers", "RFC 6455 §4.1; RFC 9112", "client")
def bad_answers(t):
    """Answers that are no upgrade, or no HTTP, are not taken."""
    rejects(t, lambda head: t.switch(head, Upgrade=None))
    rejects(t, lambda head: t.switch(head, Upgrade="h2c"))
    rejects(t, lambda head: t.switch(head, Connection=None))
    rejects(t, lambda head: t.switch(head, Connection="close"))
    rejects(t, lambda head: t.switch(head).replace(b"HTTP/1.1", b"HTTP/1.0"))
    rejects(t, b"SSH-2.0-OpenSSH_9.2\r\n")
    rejects(t, b"\x15\x03\x01\x00\x02\x02\x50")


@case("upgrade/extension-unasked", "RFC 6455 §9.1", "client")
def extension_unasked(t):
    """An extension that was not offered is not taken."""
    rejects(t, lambda head: t.switch(head, Sec_WebSocket_Extensions="permessage-deflate"))


@case("upgrade/endless-answer", "limits of libblip: 16 KiB", "client")
def endless_answer(t):
    """An answer whose head does not end is given up."""
    rejects(t, lambda head: b"HTTP/1.1 101 Switching Protocols\r\n" + b"X: " + b"y" * 200_000)


@case("upgrade/end-in-head", "robustness", "client")
def end_in_head(t):
    """The end of the connection during the upgrade ends in an error at once."""
    for count in (0, 20):
        connection, head = t.accept()
        started = time.monotonic()
        connection.write(t.switch(head)[:count] if count else b"")
        connection.close()
        status, _, errors = t.client_result()
        check(status != 0, "it ended with status 0")
        t.strict(errors.strip(), "it failed without a word on standard error")
        t.strict(time.monotonic() - started < 5, "it took its time to notice")


@case("upgrade/answer-spelling", "RFC 6455 §4.1", "client")
def answer_spelling(t):
    """Names and tokens of headers are compared without case; other headers do not matter."""
    accepts(
        t,
        lambda head: t.switch(
            head, Upgrade="WebSocket", Connection="keep-alive, upgrade", extra="x-other: 1\r\nServer: x\r\n"
        ),
    )


@case("upgrade/answer-byte-by-byte", "TCP has no borders", "client")
def answer_byte_by_byte(t):
    """The answer may come in segments of one byte."""
    accepts(t, t.switch, segment=1)


@case("upgrade/interim-answer", "RFC 9110 §15.2", "client")
def interim_answer(t):
    """An interim answer before the 101 is passed over."""
    accepts(t, lambda head: b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + t.switch(head))


@case("upgrade/early-frame", "RFC 6455 §4.1", "client")
def early_frame(t):
    """A frame in the same segment as the 101 is not lost."""
    connection, head = t.accept()
    peer = t.talk(connection)
    frame = peer.make(peer.new_number(), REQUEST, [("Profile", "conformance/no-such-profile")])[0]
    connection.write(t.switch(head) + connection.encode(2, frame))
    connection.begin()
    with peer:
        peer.check_error(peer.reply(1), "BLIP", "404")
