#!/usr/bin/env python3
"""Makes what the fuzzers start from: seeds.py TARGET FOLDER writes one file for each seed into FOLDER.

Frames, properties and numbers come from Tests/Vectors, the rest from the samples below and from corpora/TARGET.txt,
which holds inputs that earlier runs have found to be worth keeping, a line of base64 each.
"""

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "Vectors"


def cases(name):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]


def word(number):
    return struct.pack("<H", number)


def frames():
    """A byte of configuration, then steps: 0 is a frame as it is, with its length."""
    shapes = {1: 0x00, 2: 0x01, 3: 0x02}
    for name in ["bad-frames.json", "v1-frames.json", "v2-frames.json", "v3-frames.json"]:
        for case in cases(name):
            steps = bytearray()
            for frame in map(bytes.fromhex, case["frames"]):
                if len(frame) <= 0x3FF:
                    steps += b"\x00" + word(len(frame)) + frame
            for limits in [0x00, 0x04]:
                yield bytes([shapes[case["version"]] | limits]) + steps
    # Frames that the target itself makes: requests, in one and in several parts, plain and compressed, and answers.
    for version in range(3):
        request = bytes([version, 0x06, 9, 0x00, 4]) + b"\x00abc"
        yield request
        yield bytes([version, 0x0B, 9, 0x48, 9]) + b"\x06a\0bcd\0xy" + bytes([0x1B, 9, 0x08, 3]) + b"xyz"
        yield bytes([version, 0x0C, 9, 0x40, 2]) + b"\x00a" + word(60000) + bytes([0x1C, 9, 0x00, 0]) + word(50000)
        yield bytes([version, 0x02, 0x00]) + word(5) + bytes([0x05, 0x46, 9, 0x01, 2]) + b"\x00z"


def properties():
    for case in cases("varint.json"):
        yield b"\x00" + bytes.fromhex(case.get("hex", case.get("bad", "")))
    for case in cases("properties.json"):
        for version in ["v1_hex", "v2_hex", "v3_hex"]:
            yield b"\x01" + bytes.fromhex(case.get(version, ""))
    yield b"\x02" + bytes(range(0, 250, 3))
    yield b"\x03\x01" + b"\x00\x05hello\x01!\x04\x01\x02\x03abc\x02\x01\x05\x10\x00\x06\x02zz\x03\x02\x07\x00\x00"


def carriers():
    """A mode, then steps; see the target."""
    for mode, version in enumerate([1, 2, 3, 1]):
        for case in cases(f"v{version}-frames.json"):
            steps = bytearray([mode] + [0] * (mode == 3))
            for frame in map(bytes.fromhex, case["frames"]):
                if len(frame) < 256:
                    steps += bytes([4, len(frame)]) + frame + bytes([0] * (version == 1 and mode == 3)) + b"\x06"
            yield bytes(steps[:4000])
    bye = b"\x00\x06\x02\x00Bye\x00"
    yield bytes([0, 0, 0, 1, 0, 1, len(bye)]) + bye + bytes([6, 9, 6, 5, 1, 3, 6])
    yield bytes([3, 1, 0, 0, 1, 0, 1, len(bye)]) + bye + bytes([7, 6, 9, 6, 5, 1, 3, 6])
    yield bytes([4, 5, 0, 5, 133, 3, 200, 6, 8, 6, 136, 6, 5, 2, 9, 6, 10, 6])


def engine():
    """Configuration and level, then steps; see the target."""
    for shape in range(0, 256, 7):
        yield bytes([shape, 6]) + bytes([0x00, 0x01, 40, 0x00, 0x03, 0x06, 0x00, 0x82, 0, 0x00, 0x00, 0x83, 0x86, 0x00])
        yield bytes([shape, 6]) + bytes([0x00, 0x07, 0x00, 0xFF, 0x08, 0x0E, 0xFF, 0x0F, 0x00, 0x0B, 0x00, 0xFF, 0x40])


