#!/usr/bin/env python3
"""Lets hostile peers loose on a server and measures what they cost: its memory, its processor time, and how long another
client waits for its answers meanwhile.

    hostile.py TOOL [--quick] [--only NAME] [--markdown FILE]

TOOL is the built `blip`. Another client's median round trip beside a hostile peer is compared with the one beside an
honest peer that keeps the server just as busy; with an idle server it is shown too. Fails if the server ends, holds more
memory than an attack may cost, or serves the other client less than half as well as beside the honest one.
"""

import argparse
import json
import multiprocessing
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

MEGABYTE = 1 << 20
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: BLIP_3\r\n\r\n"
)
ATTACKS = []


def attack(memory, seconds=2.0, tls=False, longest=None):
    """Registers an attack: how much more memory than before, in MiB, the server may hold because of it, and how many
    milliseconds the longest of 150 round trips beside it may usually take, if that is looked at."""

    def register(function):
        ATTACKS.append((function.__name__.replace("_", " "), function, memory, seconds, tls, longest))
        return function

    return register


# ---- what peers send ----


def dial(port, upgrade=True):
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if upgrade:
        connection.sendall(UPGRADE)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(4096)
        assert b" 101 " in answer, answer
    return connection


def varint(number):
    result = b""
    while number >= 0x80:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


def websocket(payload, opcode=2, final=True):
    """A masked frame; the key is zero, so that the payload stays as it is."""
    head = bytes([opcode | (0x80 if final else 0)])
    if len(payload) < 126:
        head += bytes([0x80 | len(payload)])
    elif len(payload) < 65536:
        head += b"\xfe" + struct.pack(">H", len(payload))
    else:
        head += b"\xff" + struct.pack(">Q", len(payload))
    return head + bytes(4) + payload


