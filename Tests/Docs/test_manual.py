"""The manual pages that are drawn from the header."""

import re
import shutil
import subprocess
import sys

import pytest

from pages import ROOT


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manual")
    subprocess.run([sys.executable, str(ROOT / "scripts/make-manual"), str(folder), "1.2.3"], check=True, timeout=60)
    return folder


def test_each_function_has_a_page_with_all_that_a_reader_asks_for(manual):
    ledger = (ROOT / "docs/abi/symbols.txt").read_text().splitlines()
    for name in (line.split()[0] for line in ledger if line and not line.startswith("#")):
        text = (manual / f"man3/{name}.3").read_text()
        for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "THREADS", "HISTORY", "SEE ALSO"):
            assert f"\n.SH {heading}\n" in text, f"{name}: {heading}"
        if not re.search(r"^\\fBvoid ", text, re.M):
            assert "\n.SH RETURN VALUE\n" in text, name


def test_pages_refer_to_pages_that_exist(manual):
    pages = {path.name for path in manual.rglob("*.[37]")} | {"blip.1"}
    for path in manual.rglob("*.[37]"):
        for name, section in re.findall(r"\\fB(\w+)\\fP\((\d)\)", path.read_text()):
            assert f"{name}.{section}" in pages, f"{path.name}: {name}({section})"


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_pages_are_set_without_a_warning(manual):
    pages = [*sorted(manual.rglob("*.[37]")), ROOT / "docs/man/blip.1"]
    for path in pages[:: max(1, len(pages) // 60)]:
        result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", path], capture_output=True, text=True, timeout=60)
        assert not result.stderr, f"{path.name}: {result.stderr[:300]}"


def test_the_same_header_gives_the_same_bytes(manual, tmp_path):
    subprocess.run([sys.executable, str(ROOT / "scripts/make-manual"), str(tmp_path), "1.2.3"], check=True, timeout=60)
    for path in manual.rglob("*.[37]"):
        assert path.read_bytes() == (tmp_path / path.relative_to(manual)).read_bytes()
