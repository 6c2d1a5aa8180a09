"""`blip serve`: where it listens, what it says, how it ends."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from program import BLIP, Server, blip


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_ends_cleanly_on_a_signal(by):
    with Server() as server:
        assert blip("request", server.url, "echo", "-d", "x").stdout == b"x"
        assert server.stop(by) == (0, b"", b"")


def test_a_second_signal_ends_it_at_once():
    with Server("-v") as server:
        sleeper = subprocess.Popen([BLIP, "request", server.url, "sleep", "-p", "ms=60000"], stderr=subprocess.DEVNULL)
        server.wait_for_client()
        start = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        code, _, _ = server.stop(signal.SIGINT)
        assert code in (0, -signal.SIGINT)
        assert time.monotonic() - start < 1.5
        sleeper.wait(timeout=10)


def test_waits_for_replies_under_way():
    with Server("-v") as server:
        sleeper = subprocess.Popen([BLIP, "request", server.url, "sleep", "-p", "ms=1000"], stderr=subprocess.PIPE)
        server.wait_for_client()
        assert server.stop()[0] == 0
        _, errors = sleeper.communicate(timeout=10)
        assert sleeper.returncode == 0, errors


@pytest.mark.parametrize(
    ["address", "begins"],
    [
        ("ws://127.0.0.1:0/", "ws://127.0.0.1:"),
        ("ws://localhost:0/db", "ws://"),
        ("127.0.0.1:0", "ws://127.0.0.1:"),
        (":0", "ws://"),
        ("0", "ws://127.0.0.1:"),
        ("[::1]:0", "ws://[::1]:"),
    ],
)
def test_address_forms(address, begins):
    if "::1" in address:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    with Server(address=address) as server:
        assert server.first_line.endswith("\n") and server.url.startswith(begins)
        assert server.port > 0
        result = blip("request", server.url, "echo", "-d", "hello")
        assert (result.returncode, result.stdout) == (0, b"hello"), result.stderr


def test_a_bare_port_is_for_this_machine_alone():
    with Server(address="0") as server:
        listening = subprocess.run(
            ["cat", f"/proc/{server.process.pid}/net/tcp"], capture_output=True, check=True
        ).stdout.decode()
        assert f" 0100007F:{server.port:04X} " in listening
        assert f" 00000000:{server.port:04X} " not in listening


def test_unix_socket(tmp_path):
    path = tmp_path / "socket"
    with Server(address=f"unix:{path}") as server:
        for form in [server.url, f"unix:{path}"]:
            result = blip("request", form, "echo", "-d", "x" * 100_000)
            assert (result.returncode, len(result.stdout)) == (0, 100_000), result.stderr
        assert server.stop()[0] == 0
    assert not path.exists()


def test_unix_socket_by_url_with_a_path_and_tls(tmp_path, certificates):
    url = f"wss+unix://{str(tmp_path / 'a socket').replace('/', '%2F').replace(' ', '%20')}/db"
    with Server(
        *["--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key"], address=url
    ) as server:
        assert (tmp_path / "a socket").is_socket()
        assert server.url.startswith("wss+unix://") and server.url.endswith("/db")
        result = blip("request", server.url, "echo", "-d", "x", "--ca-file", certificates / "ca.pem")
        assert (result.returncode, result.stdout) == (0, b"x"), result.stderr


def test_several_paths():
    with Server("--path", "/a", "--path", "/b") as server:
        assert server.url.endswith("/a")
        for path, code in [("/a", 0), ("/b", 0), ("/c", 2), ("/", 2)]:
            assert blip("request", f"ws://127.0.0.1:{server.port}{path}", "echo").returncode == code


def test_the_path_of_the_url_is_served_alone():
    with Server(address="ws://127.0.0.1:0/db") as server:
        assert server.url.endswith("/db")
        assert blip("request", server.url, "echo").returncode == 0
        assert blip("request", f"ws://127.0.0.1:{server.port}/", "echo").returncode == 2


def test_port_in_use(server):
    result = blip("serve", f"127.0.0.1:{server.port}")
    assert result.returncode == 2
    text = result.stderr.decode()
    assert text.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use (another program" in text


def test_an_address_of_another_machine():
    result = blip("serve", "192.0.2.1:0")
    assert result.returncode in (2, 64)
    assert result.stderr.startswith(b"blip") and result.stderr.count(b"\n") == 1
    assert b"192.0.2.1" in result.stderr


def test_json_events():
    with Server("--json") as server:
        event = json.loads(server.first_line)
        assert event["type"] == "listening"
        assert blip("request", event["url"], "echo", "-d", "x").stdout == b"x"
        code, output, _ = server.stop()
        assert code == 0 and json.loads(output) == {"type": "stopped"}


def test_where_the_pages_are_is_said(tmp_path):
    pages = ("--dashboard", "--files", str(tmp_path))

    def rest_of_output(server):
        server.process.terminate()
        return server.process.stdout.read().decode()

    with Server(*pages) as server:
        place = server.url.replace("ws:", "http:")
        assert rest_of_output(server) == f"dashboard: {place}dashboard/\nfiles: {place}files/\n"
    with Server(*pages, "--path", "/chat", "--json") as server:
        place = json.loads(server.first_line)["url"].replace("ws:", "http:").removesuffix("chat")
        assert [json.loads(line) for line in rest_of_output(server).splitlines()] == [
            {"type": "dashboard", "url": place + "dashboard/"},
            {"type": "files", "url": place + "files/"},
            {"type": "stopped"},
        ]
    with Server(*pages, address=f"unix:{tmp_path}/socket") as server:
        assert rest_of_output(server) == ""


def test_verbose_shows_connections():
    with Server("-v") as server:
        blip("request", server.url + "?a=1", "echo")
        _, _, errors = server.stop()
    text = errors.decode()
    assert "+ 127.0.0.1:" in text and "BLIP_3" in text and "?a=1" in text
    assert "\n- 127.0.0.1:" in text
    assert text.count("\n") == 3 and text.endswith("* stopped\n"), text


def test_many_clients_at_once():
    with Server("--threads", "2") as server:
        clients = [
            subprocess.Popen(
                [BLIP, "request", server.url, "echo", "-d", str(number) * 2000], stdout=subprocess.PIPE
            )
            for number in range(40)
        ]
        for number, client in enumerate(clients):
            output, _ = client.communicate(timeout=30)
            assert (client.returncode, output) == (0, (str(number) * 2000).encode())


def test_a_long_echo_leaves_no_file_and_little_memory(tmp_path):
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    with Server(env=environment) as server:
        size = 200_000_000
        with open(tmp_path / "in", "wb") as file:
            file.truncate(size)
        result = blip("request", server.url, "echo", "-f", tmp_path / "in", "-o", tmp_path / "out", timeout=100)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "out").stat().st_size == size
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["in", "out"]
        status = open(f"/proc/{server.process.pid}/status").read()
        peak = int(status.split("VmHWM:")[1].split()[0])
        assert peak < 60_000, f"{peak} kB"


def test_nothing_stays_open_after_clients_leave(server):
    for _ in range(3):
        blip("request", server.url, "echo")
    before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    for _ in range(20):
        blip("request", server.url, "echo", "-", input=bytes(3_000_000))
    deadline = time.monotonic() + 5
    while len(os.listdir(f"/proc/{server.process.pid}/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(os.listdir(f"/proc/{server.process.pid}/fd")) <= before


def read_metrics(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_metrics_on_the_same_port():
    with Server("--metrics", "/metrics") as server:
        assert blip("request", server.url, "echo", "-d", "x").stdout == b"x"
        text = read_metrics(server.url.replace("ws://", "http://").rstrip("/") + "/metrics")
        assert '\nblip_messages_total{direction="received"} 1\n' in text


def test_metrics_on_a_port_of_their_own():
    process = subprocess.Popen(
        [BLIP, "serve", "127.0.0.1:0", "--metrics", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = process.stdout.readline().strip()
        name, metrics = process.stdout.readline().split()
        assert name == "metrics:" and metrics.startswith("http://127.0.0.1:") and metrics.endswith("/metrics")
        assert blip("request", url, "echo", "-d", "x").stdout == b"x"
        assert '\nblip_messages_total{direction="sent"} 1\n' in read_metrics(metrics)
        for wrong in (url.replace("ws://", "http://") + "metrics", metrics.replace("metrics", "")):
            with pytest.raises(urllib.error.HTTPError) as error:
                read_metrics(wrong)
            assert error.value.code in (404, 426)
            error.value.close()
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()


@pytest.mark.parametrize("where", ["/a b", "wss://127.0.0.1:0", "unix:/tmp/x", "ws://127.0.0.1:0/x"])
def test_metrics_somewhere_impossible(where):
    done = blip("serve", "127.0.0.1:0", "--metrics", where)
    assert done.returncode == 64 and b"--metrics wants" in done.stderr


def test_blip1_beside_websockets():
    with Server("--blip1") as server:
        assert server.url == f"ws://127.0.0.1:{server.port}/"
        for url in (server.url, f"blip://127.0.0.1:{server.port}"):
            answer = blip("request", url, "echo", "-d", "hello", "-p", "a=b")
            assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"hello", b"")


def test_blip1_alone(tmp_path, certificates):
    identity = ("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key")
    trusting = ("--ca-file", certificates / "ca.pem")
    for address, options, client_options in (
        ("blip://127.0.0.1:0", (), ()),
        ("blips://localhost:0", identity, trusting),
        (f"blip+unix://{str(tmp_path / 'socket').replace('/', '%2F')}", (), ()),
    ):
        with Server(*options, address=address) as server:
            assert server.url.split("://")[0] == address.split("://")[0]
            answer = blip("request", server.url, "sink", "-d", "hello", *client_options)
            assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"5", b"")
            refused = blip("request", server.url.replace("blip", "ws", 1), "echo", *client_options)
            assert refused.returncode != 0


def test_blip1_is_off_by_default(server):
    answer = blip("request", f"blip://127.0.0.1:{server.port}", "echo", "-d", "hello")
    assert answer.returncode != 0
    assert b"ended the connection" in answer.stderr or b"lost" in answer.stderr


def test_blip1_has_no_path_and_no_pings():
    for command in (("serve", "blip://127.0.0.1:0/path"), ("request", "blip://127.0.0.1:1/path", "echo")):
        answer = blip(*command)
        assert answer.returncode == 64
        assert b"BLIP 1" in answer.stderr
    with Server("--blip1") as server:
        answer = blip("ping", f"blip://127.0.0.1:{server.port}")
        assert answer.returncode == 64
        assert b"BLIP 1 has no pings" in answer.stderr