class Sender:
    """The codec of BLIP 3 towards the server."""

    REQUEST, COMPRESSED, NO_REPLY, MORE = 0, 0x08, 0x20, 0x40

    def __init__(self):
        self.checksum = 0
        self.number = 0
        self.deflater = zlib.compressobj(6, zlib.DEFLATED, -15)

    def frame(self, number, flags, payload):
        self.checksum = zlib.crc32(payload, self.checksum)
        if flags & self.COMPRESSED:
            payload = (self.deflater.compress(payload) + self.deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
        return websocket(varint(number) + varint(flags) + payload + struct.pack(">I", self.checksum))

    def request(self, profile, body=b"", flags=0):
        self.number += 1
        properties = b"Profile\0" + profile + b"\0"
        return self.frame(self.number, flags, varint(len(properties)) + properties + body)


def flood(connection, data, until, read=True):
    """Sends the same bytes again and again, and throws away what comes."""
    connection.settimeout(0.2)
    view = memoryview(data)
    sent = 0

    def drain():
        try:
            while connection.recv(1 << 16):
                pass
        except OSError:
            if time.monotonic() < until:
                drain()

    if read:
        threading.Thread(target=drain, daemon=True).start()
    while time.monotonic() < until:
        try:
            sent += connection.send(view[sent % len(view) :])
        except TimeoutError:
            continue
        except OSError:
            return "closed by the server"
    return f"{sent / MEGABYTE:.0f} MiB sent"


# ---- the attacks ----


@attack(memory=30)
def an_honest_peer_that_is_busy(port, until):
    connection = dial(port)
    sender = Sender()
    count = 0
    connection.settimeout(5)
    while time.monotonic() < until:
        connection.sendall(b"".join(sender.request(b"echo", b"x" * 100) for _ in range(300)))
        received = 0
        while received < 300 * 108:
            received += len(connection.recv(1 << 16))
        count += 300
    return f"{count} requests"


@attack(memory=20)
def heads_that_come_byte_by_byte(port, until):
    peers = [dial(port, upgrade=False) for _ in range(300)]
    position = 0
    while time.monotonic() < until:
        for peer in peers:
            peer.send(UPGRADE[position % 60 : position % 60 + 1])
        position += 1
        time.sleep(0.05)
    return "300 connections"


@attack(memory=60)
def frames_that_come_byte_by_byte(port, until):
    peers = [dial(port) for _ in range(300)]
    for peer in peers:
        # All of a mebibyte is claimed.
        peer.sendall(b"\x82\xff" + struct.pack(">Q", MEGABYTE) + bytes(4) + bytes(1000))
    while time.monotonic() < until:
        for peer in peers:
            peer.send(b"x")
        time.sleep(0.05)
    return "300 connections that claim 1 MiB each"


@attack(memory=60)
def bodies_that_never_end(port, until):
    peers = []
    for _ in range(50):
        peer, sender = dial(port), Sender()
        peer.sendall(sender.request(b"echo", b"x" * 1000, Sender.MORE))
        peers.append((peer, sender))
    while time.monotonic() < until:
        for peer, sender in peers:
            peer.sendall(sender.frame(1, Sender.MORE, b"x"))
        time.sleep(0.02)
    return "50 bodies"


@attack(memory=60)
def more_unfinished_messages_than_allowed(port, until):
    closed = rounds = 0
    while time.monotonic() < until:
        peer, sender = dial(port), Sender()
        data = b"".join(sender.request(b"echo", b"x", Sender.MORE) for _ in range(4097))
        peer.settimeout(5)
        try:
            peer.sendall(data)
            while peer.recv(1 << 16):
                pass
            closed += 1
        except OSError:
            closed += 1
        rounds += 1
        peer.close()
    return f"{closed} of {rounds} connections closed"


@attack(memory=20)
def sizes_that_are_only_claimed(port, until):
    rounds = 0
    claims = [
        b"\x82\xff" + struct.pack(">Q", (1 << 62)) + bytes(4),
        b"\x82\xff" + struct.pack(">Q", (1 << 40)) + bytes(4) + bytes(100),
        websocket(varint(1) + varint(0x40) + varint((1 << 62)) + bytes(8)),
    ]
    while time.monotonic() < until:
        peer = dial(port)
        peer.sendall(claims[rounds % 3])
        peer.settimeout(0.02)
        try:
            peer.recv(1000)
        except OSError:
            pass
        peer.close()
        rounds += 1
    return f"{rounds} claims"


@attack(memory=300)
def bombs(port, until):
    rounds = 0
    while time.monotonic() < until:
        peer, sender = dial(port), Sender()
        peer.settimeout(2)
        body = bytes(8 * MEGABYTE)
        try:
            peer.sendall(sender.request(b"echo", body, Sender.COMPRESSED | Sender.MORE))
            for _ in range(7):
                peer.sendall(sender.frame(1, Sender.COMPRESSED | Sender.MORE, body))
                rounds += 1
        except OSError:
            pass
        peer.close()
    return f"{rounds} frames of 8 MiB in 8 KiB each"


@attack(memory=300, longest=60)
def bombs_in_one_frame(port, until):
    body = b"\x00" + bytes(60 * MEGABYTE)
    deflater = zlib.compressobj(1, zlib.DEFLATED, -15)
    # Without history, so that each is the same.
    wire = (deflater.compress(body) + deflater.flush(zlib.Z_FULL_FLUSH))[:-4]
    peer, checksum, count = dial(port), 0, 0
    peer.settimeout(10)
    while time.monotonic() < until:
        count += 1
        checksum = zlib.crc32(body, checksum)
        flags = Sender.COMPRESSED | Sender.NO_REPLY
        peer.sendall(websocket(varint(count) + varint(flags) + wire + struct.pack(">I", checksum)))
    return f"{count} frames of 60 MiB in {len(wire) >> 10} KiB each"


@attack(memory=20)
def a_flood_of_pings(port, until):
    return flood(dial(port), websocket(b"", 9) * 10000, until)


@attack(memory=20)
def a_flood_of_pings_whose_answers_nobody_reads(port, until):
    return flood(dial(port), websocket(b"x" * 125, 9) * 1000, until, read=False)


@attack(memory=20)
def a_flood_of_acknowledgements(port, until):
    return flood(dial(port), websocket(varint(1) + b"\x35" + varint(50000)) * 5000, until)


@attack(memory=20)
def a_flood_of_fragments_of_one_byte(port, until):
    peer, sender = dial(port), Sender()
    frame = sender.request(b"echo", b"x" * 90000, Sender.NO_REPLY)[14:]
    # The payload of one message of 90,000 bytes, a byte a frame; then the next, whose checksum is wrong: closed.
    pieces = [websocket(frame[:1], 2, final=False)]
    pieces += [websocket(frame[i : i + 1], 0, final=False) for i in range(1, 60000)]
    return flood(peer, b"".join(pieces), until)


@attack(memory=20)
def a_flood_of_empty_fragments(port, until):
    peer = dial(port)
    peer.sendall(websocket(b"", 2, final=False))
    return flood(peer, websocket(b"", 0, final=False) * 10000, until)


@attack(memory=20)
def a_flood_of_empty_frames(port, until):
    rounds = 0
    while time.monotonic() < until:
        flood(dial(port), websocket(b"") * 1000, min(until, time.monotonic() + 0.05))
        rounds += 1
    return f"{rounds} connections closed by the server"


@attack(memory=60)
def requests_whose_replies_nobody_reads(port, until):
    peer, sender = dial(port), Sender()
    peer.settimeout(0.2)
    count = 0
    try:
        while time.monotonic() < until:
            data = b"".join(sender.request(b"echo", bytes(15000)) for _ in range(20))
            while data and time.monotonic() < until:
                try:
                    data = data[peer.send(data) :]
                except TimeoutError:
                    continue
            count += 20
            time.sleep(0.01)
    except OSError:
        return f"closed by the server after {count} requests of 15 kB each"
    return f"{count} requests of 15 kB each"


@attack(memory=25, seconds=4)
def ten_thousand_connections_that_do_nothing(port, until):
    peers = []
    wanted = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    for _ in range(wanted):
        peers.append(dial(port))
    time.sleep(max(0, until - time.monotonic()) + 1)
    return f"{len(peers)} connections"


@attack(memory=30, tls=True)
def renegotiation_of_TLS(port, until):
    rounds = refused = 0
    while time.monotonic() < until:
        process = subprocess.Popen(
            ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        time.sleep(0.1)
        try:
            output, _ = process.communicate(b"R\n" * 50, timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        rounds += 1
        refused += b"no renegotiation" in output.lower() or b"alert" in output.lower() or b"error" in output.lower()
    return f"{refused} of {rounds} refused"


# ---- measuring ----


class Server:
    def __init__(self, tool, tls):
        arguments = [tool, "serve", "0"]
        if tls:
            arguments += ["--tls-cert", tls[0], "--tls-key", tls[1]]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        self.url = self.process.stdout.readline().decode().strip()
        self.port = int(self.url.split(":")[2].split("/")[0])
        self.most = 0
        self.is_watched = True
        threading.Thread(target=self.watch, daemon=True).start()

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def processor(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def watch(self):
        while self.is_watched:
            try:
                self.most = max(self.most, self.resident())
            except OSError:
                return
            time.sleep(0.02)

    def stop(self):
        self.is_watched = False
        self.process.terminate()
        return self.process.wait(20)


def bench(tool, server, tls, seconds):
    """Another client's round trips in microseconds, measured again and again for so long: the median, and the median of the
    longest of 150; None: it failed."""
    medians, longest = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not medians:
        command = [tool, "bench", server.url, "-n", "150", "-c", "1", "--json", "--timeout", "20"]
        if tls:
            command.append("--insecure")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return None, None
        times = json.loads(done.stdout)["microseconds"]
        medians.append(times["p50"])
        longest.append(times["maximum"])
    return sorted(medians)[len(medians) // 2], sorted(longest)[len(longest) // 2]


def child(function, port, until, pipe):
    try:
        pipe.send(function(port, until))
    except BaseException as error:  # what it says is shown
        pipe.send(f"ended: {error!r}")
    os._exit(0)


def measure(tool, row, tls, scale):
    name, function, allowed, seconds, needs_tls, _ = row
    tls = tls if needs_tls else None
    seconds *= scale
    server = Server(tool, tls)
    try:
        idle, _ = bench(tool, server, tls, 0.4 * scale)
        before = server.resident()
        server.most = before
        receiver, sender = multiprocessing.Pipe(False)
        until = time.monotonic() + seconds + 0.5
        process = multiprocessing.Process(target=child, args=(function, server.port, until, sender))
        process.start()
        time.sleep(0.5)
        start, used = time.monotonic(), server.processor()
        beside, longest = bench(tool, server, tls, seconds)
        spent = (server.processor() - used) / (time.monotonic() - start)
        said = receiver.recv() if receiver.poll(60) else "did not end"
        process.join(20)
        peak = server.most - before
        time.sleep(0.3)
        after, _ = bench(tool, server, tls, 0.2 * scale)
        return {
            "name": name,
            "said": said,
            "idle": idle,
            "beside": beside,
            "longest": longest,
            "after": after,
            "memory": peak / MEGABYTE,
            "allowed": allowed,
            "processor": spent,
            "alive": server.process.poll() is None,
        }
    finally:
        server.stop()


def certificate(folder):
    paths = str(folder / "server.pem"), str(folder / "server.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
         paths[1], "-out", paths[0], "-days", "2", "-subj", "/CN=hostile"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tool")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    multiprocessing.set_start_method("fork")
    scale = 0.25 if arguments.quick else 1.0
    passed = failed = 0
    honest = None
    lines = [
        "| peer | another client's median round trip: idle, beside it | server's memory | its processor | what it did |",
        "| --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        tls = certificate(Path(folder))
        for row in ATTACKS:
            if arguments.only and arguments.only not in row[0] and row is not ATTACKS[0]:
                continue
            for attempt in range(3):
                result = measure(arguments.tool, row, tls, scale)
                if honest is None and result["beside"]:
                    honest = result["beside"]
                # A machine that is busy with other work spoils single measurements; what is bad stays bad.
                limit = 2 * max(honest or 0, result["idle"] or 0, 500)
                problems = []
                if not result["alive"]:
                    problems.append("the server is gone")
                if result["beside"] is None or result["after"] is None:
                    problems.append("the other client is not served")
                elif result["beside"] > limit:
                    problems.append(f"the other client waits {result['beside']:.0f} µs, {limit:.0f} are allowed")
                elif row[5] is not None and result["longest"] > row[5] * 1000:
                    problems.append(f"once {result['longest']:.0f} µs, {row[5] * 1000} are allowed")
                if result["memory"] > result["allowed"]:
                    problems.append(f"{result['memory']:.0f} MiB, {result['allowed']} are allowed")
                if not problems:
                    break
            cell = lambda value: "-" if value is None else f"{value:.0f} µs"
            print(
                f"{'FAILED' if problems else 'ok':6} {result['name']}: {cell(result['idle'])} idle,"
                f" {cell(result['beside'])} beside it, once {cell(result['longest'])}; {result['memory']:+.1f} MiB;"
                f" {result['processor'] * 100:.0f} % of a processor; {result['said']}"
                + "".join(f"; {problem}" for problem in problems),
                flush=True,
            )
            lines.append(
                f"| {result['name']} | {cell(result['idle'])}, {cell(result['beside'])} | {result['memory']:+.1f} MiB |"
                f" {result['processor'] * 100:.0f} % | {result['said']} |"
            )
            passed, failed = passed + (not problems), failed + bool(problems)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
