"""Measures the Python package against echo_server: python_client.py sync|asyncio URL SECONDS [WINDOW].

Prints one JSON object.
"""

import asyncio
import json
import sys
import time

WARM_UP = 0.3
BODY = b"x" * 64


def report(times, seconds):
    times.sort()

    def at(share):
        return round(times[min(len(times) - 1, int(len(times) * share))] * 1e6, 2) if times else 0

    print(
        json.dumps(
            {
                "rate": round(len(times) / seconds, 1),
                "count": len(times),
                "p50_us": at(0.5),
                "p90_us": at(0.9),
                "p99_us": at(0.99),
                "p999_us": at(0.999),
                "max_us": at(1),
            }
        )
    )


def synchronous(url, seconds):
    import blip.sync

    times = []
    with blip.sync.connect(url) as connection:
        began = time.perf_counter()
        opens, closes = began + WARM_UP, began + WARM_UP + seconds
        while began < closes:
            if connection.request("echo", BODY).body != BODY:
                sys.exit("the server did not echo the body")
            now = time.perf_counter()
            if began >= opens:
                times.append(now - began)
            began = now
    report(times, seconds)


async def asynchronous(url, seconds, window):
    import blip

    times = []
    async with blip.connect(url) as connection:
        start = time.perf_counter()
        opens, closes = start + WARM_UP, start + WARM_UP + seconds

        async def ask():
            began = time.perf_counter()
            while began < closes:
                if (await connection.request("echo", BODY)).body != BODY:
                    sys.exit("the server did not echo the body")
                now = time.perf_counter()
                if opens <= now < closes:
                    times.append(now - began)
                began = now

        await asyncio.gather(*(ask() for _ in range(window)))
    report(times, seconds)


def main():
    kind, url, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if kind == "sync":
        synchronous(url, seconds)
    else:
        asyncio.run(asynchronous(url, seconds, int(sys.argv[4])))


if __name__ == "__main__":
    main()
