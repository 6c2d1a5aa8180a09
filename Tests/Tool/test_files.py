"""`blip serve --files`: what browsers and programs get, through real sockets."""

import hashlib
import http.client
import os
import socket
import ssl
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from program import Server, blip


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("top secret")
    (root / "hello.txt").write_text("hello\n")
    (root / "data.bin").write_bytes(os.urandom(3_000_000))
    (root / "sub" / "inner.json").write_text("{}")
    (root / ".hidden").write_text("top secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    return root


def connect(server):
    place = urlsplit(server.url)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=30)


def get(connection, path, headers=None, method="GET", body=None):
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer


def test_files_and_blip_share_a_port(folder):
    with Server("--files", str(folder)) as server:
        connection = connect(server)
        for _ in range(3):
            status, body, _ = get(connection, "/files/data.bin")
            assert (status, hashlib.sha256(body).digest()) == (
                200,
                hashlib.sha256((folder / "data.bin").read_bytes()).digest(),
            )
            assert blip("request", server.url, "echo", "-d", "x").stdout == b"x"
        status, body, _ = get(connection, "/files/data.bin", {"Range": "bytes=1000000-1999999"})
        assert (status, body) == (206, (folder / "data.bin").read_bytes()[1_000_000:2_000_000])
        assert b"inner.json" in get(connection, "/files/sub/")[1]
        assert get(connection, "/")[0] == 404
        assert get(connection, "/-/blip/style.css")[0] == 200
        connection.close()


def test_without_the_option_nothing_is_served(folder):
    with Server() as server:
        assert get(connect(server), "/files/hello.txt")[0] == 426


def test_over_tls(folder, certificates):
    options = ["--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key"]
    with Server("--files", str(folder), *options, address="wss://localhost:0/") as server:
        place = urlsplit(server.url)
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        connection = http.client.HTTPSConnection("localhost", place.port, timeout=30, context=context)
        assert get(connection, "/files/data.bin")[1] == (folder / "data.bin").read_bytes()
        connection.close()


def test_uploads_come_back_bit_equal(folder):
    content = os.urandom(5_000_000)
    with Server("--files", str(folder), "--files-writable") as server:
        connection = connect(server)
        assert get(connection, "/files/sub/new.bin", method="PUT", body=content)[0] == 201
        assert get(connection, "/files/sub/new.bin")[1] == content
        assert get(connection, "/files/sub/new.bin", method="PUT", body=b"other")[0] == 409
        assert get(connection, "/files/sub/new.bin", method="DELETE")[0] == 204
        assert get(connection, "/files/sub/new.bin")[0] == 404
        connection.close()
    assert sorted(path.name for path in (folder / "sub").iterdir()) == ["inner.json"]


def test_a_broken_upload_leaves_nothing(folder):
    with Server("--files", str(folder), "--files-writable") as server:
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port)) as raw:
            raw.sendall(b"PUT /files/sub/cut HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nonly this")
            deadline = time.monotonic() + 20
            while len(list((folder / "sub").iterdir())) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
        while len(list((folder / "sub").iterdir())) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [path.name for path in (folder / "sub").iterdir()] == ["inner.json"]


def exchange(server, data):
    """Everything that comes back for some bytes, until the server ends or waits."""
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := raw.recv(65536):
            received += chunk
        return received


def traversals():
    """Several hundred ways to ask for what lies outside."""
    targets = ["secret", "etc/passwd", ".hidden", "link", "loop/link", "sub/../../secret"]
    ups = ["..", "%2e%2e", "%2E.", ".%2e", "..%00", "%252e%252e", "..%2f", "..%5c", "..\\", "....//", "..;", "%c0%ae%c0%ae", "\x2e\x2e"]
    for up in ups:
        for depth in (1, 2, 5):
            for target in targets:
                yield "/files/" + "/".join([up] * depth) + "/" + target
                yield "/files/sub/" + "/".join([up] * depth) + "/" + target
    for target in targets:
        yield "/files/" + target
        yield "/files//" + target
        yield "//files/" + target
        yield "/files/./" + target
        yield "/files/%2f" + target
        yield "http://evil/files/../" + target
        yield "/files/..?/" + target
        yield "/-/blip/../../" + target
        yield "/-/blip/%2e%2e/%2e%2e/files/" + target


