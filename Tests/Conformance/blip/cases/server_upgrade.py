"""The upgrade as a server under test has to answer it."""

import time

from ..peer import check
from ..trial import Skipped, case
from ..websocket import Ended

DECISION = "RFC 6455 §4.2; BLIP 3 §Negotiation"


def refused(trial, protocols, status=None, **options):
    """An upgrade that must not succeed; its answer."""
    connection, head = trial.upgrade(protocols, **options)
    check(head.status != 101, f"the upgrade was accepted: {head.all('Sec-WebSocket-Protocol')}")
    if status:
        trial.strict(head.status == status, f"it was refused with {head.status}, not {status}")
    else:
        trial.strict(400 <= head.status < 500, f"it was refused with {head.status}")
    return connection, head


def agrees(trial, protocols, expected, **options):
    connection, head = trial.upgrade(protocols, **options)
    check(head.status == 101, f"the upgrade was refused: {head.first}")
    check(head.all("Sec-WebSocket-Protocol") == [expected], f"it chose {head.all('Sec-WebSocket-Protocol')}")
    connection.begin()
    with trial.talk(connection) as peer:
        peer.check_alive()
    return head


@case("upgrade/agreement", DECISION, "server")
def agreement(t):
    """The subprotocol is agreed upon, without an extension, with headers that LiteCore compares whole."""
    head = agrees(t, [t.subprotocol], t.subprotocol)
    t.strict(head.get("Connection").lower() == "upgrade", f"Connection: {head.get('Connection')}")
    t.strict(head.get("Upgrade") == "websocket", f"Upgrade: {head.get('Upgrade')}")
    check(not head.all("Sec-WebSocket-Extensions"), "it answers with an extension")


@case("upgrade/first-of-client", DECISION, "server", 3)
def first_of_client(t):
    """The first entry of the client that the server supports is chosen, not the server's favourite."""
    if len(t.all_subprotocols) < 2:
        raise Skipped("only one version is tested")
    newest, oldest = t.all_subprotocols
    agrees(t, [newest, oldest], newest)
    connection, head = t.upgrade([oldest, newest])
    check(head.all("Sec-WebSocket-Protocol") == [oldest], f"it chose {head.all('Sec-WebSocket-Protocol')}")


@case("upgrade/unknown-first", DECISION, "server")
def unknown_first(t):
    """Entries that the server does not know are passed over."""
    agrees(t, ["chat", "BLIP_3a2", "BLIP_4", t.subprotocol], t.subprotocol)


@case("upgrade/list-spelling", "RFC 9110 §5.6.1", "server")
def list_spelling(t):
    """Spaces, tabs and empty entries in the list of subprotocols do not matter."""
    agrees(t, [], t.subprotocol, Sec_WebSocket_Protocol=f"chat , ,\t{t.subprotocol} ")


@case("upgrade/several-lines", "RFC 6455 §11.3.4", "server")
def several_lines(t):
    """The list of subprotocols may come in several header lines."""
    agrees(t, [], t.subprotocol, Sec_WebSocket_Protocol=["chat", f"superchat,{t.subprotocol}"])


@case("upgrade/case-of-subprotocol", "RFC 6455 §4.1", "server")
def case_of_subprotocol(t):
    """Subprotocols are compared exactly: another case is another name."""
    refused(t, [t.subprotocol.swapcase()])


@case("upgrade/similar-names", DECISION, "server")
def similar_names(t):
    """Names that only begin or end like the supported one are not it."""
    for name in (t.subprotocol + "+Nobody", t.subprotocol + "_", "X" + t.subprotocol, t.subprotocol[:-1] + "x"):
        if name not in t.all_subprotocols:
            refused(t, [name])


@case("upgrade/none-in-common", DECISION, "server")
def none_in_common(t):
    """Without a common subprotocol the answer is 400, with a text that lists what is supported."""
    connection, head = refused(t, ["chat"], 400)
    length = int(head.get("Content-Length") or 0)
    connection.pump(lambda: len(connection.buffer) >= length or connection.is_ended, t.timeout)
    text = bytes(connection.buffer).decode(errors="replace")
    t.strict(t.subprotocol in text, f"the text does not name {t.subprotocol}: {text!r}")


@case("upgrade/none-offered", DECISION, "server")
def none_offered(t):
    """A client that offers no subprotocol does not get a connection."""
    refused(t, [], 400)


@case("upgrade/header-spelling", "RFC 6455 §4.2.1", "server")
def header_spelling(t):
    """Names and tokens of headers are compared without case, and Connection may be a list."""
    agrees(t, [t.subprotocol], t.subprotocol, Connection="keep-alive, uPGRADE", Upgrade="WebSocket", Extra="\tx  y ")


