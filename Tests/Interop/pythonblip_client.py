"""Runs in the environment of pythonblip: sends requests to a URL and writes each reply as a line of JSON.

    pythonblip_client.py URL < [{"properties": {...}, "body": "..."}, ...]
"""

import asyncio
import json
import sys

asyncio.set_event_loop(asyncio.new_event_loop())

from pythonblip.exceptions import BLIPError  # noqa: E402
from pythonblip.protocol import BLIPProtocol  # noqa: E402


def main():
    requests = json.load(sys.stdin)
    protocol = BLIPProtocol(sys.argv[1], {})
    try:
        for request in requests:
            sent = protocol.send_message(0, request["properties"], body=request.get("body", ""))
            try:
                reply = protocol.receive_message()
                answer = {
                    "number": reply.number,
                    "sent": sent.number,
                    "type": int(reply.type),
                    "properties": dict(reply.properties),
                    "body": reply.body_as_string(),
                }
            except BLIPError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
    finally:
        protocol.stop()


if __name__ == "__main__":
    main()
