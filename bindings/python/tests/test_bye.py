"""The message "Bye" of BLIP 1 and 2: asking whether the connection may close, agreeing, refusing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from conftest import LIMIT, run

import blip
import blip.sync

VERSIONS = [1, 2]
ECHO: dict[str | None, Any] = {"echo": lambda request: request.body}


def url_of(listener: Any, version: int) -> dict[str, Any]:
    """What to connect with so that this version is spoken."""
    if version == 1:
        return {"url": f"blip://127.0.0.1:{listener.port}"}
    return {"url": f"ws://127.0.0.1:{listener.port}/", "subprotocols": "BLIP" if version == 2 else "BLIP_3"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bye_that_is_agreed_to_closes(version: int) -> None:
    async def main() -> None:
        asked: list[str] = []
        async with blip.serve("127.0.0.1", 0, blip1=True, on_close_request=lambda peer: asked.append(peer.state)) as listener:

            @listener.handler("slow")
            async def slow(request: blip.Request) -> bytes:
                await asyncio.sleep(0.1)
                return request.body

            connection = await blip.connect(**url_of(listener, version))
            assert connection.protocol_version == version
            reply = asyncio.ensure_future(connection.request("slow", b"body"))
            await asyncio.sleep(0.02)
            assert await connection.say_bye()
            assert asked == ["open"]
            with pytest.raises(blip.ConnectionClosed):
                await connection.request("slow", b"late")
            assert (await reply).body == b"body"
            await connection.wait_closed()

    run(main())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("later", [False, True])
def test_a_bye_that_is_refused_changes_nothing(version: int, later: bool) -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0, blip1=True, handlers=ECHO) as listener:
            if later:

                @listener.on_close_request
                async def decide(connection: blip.Connection) -> bool:
                    await asyncio.sleep(0.02)
                    return False

            else:
                listener.on_close_request(lambda connection: False)
            async with blip.connect(**url_of(listener, version)) as connection:
                for _ in range(2):
                    assert not await connection.say_bye()
                    assert connection.is_open
                    assert (await connection.request("echo", b"still here")).body == b"still here"

    run(main())


def test_the_client_is_asked_too_and_its_own_function_goes_first() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0, handlers=ECHO, on_close_request=lambda peer: True) as listener:
            async with blip.connect(**url_of(listener, 2), on_close_request=lambda peer: False) as connection:
                await connection.request("echo")
                (accepted,) = listener.connections
                assert not await accepted.say_bye()
                accepted.on_close_request(lambda peer: False)
                assert not await connection.say_bye()
                assert connection.is_open and accepted.is_open

                @connection.on_close_request
                def agree(peer: blip.Connection) -> None:
                    assert peer is connection

                assert await accepted.say_bye()
                await connection.wait_closed()

    run(main())


@pytest.mark.parametrize("later", [False, True])
def test_a_function_that_raises_refuses(later: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fail(connection: blip.Connection) -> bool:
            raise RuntimeError("no idea")

        async def fail_later(connection: blip.Connection) -> bool:
            await asyncio.sleep(0.01)
            raise RuntimeError("no idea")

        async with blip.serve("127.0.0.1", 0, on_close_request=fail_later if later else fail) as listener:
            async with blip.connect(**url_of(listener, 2)) as connection:
                assert not await connection.say_bye()

    run(main())
    assert "on_close_request failed" in caplog.text


def test_without_a_function_the_peer_may_close() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0) as listener:
            async with blip.connect(**url_of(listener, 2)) as connection:
                assert await connection.say_bye()
                await connection.wait_closed()

    run(main())


def test_blip3_has_no_bye() -> None:
    async def main() -> None:
        async with blip.serve("127.0.0.1", 0) as listener:
            async with blip.connect(**url_of(listener, 3)) as connection:
                with pytest.raises(blip.Error) as caught:
                    await connection.say_bye()
                assert caught.value.status == blip.Status.UNSUPPORTED

    run(main())


def test_a_bye_that_nobody_answers_ends_with_the_connection() -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def never(connection: blip.Connection) -> bool:
            asked.set()
            await asyncio.sleep(LIMIT)
            return True

        async with blip.serve("127.0.0.1", 0, on_close_request=never) as listener:
            connection = await blip.connect(**url_of(listener, 2))
            bye = asyncio.ensure_future(connection.say_bye())
            await asked.wait()
            await connection.close()
            with pytest.raises(blip.ConnectionClosed):
                await bye

    run(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_without_asyncio(version: int) -> None:
    answers = [False, True]
    threads: list[str] = []

    def decide(connection: blip.sync.Connection) -> bool:
        threads.append(threading.current_thread().name)
        return answers.pop(0)

    with blip.sync.serve("127.0.0.1", 0, blip1=True, on_close_request=decide, handlers=ECHO) as listener:
        with blip.sync.connect(**url_of(listener, version), on_close_request=lambda peer: False) as connection:
            # A port for all versions waits for the client's first bytes.
            connection.request("echo")
            assert not listener.connections[0].say_bye()
            assert not connection.say_bye()
            assert connection.is_open
            assert connection.say_bye()
            connection.wait_closed(LIMIT)
    assert threads == ["blip-server"] * 2
