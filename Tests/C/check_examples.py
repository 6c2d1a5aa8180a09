"""Runs the examples as their readers would."""

import os
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server(program, *options, cwd=None):
    """A server on a free port; gives its URL. It has to end when it is interrupted."""
    process = subprocess.Popen([str(program), *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=cwd)
    try:
        yield process.stdout.readline().decode().strip(), process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def run(*command, cwd=None, timeout=30):
    return subprocess.run([str(part) for part in command], capture_output=True, cwd=cwd, timeout=timeout)


def expect(findings, condition, text):
    if not condition:
        findings.append(text)


def echo(folder):
    findings = []
    with server(folder / "echo_server", "0") as (url, process):
        expect(findings, url.startswith("ws://127.0.0.1:"), f"the server says {url!r}")
        result = run(folder / "request_client", url, "echo", "hello", "Colour=blue")
        expect(findings, (result.returncode, result.stdout) == (0, b"hello"), f"echo: {result}")
        result = run(folder / "request_client", url, "nobody")
        expect(findings, result.returncode == 1 and b"BLIP/404" in result.stderr, f"no handler: {result}")
        result = run(folder / "request_client", url, "echo", "x", "no-equals")
        expect(findings, result.returncode == 2 and b"key=value" in result.stderr, f"bad property: {result}")
        process.send_signal(signal.SIGINT)
        expect(findings, process.wait(10) == 0, f"the server ended with {process.returncode}")
    result = run(folder / "request_client", url, "echo", "hello")
    expect(findings, result.returncode == 2 and b"BLIP_ERROR_REFUSED" in result.stderr, f"refused: {result}")
    result = run(folder / "request_client", "nonsense", "echo")
    expect(findings, result.returncode == 2 and b"BLIP_ERROR_URL" in result.stderr, f"bad URL: {result}")
    result = run(folder / "request_client")
    expect(findings, result.returncode == 2 and b"usage" in result.stderr, f"usage: {result}")
    return findings


def files(folder):
    findings = []
    with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as here:
        content = os.urandom(1 << 20) * 30
        Path(here, "big").write_bytes(content)
        Path(here, "empty").write_bytes(b"")
        with server(folder / "file_server", "0", cwd=there) as (url, _):
            for name in ("big", "empty"):
                result = run(folder / "file_transfer", "put", url, Path(here, name))
                expect(findings, result.returncode == 0 and b"stored" in result.stderr, f"put: {result}")
                stored = Path(there, name)
                expect(findings, stored.exists() and stored.read_bytes() == Path(here, name).read_bytes(),
                       f"{name} differs on the server")
                result = run(folder / "file_transfer", "get", url, f"copy/../{name}", cwd=here)
                expect(findings, result.returncode != 0, "a folder that does not exist was written to")
                os.rename(Path(here, name), Path(here, name + ".sent"))
                result = run(folder / "file_transfer", "get", url, name, cwd=here)
                expect(findings, result.returncode == 0, f"get: {result}")
                expect(findings, Path(here, name).read_bytes() == Path(here, name + ".sent").read_bytes(),
                       f"{name} differs after its return")
            for name in ("absent", ".hidden"):
                result = run(folder / "file_transfer", "get", url, name, cwd=here)
                expect(findings, result.returncode == 1 and b"HTTP/404" in result.stderr, f"{name}: {result}")
            result = run(folder / "file_transfer", "put", url, "absent", cwd=here)
            expect(findings, result.returncode == 1 and b"absent" in result.stderr, f"put of nothing: {result}")
    return findings


def chat(folder):
    findings = []
    with server(folder / "chat_server", "0") as (url, _):
        people = [subprocess.Popen([str(folder / "chat"), url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE) for name in ("Ann", "Bob")]
        time.sleep(0.5)
        people[0].stdin.write("good morning\nhow are you?\n".encode())
        people[0].stdin.flush()
        lines = [people[1].stdout.readline().decode().strip() for _ in range(2)]
        expect(findings, lines == ["Ann: good morning", "Ann: how are you?"], f"Bob heard {lines}")
        people[1].stdin.write("très bien\n".encode())
        people[1].stdin.flush()
        heard = people[0].stdout.readline().decode().strip()
        expect(findings, heard == "Bob: très bien", f"Ann heard {heard!r}")
        for person in people:
            try:
                _, errors = person.communicate(timeout=10)
                expect(findings, person.returncode == 0, f"ended with {person.returncode}: {errors.decode()}")
            except subprocess.TimeoutExpired:
                findings.append("a person does not leave")
                person.kill()
                person.communicate()
    return findings


def reconnecting(folder):
    """A server goes away and comes back at its port."""
    findings = []
    with server(folder / "echo_server", "0") as (url, _):
        client = subprocess.Popen([str(folder / "reconnect"), url, "echo"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        client.stdin.write(b"one\n")
        client.stdin.flush()
        expect(findings, client.stdout.readline() == b"one\n", "no answer")
    client.stdin.write(b"two\n")
    client.stdin.flush()
    with server(folder / "echo_server", url.rsplit(":", 1)[1].rstrip("/")):
        expect(findings, client.stdout.readline() == b"two\n", "no answer after the server had been away")
        try:
            _, errors = client.communicate(timeout=20)
            expect(findings, client.returncode == 0, f"ended with {client.returncode}: {errors.decode()}")
            expect(findings, b"waiting" in errors and errors.endswith(b"stopped\n"), f"it said {errors.decode()}")
        except subprocess.TimeoutExpired:
            findings.append("the client does not end")
            client.kill()
            client.communicate()
    return findings


def without_network(folder):
    findings = []
    result = run(folder / "pipe_transport", "hello, pipe")
    expect(findings, (result.returncode, result.stdout) == (0, b"HELLO, PIPE"), f"pipe_transport: {result}")
    result = run(folder / "memory_pair", "4")
    expect(findings, (result.returncode, result.stdout) == (0, b"1\n2\n3\n4\n"), f"memory_pair: {result}")
    return findings


def loops(folder):
    """Clients on loops of others; those whose library is not installed were not built."""
    findings = []
    with server(folder / "echo_server", "0") as (url, _):
        for client in sorted(folder.glob("*_client")):
            if client.name == "request_client":
                continue
            result = run(client, url, "echo", "hello")
            expect(findings, (result.returncode, result.stdout) == (0, b"hello\n"), f"{client.name}: {result}")
            result = run(client, url, "nobody")
            expect(findings, result.returncode == 1 and b"BLIP/404" in result.stderr, f"{client.name}: {result}")
    for client in sorted(folder.glob("*_client")):
        if client.name != "request_client":
            result = run(client, url, "echo", "hello")
            expect(findings, result.returncode == 1 and b"BLIP_ERROR_REFUSED" in result.stderr, f"{client.name}: {result}")
    expect(findings, (folder / "poll_client").exists(), "poll_client was not built")
    return findings


def checks(arguments):
    examples = arguments.build / "examples"
    return [
        ("echo_server and request_client", lambda: guarded(echo, examples)),
        ("file_server and file_transfer", lambda: guarded(files, examples)),
        ("clients on poll, libuv and GLib", lambda: guarded(loops, examples)),
        ("reconnect", lambda: guarded(reconnecting, examples)),
        ("chat_server and chat", lambda: guarded(chat, examples)),
        ("pipe_transport and memory_pair", lambda: guarded(without_network, examples)),
    ]


def guarded(check, folder):
    try:
        return check(folder)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return [f"{type(error).__name__}: {error}"]
