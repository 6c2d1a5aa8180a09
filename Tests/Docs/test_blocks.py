"""Every code block of the pages is compiled or run; what cannot be run is looked at, and says why."""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT, blocks, indented, pages

BUILD = ROOT / "build"
PORT = "4984"
LANGUAGES = {"c", "cpp", "python", "sh", "js", "json", "text", "cmake", "nginx", "haproxy", "{toctree}"}
# Commands that begin a line of a shell block; an indented block with one of them should be a fenced one.
COMMANDS = re.compile(r"^ {4}(\$ |make |sudo |blip |gcc |cc |c\+\+ |g\+\+ |cmake |python3 |pip |build/|scripts/|\.ci/|Tests/\S+/run|venv/|export |tar )", re.M)

ALL = [block for page in pages() for block in blocks(page)]


def of(language):
    chosen = [block for block in ALL if block.language == language]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.where)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environment():
    library = str(BUILD / "lib")
    return dict(
        os.environ, PATH=f"{BUILD / 'bin'}:{os.environ['PATH']}", LD_LIBRARY_PATH=library,
        PKG_CONFIG_PATH=str(BUILD / "lib/pkgconfig"), CMAKE_PREFIX_PATH=str(BUILD), LIBBLIP_PATH=library,
        PYTHONPATH=str(ROOT / "bindings/python/src"), LIBBLIP=str(ROOT))


def compile_program(block, compiler, standard, folder, packages=("blip",)):
    suffix = ".cc" if "+" in standard else ".c"
    text = block.text
    if not re.search(r"^int main\(", text, re.M):
        statements = not re.search(r"^(static|typedef|struct|#include)\b", text, re.M)
        text = f'#include "prelude.h"\n' + (f"void block(void);\nvoid block(void)\n{{\n{text}\n}}\n" if statements else text)
    source = folder / f"block{suffix}"
    source.write_text(text)
    # A header that the page gives a name is there for its other blocks.
    for other in blocks(block.page):
        if other.file and other.file.endswith((".h", ".hpp")):
            (folder / other.file).write_text(other.text)
    flags = subprocess.run(["pkg-config", "--cflags", "blip"], env=environment(), capture_output=True, text=True).stdout.split()
    for package in ("libuv", "glib-2.0"):
        if {"libuv": "uv.h", "glib-2.0": "glib"}[package] in text:
            found = subprocess.run(["pkg-config", "--cflags", package], capture_output=True, text=True)
            if found.returncode:
                pytest.skip(f"{package} is not installed")
            flags += found.stdout.split()
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable",
               f"-I{Path(__file__).parent}", *flags, "-c", str(source), "-o", str(folder / "block.o")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{block.where}:\n{result.stderr}"


@of("c")
def test_c(block, tmp_path):
    compile_program(block, "cc", "gnu11", tmp_path)


@of("cpp")
def test_cpp(block, tmp_path):
    if block.file and block.file.endswith(".hpp"):
        pytest.skip("a header, which other blocks include")
    compile_program(block, "c++", "c++17", tmp_path)


def check_python_names(tree, block):
    """Attributes of the package that a block speaks of exist."""
    import blip
    import blip.sync

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if re.fullmatch(r"blip(\.\w+)+", name):
                thing = blip
                for part in name.split(".")[1:]:
                    assert hasattr(thing, part), f"{block.where}: {name} does not exist"
                    thing = getattr(thing, part)


