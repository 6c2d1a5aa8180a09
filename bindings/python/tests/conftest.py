from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Coroutine

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE))

# Seconds after which a test has failed. Nothing waits for so long unless it fails.
LIMIT = 60.0


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs an asynchronous test, bounded in time."""

    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine, LIMIT)

    return asyncio.run(bounded())


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def eventually_async(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def run_script(script: str, *, timeout: float = LIMIT, environment: dict[str, str] | None = None) -> Any:
    """Runs a program of its own; the test fails if it does not end in time."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
    )


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A throw-away CA, a server certificate for localhost and 127.0.0.1, and a client certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not installed")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA")
    for name, extension in (
        ("server", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "extendedKeyUsage=clientAuth"),
    ):
        openssl("req", *curve[:5], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(extension + "\n")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext"),
        )
    return {path.name: str(path) for path in folder.iterdir()}


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
