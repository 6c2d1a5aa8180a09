#!/usr/bin/env python3
"""A BLIP server that sends every request back: same body, same properties.

python3 echo_server.py --port 4984
python3 echo_server.py --port 4984 --tls server.pem server.key
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys

import blip


def echo(request: blip.Request) -> blip.Response:
    properties = {key: value for key, value in request.properties.items() if key != "Profile"}
    return blip.Response(request.body, properties=properties, compressed=request.compressed)


async def serve(arguments: argparse.Namespace) -> None:
    listening = blip.serve(arguments.interface, arguments.port, tls=arguments.tls, handlers={None: echo})
    async with listening as listener:

        @listener.on_connect
        async def announce(connection: blip.Connection) -> None:
            print(f"{connection.remote_address} connected")
            await connection.wait_closed()
            print(f"{connection.remote_address} is gone")

        print(f"listening at {listener.url}; stop with Ctrl-C", flush=True)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends every BLIP request back.")
    parser.add_argument(
        "--interface", default="127.0.0.1", help="address to listen at; '' for all (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=4984, help="0: any free one (default: %(default)s)")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"), help="PEM files: serve wss instead of ws")
    try:
        asyncio.run(serve(parser.parse_args()))
    except blip.Error as error:
        sys.exit(f"echo_server: {error}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