def test_nothing_outside_of_the_folder_is_reached(folder):
    shapes = sorted(set(traversals()))
    assert len(shapes) > 400
    with Server("--files", str(folder)) as server:
        for shape in shapes:
            data = b"GET " + shape.encode("latin-1") + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            answer = exchange(server, data)
            status = answer.split(b" ", 2)[1] if answer else b""
            assert status in (b"400", b"404", b"301"), (shape, answer[:200])
            assert b"top secret" not in answer and b"root:" not in answer, shape
        assert get(connect(server), "/files/hello.txt")[0] == 200


def test_a_folder_that_changes_under_the_requests(folder):
    """One name is a file and a link to the secret in turn: the link is never followed."""
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for make in (lambda p: p.write_text("harmless"), lambda p: p.symlink_to(folder.parent / "secret")):
                path = folder / "next"
                make(path)
                os.replace(path, folder / "changing")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        with Server("--files", str(folder)) as server:
            connection = connect(server)
            seen = set()
            for _ in range(1500):
                status, body, _ = get(connection, "/files/changing")
                seen.add(status)
                assert status in (200, 404)
                assert status == 404 or body == b"harmless"
            assert seen == {200, 404}
    finally:
        stop.set()
        thread.join()


SMUGGLED = [
    b"GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /files/hello.txt HTTP/1.1\r\nHost: a\r\nContent-Length : 60\r\n\r\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /files/hello.txt HTTP/1.1\nHost: a\n\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /files/hello.txt HTTP/1.1\r\nHost: a\r\n\tfolded: x\r\n\r\nGET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n",
]


@pytest.mark.parametrize("data", SMUGGLED)
def test_what_can_be_read_in_two_ways_is_refused(folder, data):
    with Server("--files", str(folder)) as server:
        answer = exchange(server, data)
        assert answer.startswith(b"HTTP/1.1 400 "), answer[:100]
        assert answer.count(b"HTTP/1.1 ") == 1


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_a_file_of_three_gigabytes_takes_no_memory(folder):
    size = 3 << 30
    with open(folder / "sparse.bin", "wb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(b"end.")
    with Server("--files", str(folder)) as server:
        get(connect(server), "/files/data.bin")
        before = resident(server.process.pid)
        connection = connect(server)
        connection.request("GET", "/files/sparse.bin")
        answer = connection.getresponse()
        assert answer.getheader("Content-Length") == str(size)
        view = memoryview(bytearray(1 << 20))
        total = peak = 0
        last = b""
        while count := answer.readinto(view):
            total += count
            last = bytes(view[max(0, count - 4) : count])
            if total % (256 << 20) < count:
                peak = max(peak, resident(server.process.pid))
        assert (total, last) == (size, b"end.")
        assert peak - before < 4 << 20, f"{before} to {peak}"


def test_a_client_that_does_not_read_holds_nobody_up(folder):
    with Server("--files", str(folder)) as server:
        place = urlsplit(server.url)
        stuck = [socket.create_connection((place.hostname, place.port)) for _ in range(20)]
        for raw in stuck:
            raw.sendall(b"GET /files/data.bin HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        connection = connect(server)
        assert get(connection, "/files/data.bin")[1] == (folder / "data.bin").read_bytes()
        assert blip("request", server.url, "echo", "-d", "x").stdout == b"x"
        for raw in stuck:
            raw.close()
        connection.close()
        # It ends at once although clients are connected.
        assert server.stop()[0] == 0


def test_a_folder_that_is_none(tmp_path):
    result = blip("serve", "0", "--files", str(tmp_path / "no"))
    assert result.returncode == 64
    assert b"is it a folder" in result.stderr
    assert blip("serve", "0", "--files-writable").returncode == 64


def test_hosts(folder):
    def status(server, host):
        data = f"GET /files/hello.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        return int(exchange(server, data).split(b" ", 2)[1])

    with Server("--files", str(folder), "--files-writable") as server:
        assert [status(server, host) for host in ("127.0.0.1:80", "localhost", "evil.example")] == [200, 200, 421]
    with Server("--files", str(folder), "--host", "files.example", "--host", "b.example") as server:
        assert [status(server, host) for host in ("files.example", "b.example", "evil.example")] == [200, 200, 421]
    assert blip("serve", "0", "--host", "http://a").returncode == 64
