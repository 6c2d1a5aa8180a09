"""Every way in which there is no reply: one clear line, the right exit code."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from program import BLIP, Server, blip


def refusal(result, code=2):
    text = result.stderr.decode()
    assert result.returncode == code, text
    assert text.startswith("blip") and text.endswith("\n") and text.count("\n") == 1, text
    return text


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("command", [["request", "echo"], ["ping"], ["bench"]], ids=lambda words: words[0])
def test_refused(command):
    url = f"ws://127.0.0.1:{free_port()}/"
    text = refusal(blip(command[0], url, *command[1:]))
    assert f"cannot connect to {url}" in text and "efused" in text and "nothing listens there" in text


def test_refused_as_json():
    result = blip("request", free_port(), "echo", "--json")
    assert result.returncode == 2
    failure = json.loads(result.stdout)
    assert (failure["type"], failure["status"]) == ("failure", "BLIP_ERROR_REFUSED")
    assert failure["text"] in refusal(result)


def test_a_host_that_does_not_exist():
    text = refusal(blip("request", "ws://no-such-host.invalid/", "echo"))
    assert "no-such-host.invalid" in text and "check the host's name" in text


def test_a_server_that_says_nothing(raw_server):
    port = raw_server(lambda connection: connection.recv(1 << 16) and connection.recv(1 << 16))
    start = time.monotonic()
    text = refusal(blip("request", port, "echo", "--timeout", "0.5"))
    assert time.monotonic() - start < 4
    assert "no answer for 0.500 s" in text and "--timeout" in text


def test_a_server_that_closes_at_once(raw_server):
    port = raw_server(lambda connection: None)
    assert "before it was open" in refusal(blip("request", port, "echo"))


@pytest.mark.parametrize(
    ["response", "says"],
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200"),
        (b"HTTP/1.1 403 Keep out\r\nContent-Length: 0\r\n\r\n", "403"),
        (b"HTTP/1.1 403 Keep \x1b[31mout\r\nContent-Length: 0\r\n\r\n", "bad HTTP response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is it a WebSocket server"),
    ],
)
def test_a_server_of_another_kind(raw_server, response, says):
    def answer(connection):
        connection.recv(1 << 16)
        connection.sendall(response)
        connection.recv(1 << 16)

    result = blip("request", raw_server(answer), "echo", "--timeout", "3")
    assert says in refusal(result)
    assert b"\x1b" not in result.stderr


@pytest.mark.parametrize(
    ["head", "says"],
    [
        (b"302 Found\r\nLocation: ws://me:secret@other.example/x", "with a user name in the URL, which only the program may choose"),
        (b"401 Unauthorized", "give user:password@ in the URL"),
        (b"404 Not Found", "check the URL's path"),
        (b"431 Request Header Fields Too Large", "the headers are too large"),
    ],
)
def test_advice_for_a_status(raw_server, head, says):
    def answer(connection):
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\n\r\n")
        connection.recv(1 << 16)

    text = refusal(blip("request", raw_server(answer), "echo", "--timeout", "3"))
    assert says in text and "secret" not in text


def test_a_refused_password_is_not_shown(raw_server):
    def answer(connection):
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    url = f"ws://me:secret@127.0.0.1:{raw_server(answer)}/"
    for command in (["request", url, "echo"], ["bench", url], ["ping", url], ["request", url, "echo", "--json"]):
        result = blip(*command)
        assert "in the URL may be wrong" in refusal(result)
        assert b"secret" not in result.stdout + result.stderr


def test_a_password_is_shown_nowhere(server):
    url = server.url.replace("://", "://me:secret@")
    outputs = b""
    for command in (["request", url, "error", "-v"], ["bench", url, "-n", "1"], ["ping", url, "-c", "1"]):
        result = blip(*command)
        assert result.returncode in (0, 1)
        outputs += result.stdout + result.stderr
    assert outputs and b"secret" not in outputs and b"me:" not in outputs


def test_a_unix_socket_that_is_not_there(tmp_path):
    text = refusal(blip("request", f"unix:{tmp_path}/none", "echo"))
    assert text.startswith(f"blip: cannot connect to unix:{tmp_path}/none: No such file")
    assert "start a server with blip serve" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_unix_socket_of_another_user(tmp_path_factory, tmp_path):
    with Server(address=f"unix:{tmp_path}/socket") as server:
        os.chmod(f"{tmp_path}/socket", 0o600)
        tmp_path.chmod(0o755)
        tmp_path_factory.getbasetemp().chmod(0o755)
        tmp_path_factory.getbasetemp().parent.chmod(0o755)
        result = blip("request", f"unix:{tmp_path}/socket", "echo", user=65534, group=65534, extra_groups=[])
        assert "check the permissions of the socket and its folder" in refusal(result)
        assert server.stop()[0] == 0


def test_a_subprotocol_that_the_server_does_not_speak(server):
    text = refusal(blip("request", server.url, "echo", "--protocol", "BLIP_3+Nobody"))
    assert "--protocol" in text


def test_a_path_that_is_not_served():
    with Server("--path", "/db") as server:
        assert blip("request", f"ws://127.0.0.1:{server.port}/db", "echo", "-d", "x").stdout == b"x"
        text = refusal(blip("request", f"ws://127.0.0.1:{server.port}/other", "echo"))
        assert "404" in text and "path" in text


def test_a_request_that_is_not_answered_in_time(server):
    start = time.monotonic()
    text = refusal(blip("request", server.url, "sleep", "-p", "ms=5000", "--timeout", "0.5"))
    assert 0.4 < time.monotonic() - start < 3
    assert "has not answered for 0.500 s" in text and "--timeout" in text


def test_a_server_that_dies():
    with Server("-v") as server:
        process = subprocess.Popen(
            [BLIP, "request", server.url, "sleep", "-p", "ms=60000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        server.wait_for_client()
        server.process.kill()
        output, errors = process.communicate(timeout=10)
    assert (process.returncode, output) == (2, b"")
    assert errors.startswith(f"blip: lost the connection to {server.url}: ".encode()) and errors.count(b"\n") == 1


def test_a_server_that_stops_in_order():
    with Server("-v") as server:
        process = subprocess.Popen(
            [BLIP, "request", server.url, "sleep", "-p", "ms=60000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        server.wait_for_client()
        code, _, _ = server.stop(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    assert code == 0
    assert process.returncode == 2 and errors.count(b"\n") == 1


def test_a_body_that_breaks_off(tmp_path):
    with Server("-v") as server:
        process = subprocess.Popen(
            [BLIP, "request", server.url, "source", "-p", "size=1G", "-o", tmp_path / "out"], stderr=subprocess.PIPE
        )
        process.communicate(timeout=20)
        assert process.returncode == 1  # the profile takes plain numbers
        server.wait_for_client()
        process = subprocess.Popen(
            [BLIP, "request", server.url, "source", "-p", f"size={1 << 40}", "-o", tmp_path / "out"],
            stderr=subprocess.PIPE,
        )
        server.wait_for_client()
        server.process.kill()
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert b"of the reply" in errors and f"'{tmp_path / 'out'}' is incomplete".encode() in errors
    (tmp_path / "out").unlink()


@pytest.fixture(scope="module")
def secure(certificates):
    with Server(
        *["--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key"],
        address="wss://127.0.0.1:0/",
    ) as running:
        yield running


class TestTLS:
    def test_a_trusted_certificate(self, secure, certificates):
        assert secure.url.startswith("wss://")
        result = blip("request", secure.url, "echo", "-d", "x", "-v", "--ca-file", certificates / "ca.pem")
        assert (result.returncode, result.stdout) == (0, b"x")
        assert b"TLSv1.3" in result.stderr

    def test_a_long_body(self, secure, certificates):
        result = blip(
            *["request", secure.url, "source", "-p", "size=5000000", "--ca-file", certificates / "ca.pem"]
        )
        assert (result.returncode, len(result.stdout)) == (0, 5_000_000)

    def test_an_unknown_authority(self, secure):
        text = refusal(blip("request", secure.url, "echo"))
        assert "certificate" in text and "--ca-file" in text and "--insecure" in text

    def test_insecure(self, secure):
        assert blip("request", secure.url, "echo", "-d", "x", "--insecure").stdout == b"x"

    def test_a_certificate_of_another_name(self, certificates):
        with Server(
            *["--tls-cert", certificates / "other.pem", "--tls-key", certificates / "other.key"]
        ) as other:
            text = refusal(blip("request", other.url, "echo", "--ca-file", certificates / "ca.pem"))
            assert "the certificate is for another name" in text and "--server-name" in text
            trusting = ["--ca-file", certificates / "ca.pem", "--server-name", "other.example"]
            assert blip("request", other.url, "echo", "-d", "x", *trusting).stdout == b"x"

    def test_plain_text_to_a_tls_server(self, secure):
        refusal(blip("request", secure.url.replace("wss:", "ws:"), "echo", "--timeout", "3"))

    def test_tls_to_a_plain_server(self, server):
        refusal(blip("request", server.url.replace("ws:", "wss:"), "echo", "--timeout", "3"))

    def test_files_that_are_no_certificates(self, secure, certificates):
        text = refusal(blip("request", secure.url, "echo", "--ca-file", certificates / "ca.key"), 64)
        assert str(certificates / "ca.key") in text
        for certificate, key in [("ca.key", "ca.key"), ("server.pem", "ca.key"), ("server.pem", "server.pem")]:
            files = ["--tls-cert", certificates / certificate, "--tls-key", certificates / key]
            text = refusal(blip("serve", ":0", *files), 64)
            assert str(certificates / certificate) in text or str(certificates / key) in text

    def test_client_certificates(self, certificates):
        with Server(
            *["--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key"],
            *["--client-ca", certificates / "ca.pem"],
        ) as strict:
            trusting = ["--ca-file", certificates / "ca.pem"]
            own = ["--cert", certificates / "client.pem", "--key", certificates / "client.key"]
            assert blip("request", strict.url, "echo", "-d", "x", *trusting, *own).stdout == b"x"
            text = refusal(blip("request", strict.url, "echo", "-d", "x", *trusting))
            assert "it may want a certificate: --cert and --key" in text
