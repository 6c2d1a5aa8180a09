"""SRV records, end to end: the system's own resolver, with a name server of the test's in a network of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LIMIT, SOURCE

PROGRAM = Path(__file__).with_name("service_lookup.py")


def own_network() -> list[str]:
    """How to run a program whose network and mounts nobody else sees; skips where that is not allowed."""
    ways = ["unshare", "--mount", "--net"], ["unshare", "--user", "--map-root-user", "--mount", "--net"]
    reasons = []
    for way in ways:
        try:
            subprocess.run([*way, "true"], check=True, capture_output=True, text=True, timeout=LIMIT)
            return way
        except (OSError, subprocess.CalledProcessError) as problem:
            reasons.append(str(getattr(problem, "stderr", None) or problem).strip())
    pytest.skip("no network of its own: " + "; ".join(reasons))


def test_service_lookup(certificates: dict[str, str], tmp_path: Path) -> None:
    files = [certificates[name] for name in ("ca.pem", "server.pem", "server.key")]
    result = subprocess.run(
        [*own_network(), sys.executable, "-X", "dev", str(PROGRAM), str(tmp_path), *files],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert result.stdout == "done\n", result.stderr
