"""`make install`, as a packager sees it."""

import os
import re
import shutil
import subprocess

import pytest

from program import ROOT, blip

HEADER = (ROOT / "Include/blip.h").read_text()
VERSION = ".".join(re.findall(r"^#define BLIP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", HEADER, re.M))

PROGRAM = r"""
#include <blip.h>
#include <stdio.h>

int main(void)
{
    printf("%s\n", blip_version_string());
    return blip_version_number() != BLIP_VERSION_NUMBER;
}
"""


def run(*words, **options):
    result = subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=120, **options)
    return result.stdout.decode()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    run("make", "install", f"DESTDIR={folder}", "PREFIX=/opt/blip", cwd=ROOT)
    return folder / "opt" / "blip"


def test_everything_is_there(installed):
    files = [path.relative_to(installed) for path in installed.rglob("*") if not path.is_dir()]
    found = sorted(str(path) for path in files if path.parent.name != "man3")
    assert found == [
        "bin/blip",
        "include/blip.h",
        "include/blip_easy.h",
        "lib/cmake/blip/blip-config-version.cmake",
        "lib/cmake/blip/blip-config.cmake",
        "lib/libblip.so",
        "lib/libblip.so.1",
        f"lib/libblip.so.{VERSION}",
        "lib/pkgconfig/blip.pc",
        "share/bash-completion/completions/blip",
        "share/man/man1/blip.1",
        "share/man/man7/libblip.7",
    ]
    pages = {path.stem for path in files if path.parent.name == "man3"}
    functions = {line.split()[0] for line in (ROOT / "docs/abi/symbols.txt").read_text().splitlines() if line[0] != "#"}
    assert functions <= pages, "functions without a manual page"


def test_the_installed_tool_has_no_rpath(installed):
    dynamic = run("readelf", "-d", installed / "bin" / "blip")
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert "[libblip.so.1]" in dynamic
    environment = dict(os.environ, LD_LIBRARY_PATH=str(installed / "lib"))
    assert run(installed / "bin" / "blip", "--version", env=environment).startswith("blip 1.")


def test_the_built_tool_finds_the_library_beside_itself():
    dynamic = run("readelf", "-d", ROOT / "build" / "bin" / "blip")
    assert "RUNPATH" in dynamic and "[$ORIGIN/../lib]" in dynamic
    assert blip("--version").returncode == 0


def test_neither_needs_a_swift_runtime(installed):
    for file in ["bin/blip", f"lib/libblip.so.{VERSION}"]:
        needed = run("readelf", "-d", installed / file)
        assert "swift" not in needed and "Foundation" not in needed


def test_pkg_config_of_the_installation(installed):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(installed / "lib" / "pkgconfig"))
    assert run("pkg-config", "--variable=prefix", "blip", env=environment).strip() == "/opt/blip"
    assert run("pkg-config", "--cflags", "--libs", "blip", env=environment).split() == [
        "-I/opt/blip/include",
        "-L/opt/blip/lib",
        "-lblip",
    ]


PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(hello C)
find_package(blip 1.0 REQUIRED)
add_executable(hello hello.c)
target_link_libraries(hello PRIVATE blip::blip)
find_package(blip 2.0 QUIET)
if(blip_FOUND)
  message(FATAL_ERROR "another major version was accepted")
endif()
"""


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is missing")
@pytest.mark.parametrize("where", ["build", "installed"])
def test_cmake_finds_it(where, installed, tmp_path):
    prefix = ROOT / "build" if where == "build" else installed
    (tmp_path / "hello.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "hello").startswith("1.")


@pytest.mark.parametrize("where", ["build", "installed"])
def test_a_c_program_builds_with_pkg_config(installed, tmp_path, where):
    folder = ROOT / "build" if where == "build" else installed
    define = ["--define-prefix"] if where == "installed" else []
    environment = dict(os.environ, PKG_CONFIG_PATH=str(folder / "lib" / "pkgconfig"))
    flags = run("pkg-config", *define, "--cflags", "--libs", "blip", env=environment).split()
    (tmp_path / "program.c").write_text(PROGRAM)
    run("gcc", "-Wall", "-Werror", tmp_path / "program.c", "-o", tmp_path / "program", *flags)
    environment["LD_LIBRARY_PATH"] = str(folder / "lib")
    assert run(tmp_path / "program", env=environment).startswith("1.")


@pytest.mark.parametrize("prefix", ["relative", "/with a space"])
@pytest.mark.parametrize("target", ["install", "uninstall"])
def test_a_prefix_that_cannot_be_used(tmp_path, target, prefix):
    result = subprocess.run(
        ["make", target, f"DESTDIR={tmp_path}/", f"PREFIX={prefix}"], cwd=ROOT, capture_output=True, timeout=60
    )
    assert result.returncode != 0 and b"PREFIX" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_where_the_loader_does_not_look(tmp_path):
    output = run("make", "install", f"PREFIX={tmp_path}/own", cwd=ROOT)
    assert f"set LD_LIBRARY_PATH={tmp_path}/own/lib" in output
    assert "LD_LIBRARY_PATH" not in run("make", "install", f"DESTDIR={tmp_path}/package", "PREFIX=/opt/blip", cwd=ROOT)


def test_uninstall_leaves_nothing(installed, tmp_path):
    run("make", "install", f"DESTDIR={tmp_path}", "PREFIX=/usr", cwd=ROOT)
    run("make", "uninstall", f"DESTDIR={tmp_path}", "PREFIX=/usr", cwd=ROOT)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_the_manual_page_is_well_formed():
    page = ROOT / "docs" / "man" / "blip.1"
    formatter = shutil.which("groff") or shutil.which("nroff")
    if formatter is None:
        pytest.skip("groff is not installed")
    result = subprocess.run(
        [formatter, "-man", "-ww", "-Tutf8", "-z", str(page)], capture_output=True, timeout=60, check=True
    )
    assert result.stderr == b""


def test_the_completion_is_valid_bash():
    script = ROOT / "packaging" / "blip.bash-completion"
    run("bash", "-n", script)
    listing = run(
        *["bash", "-c", f"source {script}; COMP_WORDS=(blip req); COMP_CWORD=1; _blip; echo ${{COMPREPLY[*]}}"]
    )
    assert listing.strip() == "request"
    listing = run(
        *["bash", "-c", f"source {script}; COMP_WORDS=(blip ping x --cou); COMP_CWORD=3; _blip; echo ${{COMPREPLY[*]}}"]
    )
    assert listing.strip() == "--count"