@pytest.fixture(scope="module")
def server():
    """The tool's server, for programs that expect one; gives its port."""
    process = subprocess.Popen(
        [BUILD / "bin/blip", "serve", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=environment())
    yield re.search(r":(\d+)/", process.stdout.readline())[1]
    process.terminate()
    process.wait(10)


@of("python")
def test_python(block, tmp_path, server, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bindings/python/src"))
    monkeypatch.setenv("LIBBLIP_PATH", str(BUILD / "lib"))
    code = compile(block.text, block.where, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    check_python_names(code, block)
    if block.reason or block.file:
        return
    (tmp_path / "block.py").write_text(block.text.replace(PORT, server))
    result = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{block.where}:\n{result.stderr}"


@of("js")
@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_js(block, tmp_path):
    (tmp_path / "block.mjs").write_text(block.text)
    result = subprocess.run(["node", "--check", "block.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"{block.where}:\n{result.stderr}"


@of("json")
def test_json(block):
    json.loads(block.text)


SHELL = """
set -eu -o pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
sudo() { echo "would run as root: $*"; }
listening() {
    for _ in $(seq 100); do
        if (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "nothing listens on port $1" >&2; return 1
}
"""


def shell_script(run, port):
    """The page's shell blocks as one script, which says where each begins."""
    lines = [SHELL]
    for number, block in enumerate(run):
        lines.append(f"printf '\\n@@ %s\\n' '{number} {block.where}'")
        for line in block.text.replace(PORT, port).splitlines():
            lines.append(line)
            if re.search(r"&(\s+#.*)?$", line):
                lines.append(f"listening {port}")
    return "\n".join(lines) + "\n"


PAGES_WITH_SHELL = [page for page in pages() if any(b.language == "sh" and not b.reason for b in blocks(page))]


@pytest.mark.parametrize("page", PAGES_WITH_SHELL, ids=lambda page: str(page.relative_to(ROOT)))
def test_shell(page, tmp_path):
    found, port = blocks(page), free_port()
    for name in ("build", "bindings", "docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    for block in found:
        if block.file:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text.replace(PORT, port))
    run = [block for block in found if block.language == "sh" and not block.reason]
    for tool in ("cmake", "nginx", "haproxy"):
        if any(re.search(rf"^\s*{tool}\b", block.text, re.M) for block in run) and not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    for package in ("libuv", "glib-2.0"):
        if any(package in block.text for block in run) and subprocess.run(["pkg-config", "--exists", package]).returncode:
            pytest.skip(f"the development files of {package} are not installed")
    (tmp_path / "run.sh").write_text(shell_script(run, port))
    result = subprocess.run(
        ["bash", "run.sh"], cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, f"{page.relative_to(ROOT)}:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    check_outputs(found, run, result.stdout, port)


def check_outputs(found, run, stdout, port):
    printed = dict(re.findall(r"^@@ (\d+) [^\n]*\n(.*?)(?=^@@ |\Z)", stdout, re.S | re.M))
    for before, block in zip(found, found[1:]):
        if block.is_output:
            assert before in run, f"{block.where}: output of what is not run"
            text, place = printed[str(run.index(before))], 0
            for line in block.text.replace(PORT, port).splitlines():
                place = text.find(line, place)
                assert place >= 0, f"{block.where}: {line!r} is not printed, but\n{text}"


def make_targets():
    text = (ROOT / "Makefile").read_text() + (ROOT / "packaging/targets.mk").read_text()
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.M))


@of("sh")
def test_commands_exist(block):
    """Targets of make and paths in the checkout that a shell block names exist, whether it is run or not."""
    known = make_targets()
    code = re.sub(r"#.*", "", block.text)
    for line in code.splitlines():
        match = re.match(r"\s*(?:sudo )?make((?: [a-z][a-z-]*)+)\s*$", line)
        for target in (match[1].split() if match else []):
            assert target in known, f"{block.where}: make has no target {target}"
    for path in re.findall(r"(?<![\w/.])((?:scripts|docs|examples|bindings|packaging|Tests|\.ci)/[\w./-]+)", code):
        assert (ROOT / path).exists(), f"{block.where}: {path} does not exist"
    if subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True).returncode:
        pytest.fail(f"{block.where} is not valid shell")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_known(page):
    """Fenced blocks have a language that is tested; commands are not hidden in indented blocks."""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.where}: language {block.language!r} is not tested"
        assert block.reason is None or len(block.reason) > 10, f"{block.where}: say why it is not run"
    for line, text in indented(page):
        assert not COMMANDS.search(text), f"{page.relative_to(ROOT)}:{line}: commands belong into a block ```sh"


def test_few_blocks_are_not_run():
    exceptions = [block for block in ALL if block.reason]
    tested = [block for block in ALL if block.language in ("c", "cpp", "python", "sh")]
    assert len(exceptions) * 3 < len(tested), [f"{block.where}: {block.reason}" for block in exceptions]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"\w+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_troubleshooting_speaks_of_the_texts_that_people_see():
    """Headings of the page are texts of statuses, and the status named below is theirs."""
    import ctypes

    library = ctypes.CDLL(str(BUILD / "lib/libblip.so.1"))
    library.blip_status_message.restype = ctypes.c_char_p
    header = (ROOT / "Include/blip.h").read_text(encoding="utf-8")
    values = dict(re.findall(r"^#define (BLIP_ERROR_\w+) \((-\d+)\)", header, re.M))
    page = (ROOT / "docs/guides/troubleshooting.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (.*)\n\n`(BLIP_\w+)`", page, re.M)
    assert len(sections) > 20
    for heading, status in sections:
        assert library.blip_status_message(int(values[status])).decode() == heading, status


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_functions_that_pages_name_exist(page):
    header = (ROOT / "Include/blip.h").read_text() + (ROOT / "bindings/c/blip_easy.h").read_text()
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for name in re.findall(r"`((?:blip|BLIP)_[A-Za-z0-9_]*[A-Za-z0-9])(?:\(.*?\))?`", text):
        if not re.fullmatch(r"BLIP_(3|WARNINGS_AS_ERRORS)|blip_(read|write|open)_.*", name) and name != "blip_x":
            assert re.search(rf"\b{name}\b", header) or (ROOT / "examples/c" / name).with_suffix(".c").exists(), name
