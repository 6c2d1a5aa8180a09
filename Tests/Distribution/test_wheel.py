"""The wheels, in environments of their own: one has the library inside, the other finds the system's."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "build/wheels"

# What may stay outside: each Linux that the tag allows has these.
SYSTEM = re.compile(r"(libc|libm|libgcc_s|libstdc\+\+|libz|ld-linux-[\w-]+)\.so\.\d+$")

PROGRAM = """
import asyncio, blip, blip.sync, sys

async def main():
    async with blip.serve("127.0.0.1", 0, handlers={"echo": lambda request: request.body}) as listener:
        async with blip.connect(listener.url) as connection:
            reply = await connection.request("echo", b"x" * 300_000, compressed=True, timeout=30)
            assert reply.body == b"x" * 300_000

asyncio.run(main())
with blip.sync.serve("127.0.0.1", 0, tls=(sys.argv[1], sys.argv[2]), handlers={"echo": lambda r: r.body}) as listener:
    with blip.sync.connect(listener.url, verify=False) as connection:
        assert connection.request("echo", b"secret", timeout=30).body == b"secret"
print(blip.LIBRARY_PATH, blip.LIBRARY_VERSION, blip.__version__)
"""


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def wheel(pattern):
    found = list(WHEELS.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}; run make wheel"
    return found[0]


def fresh(folder, path):
    """A new environment with that wheel and nothing else, and an environment without our paths."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", path)
    kept = {name: value for name, value in os.environ.items()
            if name not in ("LD_LIBRARY_PATH", "LIBBLIP_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return python, kept


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    folder = tmp_path_factory.mktemp("identity")
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "certificate.pem")
    return folder / "certificate.pem", folder / "key.pem"


def test_the_library_inside_is_used(tmp_path, identity):
    python, environment = fresh(tmp_path / "venv", wheel("blip-*linux*.whl"))
    path, library, package = run(python, "-c", PROGRAM, *identity, env=environment, cwd=tmp_path).split()
    assert Path(path).is_relative_to(tmp_path / "venv") and library == package


def test_the_pure_package_finds_the_systems_library(tmp_path, identity):
    python, environment = fresh(tmp_path / "venv", wheel("blip-*-any.whl"))
    environment["LD_LIBRARY_PATH"] = str(ROOT / "build/lib")
    path, library, package = run(python, "-c", PROGRAM, *identity, env=environment, cwd=tmp_path).split()
    assert path == "libblip.so.1" and library == package


def test_without_any_library_the_error_says_what_to_do(tmp_path):
    python, environment = fresh(tmp_path / "venv", wheel("blip-*-any.whl"))
    if subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.count("libblip.so.1"):
        pytest.skip("this machine has the library installed")
    result = subprocess.run([python, "-c", "import blip"], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert result.returncode != 0 and "LIBBLIP_PATH" in result.stderr


def test_only_system_libraries_stay_outside(tmp_path):
    with zipfile.ZipFile(wheel("blip-*linux*.whl")) as archive:
        archive.extractall(tmp_path)
    inside = {path.name for path in tmp_path.glob("blip.libs/*")}
    for path in [tmp_path / "blip/libblip.so.1", *tmp_path.glob("blip.libs/*")]:
        dynamic = run("readelf", "-d", path)
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            assert name in inside or SYSTEM.match(name), f"{path.name} needs {name}"
        for place in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
            assert place.startswith("$ORIGIN"), place


def test_tag_and_contents():
    path = wheel("blip-*linux*.whl")
    assert re.fullmatch(r"blip-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl", path.name)
    for other in (path, wheel("blip-*-any.whl")):
        names = zipfile.ZipFile(other).namelist()
        assert "blip/py.typed" in names and any(name.endswith("LICENSE") for name in names)
        assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


TYPED = """
import asyncio
import blip
import blip.sync

async def greet(request: blip.Request) -> str:
    return request.text()

async def main() -> None:
    async with blip.serve("127.0.0.1", 0, handlers={"greet": greet}) as listener:
        async with blip.connect(listener.url) as connection:
            reply: blip.Reply = await connection.request("greet", "hello")
            text: str = reply.text()
            print(text, reply.properties.get("key"))

asyncio.run(main())
with blip.sync.connect("ws://localhost/") as client:
    body: bytes = client.request("echo", b"").body
"""


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_types_are_right_for_users_and_inside(checker, tmp_path):
    """The package itself, strictly, and a program that uses the installed one."""
    folder = Path(sys.executable).parent
    (tmp_path / "program.py").write_text(TYPED)
    python, environment = fresh(tmp_path / "venv", wheel("blip-*-any.whl"))
    if checker == "mypy":
        run(folder / "mypy", "--strict", "--cache-dir", tmp_path / "cache", "src/blip", cwd=ROOT / "bindings/python")
        run(folder / "mypy", "--strict", "--cache-dir", tmp_path / "cache", "--python-executable", python, "program.py",
            cwd=tmp_path)
    else:
        (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "venvPath": ".", "venv": "venv", "include": ["program.py"]}')
        run(folder / "basedpyright", "--level", "error", cwd=tmp_path)
        # Classes of the package narrow what their bases declare, which mypy takes and pyright would not.
        settings = {"typeCheckingMode": "standard", "pythonVersion": "3.9", "include": [f"{ROOT}/bindings/python/src/blip"],
                    "reportIncompatibleVariableOverride": False, "reportIncompatibleMethodOverride": False}
        (tmp_path / "inside.json").write_text(json.dumps(settings))
        run(folder / "basedpyright", "--level", "error", "-p", tmp_path / "inside.json", cwd=tmp_path)