def inflate():
    """The compressor's level, then frames: shape, size, content."""
    for level in range(0, 10, 3):
        for shape in [0x08, 0x48, 0x18, 0x28, 0x0C]:
            text = b"the same words again; " * 8
            steps = b"".join(bytes([shape, len(part)]) + part for part in [text, text[:40], text]) + bytes(4)
            yield bytes([level]) + steps
    # Stored, fixed and dynamic blocks; a distance to before the begin; the end of the stream.
    for frame in ["00", "000500faff68656c6c6f", "4a4c4c02", "4b040a00", "0300", "05c081080000000020b6f9eb"]:
        yield bytes([6, 0, len(frame) // 2]) + bytes.fromhex(frame)


def websocket():
    def frame(first, payload, key=None):
        size = len(payload)
        bit = 0 if key is None else 0x80
        if size < 126:
            head = bytes([first, bit | size])
        elif size < 65536:
            head = bytes([first, bit | 126]) + struct.pack(">H", size)
        else:
            head = bytes([first, bit | 127]) + struct.pack(">Q", size)
        if key is None:
            return head + payload
        return head + key + bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))

    streams = [
        [(0x82, b"binary")],
        [(0x81, "text é".encode())],
        [(0x89, b"ping"), (0x8A, b"pong")],
        [(0x01, b"in "), (0x89, b""), (0x00, b"three "), (0x80, b"parts")],
        [(0x02, b"a" * 200), (0x80, b"b" * 300)],
        [(0x88, b"")],
        [(0x88, b"\x03\xe8bye")],
        [(0x88, b"\x03\xed")],
        [(0x82, b"c" * 70000)],
        [(0xC2, b"")],
        [(0x83, b"")],
        [(0x80, b"")],
        [(0x01, b"\xc3"), (0x80, b"\xa9")],
        [(0x01, b"\xc3"), (0x80, b"x")],
        [(0x09, b"")],
        [(0x02, b""), (0x82, b"")],
        [(0x88, b"x")],
        [(0x89, b"d" * 126)],
    ]
    for stream in streams:
        for role, key in [(0, b"\x12\x34\x56\x78"), (1, None)]:
            for maximum in range(4):
                yield bytes([role | maximum << 1, 3, 7]) + b"".join(frame(*part, key) for part in stream)
    yield bytes([1, 0, 0]) + b"\x82\xff" + b"\x7f" * 8
    yield bytes([0x0F, 1, 2]) + bytes([0x00, 3]) + b"abc" + bytes([0x1D, 2, 0x68, 0x69, 0xE8, 0x03])
    yield bytes([0x10, 0, 0, 200, 0, 1, 0, 1, 3, 1, 2, 1])
    yield bytes([0x18, 0, 0, 1]) + "grüße 📡 \u0000".encode()


REQUEST = (
    "GET /db/_blipsync?x=1 HTTP/1.1\r\nHost: localhost:4984\r\n"
    "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Sec-WebSocket-Protocol: BLIP_9, BLIP_3+CBMobile_3,BLIP\r\n\r\n"
)
RESPONSE = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\nSec-WebSocket-Protocol: BLIP_3\r\n\r\n"
)


def http():
    requests = [
        REQUEST,
        REQUEST + REQUEST,
        REQUEST.replace("1.1", "1.0"),
        REQUEST.replace("GET", "HEAD"),
        REQUEST.replace("/db", "http://localhost/db"),
        REQUEST.replace("Host", "X-Host"),
        REQUEST[:-2] + "Content-Length: 5\r\n\r\n",
        REQUEST[:-2] + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
        REQUEST.replace("\r\n", "\n"),
        REQUEST.replace("Host:", " Host:"),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "\x16\x03\x01",
        "GET / HTTP/1.1\r\n" + "A: b\r\n" * 101 + "\r\n",
    ]
    responses = [
        RESPONSE,
        RESPONSE.replace("BLIP_3", "BLIP_3, BLIP"),
        RESPONSE.replace("ICX", "YYY"),
        "HTTP/1.1 100 Continue\r\n\r\n" + RESPONSE,
        "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n",
        "HTTP/1.1 302 \r\nLocation: wss://other/\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
        RESPONSE[:-2] + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    ]
    for kind, heads in enumerate([requests, responses]):
        for head in heads:
            yield bytes([kind, 6]) + head.encode("latin-1")
    yield bytes([4, 0, 2, 6]) + b"BLIP_3" + b"\x04BLIP" + b"\x01\x04Host\x05a.b:1\x00" + b"0123456789abcdef"
    yield bytes([4, 0, 1, 4]) + b"BLIP" + b"\x02\x0dAuthorization\x05Basic\x01X\x02\r\n\x01\x05agent" + bytes(16)


