"""tshark captures a session of ours and decodes every frame of it.

Wireshark's dissector knows BLIP_3+CBMobile_2 and _3, reassembles no messages, keys a message's first frame by packet,
and shows the type of a frame in its summary only. So: one frame a segment, one pass, small properties, and what it
reports is compared frame by frame with what was sent.
"""

import shutil
import socket
import subprocess
import time

import pytest
import wire
from program import Server
from rawsocket import RawSocket

TSHARK = shutil.which("tshark")


class Capture:
    """Captures one port of the loopback interface into a file."""

    def __init__(self, port, path):
        self.path = path
        self.port = port
        self.process = subprocess.Popen(
            [TSHARK, "-i", "lo", "-f", f"tcp port {port}", "-w", str(path), "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        # It says nothing when it is ready: probe until a packet of ours is in the file.
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.process.poll() is None:
            socket.create_connection(("127.0.0.1", port)).close()
            time.sleep(0.2)
            if path.exists() and path.stat().st_size > 500:
                return
        self.process.kill()
        _, errors = self.process.communicate()
        pytest.skip(f"tshark cannot capture on lo here: {errors.decode().strip()[-300:]}")

    def stop(self):
        """Ends the capture when it has written everything."""
        size = -1
        while size != self.path.stat().st_size:
            size = self.path.stat().st_size
            time.sleep(0.7)
        self.process.terminate()
        self.process.communicate(timeout=10)


def decode(path, port, *fields):
    """One row a packet that has BLIP in it: its summary, and the fields."""
    words = [TSHARK, "-r", str(path), "-o", "blip.max_uncompressed_size:1024", "-Y", "blip", "-T", "fields"]
    for name in ["tcp.srcport", "_ws.col.Info", *fields]:
        words += ["-e", name]
    result = subprocess.run(words, capture_output=True, timeout=60, check=True)
    rows = [row.split("\t") for row in result.stdout.decode().split("\n") if row]
    return [(int(row[0]) == port, *row[1:]) for row in rows]


def test_wireshark_decodes_our_frames(tmp_path):
    if TSHARK is None:
        pytest.skip("tshark is not installed: apt-get install tshark")
    with Server("--protocol", "BLIP_3+CBMobile_3") as server:
        capture = Capture(server.port, tmp_path / "session.pcap")
        with RawSocket.connect(server.url, ["BLIP_3+CBMobile_3"]) as raw:
            peer = wire.Peer(raw.send, raw.next_message)
            replies = []
            for flags in [0, wire.COMPRESSED, wire.URGENT]:
                for body in [b"small", b"json " * 600]:
                    replies.append(peer.call({"Profile": "echo", "k": "v"}, body, flags, chunk=100_000))
            peer.request({"Profile": "nobody"})
            replies.append(peer.message())
            peer.request_in_step({"Profile": "sink"}, bytes(120_000), chunk=10_000)
            replies.append(peer.message())
            time.sleep(0.3)
        capture.stop()
        rows = decode(
            *[capture.path, server.port, "blip.messagenum", "blip.propslength", "blip.props", "blip.numackbytes"],
            *["blip.checksum", "blip.decompress_buffer_error", "_ws.malformed", "_ws.expert.message"],
        )
    bad = [row for row in rows if row[7] or row[8] or row[9] or "Malformed" in row[1]]
    assert bad == [], "a frame is malformed"
    assert all(row[6] or row[5] for row in rows), "each frame has a checksum or is an ACK"
    assert len(replies) == 8
    ours = [row for row in rows if row[0]]
    summaries = ",".join(row[1] for row in ours)
    for number in range(1, 7):
        assert f"RPY#{number}" in summaries
    assert "ERR#7" in summaries and "RPY#8" in summaries and "ACKMSG#8" in summaries
    assert "???" not in summaries
    echoes = [row for row in ours if row[3] == "4"]
    assert len(echoes) == 6 and all(row[4].replace(":", "") == "kv" for row in echoes)
    counts = [int(row[5]) for row in ours if row[5]]
    assert counts == [ack.acknowledged for ack in peer.acknowledgements]
    theirs = [row for row in rows if not row[0]]
    assert sum(row[1].count("MSG#") - row[1].count("ACKMSG#") for row in theirs) >= 8 + 11
