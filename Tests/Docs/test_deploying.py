"""The configurations of docs/guides/deploying.md, with the real programs: TLS at the proxy, plain WebSocket behind it."""

import os
import re
import shutil
import socket
import subprocess
import time

import pytest

from pages import ROOT, blocks

PAGE = ROOT / "docs/guides/deploying.md"
BUILD = ROOT / "build"
SYSTEM_PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    pytest.fail(what)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def blip(*arguments, **options):
    return subprocess.run([BUILD / "bin/blip", *arguments], capture_output=True, text=True, timeout=60, **options)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """The certificates of the page about TLS, made by its own commands."""
    folder = tmp_path_factory.mktemp("certificates")
    commands = next(block for block in blocks(ROOT / "docs/guides/tls.md") if block.language == "sh").text
    subprocess.run(["bash", "-euc", commands], cwd=folder, check=True, timeout=60)
    (folder / "both.pem").write_text((folder / "server.pem").read_text() + (folder / "server.key").read_text())
    return folder


@pytest.fixture
def backend():
    process = subprocess.Popen([BUILD / "bin/blip", "serve", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    yield re.search(r":(\d+)/", process.stdout.readline())[1]
    process.terminate()
    process.wait(10)


def configuration(name, folder, certificates, backend, front):
    text = next(block for block in blocks(PAGE) if block.file == name).text
    text = text.replace("4984", backend).replace("4443", front).replace("4444", front)
    for file in ("server.pem", "server.key", "both.pem"):
        text = text.replace(f" {file}", f" {certificates / file}")
    path = folder / name
    path.write_text(text)
    return path


def check_through(front, certificates):
    url, authority = f"wss://localhost:{front}/blip", str(certificates / "ca.pem")
    reply = blip("request", url, "echo", "-d", "through the proxy", "--ca-file", authority)
    assert (reply.returncode, reply.stdout) == (0, "through the proxy"), reply.stderr
    size = 3_000_000
    reply = blip("request", url, "source", "-p", f"size={size}", "--ca-file", authority)
    assert (reply.returncode, len(reply.stdout)) == (0, size), reply.stderr
    assert blip("ping", url, "--count", "1", "--ca-file", authority).returncode == 0
    bench = blip("bench", url, "--count", "2000", "--size", "4k", "--in-flight", "32", "--ca-file", authority)
    assert bench.returncode == 0, bench.stderr


def run_proxy(command, front, folder, certificates):
    log = open(folder / "log", "w+")
    process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ, PATH=SYSTEM_PATH))
    try:
        until(lambda: process.poll() is not None or listens(front), "the proxy does not listen")
        assert process.poll() is None, (folder / "log").read_text()
        check_through(front, certificates)
    finally:
        process.terminate()
        process.wait(20)
        log.close()


@pytest.mark.skipif(not shutil.which("nginx", path=SYSTEM_PATH), reason="nginx is not installed")
def test_nginx(tmp_path, certificates, backend):
    front = free_port()
    path = configuration("nginx.conf", tmp_path, certificates, backend, front)
    # Where a test's nginx may write; none of it concerns the page.
    places = "".join(f" {name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path.write_text(path.read_text().replace("http {", f"http {{ access_log off;{places}"))
    command = ["nginx", "-p", str(tmp_path), "-c", str(path), "-e", str(tmp_path / "error.log"),
               "-g", f"daemon off; pid {tmp_path}/nginx.pid; master_process off;"]
    run_proxy(command, front, tmp_path, certificates)


@pytest.mark.skipif(not shutil.which("haproxy", path=SYSTEM_PATH), reason="haproxy is not installed")
def test_haproxy(tmp_path, certificates, backend):
    front = free_port()
    path = configuration("haproxy.cfg", tmp_path, certificates, backend, front)
    run_proxy(["haproxy", "-f", str(path), "-db"], front, tmp_path, certificates)


@pytest.mark.skipif(not shutil.which("haproxy", path=SYSTEM_PATH), reason="haproxy is not installed")
def test_haproxy_notices_a_server_that_is_gone(tmp_path, certificates):
    front = free_port()
    path = configuration("haproxy.cfg", tmp_path, certificates, free_port(), front)
    process = subprocess.Popen(["haproxy", "-f", str(path), "-db", "-q"], env=dict(os.environ, PATH=SYSTEM_PATH))
    try:
        until(lambda: listens(front), "the proxy does not listen")
        reply = blip("request", f"wss://localhost:{front}/blip", "echo", "--ca-file", str(certificates / "ca.pem"))
        assert reply.returncode == 2 and "503" in reply.stderr, reply.stderr
    finally:
        process.terminate()
        process.wait(20)
