"""The asyncio interface, client and server, over real connections."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import time
from array import array
from pathlib import Path
from typing import Any, AsyncIterator, Iterator

import pytest
from conftest import LIMIT, eventually_async, run

import blip


async def echo(request: blip.Request) -> blip.Response:
    properties = {key: value for key, value in request.properties.items() if key.startswith("x-")}
    return blip.Response(request.body, properties=properties, content_type=request.content_type)


async def serving(**options: Any) -> blip.Listener:
    return await blip.serve("127.0.0.1", 0, handlers={"echo": echo}, **options)


def test_request_and_reply() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            reply = await connection.request("echo", b"hello", properties={"x-key": "välue", "x-empty": ""})
            assert reply.body == b"hello"
            assert reply.properties == {"x-key": "välue", "x-empty": ""}
            assert reply.get("x-key") == "välue"
            assert reply.get("nothing") is None
            assert bytes(reply.memory) == b"hello"
            assert reply.number == 1
            assert reply.is_complete
            assert (await connection.request("echo")).body == b""

    run(main())


def test_text_and_json_bodies() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            reply = await connection.request("echo", "grüße")
            assert reply.text() == "grüße"
            assert reply.content_type == "text/plain; charset=UTF-8"
            reply = await connection.request("echo", {"a": [1, None, "ü"]})
            assert reply.json() == {"a": [1, None, "ü"]}
            assert reply.content_type == "application/json"
            reply = await connection.request("echo", [1, 2], content_type="application/x-list")
            assert reply.content_type == "application/x-list"

    run(main())


@pytest.mark.parametrize("size", [0, 1, 1000, 65535, 65536, 300_000])
def test_bodies_of_every_kind(size: int, tmp_path: Path) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    path = tmp_path / "body"
    path.write_bytes(data)

    def pieces() -> Iterator[bytes]:
        for start in range(0, size, 7000):
            yield data[start : start + 7000]

    async def later() -> AsyncIterator[bytes]:
        for piece in pieces():
            await asyncio.sleep(0)
            yield piece

    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            for body in (
                data,
                bytearray(data),
                memoryview(data),
                memoryview(bytearray(data)),
                array("B", data),
                memoryview(data + data)[::2] if not size else memoryview(data),
                path,
                io.BytesIO(data),
                pieces(),
                later(),
            ):
                assert (await connection.request("echo", body)).body == data
            with open(path, "rb") as file:
                file.seek(size // 2)
                assert (await connection.request("echo", file)).body == data[size // 2 :]
                assert not file.closed
            assert (await connection.request("echo", memoryview(data)[::-1])).body == data[::-1]

    run(main())


def test_bodies_that_cannot_be_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            for body in (5, object(), io.StringIO("text"), ["x", object()], (text for text in ["not bytes"])):
                with pytest.raises(TypeError):
                    await connection.request("echo", body)  # type: ignore[arg-type]
            with pytest.raises(FileNotFoundError):
                await connection.request("echo", tmp_path / "missing")
            with pytest.raises(IsADirectoryError):
                await connection.request("echo", tmp_path)
            with pytest.raises(ValueError, match="NUL"):
                await connection.request("echo", properties={"a": "b\0c"})
            with pytest.raises(TypeError, match="'a'"):
                await connection.request("echo", properties={"a": 1})  # type: ignore[dict-item]
            with pytest.raises(blip.UsageError):
                await connection.request("nul\0profile")
            assert (await connection.request("echo", b"still works")).body == b"still works"

    run(main())


def test_compressed_and_urgent() -> None:
    async def main() -> None:
        seen = []
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler("flags")
            def flags(request: blip.Request) -> bytes:
                seen.append((request.compressed, request.urgent, request.no_reply))
                return b"x" * 1000

            await connection.request("flags", b"a" * 100_000, compressed=True)
            reply = await connection.request("flags", b"a", urgent=True)
            assert reply.urgent
            await connection.request("flags", {"text": "long enough to be compressed" * 10})
            await connection.request("flags", {"text": "long enough to be compressed" * 10}, compressed=False)
            before = connection.counters()["bytes_sent"]
            await connection.request("flags", b"a" * 200_000, compressed=True)
            assert connection.counters()["bytes_sent"] - before < 20_000
        assert seen[:4] == [(True, False, False), (False, True, False), (True, False, False), (False, False, False)]

    run(main())


def test_send_without_reply() -> None:
    async def main() -> None:
        received: asyncio.Queue[bytes] = asyncio.Queue()
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler("note")
            def note(request: blip.Request) -> bytes:
                assert request.no_reply
                received.put_nowait(request.body)
                return b"dropped"

            await connection.send("note", b"one")
            await connection.send("note", b"two", wait=True)
            counts: list[int] = []
            await connection.send("note", b"3" * 500_000, progress=counts.append)
            assert [len(await received.get()) for _ in range(3)] == [3, 3, 500_000]
            assert counts == sorted(counts)
            assert counts[-1] == 500_000

    run(main())


def test_send_is_held_back_by_a_slow_peer() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            block = bytes(1024 * 1024)
            total = 0

            @listener.handler("note")
            def note(request: blip.Request) -> None:
                nonlocal total
                total += len(request.memory)

            for _ in range(64):
                await connection.send("note", block)
                assert connection.backlog < 16 * 1024 * 1024
            await connection.close_gracefully(timeout=LIMIT)
            await eventually_async(lambda: not listener.connections)
            assert total == 64 * len(block)

    run(main())


def test_what_handlers_may_return(caplog: pytest.LogCaptureFixture) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"as"
        await asyncio.sleep(0)
        yield b"ync"

    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            results: dict[str, Any] = {
                "bytes": b"b",
                "text": "t",
                "json": {"j": 1},
                "none": None,
                "buffer": bytearray(b"u"),
                "large": b"l" * 100_000,
                "iterator": iter([b"i", b"t"]),
                "async": chunks(),
                "response": blip.Response("r", properties={"x": "1"}, compressed=True, urgent=True),
                "async response": blip.Response(chunks(), content_type="text/x"),
                "list": [1],
            }
            expected = [b"b", b"t", b'{"j":1}', b"", b"u", b"l" * 100_000, b"it", b"async", b"r", b"async", b"[1]"]

            @listener.handler("plain")
            def plain(request: blip.Request) -> Any:
                return results[request.properties["kind"]]

            @listener.handler("coroutine")
            async def coroutine(request: blip.Request) -> Any:
                await asyncio.sleep(0)
                return results[request.properties["kind"]]

            for kind, body in zip(results, expected):
                reply = await connection.request("plain", properties={"kind": kind})
                assert reply.body == body, kind
                if kind == "response":
                    assert reply.properties["x"] == "1"
                    assert reply.compressed
                    assert reply.urgent
                if kind == "async response":
                    assert reply.content_type == "text/x"
            results["iterator"] = iter([b"i", b"t"])
            results["async"] = chunks()
            results["async response"] = blip.Response(chunks())
            for kind, body in zip(results, expected):
                assert (await connection.request("coroutine", properties={"kind": kind})).body == body, kind
            assert caplog.records == []
            results["wrong"] = 3.5
            for profile in ("plain", "coroutine"):
                with pytest.raises(blip.ResponseError, match="^BLIP/501: "):
                    await connection.request(profile, properties={"kind": "wrong"})

    run(main())


def test_error_replies(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler("refuse")
            def refuse(request: blip.Request) -> None:
                raise blip.ResponseError(403, "not für you", "App")

            @listener.handler("refuse later")
            async def refuse_later(request: blip.Request) -> None:
                await asyncio.sleep(0)
                raise blip.ResponseError(17, "later")

            @listener.handler("break")
            async def broken(request: blip.Request) -> None:
                raise KeyError("secret")

            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("refuse")
            assert (caught.value.domain, caught.value.code, caught.value.text) == ("App", 403, "not für you")
            assert isinstance(caught.value.reply, blip.Reply)
            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("refuse", stream=True)
            assert (caught.value.domain, caught.value.code, caught.value.text) == ("App", 403, "not für you")
            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("refuse later")
            assert (caught.value.domain, caught.value.code, caught.value.text) == ("BLIP", 17, "later")
            assert caplog.records == []
            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("break")
            assert (caught.value.domain, caught.value.code) == ("BLIP", 501)
            assert "secret" not in caught.value.text
            assert [record.levelno for record in caplog.records] == [logging.ERROR]
            with pytest.raises(blip.ResponseError) as caught:
                await connection.request("nobody handles this")
            assert (caught.value.domain, caught.value.code) == ("BLIP", 404)

    run(main())


def test_default_handler_and_handlers_of_the_client() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler
            async def anything(request: blip.Request) -> str:
                back = await request.connection.request("who", request.profile)
                return back.text() + "!"

            @connection.handler("who")
            def who(request: blip.Request) -> str:
                assert request.connection is connection
                return "client of " + request.text()

            assert (await connection.request("anything at all")).text() == "client of anything at all!"
            accepted = listener.connections[0]
            assert accepted.is_incoming
            assert not connection.is_incoming

            @accepted.handler("only here")
            def only_here(request: blip.Request) -> str:
                return "here"

            assert (await connection.request("only here")).text() == "here"

    run(main())


def test_answer_now_and_answer_later() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            kept: list[blip.Request] = []

            @listener.handler("now")
            async def now(request: blip.Request) -> bytes:
                await request.respond(b"first")
                await asyncio.sleep(0)
                return b"ignored"

            @listener.handler("later")
            def later(request: blip.Request) -> None:
                request.defer()
                kept.append(request)

            assert (await connection.request("now")).body == b"first"
            pending = asyncio.ensure_future(connection.request("later"))
            await eventually_async(lambda: kept)
            await kept.pop().respond({"at": "last"})
            assert (await pending).json() == {"at": "last"}
            pending = asyncio.ensure_future(connection.request("later"))
            await eventually_async(lambda: kept)
            kept.clear()
            with pytest.raises(blip.ResponseError, match="501"):
                await pending

    run(main())


def test_many_requests_at_once() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:

            async def one(number: int) -> None:
                body = str(number).encode() * (number % 50)
                assert (await connection.request("echo", body)).body == body

            await asyncio.gather(*(one(number) for number in range(3000)))
            counters = connection.counters()
            assert counters["messages_sent"] == counters["messages_received"] == 3000
            assert counters["requests_pending"] == 0

    run(main())


def test_stream_of_a_reply_and_of_a_request() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            size = 3_000_000

            @listener.handler("upload", stream=True)
            async def upload(request: blip.Request) -> dict[str, Any]:
                count = total = 0
                async for chunk in request.stream():
                    count += 1
                    total += len(chunk)
                return {"chunks": count, "bytes": total, "name": request.properties["name"]}

            @listener.handler("download")
            def download(request: blip.Request) -> bytes:
                return bytes(size)

            answer = (await connection.request("upload", bytes(size), properties={"name": "n"})).json()
            assert answer["bytes"] == size
            assert answer["chunks"] > 10
            assert answer["name"] == "n"
            reply = await connection.request("download", stream=True)
            sizes = [len(chunk) async for chunk in reply.stream()]
            assert sum(sizes) == size
            assert len(sizes) > 10
            assert await (await connection.request("download", stream=True)).read() == bytes(size)
            assert (await connection.request("upload", b"", properties={"name": ""})).json()["bytes"] == 0
            whole = await connection.request("download")
            assert [len(chunk) async for chunk in whole.stream()] == [size]

    run(main())


def test_slow_reader_of_a_stream_holds_back_only_its_sender() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler("download")
            def download(request: blip.Request) -> bytes:
                return bytes(20_000_000)

            reply = await connection.request("download", stream=True)
            stream = reply.stream()
            await stream.__anext__()
            await asyncio.sleep(0.2)
            assert connection.counters()["bytes_received"] < 5_000_000
            assert (await connection.request("echo", b"others go on")).body == b"others go on"
            rest = 0
            async for chunk in stream:
                rest += len(chunk)
            assert rest > 19_000_000

    run(main())


def test_stream_that_is_cut_off() -> None:
    async def main() -> None:
        async with await serving() as listener:
            connection = await blip.connect(listener.url)
            begun = asyncio.Event()
            failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

            @listener.handler("upload", stream=True)
            async def upload(request: blip.Request) -> None:
                begun.set()
                try:
                    async for _ in request.stream():
                        await asyncio.sleep(0.01)
                except blip.Error as error:
                    failed.set_result(error)

            pending = asyncio.ensure_future(connection.request("upload", bytes(50_000_000)))
            await begun.wait()
            await connection.close()
            with pytest.raises(blip.ConnectionClosed):
                await pending
            assert isinstance(await failed, blip.Error)

    run(main())


def test_progress() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            counts: list[int] = []
            await connection.request("echo", bytes(2_000_000), progress=counts.append)
            assert counts == sorted(counts)
            assert counts[-1] == 2_000_000

    run(main())


def test_timeout() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler("never")
            async def never(request: blip.Request) -> None:
                await asyncio.sleep(1000)

            start = time.monotonic()
            with pytest.raises(blip.TimeoutError) as caught:
                await connection.request("never", timeout=0.1)
            assert 0.09 < time.monotonic() - start < LIMIT / 2
            assert isinstance(caught.value, TimeoutError)
            assert caught.value.status == blip.Status.TIMEOUT
            with pytest.raises(ValueError, match="negative"):
                await connection.request("never", timeout=-1)
            assert (await connection.request("echo", b"go on", timeout=LIMIT)).body == b"go on"
            await listener.close(graceful=False)

    run(main())


def test_cancelling_the_task_cancels_the_request() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:

            @listener.handler("never")
            async def never(request: blip.Request) -> None:
                await asyncio.sleep(1000)

            task = asyncio.ensure_future(connection.request("never"))
            await eventually_async(lambda: connection.counters()["requests_pending"] == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(connection.request("never"), 0.05)
            await eventually_async(lambda: not connection._pump.waiters)
            assert (await connection.request("echo", b"go on")).body == b"go on"
            await listener.close(graceful=False)

    run(main())


def test_close_ends_pending_requests() -> None:
    async def main() -> None:
        async with await serving() as listener:
            connection = await blip.connect(listener.url)

            @listener.handler("never")
            async def never(request: blip.Request) -> None:
                await asyncio.sleep(1000)

            pending = [asyncio.ensure_future(connection.request("never")) for _ in range(10)]
            await eventually_async(lambda: connection.counters()["requests_pending"] == 10)
            await connection.close(1001, "going away")
            for task in pending:
                with pytest.raises(blip.ConnectionClosed) as caught:
                    await task
                assert isinstance(caught.value, ConnectionError)
            assert connection.state == "closed"
            with pytest.raises(blip.ConnectionClosed):
                await connection.request("echo")
            with pytest.raises(blip.ConnectionClosed):
                await connection.send("echo")
            await connection.close()
            await connection.wait_closed()
            await listener.close(graceful=False)

    run(main())


def test_close_by_the_peer() -> None:
    async def main() -> None:
        async with await serving() as listener:
            connection = await blip.connect(listener.url)
            await connection.request("echo")
            accepted = listener.connections[0]
            await accepted.close(1000, "enough")
            await connection.wait_closed()
            assert connection.state == "closed"
            assert connection.close_code == 1000
            with pytest.raises(blip.ConnectionClosed):
                await connection.request("echo")
            await eventually_async(lambda: not listener.connections)

    run(main())


def test_graceful_close_finishes_what_is_under_way() -> None:
    async def main() -> None:
        async with await serving() as listener:
            connection = await blip.connect(listener.url)
            begun, may_end = asyncio.Event(), asyncio.Event()

            @listener.handler("slow")
            async def slow(request: blip.Request) -> bytes:
                begun.set()
                await may_end.wait()
                return b"done"

            pending = asyncio.ensure_future(connection.request("slow"))
            await begun.wait()
            closing = asyncio.ensure_future(connection.close_gracefully(timeout=LIMIT))
            await asyncio.wait((closing,), timeout=0.1)
            assert not closing.done()
            with pytest.raises(blip.ConnectionClosed):
                await connection.request("echo")
            may_end.set()
            assert (await pending).body == b"done"
            await closing
            assert connection.state == "closed"
            assert connection.close_code == 1000

    run(main())


def test_facts_of_a_connection() -> None:
    async def main() -> None:
        async with await serving(paths=["/chat"], subprotocols="BLIP_3+test") as listener:
            url = listener.url.rstrip("/")
            url = url if url.endswith("/chat") else url + "/chat"
            connection = await blip.connect(
                url, subprotocols=["BLIP_3+test", "BLIP_3"], headers={"X-Token": "t"}, user_agent="tester/1"
            )
            await connection.ping()
            accepted = listener.connections[0]
            assert connection.url == url
            assert connection.state == "open"
            assert connection.is_open
            assert connection.subprotocol == accepted.subprotocol == "BLIP_3+test"
            assert connection.protocol_version == 3
            assert connection.remote_address == accepted.local_address == f"127.0.0.1:{listener.port}"
            assert connection.local_address == accepted.remote_address
            assert not connection.is_secure
            assert connection.tls_version is None
            assert connection.peer_certificate is None
            assert accepted.request_path == "/chat"
            assert accepted.http_header("x-token") == "t"
            assert accepted.http_header("User-Agent") == "tester/1"
            assert accepted.http_header("X-Other") is None
            assert listener.connection_count == 1
            assert url in repr(connection)
            assert set(connection.counters()) == set(blip.COUNTERS)
            await connection.close()

    run(main())


def test_ping() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            assert 0 <= await connection.ping(LIMIT) < LIMIT

    run(main())


def test_connecting_fails_with_a_reason(unused_port: int) -> None:
    async def main() -> None:
        with pytest.raises(blip.ConnectionFailed) as caught:
            await blip.connect(f"ws://127.0.0.1:{unused_port}/")
        assert caught.value.status == blip.Status.REFUSED
        assert str(unused_port) in str(caught.value)
        with pytest.raises(blip.UsageError):
            await blip.connect("nonsense")
        with pytest.raises(blip.UsageError):
            await blip.connect("gopher://localhost/")
        with pytest.raises(ValueError, match="incoming_frame"):
            await blip.connect("ws://localhost/", limits={"nonsense": 1})
        async with await serving(paths=["/only"], subprotocols=["BLIP_3+a"]) as listener:
            with pytest.raises(blip.ConnectionFailed) as caught:
                await blip.connect(f"ws://127.0.0.1:{listener.port}/other", subprotocols="BLIP_3+a")
            assert (caught.value.domain, caught.value.code) == ("HTTP", 404)
            with pytest.raises(blip.ConnectionFailed):
                await blip.connect(f"ws://127.0.0.1:{listener.port}/only", subprotocols="BLIP_3+b")

    run(main())


def test_connecting_takes_no_longer_than_its_timeout() -> None:
    async def main(port: int) -> None:
        start = time.monotonic()
        with pytest.raises(blip.ConnectTimedOut) as caught:
            await blip.connect(f"ws://127.0.0.1:{port}/", timeout=0.2)
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, blip.ConnectionFailed)
        assert 0.15 < time.monotonic() - start < LIMIT / 2
        task = asyncio.ensure_future(_connect(f"ws://127.0.0.1:{port}/"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        run(main(silent.getsockname()[1]))


async def _connect(url: str) -> blip.Connection:
    return await blip.connect(url)


def test_listening_fails_with_a_reason() -> None:
    async def main() -> None:
        async with await serving() as listener:
            with pytest.raises(blip.ListenFailed) as caught:
                await blip.serve("127.0.0.1", listener.port)
            assert caught.value.status == blip.Status.ADDRESS_IN_USE
            with pytest.raises(ValueError, match="65536"):
                await blip.serve("127.0.0.1", 65536)

    run(main())


def test_unix_socket(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        async with await blip.serve(unix_path=path, handlers={"echo": echo}) as listener:
            async with blip.connect(listener.url) as connection:
                assert (await connection.request("echo", b"unix")).body == b"unix"
                assert listener.url.startswith("ws+unix:")

    run(main())


def test_tls(certificates: dict[str, str]) -> None:
    async def main() -> None:
        identity = (certificates["server.pem"], certificates["server.key"])
        async with await serving(tls=identity) as listener:
            assert listener.url.startswith("wss:")
            url = f"wss://localhost:{listener.port}/"
            async with blip.connect(url, ca_file=certificates["ca.pem"]) as connection:
                assert connection.is_secure
                assert connection.tls_version == "TLSv1.3"
                assert connection.tls_cipher
                assert connection.peer_certificate and connection.peer_certificate[0] == 0x30
                body = bytes(1_000_000)
                assert (await connection.request("echo", body)).body == body
            async with blip.connect(url, verify=False, tls_versions=(blip.TLS_1_2, blip.TLS_1_2)) as connection:
                assert connection.tls_version == "TLSv1.2"
            with pytest.raises(blip.ConnectionFailed) as caught:
                await blip.connect(url)
            assert caught.value.status == blip.Status.CERTIFICATE
            with pytest.raises(blip.ConnectionFailed):
                await blip.connect(url, ca_file=certificates["ca.pem"], server_name="example.org")
        with pytest.raises(blip.ConnectionFailed, match="missing.pem"):
            await blip.connect("wss://localhost/", ca_file="missing.pem")
        with pytest.raises(blip.ListenFailed, match="missing.pem"):
            await serving(tls=("missing.pem", "missing.key"))
        with pytest.raises(blip.ListenFailed, match="server.csr"):
            await serving(tls=(certificates["server.csr"], certificates["server.key"]))

    run(main())


def test_client_certificates(certificates: dict[str, str]) -> None:
    async def main() -> None:
        async with await serving(
            tls=(certificates["server.pem"], certificates["server.key"]),
            client_ca_file=certificates["ca.pem"],
            client_certificate_required=True,
        ) as listener:
            url = f"wss://127.0.0.1:{listener.port}/"
            identity = (certificates["client.pem"], certificates["client.key"])
            async with blip.connect(url, ca_file=certificates["ca.pem"], identity=identity) as connection:
                assert (await connection.request("echo", b"known")).body == b"known"
                assert listener.connections[0].peer_certificate
            with pytest.raises(blip.Error):
                async with blip.connect(url, ca_file=certificates["ca.pem"]) as connection:
                    await connection.request("echo", b"unknown")

    run(main())


def test_on_connect() -> None:
    async def main() -> None:
        async with await serving() as listener:

            @listener.on_connect
            async def greet(connection: blip.Connection) -> None:
                await connection.send("hello", connection.remote_address or "")

            greeting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            handlers = {"hello": lambda request: greeting.set_result(request.text())}
            async with blip.connect(listener.url, handlers=handlers) as connection:
                assert await greeting == connection.local_address

    run(main())


def test_one_program_with_several_loops() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            assert (await connection.request("echo", b"again")).body == b"again"

    for _ in range(3):
        run(main())


def test_json_that_is_none() -> None:
    async def main() -> None:
        async with await serving() as listener, blip.connect(listener.url) as connection:
            reply = await connection.request("echo", b"{")
            with pytest.raises(json.JSONDecodeError):
                reply.json()
            with pytest.raises(UnicodeDecodeError):
                (await connection.request("echo", b"\xff")).text()

    run(main())


def test_streams_that_nobody_reads_to_the_end() -> None:
    async def main() -> None:
        async with await serving() as listener:
            connection = await blip.connect(listener.url)

            @listener.handler("download")
            def download(request: blip.Request) -> bytes:
                return bytes(5_000_000)

            @listener.handler("a piece", stream=True)
            async def a_piece(request: blip.Request) -> bytes:
                async for _ in request.stream():
                    break
                return b"enough"

            @listener.handler("nothing", stream=True)
            def nothing(request: blip.Request) -> bytes:
                return b"not interested"

            @listener.handler("again", stream=True)
            async def again(request: blip.Request) -> str:
                first = await request.stream().__anext__()
                return str(len(first) + len(await request.read()))

            for _ in range(5):
                async for _ in (await connection.request("download", stream=True)).stream():
                    break
                await connection.request("download", stream=True)
                for profile, body in (("a piece", b"enough"), ("nothing", b"not interested"), ("again", b"5000000")):
                    reply = await connection.request(profile, bytes(5_000_000), timeout=LIMIT)
                    assert reply.body == body
            start = time.monotonic()
            await connection.close_gracefully(timeout=LIMIT)
            assert time.monotonic() - start < LIMIT / 2

    run(main())
