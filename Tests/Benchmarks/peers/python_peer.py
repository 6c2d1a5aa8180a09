"""The same echo by other Python packages: python_peer.py websockets|pyzmq|grpcio SECONDS WINDOW [SERVER-CORE].

Server and client are processes of their own, both with asyncio. Prints one JSON object.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time

WARM_UP = 0.3
BODY = b"x" * 64


async def measure(ask, seconds, window):
    """Runs `window` loops of requests; ask is a coroutine function that makes one."""
    times = []
    start = time.perf_counter()
    opens, closes = start + WARM_UP, start + WARM_UP + seconds

    async def loop(ask):
        began = time.perf_counter()
        while began < closes:
            if await ask() != BODY:
                sys.exit("the server did not echo the body")
            now = time.perf_counter()
            if opens <= now < closes:
                times.append(now - began)
            began = now

    await asyncio.gather(*(loop(ask) for _ in range(window)))
    times.sort()

    def at(share):
        return round(times[min(len(times) - 1, int(len(times) * share))] * 1e6, 2) if times else 0

    print(json.dumps({"rate": round(len(times) / seconds, 1), "p50_us": at(0.5), "p99_us": at(0.99)}), flush=True)


class InOrder:
    """Requests over a connection that answers in order and has no identifiers of its own."""

    def __init__(self, send, receive):
        self.send, self.receive, self.waiting = send, receive, []
        self.reader = asyncio.ensure_future(self.read())

    async def read(self):
        at = 0
        while True:
            body = await self.receive()
            self.waiting[at].set_result(body)
            at += 1
            if at == 1000:
                del self.waiting[:at]
                at = 0

    async def ask(self):
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        await self.send(BODY)
        return await answer


async def measure_in_order(send, receive, seconds, window):
    order = InOrder(send, receive)
    await measure(order.ask, seconds, window)
    order.reader.cancel()


async def serve_websockets(port):
    import websockets

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    async with websockets.serve(echo, "127.0.0.1", port, compression=None):
        await asyncio.Future()


async def ask_websockets(port, seconds, window):
    import websockets

    async with websockets.connect(f"ws://127.0.0.1:{port}", compression=None) as connection:
        await measure_in_order(connection.send, connection.recv, seconds, window)


async def serve_pyzmq(port):
    import zmq.asyncio

    router = zmq.asyncio.Context().socket(zmq.ROUTER)
    router.bind(f"tcp://127.0.0.1:{port}")
    while True:
        await router.send_multipart(await router.recv_multipart())


async def ask_pyzmq(port, seconds, window):
    import zmq.asyncio

    dealer = zmq.asyncio.Context().socket(zmq.DEALER)
    dealer.linger = 0
    dealer.connect(f"tcp://127.0.0.1:{port}")
    await measure_in_order(dealer.send, dealer.recv, seconds, window)


async def serve_grpcio(port):
    import grpc

    async def echo(request, context):
        return request

    server = grpc.aio.server()
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


async def ask_grpcio(port, seconds, window):
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/Echo/Echo")

        async def ask():
            return await call(BODY)

        await measure(ask, seconds, window)


def wait_for(port):
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    sys.exit("the server did not start")


def main():
    name, seconds, window = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = os.fork()
    if child == 0:
        if len(sys.argv) > 4:
            os.sched_setaffinity(0, {int(sys.argv[4])})
        asyncio.run(globals()[f"serve_{name}"](port))
        return
    try:
        wait_for(port)
        asyncio.run(globals()[f"ask_{name}"](port, seconds, window))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
