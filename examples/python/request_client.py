#!/usr/bin/env python3
"""Sends one BLIP request and prints the reply.

python3 request_client.py ws://localhost:4984 hello --body "how are you" --property lang=en
python3 request_client.py wss://localhost:4984 hello --ca-file ca.pem --body @picture.jpg
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import blip


def property_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key, value


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends one BLIP request and prints the reply.")
    parser.add_argument("url", help="ws://host:port/path or wss://...")
    parser.add_argument("profile", help="the request's profile")
    parser.add_argument("--body", default="", help="text, or @file for the content of a file")
    parser.add_argument("--property", type=property_pair, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--protocol", action="append", help="subprotocol, such as BLIP_3+MyApp; may be repeated")
    parser.add_argument("--compressed", action="store_true")
    parser.add_argument("--urgent", action="store_true")
    parser.add_argument("--timeout", type=float, default=30, help="seconds (default: %(default)s)")
    parser.add_argument("--ca-file", help="PEM file with the certificates to trust")
    parser.add_argument("--insecure", action="store_true", help="do not check the server's certificate")
    arguments = parser.parse_args()
    body: str | pathlib.Path = arguments.body
    if arguments.body.startswith("@"):
        body = pathlib.Path(arguments.body[1:])

    try:
        with blip.sync.connect(
            arguments.url,
            subprotocols=arguments.protocol,
            ca_file=arguments.ca_file,
            verify=not arguments.insecure,
            timeout=arguments.timeout,
        ) as connection:
            reply = connection.request(
                arguments.profile,
                body,
                properties=dict(arguments.property),
                compressed=arguments.compressed or None,
                urgent=arguments.urgent,
                timeout=arguments.timeout,
            )
    except blip.ResponseError as error:
        sys.exit(f"request_client: the server answered with an error: {error}")
    except (blip.Error, OSError) as error:
        sys.exit(f"request_client: {error}")

    for key, value in reply.properties.items():
        print(f"{key}: {value}", file=sys.stderr)
    sys.stdout.buffer.write(reply.memory)
    if sys.stdout.isatty():
        print()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
