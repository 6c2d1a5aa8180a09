"""The example programs, as a person would run them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import LIMIT, ROOT, SOURCE

FOLDER = ROOT / "examples" / "python"
pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="not a source checkout"),
    pytest.mark.skipif(sys.version_info < (3, 10), reason="the examples are written for Python 3.10"),
]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}


def example(name: str, *arguments: str, cwd: Path | None = None, text: str = "") -> Any:
    command = [sys.executable, str(FOLDER / name), *arguments]
    return subprocess.run(
        command, cwd=cwd, input=text, capture_output=True, encoding="utf-8", timeout=LIMIT, env=ENVIRONMENT
    )


@contextlib.contextmanager
def server(name: str, *arguments: str) -> Iterator[str]:
    """Runs a server; gives the URL that it prints; Ctrl-C must end it at once."""
    command = [sys.executable, str(FOLDER / name), *arguments, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"wss?://[^\s;]+", line)
            assert found is not None, line
            yield found.group()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT)
            assert errors == ""
            assert process.returncode in (0, 130)
        finally:
            process.kill()


def test_request_to_the_echo_server(tmp_path: Path) -> None:
    (tmp_path / "body").write_text("from a file")
    with server("echo_server.py") as url:
        result = example("request_client.py", url, "hello", "--body", "grüße", "--property", "lang=de", "--compressed")
        assert result.returncode == 0, result.stderr
        assert result.stdout == "grüße"
        assert "lang: de" in result.stderr
        result = example("request_client.py", url, "hello", "--body", "@body", cwd=tmp_path)
        assert result.stdout == "from a file"
        result = example("request_client.py", url, "hello", "--body", "@missing", cwd=tmp_path)
        assert result.returncode == 1
        assert "missing" in result.stderr
        assert "Traceback" not in result.stderr


def test_echo_server_with_tls(certificates: dict[str, str]) -> None:
    with server("echo_server.py", "--tls", certificates["server.pem"], certificates["server.key"]) as url:
        result = example("request_client.py", url, "hello", "--body", "safe", "--ca-file", certificates["ca.pem"])
        assert result.stdout == "safe"
        result = example("request_client.py", url, "hello")
        assert result.returncode == 1
        assert "certificate" in result.stderr


def test_failing_to_connect_is_one_clear_line(unused_port: int) -> None:
    for command in (
        ("request_client.py", f"ws://127.0.0.1:{unused_port}/", "hello"),
        ("file_transfer.py", "get", f"ws://127.0.0.1:{unused_port}/", "x"),
        ("chat.py", "join", f"ws://127.0.0.1:{unused_port}/", "Anna"),
    ):
        result = example(*command)
        assert result.returncode == 1
        assert len(result.stderr.splitlines()) == 1
        assert "refused" in result.stderr


def test_file_transfer(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    data = os.urandom(3_000_000)
    (here / "data").write_bytes(data)
    with server("file_transfer.py", "serve", "--folder", str(there)) as url:
        result = example("file_transfer.py", "put", url, "data", cwd=here)
        assert result.returncode == 0, result.stderr
        assert (there / "data").read_bytes() == data
        (here / "data").unlink()
        result = example("file_transfer.py", "get", url, "data", cwd=here)
        assert result.returncode == 0, result.stderr
        assert (here / "data").read_bytes() == data
        for name in ("missing", "../secret", ".hidden", ""):
            result = example("file_transfer.py", "get", url, name, cwd=here)
            assert result.returncode == 1
            assert "Traceback" not in result.stderr
        assert sorted(os.listdir(there)) == ["data"]
        assert sorted(os.listdir(here)) == ["data"]


def test_chat() -> None:
    with server("chat.py", "serve") as url:
        command = [sys.executable, str(FOLDER / "chat.py"), "join", url, "Anna"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as anna:
            assert anna.stdin is not None and anna.stdout is not None
            first = {anna.stdout.readline() for _ in range(2)}
            assert "* Anna is here\n" in first
            result = example("chat.py", "join", url, "Anna")
            assert result.returncode == 1
            assert "taken" in result.stderr
            result = example("chat.py", "join", url, "Bert", text="hello all\n")
            assert result.returncode == 0, result.stderr
            assert "Anna" in result.stdout
            assert [anna.stdout.readline() for _ in range(3)] == [
                "* Bert is here\n",
                "Bert: hello all\n",
                "* Bert has left\n",
            ]
            anna.stdin.close()
            assert anna.wait(LIMIT) == 0


def test_examples_are_short() -> None:
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) < 100, path.name


def test_a_client_that_connects_again() -> None:
    with server("echo_server.py") as url:
        port = url.rsplit(":", 1)[1].rstrip("/")
        client = subprocess.Popen(
            [sys.executable, str(FOLDER / "reconnect.py"), url, "hello"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=ENVIRONMENT,
        )
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write("one\n")
        client.stdin.flush()
        assert client.stdout.readline() == "one\n"
    client.stdin.write("two\n")
    client.stdin.flush()
    command = [sys.executable, str(FOLDER / "echo_server.py"), "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as again:
        try:
            assert client.stdout.readline() == "two\n"
            _, errors = client.communicate(timeout=LIMIT)
            assert client.returncode == 0, errors
            assert "waiting" in errors
        finally:
            client.kill()
            again.kill()