def url():
    for text in [
        "ws://localhost:4984/db/_blipsync",
        "wss://example.org",
        "http://a.b/",
        "https://user:pass%20word@host:1/p?q=%41",
        "ws+unix://%2Frun%2Fblip.sock/db?x",
        "wss+unix://%2Ftmp%2Fa",
        "ws://[::1]:80/",
        "ws://[fe80::1%25eth0]/",
        "ws://1.2.3.4",
        "ws://1.2.3",
        "ws://0x7f.1",
        "ws://[1:2:3:4:5:6:7:8]",
        "ws://[::ffff:1.2.3.4]/é?ü",
        "ws://a..b/",
        "ws://@h/",
        "ws://u@h@i/",
        "ws://h:0/",
        "ws://h:65536/",
        "ws://h/#f",
        "ftp://h/",
        "ws:/h",
        "",
        "WS://HOST.:80?",
        "ws://h/%",
        "ws://h/%2",
        "ws://h/ \r\n",
        "ws://xn--bcher-kva.example/",
    ]:
        yield text.encode()


def proxy():
    digest = 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
    for kind in (0, 1):
        for text in [
            "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 \r\nA: b\r\n\r\n",
            "HTTP/1.1 502 Bad\r\n\r\n",
            f"HTTP/1.1 407 No\r\nProxy-Authenticate: {digest}\r\nContent-Length: 2\r\n\r\nxyHTTP/1.1 200 OK\r\n\r\nz",
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "\x15\x03\x01",
        ]:
            yield bytes([kind]) + text.encode("latin-1")
    for reply in (
        b"\x05\x00\x00\x01\x01\x02\x03\x04\x00\x50rest",
        b"\x05\x00\x00\x03\x02ab\x00\x50",
        b"\x05\x05\x00\x01",
    ):
        yield b"\x02\x05\x00" + reply
        yield b"\x03\x05\x02\x01\x00" + reply
    yield b"\x03\x05\x02\x01\x01"
    yield b"\x02\x05\xff"
    yield b"\x02\x05\x00\x05\x00\x00\x04" + bytes(18)
    for text in ["http://u:p@h:1", "socks5h://[::1]:1080", "h", "https://h/"]:
        yield b"\x04" + text.encode()
    for host, text in [("10.1.2.3", "10.0.0.0/8,x"), ("a.example.com", ".example.com *"), ("::1", "[::1],::/0")]:
        yield bytes([5, len(host)]) + host.encode() + text.encode()


def authentication():
    """What it is about, then its bytes; see the target."""
    digest = 'Digest realm="r", qop="auth, auth-int", nonce="abc", algorithm=SHA-256, opaque="o"'
    for text in [
        'Basic realm="a", charset="UTF-8"',
        "Negotiate YWJjZA==, Basic realm=x",
        digest,
        digest.replace("SHA-256", "MD5-sess") + "\n" + digest.replace("SHA-256", "SHA-512-256") + ", userhash=true",
        'Newauth realm="apps", type=1, title="Login to \\"apps\\"", Basic realm="simple"',
        'Bearer realm="x", error="invalid_token", error_description="The token \\\\ expired"',
        "Digest realm=r, nonce=n, qop=auth, stale=true",
        'Basic realm="',
        ", ,Basic",
    ]:
        for flag in range(2):
            yield bytes([0, flag]) + text.encode()
    for text in [
        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        "Basic YTpi",
        "Bearer mF_9.B5f-4.1JqM",
        'Digest username="u", realm="r", nonce="n", uri="/", algorithm=MD5, qop=auth, nc=00000001, cnonce="c", '
        'response="0123456789abcdef0123456789abcdef"',
        "Digest username*=UTF-8''J%C3%A4s, realm=r, nonce=n, uri=\"/\", response=a",
    ]:
        yield b"\x01" + text.encode()
    for text in ["5\r\nhello\r\n0\r\n\r\n", "a;x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\n\r\nHTTP/1.1", "hello"]:
        for shape in range(4):
            yield bytes([2, shape, 3, 0, 1]) + (b"\x05\x00" if shape & 2 else b"") + text.encode()
    yield b"\x03\x04user" + "pässword".encode()


