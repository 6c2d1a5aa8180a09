#!/usr/bin/env python3
"""Sends and fetches files of any size; neither side ever holds a whole file in memory.

python3 file_transfer.py serve --folder /srv/files --port 4984
python3 file_transfer.py put ws://localhost:4984 holiday.mov
python3 file_transfer.py get ws://localhost:4984 holiday.mov
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import blip


def inside(folder: Path, name: str) -> Path:
    """The file of that name, if it is one that may be asked for."""
    if not name or name != Path(name).name or name.startswith("."):
        raise blip.ResponseError(403, f"not a name of a file: {name!r}")
    return folder / name


async def receive(message: blip.Request | blip.Reply, target: Path) -> int:
    """Writes the body as it arrives; the file gets its name only when it is whole."""
    part = target.with_name(f".{target.name}.part-{os.getpid()}-{id(message)}")
    try:
        with open(part, "xb") as file:
            async for chunk in message.stream():
                file.write(chunk)
        part.replace(target)
        return target.stat().st_size
    finally:
        part.unlink(missing_ok=True)


async def serve(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    async with blip.serve(arguments.interface, arguments.port) as listener:

        @listener.handler("put", stream=True)
        async def put(request: blip.Request) -> dict[str, int]:
            return {"bytes": await receive(request, inside(folder, request.get("name", "") or ""))}

        @listener.handler("get")
        def get(request: blip.Request) -> Path:
            path = inside(folder, request.get("name", "") or "")
            if not path.is_file():
                raise blip.ResponseError(404, f"there is no file {path.name!r}")
            return path

        print(f"serving {folder} at {listener.url}; stop with Ctrl-C", flush=True)
        await listener.wait_closed()


def show(sent: int) -> None:
    print(f"\r{sent:,} bytes", end="", file=sys.stderr)


async def put(arguments: argparse.Namespace) -> None:
    path = Path(arguments.file)
    async with blip.connect(arguments.url) as connection:
        reply = await connection.request("put", path, properties={"name": path.name}, progress=show)
    print(f"\n{reply.json()['bytes']:,} bytes arrived")


async def get(arguments: argparse.Namespace) -> None:
    async with blip.connect(arguments.url) as connection:
        reply = await connection.request("get", properties={"name": arguments.file}, stream=True)
        print(f"{await receive(reply, Path(arguments.file).absolute()):,} bytes in {arguments.file}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends and fetches files over BLIP.")
    commands = parser.add_subparsers(required=True, metavar="serve|put|get")
    command = commands.add_parser("serve", help="serve the files of a folder")
    command.add_argument("--folder", type=Path, default=Path("."))
    command.add_argument("--interface", default="127.0.0.1")
    command.add_argument("--port", type=int, default=4984)
    command.set_defaults(run=serve)
    for name, run, text in (("put", put, "send a file"), ("get", get, "fetch a file")):
        command = commands.add_parser(name, help=text)
        command.add_argument("url", help="ws://host:port")
        command.add_argument("file")
        command.set_defaults(run=run)
    arguments = parser.parse_args()
    try:
        asyncio.run(arguments.run(arguments))
    except (blip.Error, OSError) as error:
        sys.exit(f"file_transfer: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
