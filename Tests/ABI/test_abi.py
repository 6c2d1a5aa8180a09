"""The binary interface: that a break is noticed, whatever it breaks, and that what is added is none."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "Include/blip.h"
LEDGER = ROOT / "docs/abi/symbols.txt"

needs_abidiff = pytest.mark.skipif(not shutil.which("abidiff"), reason="abidiff is missing: install abigail-tools")


def check_abi(*arguments):
    command = [sys.executable, str(ROOT / "scripts/check-abi"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def compiled_with():
    """C and C++ compilers that are there: gcc's, and clang beside swift or in the path."""
    swift = shutil.which(os.environ.get("SWIFT", "swift"))
    folders = [os.environ["PATH"]] + ([str(Path(swift).resolve().parent)] if swift else [])
    for c, cxx in (("gcc", "g++"), ("clang", "clang++")):
        for folder in folders:
            if shutil.which(c, path=folder) and shutil.which(cxx, path=folder):
                yield shutil.which(c, path=folder), shutil.which(cxx, path=folder)
                break


@needs_abidiff
def test_the_interface_is_compatible_with_the_recorded_one():
    result = check_abi()
    assert result.returncode == 0, result.stderr


BREAKS = {
    "a parameter's type": ("blip_connection *connection, int64_t timeout);", "blip_connection *connection, int32_t timeout);"),
    "a parameter's sign": ("blip_queue_new(uint32_t capacity", "blip_queue_new(int32_t capacity"),
    "an opaque type": ("blip_connection_is_active(blip_connection *", "blip_connection_is_active(blip_listener *"),
    "a parameter more": ("blip_queue_wake(blip_queue *queue)", "blip_queue_wake(blip_queue *queue, int32_t times)"),
    "a parameter less": ("blip_url_check(blip_slice url, blip_error **error)", "blip_url_check(blip_slice url)"),
    "a result's type": ("uint32_t blip_version_number(void)", "uint64_t blip_version_number(void)"),
    "no result": ("blip_status blip_queue_wake(", "void blip_queue_wake("),
    "a pointer for a value": ("blip_slice blip_text(const", "const blip_slice *blip_text(const"),
    "the order of parameters": ("blip_queue_dispatch(blip_queue *queue, size_t max, int64_t timeout",
                                "blip_queue_dispatch(blip_queue *queue, int64_t timeout, size_t max"),
    "a callback's parameter": ("(*blip_pong_fn)(\n    blip_connection *connection, blip_status status, int64_t",
                               "(*blip_pong_fn)(\n    blip_connection *connection, blip_status status, int32_t"),
    "a callback's result": ("typedef void (*blip_open_fn)(", "typedef int (*blip_open_fn)("),
    "a structure's order": ("    const void *data;\n    /** The number of bytes. */\n    size_t size;",
                            "    size_t size;\n    /** The number of bytes. */\n    const void *data;"),
    "a structure's size": ("    size_t size;\n} blip_slice;", "    size_t size;\n    size_t more;\n} blip_slice;"),
    "the width of a status": ("typedef int32_t blip_status;", "typedef int64_t blip_status;"),
    "a constant's value": ("#define BLIP_ERROR_TIMEOUT (-53)", "#define BLIP_ERROR_TIMEOUT (-54)"),
    "a constant's name": ("#define BLIP_TLS_1_2 0x0303", "#define BLIP_TLS_12 0x0303"),
}


@needs_abidiff
@pytest.mark.parametrize("what", BREAKS)
def test_a_break_is_noticed(what, tmp_path):
    before, after = BREAKS[what]
    text = HEADER.read_text(encoding="utf-8")
    assert before in text, "the header has no such declaration any more: choose another one"
    header = tmp_path / "blip.h"
    header.write_text(text.replace(before, after, 1), encoding="utf-8")
    result = check_abi("--header", header)
    assert result.returncode == 1 and "would break" in result.stderr, result.stdout + result.stderr


