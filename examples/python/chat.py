#!/usr/bin/env python3
"""A chat room. What is said is urgent: it passes any large message that is under way on a connection.

python3 chat.py serve --port 4984
python3 chat.py join ws://localhost:4984 Anna
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

import blip


async def serve(arguments: argparse.Namespace) -> None:
    names: dict[blip.Connection, str] = {}

    async def tell_all(text: str) -> None:
        for connection in list(names):
            with contextlib.suppress(blip.ConnectionClosed):
                await connection.send("say", text, urgent=True)

    async with blip.serve(arguments.interface, arguments.port) as listener:

        @listener.handler("join")
        async def join(request: blip.Request) -> list[str]:
            name = request.text().strip()[:40]
            if not name or name in names.values():
                raise blip.ResponseError(409, f"the name {name!r} is taken or empty")
            others = list(names.values())
            names[request.connection] = name
            await tell_all(f"* {name} is here")
            return others

        @listener.handler("say")
        async def say(request: blip.Request) -> None:
            name = names.get(request.connection)
            if name is None:
                raise blip.ResponseError(403, "join first")
            await tell_all(f"{name}: {request.text()[:1000]}")

        @listener.on_connect
        async def wait_for_the_end(connection: blip.Connection) -> None:
            await connection.wait_closed()
            if name := names.pop(connection, None):
                await tell_all(f"* {name} has left")

        print(f"the room is at {listener.url}; stop with Ctrl-C", flush=True)
        await listener.wait_closed()


def show(request: blip.Request) -> None:
    print(request.text(), flush=True)


async def join(arguments: argparse.Namespace) -> None:
    async with blip.connect(arguments.url, handlers={"say": show}) as connection:
        others = (await connection.request("join", arguments.name, timeout=10)).json()
        print(f"here are: {', '.join(others) or 'nobody else yet'}. Type and press Enter; end with Ctrl-D.", flush=True)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        closed = asyncio.ensure_future(connection.wait_closed())
        while not closed.done():
            line = asyncio.ensure_future(reader.readline())
            await asyncio.wait((line, closed), return_when=asyncio.FIRST_COMPLETED)
            if line.done() and line.result():
                await connection.request("say", line.result().decode("utf-8", "replace").rstrip(), urgent=True)
            else:
                line.cancel()
                break
        print("the room has closed" if closed.done() else "bye")


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat room over BLIP.")
    commands = parser.add_subparsers(required=True, metavar="serve|join")
    command = commands.add_parser("serve", help="open a room")
    command.add_argument("--interface", default="127.0.0.1")
    command.add_argument("--port", type=int, default=4984)
    command.set_defaults(run=serve)
    command = commands.add_parser("join", help="go into a room")
    command.add_argument("url", help="ws://host:port")
    command.add_argument("name", help="what to be called")
    command.set_defaults(run=join)
    arguments = parser.parse_args()
    try:
        asyncio.run(arguments.run(arguments))
    except (blip.Error, OSError) as error:
        sys.exit(f"chat: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
