import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "Tool"))

from program import Server  # noqa: E402


@pytest.fixture(scope="session")
def server():
    with Server() as running:
        yield running