@needs_abidiff
def test_a_function_that_is_gone_is_noticed(tmp_path):
    header, ledger = tmp_path / "blip.h", tmp_path / "symbols.txt"
    header.write_text(re.sub(r"^blip_status blip_queue_wake\(.*?;$", "", HEADER.read_text(encoding="utf-8"), flags=re.M))
    ledger.write_text(LEDGER.read_text(encoding="utf-8").replace("blip_queue_wake 1.0\n", ""))
    result = check_abi("--header", header, "--ledger", ledger)
    assert result.returncode == 1 and "blip_queue_wake" in result.stderr


@needs_abidiff
def test_a_function_that_moves_to_another_version_is_noticed(tmp_path):
    ledger = tmp_path / "symbols.txt"
    ledger.write_text(LEDGER.read_text(encoding="utf-8").replace("blip_queue_wake 1.0", "blip_queue_wake 1.1"))
    result = check_abi("--ledger", ledger)
    assert result.returncode == 1 and "blip_queue_wake" in result.stderr


@needs_abidiff
def test_what_is_added_breaks_nothing(tmp_path):
    header, ledger = tmp_path / "blip.h", tmp_path / "symbols.txt"
    added = "/** More. Since 1.1. */\n#define BLIP_MORE 1\n/** More. Since 1.1. */\nblip_status blip_queue_more(blip_queue *queue);\n"
    text = HEADER.read_text(encoding="utf-8")
    place = text.rindex("#ifdef __cplusplus")
    header.write_text(text[:place] + added + text[place:], encoding="utf-8")
    ledger.write_text(LEDGER.read_text(encoding="utf-8") + "blip_queue_more 1.1\n")
    result = check_abi("--header", header, "--ledger", ledger)
    assert result.returncode == 0, result.stderr
    assert "blip_queue_more" in result.stdout and "BLIP_MORE" in result.stdout


LAYOUT = """
#include <blip.h>
#include <stddef.h>
#ifdef __cplusplus
#define SAME(a, b) static_assert((a) == (b), #a)
#else
#define SAME(a, b) typedef char same_[(a) == (b) ? 1 : -1]
#endif
void layout(void);
void layout(void)
{
    { SAME(sizeof(blip_slice), 2 * sizeof(void *)); }
    { SAME(offsetof(blip_slice, data), 0); }
    { SAME(offsetof(blip_slice, size), sizeof(void *)); }
    { SAME(sizeof(blip_status), 4); }
    { SAME(BLIP_OK, 0); }
}
"""


@pytest.mark.parametrize("compilers", list(compiled_with()), ids=lambda pair: Path(pair[0]).name)
@pytest.mark.parametrize("standard", ["c99", "c11", "c17", "c++11", "c++17"])
def test_header_compiles_and_has_its_layout(compilers, standard, tmp_path):
    compiler = compilers["+" in standard]
    source = tmp_path / ("layout.cc" if "+" in standard else "layout.c")
    source.write_text(LAYOUT)
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused-local-typedefs",
               f"-I{HEADER.parent}", "-fsyntax-only", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_every_structure_has_its_layout_asserted():
    """A new public structure needs lines in LAYOUT."""
    for name in re.findall(r"^\} (blip_\w+);", HEADER.read_text(encoding="utf-8"), re.M):
        assert f"sizeof({name})" in LAYOUT


def test_header_ledger_library_and_documentation_agree():
    library = Path(os.environ.get("LIBBLIP_PATH", ROOT / "build/lib/libblip.so.1"))
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts/check-header"), str(library)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_programs_that_were_linked_to_another_build_run(tmp_path):
    """What `make release-check` does with the first release, with this commit in its place and few of the tests."""
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True).returncode:
        pytest.skip("not a git checkout: there is no revision to build programs of")
    result = subprocess.run(
        [str(ROOT / "scripts/check-programs"), "HEAD"], capture_output=True, text=True, timeout=120, cwd=ROOT,
        env=dict(os.environ, CHECK_PROGRAMS="test_status test_messages"))
    assert result.returncode == 0, result.stderr
    assert "2 passed, 0 failed" in result.stdout