def cookies():
    """A date, then lines: place, two bytes of time, length, text."""
    yield b"\x01\x20Sunday, 06-Nov-94 08:49:37 GMT  "
    lines = [
        "a=b",
        "a=b; Path=/a; Domain=h.example; Secure; HttpOnly; Max-Age=100",
        "__Host-x=1; Secure; Path=/",
        "a=; Expires=Wed, 21 Oct 2035 07:28:00 GMT",
        "a=b; Domain=.co.uk",
        "a=b; Max-Age=-1",
        "a=b; Expires=garbage; Domain=example",
        "n = v w ;Path=x;=;;",
    ]
    for place in range(8):
        text = b"".join(bytes([place, 1, 9, len(line)]) + line.encode() for line in lines)
        yield b"\x00" + text
        yield b"\x00" + text + bytes([7 - place, 200, 200, 3]) + b"a=c"


def redirects():
    """A flag, then a URL and what it redirects to."""
    base = "ws://a/b/c/d;p?q"
    for locations in [
        ["../g?y#s", "/x/./y/../z", "?n", "//other:81/p"],
        ["https://a/", "wss://b/%2e%2e/", "http://a/"],
        ["ws+unix://%2Fs/", "ws://u:p@h/", "", "#", "ftp://x", "a:b", "./a:b"],
        ["/1", "/2", "/1", "/2"],
        [f"/{number}" for number in range(12)],
    ]:
        for start in [base, "wss://[::1]:444/x", "wss+unix://%2Frun%2Fs/db", "ws://[fe80::1%25eth0]/"]:
            for flag in range(2):
                yield bytes([flag]) + "\n".join([start, *locations]).encode()


def api():
    """Shape of the run, the listener, then steps."""
    for shape in range(0, 32, 3):
        start = bytes([shape, 0, 0, 0])
        # A request with a body, sent, and the loop run for a while.
        exchange = bytes([5, 2, 0x09, 0xA0, 30, 0, 10, 0, 0, 1, 1, 15, 7, 15, 7, 15, 7])
        yield start + exchange * 3 + bytes(16)
        yield start + exchange + bytes(range(0, 240, 5))
        yield start + exchange.replace(b"\x05\x02", b"\x05\x05") + bytes([11] * 20)


def threads():
    """Shape, then parts of the same length: the peer's script, and those of the program's threads."""
    peers = [
        bytes([0, 1, 5, 0, 2, 9, 15, 0, 0, 5, 61]) * 4 + bytes([6, 0, 6, 1, 12, 0, 7, 0x82, 7, 2]) * 3,
        bytes([0, 10, 4, 4, 1, 4, 1, 10, 1, 4, 0, 15, 0]) * 5,
        bytes([15, 0, 6, 0, 7, 1, 8, 2, 9, 3, 10, 1, 5, 11, 1, 11, 0, 12, 0]) * 4,
    ]
    programs = [
        bytes([0, 1, 4, 20, 0, 5, 0x45, 2, 0, 3, 0, 4, 4]) * 6,
        bytes([1, 2, 8, 100, 3, 0, 1, 4, 3, 2, 3, 5, 1, 7, 9, 5, 3, 5, 4]) * 5,
        bytes([3, 4, 0, 3, 1, 2, 5, 0, 5, 1, 5, 2, 7, 21, 7, 5, 0, 1, 0x60, 3]) * 5,
        bytes([5, 5, 5, 7, 5, 6, 5, 14, 6, 11, 2, 6, 65, 5, 13, 0xFF]) * 4,
    ]
    size = max(map(len, peers + programs))
    for shape in range(0, 256, 9):
        for first in range(3):
            count = 2 + (shape >> 4) % 3
            parts = [peers[first]] + [programs[(first + index) % 4] for index in range(count)]
            yield bytes([shape]) + b"".join((part * 3)[:size] for part in parts)


def main():
    target, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    seeds = list(globals()[target]())
    kept = HERE / "corpora" / f"{target}.txt"
    if kept.exists():
        seeds += map(base64.b64decode, kept.read_text(encoding="ascii").split())
    for seed in seeds:
        (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


if __name__ == "__main__":
    main()
