"""The package passes mypy in strict mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent

USE = """
import asyncio
import gzip
from typing import AsyncIterator, Iterator

import blip
import blip.sync

async def pieces() -> AsyncIterator[bytes]:
    yield b""

def handler(request: blip.sync.Request) -> Iterator[bytes]:
    yield b""

async def main() -> None:
    async with blip.connect("ws://localhost/", subprotocols=["BLIP_3"]) as connection:
        reply = await connection.request("p", b"x", properties={"a": "b"}, timeout=5)
        body: bytes = reply.body
        async for chunk in reply.stream():
            body += chunk
        await connection.request("p", pieces())
        await connection.send("p", open("x", "rb"))
    async with blip.serve("127.0.0.1", 0) as listener:
        port: int = listener.port

class Wire(blip.Transport):
    def send(self, frame: bytes) -> bool:
        return self.did_receive(frame)

async def without_a_network(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    here, there = blip.pair()
    async with here, blip.connect_transport(blip.StreamTransport(reader, writer), "BLIP") as connection:
        agrees: bool = await connection.say_bye()
    await blip.connect_transport(Wire(), handlers={"p": handler_of_bye}, on_close_request=lambda peer: not agrees)

async def handler_of_bye(request: blip.Request) -> None:
    await request.connection.say_bye()

with blip.sync.connect_transport(blip.sync.PipeTransport(0, 1)):
    pass
with blip.sync.connect(unix_path="/run/socket", path="/chat", tls=True):
    pass
with blip.sync.connect("ws://localhost/") as connection:
    text: str = connection.request("p", {"a": 1}).text()
    connection.request("p", gzip.open("x"))
    connection.add_handler("p", handler)
"""

MISUSE = """
import blip

def main() -> None:
    with blip.connect("ws://localhost/"):  # type: ignore[attr-defined]
        pass
    blip.connect("ws://localhost/").state  # type: ignore[attr-defined]
"""


def test_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    use = tmp_path / "use.py"
    use.write_text(USE)
    misuse = tmp_path / "misuse.py"
    misuse.write_text(MISUSE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    for arguments in (["src/blip"], [str(use)], [str(misuse)]):
        environment = {"MYPYPATH": str(FOLDER / "src"), "PATH": ""}
        result = subprocess.run(
            [*command, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=300, env=environment
        )
        assert result.returncode == 0, result.stdout + result.stderr
