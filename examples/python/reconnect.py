#!/usr/bin/env python3
"""Sends each line of the input as a request, whatever happens to the connection meanwhile.

    reconnect.py URL PROFILE

Lines that are typed while the server is away wait until it is back. Lines that it may have handled already are not sent
again: they are reported. State changes go to the error output. Ends with the input.
"""

import sys

import blip


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    url, profile = sys.argv[1:]
    result = 0
    with blip.sync.reconnect(url, carry_over=True) as client:

        @client.on_state
        def tell(state: str, status: int) -> None:
            print(state if status == 0 else f"{state}: {blip.Status(status).name}", file=sys.stderr)

        for line in sys.stdin:
            try:
                print(client.request(profile, line.rstrip("\n"), timeout=60).text(), flush=True)
            except blip.Error as error:
                print(error, file=sys.stderr)
                result = 1
    return result


if __name__ == "__main__":
    sys.exit(main())
