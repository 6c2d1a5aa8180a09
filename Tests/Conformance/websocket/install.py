#!/usr/bin/env python3
"""Makes Autobahn's cases usable on Python 3.

    install.py FOLDER

The cases of PyPI's autobahntestsuite are the reference for WebSocket conformance, but they are Python 2. They go into
FOLDER/cases, rewritten: octets stay in native strings, one character for each (Latin-1), and fuzz.py converts where the
cases meet the protocol. Their fuzzer and reports are not used. FOLDER also becomes the virtual environment with the
release of autobahn that the cases were written for. What is there already is not made again.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

# One number for all of this: another one makes old folders be made anew.
REVISION = "1"
SUITE = "autobahntestsuite==25.10.1"
BUILD_TOOLS = ["setuptools==68.2.2", "wheel==0.41.3"]
AUTOBAHN = "autobahn==0.10.9"
NEEDED = ["Twisted==24.11.0", "txaio==23.1.1", "six==1.17.0", "wsaccel==0.6.7"]

# Compression is not part of libblip (12.*, 13.*); 9.9.1 is not in the suite's own list either.
LEFT_OUT = re.compile(r"case9_9_1|case12_x_x|Case12_X_X|Case13_X_X")


def prepare(name, text):
    """What lib2to3 does not know, done before it."""
    if name == "__init__.py":
        text = "".join(line for line in text.splitlines(True) if not LEFT_OUT.search(line))
    text = text.replace("# coding=utf-8", "# coding=latin-1")
    text = re.sub(r"\(object, Case, ?\)", "(Case,)", text)
    text = re.sub(r"(?m)^import binascii$", "import octets as binascii", text)
    text = text.replace(".validate(vss[:i])", ".validate(vss[:i].encode('latin-1'))")
    return text.replace("len(self.payload) / self.p.", "len(self.payload) // self.p.")


def rewrite(source, target):
    warnings.simplefilter("ignore")
    from lib2to3 import refactor

    tool = refactor.RefactoringTool(refactor.get_fixers_from_package("lib2to3.fixes"))
    target.mkdir(parents=True)
    for path in sorted(source.glob("*.py")):
        if LEFT_OUT.search(path.stem):
            continue
        text = prepare(path.name, path.read_bytes().decode("latin-1").replace("\r\n", "\n"))
        if not text.endswith("\n"):
            text += "\n"
        # The path tells which imports are of a neighbour.
        code = str(tool.refactor_string(text, str(path)))
        compile(code.encode("latin-1"), path.name, "exec")
        (target / path.name).write_bytes(code.encode("latin-1"))


def run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.version_info >= (3, 13):
        sys.exit("install.py needs a Python with lib2to3, thus older than 3.13; set PYTHON")
    folder = Path(sys.argv[1]).resolve()
    mark = folder / "ready"
    if mark.exists() and mark.read_text() == REVISION:
        return
    # Only what an earlier run made is cleared away.
    if folder.exists():
        if not (folder / "pyvenv.cfg").exists():
            sys.exit(f"{folder} exists and is not of this script")
        shutil.rmtree(folder)
    run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin" / "python", "-m", "pip", "-q", "--disable-pip-version-check"]
    run(*pip, "install", *BUILD_TOOLS, *NEEDED)
    run(*pip, "install", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", AUTOBAHN)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        run(*pip, "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "-d", scratch, SUITE)
        (archive,) = scratch.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        (source,) = scratch.glob("*/autobahntestsuite/case")
        rewrite(source, folder / "cases")
    mark.write_text(REVISION)


if __name__ == "__main__":
    main()
