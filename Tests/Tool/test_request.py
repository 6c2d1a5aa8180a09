"""`blip request` against `blip serve`."""

import base64
import json
import os
import subprocess
import threading
import time

import pytest

from program import BLIP, Server, blip


def lines(size):
    """What the profile source sends."""
    return b"".join(b"%015d\n" % number for number in range(size // 16 + 1))[:size]


def test_echo_of_a_text(server):
    result = blip("request", server.url, "echo", "-d", "grüße\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "grüße\n".encode(), b"")


def test_an_empty_body(server):
    result = blip("request", server.url, "echo")
    assert (result.returncode, result.stdout) == (0, b"")


@pytest.mark.parametrize("flags", [[], ["--compressed"], ["--urgent"], ["--compressed", "--urgent"]], ids=str)
@pytest.mark.parametrize("size", [1, 16_384, 300_000, 5_000_000])
def test_echo_of_a_file(server, tmp_path, size, flags):
    content = os.urandom(size // 2) + bytes(size - size // 2)
    (tmp_path / "in").write_bytes(content)
    result = blip("request", server.url, "echo", "-f", tmp_path / "in", "-o", tmp_path / "out", *flags)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_bytes() == content


@pytest.mark.parametrize("form", [["-"], ["-f", "-"]], ids=str)
def test_echo_of_standard_input(server, form):
    content = os.urandom(3_000_000)
    result = blip("request", server.url, "echo", *form, input=content)
    assert result.returncode == 0, result.stderr
    assert result.stdout == content


def test_standard_input_that_comes_slowly_is_sent_as_it_comes(server):
    process = subprocess.Popen(
        [BLIP, "request", server.url, "sink", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for _ in range(5):
        process.stdin.write(b"x" * 1000)
        process.stdin.flush()
        time.sleep(0.05)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, b"5000")


def test_a_named_pipe_is_a_file_too(server, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(b"y" * 200_000))
    writer.start()
    result = blip("request", server.url, "sink", "-f", fifo)
    writer.join()
    assert (result.returncode, result.stdout) == (0, b"200000")


def test_properties_and_flags_come_back(server):
    result = blip("request", server.url, "echo", "-p", "one=1", "-p", "two=a=b", "--compressed", "--urgent", "-v")
    assert result.returncode == 0
    text = result.stderr.decode()
    assert "< one: 1\n< two: a=b\n" in text
    assert "(compressed, urgent)" in text
    assert "Profile" not in text
    assert "* connected to 127.0.0.1:" in text and "BLIP_3" in text


def test_json(server):
    result = blip("request", server.url, "echo", "-p", 'k"1=v\\2', "-d", "line\n\x01é", "--json")
    assert result.returncode == 0
    assert result.stdout.count(b"\n") == 1
    reply = json.loads(result.stdout)
    assert reply.pop("milliseconds") > 0
    assert reply == {
        "type": "reply",
        "number": 1,
        "properties": {'k"1': "v\\2"},
        "flags": [],
        "size": 8,
        "body": "line\n\x01é",
    }


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_json_of_a_body_that_is_no_text(server, size):
    content = b"\xff" * size
    reply = json.loads(blip("request", server.url, "echo", "--json", "-", input=content).stdout)
    assert base64.b64decode(reply["bodyBase64"], validate=True) == content
    assert "body" not in reply


def test_json_with_a_file(server, tmp_path):
    reply = json.loads(blip("request", server.url, "echo", "-d", "abc", "--json", "-o", tmp_path / "out").stdout)
    assert (reply["output"], reply["size"]) == (str(tmp_path / "out"), 3)
    assert (tmp_path / "out").read_bytes() == b"abc"


@pytest.mark.parametrize("size", [0, 1, 16, 17, 100_000, 10_000_001])
@pytest.mark.parametrize("flags", [[], ["--compressed"]], ids=str)
def test_source(server, size, flags):
    result = blip("request", server.url, "source", "-p", f"size={size}", *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout == lines(size)


@pytest.mark.parametrize("size", ["", "x", "-1", "99999999999999999999999"])
def test_source_wants_a_size(server, size):
    result = blip("request", server.url, "source", "-p", f"size={size}")
    assert result.returncode == 1
    assert b'BLIP/400: source wants a property "size"' in result.stderr


@pytest.mark.parametrize("size", [0, 10, 100_000, 20_000_000])
def test_sink_counts(server, tmp_path, size):
    with open(tmp_path / "in", "wb") as file:
        file.truncate(size)
    result = blip("request", server.url, "sink", "-f", tmp_path / "in")
    assert (result.returncode, result.stdout) == (0, str(size).encode())


def test_sleep_answers_late_and_holds_nobody_up(server):
    start = time.monotonic()
    slow = subprocess.Popen([BLIP, "request", server.url, "sleep", "-p", "ms=1500"], stdout=subprocess.PIPE)
    assert blip("request", server.url, "echo", "-d", "quick").stdout == b"quick"
    assert slow.poll() is None
    slow.communicate(timeout=10)
    assert slow.returncode == 0
    assert 1.5 <= time.monotonic() - start < 8


def test_error_reply(server):
    request = ["request", server.url, "error", "-p", "domain=Test", "-p", "code=-7", "-p", "text=it \x1b[1mfailed"]
    result = blip(*request)
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.decode() == f"blip: {server.url} answered with an error: Test/-7: it \\x1b[1mfailed\n"
    result = blip(*request, "--json")
    reply = json.loads(result.stdout)
    assert result.returncode == 1
    assert (reply["type"], reply["domain"], reply["code"], reply["text"]) == ("error", "Test", -7, "it \x1b[1mfailed")


def test_error_without_properties(server):
    result = blip("request", server.url, "error")
    assert result.returncode == 1
    assert b"BLIP/599: the error that was asked for" in result.stderr


def test_a_long_error_text_is_cut_to_one_line(server):
    result = blip("request", server.url, "error", "-p", "text=" + "z" * 60_000)
    assert result.returncode == 1
    assert 10_000 < len(result.stderr) < 20_000 and result.stderr.count(b"\n") == 1


def test_unknown_profile(server):
    result = blip("request", server.url, "nobody")
    assert result.returncode == 1
    assert b"BLIP/404: " in result.stderr


def test_no_reply(server):
    result = blip("request", server.url, "echo", "-d", "x", "--no-reply")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    result = blip("request", server.url, "echo", "-d", "x", "--no-reply", "--json")
    assert json.loads(result.stdout) == {"type": "sent"}


@pytest.mark.parametrize("profile", ["echo", "sink", "source", "error", "sleep"])
def test_no_reply_with_a_long_body_is_taken(server, profile):
    assert blip("request", server.url, profile, "--no-reply", "-", input=bytes(2_000_000)).returncode == 0
    assert blip("request", server.url, "echo", "-d", "still there").stdout == b"still there"


def test_output_file_keeps_its_content_when_the_request_fails(server, tmp_path):
    (tmp_path / "out").write_text("precious")
    assert blip("request", server.url, "error", "-o", tmp_path / "out").returncode == 1
    assert (tmp_path / "out").read_text() == "precious"
    assert blip("request", server.url, "echo", "-d", "new", "-o", tmp_path / "out").returncode == 0
    assert (tmp_path / "out").read_text() == "new"


def test_output_that_cannot_be_written(server):
    result = blip("request", server.url, "echo", "-d", "x", "-o", "/nonexistent/file")
    assert result.returncode == 64
    assert result.stderr.startswith(b"blip request: cannot write '/nonexistent/file': No such file")
    result = blip("request", server.url, "source", "-p", "size=100000", "-o", "/dev/full")
    assert result.returncode == 64
    assert b"cannot write '/dev/full': No space left" in result.stderr


def test_subprotocols(server):
    for name, shown in [("BLIP", b" BLIP\n"), ("BLIP_3", b" BLIP_3\n")]:
        result = blip("request", server.url, "echo", "-d", "x" * 1000, "--compressed", "-v", "--protocol", name)
        assert (result.returncode, result.stdout) == (0, b"x" * 1000)
        assert shown in result.stderr
    with Server("--protocol", "BLIP_3+Chat_2", "--protocol", "BLIP_3+Chat_1") as chat:
        result = blip(
            *["request", chat.url, "echo", "-v"],
            *["--protocol", "BLIP_3+Chat_9", "--protocol", "BLIP_3+Chat_1", "--protocol", "BLIP_3+Chat_2"],
        )
        assert b" BLIP_3+Chat_1\n" in result.stderr


@pytest.mark.parametrize("version", ["BLIP", "BLIP_3"])
def test_long_bodies_in_both_versions(server, version):
    content = b"".join(b"%d," % number for number in range(300_000))
    result = blip("request", server.url, "echo", "--compressed", "--protocol", version, "-", input=content)
    assert result.returncode == 0, result.stderr
    assert result.stdout == content


def test_address_forms_of_clients(server):
    for form in [str(server.port), f":{server.port}", f"127.0.0.1:{server.port}", f"http://127.0.0.1:{server.port}"]:
        result = blip("request", form, "echo", "-d", form)
        assert (result.returncode, result.stdout) == (0, form.encode()), form