@case("upgrade/extension-offered", "RFC 7692; deployed peers reject RSV1", "server")
def extension_offered(t):
    """permessage-deflate is not agreed upon: BLIP compresses by itself, and LiteCore rejects it."""
    connection, head = t.upgrade([t.subprotocol], Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits")
    check(head.status == 101, f"the upgrade was refused: {head.first}")
    t.strict(not head.all("Sec-WebSocket-Extensions"), f"it agrees to {head.get('Sec-WebSocket-Extensions')}")


@case("upgrade/early-frame", "RFC 6455 §4.1", "server")
def early_frame(t):
    """A frame in the same segment as the upgrade request is not lost."""
    connection = t.connect()
    head, _ = t.request_head([t.subprotocol])
    peer = t.talk(connection)
    frame = peer.make(peer.new_number(), 0, [("Profile", "conformance/no-such-profile")])[0]
    connection.write(head + connection.encode(2, frame))
    check(connection.read_head(t.timeout).status == 101, "the upgrade was refused")
    connection.begin()
    with peer:
        peer.check_error(peer.reply(1), "BLIP", "404")


@case("upgrade/byte-by-byte", "TCP has no borders", "server")
def byte_by_byte(t):
    """The head may come in segments of one byte."""
    agrees(t, [t.subprotocol], t.subprotocol, segment=1)


@case("upgrade/version", "RFC 6455 §4.4", "server")
def version(t):
    """Another version of WebSocket than 13 is refused with 426, which names 13."""
    _, head = refused(t, [t.subprotocol], 426, Sec_WebSocket_Version="8")
    t.strict("13" in head.all("Sec-WebSocket-Version"), "Sec-WebSocket-Version: 13 is missing")
    refused(t, [t.subprotocol], Sec_WebSocket_Version=None)


@case("upgrade/bad-requests", "RFC 6455 §4.2.1; RFC 9112", "server")
def bad_requests(t):
    """What is no upgrade request is refused: method, HTTP version, missing or bad headers."""
    refused(t, [t.subprotocol], 405, method="POST")
    refused(t, [t.subprotocol], version="HTTP/1.0")
    refused(t, [t.subprotocol], Upgrade=None)
    refused(t, [t.subprotocol], Upgrade="h2c")
    refused(t, [t.subprotocol], Connection="close")
    refused(t, [t.subprotocol], Sec_WebSocket_Key=None)
    refused(t, [t.subprotocol], Sec_WebSocket_Key="c2hvcnQ=")
    refused(t, [t.subprotocol], Host=None)
    refused(t, [t.subprotocol], Host=["a", "b"])


@case("upgrade/bad-heads", "RFC 9112 §2.2, §5", "server")
def bad_heads(t):
    """Malformed heads are refused, or the connection ends; nothing is upgraded."""
    good = t.request_head([t.subprotocol])[0]
    bad = [
        good.replace(b"\r\n", b"\n"),
        good.replace(b"Upgrade:", b"Upgrade :"),
        good.replace(b"Upgrade: websocket", b"Upgrade:\r\n websocket"),
        good.replace(b"Host", b"No colon\r\nHost"),
        good.replace(b"Host", b"Content-Length: 5\r\nContent-Length: 6\r\nHost"),
        good.replace(b"Host", b"X: \0\r\nHost"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
    ]
    for head in bad:
        connection = t.connect()
        connection.write(head)
        try:
            answer = connection.read_head(t.timeout)
        except Ended:
            check(connection.is_ended, f"neither answer nor end for {head[:60]!r}")
            continue
        check(answer.status != 101, f"it was upgraded: {head[:120]!r}")


@case("upgrade/endless-head", "limits of libblip: 16 KiB", "server")
def endless_head(t):
    """A head that does not end is refused before it takes much memory."""
    connection = t.connect()
    try:
        connection.write(b"GET / HTTP/1.1\r\n")
        for _ in range(1000):
            connection.write(b"X-Filler: " + b"x" * 4000 + b"\r\n")
            if connection.is_ended or connection.buffer:
                break
        connection.pump(lambda: connection.is_ended or connection.buffer, t.timeout)
    except Ended:
        pass
    check(connection.is_ended or connection.buffer, "4 MB of headers were taken")
    if connection.buffer:
        t.strict(b" 431 " in connection.buffer[:16] or b" 400 " in connection.buffer[:16], "neither 431 nor 400")


@case("upgrade/wrong-path", "libblip: paths; BLIP-Cocoa answers 404", "server")
def wrong_path(t):
    """A path that is not served is refused with 404."""
    if not t.settings.only_path:
        raise Skipped("the server may serve any path (see --only-path)")
    refused(t, [t.subprotocol], 404, path="/conformance/elsewhere")


@case("upgrade/silence", "robustness", "server")
def silence(t):
    """Connections that say nothing, or stop in the middle of the head, do not disturb others."""
    for part in (b"", b"G", t.request_head([t.subprotocol])[0][:-3]):
        connection = t.connect()
        if part:
            connection.write(part)
    time.sleep(0.1)
    with t.open() as peer:
        peer.check_alive()
