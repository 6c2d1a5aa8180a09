"""What the README shows is true: its programs run, its commands exist."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time

import pytest

from program import ROOT, blip

README = (ROOT / "README.md").read_text()


def program(language, including=""):
    texts = re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)
    (text,) = [text for text in texts if including in text]
    return text


def build(text, to):
    """Compiles a C program of the README, strictly; gives the environment to run it in."""
    to.with_suffix(".c").write_text(text)
    environment = dict(os.environ, PKG_CONFIG_PATH=str(ROOT / "build" / "lib" / "pkgconfig"))
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "blip"], env=environment, capture_output=True, check=True
    ).stdout.decode()
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", ROOT / "bindings" / "c"]
    subprocess.run(["gcc", *strict, to.with_suffix(".c"), "-o", to, *shlex.split(flags)], check=True, timeout=60)
    environment["LD_LIBRARY_PATH"] = str(ROOT / "build" / "lib")
    return environment


@pytest.fixture
def on_port_of_the_readme(server):
    return lambda text: text.replace("ws://127.0.0.1:4984/", server.url)


def test_the_c_program(on_port_of_the_readme, tmp_path):
    environment = build(on_port_of_the_readme(program("c", "blip_connection_new")), tmp_path / "hello")
    result = subprocess.run([tmp_path / "hello"], env=environment, capture_output=True, timeout=30)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"hello\n", b"")


def test_the_c_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    environment = build(program("c", "blip_easy_listener_new").replace("4984", port), tmp_path / "server")
    server = subprocess.Popen([tmp_path / "server"], env=environment)
    try:
        deadline = time.monotonic() + 10
        while (result := blip("request", port, "echo", "-d", "hello")).returncode == 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (result.returncode, result.stdout) == (0, b"hello"), result.stderr
    finally:
        server.kill()
        server.wait()


def test_the_python_program(on_port_of_the_readme):
    result = subprocess.run(
        [sys.executable, "-c", on_port_of_the_readme(program("python"))],
        env=dict(os.environ, PYTHONPATH=str(ROOT / "bindings" / "python" / "src")),
        capture_output=True,
        timeout=30,
    )
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout == b"hello en\n"


def test_the_make_targets_that_documents_name():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    targets = set(re.findall(r"^  ([a-z-]+) ", listed, re.M))
    named = set()
    for name in ["README.md", "CONTRIBUTING.md"]:
        text = (ROOT / name).read_text()
        for words in re.findall(r"(?:^    |`)make ([a-z -]+)", text, re.M):
            named |= set(words.split("  ")[0].split())
    assert named <= targets, named - targets


EASY = """
#include <blip_easy.h>

int main(int count, char **words)
{
    blip_connection *connection;
    return count < 2 || blip_easy_connect(words[1], 5000, &connection, stderr) != BLIP_OK;
}
"""


@pytest.mark.parametrize(
    ["url", "says"],
    [
        ("ws://me:secret@127.0.0.1:1/", "cannot connect to ws://127.0.0.1:1/: connect to 127.0.0.1:1: "),
        ("ws://me:secret@127.0.0.1:99999/", "cannot connect: the port at byte"),
        ("ws://me:secret@/", "cannot connect: the URL has no host"),
    ],
)
def test_the_easy_header_says_why_without_the_password(tmp_path, url, says):
    environment = build(EASY, tmp_path / "easy")
    result = subprocess.run([tmp_path / "easy", url], env=environment, capture_output=True, timeout=30)
    assert result.returncode == 1
    text = result.stderr.decode()
    assert text.startswith(says) and text.count("\n") == 1 and "secret" not in text


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
        assert target.startswith("https://") or (ROOT / target).exists(), target


@pytest.mark.parametrize(
    "folder", ["Include", "Sources", "Tests", "bindings", "examples", "docs", "packaging", "scripts"]
)
def test_folders_that_the_readme_names(folder):
    assert f"{folder}/" in README and (ROOT / folder).is_dir()
