"""Backlog, trace context and errors with details."""

from __future__ import annotations

import asyncio
from typing import Any, Dict, List

import pytest
from conftest import run

import blip

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def drain() -> None:
    arrived: List[int] = []
    async with blip.serve("127.0.0.1", 0) as listener:
        gate = asyncio.Event()

        @listener.handler("sink", stream=True)
        async def sink(request: blip.Request) -> None:
            await gate.wait()
            arrived.append(len(await request.read()))

        async with blip.connect(listener.url) as connection:
            await connection.drain()
            tasks = [asyncio.ensure_future(connection.request("sink", bytes(1 << 20))) for _ in range(12)]
            await asyncio.sleep(0)
            assert connection.backlog > 4 << 20
            drainers = [asyncio.ensure_future(connection.drain()) for _ in range(2)]
            await asyncio.sleep(0.2)
            assert not any(drainer.done() for drainer in drainers)
            gate.set()
            await asyncio.gather(*drainers)
            assert connection.backlog <= 4 << 20
            await asyncio.gather(*tasks)
            assert arrived == [1 << 20] * 12
            # The end of the connection ends the waiting.
            gate.clear()
            tasks = [asyncio.ensure_future(connection.request("sink", bytes(1 << 20))) for _ in range(12)]
            await asyncio.sleep(0)
            drainer = asyncio.ensure_future(connection.drain())
            await asyncio.sleep(0.05)
            await connection.close()
            with pytest.raises(blip.ConnectionClosed):
                await drainer
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(error, blip.ConnectionClosed) for error in ended)
            gate.set()


def test_drain() -> None:
    run(drain())


async def trace() -> None:
    async with blip.serve("127.0.0.1", 0) as listener:

        @listener.handler("trace")
        def handle(request: blip.Request) -> Dict[str, Any]:
            return {"trace": request.trace, "child": request.child_trace()}

        async with blip.connect(listener.url) as connection:
            given = {"traceparent": PARENT, "tracestate": "a=1"}
            seen = (await connection.request("trace", properties=given)).json()
            assert seen["trace"] == given
            child = seen["child"]
            assert child["tracestate"] == "a=1" and child["traceparent"] != PARENT
            assert child["traceparent"][:36] == PARENT[:36] and child["traceparent"].endswith("-01")
            seen = (await connection.request("trace", properties={"traceparent": "garbage"})).json()
            assert seen == {"trace": None, "child": {}}
            new = blip.new_trace(sampled=False)
            assert set(new) == {"traceparent"} and new["traceparent"].endswith("-02")
            seen = (await connection.request("trace", properties=new)).json()
            assert seen["trace"] == new


def test_trace_context() -> None:
    run(trace())


async def details() -> None:
    async with blip.serve("127.0.0.1", 0) as listener:

        @listener.handler("fail")
        def handle(request: blip.Request) -> None:
            raise blip.ResponseError(-28, "no space left", "Disk", details={"device": "sda"})

        async with blip.connect(listener.url) as connection:
            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("fail")
            error = caught.value
            assert (error.domain, error.code, error.text) == ("Disk", -28, "no space left")
            assert error.details == {"device": "sda"}


def test_errors_have_details() -> None:
    run(details())
