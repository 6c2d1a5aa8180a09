import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "Tool"))

from chromium import Chromium  # noqa: E402


@pytest.fixture(scope="session")
def browser():
    chromium = Chromium()
    yield chromium
    chromium.close()


@pytest.fixture
def page(browser):
    page = browser.page()
    page.resize(1200, 1000)
    yield page
    page.close()
