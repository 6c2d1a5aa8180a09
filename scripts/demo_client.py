"""The part of the demonstration that takes more than one request: compression, and urgent requests beside a long file.

    demo_client.py URL FOLDER
"""

import asyncio
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import blip

FILE_SIZE = 20_000_000


def title(text):
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


async def compressed(url):
    document = [{"id": number, "name": f"item {number}", "price": number * 7 % 100} for number in range(2000)]
    size = len(json.dumps(document))
    for compression in [False, True]:
        async with blip.connect(url) as connection:
            reply = await connection.request("echo", json.dumps(document).encode(), compressed=compression)
            assert json.loads(reply.body) == document
            sent = connection.counters()["bytes_sent"]
            print(f"{size} bytes of JSON, {'compressed' if compression else 'plain'}: {sent} bytes went out")


async def overtaking(url, path):
    digest = hashlib.sha256()
    sent = received = 0
    urgent = []

    def progress(count):
        nonlocal sent
        sent = count

    async def transfer(connection):
        nonlocal received
        reply = await connection.request("echo", path, stream=True, progress=progress)
        async for piece in reply.stream():
            digest.update(piece)
            received += len(piece)

    async with blip.connect(url) as connection:
        start = time.monotonic()
        file = asyncio.create_task(transfer(connection))
        while not file.done():
            asked = time.monotonic()
            await connection.request("echo", b"urgent", urgent=True, timeout=10)
            if not file.done():
                urgent.append((time.monotonic() - asked, sent, received))
            await asyncio.sleep(0.004)
        await file
        seconds = time.monotonic() - start
    assert digest.digest() == hashlib.sha256(path.read_bytes()).digest()
    step = max(1, len(urgent) // 6)
    for taken, out, back in urgent[::step]:
        print(
            f"  urgent reply after {taken * 1000:5.1f} ms; of the file {out / 1e6:4.1f} MB are out, "
            f"{back / 1e6:4.1f} MB back"
        )
    print(
        f"{received / 1e6:.0f} MB there and back, equal, in {seconds * 1000:.0f} ms; "
        f"{len(urgent)} urgent replies came meanwhile"
    )
    assert urgent, "no urgent reply overtook the file"


async def main(url, folder):
    title("A JSON document, plain and compressed")
    await compressed(url)
    title("A file of 20 MB goes both ways on one connection; urgent requests do not wait for it")
    path = folder / "file"
    path.write_bytes(os.urandom(FILE_SIZE))
    await overtaking(url, path)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
